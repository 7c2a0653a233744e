// The map of patch runs: from which places a patch could change the answer, by the ballots of the page.
(function (V) {
  "use strict";

  const { make, byId } = V.gallery;

  function patchLaw(run) {
    if (run.poisoned || run.manifest.method.name !== "exact" || run.threat.name !== "patch") return null;
    return run.inputs.some((one) => one.ballot) ? V.exactLaw(run.manifest) : null;
  }

  function controls(run) {
    const law = patchLaw(run);
    byId("map-section").hidden = !law;
    if (!law) return;
    byId("side").max = String(Math.max(law.regions.height, law.regions.width));
    const options = run.inputs.filter((one) => one.ballot && one.radius !== null);
    const radii = options.map((one) => one.radius).sort((a, b) => a - b);
    byId("side").value = String(Math.min(Number(byId("side").max), (radii[radii.length >> 1] ?? 0) + 1));
    byId("map-input").replaceChildren(
      make("option", { value: "" }, `all ${options.length} that keep their label`),
      ...options.map((one) => make("option", { value: one.index }, `input ${one.index}`)),
    );
    draw(run);
  }

  function draw(run) {
    const law = patchLaw(run);
    if (!law) return;
    const side = Number(byId("side").value);
    const only = byId("map-input").value;
    const some = run.inputs.filter((one) => one.ballot && one.radius !== null && (only === "" || one.index === Number(only)));
    const { height, width } = law.regions;
    const down = height - Math.min(side, height) + 1;
    const across = width - Math.min(side, width) + 1;
    const step = Math.ceil(Math.max(down, across) / 64);
    const lost = new Map();
    let losing = 0;
    for (const one of some) {
      const seen = new Set(
        V.losingPlaces(one.ballot, law.regions, one.label, run.k, side).map(([t, l]) => `${Math.floor(t / step)} ${Math.floor(l / step)}`),
      );
      if (seen.size) losing++;
      for (const place of seen) lost.set(place, (lost.get(place) ?? 0) + 1);
    }
    const grid = [];
    for (let t = 0; t < down; t += step) {
      for (let l = 0; l < across; l += step) {
        const found = lost.get(`${t / step} ${l / step}`) ?? 0;
        grid.push({ top: t, left: l, bottom: Math.min(down, t + step), right: Math.min(across, l + step), lost: found });
      }
    }
    byId("side-text").textContent = `${side} x ${side} pixels`;
    const words =
      `A patch of ${side} x ${side} pixels could change the answer on ${losing} of ${some.length} inputs, from ` +
      `${lost.size} of ${grid.length} places. Elsewhere no content of the patch can: this is exact.`;
    byId("map-text").textContent = words;
    const settings = { height: down, width: across, most: Math.max(0, ...lost.values()), words, unit: "inputs lost" };
    V.charts.heat(byId("map"), grid, settings);
  }

  V.map = { controls, draw };
})((globalThis.Vauban ??= {}));

// What the page says of a run beside its claims: derived from the manifest, to which votes are bound, never from other texts.
(function (V) {
  "use strict";

  const RHO = 1e-3; // how often the bound on the accuracy of all inputs may fail
  const UNCHECKED =
    "Not checked: the title, names of runs and classes, pictures, attacks and their distances, and the sentences under " +
    "the claim (notes, and what the run does not prove). They are as the sender wrote them.";

  const number = (value) => value.toLocaleString("en");

  // Shares of what is proven are rounded down, those of inputs without a claim and of errors up
  const percent = (share) => `${(Math.floor(share * 10000 + 1e-9) / 100).toFixed(2)} %`;
  const percentUp = (share) => `${(Math.ceil(share * 10000 - 1e-9) / 100).toFixed(2)} %`;

  // The threat in the manifest's words; `integer`: radii are counts
  function threatOf(manifest, claims) {
    const whole = claims.every(({ radius }) => radius === null || Number.isInteger(radius));
    return { ...manifest.threat, integer: manifest.threat.ball === "closed" && whole };
  }

  // What two runs must have in common for their radii to be comparable: the threat, and what numbers are divided by
  function measureOf(manifest) {
    const { mean, scale } = manifest.inputs?.standardised ?? {};
    return JSON.stringify([manifest.threat.name, mean, scale, manifest.threat.name === "l2-scaled" ? manifest.smoothing : null]);
  }

  // What an input without a radius is called, and whether a claim can be about another label than the true one
  const uncertified = (manifest) => (manifest.settings.label === "given" ? "not certified" : "undecided");
  const mayBeWrong = (manifest) => manifest.settings.label !== "given";

  function titleOf(manifest, short = (text) => text) {
    const { data, settings } = manifest;
    if (manifest.kind === "poisoning") return `${data.spec === "not said" ? "inputs without a name" : short(data.spec)}, ${short(manifest.partition)}`;
    const what = `${short(data.spec)}, ${short(manifest.smoothing)}`;
    if (manifest.method.name === "exact") return `${what}, exact`;
    const votes = settings.n == null ? "" : `, ${number(settings.n)} votes per input`;
    return `${what}${votes}${settings.stop === "fixed" ? "" : `, ${settings.stop}`}`;
  }

  // The rule of a selection in words. Mirrors vauban/runs/selection.py
  function selectionWords(selection) {
    if (!selection) return "a selection that is not recorded";
    const { size, every, limit, shuffle, skipped } = selection;
    if (every === null) return "a selection by hand";
    const of = size === null ? "" : ` of ${size}`;
    const mixed = shuffle == null ? "" : ` in the order shuffled by ${shuffle}`;
    const left = skipped?.length ? ` without ${skipped.length} whose files cannot be read` : "";
    if (every === 1 && limit === null) return `all inputs${of}${mixed}${left}`;
    const most = limit === null ? "" : `, at most ${limit},`;
    return `${every === 1 ? "every input" : `inputs 0, ${every}, …`}${most}${of}${mixed}${left}`;
  }

  function votesWords({ method, settings }) {
    const label = settings.label === "given" ? "true labels" : "labels chosen by votes";
    if (method.name === "exact") return `every view of ${number(method.views)}, ${label}`;
    const each = settings.n == null ? "" : `${number(settings.n)} for each input, `;
    return `${each}alpha ${settings.alpha}, bounds ${settings.bounds}, stop ${settings.stop}, top ${settings.k}, ${label}`;
  }

  function seedWords(seed) {
    if (!seed) return "none: every view votes";
    return `${seed.kind ?? "of a kind that is not recorded"}, commitment ${seed.commitment}`;
  }

  // Where a run comes from, as pairs of a name and a text
  function aboutOf(manifest, identity) {
    const { data, model, compute } = manifest;
    const rows = [["data", `${data.spec}, sha256 ${data.sha256}`]];
    if (manifest.kind === "poisoning") {
      rows.push(["partition", `${manifest.partition}, ${number(manifest.models)} base classifiers`]);
      rows.push(["aggregate", manifest.settings.aggregate]);
    } else {
      rows.push(["inputs", selectionWords(data.selection)]);
      rows.push(["model", `${model.spec}, sha256 ${model.sha256}`]);
      rows.push(["smoothing", manifest.smoothing]);
      rows.push(["votes", votesWords(manifest)]);
      rows.push(["seed", seedWords(manifest.seed)]);
      rows.push(["arithmetic", `${compute.backend?.name ?? "torch"}, ${compute.precision}, ${compute.device}, ${compute.rows} rows`]);
    }
    const versions = Object.entries(manifest.versions).map(([name, version]) => `${name} ${version}`);
    return [...rows, ["versions", versions.join(", ")], ["manifest", `sha256 ${identity}`]];
  }

  Object.assign(V, { RHO, UNCHECKED, percent, percentUp, threatOf, measureOf, uncertified, mayBeWrong, titleOf, aboutOf });
})((globalThis.Vauban ??= {}));

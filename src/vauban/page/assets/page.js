// The page: reads its contents, draws curve, gallery, map and texts, and verifies every claim on request.
(function (V) {
  "use strict";

  const { make, byId, shownRadius } = V.gallery;
  const contents = JSON.parse(byId("contents").textContent);
  const state = { run: 0, radius: 0, page: 0 };

  const { percent, percentUp } = V;
  const runs = contents.runs.map(prepared);

  // A run of the contents with its inputs, each with its state
  function prepared(given) {
    const manifest = V.readManifest(given.manifest);
    const positions = new Map(manifest.data.index.map((number, position) => [number, position]));
    const names = given.pictures.classes;
    const poisoned = manifest.kind === "poisoning";
    const spread = poisoned ? Number(V.readSpec(manifest.partition)[1].spread ?? 1) : 1;
    const claims = V.readClaims(given.claims, manifest);
    const inputs = claims.map((claim) => ({
      ...claim,
      position: positions.get(claim.index),
      state: stateOf(claim, manifest),
      outvoted: false,
    }));
    const { k, alpha = 0 } = manifest.settings;
    const exact = poisoned || manifest.method.name === "exact";
    const labelled = inputs.some((one) => one.truth !== null);
    const className = (c) => names?.[c] ?? String(c);
    const offsets = poisoned ? V.spreadOffsets(manifest.models, spread) : [];
    const threat = V.threatOf(manifest, claims);
    return { ...given, source: given, threat, manifest, inputs, k, alpha, exact, labelled, className, poisoned, spread, offsets };
  }

  // certified for the true label (or the given one, without true labels), wrong: certified for another, or without a radius
  function stateOf(claim, manifest) {
    if (claim.radius === null) return V.uncertified(manifest);
    return claim.truth === null || claim.label === claim.truth ? "certified" : "wrong";
  }

  // Whether the true label is not among the k most voted, ties to the smaller label; in a run-off: not its winner
  function outvotedIn(run, one, seen) {
    if (one.truth === null || !seen.counts) return false;
    if (run.poisoned && run.manifest.settings.aggregate !== "plurality") return seen.winner !== one.truth;
    return V.leads(seen.counts, one.truth).filter((lead) => lead <= 0).length >= run.k;
  }

  const current = () => runs[state.run];
  const surviving = (run, radius) => run.inputs.filter((one) => one.state === "certified" && one.radius >= radius).length;
  const falseClaims = (run) => (run.falseClaims ??= run.exact ? 0 : V.falseClaims(run.inputs.length, run.alpha, V.RHO));
  const proven = (run, claimed) => Math.max(0, claimed - falseClaims(run)) / run.inputs.length;
  // The runs that can be compared with the current one: those against the same threat, with features scaled alike
  const group = () => runs.filter((run) => V.measureOf(run.manifest) === V.measureOf(current().manifest));
  const largest = () => Math.max(...group().flatMap((run) => run.inputs.map((one) => one.radius ?? 0)), 0);
  const whole = () => current().threat.integer;

  // The corners of a run's curve: between two of them the share is that of the larger radius
  function points(run, end) {
    const radii = run.inputs.filter((one) => one.state === "certified").map((one) => one.radius).sort((a, b) => a - b);
    const corners = [...new Set([0, ...radii])].sort((a, b) => a - b);
    let at = 0;
    const found = corners.map((radius) => {
      while (at < radii.length && radii[at] < radius) at++;
      const claimed = radii.length - at;
      return { radius, share: (100 * claimed) / run.inputs.length, proven: 100 * proven(run, claimed) };
    });
    const last = corners[corners.length - 1];
    return [...found, { radius: last, share: 0, proven: 0 }, { radius: end, share: 0, proven: 0 }];
  }

  // The share of attacked inputs with the right label for which no attack of a size was found
  function underAttack(run, end) {
    const done = run.inputs.filter((one) => run.attack.inputs[one.index]);
    const right = done.filter((one) => one.truth === null || one.label === one.truth);
    const distance = (one) => run.attack.inputs[one.index].distance ?? Infinity;
    const corners = [...new Set([0, ...right.map(distance).filter((far) => far <= end)])].sort((a, b) => a - b);
    const beyond = run.threat.ball === "closed" ? (one, r) => distance(one) > r : (one, r) => distance(one) >= r;
    const holds = (one, r) => distance(one) > 0 && beyond(one, r); // at 0 it is wrong without any change
    const share = (r) => (100 * right.filter((one) => holds(one, r)).length) / done.length;
    const found = corners.map((radius) => ({ radius, share: share(radius), proven: share(radius) }));
    return [...found, { radius: end, share: share(end), proven: share(end) }];
  }

  function attackReach() {
    const far = group().flatMap((run) => (run.attack && run.attack.threat === run.threat.name ? Object.values(run.attack.inputs) : []));
    return Math.max(0, ...far.map((found) => found.distance ?? 0));
  }

  function drawCurve() {
    const end = Math.max(largest(), Math.min(attackReach(), 3 * largest())) * 1.03 || 1;
    const curves = group().map((run) => ({ name: runName(run), points: points(run, end) }));
    group().forEach((run) => {
      if (!run.attack || run.attack.threat !== run.threat.name) return;
      const done = run.inputs.filter((one) => run.attack.inputs[one.index]).length;
      if (done === 0) return;
      const count = done < run.inputs.length ? `${done} of ${run.inputs.length} inputs attacked` : `${done} inputs`;
      curves.push({ name: `${runName(run)}: under attack (${count})`, points: underAttack(run, end), attack: true });
    });
    const { metric, unit } = current().threat;
    byId("threats").hidden = group().length === runs.length;
    byId("threats").textContent = `Radii of other threats than the ${metric.replace(/,$/, "")} are not comparable: choose another run to see them.`;
    const share = group().every((run) => run.labelled) ? "certified accuracy (%)" : "certified inputs (%)";
    const axis = [`radius: ${metric.replace(/,$/, "")}`, ...(unit.length < 60 ? [`(${unit})`] : [])].join(" ");
    const settings = { metric: axis, whole: whole(), largest: end, radius: state.radius, share, rho: V.RHO };
    const sampled = group().some((run) => !run.exact);
    const thin = ` Thin line: how many of these inputs keep their label at least, with confidence ${1 - V.RHO} for all radii at once.`;
    const attacked = group().filter((run) => run.attack && run.attack.threat === run.threat.name);
    const some = attacked.some((run) => Object.keys(run.attack.inputs).length < run.inputs.length);
    const fewer = some ? " Not all inputs were attacked: a dashed line may lie below a thick one without contradicting it." : "";
    const dashed = ` Dashed: attacked inputs for which no other answer was found at this distance, which proves nothing.${fewer}`;
    byId("curve-text").textContent = `Thick line: inputs certified at a radius.${sampled ? thin : ""}${attacked.length ? dashed : ""}`;
    byId("curve").drawn = V.charts.curve(byId("curve"), curves, settings);
  }

  const runName = (run) => (runs.filter((other) => other.name === run.name).length > 1 ? `${run.name} (${runs.indexOf(run) + 1})` : run.name);

  function cells(row, tag, texts) {
    row.append(...texts.map((text, i) => make(tag, i ? { class: "number" } : {}, text)));
    return row;
  }

  // Round radii from 0 to the largest, at most eight
  function niceRadii() {
    const end = largest();
    const digits = whole() ? [1, 2, 5] : [1, 2.5, 5];
    for (let power = whole() ? 0 : -6; ; power++) {
      for (const digit of digits) {
        const step = digit * 10 ** power;
        if (end / step <= 7) return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => Number((i * step).toPrecision(12)));
      }
    }
  }

  function drawSummary() {
    const head = make("tr");
    const titles = ["", ...group().map((run) => (runs.length > 1 ? runName(run) : `${run.inputs.length} inputs, top ${run.k}`))];
    cells(head, "th", titles);
    const rows = [["inputs", (run) => run.inputs.length.toLocaleString("en")]];
    if (group().length > 1) rows.push(["smoothing", (run) => run.manifest.smoothing ?? run.manifest.partition]);
    const share = (run, kind) => percentUp(run.inputs.filter(kind).length / run.inputs.length);
    const without = [...new Set(group().map((run) => V.uncertified(run.manifest)))].join(" or ");
    rows.push([without, (run) => share(run, (one) => one.radius === null)]);
    if (group().some((run) => run.labelled && V.mayBeWrong(run.manifest)))
      rows.push(["wrong: certified for another label", (run) => share(run, (one) => one.state === "wrong")]);
    if (group().some((run) => run.labelled)) rows.push(["outvoted: true label not in the top k", (run) => share(run, (one) => one.outvoted)]);
    for (const radius of niceRadii()) {
      rows.push([`certified at radius ${radius.toLocaleString("en", { maximumFractionDigits: 9 })}`, (run) => shares(run, radius)]);
    }
    const body = rows.map(([name, text]) => cells(make("tr"), "td", [name, ...group().map(text)]));
    byId("summary").replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
  }

  function shares(run, radius) {
    const claimed = surviving(run, radius);
    const share = percent(claimed / run.inputs.length);
    return run.exact ? share : `${share}, proven ${percent(proven(run, claimed))}`;
  }

  function drawCurveTable() {
    const end = largest();
    const table = byId("curve-table");
    const rows = group().flatMap((run) =>
      points(run, end)
        .slice(0, -2)
        .filter((_, at, all) => at % Math.ceil(all.length / 60) === 0 || at === all.length - 1)
        .map((point) => [runName(run), shownRadius(point.radius, run.threat.integer), percent(point.share / 100), percent(point.proven / 100)]),
    );
    const head = cells(make("tr"), "th", ["run", "radius", "certified of these inputs", `proven at ${1 - V.RHO}`]);
    table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows.map((row) => cells(make("tr"), "td", row))));
  }

  function drawSlider() {
    const slider = byId("radius");
    slider.max = String(largest() || 1);
    slider.step = whole() ? "1" : String((largest() || 1) / 1000);
    slider.value = String(state.radius);
    state.radius = Number(slider.value);
  }

  function listenToSlider() {
    const slider = byId("radius");
    slider.addEventListener("input", () => {
      state.radius = Number(slider.value);
      state.page = 0;
      byId("curve").drawn.signal("radius", state.radius).run();
      drawSurvivors();
      drawGallery();
    });
  }

  function drawSurvivors() {
    const text = shownRadius(state.radius, whole());
    byId("radius-text").textContent = text;
    byId("radius").setAttribute("aria-valuetext", `radius ${text}`);
    byId("survivors").textContent = group()
      .map((run) => {
        const claimed = surviving(run, state.radius);
        const name = group().length > 1 ? `${runName(run)}: ` : "";
        const sure = run.exact ? "exact" : `with confidence ${1 - V.RHO} this is true of at least ${percent(proven(run, claimed))} of all these inputs`;
        return `${name}${claimed.toLocaleString("en")} of ${run.inputs.length.toLocaleString("en")} inputs (${percent(claimed / run.inputs.length)}) keep their label at this radius; ${sure}.`;
      })
      .join(" ");
  }

  function drawGallery() {
    state.page = V.gallery.show(current(), state.radius, state.page);
  }

  function drawTexts() {
    const run = current();
    byId("claim").textContent = run.manifest.claim;
    byId("notes").replaceChildren(...run.notes.map((note) => make("li", {}, note)));
    const unproven = run.unproven.length ? run.unproven : ["This page does not list it: vauban verify FOLDER does."];
    byId("unproven").replaceChildren(...unproven.map((text) => make("li", {}, text)));
    byId("about").replaceChildren(
      make("tbody", {}, ...V.aboutOf(run.manifest, V.sha256(run.source.manifest)).map(([name, text]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)))),
    );
    byId("manifest").textContent = JSON.stringify(JSON.parse(run.source.manifest), null, 1);
    byId("seal").textContent = run.seal === null ? "This run is not sealed." : JSON.stringify(JSON.parse(run.seal), null, 1);
    byId("pictures-note").textContent = [run.pictures.note, run.pictures.views_note].filter(Boolean).join(" ");
  }

  function drawHistogram() {
    const run = current();
    byId("histogram-section").hidden = !run.poisoned;
    if (!run.poisoned) return;
    const radii = run.inputs.filter((one) => one.radius !== null).map((one) => one.radius);
    const words = `Histogram of ${radii.length} radii.`;
    const { metric } = run.threat;
    V.charts.histogram(byId("histogram"), radii, { metric: `radius: ${metric}`, words });
    const unit = run.spread === 1 ? "base classifiers" : "buckets";
    byId("parts-text").textContent =
      `A radius of r says that r + 1 of the ${run.manifest.models.toLocaleString("en")} ${unit} must change at least before the answer can: ` +
      `a sample that is added, removed or relabelled changes one. Each input below says how many, and which class is nearest.`;
  }

  // Reads the votes of every run, which cards and the map show
  async function readAllVotes() {
    for (const run of runs) {
      const votes = run.poisoned ? await V.readPoisoning(run.source, run.manifest) : await V.readVotes(run.source, run.manifest);
      for (const one of run.inputs) {
        const seen = votes.get(one.index) ?? {};
        Object.assign(one, { counts: seen.counts, ballot: seen.ballot, outvoted: outvotedIn(run, one, seen) });
      }
    }
  }

  async function verify() {
    byId("verify").disabled = true;
    await V.verdict.show(runs, runName);
    byId("verify").disabled = false;
    drawGallery();
  }

  function setTheme(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Use ${name === "dark" ? "light" : "dark"} colours`);
  }

  function drawCharts() {
    drawCurve();
    drawHistogram();
    V.map.draw(current());
  }

  function themes() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    setTheme(dark.matches ? "dark" : "light");
    const change = (name) => {
      setTheme(name);
      drawCharts();
    };
    dark.addEventListener("change", () => change(dark.matches ? "dark" : "light"));
    byId("theme").addEventListener("click", () => change(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    let before = null;
    addEventListener("beforeprint", () => {
      before = { theme: document.documentElement.dataset.theme, open: byId("unproven-box").open };
      byId("unproven-box").open = true;
      change("light");
    });
    addEventListener("afterprint", () => {
      byId("unproven-box").open = before.open;
      change(before.theme);
    });
    let waiting = 0;
    let wide = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === wide) return;
      wide = innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(drawCharts, 150);
    });
  }

  function drawRun() {
    state.page = 0;
    drawSlider();
    drawCurve();
    drawSummary();
    drawCurveTable();
    drawSurvivors();
    drawTexts();
    drawHistogram();
    V.map.controls(current());
    drawGallery();
  }

  function chooseRun() {
    byId("choice").hidden = runs.length < 2;
    byId("run").replaceChildren(...runs.map((run, i) => make("option", { value: i }, `${runName(run)}: ${V.titleOf(run.manifest, brief)}`)));
    byId("run").addEventListener("change", () => {
      state.run = Number(byId("run").value);
      drawRun();
    });
  }

  // A specification that fits on a line; the table of where a run comes from has it in full
  const brief = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);

  // The title that was given, else what the manifest says; lines break after commas and slashes, also within a specification
  function drawTitle() {
    const one = runs.length === 1 ? runs[0].manifest : null;
    const text = contents.title ?? (one ? V.titleOf(one, brief) : `${runs.length} runs compared`);
    byId("title").replaceChildren(...text.split(/(?<=,)(?=[^\s\d])|(?<=\/)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part])));
    if (one) byId("title").title = V.titleOf(one);
  }

  async function start() {
    drawTitle();
    byId("subtitle").textContent = runs.map((run) => `${run.inputs.length.toLocaleString("en")} inputs, ${run.threat.metric.replace(/,$/, "")}`).join(" · ");
    themes();
    V.gallery.filters(() => {
      state.page = 0;
      drawGallery();
    });
    for (const id of ["order", "find"]) {
      byId(id).addEventListener("input", () => {
        state.page = 0;
        drawGallery();
      });
    }
    for (const [id, by] of [["previous", -1], ["next", 1]]) {
      byId(id).addEventListener("click", () => {
        state.page += by;
        drawGallery();
        byId("gallery").focus();
      });
    }
    for (const id of ["side", "map-input"]) byId(id).addEventListener("input", () => V.map.draw(current()));
    byId("verify").addEventListener("click", verify);
    chooseRun();
    listenToSlider();
    await readAllVotes();
    drawRun();
    document.documentElement.dataset.ready = "true";
  }

  start();
})((globalThis.Vauban ??= {}));

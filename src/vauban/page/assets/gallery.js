// The gallery: one card for each input, at most 50 at a time.
(function (V) {
  "use strict";

  const PAGE = 50;
  const MOST_BARS = 5;

  // An element with attributes, classes and children
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined) continue;
      if (name === "class") element.className = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  const byId = (id) => document.getElementById(id);

  // A radius as it is shown: rounded down, never up
  function shownRadius(radius, whole) {
    if (radius === null) return "none";
    if (whole || radius === 0) return radius.toLocaleString("en");
    const digits = Math.min(Math.max(4, 3 - Math.floor(Math.log10(radius))), 9);
    return (Math.floor(radius * 10 ** digits) / 10 ** digits).toFixed(digits);
  }

  function votesOf(one, run) {
    if (!one.counts) return null;
    const total = one.counts.reduce((a, b) => a + b, 0) || 1;
    const order = one.counts.map((_, c) => c).sort((a, b) => one.counts[b] - one.counts[a] || a - b);
    const shown = order.slice(0, MOST_BARS).filter((c) => one.counts[c] > 0 || c === one.label);
    if (!shown.includes(one.label)) shown.push(one.label);
    const rows = shown.map((c) => {
      const bar = make("span");
      bar.style.width = `${(100 * one.counts[c]) / total}%`;
      const name = make("span", { class: c === one.label ? "name own" : "name", title: run.className(c) }, run.className(c));
      const count = make("span", { class: "count" }, one.counts[c].toLocaleString("en"));
      return make("li", {}, name, make("span", { class: "bar", "aria-hidden": "true" }, bar), count);
    });
    return make("ul", { class: "votes", "aria-label": "votes" }, ...rows);
  }

  function figure(pictures, words, caption) {
    const images = pictures.map((source, i) => make("img", { src: source, alt: `${words} ${i + 1}`, decoding: "async" }));
    return make("figure", {}, make("figcaption", {}, caption), ...images);
  }

  function attackOf(one, run) {
    const found = run.attack?.inputs[one.index];
    if (!found) return null;
    const unit = run.attack.threat === run.threat.name ? "" : ` (${run.attack.threat})`;
    if (found.distance === null) return make("p", { class: "proof" }, "attacked; no other answer was found");
    const answer = found.answer.split(" ").map((c) => run.className(Number(c))).join(", ");
    if (found.distance === 0) return make("p", { class: "proof" }, `wrong without any change: answer ${answer}`);
    const text = `closest attack: answer ${answer} at distance ${found.distance.toPrecision(5)}${unit}, by ${found.attack}`;
    return figure(found.picture ? [found.picture] : [], "attacked input", text);
  }

  function partsOf(one, run) {
    if (!run.poisoned || one.radius === null || !one.counts) return null;
    const needed = one.radius + 1;
    const unit = run.spread === 1 ? "base classifiers" : "buckets of the training set";
    let text = `at least ${needed.toLocaleString("en")} of ${run.manifest.models.toLocaleString("en")} ${unit} must change`;
    const { rival, parts } = V.partsThatMustFall(one, one.label, one.ballot ? run.spread : 1, run.offsets);
    text += ` before another class can win; ${run.className(rival)} is nearest`;
    if (parts?.length) {
      const listed = parts.slice(0, 12).join(", ");
      text += `. Those that would give it most: ${listed}${parts.length > 12 ? ", …" : ""}`;
    }
    return make("p", { class: "proof" }, text);
  }

  function card(one, run, radius) {
    const name = run.manifest.data.names?.[one.position];
    const whole = run.threat.integer;
    const survives = one.state === "certified" && one.radius >= radius;
    const proof = one.proof;
    const facts = make("dl");
    const add = (term, text) => facts.append(make("dt", {}, term), make("dd", {}, text));
    add("radius", shownRadius(one.radius, whole));
    if (one.truth !== null) add("truth", run.className(one.truth));
    add("label", run.className(one.label));
    if (name) add("file", name);
    const picture = run.pictures.inputs?.[one.position];
    const alt = `input ${one.index}${one.truth === null ? "" : `, true label ${run.className(one.truth)}`}`;
    const views = run.pictures.views?.[one.position];
    const kind = `card${survives ? "" : " lost"}${proof?.state === "wrong" ? " bad" : ""}`;
    return make(
      "li",
      { class: kind, "data-index": one.index },
      make("h3", {}, make("span", {}, `Input ${one.index}`), make("span", { class: `badge ${one.radius === null ? "open" : one.state}` }, one.state)),
      make("div", { class: "row" }, picture ? make("img", { class: "input", src: picture, alt, decoding: "async" }) : null, facts),
      votesOf(one, run),
      views ? figure(views, `view of input ${one.index},`, "views") : null,
      attackOf(one, run),
      partsOf(one, run),
      proof ? make("p", { class: `proof ${proof.state}` }, proofText(proof, whole)) : null,
    );
  }

  function proofText(proof, whole) {
    if (proof.state === "proven") return `recomputed: ${shownRadius(proof.found, whole)}, as claimed`;
    return proof.state === "wrong" ? `not as claimed: ${proof.why}` : `not recomputed here: ${proof.why}`;
  }

  const FILTERS = {
    all: ["all", () => true],
    certified: ["certified at the radius above", (one, radius) => one.state === "certified" && one.radius >= radius],
    lost: ["lost at the radius above", (one, radius) => !(one.state === "certified" && one.radius >= radius)],
    wrong: ["wrong", (one) => one.state === "wrong"],
    undecided: ["without a radius", (one) => one.radius === null],
    outvoted: ["outvoted", (one) => one.outvoted],
  };

  const ORDERS = {
    index: () => 0,
    least: (a, b) => (a.radius ?? -1) - (b.radius ?? -1),
    most: (a, b) => (b.radius ?? -1) - (a.radius ?? -1),
  };

  function chosen(run, radius) {
    const filter = FILTERS[document.querySelector("#filters input:checked").value][1];
    const text = byId("find").value.trim().toLowerCase();
    const named = (one) => `${one.index} ${run.manifest.data.names?.[one.position] ?? ""}`.toLowerCase().includes(text);
    return run.inputs.filter((one) => filter(one, radius) && named(one)).sort(ORDERS[byId("order").value]);
  }

  // Draws the cards of one page of the gallery; returns the number of that page
  function show(run, radius, page) {
    byId("text-undecided").textContent = V.uncertified(run.manifest);
    const wrong = document.querySelector("#filters input[value=wrong]");
    wrong.parentElement.hidden = !V.mayBeWrong(run.manifest);
    if (wrong.checked && wrong.parentElement.hidden) document.querySelector("#filters input[value=all]").checked = true;
    for (const [key, [, filter]] of Object.entries(FILTERS)) {
      byId(`number-${key}`).textContent = run.inputs.filter((one) => filter(one, radius)).length.toLocaleString("en");
    }
    const found = chosen(run, radius);
    const at = Math.max(0, Math.min(page, Math.ceil(found.length / PAGE) - 1));
    const some = found.slice(at * PAGE, (at + 1) * PAGE);
    byId("gallery").replaceChildren(...some.map((one) => card(one, run, radius)));
    const range = some.length ? `${at * PAGE + 1} to ${at * PAGE + some.length} of ` : "";
    byId("gallery-text").textContent = found.length ? `${range}${found.length.toLocaleString("en")} inputs` : "No input is like this.";
    byId("previous").disabled = at === 0;
    byId("next").disabled = (at + 1) * PAGE >= found.length;
    return at;
  }

  function filters(changed) {
    for (const [key, [text]] of Object.entries(FILTERS)) {
      const input = make("input", { type: "radio", name: "filter", value: key });
      input.checked = key === "all";
      input.addEventListener("change", changed);
      byId("filters").append(make("label", {}, input, make("span", {}, make("span", { id: `text-${key}` }, text), " (", make("span", { id: `number-${key}` }), ")")));
    }
  }

  V.gallery = { show, filters, make, byId, shownRadius };
})((globalThis.Vauban ??= {}));

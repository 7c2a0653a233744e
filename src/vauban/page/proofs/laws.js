// Sampled laws: how far an attack moves a probability, and the largest radius that counts prove under each. Mirrors vauban/laws.
(function (V) {
  "use strict";

  const UP = 1 + 2 ** -50;
  const DOWN = 1 - 2 ** -50;
  const POWER_UP = 1 + 2 ** -42; // Python's is 2^-43: powers may differ in their last digits
  const MARGIN = 2e-12; // Python's is 1e-12: every inequality that holds here holds there
  const PROBABILITY = 1e-12;
  const MOST_EXPONENT = 700;

  const shifted = (delta, scale, more = {}) => ({
    most: (p, r) => Math.min(1, p + delta(r)),
    least: (p, r) => Math.max(0, p - delta(r)),
    scale,
    ...more,
  });

  // Several sigmas, one for each number: the radius is in the distance scaled by them, where the noise has sigma 1
  function gaussian({ sigma }) {
    const s = sigma.includes("/") ? 1 : Number(sigma);
    return {
      most: (p, r) => V.Phi(V.PhiInverse(p) + r / s),
      least: (p, r) => V.Phi(V.PhiInverse(p) - r / s),
      scale: s,
    };
  }

  function laplace({ sigma, bound = "exact" }) {
    const s = Number(sigma);
    const decayed = (r) => {
      const x = r * ((Math.SQRT2 / s) * UP);
      return x > MOST_EXPONENT ? 0 : Math.exp(-x);
    };
    const safe = (decay) => Math.max(decay, Math.exp(-MOST_EXPONENT));
    const most = (p, r) => {
      const decay = decayed(r);
      const grown = p / (p > decay ? 1 : safe(decay));
      if (bound !== "exact") return p > decay ? 1 : grown;
      if (p <= decay / 2) return grown;
      return p < 0.5 ? 1 - decay / (4 * p) : 1 - decay * (1 - p);
    };
    const least = (p, r) => {
      const decay = decayed(r);
      if (bound === "lecuyer") return decay * p;
      if (bound === "theorem1") return Math.max(decay * p, 1 - most(1 - p, r) * UP);
      const rest = 1 - p;
      if (p <= 0.5) return decay * p;
      return rest > decay / 2 ? decay / (4 * rest) : 1 - rest / safe(decay);
    };
    return { most, least, scale: s };
  }

  function uniform({ sigma }) {
    const width = 2 * Math.sqrt(3) * Number(sigma);
    return shifted((r) => r * (UP / width), width / 2);
  }

  // The next larger number, for positive x
  function above(x) {
    return x === 0 ? Number.MIN_VALUE : x * (1 + 2 ** -52);
  }

  // Delta(r) = 1 - C(d-r, e) / C(d, e) for r = 0, 1, ... until it is 1, rounded up, in whole numbers of 256 binary digits
  function hitProbability(population, chosen) {
    const one = 1n << 256n;
    let avoided = one;
    const table = [0];
    for (let r = 0; r <= population - chosen; r++) {
      avoided = (avoided * BigInt(population - chosen - r)) / BigInt(population - r);
      table.push(Math.min(1, above(above(Number((one - avoided) >> 180n) / 2 ** 76))));
      if (table[table.length - 1] === 1) break;
    }
    return table;
  }

  function choose(n, k) {
    let result = 1n;
    for (let i = 1; i <= Math.min(k, n - k); i++) result = (result * BigInt(n - i + 1)) / BigInt(i);
    return result;
  }

  function ablation({ retained, unit = "pixel" }, shape, deterministic) {
    const kept = Number(retained);
    const whole = unit === "pixel" && shape.length === 3;
    const total = (whole ? shape.slice(1) : shape).reduce((a, b) => a * b, 1);
    const table = hitProbability(total, kept);
    const listed = Math.min(kept, total - kept) > 40 ? null : choose(total, kept); // beyond, more than 1e12 for any d
    const outcomes = deterministic && listed !== null && listed < 10n ** 12n ? Number(listed) : null;
    const delta = (r) => table[Math.min(Math.ceil(r), table.length - 1)];
    const up = (p) => (outcomes === null ? p : Math.max(p, Math.ceil((p - PROBABILITY) * outcomes) / outcomes));
    const down = (p) => (outcomes === null ? p : Math.min(p, Math.floor((p + PROBABILITY) * outcomes) / outcomes));
    return {
      most: (p, r) => Math.min(1, (down(p) + delta(r)) * UP),
      least: (p, r) => Math.max(0, up(p) * DOWN - delta(r) * UP),
      calibrated: ({ label, rivals }) => ({ label: up(label), rivals: rivals.map(down) }),
      scale: Math.max(1, Math.floor(total / (2 * kept))),
      longest: total - kept,
      integer: true,
    };
  }

  function patch(name) {
    return (params, shape) => {
      const regions = V.regionsOf(name, params, shape, true);
      const table = V.touchedBySide(regions);
      const longest = Math.max(regions.height, regions.width);
      const delta = (r) => table[Math.ceil(Math.min(Math.max(r, 0), longest))] * (UP / regions.count);
      return shifted(delta, 1, { longest, integer: true });
    };
  }

  function fraction(text) {
    const [above_, below = "1"] = String(text).split("/");
    return Number(above_) / Number(below);
  }

  function fractional({ p, scale }) {
    const power = fraction(p);
    return shifted((r) => r ** power * (POWER_UP / Number(scale)), 1);
  }

  const SAMPLED = {
    gaussian,
    laplace,
    uniform,
    splitting: uniform,
    ablation,
    band: patch("band"),
    block: patch("block"),
    fractional,
  };

  // "name:key=value,..." as [name, {key: value}]
  function readSpec(text) {
    const at = text.indexOf(":");
    if (at < 0) return [text, {}];
    return [text.slice(0, at), Object.fromEntries(text.slice(at + 1).split(",").map((pair) => pair.split("=")))];
  }

  // The sampled law of a text on inputs of this shape; null where this page has none
  function sampledLaw(text, shape, deterministic) {
    const [name, params] = readSpec(text);
    const listed = ["splitting", "band", "block", "fractional"].includes(name) && params.sampled !== "true";
    return listed || !(name in SAMPLED) ? null : SAMPLED[name](params, shape, deterministic);
  }

  // Bounds on the label and on its k strongest rivals, ascending, from one row of counts
  function probabilityBounds(counts, label, k, alpha, method, bound) {
    const n = counts.reduce((a, b) => a + b, 0);
    const classes = counts.length;
    if (method === "binocp") {
      const lower = bound.lower(counts[label], n, alpha);
      return { label: lower, rivals: Array(k).fill(1 - lower) };
    }
    const [own, other] =
      method === "simuem" ? [alpha / classes, alpha / classes] : [alpha / 2, alpha / (2 * (classes - 1))];
    const others = counts.filter((_, j) => j !== label).sort((a, b) => a - b);
    return {
      label: bound.lower(counts[label], n, own),
      rivals: others.slice(classes - 1 - k).map((wins) => bound.upper(wins, n, other)),
    };
  }

  function stays(law, label, sums, r) {
    let rivals = Infinity;
    for (let t = 0; t < sums.length; t++) rivals = Math.min(rivals, law.most(sums[t], r) / (t + 1));
    return law.least(label, r) * (1 - MARGIN) > rivals * (1 + MARGIN);
  }

  // The largest radius at which the label stays in the top k, rounded down; null where nothing is certified
  function radius(law, label, sums) {
    const longest = law.longest ?? Infinity;
    const inside = (r) => stays(law, label, sums, r);
    if (!inside(0)) return null;
    let low = 0;
    let high = Math.min(law.scale, longest);
    while (high < longest && inside(high)) {
      low = high;
      high = Math.min(2 * high, longest);
    }
    if (inside(high)) low = high;
    if (law.integer) {
      while (high - low > 1) {
        const middle = Math.floor((low + high) / 2);
        if (inside(middle)) low = middle;
        else high = middle;
      }
      return low;
    }
    for (let i = 0; i < 53; i++) {
      const middle = (low + high) / 2;
      if (inside(middle)) low = middle;
      else high = middle;
    }
    return low > 0 ? low : null;
  }

  // A function from counts and a label to a radius, for the settings of a manifest; null where this page has no such law
  function radiusOfCounts(manifest) {
    const { settings, inputs, compute, data } = manifest;
    const deterministic = compute.stochastic == null && !compute.rows_differ;
    const law = sampledLaw(manifest.smoothing, data.shape, deterministic);
    if (law === null) return null;
    const kept = new Map();
    const once = (compute_) => (wins, n, alpha) => {
      const key = `${compute_.name} ${wins} ${n} ${alpha}`;
      if (!kept.has(key)) kept.set(key, compute_(wins, n, alpha));
      return kept.get(key);
    };
    const bound = { lower: once(V.lowerBound), upper: once(V.upperBound) };
    const deviation = inputs.deviation_per_view;
    return (counts, label) => {
      let limits = probabilityBounds(counts, label, settings.k, settings.alpha, settings.bounds, bound);
      if (deviation !== 0) {
        const rivals = limits.rivals.map((p) => Math.min(p + deviation, 1));
        limits = { label: Math.max(limits.label - deviation, 0), rivals };
      }
      if (law.calibrated) limits = law.calibrated(limits);
      let sum = 0;
      const sums = limits.rivals.map((p) => Math.min((sum += p), 1 - limits.label));
      return radius(law, limits.label, sums);
    };
  }

  // The same for votes that may stop at any time: from the best of the looks [{ counts, votes }], by the label's count alone
  function radiusOfLooks(manifest) {
    const { settings, inputs, compute, data } = manifest;
    const law = sampledLaw(manifest.smoothing, data.shape, compute.stochastic == null && !compute.rows_differ);
    if (law === null) return null;
    return (looks, label) => {
      const bounds = looks.map(({ counts, votes }) => V.anytimeBound(counts[label], votes, settings.alpha));
      const p = Math.max(0, Math.max(...bounds) - inputs.deviation_per_view);
      return radius(law, p, Array(settings.k).fill(1 - p));
    };
  }

  Object.assign(V, { readSpec, radiusOfCounts, radiusOfLooks, fraction });
})((globalThis.Vauban ??= {}));

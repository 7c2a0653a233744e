// Reads manifests that Vauban 0.1 wrote into today's fields. Mirrors vauban/runs/schema1.py and vauban/poisoning/votes/schema1.py.
(function (V) {
  "use strict";

  const SEAL_KEYS = { "manifest.json": "manifest", "claims.csv": "claims", "ballots.npz": "ballots" };

  const PRECISIONS = { float32: "fp32", tf32: "tf32", bfloat16: "bf16", float16: "fp16" };

  function poisoned(raw) {
    const { aggregate, k, label, num_classes } = raw;
    return { ...raw, settings: { aggregate, k, label }, data: { ...raw.data, num_classes } };
  }

  function smoothed(raw) {
    const { method, ...settings } = raw.statistics;
    const { mode, levels, deviation_per_view } = raw.arithmetic;
    const inputs = { arithmetic: mode, levels, deviation_per_view };
    const seed = raw.seed_commitment == null ? undefined : { commitment: raw.seed_commitment };
    const compute = { ...raw.compute, precision: PRECISIONS[raw.compute.dtype] };
    const same = { ...raw, kind: "smoothing", inputs, seed, compute };
    if (method === "exact") {
      if (settings.n !== raw.list.views) throw new Error(`the manifest counts ${settings.n} votes an input of ${raw.list.views} views`);
      const { k, label, threshold } = settings;
      return { ...same, settings: { k, label }, method: { name: "exact", ...raw.list, threshold } };
    }
    const fixed = settings.stop === undefined;
    return { ...same, settings: { stop: "fixed", ...settings }, method: { name: fixed ? "fixed" : "sequential" } };
  }

  // A manifest from its text, with the fields of schema 2 whichever schema it has
  function readManifest(text) {
    const raw = JSON.parse(text);
    if (raw.schema !== 1) return raw;
    return raw.kind === "poisoning" ? poisoned(raw) : smoothed(raw);
  }

  // What the seal of a run calls a file
  const sealKey = (manifest, file) => (manifest.schema === 1 ? SEAL_KEYS[file] ?? file : file);

  Object.assign(V, { readManifest, sealKey });
})((globalThis.Vauban ??= {}));

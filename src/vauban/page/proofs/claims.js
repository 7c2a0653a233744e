// Recomputes every claim of a run that a page holds from its votes, and compares hashes. See docs/report.md.
(function (V) {
  "use strict";

  const AGREE = 1e-9;

  async function inflate(base64) {
    const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // Whole numbers of 1, 2 or 4 bytes, the smallest first
  function wholeNumbers(bytes, width) {
    if (width === 1) return bytes;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const read = width === 2 ? (i) => view.getUint16(2 * i, true) : (i) => view.getUint32(4 * i, true);
    return Uint32Array.from({ length: bytes.length / width }, (_, i) => read(i));
  }

  // The rows of a claims file; one of Vauban 0.1 has no true labels, which are then those of the manifest
  function readClaims(text, manifest) {
    const truths = new Map(manifest.data.index.map((number, position) => [number, manifest.data.label?.[position] ?? null]));
    return text
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => {
        const [index, label, radius, abstained, truth] = line.split(",");
        return {
          index: Number(index),
          label: Number(label),
          radius: abstained === "true" ? null : Number(radius),
          truth: truth === undefined ? truths.get(Number(index)) : truth === "" ? null : Number(truth),
        };
      });
  }

  // Reads a line of votes; its check must be that of its text in this run
  function readLine(text, binding) {
    const at = text.lastIndexOf(',"check":"');
    const body = `${text.slice(0, at)}}`;
    const check = V.sha256(`${binding}\n${body}`).slice(0, 16);
    if (at < 0 || text !== `${body.slice(0, -1)},"check":"${check}"}`) throw new Error("its line of votes was altered");
    return JSON.parse(body);
  }

  function asArray(counts, classes) {
    const found = new Array(classes).fill(0);
    for (const [label, votes] of Object.entries(counts)) found[Number(label)] = votes;
    return found;
  }

  const largest = (counts) => counts.indexOf(Math.max(...counts));

  // What the votes of a page say of each input: { counts, label, ballot? } by its number, or an error by its number
  async function readVotes(run, manifest) {
    const found = new Map();
    const entry = (number) => {
      if (!found.has(number)) found.set(number, {});
      return found.get(number);
    };
    const classes = manifest.data.num_classes;
    for (const text of run.lines ?? []) {
      const number = JSON.parse(text).input;
      try {
        const line = readLine(text, run.binding);
        const counts = asArray(line.counts, classes);
        const total = counts.reduce((a, b) => a + b, 0);
        if (total !== line.votes) throw new Error(`its counts add up to ${total}, not to ${line.votes}`);
        if (line.stage === "choose") Object.assign(entry(number), { chosen: largest(counts), choosing: line.votes });
        else {
          const looks = [...(entry(number).looks ?? []), { counts, votes: line.votes }];
          Object.assign(entry(number), { counts, votes: line.votes, looks });
        }
      } catch (problem) {
        entry(number).error = problem.message;
      }
    }
    await readBallots(run, manifest, entry);
    return found;
  }

  async function readBallots(run, manifest, entry) {
    const classes = manifest.data.num_classes;
    const sets = manifest.method?.threshold != null;
    const width = classes <= 256 ? 1 : classes <= 65536 ? 2 : 4;
    for (const text of run.ballots ?? []) {
      const number = JSON.parse(text).input;
      try {
        const line = readLine(text, run.binding);
        const bytes = await inflate(line.votes);
        const votes = sets ? unpackedBits(bytes, classes) : wholeNumbers(bytes, width);
        if (votes.length !== line.count * (sets ? classes : 1) || line.count !== manifest.method.views)
          throw new Error("its ballot does not hold a vote of every view");
        const ballot = { votes, classes, sets };
        ballot.counts = V.countVotes(ballot);
        Object.assign(entry(number), { ballot, counts: ballot.counts });
      } catch (problem) {
        entry(number).error = problem.message;
      }
    }
    (run.counts ?? []).forEach(([number, counts]) => Object.assign(entry(number), { counts }));
  }

  // Rows of bits, each padded to whole bytes, as a flat array of 0 and 1
  function unpackedBits(bytes, perRow) {
    const rowBytes = Math.ceil(perRow / 8);
    const rows = bytes.length / rowBytes;
    const found = new Uint8Array(rows * perRow);
    for (let row = 0; row < rows; row++) {
      for (let i = 0; i < perRow; i++) {
        found[row * perRow + i] = (bytes[row * rowBytes + (i >> 3)] >> (7 - (i & 7))) & 1;
      }
    }
    return found;
  }

  // A function from the votes on an input and its label to a radius; a text where this page cannot recompute it
  function smoothingProof(manifest) {
    const { settings, smoothing } = manifest;
    const elsewhere = `claims of ${smoothing} are recomputed by vauban verify, not by this page`;
    if (manifest.method.name === "sequential" && settings.stop === "anytime") {
      const radius = V.radiusOfLooks(manifest);
      return radius === null ? elsewhere : (votes, label) => radius(votes.looks, label);
    }
    if (manifest.method.name === "sequential")
      return `claims of runs stopped by ${settings.stop} are recomputed by vauban verify, not by this page`;
    if (manifest.method.name === "fixed") {
      const radius = V.radiusOfCounts(manifest);
      if (radius === null) return elsewhere;
      return (votes, label) => {
        const doublings = Math.log2(votes.votes / settings.n);
        if (doublings < 0 || doublings !== Math.floor(doublings)) throw new Error(`it has ${votes.votes} votes`);
        return radius(votes.counts, label);
      };
    }
    const law = V.exactLaw(manifest);
    if (law === null) return elsewhere;
    return (votes, label) => {
      if (votes.ballot && law.needsBallots) return law.ofBallot(votes.ballot, label, settings.k);
      if (law.needsBallots) throw new Unknown("its ballot is left out of this page");
      const total = votes.counts.reduce((a, b) => a + b, 0);
      if (!law.sets && total !== manifest.method.views) throw new Error(`it has ${total} votes`);
      return law.ofCounts(votes.counts, label, settings.k);
    };
  }

  class Unknown extends Error {}

  // How far a radius moves at most with the probability it is derived from: about sigma, or what D = r^p / scale gives
  function unitOf(smoothing) {
    const [name, { sigma, scale, p, sampled }] = V.readSpec(smoothing);
    if (name === "fractional" && sampled === "true") {
      const power = V.fraction(p);
      return (r) => (Number(scale) * r ** (1 - power)) / power;
    }
    const one = sigma === undefined || sigma.includes("/") ? 1 : Number(sigma);
    return () => one;
  }

  // Whether a claim is what its votes prove. Nothing may be claimed, not even a radius of 0, where they prove nothing
  function agrees(claimed, found, unit) {
    if (claimed === null || found === null) return claimed === found;
    return Math.abs(claimed - found) <= AGREE * Math.max(1, unit(found), Math.abs(found));
  }

  // The label that a claim must be about. Sampled votes choose it by n0 votes of their own, which prove nothing else
  function given(manifest, votes, position) {
    const { label, n0 } = manifest.settings;
    if (label === "given") return manifest.data.label[position];
    if (manifest.kind === "poisoning" || manifest.method.name === "exact") return votes.winner ?? largest(votes.counts);
    if (votes.chosen === undefined) throw new Error("the votes that choose its label are missing");
    if (votes.choosing !== n0) throw new Error(`${votes.choosing} votes choose its label, and the manifest says ${n0}`);
    return votes.chosen;
  }

  // Compares the hashes that a page holds with one another
  function checkHashes(run, manifest, claims) {
    const named = (file) => seal[V.sealKey(manifest, file)];
    const seal = run.seal === null ? null : JSON.parse(run.seal);
    const identity = V.sha256(run.manifest);
    const nonce = run.nonce === null ? null : `{"announced":"${identity}","nonce":"${run.nonce}"}`;
    const binding = nonce === null ? identity : V.sha256(nonce);
    const found = [{ what: "votes are bound to this manifest", ok: binding === run.binding }];
    if (seal !== null) {
      found.push({ what: "the seal names this manifest", ok: named("manifest.json") === identity });
      found.push({ what: "the seal names these claims", ok: named(run.claimsFile) === V.sha256(run.claims) });
      if (run.votesHash) found.push({ what: "the seal names these votes", ok: named("ballots.npz") === run.votesHash });
    }
    const numbers = claims.map((claim) => claim.index).join();
    const inputs = manifest.data.index;
    const listed = seal !== null ? inputs.join() === numbers : claims.every((claim) => inputs.includes(claim.index));
    found.push({ what: "there is one claim for every input", ok: listed });
    if (manifest.schema === 1) return found;
    const truth = manifest.data.label;
    const right = claims.every((claim) => claim.truth === (truth === null ? null : truth[inputs.indexOf(claim.index)]));
    found.push({ what: "true labels are those of the manifest", ok: right });
    return found;
  }

  // Every claim of a run, recomputed: { rows: [{ index, claimed, found, state, why }], hashes, unsupported }
  async function verifyRun(run) {
    const manifest = V.readManifest(run.manifest);
    const claims = readClaims(run.claims, manifest);
    const poisoned = manifest.kind === "poisoning";
    const votes = poisoned ? await V.readPoisoning(run, manifest) : await readVotes(run, manifest);
    const proof = poisoned ? V.poisoningProof(manifest) : smoothingProof(manifest);
    const unsupported = typeof proof === "string" ? proof : null;
    const positions = new Map(manifest.data.index.map((number, position) => [number, position]));
    const unit = poisoned ? () => 1 : unitOf(manifest.smoothing);
    const rows = claims.map((claim) => {
      const row = { index: claim.index, claimed: claim.radius, found: null, state: "wrong", why: "" };
      try {
        const seen = votes.get(claim.index);
        if (!seen || !seen.counts || seen.error) throw new Error(seen?.error ?? "its votes are missing");
        if (unsupported) throw new Unknown(unsupported);
        const label = given(manifest, seen, positions.get(claim.index));
        if (label !== claim.label) throw new Error(`its votes are for label ${label}, the claim is for ${claim.label}`);
        row.found = proof(seen, label);
        row.state = agrees(claim.radius, row.found, unit) ? "proven" : "wrong";
        if (row.state === "wrong") row.why = `claimed ${claim.radius ?? "nothing"}, the votes prove ${row.found ?? "nothing"}`;
      } catch (problem) {
        row.state = problem instanceof Unknown ? "unknown" : "wrong";
        row.why = problem.message;
      }
      return row;
    });
    return { rows, hashes: checkHashes(run, manifest, claims), unsupported, votes };
  }

  // The votes of a poisoning run: arrays by name, whose hash the seal holds
  async function readPoisoning(run, manifest) {
    const arrays = {};
    const parts = [];
    if (!run.arrays) return new Map(run.counts.map(([number, counts]) => [number, { counts }]));
    for (const name of Object.keys(run.arrays).sort()) {
      const { shape, width, data } = run.arrays[name];
      const values = wholeNumbers(await inflate(data), width);
      arrays[name] = { values, row: values.length / shape[0], shape };
      const text = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
      parts.push(new TextEncoder().encode(`${name} ${text}\n`));
      parts.push(name === "prefers" ? Uint8Array.from(values) : new Uint8Array(littleEndian(values)));
    }
    run.votesHash = V.sha256(new Uint8Array(await new Blob(parts).arrayBuffer()));
    const slice = (name, i) => arrays[name] && Array.from(arrays[name].values.slice(i * arrays[name].row, (i + 1) * arrays[name].row));
    const found = new Map();
    manifest.data.index.forEach((number, i) => {
      const ballot = slice("votes", i);
      const classes = manifest.data.num_classes;
      const counts = slice("counts", i) ?? V.countVotes({ votes: ballot, classes, sets: false });
      const seen = { counts, ballot, winner: slice("winner", i)?.[0], beats: slice("beats", i) };
      const packed = slice("prefers", i);
      if (packed) {
        const bits = arrays.prefers.shape[2];
        seen.prefers = Array.from({ length: classes }, (_, c) =>
          Array.from(unpackedBits(Uint8Array.from(packed.slice(c * bits, (c + 1) * bits)), ballot.length)),
        );
      }
      found.set(number, seen);
    });
    return found;
  }

  function littleEndian(values) {
    const view = new DataView(new ArrayBuffer(4 * values.length));
    values.forEach((value, i) => view.setUint32(4 * i, value, true));
    return view.buffer;
  }

  function poisoningProof(manifest) {
    const spread = Number(V.readSpec(manifest.partition)[1].spread ?? 1);
    const offsets = V.spreadOffsets(manifest.models, spread);
    return (votes, label) => {
      if (spread > 1 && !votes.ballot) throw new Unknown("its ballot is left out of this page");
      const total = votes.counts.reduce((a, b) => a + b, 0);
      if (total !== manifest.models) throw new Error(`it has the votes of ${total} of ${manifest.models} models`);
      const radius = V.poisoningRadius(votes, label, manifest.settings, spread, offsets);
      return radius < 0 ? null : radius;
    };
  }

  Object.assign(V, { readClaims, verifyRun, readVotes, readPoisoning, poisoningProof });
})((globalThis.Vauban ??= {}));

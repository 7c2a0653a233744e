// Certificates against poisoning, from the votes of base classifiers: whole numbers only. Mirrors vauban/laws/poisoning.
(function (V) {
  "use strict";

  const sum = (values) => values.reduce((a, b) => a + b, 0);

  // The two classes with the most votes, the one ahead first
  function finalists(counts) {
    const order = counts.map((_, c) => c).sort((a, b) => counts[b] - counts[a] || a - b);
    return [order[0], order[1]];
  }

  function runoffRadius(counts, winner, beats) {
    const models = sum(counts);
    let best = counts.length === 2 ? Infinity : V.tolerated(counts, winner, 2);
    counts.forEach((votes, c) => {
      if (c === winner) return;
      const keepsDuel = Math.floor((2 * beats[c] - models - (c < winner ? 1 : 0)) / 2);
      const gaps = counts.map((other, j) =>
        j === c || j === winner ? -models - 2 : other - votes + (j < c ? 1 : 0),
      );
      const keepsOut = V.toleratedByGaps(gaps.sort((a, b) => b - a));
      best = Math.min(best, Math.max(keepsDuel, keepsOut));
    });
    return best;
  }

  const MASK = (1n << 64n) - 1n;
  // The first words of Philox4x64-10 with this key
  function* philox(key) {
    for (let block = 1n; ; block++) {
      let [c0, c1, c2, c3] = [block, 0n, 0n, 0n];
      let [k0, k1] = [key & MASK, key >> 64n];
      for (let round = 0; round < 10; round++) {
        const one = c0 * 0xd2e7470ee14c6c93n;
        const two = c2 * 0xca5a826395121157n;
        [c0, c1, c2, c3] = [(two >> 64n) ^ c1 ^ k0, two & MASK, (one >> 64n) ^ c3 ^ k1, one & MASK];
        k0 = (k0 + 0x9e3779b97f4a7c15n) & MASK;
        k1 = (k1 + 0xbb67ae8584caa73bn) & MASK;
      }
      yield* [c0, c1, c2, c3];
    }
  }

  function spreadOffsets(models, spread) {
    const chosen = [0];
    for (const word of philox(0x76617562616en)) {
      if (chosen.length >= spread) break;
      const offset = Number(word % BigInt(models));
      if (!chosen.includes(offset)) chosen.push(offset);
    }
    return chosen;
  }

  // For every bucket the sum of values over the models trained on it
  function sumByBucket(values, offsets) {
    const models = values.length;
    const total = new Int32Array(models);
    for (const offset of offsets) {
      for (let i = 0; i < models; i++) total[(i + offset) % models] += values[i];
    }
    return total;
  }

  // How many of the largest weights add up to at most the budget; -1 where it is negative
  function largestThatFit(weights, budget) {
    if (budget < 0) return -1;
    const sorted = Array.from(weights).sort((a, b) => b - a);
    let left = budget;
    let taken = 0;
    for (const weight of sorted) {
      if (weight > left) break;
      left -= weight;
      taken++;
    }
    return taken;
  }

  function lead(counts, label, j) {
    return counts[label] - counts[j] + (j > label ? 1 : 0);
  }

  function bucketVotes(ballot, classes, offsets) {
    return Array.from({ length: classes }, (_, c) => sumByBucket(ballot.map((vote) => (vote === c ? 1 : 0)), offsets));
  }

  function rivalRadii(buckets, counts, label, spread) {
    return counts.map((_, j) => {
      if (j === label) return Infinity;
      const weights = buckets[label].map((own, b) => spread + own - buckets[j][b]);
      return largestThatFit(weights, lead(counts, label, j) - 1);
    });
  }

  function topTwoRadius(buckets, counts, label, spread, radii) {
    let best = buckets[0].length;
    for (let i = 0; i < counts.length; i++) {
      for (let j = 0; j < i; j++) {
        const one = Math.max(radii[i], radii[j]);
        if (i === label || j === label || one >= best) continue;
        const given = buckets[label].map((own, b) => spread + 2 * own - buckets[i][b] - buckets[j][b]);
        const together = lead(counts, label, i) + lead(counts, label, j) - 1;
        best = Math.min(best, Math.max(one, largestThatFit(given, together)));
      }
    }
    return best;
  }

  function finiteRadius(ballot, counts, label, k, spread, offsets) {
    const buckets = bucketVotes(ballot, counts.length, offsets);
    const radii = rivalRadii(buckets, counts, label, spread);
    if (k === 2) return topTwoRadius(buckets, counts, label, spread, radii);
    return radii.filter((_, j) => j !== label).sort((a, b) => a - b)[k - 1];
  }

  // prefers[c][model]: whether a model prefers the winner to class c
  function finiteRunoffRadius(ballot, counts, winner, prefers, spread, offsets) {
    const models = ballot.length;
    const buckets = bucketVotes(ballot, counts.length, offsets);
    const [first, second] = finalists(counts);
    const other = first === winner ? second : first;
    const radii = rivalRadii(buckets, counts, winner, spread);
    let best = counts.length > 2 ? topTwoRadius(buckets, counts, winner, spread, radii) : models;
    for (let c = 0; c < counts.length; c++) {
      if (c === winner) continue;
      const margin = 2 * sum(prefers[c]) - models - (c < winner ? 1 : 0);
      const keepsDuel = largestThatFit(sumByBucket(prefers[c], offsets).map((w) => 2 * w), margin);
      const gap = c === other ? 0 : counts[other] - counts[c] + (other < c ? 1 : 0);
      const keepsOut = largestThatFit(buckets[other].map((own, b) => spread + own - buckets[c][b]), gap - 1);
      best = Math.min(best, Math.max(keepsDuel, keepsOut));
    }
    return best;
  }

  // Refuses second-round votes that contradict the first round, and a winner that did not win
  function checkRunoff(votes, models) {
    const { counts, winner } = votes;
    const beats = votes.beats ?? votes.prefers.map(sum);
    const [first, second] = finalists(counts);
    const other = first === winner ? second : first;
    const fits = counts.every((own, c) => c === winner || (beats[c] >= counts[winner] && beats[c] <= models - own));
    const bits = (votes.prefers ?? []).every((prefers, c) =>
      prefers.every((bit, i) => (c === winner ? !bit : bit ? votes.ballot[i] !== c : votes.ballot[i] !== winner)),
    );
    const won = winner === first || winner === second ? 2 * beats[other] - models - (other < winner ? 1 : 0) >= 0 : false;
    if (!fits || !bits || !won) throw new Error(`class ${winner} did not win its run-off`);
  }

  // The radius of one input; -1 where nothing is certified. votes: { counts, ballot, winner, beats, prefers }
  function poisoningRadius(votes, label, settings, spread, offsets) {
    const runoff = settings.aggregate === "runoff";
    if (runoff) checkRunoff(votes, sum(votes.counts));
    if (runoff && label !== votes.winner) return -1;
    if (spread === 1) {
      return runoff
        ? runoffRadius(votes.counts, votes.winner, votes.beats)
        : V.tolerated(votes.counts, label, settings.k);
    }
    return runoff
      ? finiteRunoffRadius(votes.ballot, votes.counts, votes.winner, votes.prefers, spread, offsets)
      : finiteRadius(votes.ballot, votes.counts, label, settings.k, spread, offsets);
  }

  // Base classifiers, or buckets, that an attacker must change at least: the least set of the largest gains
  function partsThatMustFall(votes, label, spread, offsets) {
    const rival = V.strongestRival(votes.counts, label);
    if (spread === 1) return { rival, parts: null };
    const buckets = bucketVotes(votes.ballot, votes.counts.length, offsets);
    const gains = Array.from(buckets[label], (own, b) => [spread + own - buckets[rival][b], b]);
    gains.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    let needed = lead(votes.counts, label, rival);
    const parts = [];
    for (const [gain, bucket] of gains) {
      if (needed <= 0) break;
      parts.push(bucket);
      needed -= gain;
    }
    return { rival, parts };
  }

  // The rival that needs least to be ahead of the label
  function strongestRival(counts, label) {
    let best = -1;
    counts.forEach((_, j) => {
      if (j !== label && (best < 0 || lead(counts, label, j) < lead(counts, label, best))) best = j;
    });
    return best;
  }

  Object.assign(V, { poisoningRadius, spreadOffsets, partsThatMustFall, strongestRival, runoffRadius, finiteRadius });
})((globalThis.Vauban ??= {}));

// Exact laws: radii from the vote of every view, and where a patch could win. Mirrors vauban/laws/exact.py and laws/patches.
(function (V) {
  "use strict";

  // How much each rival must gain to be ahead of the label, ascending
  function leads(counts, label) {
    const found = [];
    counts.forEach((votes, j) => {
      if (j !== label) found.push(counts[label] - votes + (j > label ? 1 : 0));
    });
    return found.sort((a, b) => a - b);
  }

  // The largest T for which the positive parts of gaps - T add up to more than T, or -1; gaps descend
  function toleratedByGaps(gaps) {
    let sum = 0;
    let best = -1;
    gaps.forEach((gap, i) => {
      sum += gap;
      best = Math.max(best, Math.floor((sum - 1) / (i + 2)));
    });
    return best;
  }

  // The largest T such that the label stays in the top k whichever T views change their vote; -1 where it is not there
  function tolerated(counts, label, k) {
    const nearest = leads(counts, label).slice(0, k).reverse();
    const own = counts[label];
    const total = counts.reduce((a, b) => a + b, 0);
    const withNoneLeft = nearest.reduce((sum, lead) => sum + Math.max(lead - own, 0), 0) - 1;
    return Math.min(withNoneLeft >= own ? withNoneLeft : toleratedByGaps(nearest), total);
  }

  // Which regions of a picture views keep
  function regionsOf(name, params, shape, sampled = false) {
    const [, height, width] = shape;
    const size = Number(params.size);
    const count = sampled ? 1 : Number(params.count ?? 1);
    const step = count > 1 ? size : Number(params.stride ?? 1);
    const all = { height, width, wraps: count === 1, chosen: count };
    if (name === "block") Object.assign(all, { rows: size, columns: size, rowStep: step, columnStep: step });
    else if ((params.axis ?? "column") === "column")
      Object.assign(all, { rows: height, columns: size, rowStep: height, columnStep: step });
    else Object.assign(all, { rows: size, columns: width, rowStep: step, columnStep: width });
    all.tops = Math.ceil(height / all.rowStep);
    all.lefts = Math.ceil(width / all.columnStep);
    all.count = all.tops * all.lefts;
    return all;
  }

  // Along one axis: for every position of a patch, the numbers of the kept runs that it touches
  function touchedRuns(runs, step, size, length, extent, wraps) {
    const found = [];
    for (let at = 0; at <= length - extent; at++) {
      const touched = [];
      for (let i = 0; i < runs; i++) {
        const start = i * step;
        const offset = (((at - start) % length) + length) % length;
        const meets = wraps ? offset < size || offset + extent > length : at < start + size && start < at + extent;
        if (extent > 0 && meets) touched.push(i);
      }
      found.push(touched);
    }
    return found;
  }

  function touchedByAxis(regions, patch) {
    const { height, width, wraps } = regions;
    return [
      touchedRuns(regions.tops, regions.rowStep, regions.rows, height, patch[0], wraps),
      touchedRuns(regions.lefts, regions.columnStep, regions.columns, width, patch[1], wraps),
    ];
  }

  const square = (regions, side) => [Math.min(side, regions.height), Math.min(side, regions.width)];
  const most = (lists) => Math.max(...lists.map((list) => list.length));

  // The most regions that a square of side 0, 1, ... can touch
  function touchedBySide(regions) {
    const table = [];
    for (let side = 0; side <= Math.max(regions.height, regions.width); side++) {
      const [down, right] = touchedByAxis(regions, square(regions, side));
      table.push(most(down) * most(right));
    }
    return table;
  }

  function comb(n, k) {
    let result = 1;
    for (let i = 1; i <= k; i++) result = (result * (n - i + 1)) / i;
    return n < k ? 0 : Math.round(result);
  }

  // Which regions each view keeps, in lexicographic order
  function combinations(regions, count) {
    const found = [];
    const chosen = [];
    (function pick(from) {
      if (chosen.length === count) return found.push(chosen.slice());
      for (let i = from; i < regions; i++) {
        chosen.push(i);
        pick(i + 1);
        chosen.pop();
      }
    })(0);
    return found;
  }

  // Whether the label stays in the top k whatever the touched views vote
  function staysAt(untouched, touched, label, k, sets) {
    const needs = [];
    for (let j = 0; j < untouched.length; j++) {
      if (j !== label) needs.push(Math.max(0, untouched[label] + (j > label ? 1 : 0) - untouched[j]));
    }
    if (k === 1) return Math.min(...needs) > touched;
    needs.sort((a, b) => a - b);
    return (sets ? needs[k - 1] : needs.slice(0, k).reduce((a, b) => a + b, 0)) > touched;
  }

  // Calls `visit(top, left, untouched, touched)` for every position of a patch until it returns false.
  // ballot: { votes, classes, sets }, votes[view] a class, or votes[view * classes + class] 0 or 1.
  function eachPosition(ballot, regions, patch, visit) {
    const { classes, sets, votes, counts } = ballot;
    const [down, right] = touchedByAxis(regions, patch);
    const kept = regions.chosen > 1 ? (regions.combined ??= combinations(regions.count, regions.chosen)) : null;
    const untouched = new Array(classes);
    const add = (into, at, view) => {
      if (!sets) into[at + votes[view]]++;
      else for (let c = 0; c < classes; c++) into[at + c] += votes[view * classes + c];
    };
    const lost = new Int32Array(classes);
    const columns = new Int32Array(regions.lefts * classes);
    for (let top = 0; top < down.length; top++) {
      if (!kept) {
        columns.fill(0);
        for (const t of down[top]) {
          for (let l = 0; l < regions.lefts; l++) add(columns, l * classes, t * regions.lefts + l);
        }
      }
      for (let left = 0; left < right.length; left++) {
        lost.fill(0);
        let touched = 0;
        if (kept) {
          const hit = new Uint8Array(regions.count);
          for (const t of down[top]) for (const l of right[left]) hit[t * regions.lefts + l] = 1;
          kept.forEach((chosen, view) => {
            if (!chosen.some((region) => hit[region])) return;
            touched++;
            add(lost, 0, view);
          });
        } else {
          touched = down[top].length * right[left].length;
          for (const l of right[left]) for (let c = 0; c < classes; c++) lost[c] += columns[l * classes + c];
        }
        for (let c = 0; c < classes; c++) untouched[c] = counts[c] - lost[c];
        if (visit(top, left, untouched, touched) === false) return;
      }
    }
  }

  function countVotes({ votes, classes, sets }) {
    const counts = new Array(classes).fill(0);
    if (sets) votes.forEach((vote, i) => (counts[i % classes] += vote));
    else votes.forEach((vote) => counts[vote]++);
    return counts;
  }

  // The positions [top, left] from which a patch can push the label out of the top k
  function losingPlaces(ballot, regions, label, k, side) {
    const found = [];
    eachPosition(ballot, regions, square(regions, side), (top, left, untouched, touched) => {
      if (!staysAt(untouched, touched, label, k, ballot.sets)) found.push([top, left]);
    });
    return found;
  }

  function byPosition(ballot, regions, label, k) {
    const stands = (side) => {
      let all = true;
      eachPosition(ballot, regions, square(regions, side), (top, left, untouched, touched) => {
        all = staysAt(untouched, touched, label, k, ballot.sets);
        return all;
      });
      return all;
    };
    let low = -1;
    let high = Math.max(regions.height, regions.width) + 1;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (stands(middle)) low = middle;
      else high = middle;
    }
    return low >= 0 ? low : null;
  }

  function patchRadius(name, params, shape) {
    const regions = regionsOf(name, params, shape);
    const views = comb(regions.count, regions.chosen);
    const changed = touchedBySide(regions).map((touched) => views - comb(regions.count - touched, regions.chosen));
    const sets = "threshold" in params;
    const byMargin = (counts, label, k) => {
      const allowed = sets ? Math.floor((leads(counts, label)[k - 1] - 1) / 2) : tolerated(counts, label, k);
      return allowed < 0 ? null : changed.filter((touched) => touched <= allowed).length - 1;
    };
    return {
      views,
      regions,
      sets,
      needsBallots: (params.bound ?? "position") === "position",
      ofCounts: byMargin,
      ofBallot: (ballot, label, k) => byPosition(ballot, regions, label, k),
    };
  }

  function ofTolerated(radiusTolerating) {
    const ofCounts = (counts, label, k) => {
      const changed = tolerated(counts, label, k);
      return changed < 0 ? null : radiusTolerating(changed);
    };
    return { needsBallots: false, sets: false, ofCounts, ofBallot: (b, label, k) => ofCounts(b.counts, label, k) };
  }

  const EXACT = {
    splitting: (params) => ofTolerated((changed) => changed / Number(params.levels ?? 255)),
    sparse: () => ofTolerated((changed) => changed),
    fractional: (params) => {
      const power = V.fraction(params.p);
      const rate = Number(params.budget ?? 1000) / Math.min(V.fraction(params.scale ?? "1"), 1);
      // Rounding of the base counts 1 / p times; the last subtraction is for radii so small that a product rounds them up again
      const down = (radius) => Math.max(0, radius * (1 - 2 ** -44 / power) - 2 * Number.MIN_VALUE);
      return ofTolerated((changed) => down(((changed + 1) / rate) ** (1 / power)));
    },
    band: (params, shape) => patchRadius("band", params, shape),
    block: (params, shape) => patchRadius("block", params, shape),
  };

  // The exact law of a manifest; null where this page has none
  function exactLaw(manifest) {
    const [name, params] = V.readSpec(manifest.smoothing);
    return name in EXACT ? EXACT[name](params, manifest.data.shape) : null;
  }

  Object.assign(V, {
    tolerated,
    toleratedByGaps,
    leads,
    regionsOf,
    touchedBySide,
    countVotes,
    losingPlaces,
    exactLaw,
  });
})((globalThis.Vauban ??= {}));

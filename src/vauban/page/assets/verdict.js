// The verdict of the button: every claim recomputed, hashes compared, and what is not checked.
(function (V) {
  "use strict";

  const { make, byId } = V.gallery;
  const wrongOf = (result) => result.rows.filter((row) => row.state === "wrong");
  const counted = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

  // Verifies all runs and shows what was found; each input gets its `proof`
  async function show(runs, runName) {
    const box = byId("verdict");
    const results = [];
    for (const run of runs) results.push(await V.verifyRun(run.source));
    runs.forEach((run, i) => {
      const rows = new Map(results[i].rows.map((row) => [row.index, row]));
      run.inputs.forEach((one) => (one.proof = rows.get(one.index)));
    });
    const name = (run) => (runs.length > 1 ? `${runName(run)}: ` : "");
    box.replaceChildren(
      ...results.flatMap((result, i) => verdictOf(result, runs[i], name(runs[i]))),
      make("p", { class: "unchecked" }, V.UNCHECKED),
    );
    const bad = results.some((result) => wrongOf(result).length || result.hashes.some((hash) => !hash.ok));
    const open = results.some((result, i) => runs[i].seal === null || result.rows.some((row) => row.state === "unknown"));
    box.className = `box ${bad ? "bad" : open ? "open" : "good"}`;
    box.hidden = false;
  }

  function verdictOf(result, run, name) {
    const wrong = wrongOf(result);
    const failed = result.hashes.filter((hash) => !hash.ok);
    const good = result.rows.filter((row) => row.state === "proven").length;
    let text = `${name}${good.toLocaleString("en")} of ${counted(result.rows.length, "claim", "claims")} recomputed from their votes and as claimed`;
    if (wrong.length || failed.length) {
      const found = [wrong.length ? counted(wrong.length, "claim", "claims") : "", failed.length ? counted(failed.length, "check of hashes", "checks of hashes") : ""];
      const verb = wrong.length + failed.length === 1 ? "is" : "are";
      text = `${name}NOT as claimed: ${found.filter(Boolean).join(" and ")} ${verb} wrong`;
    }
    const items = [
      ...failed.map((hash) => `not so: ${hash.what}`),
      ...wrong.slice(0, 20).map((row) => `input ${row.index}: ${row.why}`),
      ...(wrong.length > 20 ? [`and ${wrong.length - 20} more`] : []),
      ...(result.unsupported ? [result.unsupported] : []),
    ];
    if (!items.length) {
      const hashes = result.hashes.map((hash) => hash.what).join("; ");
      const apart = result.rows.reduce((most, row) => Math.max(most, Math.abs((row.claimed ?? 0) - (row.found ?? 0))), 1e-9);
      const exact = run.threat.integer ? "exactly" : `to ${(10 ** Math.ceil(Math.log10(apart) - 1e-9)).toFixed(9)}`;
      items.push(`radii agree ${exact}; hashes agree: ${hashes}`);
    }
    const left = result.rows.filter((row) => row.state === "unknown").length;
    if (left && !result.unsupported) items.push(`${counted(left, "claim is", "claims are")} not recomputed here, as votes are left out: vauban verify does`);
    if (run.seal === null) items.push("the run has no seal, so inputs may be missing: it is not finished, or its seal was left out");
    return [make("p", {}, text), make("ul", {}, ...items.map((item) => make("li", {}, item)))];
  }

  V.verdict = { show };
})((globalThis.Vauban ??= {}));

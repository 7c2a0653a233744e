// Charts of the page: Vega-Lite specifications, compiled here and run by Vega's expression interpreter, so that nothing needs eval.
(function (V) {
  "use strict";

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const series = (i) => colour(`series-${(i % 6) + 1}`);

  function config() {
    const text = colour("text");
    const weak = colour("weak");
    const axis = {
      labelColor: weak,
      titleColor: text,
      gridColor: colour("line"),
      domainColor: colour("line"),
      tickColor: colour("line"),
      labelFontSize: 12,
      titleFontSize: 12,
      titleFontWeight: "normal",
      gridOpacity: 0.6,
    };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      axis,
      legend: { labelColor: text, titleColor: text, labelFontSize: 12, symbolStrokeWidth: 3, symbolOpacity: 1, symbolType: "stroke", labelLimit: 400 },
      view: { stroke: "transparent" },
    };
  }

  function tooltip(handler, event, item, value) {
    const box = document.getElementById("tooltip");
    if (value == null || value === "") {
      box.hidden = true;
      return;
    }
    const lines = typeof value === "object" ? Object.entries(value).map(([name, text]) => `${name}: ${text}`) : [String(value)];
    box.textContent = lines.join("\n");
    box.hidden = false;
    const right = event.clientX + 14 + box.offsetWidth > innerWidth;
    box.style.left = `${right ? Math.max(4, event.clientX - 14 - box.offsetWidth) : event.clientX + 14}px`;
    box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 4)}px`;
  }

  // Draws a specification and returns its view; `words` is what a screen reader says of it
  function draw(element, spec, words) {
    const whole = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", config: config(), ...spec };
    const compiled = vegaLite.compile(whole, { logger: vega.logger(vega.Error) }).spec;
    const runtime = vega.parse(compiled, null, { ast: true });
    element.view?.finalize();
    element.textContent = "";
    const view = new vega.View(runtime, {
      renderer: "svg",
      container: element,
      hover: true,
      expr: vegaInterpreter.expressionInterpreter,
      tooltip,
      logger: vega.logger(vega.Error),
    });
    element.view = view;
    view.run();
    const drawn = element.querySelector("svg");
    drawn?.setAttribute("role", "img");
    drawn?.setAttribute("aria-label", words);
    return view;
  }

  const width = (element) => Math.max(240, Math.min(1100, element.clientWidth) - 70);

  // curves: [{ name, points: [{ radius, share, proven }], dashed }]; `share` and `proven` in percent
  function curve(element, curves, { metric, whole, largest, radius, share, rho }) {
    const names = curves.map((one) => one.name);
    const range = curves.map((one, i) => (one.attack ? colour("attack") : series(i)));
    const points = curves.flatMap((one) => one.points.map((point) => ({ run: one.name, attack: !!one.attack, ...point })));
    const scale = { domain: names, range };
    const x = {
      field: "radius",
      type: "quantitative",
      title: metric,
      scale: { domain: [0, largest], nice: false },
      axis: { tickCount: Math.floor(width(element) / 70), labelFlush: false, ...(whole ? { tickMinStep: 1 } : { format: "~g" }) },
    };
    const y = { field: "share", type: "quantitative", title: share, scale: { domain: [0, 100] } };
    const legend = names.length > 1 || curves.some((one) => one.attack);
    const run = { field: "run", type: "nominal", scale, legend: legend ? { title: null, orient: "bottom", columns: 1 } : null };
    const words = [
      { field: "run", title: "run" },
      { field: "radius", title: "radius", format: whole ? "d" : ".4f" },
      { field: "share", title: "certified of these inputs (%)", format: ".2f" },
      { field: "proven", title: `proven at ${1 - rho} (%)`, format: ".2f" },
    ];
    const spec = {
      width: width(element),
      height: 320,
      params: [{ name: "radius", value: radius }],
      layer: [
        {
          data: { values: points.filter((point) => point.proven < point.share) },
          mark: { type: "area", interpolate: "step-before", opacity: 0.18 },
          encoding: { x, y: { ...y }, y2: { field: "proven" }, color: run },
        },
        {
          data: { values: points.filter((point) => !point.attack) },
          mark: { type: "line", interpolate: "step-before", strokeWidth: 1, opacity: 0.8 },
          encoding: { x, y: { ...y, field: "proven" }, color: run },
        },
        {
          data: { values: points },
          mark: { type: "line", interpolate: "step-before", strokeWidth: 2 },
          encoding: {
            x,
            y,
            color: run,
            strokeDash: { condition: { test: "datum.attack", value: [5, 4] }, value: [1, 0] },
            detail: { field: "attack" },
          },
        },
        {
          data: { values: points },
          params: [{ name: "near", select: { type: "point", nearest: true, on: "pointermove", clear: "pointerout" } }],
          mark: { type: "point", filled: true, size: 60 },
          encoding: {
            x,
            y,
            color: run,
            opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 },
            tooltip: words,
          },
        },
        {
          data: { values: [{}] },
          mark: { type: "rule", color: colour("text"), strokeDash: [3, 3], strokeWidth: 1.5 },
          encoding: { x: { datum: { expr: "radius" }, type: "quantitative" } },
        },
      ],
    };
    return draw(element, spec, `Certified accuracy against radius, ${names.length} curves; the same numbers are in the table below.`);
  }

  // Whole radii in at most 40 bars of the same width
  function histogram(element, radii, { metric, words }) {
    const wide = Math.ceil((Math.max(0, ...radii) + 1) / 40);
    const bars = new Map();
    for (const radius of radii) {
      const from = Math.floor(radius / wide) * wide;
      bars.set(from, (bars.get(from) ?? 0) + 1);
    }
    const text = (from) => (wide === 1 ? String(from) : `${from} to ${from + wide - 1}`);
    const values = [...bars].map(([from, inputs]) => ({ from: from - 0.5, to: from + wide - 0.5, radius: text(from), inputs }));
    const spec = {
      width: width(element),
      height: 220,
      data: { values },
      mark: { type: "bar", color: series(0), binSpacing: 1 },
      encoding: {
        x: { field: "from", type: "quantitative", bin: "binned", title: metric, axis: { tickMinStep: 1, format: "d" } },
        x2: { field: "to" },
        y: { field: "inputs", type: "quantitative", title: "inputs", axis: { tickMinStep: 1 } },
        tooltip: [{ field: "radius" }, { field: "inputs" }],
      },
    };
    return draw(element, spec, words);
  }

  // cells: [{ top, left, lost }] of a picture of this height and width
  function heat(element, cells, { height, width: across, most, words, unit }) {
    const size = Math.max(4, Math.min(18, Math.floor(Math.min(560, element.clientWidth - 90) / across)));
    const axis = { tickMinStep: 1, grid: false };
    const spec = {
      width: size * across,
      height: size * height,
      data: { values: cells },
      mark: { type: "rect", stroke: colour("line"), strokeWidth: 0.25 },
      encoding: {
        x: { field: "left", type: "quantitative", title: "left edge of the patch", scale: { domain: [0, across], nice: false }, axis },
        x2: { field: "right" },
        y: { field: "top", type: "quantitative", title: "top edge", scale: { domain: [0, height], reverse: true, nice: false }, axis },
        y2: { field: "bottom" },
        color: {
          field: "lost",
          type: "quantitative",
          title: unit,
          scale: { domain: [0, Math.max(1, most)], range: [colour("raised"), colour("heat")], interpolate: "rgb" },
          legend: { orient: "right", tickMinStep: 1, gradientLength: Math.min(120, size * height), labelLimit: 80, titleLimit: 120 },
        },
        tooltip: [
          { field: "top", title: "top" },
          { field: "left", title: "left" },
          { field: "lost", title: unit },
        ],
      },
    };
    return draw(element, spec, words);
  }

  V.charts = { curve, histogram, heat };
})((globalThis.Vauban ??= {}));

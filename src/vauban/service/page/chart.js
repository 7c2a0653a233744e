// The chart of a certified radius against the number of votes, which is on a logarithmic scale.

const SIZE = 13; // pixels of its letters
const STEPS = [1, 2, 2.5, 5, 10];

/** Round numbers from 0 to at least `largest`, at most five steps; `whole`: whole numbers only. */
export function ticks(largest, whole = false) {
  const power = 10 ** Math.floor(Math.log10(largest / 5));
  const fits = (step) => step * 5 >= largest * (1 - 1e-9) && (!whole || Number.isInteger(step));
  const step = [...STEPS, ...STEPS.map((one) => 10 * one)].map((one) => one * power).find(fits) ?? 1;
  const count = Math.ceil(largest / step - 1e-9);
  return [...Array(count + 1).keys()].map((i) => Number((i * step).toPrecision(6)));
}

/** Draw points [votes, radius], 0 where there is no radius yet; `whole`: whether radii are counts. */
export function drawChart(canvas, points, whole) {
  const style = getComputedStyle(document.body);
  const colour = (key) => style.getPropertyValue(key).trim();
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height) return;
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  const context = canvas.getContext("2d");
  context.scale(devicePixelRatio, devicePixelRatio);
  context.font = `${SIZE}px system-ui, sans-serif`;
  const [votes, radius] = points.at(-1) ?? [0, 0];
  const marks = ticks(Math.max(...points.map((p) => p[1])) > 0 ? Math.max(...points.map((p) => p[1])) : 1, whole);
  const most = marks.at(-1);
  const left = 14 + Math.max(...marks.map((mark) => context.measureText(String(mark)).width));
  const [right, top, bottom] = [12, 2.2 * SIZE, 3.4 * SIZE];
  const [from, to] = [1, Math.log10(Math.max(100, votes))];
  const x = (n) => left + ((Math.log10(Math.max(10, n)) - from) / (to - from)) * (width - left - right);
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const line = (...places) => {
    context.beginPath();
    places.forEach(([h, v], i) => (i ? context.lineTo(h, v) : context.moveTo(h, v)));
    context.stroke();
  };
  context.strokeStyle = colour("--line");
  context.fillStyle = colour("--quiet");
  context.lineWidth = 1;
  context.textAlign = "center";
  let end = -Infinity; // of the last number that was written below the axis
  for (let power = 1; power <= to + 1e-9; power++) {
    line([x(10 ** power), top], [x(10 ** power), height - bottom]);
    const text = (10 ** power).toLocaleString();
    const half = context.measureText(text).width / 2;
    const middle = Math.min(x(10 ** power), width - half - 1);
    if (middle - half < end + 6) continue;
    context.fillText(text, middle, height - bottom + 1.4 * SIZE);
    end = middle + half;
  }
  context.fillText("votes", left + (width - left - right) / 2, height - 0.4 * SIZE);
  context.textAlign = "right";
  for (const mark of marks) {
    line([left, y(mark)], [width - right, y(mark)]);
    context.fillText(String(mark), left - 7, y(mark) + 0.35 * SIZE);
  }
  context.textAlign = "left";
  context.fillText("certified radius", 0, SIZE);
  context.strokeStyle = colour("--main");
  context.lineWidth = 2;
  if (points.length) line(...points.map(([n, value]) => [x(n), y(value)]));
  canvas.setAttribute("aria-label", points.length ? `Certified radius ${radius} after ${votes} votes` : "No votes yet");
}

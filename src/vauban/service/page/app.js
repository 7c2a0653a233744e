// The page of a service: draw or drop a picture, watch views vote and the radius grow, then change the picture.

import { drawChart } from "./chart.js";

const $ = (id) => document.getElementById(id);
const state = { about: null, token: "", pixels: null, certified: null, claim: null, stop: null, predicting: null, points: [] };

// --- talking to the service ------------------------------------------------------------------------------------------

async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) {
    $("token-form").hidden = false;
    $("token").focus();
    throw new Error(state.token ? "This is not the token of this service: give the one that it was started with." : "");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({ detail: answer.statusText }));
    throw new Error(typeof said.detail === "string" ? said.detail : sentence(said.detail));
  }
  return answer;
}

/** What is wrong with each parameter of a request, in words. */
function sentence(detail) {
  return detail.map(({ loc, input, msg }) => `${loc.at(-1)}=${input}: ${msg}`).join("; ");
}

/** The body of a request: the pixels in the format of numpy.save, so that nothing is rounded. */
function npy(values, shape) {
  const type = values instanceof Uint8Array ? "|u1" : "<f4";
  const sides = shape.join(", ") + (shape.length === 1 ? "," : "");
  let header = `{'descr': '${type}', 'fortran_order': False, 'shape': (${sides}), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const start = new Uint8Array(10 + header.length);
  start.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  start.set(new TextEncoder().encode(header), 10);
  return new Blob([start, values.buffer.slice(values.byteOffset, values.byteOffset + values.byteLength)]);
}

/** Calls `tell(name, content)` for every server-sent event of an answer. */
async function events(answer, tell) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const name = lines.find((line) => line.startsWith("event: ")).slice(7);
      const data = lines.find((line) => line.startsWith("data: ")).slice(6);
      tell(name, JSON.parse(data));
    }
  }
}

function show(problem) {
  $("problem").textContent = problem ? String(problem.message ?? problem) : "";
}

// --- the picture -------------------------------------------------------------------------------------------------------

const isPicture = (shape) => shape.length === 3 && (shape[0] === 1 || shape[0] === 3);

/** Draw values [channels, height, width] on a canvas; floats in [0, 1] or bytes. */
function paint(canvas, values, shape) {
  const [channels, height, width] = shape.length === 3 ? shape : [1, 1, shape[0]];
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  const scale = values instanceof Uint8Array ? 1 : 255;
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = scale * values[(channels >= 3 ? c : 0) * width * height + i];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function brush(x, y) {
  const [channels, height, width] = state.about.shape;
  const size = Number($("size").value) * Math.max(1, width / 28);
  const strength = Number($("strength").value);
  const erase = document.querySelector("input[name=tool]:checked").value === "erase";
  const colour = $("colour").value;
  const ink = channels === 1 ? [255] : [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  for (let row = Math.max(0, Math.floor(y - size)); row < Math.min(height, y + size + 1); row++) {
    for (let column = Math.max(0, Math.floor(x - size)); column < Math.min(width, x + size + 1); column++) {
      const near = Math.max(0, Math.min(1, size + 0.5 - Math.hypot(row + 0.5 - y, column + 0.5 - x))) * strength;
      for (let c = 0; c < channels; c++) {
        const at = (c * height + row) * width + column;
        const goal = erase ? 0 : ink[c];
        const now = state.pixels[at];
        const next = Math.round(now + (goal - now) * near);
        state.pixels[at] = erase || channels === 3 ? next : Math.max(now, next);
      }
    }
  }
  changed();
}

function changed() {
  paint($("pad"), state.pixels, state.about.shape);
  if (state.certified) compare();
}

async function takeFile(file) {
  if (!file) return;
  const [channels, height, width] = state.about.shape;
  const bitmap = await createImageBitmap(file);
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const scale = Math.max(width / bitmap.width, height / bitmap.height);
  const [w, h] = [bitmap.width * scale, bitmap.height * scale];
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
  const data = context.getImageData(0, 0, width, height).data;
  for (let i = 0; i < width * height; i++) {
    const [r, g, b] = [data[4 * i], data[4 * i + 1], data[4 * i + 2]];
    if (channels === 1) state.pixels[i] = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
    else [r, g, b].forEach((value, c) => (state.pixels[c * width * height + i] = value));
  }
  changed();
}

function prepareDrawing() {
  const pad = $("pad");
  let last = null;
  const place = (event) => {
    const box = pad.getBoundingClientRect();
    const [, height, width] = state.about.shape;
    return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
  };
  const stroke = (event) => {
    const [x, y] = place(event);
    const from = last || [x, y];
    const steps = Math.max(1, Math.ceil(Math.hypot(x - from[0], y - from[1])));
    for (let i = 1; i <= steps; i++) brush(from[0] + ((x - from[0]) * i) / steps, from[1] + ((y - from[1]) * i) / steps);
    last = [x, y];
  };
  pad.addEventListener("pointerdown", (event) => {
    pad.setPointerCapture(event.pointerId);
    last = null;
    stroke(event);
  });
  pad.addEventListener("pointermove", (event) => event.buttons && stroke(event));
  // Anywhere on the page: a browser would leave it for a picture that is dropped beside the canvas.
  document.addEventListener("dragover", (event) => (event.preventDefault(), pad.classList.add("over")));
  document.addEventListener("dragleave", () => pad.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    pad.classList.remove("over");
    if (state.about && isPicture(state.about.shape)) takeFile(event.dataTransfer.files[0]).catch(show);
  });
  $("file").addEventListener("change", (event) => takeFile(event.target.files[0]).catch(show));
}

/** The input as it is sent: bytes of a picture, or the numbers of a row. */
function input() {
  if (isPicture(state.about.shape)) {
    if (!state.pixels.some(Boolean)) throw new Error("The picture is empty: draw on it or drop one first, then certify.");
    return state.pixels;
  }
  const wanted = state.about.shape.reduce((a, b) => a * b, 1);
  const numbers = $("values").value.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (numbers.length !== wanted || numbers.some(Number.isNaN)) throw new Error(`${wanted} numbers are needed`);
  return new Float32Array(numbers);
}

// --- certifying --------------------------------------------------------------------------------------------------------

async function certify() {
  show("");
  const sent = input().slice();
  state.stop = new AbortController();
  state.points = [];
  state.certified = state.claim = null;
  clearTimeout(state.predicting);
  for (const id of ["breaking", "record", "restore"]) $(id).hidden = true;
  $("views").replaceChildren();
  $("views-text").hidden = true;
  $("claim").textContent = "";
  chart();
  $("answer").innerHTML = '<span class="quiet">Votes are being cast …</span>';
  $("certify").disabled = true;
  const seconds = Math.min(10, state.about.limits.seconds);
  const views = isPicture(state.about.shape) ? 8 : 0; // a row of a table is no picture
  const asked = state.about.exact ? `views=${views}` : `views=${views}&seconds=${seconds}`;
  try {
    const body = npy(sent, state.about.shape);
    const headers = { "Content-Type": "application/x-npy" };
    const answer = await ask(`certify?${asked}`, { method: "POST", body, headers, signal: state.stop.signal });
    $("stop").hidden = false;
    await events(answer, (name, content) => tell[name](content, sent));
  } catch (problem) {
    if (problem.name !== "AbortError") show(problem);
    else $("answer").innerHTML = '<span class="quiet">Stopped.</span>';
  } finally {
    $("certify").disabled = false;
    $("stop").hidden = true;
  }
}

const tell = {
  accepted({ settings }) {
    state.alpha = settings.alpha;
  },
  views({ views, votes }) {
    const most = votes.toSorted((a, b) => votes.filter((v) => v === b).length - votes.filter((v) => v === a).length)[0];
    $("views").replaceChildren(...views.map((view, i) => shownView(view, votes[i], most)));
    $("views-text").hidden = false;
  },
  radius(content) {
    bars(content.counts, content.label);
    $("count").textContent = `${content.votes.toLocaleString()} votes in ${content.seconds.toFixed(1)} s`;
    state.points.push([content.votes, content.radius === null ? 0 : Number(content.radius)]);
    chart();
    answer(content);
  },
  done(content, sent) {
    this.radius(content);
    state.certified = sent;
    state.claim = content;
    $("claim").textContent = content.claim.replace("Votes stopped by anytime.", "The votes could be stopped at any time.");
    const record = new Blob([JSON.stringify({ files: content.files })], { type: "application/json" });
    $("record").href = URL.createObjectURL(record);
    $("record").hidden = false;
    const trust = state.about.exact ? "" : `, with probability at least ${1 - state.alpha} over the votes`;
    $("break-text").textContent = `Draw on the picture. Inside the radius the answer stays${trust}; outside, it may change.`;
    if (isPicture(state.about.shape)) {
      $("breaking").hidden = $("restore").hidden = false;
      compare();
    }
  },
  error({ detail }) {
    show(detail);
  },
};

const name = (label) => state.about.classes[label];

function answer({ label, radius, abstained }) {
  const { metric } = state.about.threat;
  if (label === null) return;
  const what = document.createElement("span");
  if (radius === null) {
    what.textContent = abstained ? "Abstained: the votes prove nothing about this input." : `${name(label)} leads; nothing is certified yet.`;
    $("answer").replaceChildren(what);
    return;
  }
  const [big, number] = [document.createElement("b"), document.createElement("b")];
  big.textContent = name(label);
  number.textContent = Number(radius) >= 100 ? radius : radius.slice(0, 6);
  $("answer").replaceChildren(big, ` for every change whose ${metric} is ${state.about.threat.ball === "open" ? "below" : "at most"} `, number);
}

function flat(values) {
  return Float32Array.from(values.flat(Infinity));
}

function shownView(view, vote, most) {
  const figure = document.createElement("figure");
  const canvas = document.createElement("canvas");
  const shape = [];
  for (let part = view; Array.isArray(part); part = part[0]) shape.push(part.length);
  paint(canvas, flat(view), shape);
  const caption = document.createElement("figcaption");
  caption.textContent = name(vote) ?? "?";
  figure.classList.toggle("other", vote !== most);
  figure.append(canvas, caption);
  return figure;
}

function bars(counts, label) {
  const total = counts.reduce((a, b) => a + b, 0) || 1;
  const shown = counts.length <= 12 ? counts.map((_, i) => i) : [...counts.keys()].sort((a, b) => counts[b] - counts[a]).slice(0, 12);
  $("bars").replaceChildren(
    ...shown.map((i) => {
      const bar = document.createElement("div");
      bar.className = i === label ? "bar winner" : "bar";
      bar.setAttribute("role", "listitem");
      const [who, track, many] = [document.createElement("span"), document.createElement("div"), document.createElement("span")];
      who.textContent = name(i);
      track.className = "track";
      const fill = document.createElement("div");
      fill.className = "fill";
      fill.style.width = `${(100 * counts[i]) / total}%`;
      track.append(fill);
      many.textContent = counts[i].toLocaleString();
      bar.append(who, track, many);
      return bar;
    }),
  );
}

const chart = () => state.about && drawChart($("chart"), state.points, state.about.threat.ball === "closed");

// --- breaking ----------------------------------------------------------------------------------------------------------

/** How far the picture is from the certified one, in the metric of the claim; null where the page cannot say. */
function distance() {
  const [channels, height, width] = state.about.shape;
  const change = Array.from(state.pixels, (value, i) => Math.abs(value - state.certified[i]) / 255);
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  switch (state.about.threat.name) {
    case "l2": return Math.sqrt(sum(change.map((c) => c * c)));
    case "l1": return sum(change);
    case "linf": return change.reduce((a, b) => Math.max(a, b), 0);
    case "l0-features": return change.filter(Boolean).length;
    case "l0": {
      let pixels = 0;
      for (let i = 0; i < height * width; i++) pixels += [...Array(channels).keys()].some((c) => change[c * height * width + i]) ? 1 : 0;
      return pixels;
    }
    default: return null;
  }
}

function compare() {
  const [far, claim] = [distance(), state.claim];
  const radius = claim.radius === null ? 0 : Number(claim.radius);
  const { metric, ball } = state.about.threat;
  const inside = far !== null && claim.radius !== null && (ball === "open" ? far < radius || far === 0 : far <= radius);
  const full = Math.max(2 * radius, 1.2 * (far || 0), 1e-9);
  $("gauge").hidden = far === null;
  $("gauge-radius").style.width = `${(100 * radius) / full}%`;
  $("gauge-distance").style.left = `${(100 * (far || 0)) / full}%`;
  $("distance").textContent = far === null ? "" : `${metric} of your change: ${far.toFixed(3)}; certified: ${claim.radius ?? "nothing"}`;
  clearTimeout(state.predicting);
  state.predicting = setTimeout(() => predict(inside, far).catch(show), 250);
}

async function predict(inside, far) {
  const claim = state.claim;
  const headers = { "Content-Type": "application/x-npy" };
  const found = await (await ask("predict", { method: "POST", body: npy(state.pixels, state.about.shape), headers })).json();
  if (claim === null || claim !== state.claim) return;
  const same = !found.abstained && found.labels[0] === claim.label;
  const now = found.abstained ? "undecided" : name(found.labels[0]);
  const sure = state.about.exact ? "" : " (each answer is wrong with a small probability, alpha)";
  let text;
  if (inside) text = same ? `Still ${now}, as is claimed for every change this small.` : `Now ${now}, inside the radius${sure}.`;
  else if (same) text = `Still ${now}, though nothing is proven this far away.`;
  else text = far === null ? `Now ${now}.` : `Broken: now ${now}, outside the certified radius.`;
  $("verdict").textContent = text;
  $("verdict").className = same ? "good" : "bad";
}

// --- beginning ---------------------------------------------------------------------------------------------------------

async function begin() {
  $("about").textContent = "Asking the service …";
  const about = await (await ask("about")).json();
  state.about = about;
  $("token-form").hidden = true;
  $("main").hidden = false;
  $("about").textContent = `${about.model}, ${about.smoothing}; inputs ${about.shape.join(" x ")}, ${about.classes.length} classes`;
  const picture = isPicture(about.shape);
  $("drawing").hidden = $("clear").hidden = !picture;
  $("numbers").hidden = picture;
  $("colour-label").hidden = about.shape[0] !== 3;
  const length = about.shape.reduce((a, b) => a * b, 1);
  state.pixels = new Uint8Array(length);
  if (picture) paint($("pad"), state.pixels, about.shape);
  else $("values").value = Array(length).fill(0.5).join(", ");
  bars(about.classes.map(() => 0), null);
  chart();
}

function start() {
  begin().catch((problem) => {
    $("about").textContent = "";
    show(problem);
  });
}

prepareDrawing();
$("certify").addEventListener("click", () => certify().catch(show));
$("stop").addEventListener("click", () => state.stop?.abort());
$("clear").addEventListener("click", () => (state.pixels.fill(0), changed()));
$("restore").addEventListener("click", () => (state.pixels.set(state.certified), changed()));
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = $("token").value;
  show("");
  start();
});
addEventListener("resize", chart);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", chart);
start();

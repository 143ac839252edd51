// The page: controls, requests to the server, and display.

import { Brush } from "./brush.js";
import { PALETTE, css, ink } from "./palette.js";
import { draw as drawPlot } from "./plot.js";
import * as server from "./server.js";

const $ = (id) => document.getElementById(id);
const MOST_LABELS = PALETTE.length;
const SOLVERS = {
  l2fw: "Euclidean FW", efw: "entropic FW", mf: "mean field", fw: "vanilla FW",
  "anneal-fw": "annealed FW", "tsallis-fw": "Tsallis FW", "mixed-fw": "l2 + entropy",
  pgd: "projected gradient", emd: "mirror descent", fista: "FISTA", admm: "ADMM",
};
const WITH_LAMBDA = ["l2fw", "efw", "tsallis-fw", "mixed-fw"];
const DEFAULT_LAMBDA = { l2fw: 1, efw: 0.25, "tsallis-fw": 1, "mixed-fw": 1 };

const state = { image: null, strokes: [], numLabels: 2, label: 0, alone: null, refined: null, energies: new Map(), fileLabels: null };

// --- display ------------------------------------------------------------------------------------

function say(text, hint = false) {
  $("message").textContent = text;
  $("message").className = hint ? "hint" : "";
  $("message").hidden = !text;
}

function colours(labels, width, height, alpha = 1) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const packed = PALETTE.map(([r, g, b]) => ((Math.round(255 * alpha) << 24) | (b << 16) | (g << 8) | r) >>> 0);
  for (let i = 0; i < labels.length; i++) pixels[i] = packed[labels[i]];
  return image;
}

function show(canvas, labels) {
  const context = canvas.getContext("2d");
  if (labels) context.putImageData(colours(labels, canvas.width, canvas.height), 0, 0);
  else context.clearRect(0, 0, canvas.width, canvas.height);
}

const layer = new OffscreenCanvas(1, 1);

function showOverlay() {
  const canvas = $("overlay");
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  if (!state.image) return;
  context.drawImage(state.image, 0, 0);
  const alpha = Number($("opacity").value);
  if (state.refined && alpha) {
    [layer.width, layer.height] = [width, height];
    layer.getContext("2d").putImageData(colours(state.refined, width, height, alpha), 0, 0);
    context.drawImage(layer, 0, 0);
  }
  context.lineCap = context.lineJoin = "round";
  for (const edge of [1.2, 0]) {
    for (const { label, radius, points } of state.strokes) {
      context.strokeStyle = edge ? "rgb(255 255 255 / 85%)" : css(label);
      context.lineWidth = 2 * (radius + edge);
      context.beginPath();
      for (const [x, y] of points.length > 1 ? points : [points[0], points[0]]) context.lineTo(x + 0.5, y + 0.5);
      context.stroke();
    }
  }
  if (brush.cursor) {
    const [x, y] = brush.cursor;
    context.strokeStyle = "#ffffff";
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(x + 0.5, y + 0.5, Number($("radius").value) + 2, 0, 7);
    context.stroke();
    context.strokeStyle = "#000000";
    context.lineWidth = 0.7;
    context.stroke();
  }
}

let painting = 0;
function repaint() {
  cancelAnimationFrame(painting);
  painting = requestAnimationFrame(showOverlay);
}

function showPlot() {
  const names = [...new Set([$("solver").value, ...compared()])];
  drawPlot($("plot"), names.map((name) => [name, state.energies.get(name) ?? []]), Number($("num_steps").value));
  const own = state.energies.get($("solver").value);
  $("r-energy").textContent = own?.length ? Math.round(own.at(-1)).toLocaleString("en") : "–";
}

function showLabels() {
  const box = $("labels");
  box.replaceChildren();
  for (let label = 0; label < state.numLabels; label++) {
    const chip = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "label", value: label, checked: label === state.label });
    input.setAttribute("aria-label", `Label ${label}`);
    input.addEventListener("change", () => { state.label = label; });
    const mark = document.createElement("span");
    mark.textContent = label;
    mark.style.background = css(label);
    mark.style.color = ink(label);
    chip.append(input, mark);
    box.append(chip);
  }
  $("add-label").disabled = state.numLabels >= MOST_LABELS || fromFile();
}

// --- controls -----------------------------------------------------------------------------------

const fromFile = () => document.querySelector("[name=scores]:checked").value === "file";
const compared = () => [...document.querySelectorAll(".compare")].map((select) => select.value);

function value(id) {
  const input = $(id);
  return input.dataset.scale === "log" ? Number((10 ** Number(input.value)).toPrecision(3)) : Number(input.value);
}

function showValues() {
  for (const input of document.querySelectorAll(".slider input")) {
    const text = [value(input.id), input.dataset.unit].filter((part) => part !== undefined).join(" ");
    input.closest(".slider").querySelector("output").textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  $("weight").disabled = !WITH_LAMBDA.includes($("solver").value);
}

const settings = () => ({
  scores: fromFile() ? "file" : "scribbles",
  strokes: state.strokes,
  num_labels: fromFile() ? state.fileLabels ?? 2 : state.numLabels,
  trust: value("trust"),
  solver: $("solver").value,
  weight: value("weight"),
  num_steps: value("num_steps"),
  bilateral: { xy: value("bilateral-xy"), color: value("bilateral-color"), weight: value("bilateral-weight") },
  spatial: { xy: value("spatial-xy"), weight: value("spatial-weight") },
  compare: compared(),
});

// --- requests -----------------------------------------------------------------------------------

function clearResult() {
  state.alone = state.refined = null;
  state.energies = new Map();
  show($("alone"), null);
  show($("refined"), null);
  for (const id of ["get-mask", "get-snippet"]) $(id).disabled = true;
  for (const id of ["time", "r-solve", "r-prepare", "r-changed"]) $(id).textContent = id === "time" ? "" : "–";
  repaint();
  showPlot();
}

const milliseconds = (t) => `${t < 10 ? t.toFixed(1) : Math.round(t)} ms`;

function handle(event) {
  if (event.event === "labels") {
    state.alone = server.bytes(event.scores);
    state.refined = server.bytes(event.labels);
    state.energies = new Map();
    show($("alone"), state.alone);
    show($("refined"), state.refined);
    repaint();
    $("time").textContent = milliseconds(event.milliseconds.solve);
    $("r-solve").textContent = milliseconds(event.milliseconds.solve);
    $("r-prepare").textContent = milliseconds(event.milliseconds.prepare);
    $("r-changed").textContent = `${(100 * event.changed).toFixed(1)} %`;
    for (const id of ["get-mask", "get-snippet"]) $(id).disabled = false;
  } else if (event.event === "energy") {
    if (!state.energies.has(event.solver)) state.energies.set(event.solver, []);
    state.energies.get(event.solver).push(event.energy);
    showPlot();
  } else if (event.event === "end") {
    document.body.classList.remove("busy");
    document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  }
}

let timer = 0;
function solveSoon(delay = 60) {
  clearTimeout(timer);
  timer = setTimeout(solve, delay);
}

async function solve() {
  if (!state.image) return;
  if (fromFile() && state.fileLabels === null) return clearResult(), say("Choose a file of scores.", true);
  if (!fromFile() && new Set(state.strokes.map((s) => s.label)).size < 2) return clearResult(), say("Draw strokes for at least two labels.", true);
  document.body.classList.add("busy");
  try {
    if (await server.solve(settings(), handle)) say("");
  } catch (error) {
    document.body.classList.remove("busy");
    clearResult();
    say(error.message);
  }
}

async function showPicture({ width, height, strokes }, name) {
  state.image = await server.picture();
  for (const id of ["overlay", "alone", "refined"]) Object.assign($(id), { width, height });
  state.strokes = strokes;
  state.numLabels = Math.max(2, ...strokes.map((s) => s.label + 1));
  state.label = 0;
  state.fileLabels = null;
  document.querySelector("[name=scores][value=scribbles]").checked = true;
  for (const button of document.querySelectorAll("#pictures button")) button.setAttribute("aria-pressed", String(button.dataset.name === name));
  clearResult();
  say("");
  showSource();
}

function showSource() {
  $("from-file").hidden = !fromFile();
  $("from-scribbles").hidden = fromFile();
  if (fromFile() && state.fileLabels !== null) state.numLabels = state.fileLabels;
  state.label = Math.min(state.label, state.numLabels - 1);
  showLabels();
  solveSoon(0);
}

const attempt = async (work) => {
  try {
    await work();
  } catch (error) {
    say(error.message);
  }
};

async function sendScores() {
  const [file] = $("scores-file").files;
  if (!file) return;
  await attempt(async () => {
    const found = await server.sendScores(file, $("kind").value);
    state.fileLabels = found.num_labels;
    state.strokes = [];
    $("file-note").textContent = [`${file.name}: ${found.kind}, ${found.num_labels} labels.`, ...found.notes].join(" ");
    showSource();
  });
}

async function save(path, name) {
  await attempt(async () => {
    const address = URL.createObjectURL(await server.download(path));
    Object.assign(document.createElement("a"), { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  });
}

// --- events -------------------------------------------------------------------------------------

const brush = new Brush($("overlay"), {
  begin(point) {
    const stroke = { label: state.label, radius: Number($("radius").value), points: [point] };
    state.strokes.push(stroke);
    return stroke;
  },
  changed: repaint,
  done: () => solveSoon(0),
});

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
}

async function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

  for (const select of [$("solver"), ...document.querySelectorAll(".compare")])
    for (const [name, title] of Object.entries(SOLVERS)) select.append(new Option(select.id ? `${name} · ${title}` : name, name));
  document.querySelectorAll(".compare").forEach((select, i) => { select.value = ["mf", "fw"][i]; });

  $("controls").addEventListener("submit", (e) => e.preventDefault());
  for (const input of document.querySelectorAll(".slider input")) {
    input.addEventListener("input", () => { showValues(); if (input.id !== "radius") solveSoon(); });
  }
  $("solver").addEventListener("change", () => {
    const lambda = DEFAULT_LAMBDA[$("solver").value];
    if (lambda) $("weight").value = Math.log10(lambda);
    showValues();
    solveSoon(0);
  });
  for (const select of document.querySelectorAll(".compare")) select.addEventListener("change", () => solveSoon(0));
  for (const radio of document.querySelectorAll("[name=scores]")) radio.addEventListener("change", showSource);
  $("opacity").addEventListener("input", repaint);
  $("add-label").addEventListener("click", () => { state.label = state.numLabels++; showLabels(); solveSoon(0); });
  $("undo").addEventListener("click", () => { state.strokes.pop(); repaint(); solveSoon(0); });
  $("clear").addEventListener("click", () => { state.strokes = []; repaint(); solveSoon(0); });
  $("picture-file").addEventListener("change", () => attempt(async () => {
    const [file] = $("picture-file").files;
    if (file) await showPicture(await server.sendPicture(file), null);
  }));
  $("scores-file").addEventListener("change", sendScores);
  $("kind").addEventListener("change", sendScores);
  $("get-mask").addEventListener("click", () => save("/api/mask", "mask.png"));
  $("get-snippet").addEventListener("click", () => save("/api/snippet", "refine_mask.py"));
  showValues();

  const pictures = await server.begin();
  for (const { name, title } of pictures) {
    const button = Object.assign(document.createElement("button"), { type: "button", title });
    button.dataset.name = name;
    button.setAttribute("aria-label", title);
    button.append(Object.assign(new Image(), { src: `/thumbnails/${name}`, alt: "" }));
    button.addEventListener("click", () => attempt(async () => showPicture(await server.choose(name), name)));
    $("pictures").append(button);
  }
  await showPicture(await server.choose(pictures[0].name), pictures[0].name);
}

attempt(start);

// The page: pictures, sources of scores, requests to the server, and display.

import { Brush } from "./brush.js";
import * as controls from "./controls.js";
import { showLegend } from "./legend.js";
import { showMap, showOverlay } from "./overlay.js";
import { PALETTE } from "./palette.js";
import { draw as drawPlot } from "./plot.js";
import * as server from "./server.js";

const $ = (id) => document.getElementById(id);
const BEFORE = { network: "Network", scribbles: "Scores alone", file: "Scores alone" };

// Strokes, number of labels, their names and the selected label, of each source of scores. No labels: no scores yet.
const source = (numLabels, { strokes = [], names = [] } = {}) => ({ numLabels, strokes, names, label: 0 });
const state = { image: null, sources: {}, alone: null, refined: null, present: new Set(), energies: new Map() };
const chosen = () => document.querySelector("[name=scores]:checked")?.value ?? "scribbles";
const own = () => state.sources[chosen()];

// --- display ------------------------------------------------------------------------------------

// The line below the picture: an error ("bad"), a request to the visitor ("ask"), or how to draw.
function say(text, kind = "") {
  $("message").textContent = text || "Choose a label, then draw to correct it.";
  $("message").className = kind;
}

let painting = 0;
function repaint() {
  cancelAnimationFrame(painting);
  painting = requestAnimationFrame(() => {
    if (!state.image) return;
    const { strokes, names } = own();
    showOverlay($("overlay"), {
      ...state, strokes, clear: names.indexOf("background"), cursor: brush.cursor,
      divider: Number($("divider").value), opacity: controls.get("opacity"), radius: controls.get("radius"),
    });
  });
}

const compared = () => [...document.querySelectorAll(".compare")].map((select) => select.value);

function showPlot() {
  if (!state.image) return;
  const { solver, num_steps } = controls.settings();
  const names = [...new Set([solver, ...compared()])];
  drawPlot($("plot"), names.map((name) => [name, state.energies.get(name) ?? []]), num_steps);
  const energies = state.energies.get(solver);
  $("r-energy").textContent = energies?.length ? Math.round(energies.at(-1)).toLocaleString("en") : "–";
}

function showLabels() {
  const { numLabels, names, strokes, label } = own();
  const used = new Set([...state.present, ...strokes.map((stroke) => stroke.label)]);
  showLegend($("labels"), $("more-labels"), {
    count: numLabels, names, used, selected: label, choose: (one) => { own().label = one; showLabels(); },
  });
  $("add-label").hidden = chosen() !== "scribbles";
  $("add-label").disabled = numLabels >= PALETTE.length;
}

// --- requests -----------------------------------------------------------------------------------

function clearResult() {
  server.cancel();
  document.body.classList.remove("busy");
  state.alone = state.refined = null;
  state.present = new Set();
  state.energies = new Map();
  showMap($("alone"), null);
  showMap($("refined"), null);
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
    state.present = new Set([...new Set(state.alone), ...new Set(state.refined)]);
    state.energies = new Map();
    showMap($("alone"), state.alone);
    showMap($("refined"), state.refined);
    showLabels();
    repaint();
    for (const id of ["time", "r-solve"]) $(id).textContent = milliseconds(event.milliseconds.solve);
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

// Sentence about the input that is missing; empty if nothing is.
function missing({ numLabels, strokes }) {
  if (chosen() === "scribbles") return new Set(strokes.map((s) => s.label)).size < 2 ? "Draw strokes for at least two labels." : "";
  return numLabels ? "" : "Choose a file of scores.";
}

async function solve() {
  if (!state.image) return;
  const { strokes, numLabels } = own();
  const ask = missing(own());
  if (ask) return clearResult(), say(ask, "ask");
  say("");
  document.body.classList.add("busy");
  try {
    await server.solve({ scores: chosen(), strokes, num_labels: numLabels, trust: controls.get("trust"), ...controls.settings(), compare: compared() }, handle);
  } catch (error) {
    clearResult();
    say(error.message, "bad");
  }
}

let choices = 0;
let queue = Promise.resolve();
// Shows the picture that `send` sends, after earlier ones: the server has one picture, the last that it reads.
function choose(send, name) {
  const mine = ++choices;
  const work = async () => {
    if (mine !== choices) return;
    const found = await send();
    const image = await server.picture();
    if (mine === choices) showPicture(image, found, name);
  };
  return (queue = queue.then(work, work));
}

function showPicture(image, { width, height, strokes, names }, name) {
  state.image = image;
  for (const id of ["overlay", "alone", "refined"]) {
    Object.assign($(id), { width, height });
    $(id).closest(".frame").style.setProperty("--ratio", width / height);
  }
  state.sources = {
    network: source(names.length, { names }),
    scribbles: source(Math.max(2, ...strokes.map((s) => s.label + 1)), { strokes }),
    file: source(0),
  };
  const first = names.length ? "network" : "scribbles";
  for (const radio of document.querySelectorAll("[name=scores]")) {
    radio.checked = radio.value === first;
    if (radio.value === "network") radio.disabled = !names.length;
  }
  for (const button of document.querySelectorAll("#pictures button")) button.setAttribute("aria-pressed", String(button.dataset.name === name));
  showSource();
}

function showSource() {
  for (const part of document.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== chosen();
  for (const caption of document.querySelectorAll(".before")) caption.textContent = BEFORE[chosen()];
  clearResult();
  say("");
  showLabels();
  solveSoon(0);
}

const attempt = async (work) => {
  try {
    await work();
  } catch (error) {
    say(error.message, "bad");
  }
};

async function sendScores() {
  const [file] = $("scores-file").files;
  if (!file) return;
  await attempt(async () => {
    const found = await server.sendScores(file, $("kind").value, $("align").value.trim());
    state.sources.file = source(found.num_labels);
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
    const stroke = { label: own().label, radius: controls.get("radius"), points: [point] };
    own().strokes.push(stroke);
    return stroke;
  },
  changed: repaint,
  done: () => solveSoon(0),
});

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
}

function listen() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  $("controls").addEventListener("submit", (e) => e.preventDefault());
  for (const select of document.querySelectorAll(".compare")) select.addEventListener("change", () => solveSoon(0));
  for (const radio of document.querySelectorAll("[name=scores]")) radio.addEventListener("change", showSource);
  $("divider").addEventListener("input", repaint);
  new ResizeObserver(showPlot).observe($("f-plot"));
  $("add-label").addEventListener("click", () => { own().label = own().numLabels++; showLabels(); solveSoon(0); });
  $("undo").addEventListener("click", () => { own().strokes.pop(); repaint(); solveSoon(0); });
  $("clear").addEventListener("click", () => { own().strokes.length = 0; repaint(); solveSoon(0); });
  $("picture-file").addEventListener("change", () => attempt(async () => {
    const [file] = $("picture-file").files;
    if (file) await choose(() => server.sendPicture(file), null);
  }));
  $("scores-file").addEventListener("change", sendScores);
  for (const id of ["kind", "align"]) $(id).addEventListener("change", sendScores);
  $("get-mask").addEventListener("click", () => save("/api/mask", "mask.png"));
  $("get-snippet").addEventListener("click", () => save("/api/snippet", "refine_mask.py"));
}

async function start() {
  listen();
  const begun = await server.begin();
  controls.start(begun, (slider) => {
    if (["radius", "opacity"].includes(slider?.id)) repaint();
    else solveSoon();
  });
  document.querySelectorAll(".compare").forEach((select, i) => {
    for (const { name } of begun.solvers) select.append(new Option(name, name));
    select.value = ["mf", "fw"][i];
  });
  for (const { name, title } of begun.pictures) {
    const button = Object.assign(document.createElement("button"), { type: "button", title });
    button.dataset.name = name;
    button.setAttribute("aria-label", title);
    button.append(Object.assign(new Image(), { src: `/thumbnails/${name}`, alt: "" }));
    button.addEventListener("click", () => attempt(() => choose(() => server.choose(name), name)));
    $("pictures").append(button);
  }
  const [{ name }] = begun.pictures;
  await choose(() => server.choose(name), name);
}

attempt(start);

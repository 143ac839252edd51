// Settings of the model: presets, menus and sliders. A slider has steps; the exact value is kept beside it.

const $ = (id) => document.getElementById(id);
const exact = new Map();
let presets = {};
let lambdas = {};

const position = (input, value) => (input.dataset.scale === "log" ? Math.log10(value) : value);
const valueAt = (input) => (input.dataset.scale === "log" ? Number((10 ** Number(input.value)).toPrecision(3)) : Number(input.value));
const sliders = () => document.querySelectorAll(".slider input");

// Exact value of a slider.
export const get = (id) => exact.get(id);

export function set(id, value) {
  exact.set(id, value);
  $(id).value = position($(id), value);
}

// Settings as the server takes them, and as presets have them.
const current = () => ({
  solver: $("solver").value,
  weight: get("weight"),
  num_steps: get("num_steps"),
  balance: get("balance"),
  bilateral: { xy: get("bilateral-xy"), color: get("bilateral-color"), weight: get("bilateral-weight") },
  spatial: { xy: get("spatial-xy"), weight: get("spatial-weight") },
});

export const settings = () => ({ preset: $("preset").value, ...current() });

const same = (a, b) => (typeof a === "object" ? Object.keys(a).every((key) => same(a[key], b[key])) : a === b);

function show() {
  for (const input of sliders()) {
    const text = [Number(get(input.id).toPrecision(3)), input.dataset.unit].filter((part) => part !== undefined).join(" ");
    input.closest(".slider").querySelector("output").textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  $("weight").disabled = lambdas[$("solver").value] === null;
  $("reset").disabled = same(presets[$("preset").value], current());
}

function usePreset() {
  const { solver, bilateral, spatial, ...numbers } = presets[$("preset").value];
  $("solver").value = solver;
  for (const [id, value] of Object.entries(numbers)) set(id, value);
  for (const [kernel, values] of Object.entries({ bilateral, spatial }))
    for (const [name, value] of Object.entries(values)) set(`${kernel}-${name}`, value);
  show();
}

// Fills menus and sliders from the server's answer. `changed` is called after the visitor's changes, with the slider if it was one.
export function start(begun, changed) {
  presets = begun.presets;
  lambdas = Object.fromEntries(begun.solvers.map(({ name, weight }) => [name, weight]));
  for (const { name, title } of begun.solvers) $("solver").append(new Option(`${name} · ${title}`, name));
  for (const name of Object.keys(presets)) $("preset").append(new Option(name, name));
  for (const input of sliders()) {
    exact.set(input.id, valueAt(input));
    input.addEventListener("input", () => { exact.set(input.id, valueAt(input)); show(); changed(input); });
  }
  set("trust", begun.trust);
  usePreset();
  for (const [id, event] of [["preset", "change"], ["reset", "click"]]) $(id).addEventListener(event, () => { usePreset(); changed(); });
  $("solver").addEventListener("change", () => {
    const lambda = lambdas[$("solver").value];
    if (lambda !== null) set("weight", lambda);
    show();
    changed();
  });
}

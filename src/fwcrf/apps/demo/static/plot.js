// SVG plot of energy against step, for up to three solvers.

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 230;
// Space for numbers to the left and names to the right, in pixels.
const box = (width) => ({ left: 52, right: width - 84, top: 12, bottom: HEIGHT - 42 });

const make = (parent, name, attributes, text = "") => {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
};

// About `count` round numbers between low and high, for the axis.
export function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= raw) ?? 10);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) found.push(Math.abs(t) < step / 2 ? 0 : t);
  return found;
}

const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

// Draws `paths`, a list of [name, [energy of step 0, 1, ...]], in the order of the line colours.
export function draw(svg, paths, steps) {
  svg.replaceChildren();
  // A unit is a pixel, so that text has the same size on every screen.
  const width = Math.max(280, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const BOX = box(width);
  const lines = paths.map(([name, energies]) => [name, energies.map((e) => e - energies[0])]);
  const all = lines.flatMap(([, values]) => values);
  let low = Math.min(0, ...all);
  let high = Math.max(0, ...all);
  if (high === low) low = high - 1;
  const margin = 0.06 * (high - low);
  [low, high] = [low - margin, high + margin];
  const x = (k) => BOX.left + (k / Math.max(1, steps)) * (BOX.right - BOX.left);
  const y = (v) => BOX.bottom - ((v - low) / (high - low)) * (BOX.bottom - BOX.top);
  for (const t of ticks(low, high, 4)) {
    make(svg, "line", { class: "grid", x1: BOX.left, x2: BOX.right, y1: y(t), y2: y(t) });
    make(svg, "text", { x: BOX.left - 8, y: y(t) + 4, "text-anchor": "end" }, short.format(t));
  }
  for (const t of ticks(0, steps, 6).filter(Number.isInteger)) make(svg, "text", { x: x(t), y: BOX.bottom + 18, "text-anchor": "middle" }, t);
  make(svg, "text", { x: (BOX.left + BOX.right) / 2, y: BOX.bottom + 33, "text-anchor": "middle" }, "step");
  // Names at the ends of the lines, shifted so that they do not overlap.
  const ends = lines.map(([name, values], i) => ({ name, i, at: values.length ? y(values.at(-1)) : BOX.top })).sort((a, b) => a.at - b.at);
  ends.forEach((end, n) => { if (n && end.at < ends[n - 1].at + 15) end.at = ends[n - 1].at + 15; });
  [...ends].reverse().forEach((end, n, all) => { end.at = Math.min(end.at, n ? all[n - 1].at - 15 : BOX.bottom - 6); });
  lines.forEach(([, values], i) => {
    make(svg, "polyline", { class: `s${i}`, points: values.map((v, k) => `${x(k)},${y(v)}`).join(" ") });
    for (const [k, v] of values.entries()) make(svg, "circle", { class: `s${i}`, cx: x(k), cy: y(v), r: i ? 2.2 : 3 });
  });
  for (const end of ends) make(svg, "text", { class: `name s${end.i}`, x: BOX.right + 10, y: end.at + 4 }, end.name);
  const summary = lines.filter(([, v]) => v.length).map(([name, v]) => `${name} ${short.format(v.at(-1))} after ${v.length - 1} steps`);
  svg.setAttribute("aria-label", `Change of energy. ${summary.join("; ")}.`);
}

// The legend: a button for each label in use, to draw with, and a menu of further labels.

import { css, ink } from "./palette.js";

// With more labels than this, the labels in use have buttons, and the rest are in the menu.
const FEW = 6;

let shown = "";

// `used` is the set of labels in use. `choose` is called with the label that the visitor selects.
export function showLegend(box, menu, { count, names, used, selected, choose }) {
  const labels = [...Array(count).keys()].filter((label) => count <= FEW || label === selected || used.has(label));
  const key = JSON.stringify([count, names, labels, selected]);
  if (key === shown) return;
  shown = key;
  const focused = box.contains(document.activeElement);
  box.replaceChildren(...labels.map((label) => chip(label, names[label], label === selected, choose)));
  if (focused) box.querySelector("input:checked")?.focus();
  const rest = [...Array(count).keys()].filter((label) => !labels.includes(label));
  menu.hidden = rest.length === 0;
  menu.replaceChildren(new Option("More …", ""), ...rest.map((label) => new Option(names[label] ?? `Label ${label}`, label)));
  menu.onchange = () => choose(Number(menu.value));
}

function chip(label, name, checked, choose) {
  const input = Object.assign(document.createElement("input"), { type: "radio", name: "label", value: label, checked });
  input.setAttribute("aria-label", name ?? `Label ${label}`);
  input.addEventListener("change", () => choose(label));
  const mark = document.createElement("span");
  mark.textContent = name ?? label;
  mark.style.background = css(label);
  mark.style.color = ink(label);
  const one = document.createElement("label");
  one.append(input, mark);
  return one;
}

// The picture with labels: scores alone to the left of the divider, refined labels to the right, and the strokes.

import { PALETTE, css } from "./palette.js";

const packed = (alpha) => PALETTE.map(([r, g, b]) => ((Math.round(255 * alpha) << 24) | (b << 16) | (g << 8) | r) >>> 0);

function colours(labels, width, height, alpha) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = packed(alpha);
  for (let i = 0; i < labels.length; i++) pixels[i] = palette[labels[i]];
  return image;
}

// Labels over a picture, with opaque edges. The label `clear` is left out.
function over(labels, width, height, alpha, clear) {
  const image = colours(labels, width, height, alpha);
  const pixels = new Uint32Array(image.data.buffer);
  const opaque = packed(1);
  for (let i = 0; i < labels.length; i++) {
    const label = labels[i];
    const x = i % width;
    if (label === clear) pixels[i] = 0;
    else if ((x && labels[i - 1] !== label) || (x < width - 1 && labels[i + 1] !== label)
      || (i >= width && labels[i - width] !== label) || (i + width < labels.length && labels[i + width] !== label)) pixels[i] = opaque[label];
  }
  return image;
}

// Shows a map of labels alone; null clears the canvas.
export function showMap(canvas, labels) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  if (labels) context.putImageData(colours(labels, width, height, 1), 0, 0);
  else context.clearRect(0, 0, width, height);
}

const layer = new OffscreenCanvas(1, 1);

// Draws image, labels, strokes and the brush of the keyboard. `clear` is a label to leave out, or -1.
export function showOverlay(canvas, { image, alone, refined, divider, opacity, clear, strokes, cursor, radius }) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.drawImage(image, 0, 0);
  const at = Math.round(divider * width);
  if (refined && opacity) {
    [layer.width, layer.height] = [width, height];
    for (const [labels, left, right] of [[alone, 0, at], [refined, at, width]]) {
      if (left === right) continue;
      layer.getContext("2d").putImageData(over(labels, width, height, opacity, clear), 0, 0);
      context.drawImage(layer, left, 0, right - left, height, left, 0, right - left, height);
    }
  }
  context.lineCap = context.lineJoin = "round";
  for (const edge of [1.2, 0]) {
    for (const { label, radius, points } of strokes) {
      context.strokeStyle = edge ? "rgb(255 255 255 / 85%)" : css(label);
      context.lineWidth = 2 * (radius + edge);
      context.beginPath();
      for (const [x, y] of points.length > 1 ? points : [points[0], points[0]]) context.lineTo(x + 0.5, y + 0.5);
      context.stroke();
    }
  }
  context.lineCap = "butt";
  if (refined && at > 0 && at < width) outline(context, () => { context.moveTo(at, 0); context.lineTo(at, height); });
  if (cursor) outline(context, () => context.arc(cursor[0] + 0.5, cursor[1] + 0.5, radius + 2, 0, 7));
}

// A white line with a dark core, visible on every picture.
function outline(context, path) {
  for (const [colour, width] of [["#ffffff", 2], ["#000000", 0.7]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    path();
    context.stroke();
  }
}

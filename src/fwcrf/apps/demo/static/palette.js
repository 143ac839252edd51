// Screen colours of labels: distinct in hue and lightness, not too bright.

export const PALETTE = [
  [63, 81, 102], [226, 121, 63], [70, 160, 140], [240, 200, 96], [140, 107, 181], [206, 92, 110], [110, 176, 222],
  [150, 170, 80], [240, 158, 170], [98, 84, 60], [44, 110, 170], [200, 150, 110], [120, 200, 170], [170, 60, 60],
  [190, 180, 220], [90, 130, 60], [250, 225, 170], [70, 60, 120], [220, 140, 30], [30, 130, 130], [170, 175, 175],
];

export const css = (label) => `rgb(${PALETTE[label].join(" ")})`;

// Text colour on a label's colour: dark or white, by contrast.
export const ink = (label) => {
  const [r, g, b] = PALETTE[label];
  return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#1c2124" : "#ffffff";
};

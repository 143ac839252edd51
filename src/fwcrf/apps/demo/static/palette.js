// Colours of labels on the screen: apart from each other in hue and lightness, calm enough to look at for long.

export const PALETTE = [
  [63, 81, 102], [226, 121, 63], [70, 160, 140], [240, 200, 96], [140, 107, 181], [206, 92, 110], [110, 176, 222],
  [150, 170, 80], [240, 158, 170], [98, 84, 60], [44, 110, 170], [200, 150, 110], [120, 200, 170], [170, 60, 60],
  [190, 180, 220], [90, 130, 60], [250, 225, 170], [70, 60, 120], [220, 140, 30], [30, 130, 130], [170, 175, 175],
];

export const css = (label) => `rgb(${PALETTE[label].join(" ")})`;

// Black or white, whichever is easier to read on the colour.
export const ink = (label) => {
  const [r, g, b] = PALETTE[label];
  return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#1c2124" : "#ffffff";
};

"""Measures `fwcrf.Stream` on frames of a pan: `python docs/measure_stream.py DATA [IMAGES]`.

A window moves over photographs of PASCAL VOC with a network's scores. Each frame has noise of its own in its
colours, as of a camera, and in some rows noise in its scores, smooth in space. Flicker is the share of points
of the scene whose label differs from the label in the frame before. In the last rows frames are equal to each
other, as in a paused video, and scores are not.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

import fwcrf
from fwcrf.apps.models.resize import from_grid

HEIGHT, WIDTH, FRAMES = 180, 220, 8
SENSOR, FLICKER = 3.0, 1.5  # standard deviations, of grey levels and of logits
STREAMS = {
    "`refine`": None,
    "`Stream()`": {},
    '`Stream(start="previous", num_steps=2)`': {"start": "previous", "num_steps": 2},
    '`Stream(start="previous")`': {"start": "previous"},
    "`Stream(coherence=0.5)`": {"coherence": 0.5},
    "`Stream(coherence=1)`": {"coherence": 1.0},
    "`Stream(coherence=2)`": {"coherence": 2.0},
    "`Stream(coherence=1, color=18)`": {"coherence": 1.0, "color": 18.0},
}


class Frame(NamedTuple):
    image: Tensor
    logits: Tensor
    truth: Tensor


def read(val: Path, name: str) -> Frame:
    image = np.asarray(Image.open(val / "images" / f"{name}.jpg"))
    truth = np.asarray(Image.open(val / "labels" / f"{name}.png")).astype(np.int64)
    with np.load(val / "logits_deeplabv3" / f"{name}.npz") as stored:
        grid = torch.from_numpy(stored["logits"]).float()
    logits = from_grid(grid[None], 8, image.shape[:2])[0]
    return Frame(torch.from_numpy(image.copy()).permute(2, 0, 1), logits, torch.from_numpy(truth))


def pan(scene: Frame, speed: int, sensor: float, flicker: float, random: torch.Generator) -> Iterator[Frame]:
    """Frames of a window that moves by ``speed`` pixels along a row, and half as many along a column."""
    for k in range(FRAMES):
        y, x = k * speed // 2, k * speed
        window = ..., slice(y, y + HEIGHT), slice(x, x + WIDTH)
        image, logits, truth = (one[window] for one in scene)
        grain = sensor * torch.randn(image.shape, generator=random)
        noise = interpolate(torch.randn(1, 21, 13, 17, generator=random), (HEIGHT, WIDTH), mode="bilinear")
        yield Frame((image + grain).round().clamp(0, 255).byte(), logits + flicker * noise[0], truth)


def changed(labels: Tensor, before: Tensor, speed: int) -> float:
    """The share of points of the scene, seen in both frames, whose label has changed."""
    y, x = speed // 2, speed
    return float((before[y:, x:] != labels[: HEIGHT - y, : WIDTH - x]).double().mean())


def main(data: str, images: str = "24") -> None:
    torch.set_num_threads(1)
    # Some frames are sure of all their labels.
    warnings.filterwarnings("ignore", message="no pixel changed")
    val = Path(data) / "voc2012" / "val"
    names = (val.parent / "val.txt").read_text().split()
    random = torch.Generator().manual_seed(0)
    rows: dict[tuple, list] = defaultdict(list)
    cases = [(speed, SENSOR, flicker) for speed in (0, 2, 6) for flicker in (0.0, FLICKER)]
    count = 0
    for name in names[len(names) // 2 :: 3]:
        scene = read(val, name)
        height, width = scene.truth.shape
        if height < HEIGHT + FRAMES * 3 or width < WIDTH + FRAMES * 6 or count == int(images):
            continue
        count += 1
        for speed, sensor, flicker in [*cases, (0, 0.0, FLICKER)]:
            frames = list(pan(scene, speed, sensor, flicker, random))
            streams = {k: None if v is None else fwcrf.Stream(**v) for k, v in STREAMS.items()}
            last: dict[str, Tensor] = {}
            for image, logits, truth in frames:
                for kind, stream in streams.items():
                    run = fwcrf.refine if stream is None else stream
                    begin = time.process_time()
                    labels = run(image, logits, from_logits=True)
                    took = time.process_time() - begin
                    known = truth != 255
                    right = (labels == truth)[known].double().mean()
                    if kind in last:
                        row = 100 * float(right), 100 * changed(labels, last[kind], speed), 1000 * took
                        rows[speed, sensor, flicker, kind].append(row)
                    last[kind] = labels
    print(f"{count} photographs, {FRAMES - 1} frames each; times are medians")
    print("| pan per frame | scores | | accuracy | flicker | time |")
    print("|---|---|---|---|---|---|")
    for (speed, sensor, flicker, kind), each in rows.items():
        found = np.array(each)
        (right, moved), took = found[:, :2].mean(0), np.median(found[:, 2])
        scores = "flickering" if flicker else "steady"
        where = f"{speed} px" if sensor else "equal frames"
        print(f"| {where} | {scores} | {kind} | {right:.2f} | {moved:.2f} | {took:.1f} ms |")


if __name__ == "__main__":
    main(*sys.argv[1:])

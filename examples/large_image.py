"""Refine an image on disk with bounded memory.

The image is a mosaic of scikit-image's photographs, with scores of a coarse brightness model. Image and
scores are .npy files, read tile by tile. The labels are written tile by tile.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from skimage import data

import fwcrf

PHOTOGRAPHS = (
    "retina",
    "astronaut",
    "coffee",
    "rocket",
    "chelsea",
    "hubble_deep_field",
    "immunohistochemistry",
)
BLOCK = 8


def mosaic(path: Path, size: int) -> np.ndarray:
    """An image ``(size, size, 3)`` of photographs in rows; each row begins with another photograph."""
    image = open_memmap(path, "w+", np.uint8, (size, size, 3))
    photographs = [getattr(data, name)()[..., :3] for name in PHOTOGRAPHS]
    top, row = 0, 0
    while top < size:
        height = min(400, size - top)
        left, k = 0, 2 * row
        while left < size:
            part = photographs[k % len(photographs)][:height, : size - left]
            image[top : top + len(part), left : left + part.shape[1]] = part
            left, k = left + part.shape[1], k + 1
        top, row = top + height, row + 1
    return image


def rough_scores(path: Path, image: np.ndarray) -> np.ndarray:
    """Probabilities of dark, middle and bright, ``(size, size, 3)``, constant on blocks of pixels."""
    size = len(image)
    scores = open_memmap(path, "w+", np.float16, (size, size, 3))
    levels = np.array([40.0, 110.0, 200.0])
    for top in range(0, size, BLOCK):
        strip = image[top : top + BLOCK].mean((0, 2))
        blocks = strip[: size // BLOCK * BLOCK].reshape(-1, BLOCK).mean(1).repeat(BLOCK)
        blocks = np.pad(blocks, (0, size - len(blocks)), mode="edge")
        p = np.exp(-((blocks[:, None] - levels) ** 2) / (2 * 40.0**2)) + 0.1
        scores[top : top + BLOCK] = p / p.sum(-1, keepdims=True)
    return scores


class Peak(threading.Thread):
    """Records the peak of the process's anonymous memory; pages of mapped files do not count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_bytes = self.highest = self.now()
        self.start()

    @staticmethod
    def now() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    def run(self) -> None:
        while True:
            self.highest = max(self.highest, self.now())
            time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=3000, help="pixels along each side")
    parser.add_argument("--memory", type=float, default=1.0, help="bound on the memory, in GiB")
    parser.add_argument("--overlap", type=int, help="halo of a tile, in pixels")
    parser.add_argument("--folder", type=Path, default=Path("demo-output"), help="folder for the files")
    parser.add_argument("--whole", action="store_true", help="also solve without tiles, and compare")
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    mosaic(args.folder / "image.npy", args.size)
    rough_scores(args.folder / "scores.npy", np.load(args.folder / "image.npy", mmap_mode="r"))
    image, scores = (np.load(args.folder / f"{name}.npy", mmap_mode="r") for name in ("image", "scores"))
    labels = open_memmap(args.folder / "labels.npy", "w+", np.uint8, (args.size, args.size))

    fwcrf.refine(np.asarray(image[:100, :100]), np.asarray(scores[:100, :100]))  # warm-up: loads code
    peak, start = Peak(), time.perf_counter()
    fwcrf.refine(
        image,
        scores,
        memory=int(args.memory * 2**30),
        overlap=args.overlap,
        out=labels,
        progress=lambda done, all_: print(f"tile {done} of {all_}", end="\r", flush=True),
    )
    seconds = time.perf_counter() - start
    grown = (peak.highest - peak.start_bytes) / 2**30
    print(f"{args.size} x {args.size} pixels, {scores.shape[-1]} labels: {seconds:.0f} s, {grown:.2f} GiB")
    if args.whole:
        untiled = fwcrf.refine(image, scores, tile=False)
        changed = (untiled != scores.argmax(-1)).mean()
        print(f"changed {changed:.2%} of labels; different without tiles: {(untiled != labels).mean():.4%}")


if __name__ == "__main__":
    main()

"""Test images of the benchmarks, and scores for them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

WIDTH, HEIGHT = 500, 375
_SKIMAGE = ["astronaut", "coffee", "rocket", "immunohistochemistry", "hubble_deep_field"]


def photograph(name: str) -> np.ndarray:
    """A photograph that comes with scikit-image, ``(height, width, 3)`` of uint8."""
    return getattr(skimage.data, name)()


def resized(image: np.ndarray, width: int, height: int) -> np.ndarray:
    # Copied: pydensecrf rejects the read-only memory of an Image.
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS))


def crop(image: np.ndarray) -> np.ndarray:
    """96 x 72 pixels from the middle, at full resolution."""
    top, left = image.shape[0] // 3, image.shape[1] // 3
    return np.ascontiguousarray(image[top : top + 72, left : left + 96])


def cut(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """``height`` x ``width`` pixels from the middle, at full resolution; fewer of a smaller image."""
    top, left = max(0, image.shape[0] - height) // 2, max(0, image.shape[1] - width) // 2
    return np.ascontiguousarray(image[top : top + height, left : left + width])


def names(most: int | None = None) -> list[str]:
    """The first ``most`` of a smooth photograph and five ordinary ones of PASCAL VOC or scikit-image.

    A smooth photograph occupies few lattice cells, which favours every lattice. The scikit-image
    photographs, used without VOC, are smoothed too, by resizing.
    """
    sized = (path for path in sorted(_voc().glob("*.jpg")) if _size(path) == (WIDTH, HEIGHT))
    ordinary = [path.stem for path, _ in zip(sized, range(5), strict=False)]
    return ["chelsea", *(ordinary if len(ordinary) == 5 else _SKIMAGE)][:most]


def at_random(count: int, seed: int) -> list[str]:
    """Random photographs of PASCAL VOC, the same for the same seed; without VOC ``names``."""
    stored = sorted(path.stem for path in _voc().glob("*.jpg"))
    return random.Random(seed).sample(stored, count) if len(stored) >= count else names()


def named(name: str, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """A photograph of ``names`` at the given size."""
    path = _voc() / f"{name}.jpg"
    if not path.exists():
        return resized(photograph(name), width, height)
    with Image.open(path) as opened:
        return resized(np.asarray(opened.convert("RGB")), width, height)


def size(name: str) -> tuple[int, int]:
    """Width and height of a photograph of PASCAL VOC as stored; of any other picture, as it is measured."""
    path = _voc() / f"{name}.jpg"
    return _size(path) if path.exists() else (WIDTH, HEIGHT)


def volume(side: int) -> np.ndarray:
    """A synthetic scan of grey balls in noise, ``(side, side, side)`` of float32 within 0..255."""
    generator = np.random.default_rng(0)
    z, y, x = np.meshgrid(*[np.linspace(0, 1, side, dtype=np.float32)] * 3, indexing="ij")
    grey = np.full(x.shape, 40, np.float32)
    for _ in range(12):
        cz, cy, cx, radius = [*generator.uniform(0.15, 0.85, 3), generator.uniform(0.08, 0.25)]
        inside = (z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2 < radius**2
        grey[inside] = generator.uniform(70, 230)
    return np.clip(grey + generator.normal(0, 6, grey.shape), 0, 255).astype(np.float32)


def scores(image: np.ndarray, labels: int) -> np.ndarray:
    """Synthetic logits, ``(labels, height, width)``.

    Distances to random colours of the image plus noise, on a coarse grid and interpolated: blurred borders.
    """
    generator = np.random.default_rng(0)
    height, width = image.shape[:2]
    coarse = resized(image, max(2, width // 8), max(2, height // 8)).astype(np.float32)
    colours = coarse.reshape(-1, 3)
    centres = colours[generator.choice(len(colours), labels, replace=len(colours) < labels)]
    near = -np.square(coarse[None] - centres[:, None, None]).sum(-1) / (2 * 40.0**2)
    near = near - near.max(0) + generator.normal(0, 1.0, near.shape)
    grids = [Image.fromarray(layer.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
             for layer in near]  # fmt: skip
    return np.stack([np.asarray(grid) for grid in grids])


def network_scores(name: str, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Logits of a trained DeepLabv3 for a picture of PASCAL VOC, ``(21, height, width)``.

    Synthetic logits if the file does not exist.
    """
    stored = data() / "voc2012" / "val" / "logits_deeplabv3" / f"{name}.npz"
    if not stored.exists():
        return scores(named(name, width, height), 21)
    import torch

    from fwcrf.apps.models.resize import from_grid

    logits = torch.from_numpy(np.load(stored)["logits"].astype(np.float32))
    own_width, own_height = size(name)
    at_its_size = from_grid(logits[None], 8, (own_height, own_width))
    return torch.nn.functional.interpolate(at_its_size, (height, width), mode="bilinear")[0].numpy()


def data() -> Path:
    """The folder of data sets: ``FWCRF_DATA``, or shared/data next to the repository."""
    beside = Path(__file__).resolve().parents[5] / "shared" / "data"
    return Path(os.environ.get("FWCRF_DATA", beside))


def _voc() -> Path:
    return data() / "voc2012" / "val" / "images"


def _size(path: Path) -> tuple[int, int]:
    with Image.open(path) as opened:
        return opened.size


def split(logits: np.ndarray, labels: int) -> np.ndarray:
    """Logits of more labels, ``(labels, height, width)``: the given ones, followed by similar copies.

    They simulate a network with many classes. A copy is 2 to 4 lower, plus noise, like a finer class next
    to a preferred one.
    """
    generator = np.random.default_rng(0)
    more = np.arange(len(logits), labels) % len(logits)
    behind = generator.uniform(2, 4, (len(more), 1, 1))
    noise = generator.normal(0, 0.5, (len(more), *logits.shape[1:]))
    return np.concatenate([logits, logits[more] - behind + noise]).astype(np.float32)

"""The photographs that everything is measured on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

WIDTH, HEIGHT = 500, 375
_OTHERS = ["astronaut", "coffee", "rocket", "immunohistochemistry", "hubble_deep_field"]


def photograph(name: str) -> np.ndarray:
    """A photograph that comes with scikit-image, ``(height, width, 3)`` of uint8."""
    return getattr(skimage.data, name)()


def resized(image: np.ndarray, width: int, height: int) -> np.ndarray:
    # A copy: pydensecrf refuses the read-only memory of an Image.
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS))


def crop(image: np.ndarray) -> np.ndarray:
    """96 x 72 pixels from the middle, at full resolution."""
    top, left = image.shape[0] // 3, image.shape[1] // 3
    return np.ascontiguousarray(image[top : top + 72, left : left + 96])


def names() -> list[str]:
    """A smooth photograph and five ordinary ones: of PASCAL VOC, or else of scikit-image.

    A smooth one touches few lattice cells and flatters every lattice. Those of scikit-image have to be
    resized, which smooths them too.
    """
    sized = (path for path in sorted(_voc().glob("*.jpg")) if _size(path) == (WIDTH, HEIGHT))
    ordinary = [path.stem for path, _ in zip(sized, range(5), strict=False)]
    return ["chelsea", *(ordinary if len(ordinary) == 5 else _OTHERS)]


def named(name: str, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """A photograph of ``names`` at the given size."""
    path = _voc() / f"{name}.jpg"
    if not path.exists():
        return resized(photograph(name), width, height)
    with Image.open(path) as opened:
        return resized(np.asarray(opened.convert("RGB")), width, height)


def data() -> Path:
    """Where data sets are looked for: ``FWCRF_DATA``, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    return Path(os.environ.get("FWCRF_DATA", beside))


def _voc() -> Path:
    return data() / "voc2012" / "val" / "images"


def _size(path: Path) -> tuple[int, int]:
    with Image.open(path) as opened:
        return opened.size

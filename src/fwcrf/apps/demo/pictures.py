"""Pictures to segment: photographs of scikit-image, or the visitor's own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fwcrf.apps.demo.scribbles import Stroke
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_of
from fwcrf.apps.files.images import read_image
from fwcrf.optional import needed

# Larger pictures are scaled down to this longest side, for fast responses.
LONGEST = 500
# Most bytes of a decoded picture: 24 million pixels in colour.
LIMIT = 24_000_000 * 3
# Exif orientation: number of quarter turns to the left, and True if mirrored.
_ORIENTATIONS = {
    2: (0, True), 3: (2, False), 4: (2, True), 5: (3, True), 6: (3, False), 7: (1, True), 8: (1, False),
}  # fmt: skip


@dataclass(frozen=True)
class Bundled:
    """A photograph and its example strokes: label, then points in per cent of width and height."""

    file: str
    title: str
    strokes: tuple[tuple[int, tuple[tuple[float, float], ...]], ...]


# Photographs with a network's scores come first.
BUNDLED = {
    "rocket": Bundled(
        "rocket.jpg",
        "Rocket",
        (
            (0, ((20, 15), (45, 20), (80, 12))),
            (0, ((22, 60), (44, 75))),
            (0, ((60, 55), (66, 80))),
            (1, ((50.5, 36), (50.5, 60), (50, 90))),
        ),
    ),
    "chelsea": Bundled(
        "chelsea.png",
        "Chelsea, a cat",
        (
            (0, ((88, 90), (97, 62))),
            (0, ((93, 8), (97, 30))),
            (1, ((12, 30), (25, 18), (50, 12))),
            (1, ((20, 60), (35, 75), (48, 55))),
            (1, ((55, 45), (58, 65))),
            (2, ((36, 34), (41, 44))),
            (2, ((69, 46), (73, 47))),
        ),
    ),
    "astronaut": Bundled(
        "astronaut.png",
        "Astronaut",
        (
            (0, ((24, 8), (27, 30))),
            (0, ((62, 8), (66, 40))),
            (1, ((20, 66), (40, 60), (58, 60))),
            (1, ((30, 88), (45, 84))),
            (2, ((40, 20), (44, 30), (48, 24))),
            (2, ((36, 12), (46, 7), (54, 14))),
            (3, ((60, 72), (72, 90), (84, 78))),
            (3, ((76, 60), (95, 58))),
        ),
    ),
    "camera": Bundled(
        "camera.png",
        "Photographer",
        (
            (0, ((8, 12), (50, 5), (90, 20))),
            (1, ((6, 52), (4, 60))),
            (1, ((75, 92), (80, 66), (95, 55))),
            (1, ((38, 80), (42, 92))),
            (2, ((22, 30), (14, 60), (24, 90))),
            (2, ((36, 18), (44, 15))),
            (2, ((30, 48), (46, 46))),
        ),
    ),
    "coffee": Bundled(
        "coffee.png",
        "Coffee",
        (
            (0, ((8, 90), (6, 60), (22, 22))),
            (0, ((78, 12), (93, 45), (88, 90))),
            (0, ((1, 4), (12, 5))),
            (1, ((18, 50), (20, 75), (38, 93), (60, 94))),
            (1, ((77, 62), (72, 80))),
            (2, ((32, 17), (33, 33), (42, 45))),
            (2, ((40, 12), (52, 8), (64, 14))),
            (3, ((42, 35), (49, 41), (56, 36))),
        ),
    ),
    "motorcycle": Bundled(
        "motorcycle_left.png",
        "Motorcycle",
        (
            (0, ((4, 85), (30, 92), (60, 96), (95, 88))),
            (0, ((8, 12), (35, 15), (60, 8))),
            (0, ((80, 25), (95, 40))),
            (0, ((6, 50), (12, 70))),
            (1, ((16, 43), (30, 52), (52, 43), (66, 38))),
            (1, ((23, 56), (21, 70))),
            (1, ((75, 58), (84, 62))),
            (1, ((50, 58), (58, 68))),
        ),
    ),
    "immunohistochemistry": Bundled(
        "ihc.png",
        "Stained tissue",
        (
            (0, ((52, 42), (56, 56), (46, 62))),
            (0, ((36, 70), (44, 92))),
            (0, ((93, 20), (96, 60))),
            (1, ((15, 12), (30, 30), (44, 20))),
            (1, ((58, 70), (66, 80))),
            (1, ((66, 12), (84, 34))),
        ),
    ),
    "coins": Bundled(
        "coins.png",
        "Coins",
        (
            (0, ((33, 6), (33, 94))),
            (0, ((64, 5), (64.5, 94))),
            (0, ((4, 28.5), (60, 28.5))),
            (0, ((3, 2), (90, 2))),
            (1, ((36, 17), (44, 16))),
            (1, ((67, 40), (73, 40))),
            (1, ((85, 60), (93, 64))),
            (1, ((9, 40), (14, 40))),
            (1, ((40, 87), (48, 88))),
        ),
    ),
}


def bundled(name: str) -> np.ndarray:
    """Photograph with a name in ``BUNDLED``, ``(H, W, 3)`` of uint8, no side longer than ``LONGEST``."""
    if name not in BUNDLED:
        raise ValueError(f"picture {name!r} is not known; expected one of {', '.join(BUNDLED)}.")
    # The file of the installed package: scikit-image's own functions may download files.
    package = find_spec("skimage")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            "the photographs need scikit-image, which is not installed: pip install 'fwcrf[demo]'",
            name="skimage",
        )
    return read_picture(Path(package.submodule_search_locations[0]) / "data" / BUNDLED[name].file)


def example_strokes(name: str, shape: tuple[int, int]) -> list[Stroke]:
    """Example strokes of a photograph, in pixels."""
    height, width = shape
    return [
        Stroke(label, 5.0, [(round(x * width / 100, 1), round(y * height / 100, 1)) for x, y in points])
        for label, points in BUNDLED[name].strokes
    ]


def read_picture(path: Path | str, *, limit: int = LIMIT) -> np.ndarray:
    """Picture ``(H, W, 3)`` of uint8 from a PNG or JPEG file, upright, no side longer than ``LONGEST``."""
    if format_of(path) not in ("png", "jpeg"):
        raise FileError(f"{path} cannot be shown; expected PNG or JPEG.")
    values = read_image(path, limit=limit).values
    if values.dtype == np.float32 or values.max(initial=0) > 65535 or values.min(initial=0) < 0:
        raise FileError(f"{path} has numbers that are not colours; expected 8 or 16 bits per channel.")
    if values.dtype != np.uint8:
        values = (values >> 8).astype(np.uint8)
    values = np.repeat(values, 3, -1) if values.shape[-1] == 1 else values
    turns, mirrored = _ORIENTATIONS.get(_orientation(path), (0, False))
    values = np.rot90(values, turns)
    return fitted(values[:, ::-1] if mirrored else values)


def fitted(image: np.ndarray, longest: int = LONGEST) -> np.ndarray:
    """Picture, scaled down if a side is longer than ``longest``.

    >>> fitted(np.zeros((300, 600, 3), np.uint8)).shape
    (250, 500, 3)
    """
    height, width = image.shape[:2]
    scale = longest / max(height, width)
    if scale >= 1:
        return np.ascontiguousarray(image)
    Image = needed("PIL.Image", "demo")
    size = max(1, round(scale * width)), max(1, round(scale * height))
    return np.array(
        Image.fromarray(np.ascontiguousarray(image)).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    )


def _orientation(path: Path | str) -> int:
    """Exif orientation of a file; 1, upright, if the file does not say."""
    Image = needed("PIL.Image", "demo")
    # The pixels are decoded already; damaged Exif data is not an error.
    try:
        with Image.open(path) as opened:
            return opened.getexif().get(0x0112, 1)
    except Exception:
        return 1

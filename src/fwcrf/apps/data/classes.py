"""Names and colours of the classes of a label map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fwcrf.apps.files.palette import voc

Color = tuple[int, int, int]


@dataclass(frozen=True)
class Classes:
    """Names of the labels 0, 1, ..., their colours, and the label of ignored pixels.

    The default of ``colors`` is the PASCAL VOC colour map.

    >>> Classes(("sky", "road")).palette()[:2].tolist()
    [[0, 0, 0], [128, 0, 0]]
    """

    names: tuple[str, ...]
    ignore_index: int = 255
    colors: tuple[Color, ...] | None = None

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("there are no names of classes; expected at least one.")
        if 0 <= self.ignore_index < len(self.names):
            raise ValueError(
                f"ignore_index={self.ignore_index} is the label of {self.names[self.ignore_index]!r}; "
                "expected a number that is not a label."
            )
        if self.colors is not None and len(self.colors) != len(self.names):
            raise ValueError(f"there are {len(self.colors)} colours for {len(self.names)} classes.")

    def __len__(self) -> int:
        return len(self.names)

    def palette(self) -> np.ndarray:
        """Palette ``(256, 3)`` uint8: the classes' colours, then the PASCAL VOC colour map."""
        palette = voc()
        if self.colors is not None:
            palette[: len(self)] = self.colors
        return palette

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Labels of the given class names.

        >>> Classes(("sky", "road", "car")).numbers(["car", "sky"])
        [2, 0]
        """
        for name in names:
            if name not in self.names:
                raise ValueError(f"there is no class {name!r}; expected any of {', '.join(self.names)}.")
        return [self.names.index(name) for name in names]


VOC = Classes(
    (
        "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
        "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
        "tvmonitor",
    )
)  # fmt: skip

CAMVID = Classes(
    (
        "sky", "building", "pole", "road", "pavement", "tree", "sign_symbol", "fence", "car", "pedestrian",
        "bicyclist",
    ),
    ignore_index=11,
    colors=(
        (128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0),
        (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192),
    ),
)  # fmt: skip

CITYSCAPES = Classes(
    (
        "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign",
        "vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle",
        "bicycle",
    ),
    colors=(
        (128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153), (153, 153, 153),
        (250, 170, 30), (220, 220, 0), (107, 142, 35), (152, 251, 152), (70, 130, 180), (220, 20, 60),
        (255, 0, 0), (0, 0, 142), (0, 0, 70), (0, 60, 100), (0, 80, 100), (0, 0, 230), (119, 11, 32),
    ),
)  # fmt: skip

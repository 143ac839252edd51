"""The pixels of a grid that have data, in the image and in the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from fwcrf.integrations.geotiff.place import Place
from fwcrf.integrations.geotiff.raster import Index, Raster
from fwcrf.torch_ops.printed import in_one_line


class Missing:
    """The mask ``(rows, columns)`` of pixels that lack data in any band of the image or of the scores.

    ``scores`` may be None, or an array on the grid of the image. The grid is that of the image, or with
    ``on_scores`` of the scores; data of the other one are those of the nearest pixel.
    """

    def __init__(self, image: Raster, scores: Any, place: Place, *, on_scores: bool) -> None:
        self.image: Raster = image
        self.scores: Any = scores
        self.place: Place = place
        self.on_scores: bool = on_scores
        self.shape: tuple[int, int] = scores.grid if on_scores else image.grid
        self.dtype: np.dtype = np.dtype(bool)

    __repr__ = in_one_line

    def __getitem__(self, index: Index) -> np.ndarray:
        return ~(self._image(index).all(-1) & self._scored(index))

    def outside(self, index: Index) -> np.ndarray:
        """True where no band of the image has data, or the scores have none."""
        return ~(self._image(index).any(-1) & self._scored(index))

    def _image(self, index: Index) -> np.ndarray:
        if not self.on_scores or self.place.same:
            return self.image.read(*index)[1]
        each = zip(index, self.place.stride, self.place.offset, self.image.grid, strict=True)
        at = [
            np.rint(_numbers(part) * stride + offset).clip(0, size - 1) for part, stride, offset, size in each
        ]
        return _nearest(self.image, at)

    def _scored(self, index: Index) -> np.ndarray:
        if not isinstance(self.scores, Raster):
            if self.scores is None or self.scores.dtype.kind != "f":
                return np.ones((1, 1), bool)
            found = np.isfinite(self.scores[index])
            return np.asarray(found.all(-1) if found.ndim == 3 else found)
        if self.on_scores or self.place.same:
            return np.asarray(self.scores.read(*index)[1].all(-1))
        each = zip(index, self.place.stride, self.place.offset, self.scores.grid, strict=True)
        at = [
            np.rint((_numbers(part) - offset) / stride).clip(0, size - 1)
            for part, stride, offset, size in each
        ]
        return np.asarray(_nearest(self.scores, at).all(-1))


def _numbers(part: slice) -> np.ndarray:
    return np.arange(part.start, part.stop, part.step)


def _nearest(raster: Raster, at: list[np.ndarray]) -> np.ndarray:
    """Which pixels have data, ``(rows, columns, bands)``, for numbers of rows and of columns."""
    rows, columns = (one.astype(int) for one in at)
    window = [slice(int(one.min()), int(one.max()) + 1) for one in (rows, columns)]
    return raster.read(*window)[1][np.ix_(rows - rows.min(), columns - columns.min())]

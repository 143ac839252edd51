"""Raster files as arrays that are read, or written, window by window."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.optional import needed
from fwcrf.torch_ops.printed import in_one_line

Index = tuple[slice, ...]


def open_raster(path: Path | str, mode: str = "r", **profile: Any) -> Any:
    """The dataset of rasterio. Raises FileError if the file is none, or cannot be written."""
    rasterio = needed("rasterio", "geo")
    try:
        with warnings.catch_warnings():
            # place.has_place finds that out.
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            return rasterio.open(path, mode, **profile)
    except rasterio.errors.RasterioError as error:
        done = "read" if mode == "r" else "written"
        raise FileError(f"{path} cannot be {done} as a raster: {error}") from error


class Raster:
    """Bands of a dataset, all but transparency unless named. A subclass says how it is an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.grid, len(self.bands))

    @property
    def dtype(self) -> np.dtype:
        return self.stored

    def __init__(self, dataset: Any, bands: Sequence[int] | None = None) -> None:
        self.dataset = dataset
        self.bands: list[int] = _coloured(dataset) if bands is None else [*bands]
        if not self.bands or not {*self.bands} <= {*dataset.indexes}:
            raise FileError(f"bands {self.bands}; {dataset.name} has bands 1 to {dataset.count}.")
        self.grid: tuple[int, int] = (dataset.height, dataset.width)
        self.stored: np.dtype = np.result_type(*(dataset.dtypes[band - 1] for band in self.bands))

    __repr__ = in_one_line

    def read(self, rows: slice, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        """Values ``(rows, columns, bands)`` of a window, and which of them are data: finite, not nodata."""
        if (rows.step or 1) == 1:
            return self._read(rows, columns)
        # The rows between them are not kept in memory.
        each = [self._read(slice(row, row + 1), columns) for row in range(rows.start, rows.stop, rows.step)]
        values, data = zip(*each, strict=True)
        return np.concatenate(values), np.concatenate(data)

    def _read(self, rows: slice, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        window = (rows.start, rows.stop), (columns.start, columns.stop)
        try:
            values = self.dataset.read(self.bands, window=window)
            data = self.dataset.read_masks(self.bands, window=window) > 0
        except needed("rasterio", "geo").errors.RasterioError as error:
            cause = error.__cause__ or error
            raise FileError(f"{self.dataset.name} cannot be read: {cause}. Is it truncated?") from error
        if values.dtype.kind == "f":
            data &= np.isfinite(values)
        step = slice(None, None, columns.step)
        return np.moveaxis(values, 0, -1)[:, step], np.moveaxis(data, 0, -1)[:, step]


class Colours(Raster):
    """An image ``(rows, columns, bands)``. Entries without data are the mean of the window's data."""

    def __getitem__(self, index: Index) -> np.ndarray:
        values, data = self.read(*index[:2])
        if data.all():
            return values
        sums = np.where(data, values, 0).sum((0, 1), dtype=np.float64)
        means = (sums / data.sum((0, 1)).clip(min=1)).astype(values.dtype)
        return np.where(data, values, means)


class Likely(Raster):
    """Scores ``(rows, columns, labels)``. Pixels without data in all bands have equal scores."""

    def __init__(self, dataset: Any, *, logits: bool) -> None:
        super().__init__(dataset, dataset.indexes)
        if self.stored.kind != "f":
            raise FileError(f"{dataset.name} has dtype {self.stored}; expected floating-point scores.")
        self.fill: float = 0.0 if logits else 1 / max(2, len(self.bands))

    def __getitem__(self, index: Index) -> np.ndarray:
        values, data = self.read(*index[:2])
        return np.where(data.all(-1, keepdims=True), values, values.dtype.type(self.fill))


class LabelMap(Raster):
    """Labels ``(rows, columns)``, -1 where there is no data and at the value ``void``; of a mask, 0 and 1."""

    def __init__(self, dataset: Any, *, void: int | None, mask: bool) -> None:
        super().__init__(dataset)
        if len(self.bands) != 1 or (self.stored.kind not in "iu" and not mask):
            several = "1 band" if len(self.bands) == 1 else f"{len(self.bands)} bands"
            raise FileError(
                f"{dataset.name} has {several} of {self.stored}; expected a label map, one band of whole "
                "numbers, or probabilities, floating-point numbers that sum to 1."
            )
        self.void: int | None = void
        self.mask: bool = mask

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int64)

    def __getitem__(self, index: Index) -> np.ndarray:
        values, data = (one[..., 0] for one in self.read(*index[:2]))
        if self.mask:
            return np.where(data, (values != 0).astype(np.int64), -1)
        return np.where(data & (values != self.void), values.astype(np.int64), -1)


class Written:
    """A new dataset as an array, ``(rows, columns)`` if ``flat``, else ``(rows, columns, bands)``."""

    def __init__(self, dataset: Any, *, flat: bool) -> None:
        self.dataset: Any = dataset
        self.flat: bool = flat
        grid = dataset.height, dataset.width
        self.shape: tuple[int, ...] = grid if flat else (*grid, dataset.count)
        self.dtype: np.dtype = np.dtype(dataset.dtypes[0])

    __repr__ = in_one_line

    def __setitem__(self, index: Index, values: np.ndarray) -> None:
        bands = values[None] if self.flat else np.moveaxis(values, -1, 0)
        window = tuple((part.start, part.stop) for part in index[:2])
        self.dataset.write(np.ascontiguousarray(bands, self.dtype), window=window)

    def __getitem__(self, index: Index) -> np.ndarray:
        values = Raster(self.dataset, self.dataset.indexes).read(*index[:2])[0]
        return values[..., 0] if self.flat else values


def _coloured(dataset: Any) -> list[int]:
    kinds = zip(dataset.indexes, dataset.colorinterp, strict=True)
    return [band for band, kind in kinds if kind.name != "alpha"]

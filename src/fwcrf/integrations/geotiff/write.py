"""GeoTIFFs as results: written as they come, then copied, compressed, to the final file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fwcrf.apps.files.atomic import staging
from fwcrf.apps.files.errors import FileError
from fwcrf.integrations.geotiff.known import Missing
from fwcrf.integrations.geotiff.raster import Written, open_raster
from fwcrf.optional import needed

# The side of a block of a file, and of the parts in which files are copied.
_BLOCK, _PART = 256, 512
# Namespaces of tags that follow from a file, or that are written otherwise.
_OF_THE_FILE = ("COLOR_PROFILE", "DERIVED_SUBDATASETS", "IMAGE_STRUCTURE", "RPC", "SUBDATASETS")


class Layer(NamedTuple):
    """A file to write: one band of labels, or a band of probabilities for each label."""

    path: Path
    bands: int
    dtype: np.dtype
    nodata: float
    flat: bool
    names: Sequence[str | None] | None = None  # of the bands
    colours: Any = None  # a table of colours for labels

    def profile(self, grid: Any) -> dict[str, Any]:
        """Arguments of rasterio for a new file on the grid of a dataset."""
        return {
            "driver": "GTiff", "height": grid.height, "width": grid.width, "count": self.bands,
            "dtype": self.dtype.name, "tiled": True, "blockxsize": _BLOCK, "blockysize": _BLOCK,
            "interleave": "band", "BIGTIFF": "IF_SAFER",
        }  # fmt: skip


@contextmanager
def writing_layers(layers: Sequence[Layer], grid: Any, missing: Missing) -> Iterator[list[Written]]:
    """Arrays to write to. At the end they are in the files, with the place and the tags of ``grid``.

    Pixels without data are nodata. Until then, results are in uncompressed files beside: a compressed block
    that is written part by part would grow the file each time.
    """
    rasterio = needed("rasterio", "geo")
    with ExitStack() as stack, rasterio.Env(GDAL_PAM_ENABLED="NO"):
        arrays = []
        for layer in layers:
            with staging(layer.path.parent) as (_, scratch):
                pass
            stack.callback(scratch.unlink, missing_ok=True)
            dataset = stack.enter_context(closing(open_raster(scratch, "w+", **layer.profile(grid))))
            arrays.append(Written(dataset, flat=layer.flat))
        try:
            yield arrays
            for layer, array in zip(layers, arrays, strict=True):
                _copy(layer, array, grid, missing)
        except rasterio.errors.RasterioError as error:
            raise FileError(
                f"{layers[0].path.parent} cannot be written to: {error.__cause__ or error}"
            ) from error


def _copy(layer: Layer, array: Written, grid: Any, missing: Missing) -> None:
    predictor = 3 if layer.dtype.kind == "f" else 2
    profile = {**layer.profile(grid), "compress": "deflate", "predictor": predictor, "nodata": layer.nodata}
    with closing(open_raster(layer.path, "w", **profile, **_place(grid))) as file:
        for space in (None, *grid.tag_namespaces()):
            if space not in _OF_THE_FILE and not str(space).startswith("xml:"):
                file.update_tags(ns=space, **grid.tags(ns=space))
        if grid.rpcs is not None:
            file.rpcs = grid.rpcs
        if layer.names is not None:
            file.descriptions = layer.names
        if layer.colours is not None and layer.dtype == np.uint8:
            file.write_colormap(1, layer.colours)
        for top in range(0, grid.height, _PART):
            for left in range(0, grid.width, _PART):
                rows = slice(top, min(top + _PART, grid.height))
                columns = slice(left, min(left + _PART, grid.width))
                for band in file.indexes:
                    window = (rows.start, rows.stop), (columns.start, columns.stop)
                    values = array.dataset.read(band, window=window)
                    values[missing.outside((rows, columns))] = layer.nodata
                    file.write(values, band, window=window)
    with open(layer.path, "rb+") as written:
        os.fsync(written.fileno())


def _place(grid: Any) -> dict[str, Any]:
    """Coordinate system, and transform or ground control points."""
    points, system = grid.gcps
    if points:
        return {"crs": system, "gcps": points}
    return {"crs": grid.crs} if grid.transform.is_identity else {"crs": grid.crs, "transform": grid.transform}

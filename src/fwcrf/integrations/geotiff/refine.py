"""Refinement of a GeoTIFF, window by window, into a GeoTIFF."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fwcrf.apps.files.atomic import check_writable, staged
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_by_name
from fwcrf.apps.files.scores import Given
from fwcrf.inputs.arrays import extremes, locate
from fwcrf.integrations.geotiff.known import Missing
from fwcrf.integrations.geotiff.place import SAME, Place, has_place, pixel_size, place_on
from fwcrf.integrations.geotiff.raster import Colours, LabelMap, Likely, Raster, open_raster
from fwcrf.integrations.geotiff.write import Layer, writing_layers
from fwcrf.refinement import check_names, refine
from fwcrf.torch_ops.native import warn_caller

# Arguments of ``refine`` that follow from the files.
_OWN = (
    "from_logits", "from_labels", "ignore", "channel_axis", "spatial_dims", "return_probabilities", "out",
)  # fmt: skip
# Remedies of ``refine``, as patterns, and the remedies of ``refine_geotiff`` in their place.
_WORDS = (
    (r"from_logits=True", 'kind="logits"'),
    (r"set them to -1: np\.where\(labels == (\d+), -1, labels\.astype\(int\)\)", r"pass void=\1"),
    (r"pass mask > 0", 'pass kind="mask"'),
)


def refine_geotiff(
    image: Path | str,
    scores: Any,
    output: Path | str,
    *,
    probabilities: Path | str | None = None,
    bands: Sequence[int] | None = None,
    kind: Given | None = None,
    confidence: float | bool = True,
    void: int | None = None,
    units: Literal["pixels", "crs"] = "pixels",
    resize: Literal["scores", "image"] | None = None,
    **arguments: Any,
) -> None:
    """Write the refined labels of a raster file as a GeoTIFF with its coordinate system, transform and tags.

    Files are read window by window, with the overlap of ``fwcrf.refine``, and may have any size: ``memory=``
    bounds the work. Pixels without data in a band of the image or of the scores take no part. They are
    nodata in the output if all bands of the image, or the scores, have no data; else they keep their scores.

    Args:
        image: a raster file with any number of bands, of whole or floating-point numbers. Colour bandwidths
            are in its units. An alpha band is a mask.
        scores: a raster file with a band for each label, or with a label map, whose nodata and colours the
            output gets; or an array, as in ``fwcrf.refine``.
        output: the file of labels, which is written whole or not at all.
        probabilities: a file for the probabilities, a band of floating-point numbers for each label.
        bands: the bands of the image to use, from 1 on; by default all of them.
        kind: of the scores, ``"probabilities"``, ``"logits"``, ``"labels"`` or ``"mask"``. By default whole
            numbers are labels, and floating-point numbers probabilities.
        confidence: of a label map, ``from_labels`` of ``fwcrf.refine``.
        void: the value of pixels of a label map that have no label yet.
        units: of position bandwidths, ``"pixels"`` or, as in metres, ``"crs"``: of the coordinate system.
        resize: as in ``fwcrf.refine``. The coordinates of both files say how their pixels lie on each other.
        arguments: more arguments of ``fwcrf.refine``.
    """
    check_names(arguments, "refine_geotiff", without=_OWN)
    opened: list[Any] = [one for one in (image, scores) if hasattr(one, "read_masks")]
    if opened:
        raise TypeError(f"{opened[0].name} is an open dataset; expected the name of its file.")
    paths = [Path(path) for path in (output, probabilities) if path is not None]
    for path in paths:
        check_writable(path)
        if format_by_name(path) != "tiff":
            raise FileError(f"{path}: a GeoTIFF is written as .tif or .tiff.")
    inputs = [Path(one) for one in (image, scores) if isinstance(one, Path | str)]
    if len({path.resolve() for path in (*paths, *inputs)}) < len(paths) + len(inputs):
        raise FileError(f"{', '.join(map(str, (*inputs, *paths)))}: expected different files.")
    try:
        with staged(paths) as files:
            refine_into(
                files, image, scores,
                bands=bands, kind=kind, confidence=confidence, void=void, units=units, resize=resize,
                **arguments,
            )  # fmt: skip
    except FileError:
        raise
    except ValueError as error:
        raise ValueError(_in_kinds(str(error))) from error


def _in_kinds(message: str) -> str:
    """A message of ``refine`` with arguments of ``refine_geotiff``.

    >>> _in_kinds("If these are logits, pass from_logits=True.")
    'If these are logits, pass kind="logits".'
    """
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message


def refine_into(
    files: Sequence[Path],
    image: Path | str,
    scores: Any,
    *,
    bands: Sequence[int] | None = None,
    kind: Given | None = None,
    confidence: float | bool = True,
    void: int | None = None,
    units: Literal["pixels", "crs"] = "pixels",
    resize: Literal["scores", "image"] | None = None,
    **arguments: Any,
) -> None:
    """Write labels, and with a second file probabilities, as ``refine_geotiff`` does, but in place."""
    if units not in ("pixels", "crs"):
        raise ValueError(f"units={units!r} is not known; expected 'pixels' or 'crs'.")
    with ExitStack() as stack:
        picture = stack.enter_context(closing(open_raster(image)))
        given = scores
        if isinstance(scores, Path | str):
            given = _scores(stack.enter_context(closing(open_raster(scores))), kind, void)
        place, options = _placed(picture, given, resize, arguments)
        on_scores = resize == "image"
        colours = Colours(picture, bands)
        same = isinstance(given, Raster) or tuple(given.shape[:2]) == colours.grid
        missing = Missing(colours, given if same else None, place, on_scores=on_scores)
        grid = given.dataset if on_scores else picture
        if units == "crs":
            options["spacing"] = pixel_size(grid)
        labels = isinstance(given, LabelMap) or given.dtype.kind in "bui"
        layers = _layers(files, given, labels, options.get("num_labels"))
        if labels:
            options["from_labels"] = confidence
        with writing_layers(layers, grid, missing) as arrays:
            refine(
                colours,
                given,
                ignore=missing,
                from_logits=kind == "logits",
                spatial_dims=2,
                out=arrays[0] if len(arrays) == 1 else tuple(arrays),
                return_probabilities=len(arrays) == 2,
                **options,
            )


def _scores(dataset: Any, kind: Given | None, void: int | None) -> Raster:
    whole = np.dtype(dataset.dtypes[0]).kind in "iu"
    if kind in ("labels", "mask") or (kind is None and whole):
        return LabelMap(dataset, void=void, mask=kind == "mask")
    return Likely(dataset, logits=kind == "logits")


def _placed(
    picture: Any, scores: Any, resize: str | None, arguments: dict[str, Any]
) -> tuple[Place, dict[str, Any]]:
    """The place of the scores on the image, and the arguments of ``refine``, with resize and align."""
    options = arguments if resize is None else {**arguments, "resize": resize}
    located = isinstance(scores, Raster) and has_place(scores.dataset)
    if not located or not has_place(picture):
        if resize == "image":
            raise FileError(
                f"resize='image' without coordinates of {picture.name} and its scores; expected both, or "
                "resize='scores'."
            )
        if isinstance(scores, Raster) and has_place(picture):
            warn_caller(
                f"{scores.dataset.name} has no coordinates, and is taken to lie on {picture.name} pixel by "
                "pixel."
            )
        return SAME, options
    place = place_on(picture, scores.dataset)
    if place.same:
        return place, {name: value for name, value in options.items() if name not in ("resize", "align")}
    if resize is None:
        raise FileError(
            f"{scores.dataset.name} has {_size(scores.dataset)} samples, of which sample i lies at pixel "
            f"{place.offset} + {place.stride} * i of {picture.name}, which has {_size(picture)}; expected "
            "the same grid, or resize='scores' or 'image' (--resize)."
        )
    return place, {**options, "align": (place.stride, place.offset)}


def _size(dataset: Any) -> str:
    return f"{dataset.height} x {dataset.width}"


def _layers(files: Sequence[Path], scores: Any, labels: bool, num_labels: int | None) -> list[Layer]:
    """The files to write, with the smallest dtype that holds all labels and one more number for nodata."""
    source = scores.dataset if isinstance(scores, Raster) else None
    if labels:
        most = num_labels or extremes(locate(scores, "the label map", 2, channels=False))[1] + 1
        count = max(2, most)
    else:
        count = max(2, scores.shape[2] if len(scores.shape) == 3 else 1)
    dtype = np.dtype(np.uint8 if count < 256 else np.uint16 if count < 1 << 16 else np.int32)
    nodata, colours = np.iinfo(dtype).max, None
    if labels and source is not None:
        if source.nodata is not None and source.nodata == np.array(source.nodata).astype(dtype):
            nodata = int(source.nodata)
        colours = _colours(source)
    found = [Layer(files[0], 1, dtype, nodata, flat=True, colours=colours)]
    if len(files) == 2:
        single = not labels and (len(scores.shape) == 2 or scores.shape[2] == 1)
        flat = not labels and len(scores.shape) == 2
        kind = np.dtype(np.float64 if not labels and scores.dtype == np.float64 else np.float32)
        names = None if labels or source is None else source.descriptions
        found.append(Layer(files[1], 1 if single else count, kind, np.nan, flat=flat, names=names))
    return found


def _colours(dataset: Any) -> Any:
    try:
        return dataset.colormap(1)
    except ValueError:
        return None

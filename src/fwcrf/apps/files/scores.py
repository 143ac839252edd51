"""Scores of a network from files: probabilities, logits, or a label map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from fwcrf.apps.files.arrays import read_npy, read_npz
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_of
from fwcrf.apps.files.labels import read_labels
from fwcrf.apps.files.limits import DEFAULT_LIMIT
from fwcrf.apps.files.nifti import read_nifti
from fwcrf.apps.files.pictures import is_float_tiff, read_colours
from fwcrf.torch_ops.printed import in_one_line

if TYPE_CHECKING:
    from fwcrf.inputs.resample import Align

Kind = Literal["probabilities", "logits", "labels"]
Given = Literal["probabilities", "logits", "labels", "mask"]

# Common names of arrays in .npz files, and the kind of scores they mean.
_NAMES: dict[str, Kind] = {
    "probabilities": "probabilities",
    "prob": "probabilities",
    "probs": "probabilities",
    "softmax": "probabilities",
    "scores": "probabilities",
    "logits": "logits",
    "labels": "labels",
}


@dataclass(frozen=True)
class Scores:
    """Scores ``(*grid, L)``, or ``(*grid)`` for labels and for scores of label 1 against label 0."""

    values: np.ndarray
    kind: Kind
    affine: np.ndarray | None = None  # of a NIfTI file

    __repr__ = in_one_line


def read_scores(
    path: Path | str,
    *,
    kind: Given | None = None,
    key: str | None = None,
    label_axis: int = -1,
    limit: int = DEFAULT_LIMIT,
) -> Scores:
    """Scores per label (``.npy``, ``.npz``, TIFF of floats, NIfTI with a fourth axis) or a label map.

    A label map is a PNG, a TIFF or an array of whole numbers. Without ``kind``, whole numbers are "labels".
    Floating-point numbers are "probabilities", unless the array of a ``.npz`` file is named "logits" or
    "labels". A "mask" is label 1 wherever it is not 0. ``label_axis`` is the axis of the labels in the file.
    """
    path = Path(path)
    form = format_of(path)
    named: Kind = "probabilities"
    affine = None
    if form == "tiff" and kind not in ("labels", "mask") and is_float_tiff(path):
        values = read_colours(path, form, limit)
    elif form in ("png", "jpeg", "tiff"):
        values = read_labels(path, limit=limit)
        if kind in ("probabilities", "logits"):
            raise FileError(f"{path} is a label map; expected {kind} in a .npy, .npz, TIFF or NIfTI file.")
    elif form == "npz":
        name, values = read_npz(path, key, prefer=tuple(_NAMES), limit=limit)
        named = _NAMES.get(name, named)
    elif form == "npy":
        values = read_npy(path, limit=limit)
    else:
        values, space = read_nifti(path, limit)
        affine = space.affine
    kind = kind or ("labels" if values.dtype.kind in "bui" else named)
    if kind == "mask":
        return Scores((values != 0).astype(np.uint8), "labels", affine)
    if kind == "labels":
        _check_whole(path, values)
    else:
        _check_axis(path, values, label_axis)
        values = np.moveaxis(values, label_axis, -1)
    return Scores(values, kind, affine)


def align_of(text: str) -> Align:
    """Alignment from text: a word, or a stride and an offset, each a number or one per axis.

    >>> align_of("corners"), align_of("8,0"), align_of("1x8x8,0")
    ('corners', (8.0, 0.0), ((1.0, 8.0, 8.0), 0.0))
    """
    if text == "corners" or text == "centers":
        return text
    try:
        stride, offset = (tuple(map(float, part.split("x"))) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{text[:40]!r}; expected corners, centers, or STRIDE,OFFSET in pixels of the image, such as 8,0 "
            "or, with one number per axis, 1x8x8,0."
        ) from None
    return stride[0] if len(stride) == 1 else stride, offset[0] if len(offset) == 1 else offset


def _check_whole(path: Path, values: np.ndarray) -> None:
    if values.dtype.kind == "f" and not (values == np.round(values)).all():
        raise FileError(
            f"{path} has fractions, up to {values.max():.3g}; expected labels, whole numbers. If they are "
            "probabilities, use kind='probabilities', or --from probabilities."
        )


def _check_axis(path: Path, values: np.ndarray, axis: int) -> None:
    if not -values.ndim <= axis < values.ndim:
        raise FileError(
            f"{path} has shape {values.shape}, with label_axis={axis}; expected an axis "
            f"from {-values.ndim} to {values.ndim - 1}."
        )

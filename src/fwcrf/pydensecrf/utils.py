"""Unary energies and features, bit-equal to pydensecrf's ``utils``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from numbers import Number

import numpy as np

from fwcrf.runtime import LARGEST

_log = logging.getLogger(__name__)


class OneLabelError(ZeroDivisionError, ValueError):
    """Both pydensecrf's exception for one label (ZeroDivisionError) and this library's (ValueError)."""


def unary_from_labels(
    labels: np.ndarray, n_labels: int, gt_prob: float, zero_unsure: bool = True
) -> np.ndarray:
    """Energies ``(n_labels, labels.size)`` of a labelling that is correct with probability ``gt_prob``.

    A pixel's own label costs -log(gt_prob), every other label -log((1 - gt_prob) / (n_labels - 1)). With
    ``zero_unsure`` the labels count from 1, and 0 means unknown: all labels cost log(n_labels) there.

    >>> unary_from_labels(np.array([0, 1, 2]), 2, gt_prob=0.75)
    array([[0.6931472, 0.2876821, 1.3862944],
           [0.6931472, 1.3862944, 0.2876821]], dtype=float32)
    """
    assert 0 < gt_prob < 1, f"gt_prob={gt_prob!r} must be in (0,1)"
    if n_labels < 2:
        raise OneLabelError(f"n_labels={n_labels!r}; expected at least 2.")
    labels = np.asarray(labels).flatten()  # of a tensor, too
    if labels.dtype.kind == "u":
        # Unsigned 0 - 1 would wrap around; int 0 - 1 is the last row. Numbers from 2^63 on are out of range.
        labels = np.minimum(labels, np.uint64(LARGEST)).astype(np.int64)
    energies = np.full((n_labels, labels.size), -np.log((1 - gt_prob) / (n_labels - 1)), np.float32)
    energies[labels - 1 if zero_unsure else labels, np.arange(labels.size)] = -np.log(gt_prob)
    if zero_unsure:
        energies[:, labels == 0] = -np.log(1 / n_labels)
    return energies


def compute_unary(labels: np.ndarray, M: int, GT_PROB: float = 0.5) -> np.ndarray:
    """The former name of ``unary_from_labels``."""
    _log.warning("compute_unary is deprecated, use unary_from_labels instead.")
    return unary_from_labels(labels, M, GT_PROB)


def unary_from_softmax(sm: np.ndarray, scale: float | None = None, clip: float | None = 1e-5) -> np.ndarray:
    """Energies ``(labels, n)``: -log of probabilities ``(labels, ...)``.

    Probabilities are clipped to at least ``clip``. ``scale`` first mixes them with the uniform
    distribution: scale p + (1 - scale) / labels.

    >>> unary_from_softmax(np.array([[0.75, 0.0], [0.25, 1.0]]))
    array([[ 0.2876821, 11.512925 ],
           [ 1.3862944, -0.       ]], dtype=float32)
    """
    sm = np.asarray(sm)
    num_labels = sm.shape[0]
    if scale is not None:
        assert 0 < scale <= 1, f"scale={scale!r} needs to be in (0,1]"
        sm = scale * sm + (1 - scale) * np.full(1, 1 / num_labels)  # an array, for a sum in double
    if clip is not None:
        sm = np.clip(sm, clip, 1.0)
    return np.ascontiguousarray((-np.log(sm)).reshape(num_labels, -1).astype(np.float32))


def softmax_to_unary(sm: np.ndarray, GT_PROB: float | None = 1) -> np.ndarray:
    """The former name of ``unary_from_softmax``, without its clipping: a probability of 0 forbids a label."""
    _log.warning("softmax_to_unary is deprecated, use unary_from_softmax instead.")
    return unary_from_softmax(sm, None if GT_PROB == 1 else GT_PROB, clip=None)


def create_pairwise_gaussian(sdims: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    """Positions of a grid divided by ``sdims``, ``(axes, n)``; axes in the order of the array.

    >>> create_pairwise_gaussian((2, 1), (2, 2))
    array([[0. , 0. , 0.5, 0.5],
           [0. , 1. , 0. , 1. ]], dtype=float32)
    """
    if len(sdims) < len(shape):
        raise ValueError(
            f"sdims has {len(sdims)} entries for a grid of {len(shape)} axes, {tuple(shape)}; expected one "
            "per axis. If one axis holds channels, pass it as chdim=."
        )
    return _positions(sdims, shape)


def _positions(sdims: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    """Positions of a grid, ``(axes, n)``, divided by ``sdims``; axes beyond its entries are not scaled."""
    positions = np.indices(tuple(shape), dtype=np.float32)
    for axis, s in enumerate(sdims):
        positions[axis] /= s
    return positions.reshape(len(positions), -1)


def create_pairwise_bilateral(
    sdims: Sequence[float], schan: float | Sequence[float], img: np.ndarray, chdim: int = -1
) -> np.ndarray:
    """Positions divided by ``sdims``, then values divided by ``schan``: ``(axes + channels, n)``.

    Features for ``addPairwiseEnergy``. ``chdim`` is the axis of the channels, or -1 for a grey image or
    volume without such an axis. Axes beyond the entries of ``sdims`` are not scaled, nor are channels beyond
    the entries of ``schan``.
    """
    values = np.asarray(img).astype(np.float32)  # a copy
    values = values[np.newaxis] if chdim == -1 else np.moveaxis(values, chdim, 0)
    if isinstance(schan, Number):
        schan = [schan] * len(values)  # type: ignore[list-item]
    for channel, s in enumerate(schan):  # type: ignore[arg-type]
        values[channel] /= s
    positions = _positions(sdims, values.shape[1:])
    return np.concatenate([positions, values.reshape(len(values), -1)])


def _create_pairwise_gaussian_2d(sx: float, sy: float, shape: Sequence[int]) -> np.ndarray:
    return create_pairwise_gaussian((sx, sy), shape)


def _create_pairwise_bilateral_2d(
    sx: float, sy: float, sr: float, sg: float, sb: float, img: np.ndarray
) -> np.ndarray:
    return create_pairwise_bilateral((sx, sy), (sr, sg, sb), img, chdim=2)

"""Better labels for points that lie on no grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility
from fwcrf.energy import unary_from_logits
from fwcrf.features import bandwidths, reciprocals
from fwcrf.inference import Inference, restricted, without
from fwcrf.inputs.arrays import Stored, answer, kind, located
from fwcrf.inputs.checks import check_units
from fwcrf.inputs.masks import constrained, read_mask, read_scribbles
from fwcrf.inputs.scores import Scores, read_scores
from fwcrf.kernels import Bilateral, Gaussian, Operator, Spatial
from fwcrf.kernels.gaussians import Kernel, gaussian
from fwcrf.rounding import Rounding, nearest
from fwcrf.solvers import Solver
from fwcrf.torch_ops.native import check_finite

_SAMPLE = 256
_CHUNK = 1 << 16


def refine_points(
    positions: Any,
    features: Any,
    probabilities: Any,
    *,
    solver: str | Solver = "l2fw",
    num_steps: int = 10,
    kernels: Sequence[Kernel] | None = None,
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] = 1.0,
    from_logits: bool = False,
    from_labels: bool | float | None = None,
    num_labels: int | None = None,
    rounding: str | Rounding = "nearest",
    keep: Any = None,
    ignore: Any = None,
    scribbles: Any = None,
    return_probabilities: bool = False,
    self_edges: bool = False,
) -> Any:
    """The labels of a dense CRF over points: a point cloud, cells, superpixels.

    numpy and torch alike: positions ``(*batch, n, D)``, features ``(*batch, n, C)`` or None, probabilities
    ``(*batch, n, L)``, at most one batch axis. The answer has the type and device of the probabilities:
    labels ``(*batch, n)`` of int64, and with ``return_probabilities`` also the probabilities behind them.

    Kernels mean what they do for images: ``Spatial(xy)`` is a Gaussian over positions, ``Bilateral(xy,
    color)`` over positions and features, ``Gaussian`` over features as they are (over positions, if there are
    none). Bandwidths are in the units of what is passed. By default they are ``Spatial(3 s)`` and
    ``Bilateral(80 s, 13)``, where s is the median distance between neighbours, as a pixel is in an image. All
    other arguments are those of ``fwcrf.refine``, with points for pixels.

    >>> import numpy as np
    >>> positions = np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])
    >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1], [0.1, 0.9], [0.2, 0.8]])
    >>> refine_points(positions, None, probabilities, kernels=[Spatial(xy=2, weight=2, method="exact")])
    array([0, 0, 0, 1, 1])
    """
    inference = Inference(solver, num_steps, rounding, compatibility, self_edges)
    scores = read_scores(
        probabilities, 1, from_logits=from_logits, from_labels=from_labels, num_labels=num_labels, alike=True
    )
    stored = scores.stored
    everything, all_images = stored.whole, slice(None)
    masks = (
        read_mask(keep, "keep", scores, stored.grid),
        read_mask(ignore, "ignore", scores, stored.grid),
        read_scribbles(scribbles, scores, stored.grid),
    )
    kept, ignored, certain = (
        None if one is None else one.read(dtype, all_images, everything, scores.device)
        for one, dtype in zip(masks, (torch.bool, torch.bool, torch.int64), strict=True)
    )
    place = _read(_located(positions, "positions", stored), scores, ignored)
    tone = None
    if features is not None:
        rows = _located(features, "features", stored)
        tone = _read(rows, scores, ignored)
    if kernels is None:
        s = _spacing(place)
        kernels = (Spatial(3 * s),) if tone is None else (Spatial(3 * s), Bilateral(80 * s))
    if tone is not None:
        for kernel in kernels:
            if isinstance(kernel, Bilateral):
                color = bandwidths(kernel.color, tone.shape[-1], "color")
                check_units(lambda: tone, kind(rows.array), color, "features")
    logits = scores.logits(all_images, everything, ignore=ignored)
    with torch.no_grad():
        operators = [_operator(kernel, place, tone, ignored) for kernel in kernels]
        weights = [kernel.weight for kernel in kernels]
        unary = unary_from_logits(constrained(logits, kept, certain))
        found, x = inference(operators, weights, unary, ignored)

    int64: Any = torch.int64 if stored.is_torch else np.int64
    labels = answer(None, "labels", stored, stored.grid, None, 0, int64)
    labels.write(all_images, everything, nearest(x) if found is None else found)
    if not return_probabilities:
        return labels.array
    likely = answer(None, "probabilities", stored, stored.grid, scores.given_channels, -1, scores.given_dtype)
    likely.write(all_images, everything, scores.given(x))
    return labels.array, likely.array


def _located(value: Any, name: str, scores: Stored) -> Stored:
    found = located(value, name, 1, alike=True)
    shape = tuple(found.array.shape)
    if kind(found.array) not in "if":
        raise TypeError(f"{name} has dtype {found.array.dtype}; expected whole or floating-point numbers.")
    if found.channels is None or found.grid != scores.grid or found.batch not in (None, scores.batch):
        raise ValueError(
            f"{name} has shape {shape} and {scores.name} {tuple(scores.array.shape)}; expected one row per "
            f"point, ({scores.grid[0]}, numbers), with or without the batch before it."
        )
    return found


def _read(stored: Stored, scores: Scores, ignore: Tensor | None) -> Tensor:
    values = stored.read(scores.dtype, slice(None), stored.whole, scores.device).contiguous()
    if ignore is not None:
        values = without(values, ignore)
    check_finite(values, stored.name)
    return values


def _spacing(positions: Tensor) -> float:
    """The median distance of points to their nearest neighbours, on a sample."""
    points = positions.reshape(-1, *positions.shape[-2:])[0]
    every = max(1, len(points) // _SAMPLE)
    some = points[::every].double()
    nearest = torch.full((len(some),), torch.inf, dtype=torch.float64, device=points.device)
    for start in range(0, len(points), _CHUNK):
        distance = torch.cdist(some, points[start : start + _CHUNK].double())
        # A point is at distance 0 from itself and from its doubles.
        distance = distance.masked_fill(distance == 0, torch.inf)
        nearest = torch.minimum(nearest, distance.amin(-1))
    found = nearest[torch.isfinite(nearest)]
    return float(found.median()) if len(found) else 1.0


def _operator(kernel: Kernel, place: Tensor, tone: Tensor | None, ignore: Tensor | None) -> Operator:
    """The operator of a kernel over points."""
    if isinstance(kernel, Gaussian):
        features = place if tone is None else tone
        if ignore is None:
            return kernel.operator(features)
        return restricted(
            replace(kernel, normalization="none").operator(features), ignore, kernel.normalization
        )
    if not isinstance(kernel, Bilateral | Spatial):
        raise TypeError(f"kernel {kernel!r} is for images; expected Spatial, Bilateral or Gaussian.")
    features = place * reciprocals(kernel.xy, "xy", place)
    if isinstance(kernel, Bilateral):
        if tone is None:
            raise ValueError("a Bilateral kernel without features; pass features, or Spatial kernels only.")
        batch = torch.broadcast_shapes(features.shape[:-1], tone.shape[:-1])
        parts = (features, tone * reciprocals(kernel.color, "color", tone))
        features = torch.cat([part.expand(*batch, -1) for part in parts], -1)
    method = "lattice" if kernel.method == "separable" else kernel.method
    if ignore is None:
        return gaussian(features, method, kernel.normalization)
    return restricted(gaussian(features, method, "none"), ignore, kernel.normalization)

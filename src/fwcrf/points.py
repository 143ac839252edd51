"""Refinement of labels of points that lie on no grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility
from fwcrf.energy import unary_from_logits
from fwcrf.inputs.arrays import answer, kind, locate
from fwcrf.inputs.masks import read_masks
from fwcrf.inputs.scores import Scores, read_scores
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.kernel import Domain, Kernel, read_kernels
from fwcrf.refinement import Inference, without
from fwcrf.rounding import Rounding, nearest
from fwcrf.segments import read_segments
from fwcrf.solvers import Solver, as_solver
from fwcrf.torch_ops.native import check_finite, with_memory_errors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fwcrf.arguments import Array, PointArguments

_SAMPLE = 256
_CHUNK = 1 << 16


@overload
def refine_points(
    positions: Any,
    features: Any,
    probabilities: Array,
    *,
    return_probabilities: Literal[False] = False,
    **more: Unpack[PointArguments],
) -> Array: ...
@overload
def refine_points(
    positions: Any,
    features: Any,
    probabilities: Array,
    *,
    return_probabilities: Literal[True],
    **more: Unpack[PointArguments],
) -> tuple[Array, Array]: ...
@overload
def refine_points(
    positions: Any,
    features: Any,
    probabilities: Any,
    *,
    return_probabilities: bool = False,
    **more: Unpack[PointArguments],
) -> Any: ...
@with_memory_errors
def refine_points(
    positions: Any,
    features: Any,
    probabilities: Any,
    *,
    solver: str | Solver = "l2fw",
    num_steps: int = 10,
    tol: float | None = None,
    kernels: Sequence[Kernel] | None = None,
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] = 1.0,
    from_logits: bool = False,
    from_labels: bool | float | None = None,
    num_labels: int | None = None,
    rounding: str | Rounding = "nearest",
    keep: Any = None,
    ignore: Any = None,
    scribbles: Any = None,
    segments: Any = None,
    return_probabilities: bool = False,
    self_edges: bool = False,
) -> Any:
    """The labels of a dense CRF over points: a point cloud, cells, superpixels.

    numpy and torch arrays have the same layout: positions ``(*batch, n, D)``, features ``(*batch, n, C)`` or
    None, probabilities ``(*batch, n, L)``, at most one batch axis. The result has the type and device of the
    probabilities: labels ``(*batch, n)`` of int64, and with ``return_probabilities`` also probabilities.

    Kernels are as for images: ``Spatial(xy)`` is a Gaussian over positions, ``Bilateral(xy, color)`` over
    positions and features, ``Gaussian`` over features as they are (over positions, if there are no features).
    Bandwidths are in the units of positions and features. The defaults are ``Spatial(3 s)`` and, if there are
    features, ``Bilateral(80 s, 13)``, where s is the median distance between neighbours: 1 pixel in an image.
    All other arguments are as in ``fwcrf.refine``, with points for pixels.

    >>> import numpy as np
    >>> positions = np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])
    >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1], [0.1, 0.9], [0.2, 0.8]])
    >>> refine_points(positions, None, probabilities, kernels=[Spatial(xy=2, weight=2, method="exact")])
    array([0, 0, 0, 1, 1])
    """
    inference = Inference(as_solver(solver), num_steps, rounding, compatibility, self_edges, tol)
    scores = read_scores(
        probabilities,
        1,
        from_logits=from_logits,
        from_labels=from_labels,
        num_labels=num_labels,
        alike=True,
        ignore=ignore,
    )
    like = scores.located
    everything, all_images = like.whole, slice(None)
    terms = None if segments is None else read_segments(segments, scores, like.grid, rounding)
    known = read_masks(keep, ignore, scribbles, scores, like.grid).read(all_images, everything, scores.device)
    place, _ = _read(positions, "positions", scores, known.ignore)
    tone, tone_kind = (None, "f") if features is None else _read(features, "features", scores, known.ignore)
    if kernels is None:
        s = _spacing(place)
        kernels = (Spatial(3 * s),) if tone is None else (Spatial(3 * s), Bilateral(80 * s))
    kernels = read_kernels(kernels)
    if tone is not None:
        shape, axes, channels = tone.shape, place.shape[-1], tone.shape[-1]
        for kernel in kernels:
            kernel.check_values(lambda: tone, tone_kind, "features", shape, axes, channels)
    logits = scores.logits(all_images, everything, ignore=known.ignore)
    with torch.no_grad():
        domain = Domain(tone, positions=place, ignore=known.ignore)
        here = None
        if terms is not None:
            here = terms.read(all_images, everything, known.ignore, scores.device)
        found, x = inference(kernels, domain, unary_from_logits(known.constrain(logits)), segments=here)

    int64: Any = torch.int64 if like.is_torch else np.int64
    labels = answer(None, "labels", like, like.grid, None, 0, int64)
    labels.write(all_images, everything, nearest(x) if found is None else found)
    if not return_probabilities:
        return labels.array
    likely = answer(None, "probabilities", like, like.grid, scores.given_channels, -1, scores.given_dtype)
    likely.write(all_images, everything, scores.given(x))
    return labels.array, likely.array


def _read(value: Any, name: str, scores: Scores, ignore: Tensor | None) -> tuple[Tensor, str]:
    """The rows of an array, ``(*batch, n, numbers)``, and the kind of its numbers: "i" or "f"."""
    found, like = locate(value, name, 1, alike=True), scores.located
    if kind(found.array) not in "if":
        raise TypeError(f"{name} has dtype {found.array.dtype}; expected whole or floating-point numbers.")
    if found.channels is None or found.grid != like.grid or found.batch not in (None, like.batch):
        raise ValueError(
            f"{name} has shape {tuple(found.array.shape)} and {like.name} {tuple(like.array.shape)}; "
            f"expected one row per point, ({like.grid[0]}, numbers), with or without the batch before it."
        )
    values = found.read(scores.dtype, slice(None), found.whole, scores.device).contiguous()
    if ignore is not None:
        values = without(values, ignore)
    check_finite(values, name)
    return values, kind(found.array)


def _spacing(positions: Tensor) -> float:
    """The median distance of a sample of points to their nearest neighbours; 1 if all points coincide."""
    points = positions.reshape(-1, *positions.shape[-2:])[0]
    every = max(1, len(points) // _SAMPLE)
    sample = points[::every].double()
    closest = torch.full((len(sample),), torch.inf, dtype=torch.float64, device=points.device)
    for start in range(0, len(points), _CHUNK):
        distance = torch.cdist(sample, points[start : start + _CHUNK].double())
        # A point is at distance 0 from itself and from its duplicates.
        distance = distance.masked_fill(distance == 0, torch.inf)
        closest = torch.minimum(closest, distance.amin(-1))
    found = closest[torch.isfinite(closest)]
    return float(found.median()) if len(found) else 1.0

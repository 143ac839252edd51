"""Better labels from an image and a network's scores, in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fwcrf import solvers
from fwcrf.compatibility import Compatibility
from fwcrf.energy import unary_from_logits
from fwcrf.features import bandwidths
from fwcrf.inference import Inference, alone, restricted, without
from fwcrf.inputs.arrays import (
    Stored,
    Window,
    answer,
    as_array,
    check_batch,
    check_grid,
    kind,
    largest,
    located,
)
from fwcrf.inputs.checks import check_image
from fwcrf.inputs.masks import constrained, read_mask, read_scribbles
from fwcrf.inputs.resample import needed, resample
from fwcrf.inputs.scores import Scores, read_scores
from fwcrf.inputs.tiles import Tile, plan, sizes
from fwcrf.kernels import Bilateral, Gaussian, Operator, Spatial
from fwcrf.kernels.gaussians import Kernel
from fwcrf.rounding import Rounding, nearest
from fwcrf.solvers import Solver
from fwcrf.solvers.plan import arrays_per_label
from fwcrf.torch_ops.native import check_finite

# Within this an image is solved as a whole, unless said otherwise.
MEMORY = 4 << 30
# How far windows reach beyond their tiles, in standard deviations of the widest kernel.
OVERLAP = 3.0


def refine(
    image: Any,
    probabilities: Any,
    *,
    solver: str | Solver = "l2fw",
    num_steps: int = 10,
    kernels: Sequence[Kernel] | None = None,
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] = 1.0,
    channel_axis: int | None = -1,
    from_logits: bool = False,
    from_labels: bool | float | None = None,
    num_labels: int | None = None,
    spatial_dims: int | None = None,
    spacing: float | Sequence[float] | None = None,
    rounding: str | Rounding = "nearest",
    keep: Any = None,
    ignore: Any = None,
    scribbles: Any = None,
    resize: Literal["scores", "image"] | None = None,
    tile: int | Sequence[int] | Literal[False] | None = None,
    overlap: int | Sequence[int] | None = None,
    memory: int | None = None,
    return_probabilities: bool = False,
    self_edges: bool = False,
    out: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """The labels of a dense CRF, given an image and a network's scores for it.

    ``image`` and ``probabilities`` may be numpy arrays, ``(*grid, channels)`` with channels and labels at
    ``channel_axis``, or torch tensors, ``(channels, *grid)``, or anything with a shape, a dtype and slices,
    laid out as in numpy. A batch comes first. An image with no more axes than the grid is grey. The answer
    has the type, layout and device of ``probabilities``: labels ``(*batch, *grid)`` of int64, and with
    ``return_probabilities`` also the probabilities behind them.

    Args:
        image: whole or floating-point numbers, any number of channels.
        probabilities: summing to 1 over the labels. With ``from_logits``, logits. With ``from_labels``, a map
            of labels, -1 where there is none. One probability (one logit) per pixel is that of label 1
            against 0.
        solver: a name of ``fwcrf.solvers.names()``, or a solver.
        num_steps: of the solver; each applies every kernel once.
        kernels: by default ``Spatial(3)`` and ``Bilateral(80, 13)``: pixels, and grey levels of 0 to 255. A
            ``Gaussian`` takes the image's channels as its features.
        compatibility: a number (Potts), one per label (diagonal) or a matrix, for all kernels; or a
            ``Compatibility`` for each.
        channel_axis: of numpy arrays; ``None`` for a grey image without that axis.
        from_labels: the confidence in a map of labels, between 0.5 and 1: the probability of the given label
            against any one of the others. ``True`` is 0.7.
        num_labels: of a map of labels; by default one more than the largest.
        spatial_dims: the number of grid axes, 3 for a volume or a video. By default as many as ``spacing`` or
            a kernel's bandwidths have entries; else 3 with five axes (batch, channels and grid), and 2 with
            fewer.
        spacing: the size of a pixel along each axis, in the units of the position bandwidths.
        rounding: ``"nearest"`` or ``"bcd"``.
        keep: a mask of pixels whose label stays what their scores say; they tell it to the others.
        ignore: a mask of pixels that take no part: their scores stay, whatever they are, NaN included, and so
            for the image; nothing is said to the others.
        scribbles: a map of labels that are certain, -1 elsewhere.
        resize: if sizes differ, bring the ``"scores"`` to the size of the image, or the ``"image"`` to that
            of the scores.
        tile: the size of tiles, in pixels, for all axes or for each; ``False`` for none. By default there are
            none as long as ``memory`` allows it, and then tiles as large as it allows.
        overlap: how far beyond its tile a window reaches, in pixels. By default three standard deviations of
            the widest kernel.
        memory: bytes that the work may take beside image, scores and answer; about 4 GiB by default.
        self_edges: keep the diagonals of the kernels, as pydensecrf does.
        out: an array of integers to write the labels to, a memory map for example; with
            ``return_probabilities`` a pair of arrays.
        progress: called with the number of tiles done and of all.

    >>> import numpy as np
    >>> image = np.full((20, 30, 3), 200, dtype=np.uint8)
    >>> image[:, :15] = 50
    >>> probabilities = np.full((20, 30, 2), 0.5)
    >>> probabilities[5:9, 5:9] = 0.2, 0.8
    >>> probabilities[5:9, 20:24] = 0.8, 0.2
    >>> refine(image, probabilities)[0, [0, 14, 15, 29]]
    array([1, 1, 0, 0])
    """
    kernels = (Spatial(), Bilateral()) if kernels is None else tuple(kernels)
    dims = _spatial_dims(spatial_dims, probabilities, from_labels, spacing, kernels)
    scores = read_scores(
        probabilities,
        dims,
        channel_axis,
        from_logits=from_logits,
        from_labels=from_labels,
        num_labels=num_labels,
    )
    picture = located(image, "image", dims, channel_axis)
    grid = _common_grid(picture, scores.stored, resize)
    problem = Problem(
        picture,
        scores,
        grid,
        tuple(_in_pixels(kernel, spacing, dims) for kernel in kernels),
        Inference(solver, num_steps, rounding, compatibility, self_edges),
        read_mask(keep, "keep", scores, grid),
        read_mask(ignore, "ignore", scores, grid),
        read_scribbles(scribbles, scores, grid),
    )
    check_image(picture, problem.kernels)
    parts = problem.parts(tile, overlap, memory)
    answers = None if out is None else _answers(out, scores, grid, channel_axis, return_probabilities)
    labels = likely = None
    for number, (images, part) in enumerate(parts, 1):
        with torch.no_grad():
            found, x = problem.solve(images, part)
        # New arrays are made now, in the memory that the work has left.
        answers = answers or _answers(out, scores, grid, channel_axis, return_probabilities)
        labels, likely = answers
        together = likely if found is None and not scores.single else None
        if together is None or not together.write_with_largest(images, part.core, x, labels):
            labels.write(images, part.core, nearest(x) if found is None else found)
            if likely is not None:
                likely.write(images, part.core, scores.given(x))
        if progress is not None:
            progress(number, len(parts))
    assert labels is not None
    return labels.array if likely is None else (labels.array, likely.array)


@dataclass(frozen=True, eq=False)
class Problem:
    """An image and its scores, to be solved part by part."""

    image: Stored
    scores: Scores
    grid: tuple[int, ...]
    kernels: Sequence[Kernel]  # bandwidths in pixels
    inference: Inference
    keep: Stored | None = None
    ignore: Stored | None = None
    scribbles: Stored | None = None

    @property
    def bytes_per_pixel(self) -> float:
        """What a pixel takes at the peak: more than in any photograph measured, less than in noise.

        Up to thirteen arrays of the size of the scores are alive at a time, seven where steps are taken
        natively, and a lattice takes 26 numbers per corner of the simplex around a pixel while it is built.
        """
        solver = self.inference.solver
        arrays = arrays_per_label(
            solvers.get(solver) if isinstance(solver, str) else solver, self.inference.num_steps,
            [getattr(kernel, "method", "own") for kernel in self.kernels],
            self.inference.compatibility, self.scores.num_labels, self.scores.dtype, self.scores.device,
        )  # fmt: skip
        floats = arrays * self.scores.num_labels
        for kernel in self.kernels:
            method = getattr(kernel, "method", "lattice")
            axes = (
                len(self.grid) if isinstance(kernel, Spatial) else len(self.grid) + (self.image.channels or 1)
            )
            floats += 26 * (axes + 1) if method == "lattice" else axes
        return floats * self.scores.dtype.itemsize

    def parts(
        self,
        tile: int | Sequence[int] | Literal[False] | None,
        overlap: int | Sequence[int] | None,
        memory: int | None,
    ) -> list[tuple[slice, Tile]]:
        """Which images and tiles to solve at a time."""
        dims = len(self.grid)
        if memory is not None and not memory > 0:
            raise ValueError(f"memory={memory!r}; expected a positive number of bytes.")
        bound = MEMORY if memory is None else memory
        each = self.bytes_per_pixel
        reach = None if overlap is None else sizes(overlap, dims, "overlap", least=0)
        if tile is None and math.prod(self.grid) * each <= bound:
            tile = False
        if tile is not False and reach is None:
            reach = _reach(self.kernels, dims)
        parts = plan(
            self.grid, self.scores.stored.batch or 1,
            tile=tile, overlap=reach or (0,) * dims, memory=bound, bytes_per_pixel=each,
        )  # fmt: skip
        needed = max(math.prod(part.shape) for _, part in parts) * each
        if tile is None and memory is not None and needed > memory:
            raise ValueError(
                f"memory={memory} is too little for tiles as large as their overlap, {reach}: that takes "
                f"about {math.ceil(needed)} bytes. Allow as much, or less overlap=."
            )
        return parts

    def solve(self, images: slice, tile: Tile) -> tuple[Tensor | None, Tensor]:
        """Labels ``(*batch, *core)`` and probabilities ``(*batch, *core, L)`` of a tile.

        No labels where they are those of the largest probabilities.
        """
        dims = len(self.grid)
        keep, ignore, scribbles = (
            None if one is None else one.read(dtype, images, tile.window, self.scores.device).flatten(-dims)
            for one, dtype in (
                (self.keep, torch.bool),
                (self.ignore, torch.bool),
                (self.scribbles, torch.int64),
            )
        )
        free = keep is None and ignore is None and scribbles is None
        unary = self.scores.unary(images, tile.window, self.grid) if free else None
        finite = unary is not None
        if unary is None:
            # The logits are not held on to: they are as large as all that follows.
            unary = unary_from_logits(
                constrained(self.scores.logits(images, tile.window, self.grid, ignore), keep, scribbles)
            )
        if ignore is not None and bool(ignore.unflatten(-1, tile.shape)[(..., *tile.inner)].all()):
            labels, x = alone(unary)
        else:
            values = self._image(images, tile.window)
            if ignore is not None:
                values = without(values, ignore)
            operators = [_operator(kernel, values, tile, ignore) for kernel in self.kernels]
            weights = [kernel.weight for kernel in self.kernels]
            labels, x = self.inference(operators, weights, unary, ignore, finite)
        return (
            None if labels is None else labels.unflatten(-1, tile.shape)[(..., *tile.inner)],
            x.unflatten(-2, tile.shape)[(..., *tile.inner, slice(None))],
        )

    def _image(self, images: slice, window: Window) -> Tensor:
        """``(*batch, n, channels)``."""
        same = self.grid == self.image.grid
        source = window if same else needed(window, self.grid, self.image.grid)
        where = self.scores.dtype, images, source, self.scores.device
        if same and (planes := self.image.read_channels_first(*where)) is not None:
            return planes.mT
        values = self.image.read(*where)
        if self.image.channels is None:
            values = values.unsqueeze(-1)
        if not same:
            check_finite(values, "image")
            values = resample(values, window, self.grid, self.image.grid)
        return values.flatten(-len(self.grid) - 1, -2)


def _operator(kernel: Kernel, values: Tensor, tile: Tile, ignore: Tensor | None) -> Operator:
    """The operator of a kernel for a window of an image, ``(*batch, n, channels)``."""
    normalization = getattr(kernel, "normalization", None)
    if ignore is not None and normalization is not None:
        kernel = replace(kernel, normalization="none")  # type: ignore[type-var]
    image = values.mT.unflatten(-1, tile.shape)
    if isinstance(kernel, Gaussian):
        K = kernel.operator(values)
    elif isinstance(kernel, Bilateral | Spatial):
        K = kernel.operator(image, spatial_dims=len(tile.shape), origin=tile.origin)
    else:
        K = kernel.operator(image)
    return K if ignore is None else restricted(K, ignore, normalization)


def _spatial_dims(
    given: int | None, probabilities: Any, from_labels: Any, spacing: Any, kernels: Sequence[Kernel]
) -> int:
    if given is not None:
        if isinstance(given, bool) or int(given) != given or given < 1:
            raise ValueError(f"spatial_dims={given!r}; expected a whole number of at least 1.")
        return int(given)
    for one in (spacing, *(getattr(kernel, "xy", None) for kernel in kernels)):
        if one is not None and np.ndim(one) == 1:
            return len(one)  # type: ignore[arg-type]
    axes = len(as_array(probabilities, "probabilities").shape)
    return 3 if axes == (4 if from_labels else 5) else 2


def _common_grid(image: Stored, scores: Stored, resize: str | None) -> tuple[int, ...]:
    if resize not in (None, "scores", "image"):
        raise ValueError(f"resize={resize!r} is not known; expected 'scores', 'image' or None.")
    check_batch(image, scores)
    if resize is None:
        check_grid(
            image,
            scores,
            "Pass resize='scores' to bring the scores to the size of the image, or resize='image' for the "
            "image to that of the scores.",
        )
    return scores.grid if resize == "image" else image.grid


def _in_pixels(kernel: Kernel, spacing: float | Sequence[float] | None, dims: int) -> Kernel:
    """A kernel whose position bandwidths are in pixels instead of units of the spacing."""
    if spacing is None or not hasattr(kernel, "xy"):
        return kernel
    steps = bandwidths(spacing, dims, "spacing")
    scales = bandwidths(kernel.xy, dims, "xy")  # type: ignore[attr-defined]
    return replace(kernel, xy=tuple(s / step for s, step in zip(scales, steps, strict=True)))  # type: ignore


def _reach(kernels: Sequence[Kernel], dims: int) -> tuple[int, ...]:
    """How far windows should reach beyond their tiles, in pixels per axis."""
    if not all(hasattr(kernel, "xy") for kernel in kernels):
        raise ValueError(
            "a kernel without position bandwidths reaches over the whole image, of which a tile sees a part; "
            "set how far tiles overlap (overlap=), or solve the image at once (tile=False)."
        )
    scales = [bandwidths(kernel.xy, dims, "xy") for kernel in kernels]  # type: ignore[attr-defined]
    return tuple(math.ceil(OVERLAP * max(along)) for along in zip(*scales, strict=True))


def _answers(
    out: Any, scores: Scores, grid: Sequence[int], channel_axis: int | None, both: bool
) -> tuple[Stored, Stored | None]:
    """Where labels and probabilities go: into arrays of the user's, or into new ones."""
    stored = scores.stored
    if both and out is not None and not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError(
            "out is one array; expected a pair with return_probabilities: (labels, probabilities)."
        )
    given = (None, None) if out is None else out if both else (out, None)
    labels = answer(given[0], "out", stored, grid, None, 0, torch.int64 if stored.is_torch else np.int64)
    if kind(labels.array) != "i" or largest(labels.array.dtype) < scores.num_labels - 1:
        raise TypeError(
            f"out has dtype {labels.array.dtype}; expected integers that hold labels to "
            f"{scores.num_labels - 1}."
        )
    if not both:
        return labels, None
    at = stored.channel_axis
    if at is None:
        at = -len(grid) - 1 if stored.is_torch else -1 if channel_axis is None else channel_axis
    likely = answer(given[1], "out[1]", stored, grid, scores.given_channels, at, scores.given_dtype)
    if kind(likely.array) != "f":
        raise TypeError(f"out[1] has dtype {likely.array.dtype}; expected floating point for probabilities.")
    return labels, likely

"""Refinement of a network's scores for an image, in one call."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fwcrf import pairwise, solvers
from fwcrf import rounding as roundings
from fwcrf.compatibility import Compatibility
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.features import bandwidths
from fwcrf.inputs.arrays import (
    Located,
    Window,
    answer,
    as_array,
    check_batch,
    check_grid,
    kind,
    largest,
    locate,
)
from fwcrf.inputs.masks import Masks, read_masks
from fwcrf.inputs.resample import needed, resample
from fwcrf.inputs.scores import Scores, read_scores
from fwcrf.inputs.tiles import Tile, plan_tiles, sizes
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.kernel import Domain, Kernel, read_kernels
from fwcrf.rounding import Rounding, nearest
from fwcrf.solvers import Solver
from fwcrf.solvers.plan import arrays_per_label
from fwcrf.torch_ops.native import check_finite
from fwcrf.torch_ops.simplex import softmax

log: logging.Logger = logging.getLogger("fwcrf")

# Bytes within which an image is solved as a whole, unless the user sets memory=.
MEMORY = 4 << 30
# Overlap of windows beyond their tiles, in standard deviations of the widest kernel.
OVERLAP = 3.0
# About this many rows of an image are compared with the bandwidths.
_ROWS = 32


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
    laid out as in numpy. A batch comes first. An image with no more axes than the grid is grey. The result
    has the type, layout and device of ``probabilities``: labels ``(*batch, *grid)`` of int64, and with
    ``return_probabilities`` also the probabilities.

    Args:
        image: whole or floating-point numbers, any number of channels.
        probabilities: summing to 1 over the labels. With ``from_logits``, logits. With ``from_labels``, a map
            of labels, -1 where there is none. One probability (one logit) per pixel is for label 1
            against label 0.
        solver: a name of ``fwcrf.solvers.names()``, or a solver.
        num_steps: the number of steps; with most solvers, a step applies every kernel once.
        kernels: by default ``Spatial(3)`` and ``Bilateral(80, 13)``: pixels, and grey levels of 0 to 255. A
            ``Gaussian`` takes the image's channels as its features.
        compatibility: a number (Potts), one per label (diagonal) or a matrix, for all kernels; or a
            ``Compatibility`` for each.
        channel_axis: the axis of channels in numpy arrays; ``None`` for a grey image without that axis.
        from_labels: the confidence in a map of labels, between 0.5 and 1: the probability of the given label
            against any one other label. ``True`` is 0.7.
        num_labels: the number of labels in a map; by default one more than the largest label.
        spatial_dims: the number of grid axes, 3 for a volume or a video. By default as many as ``spacing`` or
            a kernel's bandwidths have entries; else 3 with five axes (batch, channels and grid), and 2 with
            fewer.
        spacing: the size of a pixel along each axis, in the units of the position bandwidths.
        rounding: ``"nearest"`` or ``"bcd"``.
        keep: a mask of pixels that keep the best label of their scores, and still influence other pixels.
        ignore: a mask of pixels that take no part: they keep their scores and do not influence other pixels.
            Their scores and their image values may be NaN.
        scribbles: a map of labels that are certain, -1 elsewhere.
        resize: if sizes differ, bring the ``"scores"`` to the size of the image, or the ``"image"`` to the
            size of the scores.
        tile: the size of tiles, in pixels, for all axes or for each; ``False`` for none. By default the
            image is solved as a whole if ``memory`` allows it, else in tiles as large as it allows.
        overlap: the width of a window beyond its tile, in pixels. By default three standard deviations of
            the widest kernel.
        memory: bytes that the work may take beside image, scores and result; about 4 GiB by default.
        self_edges: keep the diagonals of the kernels, as pydensecrf does.
        out: an array of integers to write the labels to, a memory map for example; with
            ``return_probabilities`` a pair of arrays.
        progress: called with the number of parts done and the number of all parts.

    >>> import numpy as np
    >>> image = np.full((20, 30, 3), 200, dtype=np.uint8)
    >>> image[:, :15] = 50
    >>> probabilities = np.full((20, 30, 2), 0.5)
    >>> probabilities[5:9, 5:9] = 0.2, 0.8
    >>> probabilities[5:9, 20:24] = 0.8, 0.2
    >>> refine(image, probabilities)[0, [0, 14, 15, 29]]
    array([1, 1, 0, 0])
    """
    kernels = (Spatial(), Bilateral()) if kernels is None else read_kernels(kernels)
    dims = _spatial_dims(spatial_dims, probabilities, from_labels, spacing, kernels)
    scores = read_scores(
        probabilities,
        dims,
        channel_axis,
        from_logits=from_logits,
        from_labels=from_labels,
        num_labels=num_labels,
    )
    picture = locate(image, "image", dims, channel_axis)
    grid = _common_grid(picture, scores.located, resize)
    free = keep is None and ignore is None and scribbles is None
    problem = Problem(
        picture,
        scores,
        grid,
        kernels if spacing is None else tuple(_in_pixels(kernel, spacing, dims) for kernel in kernels),
        Inference(named(solver), num_steps, rounding, compatibility, self_edges),
        None if free else read_masks(keep, ignore, scribbles, scores, grid),
    )
    _check_image(picture, problem.kernels)
    parts = problem.parts(tile, overlap, memory)
    answers = None if out is None else _answers(out, scores, grid, channel_axis, return_probabilities)
    labels = likely = None
    for number, (images, part) in enumerate(parts, 1):
        with torch.no_grad():
            found, x = problem.solve(images, part)
        # New arrays are made now, in memory that the solver has freed.
        answers = answers or _answers(out, scores, grid, channel_axis, return_probabilities)
        labels, likely = answers
        with_argmax = likely if found is None and not scores.single else None
        if with_argmax is None or not with_argmax.write_with_argmax(images, part.core, x, labels):
            labels.write(images, part.core, nearest(x) if found is None else found)
            if likely is not None:
                likely.write(images, part.core, scores.given(x))
        if progress is not None:
            progress(number, len(parts))
    assert labels is not None
    return labels.array if likely is None else (labels.array, likely.array)


def named(solver: str | Solver) -> Solver:
    """A solver, given by name or as it is."""
    return solvers.get(solver) if isinstance(solver, str) else solver


@dataclass(frozen=True)
class Inference:
    """Settings of the solver and of the model without its kernels, the same for images and points."""

    solver: Solver
    num_steps: int
    rounding: str | Rounding
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility]
    self_edges: bool

    def __post_init__(self) -> None:
        # Refused before any work is done.
        roundings.get(self.rounding)
        if isinstance(self.num_steps, bool) or int(self.num_steps) != self.num_steps or self.num_steps < 0:
            raise ValueError(f"num_steps={self.num_steps!r}; expected 0 (which changes nothing) or more.")

    def __call__(
        self, kernels: Sequence[Kernel], domain: Domain, unary: Tensor, *, finite: bool = False
    ) -> tuple[Tensor | None, Tensor]:
        """Labels ``(*batch, n)`` and probabilities ``(*batch, n, L)``.

        The labels are None for "nearest" rounding without ignored points: the writer computes the argmax
        while it copies. ``finite`` if the unary is known to be finite.
        """
        P = pairwise.dense(
            [kernel.on(domain) for kernel in kernels],
            unary.shape[-1],
            weights=[kernel.weight for kernel in kernels],
            compat=self.compatibility,
            self_edges=self.self_edges,
        )
        E = Energy(P, unary, checked=finite)
        found = solvers.minimize(E, self.solver, num_steps=self.num_steps, rounding=self.rounding)
        log.info("%s", found.engine)
        x, ignore = found.probabilities, domain.ignore
        if ignore is None:
            return None if self.rounding == "nearest" else found.labels, x
        given = softmax(unary, -1.0)
        return torch.where(ignore, nearest(given), found.labels), torch.where(ignore.unsqueeze(-1), given, x)


@dataclass(frozen=True, eq=False)
class Problem:
    """An image and its scores, to be solved part by part."""

    image: Located
    scores: Scores
    grid: tuple[int, ...]
    kernels: Sequence[Kernel]  # bandwidths in pixels
    inference: Inference
    masks: Masks | None = None

    @property
    def bytes_per_pixel(self) -> float:
        """Estimated bytes per pixel at the peak: more than all photographs measured, less than noise."""
        run, labels = self.inference, self.scores.num_labels
        dtype, device = self.scores.dtype, self.scores.device
        axes, channels = len(self.grid), self.image.channels or 1
        methods = [kernel.method for kernel in self.kernels]
        arrays = arrays_per_label(
            run.solver, run.num_steps, methods, run.compatibility, labels, dtype, device, run.rounding
        )
        each = [kernel.floats_per_point(axes, channels) for kernel in self.kernels]
        return (arrays * labels + sum(each)) * dtype.itemsize

    def parts(
        self,
        tile: int | Sequence[int] | Literal[False] | None,
        overlap: int | Sequence[int] | None,
        memory: int | None,
    ) -> list[tuple[slice, Tile]]:
        """The parts to solve, one after the other: some images and a tile."""
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
        parts = plan_tiles(
            self.grid, self.scores.located.batch or 1,
            tile=tile, overlap=reach or (0,) * dims, memory=bound, bytes_per_pixel=each,
        )  # fmt: skip
        if tile is None and memory is not None:
            needed = max(math.prod(part.shape) for _, part in parts) * each
            if needed > memory:
                raise ValueError(
                    f"memory={memory} is too little for tiles as large as their overlap, {reach}: that takes "
                    f"about {math.ceil(needed)} bytes. Allow as much, or less overlap=."
                )
        return parts

    def solve(self, images: slice, tile: Tile) -> tuple[Tensor | None, Tensor]:
        """Labels ``(*batch, *core)`` and probabilities ``(*batch, *core, L)`` of a tile.

        The labels are None if they are the argmax of the probabilities.
        """
        scores, shape, inner, origin = self.scores, tile.shape, tile.inner, tile.origin
        known = None if self.masks is None else self.masks.read(images, tile.window, scores.device)
        ignore = None if known is None else known.ignore
        unary = scores.unary(images, tile.window, self.grid) if known is None else None
        finite = unary is not None
        if unary is None:
            # The logits are freed early: they are as large as every array that follows.
            logits = scores.logits(images, tile.window, self.grid, ignore)
            logits = logits if known is None else known.constrain(logits)
            unary = unary_from_logits(logits)
            del logits
        if ignore is not None and bool(ignore.unflatten(-1, shape)[(..., *inner)].all()):
            labels, x = None, softmax(unary, -1.0)
        else:
            values = self._values(images, tile.window)
            if ignore is not None:
                values = without(values, ignore)
            domain = Domain(values, shape, origin, ignore=ignore)
            labels, x = self.inference(self.kernels, domain, unary, finite=finite)
        return (
            None if labels is None else labels.unflatten(-1, shape)[(..., *inner)],
            x.unflatten(-2, shape)[(..., *inner, slice(None))],
        )

    def _values(self, images: slice, window: Window) -> Tensor:
        """The values of the image, ``(*batch, n, channels)``."""
        dtype, device = self.scores.dtype, self.scores.device
        same = self.grid == self.image.grid
        source = window if same else needed(window, self.grid, self.image.grid)
        if same and (planes := self.image.read_channels_first(dtype, images, source, device)) is not None:
            return planes.mT
        values = self.image.read(dtype, images, source, device)
        if self.image.channels is None:
            values = values.unsqueeze(-1)
        if not same:
            check_finite(values, "image")
            values = resample(values, window, self.grid, self.image.grid)
        return values.flatten(-len(self.grid) - 1, -2)


def without(values: Tensor, ignore: Tensor) -> Tensor:
    """Values ``(*batch, n, channels)``; ignored points get the mean of all other points."""
    mask = ignore.unsqueeze(-1)
    mean = values.masked_fill(mask, 0.0).sum(-2, keepdim=True) / (~mask).sum(-2, keepdim=True).clamp(min=1)
    return torch.where(mask, mean, values)


def _check_image(image: Located, kernels: Sequence[Kernel]) -> None:
    """Refuse an image that the kernels do not take; warn if its units do not fit the bandwidths."""
    found, shape = kind(image.array), tuple(image.array.shape)
    if found not in "if":
        raise TypeError(
            f"image has dtype {image.array.dtype}; expected whole or floating-point numbers: convert it "
            "first."
        )

    def sample() -> Tensor:
        every = max(1, image.grid[0] // _ROWS)
        window = (slice(0, image.grid[0], every), *image.whole[1:])
        return image.part(torch.float64, slice(0, 1), window)

    axes, channels = len(image.grid), image.channels or 1
    for kernel in kernels:
        kernel.check_values(sample, found, "image", shape, axes, channels)


def _spatial_dims(
    given: int | None, probabilities: Any, from_labels: Any, spacing: Any, kernels: Sequence[Kernel]
) -> int:
    if given is not None:
        if isinstance(given, bool) or int(given) != given or given < 1:
            raise ValueError(f"spatial_dims={given!r}; expected a whole number of at least 1.")
        return int(given)
    scales = [kernel.bandwidths().get("xy") for kernel in kernels]
    for one in (spacing, *scales):
        if one is not None and np.ndim(one) == 1:
            return len(one)  # type: ignore[arg-type]
    axes = len(as_array(probabilities, "probabilities").shape)
    return 3 if axes == (4 if from_labels else 5) else 2


def _common_grid(image: Located, scores: Located, resize: str | None) -> tuple[int, ...]:
    if resize not in (None, "scores", "image"):
        raise ValueError(f"resize={resize!r} is not known; expected 'scores', 'image' or None.")
    check_batch(image, scores)
    if resize is None:
        check_grid(
            image,
            scores,
            "Pass resize='scores' to bring the scores to the size of the image, or resize='image' for the "
            "image to the size of the scores.",
        )
    return scores.grid if resize == "image" else image.grid


def _in_pixels(kernel: Kernel, spacing: float | Sequence[float], dims: int) -> Kernel:
    """The kernel with position bandwidths in pixels instead of units of ``spacing``."""
    xy = kernel.bandwidths().get("xy")
    if xy is None:
        return kernel
    steps = bandwidths(spacing, dims, "spacing")
    scales = zip(bandwidths(xy, dims, "xy"), steps, strict=True)
    return kernel.with_bandwidths({"xy": tuple(s / step for s, step in scales)})


def _reach(kernels: Sequence[Kernel], dims: int) -> tuple[int, ...]:
    """The default overlap of windows beyond their tiles, in pixels per axis."""
    each = [kernel.bandwidths().get("xy") for kernel in kernels]
    if any(xy is None for xy in each):
        raise ValueError(
            "a kernel without position bandwidths reaches over the whole image, of which a tile sees a part; "
            "set how far tiles overlap (overlap=), or solve the image at once (tile=False)."
        )
    scales = [bandwidths(xy, dims, "xy") for xy in each if xy is not None]
    return tuple(math.ceil(OVERLAP * max(along)) for along in zip(*scales, strict=True))


def _answers(
    out: Any, scores: Scores, grid: Sequence[int], channel_axis: int | None, both: bool
) -> tuple[Located, Located | None]:
    """The arrays to write to, of the user or new: labels, and probabilities or None unless ``both``."""
    like = scores.located
    if both and out is not None and not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError(
            "out is one array; expected a pair with return_probabilities: (labels, probabilities)."
        )
    given = (None, None) if out is None else out if both else (out, None)
    labels = answer(given[0], "out", like, grid, None, 0, torch.int64 if like.is_torch else np.int64)
    if kind(labels.array) != "i" or largest(labels.array.dtype) < scores.num_labels - 1:
        raise TypeError(
            f"out has dtype {labels.array.dtype}; expected integers that hold labels to "
            f"{scores.num_labels - 1}."
        )
    if not both:
        return labels, None
    at = like.channel_axis
    if at is None:
        at = -len(grid) - 1 if like.is_torch else -1 if channel_axis is None else channel_axis
    likely = answer(given[1], "out[1]", like, grid, scores.given_channels, at, scores.given_dtype)
    if kind(likely.array) != "f":
        raise TypeError(f"out[1] has dtype {likely.array.dtype}; expected floating point for probabilities.")
    return labels, likely

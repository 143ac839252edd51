"""Refinement of a network's scores for an image, in one call."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from fwcrf import pairwise, solvers
from fwcrf import rounding as roundings
from fwcrf.changed import FEW, check_reach, report
from fwcrf.compatibility import Compatibility, Potts, compatibility
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.features import bandwidths
from fwcrf.frames import Frames
from fwcrf.inputs.arrays import (
    Located,
    Window,
    answer,
    as_array,
    check_batch,
    check_grid,
    check_label_axis,
    kind,
    largest,
    locate,
    shares_memory,
    some_rows,
)
from fwcrf.inputs.masks import Known, Masks, read_masks
from fwcrf.inputs.numbers import MOST, function, real, whole
from fwcrf.inputs.resample import Align, Alignment, aligned, needed, resample, reverse
from fwcrf.inputs.scores import FLOOR, Scores, check_balance, read_scores
from fwcrf.inputs.tiles import Tile, available_memory, most_pixels, plan_tiles, sample, sizes
from fwcrf.kernels.bands import SHORT_AXIS
from fwcrf.kernels.kernel import Domain, Kernel, Stored, check_image, in_pixels, read_kernels
from fwcrf.presets import OF_PRESET, OWN_KERNELS, Preset, Unset
from fwcrf.presets import get as get_preset
from fwcrf.rounding import Rounding
from fwcrf.segments import SEGMENT_ARRAYS, Here, Terms, read_segments
from fwcrf.solvers import Solver
from fwcrf.solvers.plan import arrays_per_label
from fwcrf.torch_ops.layout import argmax
from fwcrf.torch_ops.native import as_tensor, check_finite, warn_caller, with_memory_errors
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.shares import best_labels, rarity_in
from fwcrf.torch_ops.simplex import softmax

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fwcrf.arguments import Array, ImageArguments, ImageLike

log: logging.Logger = logging.getLogger("fwcrf")
log.addHandler(logging.NullHandler())

# Bytes within which an image is solved as a whole, unless the user sets memory=.
MEMORY = 4 << 30
# No solver takes more bytes for each label and channel of a pixel, with 16 kernels or fewer.
_MOST_EACH = 1 << 14
# Below this many bytes, the memory of the machine is not looked up.
_NOTICED = 1 << 30
# Overlap of windows beyond their tiles, in standard deviations of the widest kernel.
OVERLAP = 3.0
# Pixels per axis whose labels are compared before and after.
_COUNTED = 64
# More channels than an image has colours, and as many grey images as a batch rarely has, may be slices.
_MOST_COLOURS, _SLICES = 4, 8


@overload
def refine(
    image: ImageLike,
    probabilities: Array,
    *,
    return_probabilities: Literal[False] = False,
    **more: Unpack[ImageArguments],
) -> Array: ...
@overload
def refine(
    image: ImageLike,
    probabilities: Array,
    *,
    return_probabilities: Literal[True],
    **more: Unpack[ImageArguments],
) -> tuple[Array, Array]: ...
@overload
def refine(
    image: ImageLike,
    probabilities: Any,
    *,
    return_probabilities: bool = False,
    **more: Unpack[ImageArguments],
) -> Any: ...
@with_memory_errors
def refine(
    image: ImageLike,
    probabilities: Any,
    *,
    preset: str | Preset | None = None,
    solver: str | Solver | Unset = OF_PRESET,
    num_steps: int | Unset = OF_PRESET,
    tol: float | None = None,
    kernels: Sequence[Kernel] | None = None,
    compatibility: float
    | Sequence[float]
    | Tensor
    | Compatibility
    | Sequence[Compatibility]
    | Unset = OF_PRESET,
    balance: float | Unset = OF_PRESET,
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
    segments: Any = None,
    resize: Literal["scores", "image"] | None = None,
    align: Align = "centers",
    tile: int | Sequence[int] | Literal[False] | None = None,
    overlap: int | Sequence[int] | None = None,
    memory: int | None = None,
    return_probabilities: bool = False,
    self_edges: bool | Unset = OF_PRESET,
    out: Any = None,
    progress: Callable[[int, int], None] | None = None,
    frames: Frames | None = None,
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
        preset: a name of ``fwcrf.presets.names()``: the values of the arguments that follow, up to
            ``balance``, and of ``self_edges``, unless they are given. By default ``"default"``; but with
            ``kernels`` and no preset the model has these kernels and nothing else: ``"l2fw"`` with 10 steps,
            Potts 1 and no balance, unless given. ``kernels`` with a preset replace its kernels only.
        solver: a name of ``fwcrf.solvers.names()``, or a solver.
        num_steps: the most steps; with most solvers, a step applies every kernel once.
        tol: a pixel may stay as it is where a step would change no probability by more, and the run ends when
            all pixels stay: ``least_change`` of ``fwcrf.minimize``, where the default is explained.
        kernels: ``Spatial``, ``Bilateral`` or any other kernel, with bandwidths in pixels and grey levels of
            0 to 255. A ``Gaussian`` takes the image's channels as its features.
        compatibility: a number (Potts), one per label (diagonal) or a matrix, for all kernels; or a
            ``Compatibility`` for each.
        balance: the power of the labels' shares of the image by which their probabilities are divided, from
            0 (not at all) to 1: a CRF favours large regions, and shrinks small ones without it.
        channel_axis: the axis of channels in numpy arrays; ``None`` for a grey image without that axis.
        from_labels: the confidence in a map of labels, between 0.5 and 1: the probability of the given label
            against any one other label. ``True`` is 0.7.
        num_labels: the number of labels; of a map, by default one more than the largest label.
        spatial_dims: the number of grid axes, 3 for a volume or a video. By default as many as ``spacing`` or
            a kernel's bandwidths have entries; else 3 with five axes (batch, channels and grid), and 2 with
            fewer.
        spacing: the size of a pixel along each axis, in the units of the position bandwidths.
        rounding: ``"nearest"``, ``"bcd"`` or ``"merge"`` (``fwcrf.rounding``).
        keep: a mask of pixels that keep the best label of their scores, and still influence other pixels.
        ignore: a mask of pixels that take no part: they keep their scores and do not influence other pixels.
            Their scores and their image values may be NaN, and their labels in a label map any number.
        scribbles: a map of labels that are certain, -1 elsewhere.
        segments: superpixels whose pixels should agree, as a map of whole numbers, -1 for no segment; an
            ``fwcrf.segments.Agreement`` with weight and tolerance; or a list of these. A tile sees the parts
            of segments within its window.
        resize: if sizes differ, bring the ``"scores"`` to the size of the image, or the ``"image"`` to the
            size of the scores.
        align: how the scores lie on the image, for ``resize``. ``"centers"``: both cover the same area
            (``align_corners=False`` of torch). ``"corners"``: the centres of their corner pixels coincide
            (``align_corners=True``). ``(stride, offset)``: sample i lies at pixel ``offset + stride * i`` of
            the image, each a number or one per axis.
        tile: the size of tiles, in pixels, for all axes or for each; ``False`` for none. By default the
            image is solved as a whole if ``memory`` allows it, else in tiles as large as it allows.
        overlap: the width of a window beyond its tile, in pixels. By default three standard deviations of
            the widest kernel.
        memory: bytes that the work may take beside image, scores and result; about 4 GiB by default.
        self_edges: keep the diagonals of the kernels, as pydensecrf does.
        out: an array of integers to write the labels to, a memory map for example; with
            ``return_probabilities`` a pair of arrays.
        progress: called with the number of parts done and the number of all parts.
        frames: for a frame of a video, the memory of earlier frames: the ``frames`` of a ``fwcrf.Stream``,
            which calls this function.

    >>> import numpy as np
    >>> image = np.full((20, 30, 3), 200, dtype=np.uint8)
    >>> image[:, :15] = 50
    >>> probabilities = np.full((20, 30, 2), 0.5)
    >>> probabilities[5:9, 5:9] = 0.2, 0.8
    >>> probabilities[5:9, 20:24] = 0.8, 0.2
    >>> refine(image, probabilities)[0, [0, 14, 15, 29]]
    array([1, 1, 0, 0])
    """
    if progress is not None:
        function(progress, "progress", "the number of parts done and of all parts")
    if channel_axis is not None and type(channel_axis) is not int:
        channel_axis = whole(channel_axis, "channel_axis", -MOST, "an axis, or None for no channels")
    if preset is None:
        preset = "default" if kernels is None else OWN_KERNELS
    elif not isinstance(preset, str | Preset):
        preset = get_preset(preset)
    chosen = _arguments(preset)
    used: Sequence[Kernel] = chosen["kernels"] if kernels is None else read_kernels(kernels)
    inference = Inference(
        solvers.as_solver(chosen["solver"] if isinstance(solver, Unset) else solver),
        chosen["num_steps"] if isinstance(num_steps, Unset) else num_steps,
        rounding,
        chosen["compatibility"] if isinstance(compatibility, Unset) else compatibility,
        chosen["self_edges"] if isinstance(self_edges, Unset) else self_edges,
        tol,
    )
    power: float = chosen["balance"] if isinstance(balance, Unset) else check_balance(balance)
    dims = _spatial_dims(spatial_dims, probabilities, from_labels, spacing, used)
    scores = read_scores(
        probabilities,
        dims,
        channel_axis,
        from_logits=from_logits,
        from_labels=from_labels,
        num_labels=num_labels,
        ignore=ignore,
    )
    picture = locate(image, "image", dims, channel_axis)
    if picture.batch != 1 and scores.located.batch is not None and spatial_dims is None:
        _warn_if_volume(picture, scores.located, spacing, used)
    told = channel_axis is not None and channel_axis >= 0
    alignment = _alignment(picture, scores.located, resize, align, num_labels, told)
    grid = scores.located.grid if resize == "image" else picture.grid
    free = keep is None and ignore is None and scribbles is None
    problem = Problem(
        picture,
        scores,
        grid,
        used if spacing is None else tuple(in_pixels(kernel, spacing, dims) for kernel in used),
        inference,
        None if free else read_masks(keep, ignore, scribbles, scores, grid),
        power if inference.num_steps else 0.0,
        None if resize == "image" else alignment,
        reverse(alignment) if resize == "image" and alignment is not None else None,
        frames,
        None if segments is None else read_segments(segments, scores, grid, rounding),
    )
    check_image(picture, problem.kernels)
    parts = problem.parts(tile, overlap, memory)
    answers = None if out is None else _answers(out, scores, grid, channel_axis, return_probabilities)
    if answers is not None:
        masks = () if problem.masks is None else problem.masks
        maps = () if problem.segments is None else problem.segments.maps
        read = [one for one in (picture, scores.located, *masks, *maps) if one is not None]
        _check_memory(answers, read if len(parts) > 1 else [])
    if frames is not None:
        problem.begin(frames)
    labels = likely = None
    tally = Tally.of(scores.located.batch or 1, scores.num_labels)
    for number, (images, part) in enumerate(parts, 1):
        with torch.no_grad():
            (places, best, before), found, x = problem.solve(images, part)
        # New arrays are made now, in memory that the solver has freed.
        answers = answers or _answers(out, scores, grid, channel_axis, return_probabilities)
        labels, likely = answers
        with_argmax = likely if found is None and not scores.single else None
        if with_argmax is None or not with_argmax.write_with_argmax(images, part.core, x, labels):
            labels.write(images, part.core, argmax(x) if found is None else found)
            if likely is not None:
                likely.write(images, part.core, scores.given(x))
        tally.add(images, best, before, labels.read(torch.int64, images, places), x.numel() // x.shape[-1])
        if progress is not None:
            progress(number, len(parts))
    assert labels is not None
    if frames is not None:
        frames.end()
    first = frames is None or frames.count == 1
    if first and not tally.changed and problem.inference.num_steps > 0 and "certain" not in scores.warned:
        problem.check_reach(parts)
    counts, written = tally.counts, labels
    if log.isEnabledFor(logging.INFO) or ((counts[0] > FEW) & (counts[1] == 0)).any():
        before_and_after, certainty = torch.from_numpy(counts), torch.from_numpy(tally.certainty)
        report(before_and_after, certainty, tally.changed, tally.pixels, lambda: some_rows(written))
    return labels.array if likely is None else (labels.array, likely.array)


def check_names(names: Iterable[str], caller: str, without: Container[str] = ()) -> None:
    """Refuse names that are no keyword arguments of ``refine``, or that the caller sets, ``without``."""
    for name in names:
        if name not in _settings() or name in without:
            known = [each for each in _settings() if each not in without]
            raise TypeError(f"{name}= is no argument of {caller}; expected {', '.join(known)}.")


@cache
def _settings() -> tuple[str, ...]:
    """The keyword arguments of ``refine`` that a caller may pass on."""
    given = ("image", "probabilities", "frames")
    return tuple(name for name in signature(refine).parameters if name not in given)


@dataclass(eq=False)
class Tally:
    """The labels of some pixels before and after, counted per image."""

    counts: np.ndarray  # (2, images, L): before and after, estimates for all pixels
    certainty: np.ndarray  # (images, L): sums of the probabilities of the labels before
    changed: float = 0.0  # pixels
    pixels: int = 0

    __repr__ = in_one_line

    @classmethod
    def of(cls, images: int, num_labels: int) -> Tally:
        zeros = np.zeros((3, images, num_labels))
        return cls(zeros[:2], zeros[2])

    def add(self, images: slice, best: np.ndarray, before: np.ndarray, after: Tensor, pixels: int) -> None:
        """Count some of the ``pixels`` of a part: probabilities and labels before, labels after."""
        count, num_labels = before.shape[0], self.certainty.shape[-1]
        first = num_labels * np.arange(count)[:, None]
        new = after.numpy(force=True).reshape(count, -1)
        share, labels = pixels / before.size, (before + first).ravel()
        for total, at, weights in (
            (self.counts[0], labels, None),
            (self.counts[1], (new + first).ravel(), None),
            (self.certainty, labels, best.ravel()),
        ):
            found = np.bincount(at, weights, minlength=count * num_labels)
            total[images] += share * found.reshape(count, num_labels)
        self.changed += share * np.count_nonzero(before != new)
        self.pixels += pixels


@dataclass(frozen=True)
class Inference:
    """Settings of the solver and of the model without its kernels, the same for images and points."""

    solver: Solver
    num_steps: int
    rounding: str | Rounding
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility]
    self_edges: bool
    tol: float | None = None

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        # Refused before any work is done.
        roundings.get(self.rounding)
        if self.tol is not None:
            real(self.tol, "tol", "0 to 1, or None for the default", lambda t: 0 <= t <= 1)
        if type(self.num_steps) is not int or not 0 <= self.num_steps <= MOST:
            steps = whole(self.num_steps, "num_steps", 0, "0 (which changes nothing) or more")
            object.__setattr__(self, "num_steps", steps)

    def __call__(
        self,
        kernels: Sequence[Kernel],
        domain: Domain,
        unary: Tensor,
        *,
        finite: bool = False,
        frames: Frames | None = None,
        x0: Tensor | None = None,
        segments: Here | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        """Labels ``(*batch, n)`` and probabilities ``(*batch, n, L)``.

        The labels are None for "nearest" rounding without ignored points: the writer computes the argmax
        while it copies. ``finite`` if the unary is known to be finite. ``x0`` is the start, by default that
        of the unary.
        """
        settings = tuple(kernels), unary.shape[-1], self.compatibility, self.self_edges
        P = None if frames is None else frames.known(settings, domain)
        if P is None:
            P = pairwise.dense(
                [kernel.on(domain) for kernel in kernels],
                unary.shape[-1],
                weights=[kernel.weight for kernel in kernels],
                compat=self.compatibility,
                self_edges=self.self_edges,
            )
            if frames is not None:
                frames.note(settings, domain, P)
        E = Energy(P, unary, checked=finite)
        if segments is not None:
            E = segments.added_to(E)
        found = solvers.minimize(
            E, self.solver, x0, num_steps=self.num_steps, rounding=self.rounding, least_change=self.tol
        )
        log.info("%s", found.engine)
        x, ignore = found.probabilities, domain.ignore
        if ignore is None:
            return None if self.rounding == "nearest" else found.labels, x
        given = softmax(unary, -1.0)
        return torch.where(ignore, argmax(given), found.labels), torch.where(ignore.unsqueeze(-1), given, x)


@dataclass(frozen=True, eq=False)
class Problem:
    """An image and its scores, to be solved part by part."""

    image: Located
    scores: Scores
    grid: tuple[int, ...]
    kernels: Sequence[Kernel]  # bandwidths in pixels
    inference: Inference
    masks: Masks | None = None
    balance: float = 0.0
    scores_alignment: Alignment | None = None  # of the scores, if they are resampled to the grid
    image_alignment: Alignment | None = None  # of the image, if it is
    frames: Frames | None = None  # of a video
    segments: Terms | None = None

    __repr__ = in_one_line

    @property
    def bytes_per_pixel(self) -> float:
        """Estimated bytes per pixel at the peak: more than all photographs measured, less than noise."""
        run, labels = self.inference, self.scores.num_labels
        dtype, device = self.scores.dtype, self.scores.device
        axes, channels = len(self.grid), self.image.channels or 1
        methods = [kernel.image_method for kernel in self.kernels]
        if max(self.grid) > SHORT_AXIS:
            methods = [kernel.method_over(self.grid, dtype) for kernel in self.kernels]
        arrays = arrays_per_label(
            run.solver, run.num_steps, methods, run.compatibility, labels, dtype, device, run.rounding
        )
        if self.segments is not None:
            arrays = max(arrays, SEGMENT_ARRAYS)
        each = [kernel.floats_per_point(axes, channels) for kernel in self.kernels]
        return (arrays * labels + sum(each)) * dtype.itemsize

    def _rare(self, images: slice) -> Tensor:
        """The rarity of the labels in whole images, the same for all tiles."""
        return self._rarity if self._rarity.dim() == 2 else self._rarity[images]

    @cached_property
    def _rarity(self) -> Tensor:
        masks, device = self.masks, self.scores.device
        if masks is None or masks.ignore is None or self.scores_alignment is not None:
            return self.scores.rarity()
        return self.scores.rarity(lambda window: masks.read(slice(None), window, device).ignore)

    def parts(
        self,
        tile: int | Sequence[int] | Literal[False] | None,
        overlap: int | Sequence[int] | None,
        memory: int | None,
    ) -> list[tuple[slice, Tile]]:
        """The parts to solve, one after the other: some images and a tile."""
        dims = len(self.grid)
        images = self.scores.located.batch or 1
        entries = images * math.prod(self.grid) * (self.scores.num_labels + (self.image.channels or 1))
        fits = entries * _MOST_EACH <= min(MEMORY, _NOTICED)
        if fits and tile is None and overlap is None and memory is None:
            whole = tuple(slice(0, size) for size in self.grid)
            return [(slice(0, images), Tile(whole, whole))]
        if memory is not None:
            real(memory, "memory", "a positive number of bytes", lambda m: 0 < m < math.inf)
        bound = MEMORY if memory is None else memory
        each = self.bytes_per_pixel
        reach = None if overlap is None else sizes(overlap, dims, "overlap", least=0)
        if tile is None and math.prod(self.grid) * each <= bound:
            tile = False
        if tile is not False and reach is None:
            reach = _reach(self.kernels, dims)
        parts = plan_tiles(
            self.grid, images,
            tile=tile, overlap=reach or (0,) * dims, memory=bound, bytes_per_pixel=each,
        )  # fmt: skip
        most = most_pixels(parts)
        needed = math.ceil(most * each)
        if tile is None and memory is not None and needed > memory:
            raise ValueError(
                f"memory={memory} is too little for tiles as large as their overlap, {reach}: that takes "
                f"about {needed} bytes. Allow as much, or less overlap=."
            )
        if needed > _NOTICED and self.scores.device.type == "cpu":
            there = available_memory()
            if there is not None and needed > there:
                raise MemoryError(
                    f"{self.scores.num_labels} labels of {most} pixels take about {needed} bytes, and this "
                    f"machine has {there}; expected fewer labels, or smaller parts by tile= and overlap=. "
                    "Labels that occur nowhere count too: number labels from 0 on."
                )
        return parts

    def solve(
        self, images: slice, tile: Tile
    ) -> tuple[tuple[Window, np.ndarray, np.ndarray], Tensor | None, Tensor]:
        """A sample of a tile's core, its labels ``(*batch, *core)`` and probabilities ``(*batch, *core, L)``.

        The sample is its window, and the best probabilities and labels of the scores there. The labels are
        None if they are the argmax of the probabilities.
        """
        scores, shape, inner = self.scores, tile.shape, tile.inner
        seen, whole = sample(inner, _COUNTED), inner == tile.window
        places = seen if whole else sample(tile.core, _COUNTED)
        known = None if self.masks is None else self.masks.read(images, tile.window, scores.device)
        if known is not None and known.is_empty:
            known = None
        ignore = None if known is None else known.ignore
        plain = known is None and self.scores_alignment is None
        unary = scores.unary(images, tile.window) if plain else None
        finite = unary is not None
        if unary is None:
            # The logits are freed early: they are as large as every array that follows.
            logits = self._logits(images, tile.window, known)
            unary = unary_from_logits(logits)
            del logits
        # Of some pixels: a pass over all energies would take a tenth of the time.
        best, first = best_labels(unary, shape, seen)
        if self.balance:
            own = plain and shape == self.grid
            rare = rarity_in(unary, shape, sample(inner), FLOOR) if own else self._rare(images)
            bonus = self.balance * rare
            unary -= bonus if ignore is None else torch.where(ignore.unsqueeze(-1), 0.0, bonus)
        if ignore is not None and bool(ignore.unflatten(-1, shape)[(..., *inner)].all()):
            labels, x = None, softmax(unary, -1.0)
        else:
            domain = self._domain(images, tile, ignore)
            frames, x0, terms = self.frames, None, None
            if frames is not None:
                frames.add_prior(unary, images, tile.window, ignore)
                x0 = frames.first(images, tile.window)
            if self.segments is not None:
                terms = self.segments.read(images, tile.window, ignore, scores.device)
            labels, x = self.inference(
                self.kernels, domain, unary, finite=finite, frames=frames, x0=x0, segments=terms
            )
        # Of the grid, without the overlap of the window.
        x = x.reshape(*x.shape[:-2], *shape, x.shape[-1])
        labels = None if labels is None else labels.reshape(*labels.shape[:-1], *shape)
        if not whole:
            x = x[(..., *inner, slice(None))]
            labels = None if labels is None else labels[(..., *inner)]
        if self.frames is not None:
            self.frames.keep(images, tile.core, x)
        return (places, best, first), labels, x

    def begin(self, frames: Frames) -> None:
        """Announce a frame of a video, which is compared with the frame before, if that counts."""
        scores, whole = self.scores, tuple(slice(0, size) for size in self.grid)
        batch = () if scores.located.batch is None else (scores.located.batch,)
        like = torch.empty((), dtype=scores.dtype, device=scores.device)
        with torch.no_grad():
            frames.begin(
                like.expand(*batch, *self.grid, scores.num_labels),
                lambda: self._values(slice(None), whole).unflatten(-2, self.grid),
                self.kernels,
            )

    def logits(self, parts: Sequence[tuple[slice, Tile]]) -> Iterator[tuple[slice, Tensor]]:
        """Logits ``(images, n, L)`` of the tiles, one after the other, with +inf at certain labels."""
        for images, tile in parts:
            known = None if self.masks is None else self.masks.read(images, tile.core, self.scores.device)
            found = self._logits(images, tile.core, known)
            yield images, found if found.dim() == 3 else found.unsqueeze(0)

    def check_reach(self, parts: Sequence[tuple[slice, Tile]]) -> None:
        """Warn if no pixel can change, because the scores are too certain for the kernels."""
        run, L = self.inference, self.scores.num_labels
        if any(kernel.normalization == "none" for kernel in self.kernels):
            return  # such kernels sum over many neighbours
        given: Any = run.compatibility
        each = [given] * len(self.kernels)
        if isinstance(given, list | tuple) and not all(isinstance(one, int | float) for one in given):
            each = list(given)
        influence = 0.0
        for kernel, one in zip(self.kernels, each, strict=False):
            M: Any = compatibility(one, L)
            entries = M.weight if isinstance(M, Potts) else M.values  # a matrix of many labels is not made
            span = float(entries.clamp(min=0).max() - entries.clamp(max=0).min())
            influence += float(as_tensor(kernel.weight).abs().max()) * span
        confidence = self.scores.confidence if self.scores.form == "labels" else None
        check_reach(influence, confidence, lambda: self.logits(parts))

    def _logits(self, images: slice, window: Window, known: Known | None) -> Tensor:
        ignore = None if known is None else known.ignore
        logits = self.scores.logits(images, window, self.scores_alignment, ignore)
        return logits if known is None else known.constrain(logits)

    def _domain(self, images: slice, tile: Tile, ignore: Tensor | None) -> Domain:
        """The pixels of a tile; of bytes, no copy in floating point is made unless a kernel asks for it."""
        stored = self.image.array.dtype in (torch.uint8, np.uint8) and self.scores.device.type == "cpu"
        if stored and ignore is None and self.image_alignment is None:
            pixels = self.image.pixels(images, tile.window)
            return Stored(pixels, self.scores.dtype, tile.shape, tile.origin)
        values = self._values(images, tile.window)
        if ignore is not None:
            values = without(values, ignore)
        return Domain(values, tile.shape, tile.origin, ignore=ignore)

    def _values(self, images: slice, window: Window) -> Tensor:
        """The values of the image, ``(*batch, n, channels)``."""
        dtype, device = self.scores.dtype, self.scores.device
        alignment = self.image_alignment
        source = window if alignment is None else needed(window, alignment)
        if (
            alignment is None
            and (planes := self.image.read_channels_first(dtype, images, source, device)) is not None
        ):
            return planes.mT
        values = self.image.read(dtype, images, source, device)
        if self.image.channels is None:
            values = values.unsqueeze(-1)
        if alignment is not None:
            check_finite(values, "image")
            values = resample(values, window, alignment)
        return values.flatten(-len(self.grid) - 1, -2)


@cache
def _arguments(preset: str | Preset) -> dict[str, Any]:
    """The arguments of a preset."""
    return get_preset(preset).arguments()


def without(values: Tensor, ignore: Tensor) -> Tensor:
    """Values ``(*batch, n, channels)``; ignored points get the mean of all other points."""
    mask = ignore.unsqueeze(-1)
    mean = values.masked_fill(mask, 0.0).sum(-2, keepdim=True) / (~mask).sum(-2, keepdim=True).clamp(min=1)
    return torch.where(mask, mean, values)


def _spatial_dims(
    given: int | None, probabilities: Any, from_labels: Any, spacing: Any, kernels: Sequence[Kernel]
) -> int:
    if given is not None:
        return whole(given, "spatial_dims", 1)
    entries = _entries(spacing, kernels)
    if entries is not None:
        return entries
    axes = len(as_array(probabilities, "probabilities").shape)
    no_labels = from_labels is None or (isinstance(from_labels, bool | np.bool_) and not from_labels)
    return 3 if axes == (5 if no_labels else 4) else 2


def _entries(spacing: Any, kernels: Sequence[Kernel]) -> int | None:
    """The number of entries of the spacing or of a kernel's position bandwidths; None if all are numbers."""
    scales: list[Any] = [kernel.bandwidths().get("xy") for kernel in kernels]
    for one in (spacing, *scales):
        if one is not None and not isinstance(one, float | int) and np.ndim(one) == 1 and len(one):
            return len(one)
    return None


def _warn_if_volume(image: Located, scores: Located, spacing: Any, kernels: Sequence[Kernel]) -> None:
    """Warn if two grid axes are a guess, and the shapes look like a volume."""
    if len(image.grid) != 2 or _entries(spacing, kernels) is not None:
        return
    shapes = f"image has shape {tuple(image.array.shape)} and {scores.name} {tuple(scores.array.shape)}"
    if image.batch is None and (image.channels or 0) > _MOST_COLOURS and image.channels == scores.channels:
        warn_caller(
            f"{shapes}, which is taken for {scores.batch} maps of {scores.channels} labels on one image of "
            f"{image.channels} channels. If it is a volume of {image.channels} slices, pass spatial_dims=3; "
            "if not, spatial_dims=2."
        )
    elif (image.batch or 0) >= _SLICES and (image.channels or 1) == 1:
        warn_caller(
            f"{shapes}, which is taken for a batch of {image.batch} independent grey images. If they are the "
            "slices of a volume, pass spatial_dims=3; if not, spatial_dims=2."
        )


def _alignment(
    image: Located, scores: Located, resize: str | None, align: Align, num_labels: int | None, told: bool
) -> Alignment | None:
    """The alignment of scores that are resampled to the image, or the image to them; None if neither is.

    ``num_labels`` and ``told`` are as in ``check_label_axis``.
    """
    if resize not in (None, "scores", "image"):
        raise ValueError(f"resize={resize!r} is not known; expected 'scores', 'image' or None.")
    check_batch(image, scores)
    if resize is not None:
        # A stride that fits settles it, and one that does not is refused.
        check_label_axis(image.grid, scores, num_labels=num_labels, told=told or not isinstance(align, str))
        same = image.grid == scores.grid and isinstance(align, str)
        found = aligned(image.grid, scores.grid, align, scores.name)
        return None if same else found
    if align != "centers":
        raise ValueError(
            f"align={align!r} without resize=; expected resize='scores' or "
            "resize='image', to which it belongs."
        )
    check_grid(
        image,
        scores,
        "Pass resize='scores' to bring the scores to the size of the image, or resize='image' for the "
        "image to the size of the scores.",
    )
    return None


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


def _check_memory(answers: Sequence[Located | None], inputs: Sequence[Located]) -> None:
    """Refuse arrays to write to that share memory with each other, or with inputs of parts to come."""
    labels, likely = answers
    assert labels is not None
    if likely is not None and shares_memory(labels.array, likely.array):
        raise ValueError("out[0] and out[1] share memory; expected two arrays: labels and probabilities.")
    for one in answers:
        for given in inputs:
            if one is not None and shares_memory(one.array, given.array):
                raise ValueError(
                    f"{one.name} shares memory with {given.name}, which is solved in several parts: a later "
                    f"part would read results in place of {given.name}. Pass a new array as out=, a copy of "
                    f"{given.name}, or tile=False and more memory= to solve everything at once."
                )


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

"""The memory of a video between two frames: the lattice, the colours and the probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fwcrf.features import reciprocals
from fwcrf.inputs.arrays import Window
from fwcrf.inputs.numbers import real
from fwcrf.kernels.kernel import Bandwidth, Domain, Kernel
from fwcrf.pairwise import Pairwise
from fwcrf.torch_ops.printed import in_one_line


class Frames:
    """The memory of a video, which ``refine(..., frames=...)`` reads and writes. A ``fwcrf.Stream`` has one.

    It forgets by itself when size, labels, dtype or device change, and at a cut. A frame that fails leaves
    it as it was.
    """

    __repr__ = in_one_line

    def __init__(
        self,
        *,
        coherence: float = 0.0,
        color: Bandwidth | None = None,
        start: Literal["scores", "previous"] = "scores",
        cut: float = 0.1,
    ) -> None:
        self.coherence: float = real(coherence, "coherence", "0 or more", lambda w: 0 <= w < math.inf)
        self.color = color
        if start not in ("scores", "previous"):
            raise ValueError(f"start={start!r} is not known; expected 'scores' or 'previous'.")
        self.start: str = start
        self.cut: float = real(cut, "cut", "a share from 0 to 1", lambda share: 0 <= share <= 1)
        self.reset()

    def reset(self) -> None:
        """Forget all frames, as at a cut."""
        self.count: int = 0  # frames since the last reset or cut
        self.similarity: float | None = None  # mean weight of the frame before, of 1, in the last frame
        self.probabilities: Tensor | None = None  # of the last frame, (*batch, *grid, L), if they are kept
        self.kept_lattices: int = 0  # of frames that equalled the frame before
        self._like: Tensor | None = None  # shape, dtype and device of probabilities
        self._values: Tensor | None = None  # colours of the last frame, (*batch, *grid, channels)
        self._weights: Tensor | None = None  # of the pixels of the frame before, (*batch, *grid, 1)
        self._new: tuple[Tensor, Tensor] | None = None  # colours and probabilities of this frame
        self._spare: Tensor | None = None  # memory for probabilities
        self._lattice: tuple[Any, Domain, Pairwise] | None = None

    @property
    def keeps_probabilities(self) -> bool:
        """True if the next frame needs the probabilities of this one."""
        return self.coherence > 0 or self.start == "previous"

    def begin(self, like: Tensor, read: Callable[[], Tensor], kernels: Sequence[Kernel]) -> None:
        """Compare a frame with the frame before.

        ``like`` has the shape ``(*batch, *grid, L)``, the dtype and the device of its probabilities, and
        ``read`` returns its colours ``(*batch, *grid, channels)``.
        """
        if self._like is not None and not _alike(self._like, like):
            self.reset()
        self._like, self._weights, self._new = like, None, None
        if not self.keeps_probabilities:
            return
        values = read()
        if self._values is not None and not _alike(self._values, values):
            self.reset()
            self._like = like
        if self.coherence > 0:
            inverse = reciprocals(self._color(kernels), "color", values)
            if self._values is not None:
                distances = ((values - self._values) * inverse).square_().sum(-1, keepdim=True)
                weights = distances.div_(-2).exp_().nan_to_num_(0.0)
                found = float(weights.mean())
                if found < self.cut:
                    self.reset()
                    self._like = like
                else:
                    self._weights = weights.mul_(self.coherence)
                self.similarity = found
        spare, self._spare = self._spare, None
        if spare is None:
            spare = torch.empty_like(like, memory_format=torch.contiguous_format)
        self._new = (values.clone(), spare)

    def add_prior(self, unary: Tensor, images: slice, window: Window, ignore: Tensor | None) -> None:
        """Take the weight of each pixel's labels in the frame before from the energies ``(*batch, n, L)``."""
        if self._weights is None or self.probabilities is None:
            return
        where = _index(self.probabilities, images, window)
        prior = (self._weights[where] * self.probabilities[where]).flatten(-1 - len(window), -2)
        unary -= prior if ignore is None else prior.masked_fill(ignore.unsqueeze(-1), 0.0)

    def first(self, images: slice, window: Window) -> Tensor | None:
        """The probabilities ``(*batch, n, L)`` to start from; None to start from the scores."""
        if self.start != "previous" or self.probabilities is None:
            return None
        found = self.probabilities[_index(self.probabilities, images, window)]
        return found.flatten(-1 - len(window), -2)

    def keep(self, images: slice, core: Window, x: Tensor) -> None:
        """Note the probabilities ``(*batch, *core, L)`` of a part of the frame."""
        if self._new is not None:
            self._new[1][_index(self._new[1], images, core)] = x

    def end(self) -> None:
        """The frame is done: the next one is compared with it."""
        self.count += 1
        if self._new is not None:
            self._spare = self.probabilities
            self._values, self.probabilities = self._new
            self._new = None

    def known(self, settings: tuple[Any, ...], domain: Domain) -> Pairwise | None:
        """The pairwise part of the last frame, lattice included, if settings and domain are equal to its own.

        A lattice depends on every colour, so that nothing less than equality gives the same labels.
        """
        last = self._lattice
        if last is not None and domain.ignore is None and last[0] == settings and _same(last[1], domain):
            self.kept_lattices += 1
            return last[2]
        self._lattice = None  # freed before another one is built
        return None

    def note(self, settings: tuple[Any, ...], domain: Domain, found: Pairwise) -> None:
        """Keep the pairwise part of a domain for ``known``."""
        if domain.ignore is None and domain.values is not None and all(map(_settled, settings)):
            # The caller may write the next frame into the same memory.
            copy = Domain(domain.values.clone(), domain.grid, domain.origin)
            self._lattice = settings, copy, found

    def _color(self, kernels: Sequence[Kernel]) -> Bandwidth:
        if self.color is not None:
            return self.color
        for kernel in kernels:
            if "color" in kernel.bandwidths():
                return kernel.bandwidths()["color"]
        raise ValueError(
            f"coherence={self.coherence:g} compares colours with the frame before, and no kernel has a "
            "bandwidth of colours; expected color=, a standard deviation in grey levels."
        )


def _index(array: Tensor, images: slice, window: Window) -> tuple[slice, ...]:
    return (images, *window) if array.dim() == len(window) + 2 else tuple(window)


def _alike(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _same(one: Domain, other: Domain) -> bool:
    a, b = one.values, other.values
    return (
        (one.grid, one.origin) == (other.grid, other.origin)
        and b is not None
        and _alike(a, b)
        and a is not None
        and torch.equal(a, b)
    )


def _settled(value: Any) -> bool:
    """True for settings that nobody can change later, and that ``==`` compares: kernels, numbers, tuples."""
    if isinstance(value, Kernel):
        return all(map(_settled, vars(value).values()))
    if isinstance(value, tuple | list):
        return all(map(_settled, value))
    return value is None or isinstance(value, int | float | str)

"""Robust P^n terms over given segments, such as superpixels, beside the pairwise part of a dense model.

A segment c of n_c pixels costs ``weight`` times

    n_c min(1, d_c / tolerance),  d_c = the least share of its pixels that differ from one label

(Kohli, Ladicky and Torr 2009): labels that agree cost nothing, few outliers a little, and from the share
``tolerance`` on all labellings cost the same. No pairwise Potts model can express that: pairs pay for each
disagreement anew.

The continuous term is the least cost over a label z for the whole segment, one of the L labels or "free",
smoothed by an entropy of weight ``temperature``:

    weight n_c min over z of sum_l z(l) d_c(l) / tolerance + z(free) - temperature H(z),
    d_c(l) = 1 - mean of x_i(l) over the segment.

It is concave in x and below the cost of labels by at most weight n_c temperature log(L + 1). Its gradient for
pixel i is -weight / tolerance z(l): the message of the segment, computed in O(n L). Mean field, Frank-Wolfe
and the other first-order solvers use it as it is; f stays semi-concave with the constant of the pairwise
part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from fwcrf.energy import Energy, inner, linear
from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model
from fwcrf.inputs.arrays import Located, Window
from fwcrf.inputs.masks import read_map
from fwcrf.inputs.numbers import real
from fwcrf.inputs.scores import Scores
from fwcrf.pairwise import Pairwise, SelfEdges
from fwcrf.rounding import Rounding
from fwcrf.torch_ops.native import as_tensor, has_values
from fwcrf.torch_ops.printed import in_one_line

__all__ = ["Agreement", "BesideSegments", "SegmentEnergy", "Segments", "with_segments"]

# Arrays of the size of the scores at the peak of a run with terms over segments, measured.
SEGMENT_ARRAYS = 24


@dataclass(frozen=True, eq=False)
class Segments:
    """One segmentation with its costs."""

    ids: Tensor  # (n,) or (*batch, n), int64: 0 to count - 1, different for all images; count for none
    sizes: Tensor  # (count,)
    weight: float | Tensor
    tolerance: float
    temperature: float

    __repr__ = in_one_line

    def shares(self, x: Tensor) -> Tensor:
        """1 - mean of x over each segment, ``(count, L)``; common segments: ``(images, count, L)``."""
        count, L = len(self.sizes), x.shape[-1]
        if self.ids.dim() == 1 and x.dim() > 2:
            flat = x.reshape(-1, *x.shape[-2:])
            sums = flat.new_zeros(len(flat), count + 1, L).index_add(1, self.ids, flat)
        else:
            sums = x.new_zeros(count + 1, L).index_add(0, self.ids.flatten(), x.reshape(-1, L))
        return 1 - sums[..., :count, :] / self.sizes.to(x).unsqueeze(-1)

    def costs(self, x: Tensor) -> Tensor:
        """d / tolerance of all labels, and 1 for the free label; ``(..., count, L + 1)``."""
        d = self.shares(x) / self.tolerance
        return torch.cat([d, torch.ones_like(d[..., :1])], -1)

    def value(self, x: Tensor, *, exact: bool = False) -> Tensor:
        """The term, smoothed or ``exact``, per image ``(*batch,)`` in float64."""
        c = self.costs(x)
        least = c.amin(-1) if exact else -self.temperature * torch.logsumexp(-c / self.temperature, -1)
        each = (self.sizes.to(x) * least).double()
        if self.ids.dim() == 1 and x.dim() > 2:
            return self.weight * each.sum(-1).view(x.shape[:-2])
        if x.dim() == 2:
            return self.weight * each.sum()
        image = torch.zeros(len(self.sizes) + 1, dtype=torch.int64, device=x.device)
        number = torch.arange(x.shape[:-2].numel(), device=x.device)
        rows = self.ids.reshape(len(number), -1)
        image = image.scatter(0, rows.flatten(), number.repeat_interleave(rows.shape[1]))
        total = each.new_zeros(len(number)).index_add(0, image[:-1], each)
        return self.weight * total.view(x.shape[:-2])

    def grad(self, x: Tensor) -> Tensor:
        z = torch.softmax(-self.costs(x) / self.temperature, -1)[..., :-1]
        z = torch.cat([z, torch.zeros_like(z[..., :1, :])], -2)  # pixels in no segment
        sent = z[..., self.ids.flatten(), :].view(x.shape)
        return (-self.weight / self.tolerance) * sent


@dataclass(frozen=True, repr=False, eq=False)  # printed and compared as an Energy is
class SegmentEnergy(Energy):
    """E(x) = <x, P x> / 2 + <u, x> + terms over segments. ``of_labels`` has the exact terms."""

    terms: tuple[Segments, ...] = ()

    def value(self, x: Tensor) -> Tensor:
        return (
            0.5 * inner(x, self._quadratic(x)) + linear(self.unary, x) + sum(t.value(x) for t in self.terms)
        )

    def value_from_grad(self, x: Tensor, grad: Tensor) -> Tensor:
        quadratic = grad - sum(t.grad(x) for t in self.terms)
        return 0.5 * (linear(quadratic, x) + linear(self.unary, x)) + sum(t.value(x) for t in self.terms)

    def grad(self, x: Tensor) -> Tensor:
        return self._quadratic(x) + self.unary + sum(t.grad(x) for t in self.terms)

    def hessian(self, d: Tensor) -> Tensor:
        _refuse("an exact line search")

    @property
    def smoothness(self) -> Tensor:
        """L_f of the pairwise part: the terms are concave."""
        return self.below.smoothness

    @property
    def below(self) -> Energy:
        """The energy without the terms, which are at least 0."""
        return Energy(_plain(self.pairwise), self.unary, checked=True)

    def of_labels(self, labels: Tensor) -> Tensor:
        x = torch.nn.functional.one_hot(labels, self.unary.shape[-1]).to(self.unary)
        exact = self.below.of_labels(labels)
        return exact + sum(t.value(x, exact=True) for t in self.terms)

    def _quadratic(self, x: Tensor) -> Tensor:
        if hasattr(self.pairwise, "applications"):
            self.pairwise.applications += 1  # type: ignore[attr-defined]
        return _plain(self.pairwise)(x)


class BesideSegments(Pairwise):
    """The pairwise part of a ``SegmentEnergy``, hidden from methods that would take it for the whole."""

    def __init__(self, part: Pairwise) -> None:
        self.part = part

    __repr__ = in_one_line

    def check(self, x: Tensor) -> None:
        self.part.check(x)

    def engine(self) -> Model | Refusal:
        return Refusal("the energy has terms over segments")

    def __call__(self, x: Tensor) -> Tensor:
        _refuse("a method for quadratic energies")

    def to_dense(self) -> Tensor:
        _refuse("a method for quadratic energies")

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        _refuse("a split of the energy")

    def self_edges(self) -> list[SelfEdges] | None:
        _refuse("a split of the energy")

    def descend(self, unary: Tensor, x: Tensor, **settings: Any) -> Tensor | None:
        _refuse("rounding='bcd'")

    def label_products(self, x: Tensor) -> NoReturn:
        _refuse("rounding='merge'")


def with_segments(
    energy: Energy,
    segments: Any,
    weight: float | Tensor = 1.0,
    *,
    tolerance: float = 0.3,
    temperature: float = 0.05,
) -> SegmentEnergy:
    """``energy`` with a robust P^n term over segments, for ``fwcrf.minimize``.

    ``segments`` are whole numbers, one per pixel, ``(n,)`` or any shape with n entries, common to all images,
    or ``(*batch, n)``; a negative number is no segment. ``weight`` is the most that a pixel's share of its
    segment can cost. Further segmentations are added by further calls.

    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> u = torch.tensor([[0.0, 2.0], [0.0, 2.0], [0.5, 0.0]])
    >>> E = with_segments(Energy(dense([Exact(torch.eye(3))], num_labels=2), u), [0, 0, 0], tolerance=0.5)
    >>> E.of_labels(torch.tensor([0, 0, 1])) - E.of_labels(torch.tensor([0, 0, 0])) > 0
    tensor(True)
    """
    given = Agreement(segments, weight, tolerance, temperature)
    ids = as_tensor(segments)
    if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise TypeError(f"segments has dtype {ids.dtype}; expected whole numbers, one segment per pixel.")
    shape = energy.unary.shape[:-1]
    if ids.numel() == shape[-1]:
        ids = ids.reshape(-1)
    elif ids.numel() == shape.numel():
        ids = ids.reshape(shape)
    else:
        raise ValueError(
            f"segments has shape {tuple(ids.shape)}; expected {shape[-1]} numbers, one per pixel, or "
            f"{tuple(shape)}."
        )
    ids = ids.to(energy.unary.device).long()
    outside = ids < 0
    if ids.dim() > 1:  # different numbers for each image
        names, ids = ids.unique(return_inverse=True)
        first = len(names) * torch.arange(ids[..., 0].numel(), device=ids.device)
        ids = ids + first.view(*ids.shape[:-1], 1)
    kept, where, sizes = ids[~outside].unique(return_inverse=True, return_counts=True)
    numbered = torch.full_like(ids, len(kept))
    numbered[~outside] = where
    term = Segments(numbered, sizes, given.weight, given.tolerance, given.temperature)
    earlier = energy.terms if isinstance(energy, SegmentEnergy) else ()
    P = energy.pairwise if isinstance(energy, SegmentEnergy) else BesideSegments(energy.pairwise)
    return SegmentEnergy(P, energy.unary, checked=True, terms=(*earlier, term))


@dataclass(frozen=True, eq=False)
class Agreement:
    """Segments whose pixels should agree, with the settings of their term: ``segments`` of ``fwcrf.refine``.

    ``weight`` is the most that a pixel's share of its segment can cost, ``tolerance`` the share of outliers
    from which on all labellings of a segment cost the same, ``temperature`` the smoothness of the term.
    """

    segments: Any
    weight: float | Tensor = 1.0
    tolerance: float = 0.3
    temperature: float = 0.05

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        weight = self.weight
        if not isinstance(weight, Tensor):
            weight = real(weight, "weight", "0 or more", lambda w: 0 <= w < float("inf"))
        elif has_values(weight) and not bool(((weight >= 0) & (weight < torch.inf)).all()):
            raise ValueError(f"weight={weight}; expected 0 or more.")
        checked = {
            "weight": weight,
            "tolerance": real(self.tolerance, "tolerance", "above 0, to 1", lambda t: 0 < t <= 1),
            "temperature": real(self.temperature, "temperature", "above 0", lambda t: 0 < t < float("inf")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


class Terms(NamedTuple):
    """The segmentations of a user, each with its map ``(*batch, *grid)``."""

    maps: Sequence[Located]
    settings: Sequence[Agreement]

    __repr__ = in_one_line

    def read(self, images: slice, window: Window, ignore: Tensor | None, device: torch.device) -> Here:
        """The segments of some images in a window. Ignored pixels are in none."""
        found = []
        for one in self.maps:
            ids = one.read(torch.int64, images, window, device).flatten(-len(window))
            found.append(ids if ignore is None else torch.where(ignore, -1, ids))
        return Here(found, self.settings)


class Here(NamedTuple):
    """Segments of the pixels of a window, ``(*batch, n)`` each."""

    ids: Sequence[Tensor]
    settings: Sequence[Agreement]

    __repr__ = in_one_line

    def added_to(self, energy: Energy) -> Energy:
        """The energy with a term for each segmentation."""
        for ids, of in zip(self.ids, self.settings, strict=True):
            energy = with_segments(energy, ids, of.weight, tolerance=of.tolerance, temperature=of.temperature)
        return energy


def read_segments(given: Any, scores: Scores, grid: Sequence[int], rounding: str | Rounding) -> Terms:
    """The segments that a user passes: a map, an ``Agreement``, or a list of these."""
    if isinstance(rounding, str) and rounding != "nearest":
        _refuse(f"rounding={rounding!r}")
    expected = "{name} has dtype {dtype}; expected whole numbers: a segment per pixel, and -1 for none."
    each = [
        one if isinstance(one, Agreement) else Agreement(one)
        for one in (given if isinstance(given, list | tuple) else [given])
    ]
    maps = [read_map(one.segments, "segments", "i", expected, scores, grid) for one in each]
    return Terms([one for one in maps if one is not None], each)


def _plain(P: Pairwise) -> Pairwise:
    P = getattr(P, "operator", P) if hasattr(P, "applications") else P  # a trace counts the applications
    assert isinstance(P, BesideSegments)
    return P.part


def _refuse(method: str) -> NoReturn:
    raise TypeError(
        f"{method} with terms over segments; expected rounding='nearest' and a solver that uses gradients "
        "only: mf, fw, efw, l2fw, anneal-fw, emd or pgd, with a schedule of step sizes."
    )

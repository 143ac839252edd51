"""Scores of a network in several forms, as logits.

========================  =====================================================================
probabilities             log p, at least log 1e-8: a probability of 0 makes a label very unlikely, but
                          only a logit of -inf forbids it
logits                    unchanged
a label map               log(c / (1 - c)) for the given label and 0 for all other labels, so that c is
                          the probability of the given label against any one other label
one channel, or none      label 1 against label 0: the probability of label 1, or its logit
========================  =====================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from fwcrf.inputs.arrays import Located, Window, distinct, extremes, kind, locate
from fwcrf.inputs.numbers import real, whole
from fwcrf.inputs.resample import Alignment, needed, resample
from fwcrf.inputs.tiles import sample
from fwcrf.torch_ops import shares
from fwcrf.torch_ops.layout import unary_from_scores
from fwcrf.torch_ops.magnitudes import ENERGY
from fwcrf.torch_ops.native import LARGEST, warn_caller

# The default confidence in a label map.
CONFIDENCE = 0.7
_LEAST = 1e-8
_SUM_TOLERANCE = 1e-3
# The largest error of a probability that is rounded to two digits.
_ROUNDED = 0.005
# A share below which labels are equally rare.
FLOOR = 0.01

Form = Literal["probabilities", "logits", "labels"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of pixels or points, read part by part."""

    located: Located
    form: Form
    num_labels: int
    confidence: float = CONFIDENCE
    warned: set[str] = field(default_factory=set)

    @property
    def single(self) -> bool:
        """True if one number per pixel stands for two labels."""
        return self.form != "labels" and self.located.channels in (None, 1)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the computation: float64 for float64 scores, else float32."""
        wide = self.form != "labels" and self.located.array.dtype in (torch.float64, np.float64)
        return torch.float64 if wide else torch.float32

    @property
    def device(self) -> torch.device:
        return self.located.array.device if self.located.is_torch else torch.device("cpu")

    def logits(
        self,
        images: slice,
        window: Window,
        alignment: Alignment | None = None,
        ignore: Tensor | None = None,
    ) -> Tensor:
        """Logits of the pixels of a window, ``(*batch, n, L)``, contiguous.

        With an ``alignment``, the window is a part of the grid to which the scores are resampled. Pixels in
        ``ignore``, ``(*batch, n)``, get equal scores if their own are not valid.
        """
        dims = len(self.located.grid)
        source = window if alignment is None else needed(window, alignment)
        if self.form == "labels":
            values = self._of_labels(self.located.read(torch.int64, images, source, self.device))
        else:
            values = self.located.read(self.dtype, images, source, self.device)
            if self.located.channels is None:
                values = values.unsqueeze(-1)
            if self.single:
                other = torch.zeros_like(values) if self.form == "logits" else 1 - values
                values = torch.cat([other, values], -1)
            aside = None
            if ignore is not None and alignment is None:
                pixels = values.shape[:-1]
                aside = ignore.unflatten(-1, pixels[-dims:]).expand(pixels)
                values = _settled(values, aside, self.form)
            # NaN in logits is found later: ``unary_from_logits`` reads all of them anyway.
            if self.form == "probabilities" or alignment is not None:
                values = self._checked(values, aside)
        if alignment is not None:
            if not torch.isfinite(values).all():
                raise ValueError(
                    f"{self.located.name} has infinite values and another size than the image; expected "
                    "finite ones, to interpolate between. Resize them to the image beforehand."
                )
            # Sums of numbers near the end of the float range would overflow.
            factor = 2.0**40 if bool((values.abs() > ENERGY).any()) else 1.0
            values = resample(values / factor, window, alignment) * factor
        if self.form == "probabilities":
            values = values.clamp(min=_LEAST).log()
        return values.flatten(-dims - 1, -2).contiguous()

    def unary(self, images: slice, window: Window) -> Tensor | None:
        """Energies ``(*batch, n, L)``, all finite, computed in one pass over the scores.

        None if the scores are a label map, single, infinite or very large, or need a warning
        or an error: use ``logits`` then.
        """
        where = self.dtype, images, window, self.device
        if self.form == "labels" or self.single:
            return None
        values = self.located.read_channels_first(*where)
        last = values is None
        if values is None:
            values = self.located.read(*where).flatten(-len(self.located.grid) - 1, -2)
        likely = self.form == "probabilities"
        unary, extent = unary_from_scores(values, labels_last=last, floor=_LEAST if likely else None)
        if extent is None or not extent.ordinary:
            return None
        return unary if not likely or self._ordinary(*extent[1:]) else None

    def rarity(self, ignore: Callable[[Window], Tensor | None] | None = None) -> Tensor:
        """``rarity`` of the labels in whole images; ``ignore`` returns the ignored pixels of a window."""
        window = sample(self.located.whole)
        aside = None if ignore is None else ignore(window)
        return rarity(self.logits(slice(None), window, ignore=aside), aside)

    def _ordinary(self, least: float, most: float, low: float, high: float) -> bool:
        """True if probabilities with these extremes, also of their sums, need no warning and no error."""
        return least > 0 and most < torch.inf and self._sums_to_one(low, high)

    def _sums_to_one(self, low: float, high: float) -> bool:
        return max(high - 1, 1 - low) <= max(_SUM_TOLERANCE, _resolution(self.located.array))

    @property
    def given_channels(self) -> int | None:
        """The number of channels in the user's scores, None without such an axis; L for a label map."""
        return self.num_labels if self.form == "labels" else self.located.channels

    @property
    def given_dtype(self) -> Any:
        """The dtype of the user's scores, a dtype of torch or numpy; float32 for a label map."""
        if self.form != "labels":
            return self.located.array.dtype
        return torch.float32 if self.located.is_torch else np.float32

    def given(self, x: Tensor) -> Tensor:
        """Probabilities ``(*, L)`` in the form of the user's scores: label 1 only if they are ``single``."""
        if not self.single:
            return x
        return x[..., 1] if self.located.channels is None else x[..., 1:]

    def _of_labels(self, labels: Tensor) -> Tensor:
        gap = math.log(self.confidence / (1 - self.confidence))
        every = torch.arange(self.num_labels, device=labels.device)
        return (labels.unsqueeze(-1) == every).to(self.dtype) * gap

    def _checked(self, values: Tensor, ignore: Tensor | None) -> Tensor:
        name = self.located.name
        if torch.isnan(values.sum()) and torch.isnan(values).any():
            raise ValueError(
                f"{name} has {int(torch.isnan(values).sum())} NaN entries, of {values.numel()}; expected "
                "numbers. Pixels without scores can be left out: ignore= takes a mask."
            )
        if self.form == "logits":
            return values
        least, most = (float(v) for v in values.aminmax())
        if self.single and least < 0:
            low, high = (float(v) for v in values[..., 1].aminmax())
            raise ValueError(
                f"{name} has one channel with values from {low:.4g} to {high:.4g}; expected the probability "
                "of label 1, from 0 to 1. If these are logits, pass from_logits=True."
            )
        if least < 0:
            raise ValueError(
                f"{name} has negative values, down to {least:.4g}; expected probabilities. If these are "
                "logits, pass from_logits=True."
            )
        if most == torch.inf:
            raise ValueError(f"{name} has infinite values; expected probabilities, from 0 to 1.")
        sums = values.sum(-1)
        counted = sums if ignore is None else sums[~ignore]
        if counted.numel() == 0:
            return values
        low, high = (float(v) for v in counted.aminmax())
        if low <= 0:
            raise ValueError(
                f"{name} is 0 for all labels in {int((counted <= 0).sum())} pixels; expected sums of 1. "
                "Pixels without scores can be left out: ignore= takes a mask."
            )
        if least == 0 and bool((values.amax(-1) == sums).all()):
            self._warn(
                "certain",
                f"{name} holds one value per pixel and 0 otherwise, a label map: a CRF can hardly change "
                f"it. Pass the labels with a confidence: from_labels={CONFIDENCE}.",
            )
        elif least == 0:
            self._warn(
                "zeros",
                f"{name} has entries of exactly 0; they are taken as {_LEAST:g}. Such a label can "
                "hardly win, whatever the image says: np.clip(probabilities, 0.001, 1) is more modest. To "
                "forbid a label for certain, pass logits with -inf.",
            )
        if self._sums_to_one(low, high):
            return values
        self._warn(
            "sums",
            f"{name} sums to {low:.4g} ... {high:.4g} over the labels; expected 1, and is divided by that. "
            "If these are logits, pass from_logits=True; if the labels are on another axis, move them: "
            f"{'first, or after the batch, in a tensor' if self.located.is_torch else 'channel_axis='}.",
        )
        return values / sums.unsqueeze(-1)

    def _warn(self, topic: str, message: str) -> None:
        """Issue a warning once per topic, for all parts together."""
        if topic not in self.warned:
            self.warned.add(topic)
            warn_caller(message)


def check_balance(value: Any) -> float:
    """The number from 0 to 1 that a user passes as ``balance``."""
    return real(value, "balance", "a number from 0 (none) to 1", lambda b: 0 <= b <= 1)


def rarity(logits: Tensor, ignore: Tensor | None = None) -> Tensor:
    """``shares.rarity`` with shares below which labels are equally rare."""
    return shares.rarity(logits, FLOOR, ignore)


def read_scores(
    value: Any,
    spatial_dims: int,
    channel_axis: int | None = -1,
    *,
    from_logits: bool = False,
    from_labels: bool | float | None = None,
    num_labels: int | None = None,
    alike: bool = False,
    ignore: Any = None,
) -> Scores:
    """The scores that a user passes as ``probabilities``; ``arrays.locate`` finds their axes.

    A label map may have any numbers at the pixels of the mask ``ignore``.
    """
    if num_labels is not None:
        num_labels = whole(num_labels, "num_labels", 2)
    if from_labels is None or (isinstance(from_labels, bool | np.bool_) and not from_labels):
        name = "logits" if from_logits else "probabilities"
        axis = -1 if channel_axis is None else channel_axis
        return _read_numbers(locate(value, name, spatial_dims, axis, alike=alike), from_logits, num_labels)
    if from_logits:
        raise ValueError("from_logits and from_labels are both given; expected one of them.")
    confidence = CONFIDENCE
    if not isinstance(from_labels, bool | np.bool_):
        expected = (
            "True, or a confidence between 0.5 (no information) and 1 (certain): the probability of the "
            "given label against any one other label"
        )
        confidence = real(from_labels, "from_labels", expected, lambda c: 0.5 < c < 1)
    located = locate(value, "the label map", spatial_dims, channels=False)
    if kind(located.array) not in "bi":
        raise TypeError(
            f"the label map has dtype {located.array.dtype}; expected integers: convert with "
            f"{'.long()' if located.is_torch else '.astype(int)'}, or omit from_labels for probabilities."
        )
    return Scores(located, "labels", _num_labels(located, num_labels, ignore), confidence)


def _read_numbers(located: Located, from_logits: bool, num_labels: int | None) -> Scores:
    name = located.name
    array = located.array
    if kind(array) != "f":
        labels = "For a label map pass from_labels=True. " if kind(array) in "bi" else ""
        bytes_ = "For scores stored as bytes divide by 255. " if str(array.dtype).endswith("uint8") else ""
        raise TypeError(f"{name} has dtype {array.dtype}; expected floating point. {labels}{bytes_}".rstrip())
    found = max(2, located.channels or 1)
    if num_labels is not None and num_labels != found:
        raise ValueError(
            f"{name} has shape {tuple(array.shape)}, {found} labels, and num_labels={num_labels}; expected "
            f"as many. Labels come {'before the grid' if located.is_torch else 'last, or at channel_axis='}."
        )
    if from_logits:
        check_logits(located)
    return Scores(located, "logits" if from_logits else "probabilities", found)


def check_logits(logits: Located) -> None:
    """Warn if logits are probabilities, to judge by some rows of them."""
    if float(logits.sample(1).min()) < 0:
        return  # as most logits; only a few rows are read
    values = logits.sample()
    low, high = (float(v) for v in values.aminmax())
    if logits.channels in (None, 1):
        found = f"from {low:.3g} to {high:.3g}" if 0 <= low < high <= 1 else None
    else:
        tolerance = max(_SUM_TOLERANCE, _resolution(logits.array), 1.01 * _ROUNDED * values.shape[-1])
        sums_to_one = 0 <= low < high <= 1 + _SUM_TOLERANCE and bool(
            ((values.sum(-1) - 1).abs() <= tolerance).all()
        )
        found = "that are not negative and sum to 1 over the labels" if sums_to_one else None
    if found is not None:
        warn_caller(
            f"{logits.name} has values {found}, as probabilities do; as logits they hardly favour any label. "
            "Expected logits: pass probabilities to fwcrf.refine without from_logits=True, and to a layer as "
            "their logarithm (of one probability per pixel, torch.logit)."
        )


def _num_labels(located: Located, num_labels: int | None, ignore: Any) -> int:
    """L of a label map. Labels of ignored pixels count too, unless they are too large."""
    found = _count_labels(located, num_labels)
    if found is None and ignore is not None:
        mask = locate(ignore, "ignore", len(located.grid), channels=False)
        if mask.grid == located.grid and mask.batch in (None, located.batch) and kind(mask.array) in "bi":
            found = _count_labels(located, num_labels, mask)
    return _refuse_labels(located, num_labels) if found is None else found


def _count_labels(located: Located, num_labels: int | None, ignore: Located | None = None) -> int | None:
    """L of a label map without its ignored pixels; None if it has too large labels."""
    high = extremes(located, ignore)[1]
    if num_labels is not None and high < num_labels:
        return num_labels
    if num_labels is None and high < 255:
        return max(2, high + 1)
    if num_labels is None and 255 < high < 2 * len(distinct(located, ignore)):
        return high + 1
    return None


def _refuse_labels(located: Located, num_labels: int | None) -> NoReturn:
    high = extremes(located)[1]
    if high == LARGEST:
        raise ValueError(
            "the label map has labels from 2^63 on; expected small ones, from 0 on. If they mark pixels "
            "without a label, set them to -1: "
            + ("labels.long().clamp(min=-1)." if located.is_torch else "labels.astype(int).clip(-1).")
        )
    unlabelled = (
        f"labels.long().masked_fill(labels == {high}, -1)"
        if located.is_torch
        else f"np.where(labels == {high}, -1, labels.astype(int))"
    )
    if num_labels is None and high > 255:
        again = "labels.unique" if located.is_torch else "np.unique"
        found = len(distinct(located))
        raise ValueError(
            f"the label map has {found} labels, up to {high}; expected labels from 0 on, most of which "
            f"occur. If {high} marks pixels without a label, set them to -1: {unlabelled}. "
            f"{again}(labels, return_inverse=True) numbers labels from 0 on. If there are so many, pass "
            f"num_labels={high + 1}."
        )
    expected = "fewer" if num_labels is None else f"at most {num_labels - 1}, of num_labels={num_labels}"
    raise ValueError(
        f"the label map has labels up to {high}; expected {expected}. If {high} marks pixels without a "
        f"label, set them to -1: {unlabelled}. If it is the foreground of a mask, pass mask > 0. If there "
        f"are so many labels, pass num_labels={high + 1}."
    )


def _settled(values: Tensor, ignore: Tensor, form: Form) -> Tensor:
    """The values, with equal scores for ignored pixels whose scores are not valid."""
    invalid = torch.isnan(values).any(-1)
    if form == "probabilities":
        invalid = invalid | (values < 0).any(-1) | ~torch.isfinite(values).all(-1) | (values.sum(-1) <= 0)
    else:
        invalid = invalid | (values == -torch.inf).all(-1)
    return values.masked_fill((invalid & ignore).unsqueeze(-1), 1 / values.shape[-1])


def _resolution(array: Any) -> float:
    dtype = array.dtype
    if isinstance(dtype, torch.dtype):
        return torch.finfo(dtype).eps
    return float(np.finfo(dtype).eps)

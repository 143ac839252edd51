"""Layers of napari as arrays for ``fwcrf.refine``, frame by frame."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fwcrf.refinement import refine

Kind = Literal["labels", "probabilities", "logits"]
Shape = tuple[int, ...]


class Cancelled(Exception):
    """The user has cancelled the work."""


@dataclass(frozen=True, eq=False)
class Frames:
    """An image and scores with any number of axes before the grid, such as time.

    ``image`` is ``(*frames, *grid)``, or ``(*frames, *grid, 3)`` if ``rgb``. Scores are labels
    ``(*frames, *grid)``, or probabilities or logits, ``(labels, *frames, *grid)``, or of label 1
    ``(*frames, *grid)``. ``scribbles`` are labels, 0 where there is none; the number ``zero`` is label 0. If
    they have the axis of the labels too, as a layer that is made for such scores, they are taken together. An
    array without axes before the grid is the same for all frames.
    """

    image: Any
    scores: Any
    kind: Kind
    axes: int  # of the grid, 2 or 3
    rgb: bool = False
    limits: tuple[float, float] | None = None  # the values that are shown as black and white
    scribbles: Any = None
    zero: int = 255
    spacing: tuple[float, ...] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def grid(self) -> Shape:
        return self._extent(self.image, self.rgb)[-self.axes :]

    @property
    def frames(self) -> Shape:
        """The sizes of the axes before the grid, those of the image or of the scores."""
        each = [self._extent(self.image, self.rgb), self._shape_of_scores]
        return max((shape[: -self.axes] for shape in each), key=len)

    @property
    def count(self) -> int:
        return math.prod(self.frames)

    @property
    def has_labels_axis(self) -> bool:
        """True if the first axis of the scores is that of the labels."""
        if self.kind == "labels":
            return False
        image = self._extent(self.image, self.rgb)
        return tuple(self.scores.shape) != image and len(self.scores.shape) > self.axes

    @property
    def _shape_of_scores(self) -> Shape:
        return tuple(self.scores.shape)[int(self.has_labels_axis) :]

    @property
    def _scribbles_have_labels_axis(self) -> bool:
        return self.has_labels_axis and tuple(self.scribbles.shape) == tuple(self.scores.shape)

    def check(self) -> None:
        """Raise ValueError if the arrays do not fit each other."""
        extent = self._extent(self.image, self.rgb)
        if len(extent) < self.axes:
            raise ValueError(
                f"the image has shape {tuple(self.image.shape)}; expected {self.axes} grid axes or more."
            )
        named = {"scores": self._shape_of_scores}
        if self.scribbles is not None:
            named["scribbles"] = tuple(self.scribbles.shape)[int(self._scribbles_have_labels_axis) :]
        whole = (*self.frames, *self.grid)
        alike = f", or {self.grid} for all frames alike" if self.frames else ""
        for name, shape in {"image": extent, **named}.items():
            if shape not in (whole, self.grid):
                raise ValueError(
                    f"the {name} have shape {shape}, and image and scores {whole} together; expected "
                    f"{whole}{alike}."
                )

    def refined(self, ticked: Callable[[int, int, int], None]) -> np.ndarray:
        """Labels ``(*frames, *grid)``. ``ticked`` gets the frame, and the parts of it done and in all."""
        self.check()
        names = self._names() if self.kind == "labels" else None
        arguments = dict(self.arguments)
        if names is None:
            arguments.pop("from_labels", None)
        else:
            arguments = {"from_labels": True, "num_labels": len(names), **arguments}
        labels = np.empty((*self.frames, *self.grid), np.uint8)
        for number, at in enumerate(self._places()):
            found = refine(
                self._image(at), self._scores(at, names),
                channel_axis=-1, from_logits=self.kind == "logits", spatial_dims=self.axes,
                spacing=self.spacing, scribbles=self._scribbles(at, names),
                progress=lambda done, of, number=number: ticked(number, done, of), **arguments,
            )  # fmt: skip
            found = found if names is None else names[found]
            if found.max() > np.iinfo(labels.dtype).max:
                labels = labels.astype(np.int32 if found.max() < 1 << 31 else np.int64)
            labels[at] = found
        return labels

    def _names(self) -> np.ndarray:
        """The labels that occur in any frame or scribble, two at least: memory is per label."""
        found: set[int] = set()
        for at in self._places():
            found.update(np.unique(np.asarray(self._at(self.scores, at)).astype(np.int64)).tolist())
            marks = self._marks(at)
            if marks is not None:
                found.update(np.unique(marks).tolist())
        names = sorted(one for one in found if one >= 0) or [0]
        return np.array([*names, names[-1] + 1] if len(names) == 1 else names, np.int64)

    def _places(self) -> Iterator[Shape]:
        return itertools.product(*(range(size) for size in self.frames))

    def _extent(self, array: Any, rgb: bool) -> Shape:
        return tuple(array.shape)[: -1 if rgb else None]

    def _at(self, array: Any, at: Shape, before: int = 0) -> np.ndarray:
        extra = len(array.shape) - before > self.axes
        return np.asarray(array[(*[slice(None)] * before, *at)] if extra else array)

    def _image(self, at: Shape) -> np.ndarray:
        extra = len(self._extent(self.image, self.rgb)) > self.axes
        values = np.asarray(self.image[at] if extra else self.image)
        if self.limits is not None:
            low, high = self.limits
            values = (255 / (high - low) * (values.astype(np.float32) - low)).clip(0, 255)
        return values if self.rgb else values[..., None]

    def _scores(self, at: Shape, names: np.ndarray | None) -> np.ndarray:
        if names is not None:
            return _numbered(self._at(self.scores, at).astype(np.int64), names)
        if not self.has_labels_axis:
            return self._at(self.scores, at)
        return np.moveaxis(self._at(self.scores, at, before=1), 0, -1)

    def _scribbles(self, at: Shape, names: np.ndarray | None) -> np.ndarray | None:
        marks = self._marks(at)
        return marks if marks is None or names is None else _numbered(marks, names)

    def _marks(self, at: Shape) -> np.ndarray | None:
        """Scribbled labels, -1 where there are none."""
        if self.scribbles is None:
            return None
        if self._scribbles_have_labels_axis:
            marks = self._at(self.scribbles, at, before=1).astype(np.int64).max(0)
        else:
            marks = self._at(self.scribbles, at).astype(np.int64)
        return np.where(marks == self.zero, 0, np.where(marks == 0, -1, marks))


def _numbered(labels: np.ndarray, names: np.ndarray) -> np.ndarray:
    """The places of labels among the sorted names; -1 for negative ones."""
    return np.where(labels < 0, -1, np.searchsorted(names, labels))


def overall(frame: int, done: int, of: int, count: int) -> float:
    """The share of the work that is done, of ``count`` frames.

    >>> overall(frame=1, done=1, of=2, count=3)
    0.5
    """
    return (frame + done / of) / count


def kinds(values: Any) -> Sequence[Kind]:
    """The kinds of scores that an array may hold, the likely one first."""
    if np.dtype(values.dtype).kind in "biu":
        return ("labels",)
    some = np.asarray(values[tuple(slice(None, None, max(1, n // 16)) for n in values.shape)])
    likely = some.size and float(some.min()) >= 0 and float(some.max()) <= 1
    return ("probabilities", "logits") if likely else ("logits", "probabilities")

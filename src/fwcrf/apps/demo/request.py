"""Validation of the page's requests: known names, bounded numbers, strokes of bounded work."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fwcrf.apps.demo import presets
from fwcrf.apps.demo.colours import TRUST
from fwcrf.apps.demo.pictures import LONGEST
from fwcrf.apps.demo.presets import SOLVERS, WITH_LAMBDA
from fwcrf.apps.demo.scribbles import Stroke
from fwcrf.presets import KERNELS

SOURCES = ("network", "scribbles", "file")
LABELS = (2, 21)
BOUNDS: dict[str, tuple[float, float]] = {
    "weight": (0.01, 10.0),
    "num_steps": (1, 50),
    "balance": (0.0, 1.0),
    "trust": (0.05, 0.99),
    "bilateral.xy": (5.0, 200.0),
    "bilateral.color": (3.0, 80.0),
    "bilateral.weight": (0.0, 20.0),
    "spatial.xy": (0.5, 20.0),
    "spatial.weight": (0.0, 20.0),
}
_MOST_STROKES = 500
_MOST_POINTS = 10_000
# Most pixels in the bounding boxes of all segments of all strokes.
_MOST_WORK = 20_000_000


@dataclass(frozen=True)
class Request:
    """Source of scores, model and solvers; ``weight`` is the paper's lambda.

    Settings without a field, such as the compatibility, are the settings of the preset.
    """

    solver: str
    weight: float
    num_steps: int
    balance: float
    bilateral: Mapping[str, float]
    spatial: Mapping[str, float]
    preset: str = "default"
    scores: Literal["network", "scribbles", "file"] = "scribbles"
    strokes: tuple[Stroke, ...] = ()
    num_labels: int = 2
    trust: float = TRUST
    compare: tuple[str, ...] = ("mf", "fw")

    @classmethod
    def of(cls, values: Any) -> Request:
        """Request from parsed JSON; missing settings are the preset's. Raises ValueError if it is invalid.

        >>> Request.of({"solver": "efw", "weight": 0.5, "spatial": {"xy": 2, "weight": 0}}).spatial
        {'xy': 2.0, 'weight': 0.0}
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"the request is a {type(values).__name__}; expected names and values.")
        for name in values:
            if name not in cls.__dataclass_fields__:
                raise ValueError(f"the request has {str(name)[:40]!r}, which is not known.")
        preset = values.get("preset", cls.preset)
        known = presets.PRESETS
        if not isinstance(preset, str) or preset not in known:
            raise ValueError(f"preset {str(preset)[:40]!r} is not known; expected {', '.join(known)}.")
        given = {**presets.controls(preset), **values}
        for name in ("weight", "num_steps", "balance", "trust"):
            if name in given:
                given[name] = _number(name, given[name])
        if "num_steps" in given:
            given["num_steps"] = round(given["num_steps"])
        for kernel, names in KERNELS.items():
            if kernel in given:
                given[kernel] = _kernel(kernel, given[kernel], names)
        if "num_labels" in given:
            given["num_labels"] = _whole("num_labels", given["num_labels"], *LABELS)
        request = cls(**{**given, "strokes": (), "compare": ()})
        if request.scores not in SOURCES:
            raise ValueError(f"scores={str(request.scores)[:40]!r}; expected one of {', '.join(SOURCES)}.")
        compare = given.get("compare", cls.compare)
        if not isinstance(compare, list | tuple) or len(compare) > 2:
            raise ValueError("compare has to be a list of at most two solvers.")
        for name in (request.solver, *compare):
            if not isinstance(name, str) or name not in SOLVERS:
                raise ValueError(f"solver {str(name)[:40]!r} is not known; expected {', '.join(SOLVERS)}.")
        if not request.bilateral["weight"] and not request.spatial["weight"]:
            raise ValueError("both kernels have weight 0; expected a positive weight for at least one.")
        strokes = _strokes(given.get("strokes", ()), request.num_labels)
        return cls(**{**given, "strokes": strokes, "compare": tuple(compare)})

    @property
    def strokes_key(self) -> tuple[tuple[int, float, tuple[tuple[float, float], ...]], ...]:
        """Hashable copy of the strokes."""
        return tuple((label, radius, tuple(points)) for label, radius, points in self.strokes)

    def settings(self, name: str) -> dict[str, Any]:
        """Settings of a solver: from the page for the chosen solver, else the solver's defaults."""
        if name == "anneal-fw":
            return {"steps": self.num_steps}
        return {"weight": self.weight} if name == self.solver and name in WITH_LAMBDA else {}


def _number(name: str, value: Any) -> float:
    low, high = BOUNDS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name}={str(value)[:40]!r}; expected a number from {low:g} to {high:g}.")
    return float(value)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name}={str(value)[:40]!r}; expected a whole number from {low} to {high}.")
    return value


def _kernel(kernel: str, value: Any, names: Sequence[str]) -> dict[str, float]:
    if not isinstance(value, Mapping) or {*value} != {*names}:
        raise ValueError(f"{kernel} has to have {', '.join(names)}, and nothing else.")
    return {name: _number(f"{kernel}.{name}", value[name]) for name in names}


def _strokes(values: Any, num_labels: int) -> tuple[Stroke, ...]:
    if not isinstance(values, list | tuple) or len(values) > _MOST_STROKES:
        raise ValueError(f"strokes has to be a list of at most {_MOST_STROKES}.")
    found, points, work = [], 0, 0.0
    for value in values:
        if not isinstance(value, Mapping) or {*value} != {"label", "radius", "points"}:
            raise ValueError("a stroke has to have label, radius and points, and nothing else.")
        label = _whole("the label of a stroke", value["label"], 0, num_labels - 1)
        radius, given = value["radius"], value["points"]
        if not _is_number(radius) or not 0.5 <= radius <= 60:
            raise ValueError("the radius of a stroke has to be a number of pixels from 0.5 to 60.")
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            raise ValueError("the points of a stroke have to be a list of [x, y].")
        points += len(given)
        if points > _MOST_POINTS:
            raise ValueError(f"the strokes have more than {_MOST_POINTS} points; clear some of them.")
        line = [_point(one) for one in given]
        work += sum(
            (abs(a[0] - b[0]) + 2 * radius + 2) * (abs(a[1] - b[1]) + 2 * radius + 2)
            for a, b in zip(line, line[1:] or line, strict=False)
        )
        if work > _MOST_WORK:
            raise ValueError("the strokes are too many, too long or too thick; clear some of them.")
        found.append(Stroke(label, round(float(radius), 1), line))
    return tuple(found)


def _point(value: Any) -> tuple[float, float]:
    if not isinstance(value, Sequence) or len(value) != 2 or not all(map(_is_number, value)):
        raise ValueError("a point has to be [x, y], two numbers of pixels.")
    # Rounded to tenths of a pixel, for short programs. A point outside moves to the edge.
    x, y = (round(min(max(float(v), -1.0), LONGEST + 1.0), 1) for v in value)
    return x, y


def _is_number(value: Any) -> bool:
    # Whole numbers of JSON have any number of digits; beyond the largest float they are no pixels.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max

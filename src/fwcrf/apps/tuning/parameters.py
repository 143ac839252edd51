"""Tunable parameters of settings, by name: ``lambda``, ``steps``, ``balance``, ``bilateral.xy`` and so on.

A kernel with one weight per label has a parameter for each: ``bilateral.weight.0``, ``bilateral.weight.1``
and so on. ``temperature`` is of the scores: to divide logits by it is to multiply lambda, the balance and all
kernel weights, except for the first iterate and for the labels' shares that the balance counts. Settings have
no temperature of their own, so these are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fwcrf.apps.files.settings import Settings
from fwcrf.presets import KERNELS, kernel_class

# Largest factor between a parameter's start value and the values to try, by the last word of its name.
_FACTORS = {"xy": 4.0, "color": 4.0, "steps": 2.0, "balance": 3.0, "temperature": 2.0}
_WEIGHTS, _LABEL_WEIGHTS = 8.0, 2.0


def parameters(settings: Settings) -> dict[str, float]:
    """Tunable parameters of the settings, with their values.

    >>> parameters(Settings())["bilateral.color"]
    6.0
    """
    found = {}
    weight = dict(settings.solver).get("weight", _default_lambda(settings.solver["name"]))
    if isinstance(weight, int | float):
        found["lambda"] = float(weight)
        found["temperature"] = 1.0
    if settings.num_steps:
        found["steps"] = settings.num_steps
    if settings.balance:
        found["balance"] = float(settings.balance)
    for prefix, kernel in named_kernels(settings.kernels).items():
        for name in ("weight", *KERNELS[kernel["kind"]][:-1]):
            value = kernel.get(name, 1.0 if name == "weight" else None)
            several = name == "weight" and isinstance(value, list)
            for end, number in enumerate(value) if several else [("", value)]:
                if isinstance(number, int | float) and number > 0:
                    found[f"{prefix}.{name}{f'.{end}' if several else ''}"] = float(number)
    return found


def is_bandwidth(name: str) -> bool:
    """True for the parameters that change an operator, not only its weight."""
    return name.endswith((".xy", ".color"))


def is_drawn(name: str) -> bool:
    """False for the temperature: it multiplies parameters that are drawn themselves."""
    return name != "temperature"


def ranges(point: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Search interval of each parameter."""

    def factor(name: str) -> float:
        last = name.rpartition(".")[2]
        return _LABEL_WEIGHTS if last.isdigit() else _FACTORS.get(last, _WEIGHTS)

    return {name: (value / factor(name), value * factor(name)) for name, value in point.items()}


def at_limits(point: Mapping[str, float], limits: Mapping[str, tuple[float, float]]) -> list[str]:
    """Parameters of a point in the outer tenth of their interval, in logarithms, or beyond it.

    >>> at_limits({"lambda": 7.5, "steps": 10}, {"lambda": (0.125, 8), "steps": (5, 20)})
    ['lambda']
    """

    def place(name: str) -> float:
        low, high = limits[name]
        return math.log(point[name] / low) / math.log(high / low)

    return [name for name in point if not 0.05 < place(name) < 0.95]


def distance(point: Mapping[str, float], start: Mapping[str, float]) -> float:
    """Root mean square over the parameters of distances in logarithms, in units of the search intervals."""
    limits = ranges(start)
    each = [math.log(point[n] / start[n]) / math.log(limits[n][1] / start[n]) for n in start]
    return math.sqrt(sum(one**2 for one in each) / max(1, len(each)))


def bandwidths_of(point: Mapping[str, float]) -> tuple[float, ...]:
    """Bandwidths of a point: points with the same can share their operators."""
    return tuple(value for name, value in point.items() if is_bandwidth(name))


def landmarks(start: Mapping[str, float]) -> list[dict[str, float]]:
    """Points with values of defaults in place of ``start``: of ``fwcrf.refine``, and of the kernels alone."""
    own = [
        {"kind": kind, **{name: getattr(kernel_class(kind)(), name) for name in names}}
        for kind, names in KERNELS.items()
    ]
    known = [parameters(Settings()), parameters(Settings(kernels=own))]
    return [{name: values.get(name, value) for name, value in start.items()} for values in known]


def with_parameters(settings: Settings, point: Mapping[str, float]) -> Settings:
    """Settings with the parameters of ``point`` replaced.

    >>> with_parameters(Settings(), {"lambda": 0.5}).solver
    {'name': 'l2fw', 'weight': 0.5}
    >>> with_parameters(Settings(), {"lambda": 0.5, "temperature": 2.0}).solver
    {'name': 'l2fw', 'weight': 1.0}
    """
    values = settings.mapping()
    kernels = named_kernels(values["kernels"])
    hot = {**point}
    if (temperature := hot.pop("temperature", 1.0)) != 1:
        hot = {**parameters(settings), **hot}
        del hot["temperature"]
        scaled = [name for name in hot if name in ("lambda", "balance") or ".weight" in name]
        hot |= {name: float(f"{temperature * hot[name]:.4g}") for name in scaled}
    for name, value in hot.items():
        if name == "lambda":
            values["solver"]["weight"] = value
        elif name == "steps":
            values["num_steps"] = int(value)
        elif name == "balance":
            values["balance"] = min(value, 1.0)
        else:
            prefix, field, *label = name.split(".")
            if label:
                kernels[prefix][field][int(label[0])] = value
            else:
                kernels[prefix][field] = value
    return Settings.of(values)


def per_label(settings: Settings, num_labels: int) -> Settings:
    """Settings with one kernel weight per label in place of one for all.

    >>> per_label(Settings(), 2).kernels[0]["weight"]
    [0.3, 0.3]
    """
    values = settings.mapping()
    for kernel in values["kernels"]:
        weight = kernel.get("weight", 1.0)
        kernel["weight"] = weight if isinstance(weight, list) else [weight] * num_labels
    return Settings.of(values)


def named_kernels(kernels: Any) -> dict[str, dict[str, Any]]:
    """By kind, and from the second of a kind on with its number: ``bilateral``, ``bilateral2``."""
    named: dict[str, Any] = {}
    for kernel in kernels:
        count = sum(name.rstrip("0123456789") == kernel["kind"] for name in named)
        named[f"{kernel['kind']}{count + 1 if count else ''}"] = kernel
    return named


def _default_lambda(solver: str) -> float | None:
    from fwcrf import solvers

    try:
        regularizer: Any = getattr(solvers.get(solver), "regularizer", None)
        solvers.get(solver, weight=1.0)
    except ValueError:
        return None
    return float(regularizer.weight)

"""Tunable parameters of settings, by name: ``lambda``, ``bilateral.xy``, ``spatial.weight`` ..."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fwcrf.apps.files.settings import KERNELS, Settings

# Largest factor between a parameter's start value and the values to try.
_WEIGHTS, _BANDWIDTHS = 8.0, 4.0


def parameters(settings: Settings) -> dict[str, float]:
    """Tunable parameters of the settings, with their values.

    >>> parameters(Settings())["bilateral.color"]
    13.0
    """
    found = {}
    weight = dict(settings.solver).get("weight", _default_lambda(settings.solver["name"]))
    if isinstance(weight, int | float):
        found["lambda"] = float(weight)
    for prefix, kernel in _kernels(settings.kernels).items():
        for name in ("weight", *KERNELS[kernel["kind"]][:-1]):
            value = kernel.get(name, 1.0 if name == "weight" else None)
            if isinstance(value, int | float) and value > 0:
                found[f"{prefix}.{name}"] = float(value)
    return found


def ranges(point: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Search interval of each parameter."""
    factors = {n: _WEIGHTS if n.endswith(("lambda", "weight")) else _BANDWIDTHS for n in point}
    return {name: (value / factors[name], value * factors[name]) for name, value in point.items()}


def with_parameters(settings: Settings, point: Mapping[str, float]) -> Settings:
    """Settings with the parameters of ``point`` replaced.

    >>> with_parameters(Settings(), {"lambda": 0.5}).solver
    {'name': 'l2fw', 'weight': 0.5}
    """
    values = settings.mapping()
    kernels = _kernels(values["kernels"])
    for name, value in point.items():
        if name == "lambda":
            values["solver"]["weight"] = value
        else:
            prefix, _, field = name.rpartition(".")
            kernels[prefix][field] = value
    return Settings.of(values)


def _kernels(kernels: Any) -> dict[str, dict[str, Any]]:
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

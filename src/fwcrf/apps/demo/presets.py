"""Presets of the page: settings of ``fwcrf.refine`` by name, as values of the page's controls.

The controls are a solver, its lambda, the number of steps, the balance, and the weights and bandwidths of a
spatial and a bilateral kernel. Settings without a control keep the value of the preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fwcrf import presets, solvers
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.solvers import FrankWolfe, Solver

# Keyword arguments of refine, by the name of the preset.
PRESETS: Mapping[str, Mapping[str, Any]] = {name: one.arguments() for name, one in presets.PRESETS.items()}

# Solvers that need only the pairwise operator P and a step size, with their titles, in the order of the page.
SOLVERS = {
    "l2fw": "Euclidean FW", "efw": "entropic FW", "mf": "mean field", "fw": "vanilla FW",
    "anneal-fw": "annealed FW", "tsallis-fw": "Tsallis FW", "mixed-fw": "l2 + entropy",
    "pgd": "projected gradient", "emd": "mirror descent", "fista": "FISTA", "admm": "ADMM",
}  # fmt: skip
WITH_LAMBDA = ("l2fw", "efw", "tsallis-fw", "mixed-fw")

_KINDS = {"spatial": Spatial, "bilateral": Bilateral}
_WITHOUT_CONTROL = ("compatibility", "self_edges")
_TAKEN = ("kernels", "solver", "num_steps", "balance", *_WITHOUT_CONTROL)


def arguments(name: str) -> dict[str, Any]:
    """Keyword arguments of ``refine`` for a preset."""
    given = PRESETS[name]
    if unknown := {*given} - {*_TAKEN}:
        raise ValueError(f"preset {name!r} has {', '.join(sorted(unknown))}; expected {', '.join(_TAKEN)}.")
    found = {**presets.OWN_KERNELS.arguments(), **given}
    if not isinstance(found["compatibility"], int | float):
        raise ValueError(f"preset {name!r} has compatibility={found['compatibility']}; expected a number.")
    return found


def kernels(name: str) -> Mapping[str, Spatial | Bilateral]:
    """Spatial and bilateral kernel of a preset. A kernel that the preset does not have gets weight 0."""
    found = {kind: make(weight=0.0) for kind, make in _KINDS.items()}
    for kernel in arguments(name)["kernels"]:
        kind = type(kernel).__name__.lower()
        if kind not in found or found[kind].weight:
            raise ValueError(f"preset {name!r} has {kernel}; expected one spatial and one bilateral kernel.")
        found[kind] = kernel
    return found


def controls(name: str) -> Mapping[str, Any]:
    """Values of the page's controls, as the page sends them.

    >>> controls("default")["num_steps"]
    5
    """
    given, kinds = arguments(name), kernels(name)
    solver, weight = named(solvers.as_solver(given["solver"]))
    return {
        "solver": solver,
        "weight": weight or 1.0,
        "num_steps": given["num_steps"],
        "balance": float(given["balance"]),
        **{
            kind: {part: float(getattr(kinds[kind], part)) for part in parts}
            for kind, parts in presets.KERNELS.items()
        },
    }


def without_control(name: str) -> dict[str, Any]:
    """Keyword arguments of ``refine`` that a preset sets and no control of the page does."""
    return {argument: PRESETS[name][argument] for argument in _WITHOUT_CONTROL if argument in PRESETS[name]}


def default_lambda(name: str) -> float | None:
    """Lambda of the solver with this name, if the visitor sets none; None for a solver without lambda."""
    return named(solvers.get(name))[1]


def named(solver: Solver) -> tuple[str, float | None]:
    """Name of a solver in ``SOLVERS`` and its lambda; None for a solver without lambda.

    >>> named(solvers.get("efw", weight=0.5))
    ('efw', 0.5)
    """
    for name in SOLVERS:
        if name not in WITH_LAMBDA and solver == solvers.get(name):
            return name, None
    weights = asdict(solver.regularizer).values() if isinstance(solver, FrankWolfe) else ()  # type: ignore[call-overload]
    for name in WITH_LAMBDA:
        for weight in weights:
            if weight > 0 and solver == solvers.get(name, weight=weight):
                return name, float(weight)
    raise ValueError(
        f"solver {solver} is not on the page; expected {', '.join(SOLVERS)}, with a lambda at most."
    )

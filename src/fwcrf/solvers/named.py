"""The table of solvers, one line per row: regularizer, step size and split, or another algorithm."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from fwcrf import regularizers
from fwcrf.regularizers import Entropy, Mixed, Simplex, SquaredL2
from fwcrf.solvers.admm import ADMM
from fwcrf.solvers.anneal import AnnealedFrankWolfe
from fwcrf.solvers.fista import Fista
from fwcrf.solvers.frank_wolfe import FrankWolfe
from fwcrf.solvers.mirror_descent import EntropicDescent, ProjectedGradient, ProximalGradient
from fwcrf.solvers.solver import Solver
from fwcrf.solvers.splits import concave, concave_model, concave_rest, convexified
from fwcrf.stepsizes import Harmonic, LineSearch, rule, schedule

# ruff: noqa: B008 - the rules are frozen
_NAMED: dict[str, Callable[..., Solver]] = {
    "mf": lambda step=1.0: FrankWolfe(Entropy(1.0), rule(step)),
    "fw": lambda step=Harmonic(): FrankWolfe(Simplex(), rule(step)),
    "l2fw": lambda weight=1.0, step=1.0: FrankWolfe(SquaredL2(weight), rule(step)),
    "efw": lambda weight=0.25, step=1.0: FrankWolfe(Entropy(weight), rule(step)),
    "anneal-fw": lambda steps=5, start=0.25, end=0.05, merge=False: AnnealedFrankWolfe(
        steps, start, end, merge=merge
    ),
    "tsallis-fw": lambda alpha=1.5, weight=1.0, step=1.0: FrankWolfe(
        regularizers.Tsallis(alpha, weight), rule(step)
    ),
    "mixed-fw": lambda weight=1.0, entropy=0.25, step=1.0: FrankWolfe(Mixed(weight, entropy), rule(step)),
    "binary-entropy-fw": lambda weight=0.25, step=1.0: FrankWolfe(
        regularizers.BinaryEntropy(weight), rule(step)
    ),
    "pnorm-fw": lambda p=1.5, weight=1.0, step=1.0: FrankWolfe(regularizers.SquaredLp(p, weight), rule(step)),
    "convex-fw": lambda step=LineSearch(): FrankWolfe(Simplex(), rule(step), convexified),
    "cccp-qp1": lambda step=1.0, tol=1e-4, max_steps=200: FrankWolfe(
        Simplex(), rule(step), partial(concave_rest, tol=tol, max_steps=max_steps)
    ),
    "cccp-qp2": lambda step=1.0: FrankWolfe(Simplex(), rule(step), concave),
    "cmf1": lambda step=1.0: FrankWolfe(Entropy(1.0), rule(step), concave),
    "cmf2": lambda step=1.0: FrankWolfe(Entropy(1.0), rule(step), concave_model),
    "pgd": lambda step=1.0: ProjectedGradient(rule(step)),
    "pgm": lambda step=1.0: ProximalGradient(schedule(step)),
    "fista": lambda step=1.0: Fista(schedule(step)),
    "emd": lambda step=1.0, epsilon=0.0: EntropicDescent(schedule(step), epsilon),
    "admm": lambda rho=1.0: ADMM(rho),
    "bregman-admm": lambda rho=1.0: ADMM(rho, Entropy(1.0)),
}
# Former names, still understood; "lp-" now means a linear relaxation on a graph.
_RENAMED = {"lp-fw": "pnorm-fw"}
# Names of the field, for suggestions.
_ALSO_CALLED = {
    "mean-field": "mf", "frank-wolfe": "fw", "entropic-frank-wolfe": "efw", "euclidean-frank-wolfe": "l2fw",
    "anneal": "anneal-fw", "mirror-descent": "emd", "projected-gradient": "pgd", "cccp": "cccp-qp2",
}  # fmt: skip


def names(*, graphs: bool = False) -> list[str]:
    """The names that ``get`` takes: solvers for any energy; with ``graphs``, also solvers for graphs only."""
    return [*_NAMED, *_on_graphs()] if graphs else list(_NAMED)


def get(name: str, **settings: Any) -> Solver:
    """A solver by name.

    ``weight`` is the paper's lambda; ``step`` a number, several, or a rule of ``fwcrf.stepsizes``. A setting
    that is not given has the default of the table in docs/solvers.md.

    >>> get("l2fw", weight=0.5).regularizer
    SquaredL2(weight=0.5)
    """
    return _make(name, settings) if settings else _with_defaults(name)


def as_solver(solver: str | Solver) -> Solver:
    """The solver of this name, or the solver itself.

    >>> as_solver("mf") is as_solver(get("mf"))
    True
    """
    if isinstance(solver, str):
        return get(solver)
    if isinstance(solver, type) or not (hasattr(solver, "init") and hasattr(solver, "step")):
        raise TypeError(
            f"solver={solver!r}; expected a name such as 'l2fw', or a solver such as "
            "fwcrf.solvers.get('l2fw', weight=0.5)."
        )
    return solver


@cache  # solvers are frozen
def _with_defaults(name: str) -> Solver:
    return _make(name, {})


def _make(name: str, settings: dict[str, Any]) -> Solver:
    present = _RENAMED.get(name, name)
    table = _NAMED if present in _NAMED else _on_graphs()
    if present not in table:
        raise ValueError(
            f"solver {name!r} is not known; expected one of {', '.join(names(graphs=True))}{_guess(name)}."
        )
    known = inspect.signature(table[present]).parameters
    for setting in settings:
        if setting not in known:
            raise ValueError(f"solver {name!r} has no setting {setting!r}; expected {', '.join(known)}.")
    return table[present](**settings)


def _guess(name: str) -> str:
    """The end of a sentence with the name that was probably meant; empty if no name is close."""
    known = {**_ALSO_CALLED, **{known: known for known in names(graphs=True)}}
    close = difflib.get_close_matches(name.lower().replace("_", "-").replace(" ", "-"), known, 1)
    return f": did you mean {known[close[0]]!r}?" if close else ""


def _on_graphs() -> Mapping[str, Callable[..., Solver]]:
    from fwcrf.graphs.sequential import NAMED as SEQUENTIAL  # late: these packages import this one
    from fwcrf.lp.named import NAMED

    return {**SEQUENTIAL, **NAMED}

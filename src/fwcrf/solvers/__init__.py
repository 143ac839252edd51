"""Solvers, by name: each is a choice of regularizer and step size for one algorithm.

=====  ==============================  =====
name   regularizer g                   step
=====  ==============================  =====
mf     entropy, weight 1               1
efw    entropy, weight lambda          1
l2fw   half squared norm, lambda       1
fw     none                            2/(k+2)
=====  ==============================  =====
"""

from __future__ import annotations

from collections.abc import Callable

from fwcrf.regularizers import Entropy, Simplex, SquaredL2
from fwcrf.solvers.frank_wolfe import FrankWolfe, minimize
from fwcrf.stepsizes import Constant, Harmonic, Stepsize

__all__ = ["FrankWolfe", "get", "minimize", "names"]


def _rule(step: float | Stepsize) -> Stepsize:
    return step if callable(step) else Constant(step)


_NAMED: dict[str, Callable[..., FrankWolfe]] = {
    "mf": lambda step=1.0: FrankWolfe(Entropy(1.0), _rule(step)),
    "efw": lambda weight=0.25, step=1.0: FrankWolfe(Entropy(weight), _rule(step)),
    "l2fw": lambda weight=1.0, step=1.0: FrankWolfe(SquaredL2(weight), _rule(step)),
    "fw": lambda step=Harmonic(): FrankWolfe(Simplex(), _rule(step)),  # noqa: B008
}


def names() -> list[str]:
    """The names that ``get`` knows."""
    return list(_NAMED)


def get(name: str, **settings: float | Stepsize) -> FrankWolfe:
    """A solver by name; ``weight`` is the paper's lambda, ``step`` a number or a step-size rule.

    >>> get("l2fw", weight=0.5).g
    SquaredL2(weight=0.5)
    """
    if name not in _NAMED:
        raise ValueError(f"solver {name!r} is not known; expected one of {', '.join(_NAMED)}.")
    make = _NAMED[name]
    known = make.__code__.co_varnames[: make.__code__.co_argcount]
    for setting in settings:
        if setting not in known:
            raise ValueError(f"solver {name!r} has no setting {setting!r}; expected {', '.join(known)}.")
    return make(**settings)

"""The solvers of the linear relaxation, by name."""

from __future__ import annotations

from collections.abc import Callable

from fwcrf.lp.solvers import EntropicRelaxation, LinearSolver, LocalConsistency
from fwcrf.stepsizes import SegmentSearch, rule

# ruff: noqa: B008 - the rules are frozen
NAMED: dict[str, Callable[..., LinearSolver]] = {
    "lp-meshi": lambda weight=10.0: LocalConsistency(weight),
    "lp-bethe": lambda weight=1.0, step=SegmentSearch(): EntropicRelaxation(weight, 1.0, 0.0, rule(step)),
    "lp-trw": lambda weight=1.0, step=SegmentSearch(): EntropicRelaxation(weight, None, 0.0, rule(step)),
    "lp-rho": lambda weight=1.0, rho=None, eta=0.01, step=SegmentSearch(): EntropicRelaxation(
        weight, rho, eta, rule(step)
    ),
}

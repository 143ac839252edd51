"""The solvers of the linear relaxation, by name."""

from __future__ import annotations

from collections.abc import Callable

from fwcrf.lp.solvers import EntropicRelaxation, LinearSolver, LocalConsistency
from fwcrf.lp.trees import ChainBundle, SequentialTrees
from fwcrf.stepsizes import SegmentSearch, rule

# ruff: noqa: B008 - the rules are frozen
NAMED: dict[str, Callable[..., LinearSolver | SequentialTrees]] = {
    "lp-meshi": lambda weight=10.0: LocalConsistency(weight),
    "lp-bethe": lambda weight=1.0, step=SegmentSearch(), oracle=None: EntropicRelaxation(
        weight, 1.0, 0.0, rule(step), oracle
    ),
    "lp-trw": lambda weight=1.0, step=SegmentSearch(), oracle=None: EntropicRelaxation(
        weight, None, 0.0, rule(step), oracle
    ),
    "lp-rho": lambda weight=1.0, rho=None, eta=0.01, step=SegmentSearch(), oracle=None: EntropicRelaxation(
        weight, rho, eta, rule(step), oracle
    ),
    "lp-trws": lambda tolerance=1e-9: SequentialTrees(tolerance),
    "lp-bundle": lambda tolerance=1e-9, passes=200, planes=20: ChainBundle(tolerance, passes, planes),
}

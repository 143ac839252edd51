"""Solvers, by name: most are a choice of regularizer, step size and split for one algorithm.

========  ==============================  ==========
name      regularizer g                   step
========  ==============================  ==========
mf        entropy, weight 1               1
efw       entropy, weight lambda          1
l2fw      half squared norm, lambda       1
fw        none                            2/(k+2)
========  ==============================  ==========

docs/solvers.md has the whole table; ``named`` is the same in code.
"""

from fwcrf.solvers.anneal import AnnealedFrankWolfe
from fwcrf.solvers.frank_wolfe import FrankWolfe
from fwcrf.solvers.minimize import minimize
from fwcrf.solvers.named import as_solver, get, names
from fwcrf.solvers.solution import Solution
from fwcrf.solvers.solver import Iterate, Solver
from fwcrf.solvers.trace import Record

__all__ = [
    "AnnealedFrankWolfe",
    "FrankWolfe",
    "Iterate",
    "Record",
    "Solution",
    "Solver",
    "as_solver",
    "get",
    "minimize",
    "names",
]

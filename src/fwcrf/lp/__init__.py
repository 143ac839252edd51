"""The linear relaxation of pairwise models on graphs: solvers, lower bounds and their parts.

==========  ========================================  ===========================  =====================
name        minimises                                 over                         oracle
==========  ========================================  ===========================  =====================
lp-meshi    E_LP + lambda/2 |A x|^2                   simplices of nodes, edges    a vertex per row
lp-bethe    E_LP - lambda H, Bethe                    the local polytope           a linear program
lp-trw      E_LP - lambda H, tree-reweighted          the local polytope           a linear program
lp-rho      E_LP - lambda H, with rho, smoothed       the local polytope           a linear program
lp-trws     E_LP, by its dual                         chains of the nodes' order   messages
lp-bundle   E_LP, by its dual                         chains of the nodes' order   dynamic programs
==========  ========================================  ===========================  =====================

docs/lp.md compares them.
"""

from fwcrf.lp.appearance import appearance_probabilities
from fwcrf.lp.entropy import FreeEnergy
from fwcrf.lp.polytope import LocalPolytope
from fwcrf.lp.relaxation import Relaxation, relax
from fwcrf.lp.solvers import EntropicRelaxation, LinearSolver, LocalConsistency
from fwcrf.lp.trees import ChainBundle, SequentialTrees

__all__ = [
    "ChainBundle",
    "EntropicRelaxation",
    "FreeEnergy",
    "LinearSolver",
    "LocalConsistency",
    "LocalPolytope",
    "Relaxation",
    "SequentialTrees",
    "appearance_probabilities",
    "relax",
]

"""Pairwise models on sparse graphs, for the solvers of dense models."""

from fwcrf.graphs.grid import Edges, grid
from fwcrf.graphs.linear import LinearSolution
from fwcrf.graphs.mrf import GraphSolution, SparseMRF
from fwcrf.graphs.potentials import Full, Potts, Tables, TruncatedLinear, TruncatedQuadratic
from fwcrf.graphs.search import Progress
from fwcrf.graphs.superpixels import Superpixels, superpixels
from fwcrf.graphs.trees import TreeSolution
from fwcrf.renamed import former_attribute

__all__ = [
    "Edges",
    "Full",
    "GraphSolution",
    "LinearSolution",
    "Potts",
    "Progress",
    "SparseMRF",
    "Superpixels",
    "Tables",
    "TreeSolution",
    "TruncatedLinear",
    "TruncatedQuadratic",
    "grid",
    "superpixels",
]


def __getattr__(name: str) -> object:
    return former_attribute(__name__, name)

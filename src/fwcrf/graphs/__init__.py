"""Sparse graphs: any pairwise model with the solvers of the dense ones."""

from fwcrf.graphs.mrf import GraphSolution, SparseMRF
from fwcrf.graphs.potentials import Full, Potts, Tables, TruncatedLinear, TruncatedQuadratic
from fwcrf.graphs.uai import read_uai, write_uai

__all__ = [
    "Full",
    "GraphSolution",
    "Potts",
    "SparseMRF",
    "Tables",
    "TruncatedLinear",
    "TruncatedQuadratic",
    "read_uai",
    "write_uai",
]

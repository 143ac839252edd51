"""Gaussian kernels as linear operators over the points of an image.

``Bilateral``, ``Spatial`` and ``Gaussian`` are settings; their ``operator`` method returns an
``Operator`` for an image: ``Exact`` (brute force), ``Separable`` (grids) or ``Lattice`` (any features).
"""

from fwcrf.kernels.exact import Exact
from fwcrf.kernels.kernel import Bilateral, Domain, Gaussian, Kernel, Spatial
from fwcrf.kernels.lattice import Lattice
from fwcrf.kernels.operator import Normalization, Operator
from fwcrf.kernels.separable import Separable

__all__ = [
    "Bilateral",
    "Domain",
    "Exact",
    "Gaussian",
    "Kernel",
    "Lattice",
    "Normalization",
    "Operator",
    "Separable",
    "Spatial",
]

"""Regularizers g = r + indicator of the simplices, the convex part of a Frank-Wolfe step.

The oracle of a regularizer is argmin_p <c, p> + g(p), row by row. A constant added to a row of c does not
change it, and a label whose c is +inf gets p = 0. The pair (f, g) determines the algorithm: see
``fwcrf.solvers``.

==================  ====================================================  =======================
regularizer         r(x), summed over the nodes                           oracle
==================  ====================================================  =======================
``Simplex``         0                                                     a vertex
``Entropy``         w sum x log x                                         softmax
``SquaredL2``       w/2 |x|^2                                             projection
``Tsallis``         w sum (x^a - x) / (a (a - 1))                         one root per row
``Mixed``           w/2 |x|^2 + v sum x log x                             one root per row
``BinaryEntropy``   w sum x log x + (1 - x) log(1 - x)                    one root per row
``SquaredLp``       w/2 |x|_p^2                                           one root per row
``BlockQuadratic``  k/2 x'Qx + <u, x> + v sum x log x                     proximal gradient
``Linear``          r of a regularizer + <u, x>                           its oracle at c + u
==================  ====================================================  =======================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fwcrf.regularizers.block_quadratic import BlockQuadratic, block_quadratic
from fwcrf.regularizers.closed import Entropy, Simplex, SquaredL2
from fwcrf.regularizers.linear import Linear
from fwcrf.regularizers.mixed import Mixed
from fwcrf.regularizers.regularizer import Regularizer
from fwcrf.torch_ops.simplex import project_onto_simplex

if TYPE_CHECKING:
    from fwcrf.regularizers.binary_entropy import BinaryEntropy
    from fwcrf.regularizers.squared_lp import SquaredLp
    from fwcrf.regularizers.tsallis import Tsallis

__all__ = [
    "BinaryEntropy",
    "BlockQuadratic",
    "Entropy",
    "Linear",
    "Mixed",
    "Regularizer",
    "Simplex",
    "SquaredL2",
    "SquaredLp",
    "Tsallis",
    "block_quadratic",
    "project_onto_simplex",
]

# Imported on use: registering their operators with torch takes a third of the start-up time.
_ON_USE = {"BinaryEntropy": "binary_entropy", "SquaredLp": "squared_lp", "Tsallis": "tsallis"}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_ON_USE[name]}"), name)
    return value

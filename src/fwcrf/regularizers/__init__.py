"""g = r + indicator of the simplices: what a Frank-Wolfe step adds to its linear problem.

Each regularizer answers one question, the oracle argmin_p <c, p> + g(p), row by row; c + constant
gives the same answer, and a label whose c is +inf gets p = 0. The pair (f, g) decides the algorithm:
see ``fwcrf.solvers``.

==================  ====================================================  =======================
regularizer         r(x), summed over the nodes                           oracle
==================  ====================================================  =======================
``Simplex``         0                                                     a vertex
``Entropy``         w sum x log x                                         softmax
``SquaredL2``       w/2 |x|^2                                             projection
``Tsallis``         w sum (x^a - x) / (a (a - 1))                         root of one variable
``Mixed``           w/2 |x|^2 + v sum x log x                             root of one variable
``BinaryEntropy``   w sum x log x + (1 - x) log(1 - x)                    root of one variable
``SquaredLp``       w/2 |x|_p^2                                           root of one variable
``BlockQuadratic``  k/2 x'Qx + <u, x> + v sum x log x                     proximal gradient
``Linear``          that of another, + <u, x>                             that of the other
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

# Those that most programs do not use: registering their operators with torch takes a third of the start-up.
_ON_USE = {"BinaryEntropy": "binary_entropy", "SquaredLp": "squared_lp", "Tsallis": "tsallis"}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_ON_USE[name]}"), name)
    return value

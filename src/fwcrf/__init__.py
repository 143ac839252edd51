"""fwcrf: dense conditional random fields by regularized Frank-Wolfe.

::

    image, logits
      -> features      a vector per pixel (position, colour, anything)
      -> kernels       a symmetric operator K per Gaussian: exact, lattice, separable
      -> pairwise      P = sum_c (K_c - diag) (x) M_c
      -> energy        E(x) = 1/2 <x, P x> + <u, x>,  u = -logits,  x in a product of simplices
      -> solver        x_{k+1} = x_k + a_k (p_k - x_k),  p_k = argmin_p <grad f(x_k), p> + g(p)
      -> rounding      labels
"""

# torch before the native module, so that both share one OpenMP runtime.
import torch as _torch  # noqa: F401

from fwcrf import (
    gradients,
    kernels,
    losses,
    pairwise,
    regularizers,
    rounding,
    solvers,
    spectrum,
    stepsizes,
    theory,
)
from fwcrf.energy import Energy
from fwcrf.layer import DenseCRF
from fwcrf.solvers import Solution, minimize

__all__ = [
    "DenseCRF",
    "Energy",
    "Solution",
    "gradients",
    "kernels",
    "losses",
    "minimize",
    "pairwise",
    "regularizers",
    "rounding",
    "solvers",
    "spectrum",
    "stepsizes",
    "theory",
]
__version__ = "0.1.0.dev0"

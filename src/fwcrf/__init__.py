"""fwcrf: dense conditional random fields by regularized Frank-Wolfe.

::

    image, logits
      -> features      a vector per pixel (position, colour, anything)
      -> kernels       a linear operator K per Gaussian: exact, lattice, separable
      -> pairwise      P = sum_c (K_c - diag) (x) M_c, or a sparse graph
      -> energy        E(x) = 1/2 <x, P x> + <u, x>,  u = -logits,  x in a product of simplices
      -> solver        x_{k+1} = x_k + a_k (p_k - x_k),  p_k = argmin_p <grad f(x_k), p> + g(p)
      -> rounding      labels

A name is imported on first use, and torch with it, so that ``import fwcrf`` alone is fast.
``fwcrf.pydensecrf`` needs no torch for numpy arrays.
"""

from __future__ import annotations

from importlib import import_module

from fwcrf.renamed import understand_former_names

TYPE_CHECKING = False  # importing typing takes as long as starting Python
if TYPE_CHECKING:
    from fwcrf import (
        examples,
        gradients,
        graphs,
        hf,
        kernels,
        losses,
        lp,
        official,
        pairwise,
        plot,
        presets,
        regularizers,
        rounding,
        segments,
        solvers,
        spectrum,
        start,
        stepsizes,
        theory,
    )
    from fwcrf.activation import pseudo_labels
    from fwcrf.apps.files.uai import read_uai, write_uai
    from fwcrf.certificates import Certificate, certificate
    from fwcrf.changed import Changes, changes
    from fwcrf.energy import Energy
    from fwcrf.graphs import SparseMRF
    from fwcrf.layer import DenseCRF
    from fwcrf.points import refine_points
    from fwcrf.refinement import refine
    from fwcrf.solvers import Solution, minimize
    from fwcrf.stream import Stream

__all__ = [
    "Certificate",
    "Changes",
    "DenseCRF",
    "Energy",
    "Solution",
    "SparseMRF",
    "Stream",
    "certificate",
    "changes",
    "examples",
    "gradients",
    "graphs",
    "hf",
    "kernels",
    "losses",
    "lp",
    "minimize",
    "official",
    "pairwise",
    "plot",
    "presets",
    "pseudo_labels",
    "read_uai",
    "refine",
    "refine_points",
    "regularizers",
    "rounding",
    "segments",
    "solvers",
    "spectrum",
    "start",
    "stepsizes",
    "theory",
    "write_uai",
]
__version__ = "0.1.0.dev0"

understand_former_names()

# The module of each public name that is not itself a module.
_DEFINED_IN = {
    "Certificate": "certificates",
    "Changes": "changed",
    "DenseCRF": "layer",
    "Energy": "energy",
    "Solution": "solvers",
    "SparseMRF": "graphs",
    "Stream": "stream",
    "certificate": "certificates",
    "changes": "changed",
    "minimize": "solvers",
    "pseudo_labels": "activation",
    "read_uai": "apps.files.uai",
    "refine": "refinement",
    "refine_points": "points",
    "write_uai": "apps.files.uai",
}


def __getattr__(name: str) -> object:
    from importlib.util import find_spec

    if name == "_core":
        import_module("fwcrf.openmp").share_runtime()
    elif name.startswith("_") or not find_spec(f"{__name__}.{_DEFINED_IN.get(name, name)}"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module(f"{__name__}.{_DEFINED_IN.get(name, name)}")
    if name in _DEFINED_IN:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

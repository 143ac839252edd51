"""Every instruction set, number of labels and solver family: the engine ends where the solver's own steps do.

The numbers of labels choose the engine's ways: one number per pixel (2), one vector (4), several (21),
or panels of vectors (40, 150). How many labels a vector holds depends on the instruction set and the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from helpers import DTYPES, environment, in_process, normal, uniform
from torch import Tensor
from walk import called

import fwcrf
from fwcrf import Energy, _core, solvers
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.pairwise import of_image

STEPS = 4
LABELS = (2, 4, 21, 40, 150)
SOLVERS = {
    "mf": solvers.get("mf"),
    "efw": solvers.get("efw"),
    "l2fw": solvers.get("l2fw"),
    "l2fw, half steps": solvers.get("l2fw", weight=0.5, step=0.5),
    "fw": solvers.get("fw"),
    "pgd": solvers.get("pgd"),
    "emd": solvers.get("emd"),
    "admm": solvers.get("admm"),
}
LIMIT = {torch.float64: 1e-11, torch.float32: 1e-4}
# A solver's own step, and the last function of a run with fewer labels: their calls tell the path.
STEP, PRUNED = "step", "all_labels"
# Pruning begins at this many entries of the unary.
LARGE = 1 << 18


class Outcome(NamedTuple):
    """The largest difference between the two paths, and marks of the path that was taken at once."""

    difference: float
    native: bool
    pruned: bool


def energy(labels, dtype, *, grid=(13, 18), compat=1.0, spread=2.0, unlikely=0, weights=None) -> Energy:
    """An energy; by their unary alone, ``unlikely`` labels are far behind everywhere."""
    picture = uniform(3, *grid, dtype=dtype)
    kernels = [Bilateral(6.0, 0.3), Spatial(1.5)]
    unary = spread * normal(grid[0] * grid[1], labels, seed=3)
    unary[:, labels - unlikely :] += 30.0
    return Energy(of_image(kernels, picture, labels, compat=compat, weights=weights), unary.to(dtype))


def compared(E: Energy, solver: str) -> Outcome:
    def at_once() -> None:
        ends.append(fwcrf.minimize(E, SOLVERS[solver], num_steps=STEPS).probabilities)

    ends: list[Tensor] = []
    names = {name.split(".")[-1] for _, name in called(at_once)}
    expected = fwcrf.minimize(E, SOLVERS[solver], num_steps=STEPS, callback=lambda k, x: None).probabilities
    return Outcome(float((ends[-1] - expected).abs().max()), STEP not in names, PRUNED in names)


def potts() -> dict[tuple, Outcome]:
    return {(s, L, d): compared(energy(L, d), s) for s in SOLVERS for L in LABELS for d in DTYPES}


def matrices() -> dict[tuple, Outcome]:
    """Also with 8 labels, which every instruction set takes at once in both dtypes."""
    return {
        (s, L, d): compared(energy(L, d, compat=normal(L, L, seed=6)), s)
        for s in ("mf", "l2fw", "l2fw, half steps", "fw", "admm")
        for L in (*LABELS, 8)
        for d in DTYPES
    }


def pruning() -> dict[tuple, Outcome]:
    """Softmax is pruned in float32 alone."""
    found = {}
    for L in (21, 40, 150):
        side = int((LARGE / L) ** 0.5) + 1
        for d, names in ((torch.float32, ("mf", "efw", "l2fw", "fw")), (torch.float64, ("l2fw", "fw"))):
            E = energy(L, d, grid=(side, side), spread=0.3, unlikely=L - 3)
            found |= {(s, L, d): compared(E, s) for s in names}
    return found


def gradients() -> dict[tuple, Outcome]:
    """Derivatives in the unary and in the kernels' weights, each relative to its largest entry."""
    found = {}
    for s in ("mf", "l2fw"):
        for L in (2, 4, 21):
            for d in DTYPES:
                at_once, one_by_one = (
                    differentiated(s, L, d, callback) for callback in (None, lambda k, x: None)
                )
                pairs = zip(at_once, one_by_one, strict=True)
                found[s, L, d] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return {case: Outcome(difference, True, False) for case, difference in found.items()}


def differentiated(
    solver: str, labels: int, dtype: torch.dtype, callback: Callable | None
) -> tuple[Tensor, ...]:
    weights = [torch.tensor(w, dtype=dtype, requires_grad=True) for w in (0.8, 1.3)]
    E = energy(labels, dtype, weights=weights)
    E.unary.requires_grad_()
    x = fwcrf.minimize(E, SOLVERS[solver], num_steps=STEPS, callback=callback).probabilities
    direction = normal(*x.shape, seed=8).to(dtype)
    return torch.autograd.grad(x, [E.unary, *weights], direction)


GROUPS = {f.__name__: f for f in (potts, matrices, pruning, gradients)}


def everything() -> tuple[str, dict[str, dict[tuple, Outcome]]]:
    torch.set_num_threads(2)
    return _core.isa(), {name: run() for name, run in GROUPS.items()}


@pytest.mark.parametrize("isa", ["", "generic", "avx2", "avx512"])
def test_the_same_end_at_once_and_step_by_step(isa):
    """In a process of its own, once for all: the instruction set is chosen at start-up.

    Unless one is asked for, short rows may have another one than long rows.
    """
    with environment(FWCRF_ISA=isa):
        used, found = in_process(everything, timeout=280)
    if isa and used != isa:
        assert isa != "generic"
        pytest.skip(f"not available here: {used} is used instead of {isa}")
    all_of_them = {(group, *case): outcome for group in found for case, outcome in found[group].items()}
    wrong = {c: r.difference for c, r in all_of_them.items() if not r.difference <= LIMIT[c[-1]]}
    assert not wrong

    # Potts penalties are taken at once with any number of labels; matrices, and solvers with dual variables,
    # with as many labels as four of the shortest vectors hold.
    stepped = [case for case, outcome in all_of_them.items() if not outcome.native]
    assert not [c for c in stepped if c[2] <= 8 or (c[0] != "matrices" and c[1] not in ("emd", "admm"))]
    assert [case for case, outcome in found["pruning"].items() if not outcome.pruned] == []
    assert not any(outcome.pruned for outcome in found["potts"].values())

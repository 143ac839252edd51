"""Kernels over scattered points: errors of the lattice, and the size at which it becomes the faster one.

Errors are of K x without self-edges in the L2 norm, relative to the exact kernel, for x of random
probabilities; *signed* for normal x, whose sums cancel and whose errors do not. *Warned* is the estimate of
the larger one from a sample of pairs, of which ``fwcrf.kernels`` warns if it is above 20 %. Times are
processor times of one thread: the operator with symmetric normalization, and ten applications of it.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fwcrf.apps.bench.accuracy import distance
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Case, Plan, Times, Work, measure
from fwcrf.kernels import Gaussian, Lattice
from fwcrf.kernels.calibration import signed_error
from fwcrf.kernels.kernel import gaussian, most_exact

LABELS, FILTERS = 5, 10
ERRORS = [(d, n) for d in (2, 3, 5, 6, 8) for n in (300, 1000, 3000)] + [(12, 1000), (12, 3000)]
SIZES = (100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000)
DIMENSIONS = (2, 3, 5, 6, 8)
# Points of 6 features in standard deviations: the wider they are spread, the fewer neighbours has each.
SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform, cube of 4": lambda u: 4 * u,
    "uniform, cube of 6": lambda u: 6 * u,
    "uniform, cube of 8": lambda u: 8 * u,
    "uniform, cube of 10": lambda u: 10 * u,
    "uniform, cube of 20": lambda u: 20 * u,
    "normal, deviation 1": lambda u: torch.erfinv(2 * u - 1) * 2**0.5,
    "normal, deviation 2": lambda u: torch.erfinv(2 * u - 1) * 2 * 2**0.5,
    "normal, deviation 4": lambda u: torch.erfinv(2 * u - 1) * 4 * 2**0.5,
}


def scattered(n: int, d: int) -> Tensor:
    """Points that are uniform in the unit cube, ``(n, d)``."""
    return torch.rand(n, d, generator=torch.Generator().manual_seed(0)).clamp(1e-6, 1 - 1e-6)


def errors(features: Tensor) -> dict[str, float]:
    """The errors of a lattice over points, the largest entry of its matrix, and the neighbours of a point."""
    n = len(features)
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(n, LABELS, generator=generator)
    x = x / x.sum(-1, keepdim=True)
    signed = torch.randn(n, LABELS, generator=generator)
    found = {}
    for mode in ("symmetric", "none"):
        K, exact = (gaussian(features, method, mode).without_self_edges() for method in ("lattice", "exact"))
        found[mode] = distance(K(x), exact(x))
        if mode == "symmetric":
            found["signed"] = distance(K(signed), exact(signed))
        else:
            found["neighbours"] = float(exact.row_sums().mean())
            found["largest"] = float(K.with_unit_diagonal().to_dense().max()) if n <= 1000 else float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        K = Gaussian(method="lattice").operator(features)
    assert isinstance(K, Lattice)
    found["warned"] = max(K.sampled_error or 0.0, signed_error(features, K, "symmetric"))
    return found


def work(features: Tensor, labels: int, method: str) -> Work:
    """Build the operator and apply it as often as ten steps do."""
    x = torch.rand(len(features), labels)

    def run() -> Tensor:
        K = gaussian(features, method, "symmetric").without_self_edges()
        y = x
        for _ in range(FILTERS):
            y = K(y)
        return y

    return run


def ratios(d: int, labels: int, rounds: int) -> dict[int, float]:
    """The time of the exact kernel divided by that of the lattice, by number of points."""
    cases = [
        Case(method, partial(work, 4 * scattered(n, d), labels, method), str(n))
        for n in SIZES
        for method in ("exact", "lattice")
    ]
    times: Times = measure(cases, rounds, time.thread_time)
    return {
        n: statistics.median(
            a / b for a, b in zip(times[str(n), "exact", None], times[str(n), "lattice", None], strict=True)
        )
        for n in SIZES
    }


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    by_size = {f"{d} features, {n} points": errors(4 * scattered(n, d)) for d, n in ERRORS}
    by_spread = {name: errors(spread(scattered(1000, 6))) for name, spread in SPREADS.items()}
    for title, found in (
        ("Errors over a cube of 4 standard deviations", by_size),
        ("Errors over 1000 points of 6 features", by_spread),
    ):
        print(f"\n### {title}\n")
        head = ["", "neighbours", "symmetric", "signed", "none", "largest entry", "warned"]
        print(table(head, [[name, *_cells(e)] for name, e in found.items()]))
    slower = {
        f"{d} features, {labels} labels": ratios(d, labels, plan.rounds)
        for d in DIMENSIONS
        for labels in (2, 21)
    }
    print(
        "\n### Time of the exact kernel over that of the lattice; exact up to "
        f"{', '.join(str(most_exact(d)) for d in DIMENSIONS)} points with {DIMENSIONS} features\n"
    )
    print(table(["", *map(str, SIZES)], [[k, *(f"{v:.2f}" for v in e.values())] for k, e in slower.items()]))
    return {"errors by size": by_size, "errors by spread": by_spread, "exact over lattice": slower}


def _cells(e: dict[str, float]) -> list[str]:
    large = "" if e["largest"] != e["largest"] else f"{e['largest']:.2f}"
    percent = [f"{100 * e[key]:.1f} %" for key in ("symmetric", "signed", "none")]
    return [f"{e['neighbours']:.2f}", *percent, large, f"{100 * e['warned']:.0f} %"]

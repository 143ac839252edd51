"""Time of a Euclidean Frank-Wolfe step on a large grid, compared with the same step in plain torch.

The step is the projection of -(P x + u) onto the simplices, for a Potts model with a weight per edge.
The plain version is two gathers, two ``index_add`` and a projection by sorting.
"""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from fwcrf import solvers
from fwcrf.apps.bench import report
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Plan
from fwcrf.graphs import SparseMRF, grid
from fwcrf.torch_ops.simplex import softmax

SIDE, LABELS, STEPS = 1000, 16, 50
THREADS = 2
TARGET = 5.0


def model(side: int, labels: int) -> SparseMRF:
    generator = torch.Generator().manual_seed(0)
    edges, _ = grid((side, side))
    weights = torch.rand(len(edges), generator=generator)
    return SparseMRF(torch.randn(side * side, labels, generator=generator), edges, weights)


def plain_step(x: Tensor, unary: Tensor, i: Tensor, j: Tensor, weight: Tensor) -> Tensor:
    """The next x, in plain torch."""
    y = torch.zeros_like(x).index_add_(0, i, weight * x[j]).index_add_(0, j, weight * x[i])
    v = -(unary + y.sum(-1, keepdim=True) - y)
    descending = v.sort(-1, descending=True).values
    count = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype)
    threshold = (descending.cumsum(-1) - 1) / count
    support = (descending > threshold).sum(-1, keepdim=True)
    return (v - threshold.gather(-1, support - 1)).clamp_(min=0)


def measure(rounds: int, side: int, labels: int, steps: int) -> dict[str, float]:
    """Least seconds per step over the rounds: of our complete run, and of single steps in torch."""
    mrf = model(side, labels)
    E, x0 = mrf.energy(), softmax(mrf.unary, -1.0)
    i, j = (end.contiguous() for end in mrf.edges.unbind(-1))
    plain = (mrf.unary, i, j, torch.as_tensor(mrf.pairwise.weight).unsqueeze(-1))  # type: ignore[union-attr]
    ours = solvers.minimize(E, "l2fw", x0, num_steps=2).probabilities
    error = float((ours - plain_step(plain_step(x0, *plain), *plain)).abs().max())
    assert error < 1e-4, f"the two differ by {error}"
    times: dict[str, list[float]] = {"fwcrf": [], "torch": []}
    for _ in range(rounds):
        start = perf_counter()
        solvers.minimize(E, "l2fw", x0, num_steps=steps)
        times["fwcrf"].append((perf_counter() - start) / steps)
        x = x0
        for _ in range(2):
            start = perf_counter()
            x = plain_step(x, *plain)
            times["torch"].append(perf_counter() - start)
    return {name: min(each) for name, each in times.items()}


def run(plan: Plan, threads: int = THREADS) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    rounds = plan.at_most(5).rounds
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        seconds = measure(rounds, SIDE, LABELS, STEPS)
    finally:
        torch.set_num_threads(before)
    ratio = seconds["torch"] / seconds["fwcrf"]
    print(f"\n### {SIDE} x {SIDE} grid, {LABELS} labels, {threads} threads, least of {rounds} rounds\n")
    rows = [[name, f"{1000 * each:.1f}", f"{STEPS * each:.2f}"] for name, each in seconds.items()]
    print(table(["", "ms per step", f"s for {STEPS} steps"], rows))
    print(f"\ntorch's time over ours: {ratio:.1f} (target: {TARGET:g})")
    return {"seconds per step": seconds, "ratio": ratio, "cores at hand": report.cores_at_hand()}

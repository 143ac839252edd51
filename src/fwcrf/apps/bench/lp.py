"""Labels and lower bounds of the linear relaxations on UAI competition models with known optimum."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fwcrf.apps.bench.pictures import data
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Plan
from fwcrf.graphs import SparseMRF

# Steps and settings. lp-bethe, lp-trw and lp-rho solve a linear program over the local polytope per step.
SOLVERS: dict[str, tuple[int, dict[str, Any]]] = {
    "lp-meshi": (500, {}),
    "lp-bethe": (20, {}),
    "lp-trw": (20, {}),
    "lp-rho": (20, {}),
}
# With more labels, such a program has a quarter of a million variables and takes minutes.
FEW_LABELS = 5

Row = dict[str, float]


def instance(name: str) -> SparseMRF:
    found = np.load(data() / "mrf" / f"{name}.npz")
    pairwise = found["pairwise"] if "pairwise" in found else found["potts_weight"]
    return SparseMRF(
        torch.from_numpy(found["unary"]).double(),
        torch.from_numpy(found["edges"]).long(),
        torch.from_numpy(pairwise).double(),
        constant=float(found["constant"]),
    )


def measure(model: SparseMRF, best: float, solver: str, steps: int, settings: dict[str, Any]) -> Row:
    """Distance of labels and bound from the best energy in percent of it, and seconds."""
    start = perf_counter()
    found = model.solve(solver, steps, "bcd", **settings)
    far = 100 / abs(best)
    rounded = model.value(found.probabilities.argmax(-1))
    return {
        "nearest": far * (float(rounded) - best),
        "bcd": far * (float(found.energy) - best),
        "bound": far * (best - float(found.bound)),
        "seconds": perf_counter() - start,
    }


def run(plan: Plan, names: list[str] | None = None) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    known = json.loads((data() / "mrf" / "instances.json").read_text(encoding="utf-8"))
    results: dict[str, dict[str, Row]] = {}
    for name in names or known:
        model, best = instance(name), known[name]["best_energy"]
        results[name] = {}
        for solver, (steps, settings) in SOLVERS.items():
            if solver != "lp-meshi" and model.num_labels > FEW_LABELS:
                continue
            row = results[name][solver] = measure(model, best, solver, steps, settings)
            print(name, solver, {key: f"{value:.4g}" for key, value in row.items()}, flush=True)
    print("\n### Energy of the labels above the best, nearest (bcd), and bound below the best, in percent\n")
    rows = [
        [
            f"{name}, {solver}",
            f"{_percent(r['nearest'])} ({_percent(r['bcd'])})",
            _percent(r["bound"]),
            f"{r['seconds']:.1f}",
        ]
        for name, by_solver in results.items()
        for solver, r in by_solver.items()
    ]
    print(table(["", "labels", "bound", "seconds"], rows))
    return {"percent": results}


def _percent(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"  # not -0.000

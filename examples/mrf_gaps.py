"""Optimality gap and time of each solver, on sparse graphs with a known optimum.

The instances of the UAI 2014 competition are ``NAME.npz`` files in a folder: ``unary`` (n, L),
``edges`` (m, 2), ``potts_weight`` (m,) or ``pairwise`` (m, L, L), ``constant``, ``best_labeling`` (n,).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from fwcrf import SparseMRF, rounding, solvers

# cccp-qp1 takes far longer than every other solver.
SOLVERS = [name for name in solvers.names() if name != "cccp-qp1"]
ROUNDINGS = {
    "nearest": rounding.get("nearest"),
    "bcd": rounding.bcd,
    "8 restarts": partial(rounding.bcd, restarts=8),
}


def read(path: Path) -> tuple[SparseMRF, float]:
    """Returns a model and its least energy."""
    with np.load(path) as file:
        given = {key: file[key] for key in file.files}
    costs = given["potts_weight"] if "potts_weight" in given else given["pairwise"]
    unary, pairwise = (torch.from_numpy(values).double() for values in (given["unary"], costs))
    mrf = SparseMRF(unary, given["edges"], pairwise, constant=float(given["constant"]))
    return mrf, float(mrf.value(torch.from_numpy(given["best_labeling"]).long()))


def measured(models: Sequence[tuple[SparseMRF, float]], solver: str, steps: int) -> list[float]:
    """Returns means over the models: 100 (E - E*) / |E*| per rounding, then milliseconds of the solver."""
    rows = []
    for mrf, optimum in models:
        start = perf_counter()
        found = mrf.solve(solver, steps, "nearest")
        taken = 1000 * (perf_counter() - start)
        labels = [rounded(found.objective, found.probabilities) for rounded in ROUNDINGS.values()]
        gaps = [100 * (float(mrf.value(each)) - optimum) / abs(optimum) for each in labels]
        rows.append([*gaps, taken])
    return np.mean(rows, 0).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FWCRF_DATA", beside)) / "mrf"
    parser.add_argument("--data", type=Path, default=folder, help="folder of instances")
    parser.add_argument("--steps", type=int, default=50, help="steps of each solver (default: 50)")
    parser.add_argument("--solvers", nargs="+", default=SOLVERS, metavar="NAME", help="(default: all)")
    given = parser.parse_args()
    groups = {kind: sorted(given.data.glob(f"{kind}_*.npz")) for kind in ("Segmentation", "Grids")}
    if not all(groups.values()):
        parser.error(f"expected Segmentation_*.npz and Grids_*.npz in {given.data}")
    models = {kind: [read(path) for path in paths] for kind, paths in groups.items()}
    head = [f"{kind}, {name}" for kind in groups for name in (*ROUNDINGS, "ms")]
    print(f"| solver | {' | '.join(head)} |")
    print("|---|" + "---:|" * len(head))
    for solver in given.solvers:
        cells = []
        for group in models.values():
            *gaps, taken = measured(group, solver, given.steps)
            cells += [*(f"{gap:.2f}" for gap in gaps), f"{taken:.0f}"]
        print(f"| `{solver}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

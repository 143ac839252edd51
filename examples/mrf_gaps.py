"""How far the solvers end from the optimum on sparse graphs whose optimum is known.

The instances are those of the UAI 2014 competition in a folder of ``NAME.npz`` files: ``unary`` (n, L),
``edges`` (m, 2), ``potts_weight`` (m,) or ``pairwise`` (m, L, L), ``constant``, ``best_labeling`` (n,).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from fwcrf import SparseMRF, solvers

# What is left out takes far longer than the others, or is one of them under another name.
SOLVERS = [name for name in solvers.names() if name not in ("cccp-qp1", "lp-fw")]
ROUNDINGS: dict[str, Callable[[SparseMRF, str, int], torch.Tensor]] = {
    "nearest": lambda mrf, solver, steps: mrf.solve(solver, steps, "nearest").energy,
    "bcd": lambda mrf, solver, steps: mrf.solve(solver, steps, "bcd").energy,
    "bcd, 8 restarts": lambda mrf, solver, steps: mrf.solve(solver, steps, "bcd", restarts=8).energy,
}


def read(path: Path) -> tuple[SparseMRF, float]:
    """A model and its least energy."""
    with np.load(path) as file:
        given = {key: file[key] for key in file.files}
    pairwise = given["potts_weight"] if "potts_weight" in given else given["pairwise"]
    unary, pairwise = (torch.from_numpy(values).double() for values in (given["unary"], pairwise))
    mrf = SparseMRF(unary, given["edges"], pairwise, constant=float(given["constant"]))
    return mrf, float(mrf.value(torch.from_numpy(given["best_labeling"]).long()))


def gaps(paths: Sequence[Path], solver: str, steps: int) -> dict[str, float]:
    """100 (E - E*) / |E*| per rounding, the mean over the instances."""
    found: dict[str, list[float]] = {name: [] for name in ROUNDINGS}
    for path in paths:
        mrf, optimum = read(path)
        for name, rounded in ROUNDINGS.items():
            found[name].append(100 * (float(rounded(mrf, solver, steps)) - optimum) / abs(optimum))
    return {name: float(np.mean(each)) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    default = Path(os.environ.get("FWCRF_DATA", beside)) / "mrf"
    parser.add_argument(
        "--data", type=Path, default=default, help=f"folder of instances (default: {default})"
    )
    parser.add_argument("--steps", type=int, default=50, help="steps of each solver (default: 50)")
    parser.add_argument("--solvers", nargs="+", default=SOLVERS, metavar="NAME")
    given = parser.parse_args()
    groups = {kind: sorted(given.data.glob(f"{kind}_*.npz")) for kind in ("Segmentation", "Grids")}
    if not any(groups.values()):
        parser.error(f"there are no Segmentation_*.npz or Grids_*.npz in {given.data}")
    head = [f"{kind}: {name}" for kind in groups for name in ROUNDINGS]
    print(f"| solver | {' | '.join(head)} |")
    print("|---|" + "---:|" * len(head))
    for solver in given.solvers:
        row = [f"{gap:.2f}" for paths in groups.values() for gap in gaps(paths, solver, given.steps).values()]
        print(f"| `{solver}` | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

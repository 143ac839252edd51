"""MAP labels on graphs: the default search, the former default, and other programs where they are installed.

Instances of the UAI competitions (if the data is installed), spin glasses, Potts models and a stereo-like
model with truncated linear costs. Seconds are of the processor: other programs may use the machine.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.bench.lp import instance
from fwcrf.apps.bench.pictures import data
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Plan
from fwcrf.apps.files.uai import write_uai
from fwcrf.graphs import SparseMRF, TruncatedLinear, grid
from fwcrf.lp import LocalPolytope, relax

SECONDS = 10  # limit of toulbar2


class Found(NamedTuple):
    energy: float
    bound: float | None
    proven: bool
    seconds: float


def spin_glass(side: int, seed: int) -> SparseMRF:
    generator = torch.Generator().manual_seed(seed)
    edges, _ = grid((side, side))
    fields = 0.1 * torch.randn(side * side, 2, generator=generator)
    return SparseMRF(fields.double(), edges, torch.randn(len(edges), generator=generator).double())


def potts(side: int, labels: int, weight: float) -> SparseMRF:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(side * side, labels, generator=generator).double()
    return SparseMRF(unary, grid((side, side))[0], weight)


def stereo(height: int, width: int, labels: int) -> SparseMRF:
    """Depths of a slanted plane with a box in front, from noisy matching costs; truncated linear edges."""
    generator = torch.Generator().manual_seed(0)
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    depth = (labels * 0.4 * row / height).round()
    box = (row > height // 4) & (row < 3 * height // 4) & (column > width // 3) & (column < 2 * width // 3)
    depth = torch.where(box, 0.8 * labels, depth)
    noise = torch.randn(height, width, labels, generator=generator)
    cost = (torch.arange(labels) - depth[..., None]).abs().clamp(max=3.0) + 1.5 * noise
    return SparseMRF(
        cost.flatten(0, 1).double(), grid((height, width))[0], TruncatedLinear(1.0, truncation=2.0)
    )


def side_chains(residues: int, seed: int) -> SparseMRF:
    """Rotamers of residues that are packed in space: 3 to 27 labels per node, and large costs of overlaps."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sizes = torch.tensor([3, 9, 9, 18, 27])[torch.randint(0, 5, (residues,), generator=generator)]
    labels, side = int(sizes.max()), math.ceil(residues ** (1 / 3) - 1e-9)
    places = torch.cartesian_prod(*[torch.arange(float(side), dtype=torch.float64)] * 3)[:residues]
    places = 5.5 * places + 0.8 * normal(residues, 3)  # in Angstrom
    ends = places[:, None] + 1.5 * normal(residues, labels, 3)  # of the side chain, by rotamer
    unary = normal(residues, labels).square()
    unary[torch.arange(labels) >= sizes[:, None]] = torch.inf
    edges = torch.combinations(torch.arange(residues))
    edges = edges[(places[edges[:, 0]] - places[edges[:, 1]]).norm(dim=1) < 7.5]
    apart = torch.cdist(ends[edges[:, 0]], ends[edges[:, 1]])
    overlap, contact = (3.0 - apart).clamp(min=0).square(), (-(apart - 4.0).square()).exp()
    return SparseMRF(unary, edges, 10 * overlap - 0.5 * contact, cardinalities=sizes)


def instances(quick: bool) -> Iterator[tuple[str, SparseMRF, float | None]]:
    """Names, models, and the best energy known before."""
    if (data() / "mrf").exists():
        known = json.loads((data() / "mrf" / "instances.json").read_text(encoding="utf-8"))
        yield from ((name, instance(name), known[name]["best_energy"]) for name in known)
    yield from (
        (f"spin glass {side} x {side}", spin_glass(side, 0), None) for side in ((20,) if quick else (20, 40))
    )
    yield f"Potts {64 if quick else 128}, 5 labels", potts(64 if quick else 128, 5, 0.7), None
    yield f"Potts {128 if quick else 512}, 2 labels", potts(128 if quick else 512, 2, 1.0), None
    yield "side chains, 3 to 27 labels", side_chains(40 if quick else 120, 0), None
    yield "stereo-like, 16 labels", stereo(60, 80, 16) if quick else stereo(120, 160, 16), None


def ours(**settings: Any) -> Callable[[SparseMRF], Found | None]:
    def run(mrf: SparseMRF) -> Found:
        start = process_time()
        found = mrf.solve(**settings)
        energy = float(found.energy)
        seconds = process_time() - start
        bound = None if found.bound is None else float(found.bound)
        return Found(energy, bound, found.proven is not None and bool(found.proven), seconds)

    return run


def toulbar2(mrf: SparseMRF) -> Found | None:
    """Its labels after at most ten seconds, preprocessing and search with its defaults."""
    program = shutil.which("toulbar2")
    if program is None or mrf.num_nodes > 20_000:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.uai"
        write_uai(path, mrf)
        before = _of_children()
        run = subprocess.run(
            [program, str(path), f"-timer={SECONDS}", f"-w={path}.sol", "-precision=6"],
            capture_output=True, text=True, timeout=20 * SECONDS, cwd=folder, check=False,
        )  # fmt: skip
        seconds = _of_children() - before
        solution = Path(f"{path}.sol")
        if not solution.exists():
            return None
        labels = torch.tensor([int(word) for word in solution.read_text(encoding="utf-8").split()])
    proven = re.search(r"^Optimum:", run.stdout, re.MULTILINE) is not None
    energy = float(mrf.value(labels))
    return Found(energy, energy if proven else None, proven, seconds)


def _of_children() -> float:
    used = os.times()
    return used.children_user + used.children_system


def pymaxflow(mrf: SparseMRF) -> Found | None:
    """A cut for two labels and Potts, alpha-expansion for more."""
    weight = getattr(mrf.pairwise, "weight", None)
    if find_spec("maxflow") is None or not isinstance(weight, float):
        return None
    import maxflow  # type: ignore[import-not-found]

    # The edges of a grid go to the right and down, by the length of a row.
    unary = mrf.unary.numpy().reshape(-1, int(mrf.edges.diff().max()), mrf.num_labels)
    start = process_time()
    if mrf.num_labels == 2:
        graph = maxflow.Graph[float](mrf.num_nodes, 2 * mrf.num_nodes)
        nodes = graph.add_grid_nodes(unary.shape[:2])
        graph.add_grid_edges(nodes, weight)
        graph.add_grid_tedges(nodes, unary[..., 1], unary[..., 0])
        graph.maxflow()
        labels = graph.get_grid_segments(nodes).astype(np.int64)
    else:
        from maxflow.fastmin import aexpansion_grid  # type: ignore[import-not-found]

        matrix = mrf.pairwise.matrix(mrf.num_labels, mrf.unary)  # type: ignore[union-attr]
        costs = weight * (1 - np.eye(mrf.num_labels) if matrix is None else matrix.numpy())
        labels = aexpansion_grid(np.ascontiguousarray(unary), costs)
    seconds = process_time() - start
    found: Tensor = torch.from_numpy(np.ascontiguousarray(labels)).flatten().long()
    return Found(float(mrf.value(found)), None, mrf.num_labels == 2, seconds)


def highs(mrf: SparseMRF) -> Found | None:
    """The labels nearest to an optimal point of the linear program, and its optimum as the bound."""
    if find_spec("scipy") is None:
        return None
    start = process_time()
    relaxation = relax(mrf.unary, mrf.edges, mrf.tables())
    polytope = LocalPolytope(relaxation)
    if not polytope.is_exact:
        return None
    x, least = polytope.solve(relaxation.unary)
    energy = float(mrf.value(relaxation.nodes(x).argmax(-1)))
    bound = float(least) + mrf.constant
    return Found(energy, bound, energy - bound <= 1e-9 * abs(energy), process_time() - start)


METHODS: dict[str, Callable[[SparseMRF], Found | None]] = {
    "default": ours(),
    "50 ms": ours(time_limit=0.05),
    "lp-trws": ours(solver="lp-trws", num_steps=100),
    "l2fw": ours(solver="l2fw"),
    "HiGHS": highs,
    "toulbar2": toulbar2,
    "PyMaxflow": pymaxflow,
}


def cell(found: Found | None, best: float) -> str:
    """The gap to the best energy in percent, with a star if proven, and seconds."""
    if found is None:
        return ""
    gap = 100 * (found.energy - best) / abs(best)
    return f"{round(gap, 3) + 0.0:.3f}{'*' if found.proven else ''}, {found.seconds:.3f} s"  # not -0.000


def run(plan: Plan, names: list[str] | None = None) -> dict[str, object]:
    """Run the benchmark, print its table and return all results."""
    for method in ("default", "lp-trws", "l2fw"):
        METHODS[method](potts(4, 3, 0.5))  # imports
    results: dict[str, dict[str, Any]] = {}
    rows = []
    for name, mrf, known in instances(plan.quick):
        if names is not None and name not in names:
            continue
        found = {method: call(mrf) for method, call in METHODS.items()}
        best = min([each.energy for each in found.values() if each] + ([] if known is None else [known]))
        bounds = [each.bound for each in found.values() if each and each.bound is not None]
        below = 100 * (best - max(bounds)) / abs(best)
        cells = [cell(each, best) for each in found.values()]
        rows.append([name, f"{best:.4f}", f"{round(below, 3) + 0.0:.3f}", *cells])
        results[name] = {method: each and each._asdict() for method, each in found.items()} | {"best": best}
        print(name, *rows[-1][1:], sep=" | ", flush=True)
    print(
        "\n### Energies above the best known, in percent (* proven optimal), and seconds of the processor\n"
    )
    print(table(["", "best energy", "best bound below, %", *METHODS], rows))
    return {"instances": results}

"""Time of the two common oracles, compared with entmax's sparsemax, torch's softmax and one lattice filter.

*Flat* and *peaked* scores are normal numbers of deviation 1 and 5. *Classifier* scores resemble a
network's: one label far ahead in most places, and a second one near borders between regions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf.apps.bench import pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Work, measure
from fwcrf.kernels import Bilateral
from fwcrf.torch_ops.simplex import project_onto_simplex, softmax

try:
    from entmax import sparsemax
except ImportError:
    sparsemax = None

HEIGHT, WIDTH, LABELS = 375, 500, 21
TARGETS = {1: 20.0, 2: 35.0}

COMPARED = [
    *(Compared(f"projection onto the simplex, {kind} scores", f"projection, {kind}",
               {"entmax.sparsemax": f"sparsemax, {kind}"}, TARGETS)
      for kind in ("flat", "peaked", "classifier")),
    *(Compared(f"softmax, {kind} scores", f"softmax, {kind}", {"torch.softmax": f"torch.softmax, {kind}"})
      for kind in ("flat", "classifier")),
    *(Compared(f"{oracle}, flat scores", f"{oracle}, flat",
               {"one lattice filter": "filter", "a copy": "copy"})
      for oracle in ("projection", "softmax")),
]  # fmt: skip


def scores() -> dict[str, Tensor]:
    """Arrays of scores ``(pixels, labels)``, by kind."""
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(HEIGHT * WIDTH, LABELS, generator=generator)
    y, x = torch.meshgrid(torch.linspace(0, 4, HEIGHT), torch.linspace(0, 5, WIDTH), indexing="ij")
    waves = torch.randn(LABELS, 3, generator=generator)
    smooth = torch.sin(waves[:, :1] * x.flatten() + waves[:, 1:2] * y.flatten() + 6 * waves[:, 2:])
    return {"flat": flat, "peaked": 5 * flat, "classifier": (12 * smooth.T + 0.5 * flat).contiguous()}


def cases() -> dict[str, Work]:
    arrays = scores()
    target = torch.empty_like(arrays["flat"])
    K = Bilateral(80.0, 13.0).operator(pictures.named(pictures.names()[0])).without_self_edges()
    x = torch.rand(K.n, LABELS)
    timed: dict[str, Work] = {
        "copy": lambda: target.copy_(arrays["flat"]),
        "filter": lambda: K(x),
    }
    for kind, v in arrays.items():
        timed[f"projection, {kind}"] = lambda v=v: project_onto_simplex(v)
        if sparsemax:
            timed[f"sparsemax, {kind}"] = lambda v=v: sparsemax(v, -1)
        timed[f"softmax, {kind}"] = lambda v=v: softmax(v)
        timed[f"torch.softmax, {kind}"] = lambda v=v: torch.softmax(v, -1)
    return timed


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    works = [
        Case(name, lambda w=work: w, "", count) for name, work in cases().items() for count in plan.threads
    ]
    found = spreads(measure(works, plan.rounds))
    rows = assemble(found, COMPARED, plan.threads)
    print_rows(f"Oracles, {HEIGHT * WIDTH} x {LABELS}", rows)
    return {"rows": rows}

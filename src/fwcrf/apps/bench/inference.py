"""Complete inferences, from image and scores to labels and probabilities, compared with pydensecrf.

Times include features, lattices, normalization, steps, and the conversion of array layouts. Both libraries
get the same arrays, labels first. The time of one step is the difference of ten and five steps, divided by
five. Its *share of the memory's speed* assumes that a step reads x, the unary and the lattice's table once,
and writes x once.
"""

from __future__ import annotations

import statistics

import numpy as np

from fwcrf.apps.bench import bandwidth, peer, peers, pictures
from fwcrf.apps.bench.report import print_rows, table
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Times, measure

LABELS = 21
STEPS = (5, 10)
SOLVERS = ("mf", "l2fw")
NETWORK = ", a network's scores"
TARGETS = {("mf", 10): {1: 6.0, 2: 10.0}}


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    times, rows = ordinary(plan)
    print_rows("Whole inferences", rows)
    share = of_bandwidth(times, plan)
    print("\n### One step\n")
    head = ["solver", "threads", "ms", "GB/s", "triad, GB/s", "share of the memory's speed"]
    print(table(head, [[s, t, *(f"{v:.2f}" for v in each.values())] for (s, t), each in share.items()]))
    return {"rows": rows, "steps": {f"{s}, {t}": each for (s, t), each in share.items()}}


def ordinary(plan: Plan) -> tuple[Times, list[Row]]:
    """Times and rows for 500 x 375 pixels and 21 labels, over all pictures."""
    cases = []
    for picture in pictures.names(2 if plan.quick else None):
        image = pictures.named(picture)
        for kind, unary in _scores(picture, image).items():
            for steps in STEPS:
                for solver in SOLVERS:
                    work = peers.ours(image, unary, steps, solver)
                    for count in plan.threads:
                        cases.append(Case(f"{solver} {steps}{kind}", lambda work=work: work, picture, count))
                if peer.dcrf:
                    theirs = peers.available()["pydensecrf"].inference(image, unary, steps)
                    cases.append(Case(f"pydensecrf {steps}{kind}", lambda theirs=theirs: theirs, picture))
    times = measure(cases, plan.at_most(7).rounds)
    size = f"{pictures.WIDTH} x {pictures.HEIGHT}, {LABELS} labels"
    wanted = [
        Compared(
            f"{steps} steps of {solver}, {size}{kind}",
            f"{solver} {steps}{kind}",
            {"pydensecrf": f"pydensecrf {steps}{kind}"},
            TARGETS.get((solver, steps), {}),
        )
        for kind in ("", NETWORK)
        for solver in SOLVERS
        for steps in STEPS
    ]
    wanted += [
        Compared("10 steps of l2fw against our mf", "l2fw 10", {"fwcrf mf": "mf 10"}, {1: 0.8, 2: 0.8})
    ]
    return times, assemble(spreads(times), wanted, plan.threads)


def _scores(picture: str, image: np.ndarray) -> dict[str, np.ndarray]:
    """Unary energies ``(labels, n)``: random, and of a network, where few labels are close."""
    network = -pictures.network_scores(picture).reshape(LABELS, -1)
    return {"": peer.unary(image, LABELS), NETWORK: np.ascontiguousarray(network)}


def of_bandwidth(times: Times, plan: Plan) -> dict[tuple[str, int], dict[str, float]]:
    """Milliseconds of one step, and its fraction of the memory bandwidth."""
    triad = bandwidth.gigabytes_per_second(plan.at_most(5))
    n = pictures.WIDTH * pictures.HEIGHT
    moved = 3 * 4 * n * LABELS + n * 6 * (4 + 4)  # x, unary, new x; corner and weight of six vertices
    found = spreads(times)
    steps = {}
    for solver in SOLVERS:
        for count in plan.threads:
            each = [
                (found[picture, f"{solver} 10", t].min - found[picture, f"{solver} 5", t].min) / 5
                for picture, name, t in found
                if (name, t) == (f"{solver} 10", count)
            ]
            taken = statistics.median(each)
            speed = moved / taken / 1e6
            steps[solver, count] = {
                "ms": taken, "GB/s": speed, "triad, GB/s": triad[count], "share": speed / triad[count],
            }  # fmt: skip
    return steps

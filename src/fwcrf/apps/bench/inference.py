"""Complete inferences, from image and scores to labels and probabilities, compared with pydensecrf.

Times include features, lattices, normalization, steps, and the conversion of array layouts. Both libraries
get the same arrays, labels first. The time of one step is the difference of two steps and one, in native
calls on a model that is there already: runs so short read every pixel in every step, and look for no labels
to leave out. Its *share of the memory's speed* assumes that a step reads x, the unary and the lattice's table
once, and writes x once.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np

from fwcrf.apps.bench import bandwidth, peer, peers, pictures
from fwcrf.apps.bench.report import print_rows, table
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Times, measure
from fwcrf.engine.model import Model
from fwcrf.solvers import get
from fwcrf.solvers.plan import Refusal, as_updates

LABELS = 21
STEPS = (5, 10)
MOST = 50  # steps of l2fw until nothing changes, against the peer's ten
WHOLE = (1, 2)  # steps that read every pixel
SOLVERS = ("mf", "l2fw")
NETWORK = ", a network's scores"
TARGETS = {
    ("mf", 10, ""): {1: 6.0, 2: 10.0},
    ("mf", 10, NETWORK): {1: 9.0, 2: 15.0},
    ("l2fw", 10, NETWORK): {1: 12.0, 2: 20.0},
    ("l2fw", MOST, NETWORK): {1: 10.0, 2: 16.0},
}


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    _, rows = ordinary(plan)
    print_rows("Whole inferences", rows)
    share = of_bandwidth(steps_of(plan), plan)
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
            for solver, steps in _runs(kind):
                work = peers.ours(image, unary, steps, solver)
                for count in plan.threads:
                    cases.append(Case(f"{solver} {steps}{kind}", lambda work=work: work, picture, count))
            for steps in STEPS if peer.dcrf else ():
                theirs = peers.available()["pydensecrf"].inference(image, unary, steps)
                cases.append(Case(f"pydensecrf {steps}{kind}", lambda theirs=theirs: theirs, picture))
    times = measure(cases, plan.at_most(7).rounds, plan.clock)
    size = f"{pictures.WIDTH} x {pictures.HEIGHT}, {LABELS} labels"
    wanted = [
        Compared(
            f"{'at most ' if steps == MOST else ''}{steps} steps of {solver}, {size}{kind}",
            f"{solver} {steps}{kind}",
            {"pydensecrf": f"pydensecrf {min(steps, STEPS[-1])}{kind}"},
            TARGETS.get((solver, steps, kind), {}),
        )
        for kind in ("", NETWORK)
        for solver, steps in _runs(kind)
    ]
    wanted += [
        Compared("10 steps of l2fw against our mf", "l2fw 10", {"fwcrf mf": "mf 10"}, {1: 0.8, 2: 0.8})
    ]
    return times, assemble(spreads(times), wanted, plan.threads)


def _runs(kind: str) -> list[tuple[str, int]]:
    """Solvers and numbers of steps, by the kind of scores."""
    return [(solver, steps) for solver in SOLVERS for steps in STEPS] + [("l2fw", MOST)] * (kind == NETWORK)


def _scores(picture: str, image: np.ndarray) -> dict[str, np.ndarray]:
    """Unary energies ``(labels, n)``: random, and of a network, where few labels are close."""
    network = -pictures.network_scores(picture).reshape(LABELS, -1)
    return {"": peer.unary(image, LABELS), NETWORK: np.ascontiguousarray(network)}


def steps_of(plan: Plan) -> Times:
    """Times of one and of two steps, over all pictures with random scores."""
    cases = []
    for picture in pictures.names(2 if plan.quick else None):
        image = pictures.named(picture)
        E = peers.energy(image, peer.unary(image, LABELS))
        model = E.pairwise.engine()
        assert isinstance(model, Model)
        for solver in SOLVERS:
            for count in WHOLE:
                updates = as_updates(get(solver), count)
                assert not isinstance(updates, Refusal)
                work = partial(model.run, None, E.unary, updates)
                cases += [Case(f"{solver} {count}", lambda work=work: work, picture, t) for t in plan.threads]
    return measure(cases, plan.at_most(7).rounds, plan.clock)


def of_bandwidth(times: Times, plan: Plan) -> dict[tuple[str, int], dict[str, float]]:
    """Milliseconds of one step, and its fraction of the memory bandwidth."""
    triad = bandwidth.gigabytes_per_second(plan.at_most(5))
    n = pictures.WIDTH * pictures.HEIGHT
    moved = 3 * 4 * n * LABELS + n * 6 * (4 + 4)  # x, unary, new x; corner and weight of six vertices
    found = spreads(times)
    few, many = WHOLE
    steps = {}
    for solver in SOLVERS:
        for count in plan.threads:
            each = [
                (found[picture, f"{solver} {many}", t].min - found[picture, name, t].min) / (many - few)
                for picture, name, t in found
                if (name, t) == (f"{solver} {few}", count)
            ]
            taken = statistics.median(each)
            speed = moved / taken / 1e6
            steps[solver, count] = {
                "ms": taken, "GB/s": speed, "triad, GB/s": triad[count], "share": speed / triad[count],
            }  # fmt: skip
    return steps

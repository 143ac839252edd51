"""Whole inferences, from image and scores to labels and probabilities, beside those of other libraries.

Everything is inside the clock: features, lattices, normalization, steps, and the way from and to the layout
of the arrays. All get the same arrays, labels first. The time of a single step is the difference of ten and
five of them over five; its *share of the memory's speed* takes for granted that a step reads x, the unary and
the lattice's table, and writes x, each once.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import torch

from fwcrf import refine
from fwcrf.bench import bandwidth, peer, peers, pictures
from fwcrf.bench.report import print_rows, table
from fwcrf.bench.rows import Compared, Row, assemble, spreads
from fwcrf.bench.timing import Case, Plan, Times, Work, measure

LABELS = 21
STEPS = (5, 10)
SOLVERS = ("mf", "l2fw")
TARGETS = {("mf", 10): {1: 6.0, 2: 10.0}}
LARGE = {1: 5.0, 2: 9.0}


def run(plan: Plan) -> dict[str, object]:
    """Measure, print, and return everything."""
    times, rows = ordinary(plan)
    rows += special(plan)
    rows += others(plan)
    print_rows("Whole inferences", rows)
    share = of_bandwidth(times, plan)
    print("\n### One step\n")
    head = ["solver", "threads", "ms", "GB/s", "triad, GB/s", "share of the memory's speed"]
    print(table(head, [[s, t, *(f"{v:.2f}" for v in each.values())] for (s, t), each in share.items()]))
    notes = {name: found.note for name, found in peers.available().items()}
    return {"rows": rows, "steps": {f"{s}, {t}": each for (s, t), each in share.items()}, "peers": notes}


# --- the ordinary size -----------------------------------------------------------------------------


def ordinary(plan: Plan) -> tuple[Times, list[Row]]:
    """500 x 375 pixels and 21 labels, over all pictures, beside pydensecrf."""
    cases = []
    for picture in pictures.names(2 if plan.quick else None):
        image = pictures.named(picture)
        unary = peer.unary(image, LABELS)
        for steps in STEPS:
            for solver in SOLVERS:
                work = peers.ours(image, unary, steps, solver)
                for count in plan.threads:
                    cases.append(Case(f"{solver} {steps}", lambda work=work: work, picture, count))
            if peer.dcrf:
                theirs = peers.available()["pydensecrf"].inference(image, unary, steps)
                cases.append(Case(f"pydensecrf {steps}", lambda theirs=theirs: theirs, picture))
    times = measure(cases, plan.least(7).rounds)
    size = f"{pictures.WIDTH} x {pictures.HEIGHT}, {LABELS} labels"
    wanted = [
        Compared(
            f"{steps} steps of {solver}, {size}",
            f"{solver} {steps}",
            {"pydensecrf": f"pydensecrf {steps}"},
            TARGETS.get((solver, steps), {}),
        )
        for solver in SOLVERS
        for steps in STEPS
    ]
    wanted += [
        Compared("10 steps of l2fw against our mf", "l2fw 10", {"fwcrf mf": "mf 10"}, {1: 0.8, 2: 0.8})
    ]
    return times, assemble(spreads(times), wanted, plan.threads)


def of_bandwidth(times: Times, plan: Plan) -> dict[tuple[str, int], dict[str, float]]:
    """What one step takes, and how much of the memory's speed that is."""
    triad = bandwidth.gigabytes_per_second(plan.least(5))
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


# --- other sizes -----------------------------------------------------------------------------------


def special(plan: Plan) -> list[Row]:
    """Few and many labels, a large image, a volume, a batch; five steps of mf on one picture each."""
    name = pictures.names()[1]
    image = pictures.named(name)
    large = (1000, 750) if plan.quick else (2000, 1500)
    side, batch = (48, 2) if plan.quick else (128, 16)
    labels = 60 if plan.quick else 150
    problems = {
        "2 labels": _pair(image, 2),
        f"{labels} labels": _pair(image, labels),
        f"{large[0]} x {large[1]}, {LABELS} labels": _pair(pictures.named(name, *large), LABELS),
        f"volume {side}^3, 3 labels": _volume(side, 3),
        f"batch of {batch}, {LABELS} labels": _batch(image, LABELS, batch),
    }
    rows = []
    for what, works in problems.items():
        cases = [Case("ours", lambda w=works["ours"]: w, name, count) for count in plan.threads]
        cases += [Case("pydensecrf", lambda w=works["pydensecrf"]: w, name)] if peer.dcrf else []
        found = spreads(measure(cases, plan.least(1 if plan.quick else 3).rounds))
        wanted = Compared(f"5 steps of mf, {what}", "ours", {"pydensecrf": "pydensecrf"}, LARGE)
        rows += assemble(found, [wanted], plan.threads)
    return rows


def _pair(image: np.ndarray, labels: int) -> dict[str, Work]:
    unary = peer.unary(image, labels)
    works = {"ours": peers.ours(image, unary, 5)}
    if peer.dcrf:
        works["pydensecrf"] = peers.available()["pydensecrf"].inference(image, unary, 5)
    return works


def _volume(side: int, labels: int) -> dict[str, Work]:
    volume = pictures.volume(side)
    unary = peer.unary(volume.reshape(side, -1), labels)
    scores = torch.from_numpy(-unary).view(labels, *volume.shape)
    grey = torch.from_numpy(volume)[None]
    settings = {"from_logits": True, "solver": "mf", "num_steps": 5, "spatial_dims": 3}

    def ours() -> object:
        return refine(grey, scores, return_probabilities=True, **settings)  # type: ignore[arg-type]

    def theirs() -> object:
        assert peer.dcrf is not None
        place = np.stack(np.meshgrid(*map(np.arange, volume.shape), indexing="ij")).reshape(3, -1)
        place = place.astype(np.float32)
        crf = peer.dcrf.DenseCRF(volume.size, labels)
        crf.setUnaryEnergy(unary)
        crf.addPairwiseEnergy(place / peers.SPATIAL, compat=1)
        both = np.concatenate([place / peers.XY, volume.reshape(1, -1) / np.float32(peers.COLOR)])
        crf.addPairwiseEnergy(np.ascontiguousarray(both, dtype=np.float32), compat=1)
        return np.array(crf.inference(5))

    return {"ours": ours, "pydensecrf": theirs}


def _batch(image: np.ndarray, labels: int, count: int) -> dict[str, Work]:
    images = [np.roll(image, 7 * shift, axis=1) for shift in range(count)]
    unary = peer.unary(image, labels)
    picture, logits = (
        torch.cat(each) for each in zip(*(peers.tensors(i, unary) for i in images), strict=True)
    )
    ours = partial(
        refine, picture.byte(), logits, from_logits=True, solver="mf", num_steps=5, return_probabilities=True
    )
    works: dict[str, Work] = {"ours": ours}
    if peer.dcrf:
        each = [peers.available()["pydensecrf"].inference(i, unary, 5) for i in images]
        works["pydensecrf"] = lambda: [work() for work in each]
    return works


# --- the other libraries ---------------------------------------------------------------------------


def others(plan: Plan) -> list[Row]:
    """Five steps beside all but pydensecrf, on one picture: they take seconds."""
    name = pictures.names()[1]
    width, height = (250, 188) if plan.quick else (pictures.WIDTH, pictures.HEIGHT)
    image = pictures.named(name, width, height)
    unary = peer.unary(image, LABELS)
    work = peers.ours(image, unary, 5)
    cases = [Case("ours", lambda: work, name, count) for count in plan.threads]
    found = {who: p for who, p in peers.available().items() if who != "pydensecrf"}
    for who, each in found.items():
        theirs = each.inference(image, unary, 5)
        cases += [Case(who, lambda w=theirs: w, name, count) for count in plan.threads]
    measured = spreads(measure(cases, plan.least(1 if plan.quick else 3).rounds))
    what = f"5 steps of mf, {width} x {height}, {LABELS} labels, other libraries"
    return assemble(measured, [Compared(what, "ours", {who: who for who in found})], plan.threads)

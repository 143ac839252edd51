"""Complete inferences of other sizes: few and many labels, a large image, a volume, a batch."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from fwcrf import refine
from fwcrf.apps.bench import peer, peers, pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Work, measure
from fwcrf.kernels import Bilateral, Spatial

LABELS = 21
STEPS = 10
SOLVERS = ("mf", "l2fw")
NETWORK = ", a network's scores"
# By the beginning of a problem's name; of all other problems, the last.
TARGETS = {
    f"2 labels{NETWORK}": {1: 9.0, 2: 14.0},
    f"2000 x 1500, {LABELS} labels{NETWORK}": {1: 14.0, 2: 24.0},
    "volume": {1: 8.0, 2: 14.0},
    "": {1: 5.0, 2: 9.0},
}


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    name = pictures.names()[1]
    rows = []
    for what, works in problems(name, plan).items():
        # More rounds for two labels: short times are noisier, and cheap to repeat.
        most = 1 if plan.quick else 15 if what.startswith("2 labels") else 3
        rows += compared(name, what, works, plan.at_most(most))
    print_rows("Other sizes", rows)
    return {"rows": rows}


def problems(name: str, plan: Plan) -> dict[str, dict[str, Work]]:
    """Our function and pydensecrf's, by problem."""
    image = pictures.named(name)
    large = (1000, 750) if plan.quick else (2000, 1500)
    side, batch = (48, 2) if plan.quick else (128, 16)
    labels = 60 if plan.quick else 150
    return {
        "2 labels": _pair(image, 2),
        f"2 labels{NETWORK}": _pair(image, 2, _two(pictures.network_scores(name))),
        f"{labels} labels": _pair(image, labels),
        f"{labels} labels, a network's scores, split": _pair(
            image, labels, pictures.split(pictures.network_scores(name), labels)
        ),
        f"{large[0]} x {large[1]}, {LABELS} labels": _pair(pictures.named(name, *large), LABELS),
        f"{large[0]} x {large[1]}, {LABELS} labels, a network's scores": _pair(
            pictures.named(name, *large), LABELS, pictures.network_scores(name, *large)
        ),
        f"volume {side}^3, 3 labels": _volume(side, 3),
        f"batch of {batch}, {LABELS} labels": _batch(image, LABELS, batch),
        f"batch of {batch}, {LABELS} labels, a network's scores": _batch(
            image, LABELS, batch, pictures.network_scores(name)
        ),
    }


def compared(picture: str, what: str, works: dict[str, Work], plan: Plan) -> list[Row]:
    cases = [Case(who, lambda who=who: works[who], picture, t) for who in SOLVERS for t in plan.threads]
    cases += [Case("pydensecrf", lambda: works["pydensecrf"], picture)] if peer.dcrf else []
    targets = next(targets for begin, targets in TARGETS.items() if what.startswith(begin))
    wanted = [
        Compared(f"{STEPS} steps of {solver}, {what}", solver, {"pydensecrf": "pydensecrf"}, targets)
        for solver in SOLVERS
    ]
    return assemble(spreads(measure(cases, plan.rounds, plan.clock)), wanted, plan.threads)


def _two(logits: np.ndarray) -> np.ndarray:
    """The first label against the best of all the rest, ``(2, height, width)``."""
    return np.stack([logits[0], logits[1:].max(0)])


def _unary(image: np.ndarray, labels: int, logits: np.ndarray | None) -> np.ndarray:
    """Unary energies ``(labels, n)`` of the logits; random without logits."""
    return peer.unary(image, labels) if logits is None else np.ascontiguousarray(-logits.reshape(labels, -1))


def _pair(image: np.ndarray, labels: int, logits: np.ndarray | None = None) -> dict[str, Work]:
    unary = _unary(image, labels, logits)
    works = {solver: peers.ours(image, unary, STEPS, solver) for solver in SOLVERS}
    if peer.dcrf:
        works["pydensecrf"] = peers.available()["pydensecrf"].inference(image, unary, STEPS)
    return works


def _volume(side: int, labels: int) -> dict[str, Work]:
    volume = pictures.volume(side)
    unary = peer.unary(volume.reshape(side, -1), labels)
    scores = torch.from_numpy(-unary).view(labels, *volume.shape)
    grey = torch.from_numpy(volume)[None]
    kernels = [Spatial(peers.SPATIAL), Bilateral(peers.XY, peers.COLOR)]
    settings = {"from_logits": True, "num_steps": STEPS, "spatial_dims": 3, "kernels": kernels}

    def ours(solver: str) -> object:
        return refine(grey, scores, return_probabilities=True, solver=solver, **settings)  # type: ignore

    def theirs() -> object:
        assert peer.dcrf is not None
        place = np.stack(np.meshgrid(*map(np.arange, volume.shape), indexing="ij")).reshape(3, -1)
        place = place.astype(np.float32)
        crf = peer.dcrf.DenseCRF(volume.size, labels)
        crf.setUnaryEnergy(unary)
        crf.addPairwiseEnergy(place / peers.SPATIAL, compat=1)
        both = np.concatenate([place / peers.XY, volume.reshape(1, -1) / np.float32(peers.COLOR)])
        crf.addPairwiseEnergy(np.ascontiguousarray(both, dtype=np.float32), compat=1)
        return np.array(crf.inference(STEPS))

    return {**{solver: partial(ours, solver) for solver in SOLVERS}, "pydensecrf": theirs}


def _batch(image: np.ndarray, labels: int, count: int, logits: np.ndarray | None = None) -> dict[str, Work]:
    images = [np.roll(image, 7 * shift, axis=1) for shift in range(count)]
    unary = _unary(image, labels, logits)
    picture, logits = (
        torch.cat(each) for each in zip(*(peers.tensors(i, unary) for i in images), strict=True)
    )
    ours = partial(
        refine,
        picture.byte(),
        logits,
        from_logits=True,
        num_steps=STEPS,
        kernels=[Spatial(peers.SPATIAL), Bilateral(peers.XY, peers.COLOR)],
        return_probabilities=True,
    )
    works: dict[str, Work] = {solver: partial(ours, solver=solver) for solver in SOLVERS}
    if peer.dcrf:
        each = [peers.available()["pydensecrf"].inference(i, unary, STEPS) for i in images]
        works["pydensecrf"] = lambda: [work() for work in each]
    return works

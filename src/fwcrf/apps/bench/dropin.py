"""One program run with pydensecrf and with the drop-in: model, two kernels, ten steps, marginals."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import numpy as np

from fwcrf.apps.bench import peer, pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, measure
from fwcrf.pydensecrf import densecrf

STEPS = 10


def penalties(labels: int) -> np.ndarray:
    """A compatibility matrix: 0 on the diagonal, 7 to 10 elsewhere, increasing with |i - j|."""
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    return np.where(apart, 7 + 3 * apart / labels, 0).astype(np.float32)


# Number of labels, and compatibility of the bilateral kernel.
MODELS: dict[str, tuple[int, float | np.ndarray]] = {
    "21 labels": (21, 10),
    "2 labels": (2, 10),
    "21 labels, a matrix": (21, penalties(21)),
}


def program(dcrf: ModuleType, image: np.ndarray, unary: np.ndarray, compat: float | np.ndarray) -> np.ndarray:
    """Marginals with the settings of pydensecrf's own example, except ``compat``."""
    height, width = image.shape[:2]
    crf = dcrf.DenseCRF2D(width, height, len(unary))
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=compat)
    return np.array(crf.inference(STEPS))


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    cases = []
    for name in pictures.names(1 if plan.quick else 3):
        image = pictures.named(name)
        for what, (labels, compat) in MODELS.items():
            unary = peer.unary(image, labels)
            work = partial(program, densecrf, image, unary, compat)
            cases += [Case(f"ours, {what}", lambda w=work: w, name, count) for count in plan.threads]
            if peer.dcrf:
                theirs = partial(program, peer.dcrf, image, unary, compat)
                cases.append(Case(f"theirs, {what}", lambda w=theirs: w, name))
    size = f"{pictures.WIDTH} x {pictures.HEIGHT}"
    wanted = [
        Compared(
            f"drop-in, {STEPS} steps, {size}, {what}",
            f"ours, {what}",
            {"pydensecrf": f"theirs, {what}"},
        )
        for what in MODELS
    ]
    rows = assemble(spreads(measure(cases, plan.at_most(5).rounds)), wanted, plan.threads)
    print_rows("A program for pydensecrf, unchanged", rows)
    return {"rows": rows}

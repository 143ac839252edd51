"""The same program on pydensecrf and on its drop-in: model, two kernels, ten steps, result as an array."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import numpy as np

from fwcrf.bench import peer, pictures
from fwcrf.bench.report import print_rows
from fwcrf.bench.rows import Compared, assemble, spreads
from fwcrf.bench.timing import Case, Plan, measure
from fwcrf.pydensecrf import densecrf

STEPS = 10
LABELS = (21, 2)


def program(dcrf: ModuleType, image: np.ndarray, unary: np.ndarray) -> np.ndarray:
    """Marginals with the settings of pydensecrf's own example."""
    height, width = image.shape[:2]
    crf = dcrf.DenseCRF2D(width, height, len(unary))
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
    return np.array(crf.inference(STEPS))


def run(plan: Plan) -> dict[str, object]:
    """Measure, print, and return everything."""
    cases = []
    for name in pictures.names(1 if plan.quick else 3):
        image = pictures.named(name)
        for labels in LABELS:
            unary = peer.unary(image, labels)
            work = partial(program, densecrf, image, unary)
            cases += [Case(f"ours {labels}", lambda w=work: w, name, count) for count in plan.threads]
            if peer.dcrf:
                theirs = partial(program, peer.dcrf, image, unary)
                cases.append(Case(f"theirs {labels}", lambda w=theirs: w, name))
    size = f"{pictures.WIDTH} x {pictures.HEIGHT}"
    wanted = [
        Compared(
            f"drop-in, {STEPS} steps, {size}, {labels} labels",
            f"ours {labels}",
            {"pydensecrf": f"theirs {labels}"},
        )
        for labels in LABELS
    ]
    rows = assemble(spreads(measure(cases, plan.at_most(5).rounds)), wanted, plan.threads)
    print_rows("A program for pydensecrf, unchanged", rows)
    return {"rows": rows}

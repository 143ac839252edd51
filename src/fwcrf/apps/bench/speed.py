"""Time of a lattice build and of one filter application, compared with pydensecrf in the same run.

*Build*: the work of pydensecrf's ``addPairwiseBilateral``: features, lattice, and one filter of ones for
the normalization. *Complete operator*: our default, compared with the same call; it also calibrates the scale
on the image and computes the exact diagonal. *Filter*: one application of the built lattice with a
symmetric blur. *Complete* also subtracts the diagonal. *One-sided* blurs in one order only, as pydensecrf
does. pydensecrf has no filter function; its filter time is the additional time of a mean-field step per
further bilateral kernel (one filter, and the addition of its result). It is measured with four kernels
and with one, because the difference of two nearly equal times would be mostly noise.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from fwcrf.apps.bench import peer, pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Spread, Times, Work, measure
from fwcrf.features import bilateral, pixels
from fwcrf.kernels import Bilateral, Lattice

CHANNELS = 21
KERNELS = 4  # of the larger pydensecrf model
XY, COLOR = 80.0, 13.0

COMPARED = [
    Compared("lattice build", "build", {"pydensecrf": "peer build"}, {1: 2.5, 2: 4.0}),
    Compared("complete operator", "operator", {"pydensecrf": "peer build"}),
    Compared("one filter", "filter", {"pydensecrf": "peer filter"}, {1: 2.5, 2: 4.5}),
    Compared("one filter, complete operator", "filter, complete", {"pydensecrf": "peer filter"}),
    Compared("one filter, one-sided blur", "one-sided", {"pydensecrf": "peer filter"}),
]


def built(image: np.ndarray) -> Lattice:
    """Our lattice with the features of pydensecrf's lattice only: no calibration, no exact diagonal."""
    values, shape = pixels(image)
    lattice = Lattice.uncalibrated(bilateral(values, shape, XY, COLOR))
    lattice.row_sums()
    return lattice


def complete(image: np.ndarray) -> Lattice:
    """The operator as a model uses it: calibrated, without self-edges."""
    K = Bilateral(XY, COLOR).operator(image).without_self_edges()
    assert isinstance(K, Lattice)
    return K


def cases(picture: str, threads: tuple[int, ...]) -> list[Case]:
    """Our cases, then pydensecrf's."""
    image = pictures.named(picture)
    x = torch.rand(image.shape[0] * image.shape[1], CHANNELS, generator=torch.Generator().manual_seed(0))
    plain = built(image)
    ours: dict[str, Work] = {
        "build": partial(built, image),
        "operator": partial(complete, image),
        "filter": partial(plain, x),
        "filter, complete": partial(complete(image), x),
        "one-sided": partial(replace(plain, blur="forward"), x),
    }
    found = [Case(name, lambda w=work: w, picture, count) for name, work in ours.items() for count in threads]
    return found + (_theirs(picture, image) if peer.dcrf else [])


def _theirs(picture: str, image: np.ndarray) -> list[Case]:
    energies = peer.unary(image, CHANNELS)

    def build() -> Work:
        fresh = peer.model(image, energies, 0, XY, COLOR)
        return lambda: fresh.addPairwiseBilateral(sxy=XY, srgb=COLOR, rgbim=image, compat=1)

    def step(kernels: int) -> Work:
        model = peer.model(image, energies, kernels, XY, COLOR)
        return partial(model.stepInference, *model.startInference())

    one, four = step(1), step(KERNELS)
    return [
        Case("peer build", build, picture),
        Case("peer step 1", lambda: one, picture),
        Case("peer step 4", lambda: four, picture),
    ]


def with_filter(times: Times) -> dict[tuple[str, str, int | None], Spread]:
    """All measurements, and pydensecrf's filter time as a difference of step times."""
    found = spreads(times)
    further = KERNELS - 1
    for picture in {picture for picture, name, _ in times if name == "peer step 4"}:
        one, four = (times[picture, name, None] for name in ("peer step 1", "peer step 4"))
        # Not the least difference: it pairs a slowed step of one kernel with a normal step of four.
        apart = statistics.median(b - a for a, b in zip(one, four, strict=True))
        least = min(four) - min(one)
        found[picture, "peer filter", None] = Spread(1e3 * least / further, 1e3 * apart / further)
    return found


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    names = pictures.names(2 if plan.quick else None)
    times = measure([case for name in names for case in cases(name, plan.threads)], plan.rounds)
    rows = assemble(with_filter(times), COMPARED, plan.threads)
    print_rows(f"Lattice, {pictures.WIDTH} x {pictures.HEIGHT}, {CHANNELS} channels", rows)
    return {"rows": rows, "lattice points": {name: built(pictures.named(name)).vertices for name in names}}

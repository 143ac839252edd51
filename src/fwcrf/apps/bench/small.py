"""Small images, where Python takes longer than the work: whole refinements compared with pydensecrf.

The program is the shortest one: ``refine`` on an image and probabilities as numpy arrays.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fwcrf import refine
from fwcrf.apps.bench import peer, peers, pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Work, measure

SIDES, LABELS, STEPS = (8, 32), (3, 21), 5
CALLS = 50  # per time, because the clock is coarse


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its table and return all results."""
    rows = [row for side in SIDES for labels in LABELS for row in compared(side, labels, plan)]
    print_rows(f"Small images, {CALLS} calls", rows)
    return {"rows": rows}


def compared(side: int, labels: int, plan: Plan) -> list[Row]:
    """Rows for an image of ``side`` x ``side`` pixels."""
    image = pictures.resized(pictures.photograph("coffee"), side, side)
    logits = pictures.scores(image, labels)
    shares = np.exp(logits - logits.max(0))
    probabilities = np.ascontiguousarray(np.moveaxis(shares / shares.sum(0), 0, -1), dtype=np.float32)
    cases = [Case("ours", lambda: _often(partial(refine, image, probabilities)), threads=1)]
    if peer.dcrf:
        unary = np.ascontiguousarray(-np.log(probabilities.reshape(-1, labels).T))
        theirs = peers.available()["pydensecrf"].inference(image, unary, STEPS)
        cases.append(Case("pydensecrf", lambda: _often(theirs)))
    what = f"{side} x {side}, {labels} labels"
    times = measure(cases, plan.rounds, plan.clock)
    return assemble(spreads(times), [Compared(what, "ours", {"pydensecrf": "pydensecrf"})], (1,))


def _often(work: Work) -> Work:
    def run() -> None:
        for _ in range(CALLS):
            work()

    return run

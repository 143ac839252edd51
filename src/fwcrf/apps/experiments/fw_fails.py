"""``fw-fails``: vanilla Frank-Wolfe learns nothing, with any optimizer; the paper's other solvers learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fwcrf.apps.data import Splits
from fwcrf.apps.experiments.accuracy import accuracy, miou9
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, paper
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.halves import TRAIN
from fwcrf.apps.experiments.learning import PARAMETERS, Learning, Variant
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.runs import SHOWN
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.tables import Row
from fwcrf.apps.experiments.verdict import above, exact
from fwcrf.apps.models import CNNCRF

EPOCHS = 3
# No skip connection: it would pass gradients around the CRF to the network.
_CRF = {"noise": 0.01, "skip": 0.0}
FW = Variant("FW", {"solver": "fw", "settings": {"step": 1.0}, **_CRF}, {}, EPOCHS, 1)
ADAM = Variant(
    "FW (Adam)", {"solver": "fw", "settings": {"step": 1.0}, **_CRF},
    {"name": "adam", "cnn_lr": 0.0001, "crf_lr": 0.001}, EPOCHS, 1,
)  # fmt: skip
# The solvers of the paper's figure, in its order.
LEARNING = (
    *(
        Variant(SHOWN[name], {"solver": name, **_CRF}, {}, EPOCHS, 1)
        for name in ("mf", "pgd", "fista", "admm")
    ),
    Variant("l2FW 1", {"solver": "l2fw", **_CRF}, {}, EPOCHS, 1),
)


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    seed = setup.seeds[0]
    rows, curves, counts = [], [], {}
    for variant in (FW, ADAM, *LEARNING):
        start = learning.start(variant, seed)
        slope = gradient(learning, start)
        result = learning.train(variant, seed)
        counts[variant.label] = result.counts
        assert variant.crf is not None
        epochs = [float(epoch) for epoch in range(1, len(result.curve) + 1)]
        curves.append(Curve(variant.label, epochs, result.curve, variant.crf["solver"], variant is ADAM))
        rows += [
            {
                "solver": variant.label, "epoch": epoch, "mIoU": miou, "largest gradient": slope,
                "largest change of a weight": max(result.moved.values()),
                "mIoU9 at the end": accuracy(result.counts).miou9,
            }
            | {f"change of {name}": result.moved.get(name) for name in PARAMETERS}
            for epoch, miou in zip(epochs, result.curve, strict=True)
        ]  # fmt: skip
    panels = [Panel(f"images of {setup.side} pixels, here", curves, "epoch", "mIoU, %")]
    if setup.paper is not None:
        theirs = paper(setup.paper, "miou_vs_epoch")
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "epoch", "mIoU, %"))
    return Outcome(
        "fw-fails",
        "Vanilla Frank-Wolfe does not learn",
        f"Network and CRF trained together for {len(epochs)} epochs on the first half of val at {setup.side} "
        "pixels; measured on the second after each. Weights: of the network's head and of the CRF.",
        rows,
        [row for row in rows if row["epoch"] == epochs[-1]],
        lines(panels),
        [*moves(rows, learning.num_images), learned(counts)],
    )


def gradient(learning: Learning, model: CNNCRF) -> float:
    """The largest absolute gradient entry of one image's loss, over all parameters."""
    image, labels = Splits(learning.root, TRAIN)[0]
    loss = F.nll_loss(model(image[None]), labels[None], ignore_index=255)
    if loss.requires_grad:
        loss.backward()
    slopes = [p.grad.abs().max() for p in model.parameters() if p.grad is not None]
    return float(torch.stack(slopes).max()) if slopes else 0.0


def moves(rows: Sequence[Row], num_images: int) -> list[Finding]:
    """Whether gradients and changes of weights are exactly 0 with vanilla Frank-Wolfe, and only with it."""
    last: dict[Any, Any] = {row["solver"]: row for row in rows}
    findings = []
    for claim, variants, still in (
        (Claim.VANILLA_STANDS, (FW, ADAM), True),
        (Claim.SOLVERS_MOVE, LEARNING, False),
    ):
        found = [
            (last[v.label]["largest gradient"], last[v.label]["largest change of a weight"]) for v in variants
        ]
        words = [
            f"{v.label} has a largest gradient of {slope:.2g} and changes weights by at most {moved:.2g}"
            for v, (slope, moved) in zip(variants, found, strict=True)
        ]
        holds = all((slope == 0 and moved == 0) == still for slope, moved in found)
        findings.append(Finding("; ".join(words), claim, exact(holds, num_images)))
    return findings


def learned(counts: dict[str, Tensor]) -> Finding:
    means = {label: accuracy(each).miou9 for label, each in counts.items()}

    def gains(shares: Tensor) -> Tensor:
        each = torch.stack([miou9(shares, counts[v.label]) for v in LEARNING])
        return each - miou9(shares, counts[FW.label])

    return Finding(
        "mIoU9 at the end: " + ", ".join(f"{label} {value:.2f}" for label, value in means.items()),
        Claim.SOLVERS_LEARN,
        above(gains, len(counts[FW.label])),
    )

"""``fw-fails``: vanilla Frank-Wolfe learns nothing, with any optimizer; Euclidean Frank-Wolfe learns."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fwcrf.apps.data import Splits
from fwcrf.apps.experiments.accuracy import accuracy
from fwcrf.apps.experiments.curves import Curve, paper
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.halves import TRAIN
from fwcrf.apps.experiments.learning import Learning, Variant
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.models import CNNCRF

EPOCHS = 3
# No skip connection: it would pass gradients around the CRF to the network.
_CRF = {"noise": 0.01, "skip": 0.0}
FW = Variant("FW", {"solver": "fw", "settings": {"step": 1.0}, **_CRF}, {}, EPOCHS, 1)
ADAM = Variant(
    "FW (Adam)", {"solver": "fw", "settings": {"step": 1.0}, **_CRF},
    {"name": "adam", "cnn_lr": 0.0001, "crf_lr": 0.001}, EPOCHS, 1,
)  # fmt: skip
L2FW = Variant("l2FW 1", {"solver": "l2fw", **_CRF}, {}, EPOCHS, 1)


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    seed = setup.seeds[0]
    rows, curves = [], []
    for variant in (FW, ADAM, L2FW):
        start = learning.start(variant, seed)
        before = {name: value.clone() for name, value in start.state_dict().items()}
        slope = gradient(learning, start)
        result = learning.train(variant, seed)
        after = result.model.state_dict()
        moved = max(float((after[name] - value).abs().max()) for name, value in before.items())
        solver = "fw" if variant.crf and variant.crf["solver"] == "fw" else "l2fw"
        epochs = [float(epoch) for epoch in range(1, len(result.curve) + 1)]
        curves.append(Curve(variant.label, epochs, result.curve, solver, variant is ADAM))
        rows += [
            {
                "solver": variant.label, "epoch": epoch, "mIoU": miou, "largest gradient": slope,
                "largest change of a weight": moved, "mIoU9 at the end": accuracy(result.confusion).miou9,
            }
            for epoch, miou in zip(epochs, result.curve, strict=True)
        ]  # fmt: skip
    panels = [Panel(f"images of {setup.side} pixels, here", curves, "epoch", "mIoU, %")]
    if setup.paper is not None:
        theirs = [c for c in paper(setup.paper, "miou_vs_epoch") if c.solver in ("fw", "l2fw")]
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "epoch", "mIoU, %"))
    return Outcome(
        "fw-fails",
        "Vanilla Frank-Wolfe does not learn",
        f"Network and CRF trained together for {len(epochs)} epochs on the first half of val at {setup.side} "
        "pixels; measured on the second after each. Weights: of the network's head and of the CRF.",
        rows,
        [row for row in rows if row["epoch"] == epochs[-1]],
        lines(panels),
        [finding(rows)],
    )


def gradient(learning: Learning, model: CNNCRF) -> float:
    """The largest absolute gradient entry of one image's loss, over all parameters."""
    image, labels = Splits(learning.root, TRAIN)[0]
    loss = F.nll_loss(model(image[None]), labels[None], ignore_index=255)
    if loss.requires_grad:
        loss.backward()
    slopes = [p.grad.abs().max() for p in model.parameters() if p.grad is not None]
    return float(torch.stack(slopes).max()) if slopes else 0.0


def finding(rows: list[dict[str, float | str]]) -> Finding:
    last = {row["solver"]: row for row in rows}
    words, flat = [], True
    for label in (FW.label, ADAM.label, L2FW.label):
        slope, moved = last[label]["largest gradient"], last[label]["largest change of a weight"]
        flat &= (slope == 0 and moved == 0) == (label != L2FW.label)  # type: ignore[operator]
        words.append(
            f"{label} has a largest gradient of {slope:.2g} and moves weights by at most {moved:.2g}"
        )
    return Finding("; ".join(words), bool(flat))

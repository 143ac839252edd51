"""``per-class``: IoU of each class, also with more CRF steps than in training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fwcrf.apps.experiments.accuracy import accuracy, iou, miou9
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.halves import TRAIN
from fwcrf.apps.experiments.images import NINE, scored
from fwcrf.apps.experiments.learning import Learning, Variant
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import above, equally, within

STEPS = (5, 10, 25)
ALONE = Variant("CNN, trained on", None)
L2FW = Variant("l2FW 1", {"solver": "l2fw", "noise": 0.01})
EFW = Variant("eFW 0.7", {"solver": "efw", "settings": {"weight": 0.7}, "noise": 0.01})
POTTS = "Potts, l2FW 1"
WEIGHTS = (0.5, 1.0, 2.0, 3.0)
TRAINED = f"{L2FW.label}, trained"

Counts = dict[tuple[str, int | None], Tensor]  # confusion matrices (images, L, L) by model and steps


def potts(weight: float) -> Variant:
    """An untrained Potts CRF with five steps of l2FW, as in training."""
    settings = {"solver": "l2fw", "compatibility": weight, "noise": 0.0, "skip": 0.0, "learnable": []}
    return Variant(f"Potts {weight:g}", settings)


def chosen(learning: Learning) -> float:
    """The best weight of the Potts model on the first half."""

    def of(weight: float) -> float:
        return accuracy(learning.untrained(potts(weight), half=TRAIN)).miou9

    return max(WEIGHTS[1:3] if learning.setup.quick else WEIGHTS, key=of)


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    names = scored(setup.voc).classes.names
    weight = chosen(learning)
    counts: Counts = {("CNN", None): learning.untrained(ALONE)}
    for steps in STEPS:
        counts[POTTS, steps] = learning.untrained(potts(weight), num_steps=steps)
    for variant in (L2FW,) if setup.quick else (L2FW, EFW):
        result = learning.train(variant, setup.seeds[0])
        for steps in STEPS:
            counts[f"{variant.label}, trained", steps] = learning.counts(result.model, result.folder, steps)
    found = {key: accuracy(each) for key, each in counts.items()}
    rows = [
        {"model": label, "steps": steps, "mIoU9": a.miou9, "mIoU18": a.miou18}
        | {name: None if math.isnan(iou) else iou for name, iou in zip(names, a.iou, strict=True)}
        for (label, steps), a in found.items()
    ]
    known = [c for c in NINE if c < len(names) and not math.isnan(found["CNN", None].iou[c])]
    shown = {
        label if steps is None else f"{label}, {steps} steps": {names[c]: a.iou[c] for c in known}
        for (label, steps), a in found.items()
        if steps in (None, 5)
    }
    return Outcome(
        "per-class",
        "IoU per class, and more steps",
        f"The second half of val at {setup.side} pixels; trained on the first, four epochs, seed "
        f"{setup.seeds[0]}, five steps.",
        rows,
        rows,
        bars("IoU of the nine classes", shown, "IoU, %"),
        [classes(counts, known), more_steps(counts)],
    )


def classes(counts: Counts, known: list[int]) -> Finding:
    cnn, crf = counts["CNN", None], counts[TRAINED, 5]

    def gains(shares: Tensor) -> Tensor:
        """``(draws, classes)``."""
        return (iou(shares, crf) - iou(shares, cnn))[:, known]

    here = gains(equally(len(cnn)))
    return Finding(
        f"{int((here > 0).sum())} of {len(known)} classes have a higher IoU, by {here.min():.2f} to "
        f"{here.max():.2f}",
        Claim.MOST_CLASSES,
        # The lower of two medians: above 0 if more than half of the gains are.
        above(lambda shares: gains(shares).nanmedian(1).values, len(cnn), name="gain of the median class"),
    )


def more_steps(counts: Counts) -> Finding:
    few, *more = (counts[TRAINED, steps] for steps in STEPS)
    each = [f"{accuracy(counts[TRAINED, steps]).miou9:.2f}" for steps in STEPS]

    def apart(shares: Tensor) -> Tensor:
        return torch.stack([miou9(shares, other) for other in more]) - miou9(shares, few)

    return Finding(
        f"with {', '.join(map(str, STEPS))} steps l2FW has mIoU9 {', '.join(each)}",
        Claim.MORE_STEPS,
        within(apart, len(few), 0.5),
    )

"""``per-class``: IoU of each class, also with more CRF steps than in training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fwcrf.apps.experiments import joint
from fwcrf.apps.experiments.accuracy import accuracy, iou, miou9
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.images import NINE, scored
from fwcrf.apps.experiments.learning import Learning
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import above, equally, within

STEPS = (5, 10, 25)
TRAINED = f"{joint.L2FW.label}, trained"

Counts = dict[tuple[str, int | None], Tensor]  # confusion matrices (images, L, L) by model and steps


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    names = scored(setup.voc).classes.names
    weight = joint.chosen(learning)
    counts: Counts = {("CNN", None): learning.untrained(joint.ALONE)}
    for steps in STEPS:
        counts[joint.POTTS, steps] = learning.untrained(joint.potts(weight), num_steps=steps)
    for variant in (joint.L2FW,) if setup.quick else (joint.L2FW, joint.METHODS[1]):
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
        f"The second half of val at {setup.side} pixels; the CRFs of joint, seed {setup.seeds[0]}, trained "
        "with five steps.",
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

"""``per-class``: IoU of each class, also with more CRF steps than in training."""

from __future__ import annotations

import math

import torch

from fwcrf.apps.experiments import joint
from fwcrf.apps.experiments.accuracy import Accuracy, accuracy
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.halves import REPORT
from fwcrf.apps.experiments.images import NINE, scored
from fwcrf.apps.experiments.learning import Learning
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup

STEPS = (5, 10, 25)


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    names = scored(setup.voc).classes.names
    weight = joint.chosen(learning)
    found: dict[tuple[str, int | None], Accuracy] = {("CNN", None): joint.untrained(learning, joint.ALONE)}
    for steps in STEPS:
        found["Potts, l2FW 1", steps] = joint.untrained(learning, joint.potts(weight), steps)
    for variant in (joint.L2FW,) if setup.quick else (joint.L2FW, joint.METHODS[1]):
        result = learning.train(variant, setup.seeds[0])
        for steps in STEPS:
            counts = learning.confusion(result.model, result.folder, steps, REPORT)
            found[f"{variant.label}, trained", steps] = accuracy(counts)
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
        [classes(found, known), more_steps(found)],
    )


def classes(found: dict[tuple[str, int | None], Accuracy], known: list[int]) -> Finding:
    """The paper: the CRF has a higher IoU than the network alone on most classes."""
    cnn, crf = found["CNN", None].iou, found[f"{joint.L2FW.label}, trained", 5].iou
    gains = torch.tensor([crf[c] - cnn[c] for c in known])
    return Finding(
        f"with l2FW {int((gains > 0).sum())} of {len(known)} classes have a higher IoU than by the CNN "
        f"alone, by {gains.min():.2f} to {gains.max():.2f}",
        bool((gains > 0).sum() * 2 > len(known)),
    )


def more_steps(found: dict[tuple[str, int | None], Accuracy]) -> Finding:
    """The paper: more steps than in training change little."""
    each = [found[f"{joint.L2FW.label}, trained", steps].miou9 for steps in STEPS]
    return Finding(
        f"with {', '.join(map(str, STEPS))} steps l2FW has mIoU9 {', '.join(f'{m:.2f}' for m in each)}",
        max(each) - min(each) < 0.5,
    )

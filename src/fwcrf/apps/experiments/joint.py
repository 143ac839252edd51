"""``joint``: network and CRF trained together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fwcrf.apps.experiments.accuracy import accuracy, miou9
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.halves import TRAIN
from fwcrf.apps.experiments.learning import PARAMETERS, Learning, Variant, mean_and_deviation
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import Interval, above

ALONE = Variant("CNN, trained on", None)
L2FW = Variant("l2FW 1", {"solver": "l2fw", "noise": 0.01})
METHODS = (
    Variant("MF", {"solver": "mf", "noise": 0.01}),
    Variant("eFW 0.7", {"solver": "efw", "settings": {"weight": 0.7}, "noise": 0.01}),
    L2FW,
)
WEIGHTS = (0.5, 1.0, 2.0, 3.0)
BEFORE, POTTS, FROM_POTTS = "CNN", "Potts, l2FW 1", "l2FW 1, from that Potts"

Counts = dict[str, list[Tensor]]  # confusion matrices (images, L, L) per run, by label


def potts(weight: float) -> Variant:
    """An untrained Potts CRF with five steps of l2FW, as in training."""
    settings = {"solver": "l2fw", "compatibility": weight, "noise": 0.0, "skip": 0.0, "learnable": []}
    return Variant(f"Potts {weight:g}", settings)


def from_potts(weight: float) -> Variant:
    """Training from that Potts CRF. The paper starts from weight 1; few steps do not get far from there."""
    return Variant(FROM_POTTS, {"solver": "l2fw", "compatibility": weight, "noise": 0.01})


def chosen(learning: Learning) -> float:
    """The best weight of the Potts model on the first half."""

    def of(weight: float) -> float:
        return accuracy(learning.untrained(potts(weight), half=TRAIN)).miou9

    return max(WEIGHTS[1:3] if learning.setup.quick else WEIGHTS, key=of)


def start_of(label: str) -> str:
    """The label of a model before training: the CRF with its initial parameters."""
    return f"{label}, untrained"


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    weight = chosen(learning)
    found: Counts = {BEFORE: [learning.untrained(ALONE)], POTTS: [learning.untrained(potts(weight))]}
    moved: dict[str, list[dict[str, float]]] = {}
    methods = [ALONE, *((L2FW,) if setup.quick else METHODS), from_potts(weight)]
    for seed in setup.seeds:
        for variant in methods:
            if variant.crf is not None:
                found.setdefault(start_of(variant.label), []).append(learning.untrained(variant, seed))
            result = learning.train(variant, seed)
            found.setdefault(variant.label, []).append(result.counts)
            moved.setdefault(variant.label, []).append(result.moved)
    rows, summary, means, deviations = [], [], {}, {}
    for label, each in found.items():
        accuracies = [accuracy(counts) for counts in each]
        changed = moved.get(label, [{}] * len(each))
        rows += [
            {"model": label, "run": number, "mIoU9": a.miou9, "mIoU18": a.miou18, "accuracy": a.pixels}
            | {f"change of {name}": change.get(name) for name in PARAMETERS}
            for number, (a, change) in enumerate(zip(accuracies, changed, strict=True))
        ]
        nine, eighteen = (
            mean_and_deviation([getattr(a, m) for a in accuracies]) for m in ("miou9", "miou18")
        )
        means[label], deviations[label] = nine[0], nine[1] or 0.0
        summary.append(
            {
                "model": label, "runs": len(each), "mIoU9": nine[0], "deviation of mIoU9": nine[1],
                "mIoU18": eighteen[0], "deviation of mIoU18": eighteen[1],
            }
            | {f"change of {name}": shown_change(changed, name) for name in PARAMETERS}
        )  # fmt: skip
    epochs = learning.config(L2FW, 0).epochs
    return Outcome(
        "joint",
        "Network and CRF trained together",
        f"Trained on the first half of val at {setup.side} pixels, {epochs} epochs, seeds "
        f"{', '.join(map(str, setup.seeds))}; the backbone is frozen. Measured on the second half at this "
        f"size, five steps. The Potts CRF has weight {weight:g}, the best on the first half. Changes are the "
        "largest absolute ones of training. Intervals are over images, of the mean over seeds; another "
        "training run may differ by more.",
        rows,
        summary,
        bars("mIoU9 on the second half", {"mean": means}, "mIoU9, %", deviations),
        [*findings(found, means), change(moved)],
    )


def shown_change(changed: Sequence[Mapping[str, float]], name: str) -> str | None:
    """The largest change over the runs; None if the model is not trained or has no such parameter."""
    known = [each[name] for each in changed if name in each]
    return f"{max(known):.3g}" if known else None


def change(moved: Mapping[str, Sequence[Mapping[str, float]]]) -> Finding:
    words = [
        f"{label} "
        + ", ".join(f"{name} by {amount}" for name in PARAMETERS if (amount := shown_change(each, name)))
        for label, each in moved.items()
    ]
    return Finding(f"the largest changes of parameters in training are: {'; '.join(words)}")


def gain(found: Counts, label: str, *others: str) -> Interval:
    """The interval of mIoU9 of a model minus mIoU9 of other models, means over runs."""

    def of(shares: Tensor, label: str) -> Tensor:
        return torch.stack([miou9(shares, counts) for counts in found[label]]).mean(0)

    def ahead(shares: Tensor) -> Tensor:
        return of(shares, label) - torch.stack([of(shares, other) for other in others])

    return above(ahead, len(found[label][0]))


def findings(found: Counts, means: Mapping[str, float]) -> list[Finding]:
    trained = {v.label: means[v.label] for v in METHODS if v.label in means}
    alone, averaged, further = (means[label] for label in (ALONE.label, L2FW.label, FROM_POTTS))
    start = means[start_of(L2FW.label)]
    further_start = means[start_of(FROM_POTTS)]
    each = [
        Finding(
            f"the CNN alone has mIoU9 {means[BEFORE]:.2f}, with an untrained Potts CRF {means[POTTS]:.2f}",
            Claim.POTTS_ABOVE_CNN,
            gain(found, POTTS, BEFORE),
        ),
        Finding(
            f"mIoU9 is {start:.2f} untrained and {averaged:.2f} trained, the Potts CRF has "
            f"{means[POTTS]:.2f}",
            Claim.JOINT_ABOVE_POTTS,
            gain(found, L2FW.label, POTTS),
        ),
        Finding(
            f"mIoU9 is {further_start:.2f} untrained and {further:.2f} trained, the Potts CRF has "
            f"{means[POTTS]:.2f}",
            Claim.JOINT_FROM_POTTS,
            gain(found, FROM_POTTS, POTTS),
        ),
        Finding(
            f"the CNN trained on without a CRF has mIoU9 {alone:.2f}; to that the CRF adds "
            f"{averaged - alone:+.2f} from the paper's start and {further - alone:+.2f} from the Potts CRF"
        ),
    ]
    others = [label for label in trained if label != L2FW.label]
    if others:
        shown = ", ".join(f"{label} {value:.2f}" for label, value in trained.items())
        each.append(Finding(f"mIoU9: {shown}", Claim.BEST_IN_TRAINING, gain(found, L2FW.label, *others)))
    return each

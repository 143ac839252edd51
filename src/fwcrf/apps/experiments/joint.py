"""``joint``: network and CRF trained together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fwcrf.apps.experiments.accuracy import Accuracy, accuracy
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.halves import REPORT, TRAIN
from fwcrf.apps.experiments.learning import Learning, Variant, mean_and_deviation
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup

ALONE = Variant("CNN, trained on", None)
L2FW = Variant("l2FW 1", {"solver": "l2fw", "noise": 0.01})
METHODS = (
    Variant("MF", {"solver": "mf", "noise": 0.01}),
    Variant("eFW 0.7", {"solver": "efw", "settings": {"weight": 0.7}, "noise": 0.01}),
    L2FW,
)
WEIGHTS = (0.5, 1.0, 2.0, 3.0)
BEFORE, POTTS, FROM_POTTS = "CNN", "Potts, l2FW 1", "l2FW 1, from that Potts"


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
        variant = potts(weight)
        folder = learning.folder(learning.config(variant, 0))
        return accuracy(learning.confusion(learning.start(variant), folder, None, TRAIN)).miou9

    return max(WEIGHTS[1:3] if learning.setup.quick else WEIGHTS, key=of)


def untrained(learning: Learning, variant: Variant, num_steps: int | None = None) -> Accuracy:
    """Accuracy before the first training step, on the second half."""
    folder = learning.folder(learning.config(variant, 0))
    return accuracy(learning.confusion(learning.start(variant), folder, num_steps, REPORT))


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    weight = chosen(learning)
    found: dict[str, list[Accuracy]] = {
        BEFORE: [untrained(learning, ALONE)],
        POTTS: [untrained(learning, potts(weight))],
    }
    methods = [ALONE, *((L2FW,) if setup.quick else METHODS), from_potts(weight)]
    for seed in setup.seeds:
        for variant in methods:
            result = learning.train(variant, seed)
            found.setdefault(variant.label, []).append(accuracy(result.confusion))
    rows = [
        {"model": label, "run": number, "mIoU9": a.miou9, "mIoU18": a.miou18, "accuracy": a.pixels}
        for label, each in found.items()
        for number, a in enumerate(each)
    ]
    summary, means, deviations = [], {}, {}
    for label, each in found.items():
        nine, eighteen = (mean_and_deviation([getattr(a, m) for a in each]) for m in ("miou9", "miou18"))
        means[label], deviations[label] = nine[0], nine[1] or 0.0
        summary.append(
            {
                "model": label, "runs": len(each), "mIoU9": nine[0], "deviation of mIoU9": nine[1],
                "mIoU18": eighteen[0], "deviation of mIoU18": eighteen[1],
            }
        )  # fmt: skip
    epochs = learning.config(L2FW, 0).epochs
    return Outcome(
        "joint",
        "Network and CRF trained together",
        f"Trained on the first half of val at {setup.side} pixels, {epochs} epochs, seeds "
        f"{', '.join(map(str, setup.seeds))}; the backbone is frozen. Measured on the second half at this "
        f"size, five steps. The Potts CRF has weight {weight:g}, the best on the first half.",
        rows,
        summary,
        bars("mIoU9 on the second half", {"mean": means}, "mIoU9, %", deviations),
        findings(means),
    )


def findings(means: Mapping[str, float]) -> Sequence[Finding]:
    trained = {v.label: means[v.label] for v in METHODS if v.label in means}
    best = max(trained, key=trained.__getitem__)
    alone, averaged, further = (means[label] for label in (ALONE.label, L2FW.label, FROM_POTTS))
    return [
        Finding(
            f"the CNN alone has mIoU9 {means[BEFORE]:.2f}, with an untrained Potts CRF {means[POTTS]:.2f}",
            means[POTTS] > means[BEFORE],
        ),
        Finding(
            f"trained together with l2FW from the paper's start it has {averaged:.2f}, "
            f"{averaged - means[POTTS]:+.2f} against the Potts CRF",
            averaged > means[POTTS],
        ),
        Finding(
            f"trained together from that Potts CRF it has {further:.2f}, {further - means[POTTS]:+.2f}",
            further > means[POTTS],
        ),
        Finding(
            f"the CNN trained on without a CRF has {alone:.2f}; to that the CRF adds {averaged - alone:+.2f} "
            f"from the paper's start and {further - alone:+.2f} from the Potts CRF"
        ),
        Finding(f"the best solver to train with is {best} with {trained[best]:.2f}", best == L2FW.label),
    ]

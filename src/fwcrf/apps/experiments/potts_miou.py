"""``potts-miou``: accuracy of a Potts CRF after the network, ten steps, all solvers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fwcrf.apps.experiments import energy, images
from fwcrf.apps.experiments.accuracy import accuracy, miou9, miou18, of_runs
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.measure import Measured, measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER, Potts
from fwcrf.apps.experiments.runs import Run
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import above, equally

STEPS = (0, 10)
# In the order of the paper's table.
METHODS = (
    Run("pgd", steps=STEPS),
    Run("fista", steps=STEPS),
    Run("admm", steps=STEPS),
    Run("mf", steps=STEPS),
    Run("fw", steps=STEPS),
    Run("efw", 0.7, steps=STEPS),
    Run("efw", 0.3, steps=STEPS),
    Run("l2fw", 1.0, steps=STEPS),
)
# With the paper's weight only; the experiment ``energy`` stores these steps too.
BEYOND = tuple(replace(r, steps=STEPS) for r in energy.BEYOND)
COSTLY = tuple(replace(r, steps=(0, 10)) for r in energy.COSTLY)
# The paper's bandwidths, and narrower ones.
CANDIDATES = (
    PAPER,
    *(Potts(weight) for weight in (2.0, 3.0)),
    *(Potts(weight, bilateral=(50.0, 5.0)) for weight in (1.0, 3.0, 5.0)),
)
MEASURES = {"mIoU9": miou9, "mIoU18": miou18}
# By the choice of the Potts model, and by measure.
CLAIMS = {
    ("paper", "mIoU9"): Claim.PAPER_ABOVE_CNN_9,
    ("paper", "mIoU18"): Claim.PAPER_ABOVE_CNN_18,
    ("first half", "mIoU9"): Claim.TUNED_ABOVE_CNN_9,
    ("first half", "mIoU18"): Claim.TUNED_ABOVE_CNN_18,
}

Table = dict[str, Tensor]  # confusion matrices (images, L, L) by label


def chosen(setup: Setup) -> Potts:
    """The best Potts model on the first half, by mIoU9 of l2FW."""
    names = images.spread(images.halves(setup.voc)[0], setup.for_accuracies)
    num_classes = len(images.scored(setup.voc).classes)
    candidates = CANDIDATES[:2] if setup.quick else CANDIDATES
    runs = {model: replace(METHODS[-1], model=model) for model in candidates}
    seen = measure(setup, names, list(runs.values()))
    return max(candidates, key=lambda model: accuracy(of_runs(seen[runs[model]], 1, num_classes)).miou9)


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_accuracies)
    part = energy.part_of(names, setup)
    num_classes = len(images.scored(setup.voc).classes)
    tuned = chosen(setup)
    models = {"paper": PAPER} | ({"first half": tuned} if tuned != PAPER else {})
    runs = {by: [replace(r, model=model) for r in METHODS] for by, model in models.items()}
    seen = measure(setup, names, [r for each in runs.values() for r in each])
    tables = {by: table({r: seen[r] for r in each}, num_classes) for by, each in runs.items()}
    every = table(measure(setup, names, [*METHODS, *BEYOND]), num_classes)
    few = table(measure(setup, part, [*METHODS, *BEYOND, *COSTLY]), num_classes) if part else {}
    listed = [
        *((by, t, len(names)) for by, t in (tables | {"paper": every}).items()),
        ("paper", few, len(part)),
    ]
    rows = [
        {
            "solver": label, "weight": models[by].weight, "chosen by": by, "mIoU9": a.miou9,
            "mIoU18": a.miou18, "accuracy": a.pixels, "images": count,
        }
        for by, found, count in listed
        for label, counts in found.items()
        for a in (accuracy(counts),)
    ]  # fmt: skip
    shown = {
        f"{by}: {models[by]}": {label: accuracy(counts).miou9 for label, counts in t.items()}
        for by, t in tables.items()
    }
    findings = [
        above_cnn(tables[by], measure, claim) for (by, measure), claim in CLAIMS.items() if by in tables
    ]
    return Outcome(
        "potts-miou",
        "Accuracy of a Potts CRF, ten steps",
        f"{len(names)} images of the second half of val{energy.beside(part)}; Potts with the paper's "
        f"settings ({PAPER}) and with the best of several on the first half ({tuned}).",
        rows,
        rows,
        bars("mIoU9 after ten steps", shown, "mIoU9, %"),
        [*findings, best(tables[next(reversed(tables))])],
    )


def table(seen: Measured, num_classes: int) -> Table:
    """Of the network alone ("CNN", step 0), then of each solver after its last step."""
    found = {"CNN": of_runs(next(iter(seen.values())), 0, num_classes)}
    return found | {r.label: of_runs(each, 1, num_classes) for r, each in seen.items()}


def above_cnn(found: Table, name: str, claim: Claim) -> Finding:
    """Whether every solver has a higher mIoU than the network alone."""
    of = MEASURES[name]
    everything = equally(len(found["CNN"]))
    means = {label: float(of(everything, counts)) for label, counts in found.items()}
    alone = means.pop("CNN")
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)

    def gains(shares: Tensor) -> Tensor:
        return torch.stack([of(shares, found[label]) for label in means]) - of(shares, found["CNN"])

    return Finding(
        f"the CNN alone has {name} {alone:.2f}, the worst solver {low} {means[low]:.2f}, the best {high} "
        f"{means[high]:.2f}",
        claim,
        above(gains, len(found["CNN"])),
    )


def best(found: Table) -> Finding:
    """Whether l2FW is best, or ties for the first place."""
    means = {label: accuracy(counts).miou9 for label, counts in found.items() if label != "CNN"}
    l2fw = METHODS[-1].label
    others = [label for label in means if label != l2fw]
    first = max(means, key=means.__getitem__)

    def ahead(shares: Tensor) -> Tensor:
        return miou9(shares, found[l2fw]) - torch.stack([miou9(shares, found[label]) for label in others])

    return Finding(
        f"the best solver is {first} with mIoU9 {means[first]:.2f}, l2FW has {means[l2fw]:.2f}",
        Claim.BEST_IN_POTTS,
        above(ahead, len(found[l2fw]), bound=-0.05),
    )

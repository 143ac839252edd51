"""``potts-miou``: accuracy of a Potts CRF after the network, ten steps, all solvers."""

from __future__ import annotations

from dataclasses import replace

from fwcrf.apps.experiments import energy, images
from fwcrf.apps.experiments.accuracy import Accuracy, of_runs
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.measure import Measured, measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER, Potts
from fwcrf.apps.experiments.runs import Run
from fwcrf.apps.experiments.setup import Setup

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


def chosen(setup: Setup) -> Potts:
    """The best Potts model on the first half, by mIoU9 of l2FW."""
    names = images.spread(images.halves(setup.voc)[0], setup.for_accuracies)
    num_classes = len(images.scored(setup.voc).classes)
    candidates = CANDIDATES[:2] if setup.quick else CANDIDATES
    runs = {model: replace(METHODS[-1], model=model) for model in candidates}
    seen = measure(setup, names, list(runs.values()))
    return max(candidates, key=lambda model: of_runs(seen[runs[model]], 1, num_classes).miou9)


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_accuracies)
    part = names[:: energy.PART]
    num_classes = len(images.scored(setup.voc).classes)
    tuned = chosen(setup)
    models = {"paper": PAPER} | ({"first half": tuned} if tuned != PAPER else {})
    runs = {by: [replace(r, model=model) for r in METHODS] for by, model in models.items()}
    seen = measure(setup, names, [r for each in runs.values() for r in each])
    tables = {by: table({r: seen[r] for r in each}, num_classes) for by, each in runs.items()}
    every = table(measure(setup, names, [*METHODS, *BEYOND]), num_classes)
    few = table(measure(setup, part, [*METHODS, *BEYOND, *COSTLY]), num_classes)
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
        for label, a in found.items()
    ]  # fmt: skip
    shown = {f"{by}: {models[by]}": {label: a.miou9 for label, a in t.items()} for by, t in tables.items()}
    findings = [f for by, t in tables.items() for f in above_cnn(t, f"{models[by]} (chosen by: {by})")]
    return Outcome(
        "potts-miou",
        "Accuracy of a Potts CRF, ten steps",
        f"{len(names)} images of the second half of val, and {len(part)} of them beside "
        f"{energy.named(COSTLY)}; Potts with the paper's settings ({PAPER}) and with the best of those tried "
        f"on the first half ({tuned}).",
        rows,
        rows,
        bars("mIoU9 after ten steps", shown, "mIoU9, %"),
        [*findings, best(tables[next(reversed(tables))])],
    )


def table(seen: Measured, num_classes: int) -> dict[str, Accuracy]:
    """Accuracy of the network alone ("CNN", step 0), then of each solver after its last step."""
    found = {"CNN": of_runs(next(iter(seen.values())), 0, num_classes)}
    for r, each in seen.items():
        short = f" ({r.steps[-1]} steps)" * (r.steps[-1] < STEPS[-1])
        found[r.label + short] = of_runs(each, 1, num_classes)
    return found


def above_cnn(found: dict[str, Accuracy], model: str) -> list[Finding]:
    """The paper: every solver is above the network alone. Tested for mIoU9 and mIoU18."""
    findings = []
    for name, each in (
        ("mIoU9", {label: a.miou9 for label, a in found.items()}),
        ("mIoU18", {label: a.miou18 for label, a in found.items()}),
    ):
        alone = each.pop("CNN")
        low, high = min(each, key=each.__getitem__), max(each, key=each.__getitem__)
        findings.append(
            Finding(
                f"with {model} the CNN alone has {name} {alone:.2f}, the worst solver {low} "
                f"{each[low]:.2f}, the best {high} {each[high]:.2f}",
                each[low] > alone,
            )
        )
    return findings


def best(found: dict[str, Accuracy]) -> Finding:
    """The paper: l2FW is best, or ties for the first place."""
    label = max((label for label in found if label != "CNN"), key=lambda label: found[label].miou9)
    l2fw = found[METHODS[-1].label].miou9
    return Finding(
        f"the best solver is {label} with mIoU9 {found[label].miou9:.2f}, l2FW has {l2fw:.2f}",
        found[label].miou9 - l2fw < 0.05,
    )

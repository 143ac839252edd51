"""``potts-miou``: accuracy of a Potts CRF behind the network, ten steps, all solvers."""

from __future__ import annotations

from dataclasses import replace

from fwcrf.experiments import images
from fwcrf.experiments.accuracy import Accuracy, of_runs
from fwcrf.experiments.figures import bars
from fwcrf.experiments.measure import measure
from fwcrf.experiments.outcome import Finding, Outcome
from fwcrf.experiments.potts import PAPER, Potts
from fwcrf.experiments.runs import Run
from fwcrf.experiments.setup import Setup

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
CANDIDATES = (Potts(0.5), PAPER, Potts(2.0), Potts(3.0))


def chosen(setup: Setup) -> Potts:
    """The best weight of the Potts model on the first half, by mIoU9 of l2FW."""
    names = images.spread(images.halves(setup.voc)[0], setup.for_accuracies)
    num_classes = len(images.scored(setup.voc).classes)
    candidates = CANDIDATES[1:3] if setup.quick else CANDIDATES
    runs = {model: replace(METHODS[-1], model=model) for model in candidates}
    seen = measure(setup, names, list(runs.values()))
    return max(candidates, key=lambda model: of_runs(seen[runs[model]], 1, num_classes).miou9)


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_accuracies)
    num_classes = len(images.scored(setup.voc).classes)
    tuned = chosen(setup)
    models = {"paper": PAPER} | ({"first half": tuned} if tuned != PAPER else {})
    runs = {by: [replace(r, model=model) for r in METHODS] for by, model in models.items()}
    seen = measure(setup, names, [r for each in runs.values() for r in each])
    cnn = of_runs(seen[runs["paper"][0]], 0, num_classes)
    rows, shown, findings = [], {}, []
    for by, each in runs.items():
        found = {"CNN": cnn} | {r.label: of_runs(seen[r], 1, num_classes) for r in each}
        shown[f"weight {models[by].weight:g} ({by})"] = {label: a.miou9 for label, a in found.items()}
        rows += [
            {
                "solver": label, "weight": models[by].weight, "chosen by": by, "mIoU9": a.miou9,
                "mIoU18": a.miou18, "accuracy": a.pixels, "images": len(names),
            }
            for label, a in found.items()
        ]  # fmt: skip
        by_solver = {label: a for label, a in found.items() if label != "CNN"}
        findings += above_cnn(cnn, by_solver, f"weight {models[by].weight:g} (chosen by: {by})")
    last = {r.label: of_runs(seen[r], 1, num_classes) for r in runs[next(reversed(runs))]}
    return Outcome(
        "potts-miou",
        "Accuracy of a Potts CRF, ten steps",
        f"{len(names)} images of the second half of val; Potts with the paper's settings ({PAPER}) and, of "
        f"those tried on the first half, the best ({tuned}).",
        rows,
        rows,
        bars("mIoU9 after ten steps", shown, "mIoU9, %"),
        [*findings, best(last)],
    )


def above_cnn(cnn: Accuracy, found: dict[str, Accuracy], model: str) -> list[Finding]:
    """The paper: every solver is above the network alone. Here for each weight, and by both means."""
    findings = []
    for name, alone, each in (
        ("mIoU9", cnn.miou9, {label: a.miou9 for label, a in found.items()}),
        ("mIoU18", cnn.miou18, {label: a.miou18 for label, a in found.items()}),
    ):
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
    """The paper: l2FW is best, or shares the first place."""
    label = max(found, key=lambda label: found[label].miou9)
    l2fw = found[METHODS[-1].label].miou9
    return Finding(
        f"the best solver is {label} with mIoU9 {found[label].miou9:.2f}, l2FW has {l2fw:.2f}",
        found[label].miou9 - l2fw < 0.05,
    )

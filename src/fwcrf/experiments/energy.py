"""``energy``: the energy of the labels after each step, all solvers."""

from __future__ import annotations

from fwcrf.experiments import images
from fwcrf.experiments.curves import Curve, mean_energies, paper
from fwcrf.experiments.figures import Panel, lines
from fwcrf.experiments.measure import Measured, measure
from fwcrf.experiments.outcome import Finding, Outcome
from fwcrf.experiments.potts import PAPER
from fwcrf.experiments.runs import Run
from fwcrf.experiments.setup import Setup

STEPS = tuple(range(21))
FRANK_WOLFE = (
    Run("fw", steps=STEPS),
    Run("efw", 0.25, steps=STEPS),
    Run("l2fw", 1.0, steps=STEPS),
)
DECREASING = (
    Run("efw", 0.25, diminishing=True, steps=STEPS),
    Run("l2fw", 1.0, diminishing=True, steps=STEPS),
)
OTHERS = tuple(Run(name, steps=STEPS) for name in ("mf", "pgd", "fista", "admm"))
# Not in the paper's figures; those that solve problems within a step, or line-search, are left out.
MORE = tuple(Run(name, steps=(0, 1, 2, 5, 10)) for name in ("anneal-fw", "cccp-qp2", "cmf2", "emd"))
MEAN_FIELD_AGAIN = Run("efw", 1.0, steps=STEPS)

Means = dict[Run, dict[int, float]]  # by step


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    runs = [*FRANK_WOLFE, *DECREASING, *OTHERS, MEAN_FIELD_AGAIN, *(() if setup.quick else MORE)]
    seen = measure(setup, names, runs)
    means = {r: dict(zip(r.steps, mean_energies(seen[r]), strict=True)) for r in runs}
    drawn = [*FRANK_WOLFE, *DECREASING, *OTHERS]
    ours = [
        Curve(r.label, [float(k) for k in STEPS], list(means[r].values()), r.solver, r.diminishing)
        for r in drawn
    ]
    panels = [Panel(f"{len(names)} images, here", ours, "step", from_x=2)]
    if setup.paper is not None:
        theirs = paper(setup.paper, "energy_vs_iteration")
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "step", from_x=2))
    return Outcome(
        "energy",
        "Energy of the labels after each step",
        f"E_k - E_0 of the rounded iterates, averaged over {len(names)} images; Potts, {PAPER}.",
        [
            {"solver": r.label, "step": k, "energy": means[r][k], "images": len(names)}
            for r in runs
            for k in r.steps
        ],
        [{"solver": r.label, **{f"step {k}": means[r].get(k) for k in (1, 2, 5, 10, 20)}} for r in runs],
        lines(panels),
        [below(means, 5), below(means, 10), decreasing(means), mean_field(seen), first_step(seen)],
    )


def below(means: Means, step: int) -> Finding:
    """Whether every Frank-Wolfe variant has a lower energy than every other method after some steps."""
    worst = max(FRANK_WOLFE, key=lambda r: means[r][step])
    best = min(OTHERS, key=lambda r: means[r][step])
    holds = means[worst][step] < means[best][step]
    return Finding(
        f"after {step} steps the worst of FW, eFW and l2FW ({worst.label}, {means[worst][step]:.1f}) is "
        f"{'below' if holds else 'not below'} the best of MF, PGD, PGM and ADMM "
        f"({best.label}, {means[best][step]:.1f})",
        holds,
    )


def decreasing(means: Means) -> Finding:
    """Whether steps of 1 do better than decreasing ones."""
    pairs = list(zip(FRANK_WOLFE[1:], DECREASING, strict=True))
    shown = ", ".join(
        f"{one.label} {means[one][5]:.1f} against {means[other][5]:.1f}" for one, other in pairs
    )
    return Finding(
        f"after 5 steps, unit steps against decreasing ones: {shown}",
        all(means[one][5] < means[other][5] for one, other in pairs),
    )


def mean_field(seen: Measured) -> Finding:
    """Whether mean field is entropic Frank-Wolfe with lambda 1."""
    apart = max(
        abs(a - b)
        for one, other in zip(seen[OTHERS[0]], seen[MEAN_FIELD_AGAIN], strict=True)
        for a, b in zip(one.energies, other.energies, strict=True)
    )
    return Finding(f"MF and eFW with lambda 1 differ by at most {apart:g} in energy, at any step", apart == 0)


def first_step(seen: Measured) -> Finding:
    """Whether the labels after one full step are the same, up to ties in floating point."""
    unit = [*FRANK_WOLFE, *DECREASING, OTHERS[0]]
    apart = sum(one.first for r in unit for one in seen[r])
    labelled = len(unit) * sum(sum(n for *_, n in one.counts[0]) for one in seen[OTHERS[0]])
    return Finding(
        f"after one step MF, FW, eFW and l2FW have the same labels but for {apart} of {labelled} pixels",
        apart <= 1e-5 * labelled,
    )

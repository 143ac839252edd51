"""``energy``: the energy of the labels after each step, all solvers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fwcrf import solvers
from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.curves import Curve, mean_energies, paper
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import Measured, complete, measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import Run
from fwcrf.apps.experiments.setup import Setup

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
MEAN_FIELD_AGAIN = Run("efw", 1.0, steps=STEPS)
# Only on one in PART images: each step is a quadratic program that applies P up to 200 times.
COSTLY = (Run("cccp-qp1", steps=STEPS),)
# The remaining solvers, with default settings; none is in the paper's figures.
BEYOND = tuple(
    Run(name, steps=STEPS)
    for name in solvers.names()
    if name not in {r.solver for r in (*FRANK_WOLFE, *OTHERS, *COSTLY)}
)
PART = 8

Means = dict[Run, dict[int, float]]  # by step


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    part = names[::PART]
    drawn = [*FRANK_WOLFE, *DECREASING, *OTHERS]
    runs = [*drawn, MEAN_FIELD_AGAIN, *BEYOND]
    complete(setup, {name: [*runs, *(COSTLY if name in part else ())] for name in names})
    seen = measure(setup, names, runs)
    means, of_part = by_step(seen), by_step(measure(setup, part, [*runs, *COSTLY]))
    panels = [Panel(f"{len(names)} images, here", curves(means, drawn), "step", from_x=2)]
    if setup.paper is not None:
        theirs = paper(setup.paper, "energy_vs_iteration")
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "step", from_x=2))
    every = [below_start(curve) for curve in curves(means, [*drawn, *BEYOND])]
    panels.append(Panel(f"all but {named(COSTLY)}", every, "step", from_x=2, own_scale=True))
    return Outcome(
        "energy",
        "Energy of the labels after each step",
        f"E_k - E_0 of the rounded iterates, averaged over {len(names)} images, and over {len(part)} of them "
        f"beside {named(COSTLY)}; Potts, {PAPER}.",
        [
            {"solver": r.label, "step": k, "energy": energy, "images": count}
            for each, count in ((means, len(names)), (of_part, len(part)))
            for r in each
            for k, energy in each[r].items()
        ],
        [
            {"solver": r.label, "images": count, **{f"step {k}": each[r].get(k) for k in (1, 2, 5, 10, 20)}}
            for each, count in ((means, len(names)), (of_part, len(part)))
            for r in each
        ],
        lines(panels),
        [
            below(means, 5), below(means, 10), decreasing(means), mean_field(seen), first_step(seen),
            lowest(means, 5), lowest(means, 20),
        ],
    )  # fmt: skip


def named(runs: Iterable[Run]) -> str:
    return ", ".join(r.label for r in runs)


def by_step(seen: Measured) -> Means:
    return {r: dict(zip(r.steps, mean_energies(each), strict=True)) for r, each in seen.items()}


def curves(means: Means, drawn: Iterable[Run]) -> list[Curve]:
    return [
        Curve(r.label, [float(k) for k in r.steps], list(means[r].values()), r.solver, r.diminishing)
        for r in drawn
    ]


def below_start(curve: Curve) -> Curve:
    """The curve without steps above the start: convex-fw rises far above it."""
    points = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y <= 0]
    return replace(curve, x=[x for x, _ in points], y=[y for _, y in points])


def lowest(means: Means, step: int) -> Finding:
    """The three lowest solvers. The paper does not compare all of them."""
    known = sorted((r for r in means if step in means[r]), key=lambda r: means[r][step])
    first = ", ".join(f"{r.label} {means[r][step]:.1f}" for r in known[:3])
    return Finding(
        f"of {len(known)} solvers and settings with {step} steps the lowest are {first}, the highest is "
        f"{known[-1].label} {means[known[-1]][step]:.1f}"
    )


def below(means: Means, step: int) -> Finding:
    """The paper: every Frank-Wolfe variant has a lower energy than every other method after some steps."""
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
    """The paper: steps of 1 reach lower energies than decreasing steps."""
    pairs = list(zip(FRANK_WOLFE[1:], DECREASING, strict=True))
    shown = ", ".join(
        f"{one.label} {means[one][5]:.1f} against {means[other][5]:.1f}" for one, other in pairs
    )
    return Finding(
        f"after 5 steps, unit steps against decreasing ones: {shown}",
        all(means[one][5] < means[other][5] for one, other in pairs),
    )


def mean_field(seen: Measured) -> Finding:
    """The paper: mean field is entropic Frank-Wolfe with lambda 1."""
    apart = max(
        abs(a - b)
        for one, other in zip(seen[OTHERS[0]], seen[MEAN_FIELD_AGAIN], strict=True)
        for a, b in zip(one.energies, other.energies, strict=True)
    )
    # Energies of equal labels may differ by rounding: ``of_labels`` groups labellings differently.
    return Finding(
        f"MF and eFW with lambda 1 differ by at most {apart:.1g} in energy, at any step", apart < 1e-3
    )


def first_step(seen: Measured) -> Finding:
    """The labels after one full step are equal for all solvers, up to ties in floating point."""
    unit = [*FRANK_WOLFE, *DECREASING, OTHERS[0]]
    apart = sum(one.first for r in unit for one in seen[r])
    labelled = len(unit) * sum(sum(n for *_, n in one.counts[0]) for one in seen[OTHERS[0]])
    return Finding(
        f"after one step MF, FW, eFW and l2FW have the same labels but for {apart} of {labelled} pixels",
        apart <= 1e-5 * labelled,
    )

"""``energy``: the energy of the labels after each step, all solvers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import torch

from fwcrf import solvers
from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, energies, mean_energies, paper
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import Measured, complete, measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import Run
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import Interval, above, exact

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
# Only on one in PART images and for ten steps, as many as ``potts-miou`` shows: each step is a quadratic
# program that applies P up to 200 times.
COSTLY = (Run("cccp-qp1", steps=STEPS[:11]),)
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
    part = part_of(names, setup)
    drawn = [*FRANK_WOLFE, *DECREASING, *OTHERS]
    runs = [*drawn, MEAN_FIELD_AGAIN, *BEYOND]
    complete(setup, {name: [*runs, *(COSTLY if name in part else ())] for name in names})
    seen = measure(setup, names, runs)
    means = by_step(seen)
    of_part = by_step(measure(setup, part, [*runs, *COSTLY])) if part else {}
    panels = [Panel(f"{len(names)} images, here", curves(means, drawn), "step", from_x=2)]
    if setup.paper is not None:
        theirs = paper(setup.paper, "energy_vs_iteration")
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "step", from_x=2))
    every = [below_start(curve) for curve in curves(means, [*drawn, *BEYOND])]
    panels.append(Panel(f"all but {named(COSTLY)}", every, "step", from_x=2, own_scale=True))
    return Outcome(
        "energy",
        "Energy of the labels after each step",
        f"E_k - E_0 of the rounded iterates, averaged over {len(names)} images{beside(part)}; Potts, "
        f"{PAPER}.",
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
            below(seen, 5, Claim.BELOW_AFTER_5), below(seen, 10, Claim.BELOW_AFTER_10), decreasing(seen),
            mean_field(seen), first_step(seen),
            lowest(means, 5), lowest(means, 20),
        ],
    )  # fmt: skip


def part_of(names: list[str], setup: Setup) -> list[str]:
    """The images for costly solvers: one in PART, none of fewer images unless these are small."""
    return names[::PART] if setup.quick or len(names) >= PART else []


def beside(part: list[str]) -> str:
    """The number of images for costly solvers, in words."""
    if not part:
        return f", without {named(COSTLY)} on fewer than {PART} images"
    return f", and over {len(part)} of them beside {named(COSTLY)}"


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


def lower(seen: Measured, pairs: Iterable[tuple[Run, Run]], step: int) -> Interval:
    """The interval of the energy by which the first run of each pair is lower than the second."""
    each = [
        energies(seen[other])[other.steps.index(step)] - energies(seen[one])[one.steps.index(step)]
        for one, other in pairs
    ]
    apart = torch.stack(each)
    return above(lambda shares: apart @ shares.T, apart.shape[1])


def below(seen: Measured, step: int, claim: Claim) -> Finding:
    means = {r: mean_energies(seen[r])[step] for r in (*FRANK_WOLFE, *OTHERS)}
    worst = max(FRANK_WOLFE, key=lambda r: means[r])
    best = min(OTHERS, key=lambda r: means[r])
    return Finding(
        f"the highest of FW, eFW and l2FW is {worst.label} with {means[worst]:.1f}, the lowest of MF, PGD, "
        f"PGM and ADMM is {best.label} with {means[best]:.1f}",
        claim,
        lower(seen, product(FRANK_WOLFE, OTHERS), step),
    )


def decreasing(seen: Measured) -> Finding:
    pairs = list(zip(FRANK_WOLFE[1:], DECREASING, strict=True))
    shown = ", ".join(
        f"{one.label} {mean_energies(seen[one])[5]:.1f} against {mean_energies(seen[other])[5]:.1f}"
        for one, other in pairs
    )
    return Finding(shown, Claim.UNIT_STEPS, lower(seen, pairs, 5))


def mean_field(seen: Measured) -> Finding:
    apart = max(
        abs(a - b)
        for one, other in zip(seen[OTHERS[0]], seen[MEAN_FIELD_AGAIN], strict=True)
        for a, b in zip(one.energies, other.energies, strict=True)
    )
    # Energies of equal labels may differ by rounding: ``of_labels`` groups labellings differently.
    return Finding(
        f"energies differ by at most {apart:.1g} on {len(seen[OTHERS[0]])} images, at any step",
        Claim.MEAN_FIELD,
        exact(apart < 1e-3, len(seen[OTHERS[0]])),
    )


def first_step(seen: Measured) -> Finding:
    """The labels after one full step are equal for all solvers, up to ties in floating point."""
    unit = [*FRANK_WOLFE, *DECREASING, OTHERS[0]]
    apart = sum(one.first for r in unit for one in seen[r])
    labelled = len(unit) * sum(sum(n for *_, n in one.counts[0]) for one in seen[OTHERS[0]])
    return Finding(
        f"{apart} of {labelled} pixels differ, on {len(seen[OTHERS[0]])} images",
        Claim.FIRST_STEP,
        exact(apart <= 1e-5 * labelled, len(seen[OTHERS[0]])),
    )

"""``lambda``: the energy after five steps over lambda."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fwcrf.apps.experiments import energy, images
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, energies, paper
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import Measured, measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import SHOWN, Run
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import above

GRIDS = {
    "efw": tuple(round(0.1 * i, 1) for i in range(1, 16)),
    "l2fw": tuple(round(0.1 * i, 1) for i in range(1, 26)),
}
CLAIMS = {"efw": Claim.RANGE_EFW, "l2fw": Claim.RANGE_L2FW}


def swept(solver: str, quick: bool) -> list[Run]:
    """A run per lambda, evaluated before the first and after the fifth step."""
    return [Run(solver, weight, steps=(0, 5)) for weight in GRIDS[solver][:: 4 if quick else 1]]


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    flat = [*energy.OTHERS, energy.FRANK_WOLFE[0]]
    runs = {solver: swept(solver, setup.quick) for solver in GRIDS}
    seen = measure(setup, names, [*(r for each in runs.values() for r in each), *flat])
    after = {r: float(after_five(r, seen).mean()) for r in seen}
    widest = [float(r.weight or 0) for r in runs["l2fw"]]
    curves = [
        Curve(SHOWN[solver], [float(r.weight or 0) for r in each], [after[r] for r in each], solver)
        for solver, each in runs.items()
    ]
    curves += [Curve(r.label, widest, [after[r]] * len(widest), r.solver) for r in flat]
    panels = [Panel(f"{len(names)} images, here", curves, "lambda", "E_5 - E_0")]
    if setup.paper is not None:
        theirs = paper(setup.paper, "energy_vs_lambda_5_iterations")
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "lambda", "E_5 - E_0"))
    rows = [
        {"solver": SHOWN[r.solver], "lambda": r.weight, "energy": after[r], "images": len(names)}
        for r in seen
    ]
    return Outcome(
        "lambda",
        "Energy after five steps over lambda",
        f"E_5 - E_0 of the labels, averaged over {len(names)} images; Potts, {PAPER}.",
        rows,
        rows,
        lines(panels),
        [finding(solver, each, flat[:-1], seen) for solver, each in runs.items()],
    )


def finding(solver: str, runs: Sequence[Run], rivals: Sequence[Run], seen: Measured) -> Finding:
    after = {r: after_five(r, seen) for r in (*runs, *rivals)}
    means = {r: float(each.mean()) for r, each in after.items()}
    best = min(rivals, key=means.__getitem__)
    good = [float(r.weight or 0) for r in runs if means[r] < means[best]]
    lowest = min(runs, key=means.__getitem__)
    where = f"for lambda from {min(good):g} to {max(good):g}" if good else "for no lambda"
    own, others = (torch.stack([after[r] for r in each]) for each in (runs, rivals))

    def lower(shares: Tensor) -> Tensor:
        """By how much the median lambda, the lower of two in the middle, is below each rival."""
        middle = (own @ shares.T).sort(0).values[(len(runs) - 1) // 2]
        return others @ shares.T - middle

    return Finding(
        f"{SHOWN[solver]} is below {best.label}, the lowest of MF, PGD, PGM and ADMM with {means[best]:.1f}, "
        f"{where}, {len(good)} of {len(runs)} tried, and lowest at {lowest.weight:g} with "
        f"{means[lowest]:.1f}",
        CLAIMS[solver],
        above(lower, own.shape[1], name="difference of the median lambda"),
    )


def after_five(run: Run, seen: Measured) -> Tensor:
    """E_5 - E_0 per image."""
    return energies(seen[run])[run.steps.index(5)]

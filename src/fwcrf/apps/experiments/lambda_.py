"""``lambda``: the energy after five steps over lambda."""

from __future__ import annotations

from collections.abc import Sequence

from fwcrf.apps.experiments import energy, images
from fwcrf.apps.experiments.curves import Curve, mean_energies, paper
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import SHOWN, Run
from fwcrf.apps.experiments.setup import Setup

GRIDS = {
    "efw": tuple(round(0.1 * i, 1) for i in range(1, 16)),
    "l2fw": tuple(round(0.1 * i, 1) for i in range(1, 26)),
}


def swept(solver: str, quick: bool) -> list[Run]:
    """A run per lambda, evaluated before the first and after the fifth step."""
    return [Run(solver, weight, steps=(0, 5)) for weight in GRIDS[solver][:: 4 if quick else 1]]


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    flat = [*energy.OTHERS, energy.FRANK_WOLFE[0]]
    runs = {solver: swept(solver, setup.quick) for solver in GRIDS}
    seen = measure(setup, names, [*(r for each in runs.values() for r in each), *flat])
    after = {r: mean_energies(s)[1 if len(r.steps) == 2 else 5] for r, s in seen.items()}
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
        [finding(solver, each, flat[:-1], after) for solver, each in runs.items()],
    )


def finding(solver: str, runs: Sequence[Run], others: Sequence[Run], after: dict[Run, float]) -> Finding:
    """The paper: the solver is below MF, PGD, PGM and ADMM for a large range of lambda."""
    best = min(others, key=lambda r: after[r])
    good = [r.weight for r in runs if after[r] < after[best]]
    lowest = min(runs, key=lambda r: after[r])
    where = f"for lambda from {min(good):g} to {max(good):g}" if good else "for no lambda"  # type: ignore[type-var]
    return Finding(
        f"{SHOWN[solver]} is below MF, PGD, PGM and ADMM (the best, {best.label}: {after[best]:.1f}) "
        f"{where}, {len(good)} of {len(runs)} tried, and lowest at {lowest.weight:g}: {after[lowest]:.1f}",
        2 * len(good) >= len(runs),
    )

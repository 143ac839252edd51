"""``lambdas``: the energy after each step for five values of lambda."""

from __future__ import annotations

from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, mean_energies, paper
from fwcrf.apps.experiments.energy import STEPS, lower
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import Measured, measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import SHOWN, Run
from fwcrf.apps.experiments.setup import Setup

WEIGHTS = (0.2, 0.4, 0.6, 0.8, 1.0)
CLAIMS = {"efw": Claim.ORDER_EFW, "l2fw": Claim.ORDER_L2FW}


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    runs = [Run(solver, weight, steps=STEPS) for solver in ("efw", "l2fw") for weight in WEIGHTS]
    seen = measure(setup, names, runs)
    means = {r: mean_energies(seen[r]) for r in runs}
    curves = [Curve(r.label, [float(k) for k in STEPS], means[r], r.solver) for r in runs]
    panels = [Panel(f"{len(names)} images, here", curves, "step", from_x=2)]
    theirs = [] if setup.paper is None else paper(setup.paper, "energy_vs_iteration_per_lambda")
    if theirs:
        panels.append(Panel("PASCAL VOC val, the paper", theirs, "step", from_x=2))
    return Outcome(
        "lambdas",
        "Energy after each step for five lambdas",
        f"E_k - E_0 of the labels, averaged over {len(names)} images; Potts, {PAPER}.",
        [
            {
                "solver": SHOWN[r.solver],
                "lambda": r.weight,
                "step": k,
                "energy": means[r][k],
                "images": len(names),
            }
            for r in runs
            for k in STEPS
        ],
        [{"solver": r.label, **{f"step {k}": means[r][k] for k in (1, 2, 5, 10, 20)}} for r in runs],
        lines(panels),
        [finding(solver, means, seen, theirs) for solver in ("efw", "l2fw")],
    )


def finding(solver: str, means: dict[Run, list[float]], seen: Measured, theirs: list[Curve]) -> Finding:
    """The order of the lambdas after 20 steps, compared with the paper's order if its curves are given."""
    here = sorted((r for r in means if r.solver == solver), key=lambda r: means[r][-1])
    order = ", ".join(f"{r.weight:g} ({means[r][-1]:.1f})" for r in here)
    sentence = f"{SHOWN[solver]} after 20 steps, the lowest first: lambda {order}"
    known = {c.label: c.y[-1] for c in theirs if c.solver == solver}
    # A pair counts only if the paper's energies differ by more than 0.1 % and by more than 4.
    apart = [
        (one, other)
        for one in here
        for other in here
        if known
        and known[one.label] < known[other.label] * (1 - 1e-3)
        and known[one.label] < known[other.label] - 4
    ]
    if not apart:
        return Finding(sentence)
    same = [pair for pair in apart if means[pair[0]][-1] < means[pair[1]][-1]]
    return Finding(
        f"{sentence}; of {len(apart)} pairs that the paper tells apart {len(same)} are ordered alike",
        CLAIMS[solver],
        lower(seen, apart, STEPS[-1]),
    )

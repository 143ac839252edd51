"""``long``: a hundred steps."""

from __future__ import annotations

from dataclasses import replace

from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.curves import Curve, mean_energies
from fwcrf.apps.experiments.energy import FRANK_WOLFE, OTHERS
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.setup import Setup

STEPS = (0, 1, 2, 3, 4, 5, 7, *range(10, 101, 5))


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], min(16, setup.for_energies))
    runs = [replace(r, steps=STEPS) for r in (*FRANK_WOLFE, *OTHERS)]
    seen = measure(setup, names, runs)
    means = {r: dict(zip(STEPS, mean_energies(seen[r]), strict=True)) for r in runs}
    curves = [Curve(r.label, [float(k) for k in STEPS], list(means[r].values()), r.solver) for r in runs]
    title = f"{len(names)} images"
    panels = [Panel(title, curves, "step", from_x=2)]
    by_solver = {r.solver: means[r] for r in runs}
    return Outcome(
        "long",
        "A hundred steps",
        f"E_k - E_0 of the labels, averaged over {len(names)} images; Potts, {PAPER}.",
        [
            {"solver": r.label, "step": k, "energy": means[r][k], "images": len(names)}
            for r in runs
            for k in STEPS
        ],
        [{"solver": r.label, **{f"step {k}": means[r][k] for k in (5, 10, 20, 50, 100)}} for r in runs],
        lines(panels),
        [settled(by_solver), overtaken(by_solver)],
    )


def settled(means: dict[str, dict[int, float]]) -> Finding:
    """The paper: vanilla and Euclidean Frank-Wolfe have converged after about 20 steps."""
    left = {name: (means[name][100] - means[name][20]) / means[name][100] for name in ("fw", "l2fw")}
    return Finding(
        f"steps 21 to 100 give {100 * left['fw']:.2f} % of the decrease in energy of FW, "
        f"{100 * left['l2fw']:.2f} % of that of l2FW",
        all(abs(share) < 0.01 for share in left.values()),
    )


def overtaken(means: dict[str, dict[int, float]]) -> Finding:
    """The paper: within 100 steps, the accelerated gradient method (PGM) passes l2FW and FW."""
    when = {
        name: next((k for k in STEPS if k > 5 and means["fista"][k] < means[name][k]), None)
        for name in ("l2fw", "fw")
    }
    words = {name: f"by step {k}" if k is not None else "not within 100 steps" for name, k in when.items()}
    return Finding(
        f"PGM passes l2FW {words['l2fw']} and FW {words['fw']} (after 100 steps: PGM "
        f"{means['fista'][100]:.1f}, l2FW {means['l2fw'][100]:.1f}, FW {means['fw'][100]:.1f})",
        all(k is not None for k in when.values()),
    )

"""``long``: a hundred steps."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, energies, mean_energies
from fwcrf.apps.experiments.energy import FRANK_WOLFE, OTHERS
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.measure import measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import above, equally, within

STEPS = (0, 1, 2, 3, 4, 5, 7, *range(10, 101, 5))


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], min(16, setup.for_energies))
    runs = [replace(r, steps=STEPS) for r in (*FRANK_WOLFE, *OTHERS)]
    seen = measure(setup, names, runs)
    means = {r: dict(zip(STEPS, mean_energies(seen[r]), strict=True)) for r in runs}
    curves = [Curve(r.label, [float(k) for k in STEPS], list(means[r].values()), r.solver) for r in runs]
    title = f"{len(names)} images"
    panels = [Panel(title, curves, "step", from_x=2)]
    by_solver = {r.solver: energies(seen[r]) for r in runs}
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


def settled(seen: dict[str, Tensor]) -> Finding:
    solvers = ("fw", "l2fw")

    def left(shares: Tensor) -> Tensor:
        """Percent of the decrease in energy that steps 21 to 100 give."""
        means = {name: seen[name][[STEPS.index(20), STEPS.index(100)]] @ shares.T for name in solvers}
        return torch.stack([100 * (last - early) / last for early, last in means.values()])

    fw, l2fw = left(equally(seen["fw"].shape[1])).flatten().tolist()
    return Finding(
        f"steps 21 to 100 give {fw:.2f} % of the decrease in energy of FW, {l2fw:.2f} % of that of l2FW",
        Claim.CONVERGED,
        within(left, seen["fw"].shape[1], 1.0, "larger share in percent"),
    )


def overtaken(seen: dict[str, Tensor]) -> Finding:
    """The paper has PGM pass l2FW after 70 steps and FW after 100."""
    pgm, l2fw, fw = (seen[name].mean(1) for name in ("fista", "l2fw", "fw"))
    when = [
        next((k for k, e in zip(STEPS, pgm < other, strict=True) if k > 5 and e), None)
        for other in (l2fw, fw)
    ]
    words = [f"by step {k}" if k is not None else "not within 100 steps" for k in when]
    apart = torch.stack([seen[name][-1] - seen["fista"][-1] for name in ("l2fw", "fw")])
    return Finding(
        f"PGM passes l2FW {words[0]} and FW {words[1]}; after 100 steps PGM has {pgm[-1]:.1f}, l2FW "
        f"{l2fw[-1]:.1f}, FW {fw[-1]:.1f}",
        Claim.OVERTAKEN,
        above(lambda shares: apart @ shares.T, apart.shape[1]),
    )

"""``tune``: lambda chosen on ten random images, compared with lambda chosen on all."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, energies
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.lambda_ import GRIDS, swept
from fwcrf.apps.experiments.measure import measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import SHOWN
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import within

DRAWS = 100
SHOWN_DRAWS = 4
CLAIMS = {"efw": Claim.TUNED_EFW, "l2fw": Claim.TUNED_L2FW}


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    size = min(10, max(1, len(names) // 2))
    draws = [random.Random(seed).sample(range(len(names)), size) for seed in range(DRAWS)]
    rows, curves, findings = [], [], []
    for solver in GRIDS:
        runs = swept(solver, setup.quick)
        seen = measure(setup, names, runs)
        weights = [float(r.weight or 0) for r in runs]
        drops = torch.stack([energies(seen[r])[1] for r in runs])  # (lambdas, images)
        means = drops.mean(1).tolist()
        whole = min(range(len(runs)), key=means.__getitem__)
        curves.append(Curve(f"{SHOWN[solver]}, all", weights, means, solver))
        chosen = []
        for number, draw in enumerate(draws):
            subset = drops[:, draw].mean(1).tolist()
            chosen.append(min(range(len(runs)), key=subset.__getitem__))
            if number < SHOWN_DRAWS:
                curves.append(Curve(f"{SHOWN[solver]}, draw {number + 1}", weights, subset, solver, True))
            rows.append(
                {
                    "solver": SHOWN[solver], "draw": number + 1, "images": size,
                    "lambda": weights[chosen[-1]], "energy over all": means[chosen[-1]],
                    "lambda of all": weights[whole], "lowest over all": means[whole],
                }
            )  # fmt: skip
        picked = [weights[c] for c in chosen]
        lost = [(means[c] - means[whole]) / abs(means[whole]) for c in chosen]
        findings.append(
            Finding(
                f"lambda from {size} random images is {min(picked):g} to {max(picked):g} in {DRAWS} draws, "
                f"from all {len(names)} it is {weights[whole]:g}; over all the choice costs "
                f"{100 * statistics.fmean(lost):.2f} % of the decrease in energy on average, "
                f"{100 * max(lost):.2f} % at most",
                CLAIMS[solver],
                within(partial(cost, drops, chosen), len(names), 1.0, "average cost in percent"),
            )
        )
    return Outcome(
        "tune",
        "Lambda from ten random images",
        f"E_5 - E_0 of the labels over {len(names)} images, and over {size} of them drawn at random; "
        f"Potts, {PAPER}.",
        rows,
        [row for row in rows if row["draw"] <= SHOWN_DRAWS],
        lines(
            [
                Panel(
                    f"all {len(names)} images, and {SHOWN_DRAWS} draws of {size}",
                    curves,
                    "lambda",
                    "E_5 - E_0",
                )
            ]
        ),
        findings,
    )


def cost(drops: Tensor, chosen: Sequence[int], shares: Tensor) -> Tensor:
    """Percent of the decrease in energy that the chosen lambdas cost on average, in each draw of images."""
    means = drops @ shares.T
    lowest = means.min(0).values
    return 100 * ((means[list(chosen)] - lowest) / lowest.abs()).mean(0)

"""``tune``: lambda chosen on ten random images, compared with lambda chosen on all."""

from __future__ import annotations

import random
import statistics

from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.curves import Curve
from fwcrf.apps.experiments.figures import Panel, lines
from fwcrf.apps.experiments.lambda_ import GRIDS, swept
from fwcrf.apps.experiments.measure import measure
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.potts import PAPER
from fwcrf.apps.experiments.runs import SHOWN
from fwcrf.apps.experiments.setup import Setup

DRAWS = 100
SHOWN_DRAWS = 4


def run(setup: Setup) -> Outcome:
    names = images.spread(images.halves(setup.voc)[1], setup.for_energies)
    size = min(10, max(1, len(names) // 2))
    draws = [random.Random(seed).sample(range(len(names)), size) for seed in range(DRAWS)]
    rows, curves, findings = [], [], []
    for solver in GRIDS:
        runs = swept(solver, setup.quick)
        seen = measure(setup, names, runs)
        weights = [float(r.weight or 0) for r in runs]
        drops = [[s.energies[1] - s.energies[0] for s in seen[r]] for r in runs]  # per lambda, per image
        means = [statistics.fmean(each) for each in drops]
        whole = min(range(len(runs)), key=means.__getitem__)
        curves.append(Curve(f"{SHOWN[solver]}, all", weights, means, solver))
        chosen = []
        for number, draw in enumerate(draws):
            subset = [statistics.fmean([each[i] for i in draw]) for each in drops]
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
                f"{SHOWN[solver]}: lambda from {size} random images is {min(picked):g} to {max(picked):g} in "
                f"{DRAWS} draws, from all {len(names)} it is {weights[whole]:g}; over all the choice costs "
                f"{100 * statistics.fmean(lost):.2f} % of the decrease in energy on average, "
                f"{100 * max(lost):.2f} % at most",
                statistics.fmean(lost) < 0.01,
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

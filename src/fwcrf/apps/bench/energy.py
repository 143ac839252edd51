"""Energy over time: the time until each solver's labels come close to the best known energy.

Times include set-up. Their unit is one inference of ten mean-field steps by pydensecrf (by fwcrf if it is not
installed) on the same image in the same run. *Close* leaves one hundredth of the gap between the energy of
the network's labels and the best known energy: the lowest of all runs here and of long annealed runs followed
by descent. The kernels are the default ones, with the weights of ``refine`` and with larger weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.bench import anneal, peer, peers, pictures
from fwcrf.apps.bench.anneal import Scene
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Case, Plan, measure
from fwcrf.energy import Energy
from fwcrf.solvers import Solver, get, minimize, names

WEIGHTS = {"1, 1": (1.0, 1.0), "3, 10": (3.0, 10.0)}  # spatial, bilateral
STEPS = 20
# Runs that are timed: where steps are lazy, the first ones take far longer than the rest.
TIMED = (1, 2, 3, 5, 10, 20)
LONG, TO_THE_END = (30, 40, 50), ("l2fw", "mf", "efw")  # solvers timed for more steps: time against steps
LEFT_OUT = ("cccp-qp1",)  # a quadratic program per step, as slow as all other solvers together
PLANNED = ("anneal-fw", (3, 5, 8, 12, 20))  # its schedule depends on the number of steps
QUICK = ("mf", "fw", "l2fw", "efw", "pgd", "fista", "emd")
CLOSE = 0.01

Curve = list[tuple[int, float, float]]  # steps, seconds since the start, energy of the labels


class Run:
    """A solver on an energy. The timed runs have no callback, as in normal use."""

    def __init__(self, E: Energy, name: str, steps: int) -> None:
        self.E = E
        self.steps: int = steps
        self.solver: Solver = get(name, steps=steps) if name == PLANNED[0] else get(name)

    @torch.no_grad()
    def work(self, steps: int) -> Tensor:
        return minimize(self.E, self.solver, num_steps=steps).probabilities

    @torch.no_grad()
    def energies(self) -> list[float]:
        """Energies of the labels of each iterate; not timed."""
        found: list[float] = []

        def look(k: int, x: Tensor) -> None:
            found.append(float(self.E.of_labels(x.argmax(-1))))

        minimize(self.E, self.solver, num_steps=self.steps, callback=look)
        return found

    def curve(self, taken: Mapping[int, float]) -> Curve:
        """(step, seconds, energy) of each step. Seconds are linear between the timed runs.

        No run takes longer than one of more steps: other programs add to times, and nothing takes from them.
        """
        counts = sorted(taken)
        found = self.energies()
        least = np.minimum.accumulate([taken[k] for k in counts][::-1])[::-1]
        seconds = np.interp(range(len(found)), counts, least)
        return [(k, float(t), e) for k, (t, e) in enumerate(zip(seconds, found, strict=True))]


def scenes(plan: Plan) -> list[Scene]:
    """Images with the scores of a real network, or with synthetic scores if the data is missing."""
    if (pictures.data() / "voc2012/val/logits_deeplabv3").exists():
        found = [(kind, name) for kind, name in anneal.held_out() if kind == "voc"]
        return [anneal.scene(*which) for which in found[: 1 if plan.quick else 3]]
    size = (250, 188) if plan.quick else (pictures.WIDTH, pictures.HEIGHT)
    images = {name: pictures.named(name, *size) for name in pictures.names(2 if plan.quick else 4)[1:]}
    return [Scene(n, i, torch.from_numpy(pictures.scores(i, 8))) for n, i in images.items()]


def measured(scene: Scene, weights: tuple[float, float], plan: Plan) -> dict[str, object]:
    """Curves of all solvers, the unit of time, and the start and best energies."""
    E = anneal.energy(scene, weights)
    planned, counts = PLANNED
    wanted = QUICK if plan.quick else [name for name in names() if name not in LEFT_OUT]
    runs = {name: Run(E, name, STEPS) for name in wanted if name != planned}
    threads = max(plan.threads)
    cases = [Case("set-up", lambda: lambda: anneal.energy(scene, weights), threads=threads)]
    timed = {name: TIMED + LONG * (name in TO_THE_END) for name in runs}
    for name, run in runs.items():
        for steps in timed[name]:
            work = partial(run.work, steps)
            cases.append(Case(f"{name} {steps}", lambda w=work: w, threads=threads))
    plans = {count: Run(E, planned, count) for count in counts}
    for count, run in plans.items():
        work = partial(run.work, count)
        cases.append(Case(f"{planned} {count}", lambda w=work: w, threads=threads))
    image, unary = np.ascontiguousarray(scene.image), -scene.logits.flatten(1).contiguous().numpy()
    if peer.dcrf:
        unit = peers.available()["pydensecrf"].inference(image, unary, 10)
        cases.append(Case("unit", lambda: unit))
    else:
        cases.append(Case("unit", lambda: peers.ours(image, unary, 10), threads=threads))
    found = measure(cases, plan.rounds, plan.clock)
    times = {name: min(each) for (_, name, _), each in found.items()}
    taken = {name: {0: 0.0, **{k: times[f"{name} {k}"] for k in timed[name]}} for name in runs}
    curves = {name: run.curve(taken[name]) for name, run in runs.items()}
    # The schedule of anneal-fw ends at its last step, so only that step's energy counts.
    curves[planned] = [(k, times[f"{planned} {k}"], run.energies()[-1]) for k, run in plans.items()]
    setup = times["set-up"]
    curves = {name: [(k, setup + t, e) for k, t, e in curve] for name, curve in curves.items()}
    start = float(E.of_labels(E.unary.argmin(-1)))
    best = min([best_known(E, sum(weights), plan), *(e for curve in curves.values() for _, _, e in curve)])
    seconds = {
        name: {k: setup + t for k, t in each.items()} for name, each in taken.items() if name in TO_THE_END
    }
    unit = times["unit"]
    return {"start": start, "best": best, "unit": unit, "set-up": setup, "curves": curves, "seconds": seconds}


@torch.no_grad()
def best_known(E: Energy, total: float, plan: Plan) -> float:
    """The lowest energy of long runs, each followed by descent."""
    if plan.quick:
        ends = [minimize(E, get("anneal-fw", steps=20), num_steps=20).labels]
    else:
        ends = list(anneal.long_runs(E, total))
    return min(float(E.of_labels(anneal.descended(E, labels))) for labels in ends)


def left(one: dict[str, Any], energy: float) -> float:
    """The remaining fraction of the energy gap."""
    return (energy - one["best"]) / max(one["start"] - one["best"], 1e-12)


def reached(one: dict[str, Any], solver: str) -> tuple[float, int] | None:
    """Time (in units) and steps until the solver is close. None if it never is."""
    for k, seconds, energy in one["curves"][solver]:
        if left(one, energy) <= CLOSE:
            return seconds / one["unit"], k
    return None


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    plan = plan.at_most(1 if plan.quick else 3)
    weights = dict(list(WEIGHTS.items())[:1]) if plan.quick else WEIGHTS
    found = scenes(plan)
    results = {name: {s.name: measured(s, w, plan) for s in found} for name, w in weights.items()}
    unit = "pydensecrf" if peer.dcrf else "our mf"
    for name, by_scene in results.items():
        print(
            f"\n### Weights {name}: time until {CLOSE:.0%} of the gap remains, in inferences of ten "
            f"steps by {unit}; {len(by_scene)} images, threads: {max(plan.threads)}\n"
        )
        print(
            table(["solver", "time", "steps", "reached on", "left after 5", "left after 10"], lines(by_scene))
        )
    return {"close": CLOSE, "unit": unit, "curves": results}


def lines(by_scene: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A table row per solver, the fastest first."""
    ones = list(by_scene.values())
    rows = []
    for solver in ones[0]["curves"]:
        ends = [end for end in (reached(one, solver) for one in ones) if end is not None]
        everywhere = len(ends) == len(ones)
        time = statistics.median(t for t, _ in ends) if everywhere else float("inf")
        steps = f"{statistics.median(k for _, k in ends):g}" if everywhere else ""
        rest = []
        for wanted in (5, 10):
            each = [min((left(one, e) for k, _, e in one["curves"][solver] if k <= wanted)) for one in ones]
            rest.append(f"{100 * statistics.median(each):.2f} %")
        shown = f"{time:.3f}" if everywhere else "never"
        rows.append((time, [solver, shown, steps, f"{len(ends)} of {len(ones)}", *rest]))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]

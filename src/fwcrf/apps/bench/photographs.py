"""Complete inferences of many photographs, compared with pydensecrf: how much the ratios differ.

Lazy steps and pruning depend on the picture. The photographs are a random choice from PASCAL VOC, the same
in every run, each at its own size, mostly 500 pixels wide or high, with a network's scores. One thread is
measured in processor time, which other programs hardly change, and several threads on the wall clock.
"""

from __future__ import annotations

import statistics
from time import perf_counter, process_time

import numpy as np

from fwcrf.apps.bench import peers, pictures
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Case, Plan, measure

COUNT, SEED = 24, 27
STEPS = 10  # of pydensecrf
RUNS = {
    "10 steps of l2fw": ("l2fw", 10),
    "l2fw to the end (at most 50)": ("l2fw", 50),
    "10 steps of mf": ("mf", 10),
}
THEIRS = "pydensecrf"


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its table and return the ratios of all photographs."""
    ratios = {
        f"{what}; {count} thread{'s' * (count > 1)}": each
        for count in plan.threads
        for what, each in compared(plan, count).items()
    }
    print(f"\n### {THEIRS}'s time over ours, {STEPS} steps of theirs\n")
    head = ["", "median", "quarter below", "quarter above", "least", "most"]
    print(
        table(
            head, [[what, *(f"{v:.1f}" for v in spread([*each.values()]))] for what, each in ratios.items()]
        )
    )
    return {"ratios": ratios}


def compared(plan: Plan, threads: int) -> dict[str, dict[str, float]]:
    """The ratio of every photograph, by the run of ours."""
    cases, names = [], pictures.at_random(4 if plan.quick else COUNT, SEED)
    for name in names:
        size = pictures.size(name)
        image = pictures.named(name, *size)
        unary = np.ascontiguousarray(-pictures.network_scores(name, *size).reshape(21, -1))
        works = {what: peers.ours(image, unary, steps, solver) for what, (solver, steps) in RUNS.items()}
        works[THEIRS] = peers.available()[THEIRS].inference(image, unary, STEPS)
        for what, work in works.items():
            cases.append(Case(what, lambda work=work: work, name, threads))
    times = measure(cases, plan.at_most(3).rounds, process_time if threads == 1 else perf_counter)
    least = {(name, what): min(each) for (name, what, _), each in times.items()}
    return {what: {name: least[name, THEIRS] / least[name, what] for name in names} for what in RUNS}


def spread(ratios: list[float]) -> tuple[float, float, float, float, float]:
    """Median, lower and upper quartile, least and most."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high, min(ratios), max(ratios)

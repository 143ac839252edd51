"""``joint`` and ``joint-voc``: network and CRF trained together, beside all cheaper ways to the same gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from fwcrf.apps.experiments import benchmark as benchmarks
from fwcrf.apps.experiments.benchmark import TEST, TRAIN, VAL, Benchmark
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.joint_plans import (
    BY_ADAM,
    BY_PAPER,
    NUM_STEPS,
    PAPER,
    RECIPES,
    SOLVERS,
    Plan,
    Recipe,
    Weights,
    head_alone,
    potts,
    recipes_for,
    together,
)
from fwcrf.apps.experiments.joint_runs import Result, Runs, Task
from fwcrf.apps.experiments.joint_scores import RADIUS, mean_iou
from fwcrf.apps.experiments.learning import mean_and_deviation
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.tables import Row
from fwcrf.apps.experiments.verdict import Interval, above, equally

CNN, PAPER_POTTS, TUNED_POTTS = "CNN", "Potts, paper", "Potts, tuned"
PARAMETERS = ("network", "weights", "compatibility", "temperature")
TUNE = Task("tuned")

Results = Mapping[str, Sequence[Result]]  # a result per seed, by label; one for a model without training


def on_camvid(setup: Setup) -> Outcome:
    return run(setup, "joint", benchmarks.camvid)


def on_voc(setup: Setup) -> Outcome:
    return run(setup, "joint-voc", benchmarks.voc)


def run(setup: Setup, name: str, make: Callable[[Setup], Benchmark]) -> Outcome:
    runs = Runs(setup, make)
    missing = runs.without_features()
    if missing:
        setup.progress(f"features of {len(missing)} images", 0)
    runs.complete(missing)
    first = {CNN: Task("untrained", Plan(CNN)), PAPER_POTTS: Task("untrained", potts(PAPER, PAPER_POTTS))}
    runs.complete([TUNE, *first.values()])
    tuned = runs.weights(TUNE)
    recipes = recipes_for(runs.benchmark.title)
    tasks = {label: [task] for label, task in first.items()} | listed(tuned, setup, recipes)
    everything = [task for each in tasks.values() for task in each]
    tell_forecast(runs.forecast(everything), setup)
    runs.complete([task for task in everything if task.kind == "untrained"])
    runs.complete(in_order([task for task in everything if task.kind == "trained"]))
    runs.complete([task for task in everything if task.kind == "potts_after"])
    found = {label: [runs.result(task) for task in each] for label, each in tasks.items()}
    return outcome(name, runs.benchmark, setup, found, tuned)


def listed(tuned: Weights, setup: Setup, recipes: Sequence[Recipe] = RECIPES) -> dict[str, list[Task]]:
    """The tasks of all models besides the first two, by label, a task per seed if the seed matters."""
    found = {TUNED_POTTS: [Task("untrained", potts(tuned, TUNED_POTTS))]}
    for recipe in recipes:
        head = head_alone(recipe)
        found[head.label] = [Task("trained", head, seed) for seed in setup.seeds]
        found[then_potts(head.label)] = [Task("potts_after", head, seed) for seed in setup.seeds]
        for solver in list(SOLVERS)[: 3 if setup.quick else None]:
            plan = together(solver, recipe, tuned)
            # One start: seeds differ by the noise of the paper's recipe only, a hundredth.
            seed = setup.seeds[0] if plan.has_matrices else 0
            found[start_of(plan.label)] = [Task("untrained", plan, seed)]
            found[plan.label] = [Task("trained", plan, seed) for seed in setup.seeds]
    return found


def then_potts(label: str) -> str:
    """The label of a network trained on, followed by a Potts CRF that is tuned for it."""
    return f"{label}, then tuned Potts"


def start_of(label: str) -> str:
    """The label of a model before its training."""
    return f"{label}, untrained"


def in_order(trainings: Sequence[Task]) -> list[Task]:
    """Seed by seed, so that an interrupted run has whole seeds; the longest of a seed first, so that all
    processes are busy to its end.
    """
    seeds = list(dict.fromkeys(task.seed for task in trainings))
    return sorted(trainings, key=lambda task: (seeds.index(task.seed), -_length(task)))


def _length(task: Task) -> int:
    """A training's length, in epochs without a CRF."""
    assert task.plan is not None and task.plan.recipe is not None
    return task.plan.recipe.epochs * (1 if task.plan.solver is None else 3)


def tell_forecast(seconds: Mapping[str, float], setup: Setup) -> None:
    """Tell the expected minutes of all trainings that are not finished."""
    for name, each in seconds.items():
        setup.progress(f"forecast: {name}: {each / 60:.1f} minutes of one core", 0)
    if seconds:
        total = sum(seconds.values()) / 60
        setup.progress(f"forecast: {total:.0f} minutes of one core for {len(seconds)} trainings", 0)


# --- tables and verdicts ----------------------------------------------------------------------------


def outcome(name: str, benchmark: Benchmark, setup: Setup, found: Results, tuned: Weights) -> Outcome:
    """Rows per model and run, a summary per model, and the findings."""
    rows = [
        row_of(benchmark, label, number, result)
        for label, each in found.items()
        for number, result in enumerate(each)
    ]
    means, deviations, summary = {}, {}, []
    for label, each in found.items():
        mine = [row for row in rows if row["model"] == label]
        means[label], deviation = mean_and_deviation([float(row[benchmark.measure] or 0) for row in mine])
        deviations[label] = deviation or 0.0
        measures = [benchmark.measure, "accuracy", "boundary F", "trimap IoU"]
        summary.append(
            {"model": label, "runs": len(each), f"deviation of {benchmark.measure}": deviation}
            | {m: mean_and_deviation([float(row[m] or 0) for row in mine])[0] for m in measures}
            | {f"change of {p}": shown_change(each, p) for p in PARAMETERS}
        )
    sizes = {split: len(benchmark.splits[split]) for split in (TRAIN, VAL, TEST)}
    most = 1 if setup.quick else setup.epochs or 10**6
    recipes = recipes_for(benchmark.title)
    epochs = ", ".join(f"{min(r.epochs, most)} epochs by the recipe {r.name!r}" for r in recipes)
    return Outcome(
        name,
        f"Network and CRF trained together on {benchmark.title}",
        f"Trained on {sizes[TRAIN]} images, settings chosen on {sizes[VAL]}, measured on {sizes[TEST]}; "
        f"{epochs}, two images a step, {NUM_STEPS} steps of the CRF, seeds "
        f"{', '.join(map(str, setup.seeds))}. Only the network's head is trained. Tuned Potts: {tuned}. "
        f"Trimaps have a radius of {RADIUS:g} px. Changes are the largest absolute ones of training. "
        "Intervals are over images and, with several, over seeds.",
        rows,
        summary,
        bars(
            f"{benchmark.measure}, {benchmark.title}", {"mean": means}, f"{benchmark.measure}, %", deviations
        ),
        findings(benchmark, found, means),
    )


def row_of(benchmark: Benchmark, label: str, number: int, result: Result) -> Row:
    scored, classes = result.scored, list(benchmark.counted)
    names = benchmark.splits[TEST].classes.names
    return {
        "model": label, "run": number, benchmark.measure: scored.mean_iou(classes),
        "accuracy": scored.accuracy(), "boundary F": scored.boundary_f(classes),
        "trimap IoU": scored.trimap_iou(classes), "seconds of training": result.seconds or None,
        "Potts": str(result.weights) if result.weights else None,
    } | {
        names[c]: None if math.isnan(value) else value for c, value in enumerate(scored.per_class())
    } | {f"change of {name}": result.moved.get(name) for name in PARAMETERS}  # fmt: skip


def shown_change(results: Sequence[Result], name: str) -> str | None:
    """The largest change over the runs; None if the model is not trained or has no such parameter."""
    known = [each.moved[name] for each in results if name in each.moved]
    return f"{max(known):.3g}" if known else None


def gain(benchmark: Benchmark, found: Results, labels: Sequence[str], others: Sequence[str]) -> Interval:
    """The interval of the least difference in mean IoU between models and others, over images and seeds."""

    def of(shares: Tensor, label: str) -> Tensor:
        """Mean IoU ``(seeds, draws)``, or ``(1, draws)`` for a model without training."""
        each = [mean_iou(shares, result.scored.counts, benchmark.counted) for result in found[label]]
        return torch.stack(each)

    def of_each_seed(shares: Tensor) -> Tensor:
        """Differences ``(k, seeds, draws)``. Models of a seed saw the same crops in the same order."""
        pairs = [(of(shares, one), of(shares, other)) for one in labels for other in others]
        seeds = max(max(len(one), len(other)) for one, other in pairs)
        return torch.stack([(one - other).expand(seeds, -1) for one, other in pairs])

    num_images = len(found[CNN][0].scored.counts)
    runs = of_each_seed(equally(num_images))[..., 0]
    return above(lambda shares: of_each_seed(shares).mean(1), num_images, runs=runs)


def findings(benchmark: Benchmark, found: Results, means: Mapping[str, float]) -> list[Finding]:
    """A finding per claim, and the changes of parameters."""
    prefix = benchmark.title.upper()

    def judged(key: str, labels: Sequence[str], others: Sequence[str]) -> Finding:
        shown = ", ".join(f"{label} {means[label]:.2f}" for label in (*labels, *others))
        return Finding(
            f"{benchmark.measure}: {shown}",
            Claim[f"{prefix}_{key}"],
            gain(benchmark, found, labels, others),
        )

    each = [judged("POTTS_ABOVE_CNN", [TUNED_POTTS], [CNN])]
    each += [judged(f"{key}_ABOVE_POTTS", [joint("l2fw", r)], [TUNED_POTTS]) for key, r in _keys()]
    each += [
        judged(f"{key}_PAYS", [joint("l2fw", r)], [then_potts(head_alone(r).label)]) for key, r in _keys()
    ]
    each += [
        judged(f"{key}_ABOVE_MF", [joint("l2fw", r), joint("efw", r)], [joint("mf", r)]) for key, r in _keys()
    ]
    rivals = [joint(s, BY_PAPER) for s in SOLVERS if s != "l2fw" and joint(s, BY_PAPER) in found]
    each.append(judged("PAPER_BEST", [joint("l2fw", BY_PAPER)], rivals))
    return [*each, training(benchmark, found, means), change(found)]


def _keys() -> list[tuple[str, Recipe]]:
    return [("PAPER", BY_PAPER), ("ADAM", BY_ADAM)]


def joint(solver: str, recipe: Recipe) -> str:
    """The label of a model that is trained together."""
    return together(solver, recipe, PAPER).label


def training(benchmark: Benchmark, found: Results, means: Mapping[str, float]) -> Finding:
    """How much each training gains over its own start."""
    starts = {label: start_of(label) for label in found if start_of(label) in found}
    starts |= {head_alone(recipe).label: CNN for recipe in RECIPES}
    words = [f"{label} {means[label] - means[start]:+.2f}" for label, start in starts.items()]
    return Finding(f"training changes {benchmark.measure} by: {'; '.join(words)}")


def change(found: Results) -> Finding:
    words = [
        f"{label} "
        + ", ".join(f"{name} by {amount}" for name in PARAMETERS if (amount := shown_change(each, name)))
        for label, each in found.items()
        if each[0].moved
    ]
    return Finding(f"the largest changes of parameters in training are: {'; '.join(words)}")

"""Results of ``joint``, each computed once and stored in a file, in several processes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.batch.local import Failure
from fwcrf.apps.batch.lock import exclusive
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments import joint_plans, joint_training
from fwcrf.apps.experiments.benchmark import TEST, TRAIN, VAL, Benchmark
from fwcrf.apps.experiments.divided import Divided
from fwcrf.apps.experiments.feature_files import FeatureFiles, Sample
from fwcrf.apps.experiments.joint_plans import CANDIDATES, Joint, Plan, Weights
from fwcrf.apps.experiments.joint_scores import Borders, Scored, mean_iou, measured
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.measure import answers
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import equally
from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import remove_leftovers
from fwcrf.apps.training.order import Order
from fwcrf.torch_ops.printed import in_one_line

Kind = Literal["features", "untrained", "tuned", "trained", "potts_after"]


@dataclass(frozen=True)
class Task:
    """A result to compute. ``plan`` is None for the published network."""

    kind: Kind
    plan: Plan | None = None
    seed: int = 0
    split: str = TEST  # of "features"
    index: int = 0

    def __str__(self) -> str:
        if self.kind == "features":
            return f"features of image {self.index} of {self.split}"
        name = self.plan.label if self.plan else "CNN"
        return f"{name}, seed {self.seed}" + f", {self.kind.replace('_', ' ')}" * (self.kind != "trained")


@dataclass(frozen=True, eq=False)
class Result:
    """Scores on the test images, and for a trained model how far its parameters moved."""

    scored: Scored
    moved: dict[str, float]
    seconds: float  # of processor time for training, since its last start
    weights: Weights | None = None  # of a Potts CRF that was tuned for this model

    __repr__ = in_one_line


@dataclass(frozen=True)
class Runs:
    """Results of one benchmark in the folder ``setup.output / "kept"``; ``make(setup)`` is the benchmark."""

    setup: Setup
    make: Callable[[Setup], Benchmark]

    @cached_property
    def benchmark(self) -> Benchmark:
        return self.make(self.setup)

    @cached_property
    def files(self) -> FeatureFiles:
        return FeatureFiles(self.setup.output / "kept" / "features", self.benchmark)

    @cached_property
    def published(self) -> Divided:
        return self.benchmark.network()

    @cached_property
    def _known_borders(self) -> dict[int, Borders]:
        return {}

    @property
    def ignore(self) -> int:
        return self.benchmark.splits[TEST].classes.ignore_index

    # --- results, computed now or before ------------------------------------------------------------

    def __call__(self, task: Task) -> float:
        """Compute and store a result, unless it is stored; return the seconds that it took."""
        begin = time.monotonic()
        if task.kind == "features":
            self.files.sample(task.split, task.index, self.published)
        elif not self._is_done(task):
            kept = self._kept(task)
            kept["result"] = getattr(self, f"_{task.kind}")(task)
        return time.monotonic() - begin

    def result(self, task: Task) -> Result:
        """A stored result."""
        stored = self._kept(task)["result"]
        weights = stored.get("weights")
        return Result(
            Scored.of(stored["scores"], self.benchmark.num_classes),
            stored.get("moved", {}),
            stored.get("seconds", 0.0),
            Weights(**weights) if weights else None,
        )

    def weights(self, task: Task) -> Weights:
        """The Potts model that a stored "tuned" chose."""
        return Weights(**self._kept(task)["result"]["weights"])

    def complete(self, tasks: Sequence[Task]) -> None:
        """Compute the results that are not stored, in parallel, the first tasks first."""
        todo = [task for task in tasks if not self._is_done(task)]
        self._folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self._folder):
            remove_leftovers(self._folder)
            job = replace(self, setup=replace(self.setup, progress=_silent))
            for number, answer in answers(job, todo, self.setup.num_workers):
                if isinstance(answer, Failure):
                    raise FileError(f"{todo[number]}: {answer.message}")
                self.setup.progress(None if todo[number].kind == "features" else self._line(todo[number]), 0)

    def without_features(self) -> list[Task]:
        """The tasks of all images whose features are not stored."""
        return [
            Task("features", split=split, index=index)
            for split in (TRAIN, VAL, TEST)
            for index in self.files.missing(split)
        ]

    def forecast(self, tasks: Sequence[Task]) -> Mapping[str, float]:
        """Estimated seconds of one core for each training that is not finished, from one image."""
        found: dict[str, float] = {}
        for task in tasks:
            if task.kind != "trained" or self._is_done(task):
                continue
            model, plan = self._start(task), self._shortened(task.plan)
            assert plan.recipe is not None
            whole = self._sample(TRAIN, 0, model.network)
            batch = [whole.part(joint_training.crop(whole.size, plan.recipe.crop, np.random.default_rng(0)))]
            with _one_thread():
                joint_training.backward(model, batch, self.ignore)  # not timed: builds caches
                # Processor time, because other programs may be running.
                begin = time.process_time()
                joint_training.backward(model, batch, self.ignore)
                seconds = time.process_time() - begin
            found[str(task)] = seconds * plan.recipe.epochs * len(self.benchmark.splits[TRAIN])
        return found

    # --- computation of each kind -------------------------------------------------------------------

    def _untrained(self, task: Task) -> dict[str, Any]:
        return {"scores": self._scores(self._start(task))}

    def _trained(self, task: Task) -> dict[str, Any]:
        begin = time.process_time()
        model, moved = self._trained_model(task)
        seconds = time.process_time() - begin
        return {"scores": self._scores(model), "moved": moved, "seconds": seconds}

    def _tuned(self, task: Task) -> dict[str, Any]:
        model = self._trained_model(task)[0] if task.plan else self._start(task)
        return {"weights": asdict(self._best(model))}

    def _potts_after(self, task: Task) -> dict[str, Any]:
        """A tuned Potts CRF after a trained network; its bandwidths are those tuned for the published one."""
        model, _ = self._trained_model(task)
        tuned = self.weights(Task("tuned"))
        weights = self._best(model, [w for w in CANDIDATES if (w.xy, w.color) == (tuned.xy, tuned.color)])
        model.crf = joint_plans.potts(weights, "").crf(self.benchmark.num_classes)
        return {"scores": self._scores(model), "weights": asdict(weights)}

    def _start(self, task: Task) -> Joint:
        plan = task.plan or Plan("CNN")
        return joint_plans.model(plan, self.benchmark.network(), self.benchmark.num_classes, task.seed)

    def _trained_model(self, task: Task) -> tuple[Joint, dict[str, float]]:
        model, plan = self._start(task), self._shortened(task.plan)
        recipe = plan.recipe
        assert recipe is not None
        size = len(self.benchmark.splits[TRAIN])
        order = Order(size, min(recipe.batch_size, size), task.seed)
        folder = self._folder / f"trained-{self._key(replace(task, kind='trained'))}"
        folder.mkdir(parents=True, exist_ok=True)

        def sample(epoch: int, index: int) -> Sample:
            whole, rng = (
                self._sample(TRAIN, index, model.network),
                np.random.default_rng((task.seed, epoch, index)),
            )
            return whole.part(joint_training.crop(whole.size, recipe.crop, rng))

        moved = joint_training.train(model, plan, sample, order, folder, self.ignore)
        return model, moved

    def _shortened(self, plan: Plan | None) -> Plan:
        """The plan with at most as many epochs as the setup has."""
        assert plan is not None and plan.recipe is not None
        most = 1 if self.setup.quick else self.setup.epochs or plan.recipe.epochs
        return replace(plan, recipe=replace(plan.recipe, epochs=min(most, plan.recipe.epochs)))

    @torch.no_grad()
    def _scores(self, model: Joint) -> list[Any]:
        """Values per test image for ``Scored.of``."""
        num_classes = self.benchmark.num_classes
        return [
            measured(
                model(sample)[0].max(0).indices,  # four times as fast as argmax
                sample.truth[0],
                self._borders(index, sample.truth[0]),
                num_classes,
                self.ignore,
            )
            for index, sample in enumerate(self._samples(TEST, model.network))
        ]

    def _borders(self, index: int, truth: Tensor) -> Borders:
        """The true borders of a test image, found once in each process."""
        if index not in self._known_borders:
            self._known_borders[index] = Borders.of(truth.short(), self.ignore)
        return self._known_borders[index]

    @torch.no_grad()
    def _best(self, model: Joint, candidates: Sequence[Weights] = CANDIDATES) -> Weights:
        """The candidate with the highest mean IoU on the images for choices, after the network of a model."""
        num_classes = self.benchmark.num_classes
        layers = [joint_plans.potts(weights, "").crf(num_classes) for weights in candidates]
        found = [Confusion(num_classes, self.ignore) for _ in candidates]
        for sample in self._samples(VAL, model.network):
            logits = model.logits(sample)
            for layer, confusion in zip(layers, found, strict=True):
                assert layer is not None
                confusion.update(layer(sample.image, logits).max(1).indices, sample.truth)
        scores = [float(mean_iou(equally(1), each.matrix[None], self.benchmark.counted)) for each in found]
        return candidates[max(range(len(scores)), key=scores.__getitem__)]

    def _samples(self, split: str, network: Divided) -> Iterator[Sample]:
        for index in range(len(self.benchmark.splits[split])):
            yield self._sample(split, index, network)

    def _sample(self, split: str, index: int, network: Divided) -> Sample:
        return self.files.sample(split, index, network)

    # --- files --------------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path:
        return self.setup.output / "kept" / f"joint-{self.benchmark.title.lower()}"

    def _is_done(self, task: Task) -> bool:
        return task.kind != "features" and "result" in self._kept(task)

    def _kept(self, task: Task) -> Kept:
        return Kept(self._folder / f"{task.kind}-{self._key(task)}.json", str(task))

    def _key(self, task: Task) -> str:
        """A name from all settings of a task and from the names of the images."""
        plan = task.plan
        if plan is not None and plan.recipe is not None:
            plan = self._shortened(plan)
        names = {split: dataset.names for split, dataset in self.benchmark.splits.items()}
        about = [
            task.kind, plan.identity() if plan else None, task.seed, names, self.benchmark.digest,
            [asdict(each) for each in CANDIDATES], list(self.benchmark.counted), self.benchmark.quick,
        ]  # fmt: skip
        return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=8).hexdigest()

    def _line(self, task: Task) -> str:
        if task.kind == "tuned":
            return f"{task}: {self.weights(task)}"
        found = self.result(task)
        score = f"{self.benchmark.measure} {found.scored.mean_iou(self.benchmark.counted):.2f}"
        return f"{task}: {score}" + f", trained in {found.seconds:.0f} s" * bool(found.seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _silent(*_: Any, **__: Any) -> None:
    """Progress of worker processes, which have no terminal."""

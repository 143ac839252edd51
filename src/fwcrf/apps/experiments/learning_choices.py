"""Ways to train a CRF, compared on images for choices. Test images judge the best way only.

Every choice starts from the network as published and from the Potts CRF that is best on the same images for
choices, takes equally many steps on the same training crops, and is compared with that start. The start's own
score is therefore a little too high, and a gain over it is not for this reason.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fwcrf import solvers
from fwcrf.apps.batch.local import Failure
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments import joint_training
from fwcrf.apps.experiments.benchmark import TRAIN, VAL
from fwcrf.apps.experiments.divided import Divided
from fwcrf.apps.experiments.feature_files import Sample
from fwcrf.apps.experiments.joint_plans import NUM_STEPS, Joint, Weights
from fwcrf.apps.experiments.joint_runs import Runs, Task
from fwcrf.apps.experiments.joint_scores import mean_iou
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.measure import answers
from fwcrf.apps.experiments.runs import matrix_of, nonzero_counts
from fwcrf.apps.experiments.tables import Row
from fwcrf.apps.experiments.verdict import Interval, above, equally
from fwcrf.apps.files import FileError
from fwcrf.apps.training.order import Order
from fwcrf.apps.training.schedule import poly
from fwcrf.kernels import Bilateral
from fwcrf.layer import DenseCRF
from fwcrf.losses import boundary_cross_entropy, lovasz_softmax

CROP, BATCH_SIZE, UPDATES = (184, 240), 2, 120
Loss = Literal["cross-entropy", "Lovasz", "cross-entropy + Lovasz", "boundary", "balanced"]
BOTH: Loss = "cross-entropy + Lovasz"
Kernels = Literal["tuned", "two bilateral", "network"]


@dataclass(frozen=True)
class Choice:
    """A way to train. The rate is that of the CRF; with ``head_rate`` 0 the network is frozen."""

    label: str
    learnable: tuple[str, ...] = ("weights", "temperature")
    weights: Literal["scalar", "label", "full"] = "scalar"
    loss: Loss = "cross-entropy"
    optimizer: Literal["adam", "sgd"] = "adam"
    rate: float = 0.02
    head_rate: float = 0.0
    decay: float = 0.0  # towards 0, of the CRF
    penalty: float = 0.0  # on the squared distance from the start
    kernels: Kernels = "tuned"
    projection_rate: float = 0.0  # of the linear functions that make channels of features
    skip: float = 0.5
    has_crf: bool = True
    trained: bool = True


CNN = Choice("network", has_crf=False, trained=False)
START = Choice("tuned Potts", trained=False, skip=0.0)
_ALL = ("weights", "compatibility", "temperature")
CHOICES = (
    CNN,
    START,
    Choice("tuned Potts, half of its input added", trained=False),
    Choice("two weights", ("weights",)),
    Choice("temperature", ("temperature",)),
    Choice("two weights, temperature"),
    Choice("two weights, temperature, no input added", skip=0.0),
    Choice("two weights, temperature, bias", ("weights", "temperature", "bias")),
    Choice("bias alone", ("bias",)),
    Choice("weights per label, temperature", weights="label"),
    Choice("bandwidths, two weights, temperature", ("weights", "temperature", "bandwidths")),
    Choice("lambda, steps, skip, two weights", ("weights", "lambda", "steps", "skip")),
    Choice("matrix, two weights, temperature", _ALL),
    Choice("matrix ..., penalty 0.01", _ALL, penalty=0.01),
    Choice("matrix ..., penalty 0.1", _ALL, penalty=0.1),
    Choice("3 L^2 numbers", ("weights", "compatibility"), "full"),
    Choice("3 L^2 numbers, penalty 0.01", ("weights", "compatibility"), "full", penalty=0.01),
    Choice("two weights, temperature, rate 0.005", rate=0.005),
    Choice("two weights, temperature, rate 0.08", rate=0.08),
    Choice("two weights, temperature, SGD 0.01", optimizer="sgd", rate=0.01),
    Choice("two weights, temperature, decay 0.01", decay=0.01),
    Choice("two weights, temperature, Lovasz", loss="Lovasz"),
    Choice("two weights, temperature, cross-entropy + Lovasz", loss=BOTH),
    Choice("two weights, temperature, boundary", loss="boundary"),
    Choice("two weights, temperature, balanced", loss="balanced"),
    Choice("two bilateral kernels, untrained", kernels="two bilateral", trained=False, skip=0.0),
    Choice("two bilateral kernels, three weights, temperature", kernels="two bilateral"),
    Choice("two channels of the network, untrained", kernels="network", trained=False, skip=0.0),
    Choice("two channels ..., their bandwidths", ("weights", "temperature", "bandwidths"), kernels="network"),
    Choice("two channels ..., which are learned", kernels="network", projection_rate=0.02),
    Choice("head alone", has_crf=False, head_rate=3e-5),
    Choice("head alone, cross-entropy + Lovasz", head_rate=3e-5, has_crf=False, loss=BOTH),
    Choice("head alone, balanced", has_crf=False, head_rate=3e-5, loss="balanced"),
    Choice("head, two weights, temperature", head_rate=3e-5),
    Choice("head ..., cross-entropy + Lovasz", head_rate=3e-5, loss=BOTH),
    Choice("head ..., boundary", head_rate=3e-5, loss="boundary"),
    Choice("head ..., balanced", head_rate=3e-5, loss="balanced"),
    Choice("head ..., head's rate 0.0003", head_rate=3e-4),
    Choice("head, weights per label, temperature", weights="label", head_rate=3e-5),
    Choice("head, matrix ...", _ALL, head_rate=3e-5),
    Choice("head, matrix ..., penalty 0.1", _ALL, head_rate=3e-5, penalty=0.1),
)  # fmt: skip


class Model(Joint):
    """A joint model whose CRF sees channels of the network beside the colours, if it has a projection."""

    def __init__(self, network: Divided, crf: DenseCRF | None, projection: Tensor | None = None) -> None:
        super().__init__(network, crf, has_temperature=False)
        # (channels, features)
        self.projection: nn.Parameter | None = None if projection is None else nn.Parameter(projection)

    def refine_sample(self, sample: Sample, logits: Tensor | None = None) -> Tensor:
        """Log-probabilities; ``logits`` are the network's, if the caller has them already."""
        image, logits = sample.image, self.logits(sample) if logits is None else logits
        if self.projection is not None:
            image = torch.cat([image, channels(sample, self.projection)], 1)
        return logits.log_softmax(1) if self.crf is None else self.crf(image, logits)


def channels(sample: Sample, projection: Tensor) -> Tensor:
    """Linear functions of the network's finest features, at the resolution of the image."""
    features = sample.features[0]
    grid = F.interpolate(features.float(), scale_factor=2, mode="bilinear")
    grid = grid[..., : sample.size[0], : sample.size[1]][..., sample.window[0], sample.window[1]]
    return torch.einsum("kc,bchw->bkhw", projection, grid)


def principal(samples: Sequence[Sample], count: int) -> Tensor:
    """The ``count`` directions in which features of samples vary most, for unit deviation along each."""
    rows = torch.cat([each.features[0].float().flatten(2)[0].T[::17] for each in samples])
    values, vectors = torch.linalg.eigh((rows - rows.mean(0)).T.cov())
    return (vectors[:, -count:] / values[-count:].sqrt()).T


@dataclass(frozen=True)
class Trials:
    """Trials of choices, in processes. Every result is computed once, and kept in a file.

    ``split`` has the images that judge: the images for choices, or the test images for the chosen way.
    """

    runs: Runs
    tuned: Weights
    updates: int = UPDATES
    seed: int = 0
    crop: tuple[int, int] = CROP
    split: str = VAL

    def __call__(self, choice: Choice) -> float:
        kept = self.kept(choice)
        begin = time.process_time()
        if "counts" not in kept:
            torch.manual_seed(self.seed)
            model = self.model(choice)
            if choice.trained:
                self.train(model, choice)
            kept["moved"] = {} if model.crf is None else model.crf.movement()
            kept["counts"] = self._counts(model, is_frozen=not (choice.trained and choice.head_rate))
        return time.process_time() - begin

    def complete(self, choices: Sequence[Choice]) -> None:
        todo = [choice for choice in choices if "counts" not in self.kept(choice)]
        progress, setup = self.runs.setup.progress, replace(self.runs.setup, progress=_silent)
        job = replace(self, runs=replace(self.runs, setup=setup))
        for number, answer in answers(job, todo, setup.num_workers):
            if isinstance(answer, Failure):
                raise FileError(f"{todo[number].label}: {answer.message}")
            score = float(
                mean_iou(equally(len(self.counts(todo[number]))), self.counts(todo[number]), self._classes)
            )
            progress(f"{todo[number].label}: {score:.2f} in {answer:.0f} s", 0)

    def counts(self, choice: Choice) -> Tensor:
        """Confusion matrices of the images that judge, ``(images, L, L)``."""
        stored = self.kept(choice)["counts"]
        return torch.stack([matrix_of(each, self.runs.benchmark.num_classes) for each in stored])

    def gain(self, choice: Choice, over: Choice) -> Interval:
        """The interval of the difference in mean IoU between two choices."""
        one, two = self.counts(choice), self.counts(over)

        def ahead(shares: Tensor) -> Tensor:
            return mean_iou(shares, one, self._classes) - mean_iou(shares, two, self._classes)

        return above(ahead, len(one))

    def rows(self, choices: Sequence[Choice], over: Choice = START) -> list[Row]:
        """A row per choice: mean IoU, its gain with an interval, and whether it pays."""
        found: list[Row] = []
        for choice in choices:
            gain, counts = self.gain(choice, over), self.counts(choice)
            moved = self.kept(choice)["moved"]
            found.append(
                {
                    "learned": choice.label,
                    self.runs.benchmark.measure: float(mean_iou(equally(len(counts)), counts, self._classes)),
                    f"above {over.label}": gain.value,
                    "low": gain.low,
                    "high": gain.high,
                    "pays": "" if choice == over else _pays(gain),
                    "moved": ", ".join(f"{name} {value:.2g}" for name, value in moved.items()),
                }
            )
        return found

    # --- one trial ----------------------------------------------------------------------------------

    def model(self, choice: Choice) -> Model:
        """The model of a choice before its training."""
        network = self.runs.benchmark.network()
        spatial, bilateral = self.tuned.kernels()
        assert isinstance(bilateral, Bilateral)
        kernels: dict[str, list[Any]] = {
            "tuned": [spatial, bilateral],
            "two bilateral": [
                spatial,
                Bilateral(55.0, 5.5, self.tuned.bilateral / 2),
                Bilateral(120.0, 4.0, self.tuned.bilateral / 2),
            ],
            "network": [spatial, replace(bilateral, color=(*(self.tuned.color,) * 3, 1.0, 1.0))],
        }
        crf = DenseCRF(
            self.runs.benchmark.num_classes,
            kernels[choice.kernels],
            1.0,
            solvers.get("l2fw"),
            NUM_STEPS,
            choice.learnable if choice.trained else (),
            choice.skip,
            weights=choice.weights if choice.trained else "scalar",
        )
        if choice.kernels != "network":
            return Model(network, crf if choice.has_crf else None)
        few = [self.runs.files.sample(TRAIN, index, network) for index in range(min(20, self._size))]
        return Model(network, crf, principal(few, 2))

    def train(self, model: Model, choice: Choice) -> None:
        groups = (
            [{"params": list(model.of_head().values()), "lr": choice.head_rate}] if choice.head_rate else []
        )
        if model.crf is not None:
            own = {"params": list(model.crf.parameters()), "lr": choice.rate, "weight_decay": choice.decay}
            groups.append(own)  # type: ignore[arg-type]
        if model.projection is not None:
            model.projection.requires_grad_(choice.projection_rate > 0)
            groups.append({"params": [model.projection], "lr": choice.projection_rate})
        sgd = choice.optimizer == "sgd"
        optimizer = (
            torch.optim.SGD(groups, momentum=0.9) if sgd else torch.optim.AdamW(groups, weight_decay=0.0)
        )
        rates = [group["lr"] for group in optimizer.param_groups]
        if not choice.head_rate:
            model.net.requires_grad_(False)
        order = Order(self._size, min(BATCH_SIZE, self._size), self.seed)
        for step in range(self.updates):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * poly(step, self.updates)
            optimizer.zero_grad()
            batch = order.batch(step)
            for epoch, index in batch:
                whole = self._sample(TRAIN, index, model)
                rng = np.random.default_rng((self.seed, epoch, index))
                sample = whole.part(joint_training.crop(whole.size, self.crop, rng))
                if (sample.truth != self.runs.ignore).any():
                    (
                        self.loss(model.refine_sample(sample), sample.truth, choice.loss) / len(batch)
                    ).backward()
            if choice.penalty and model.crf is not None:
                (choice.penalty * model.crf.penalty()).backward()
            optimizer.step()

    def loss(self, log_p: Tensor, truth: Tensor, name: Loss) -> Tensor:
        ignore = self.runs.ignore
        if name == "boundary":
            return boundary_cross_entropy(log_p, truth, ignore_index=ignore)
        found = log_p.new_zeros(())
        if name != "Lovasz":
            weight = self._rarity if name == "balanced" else None
            found = F.nll_loss(log_p, truth, weight, ignore_index=ignore)
        if name in ("Lovasz", "cross-entropy + Lovasz"):
            found = found + lovasz_softmax(log_p.exp(), truth, ignore_index=ignore)
        return found

    @cached_property
    def _rarity(self) -> Tensor:
        """One over the square root of the share of each class, of mean 1 over the pixels."""
        dataset, L = self.runs.benchmark.splits[TRAIN], self.runs.benchmark.num_classes
        labels = torch.cat([dataset[index][1].flatten() for index in range(0, len(dataset), 6)])
        count = torch.bincount(labels[labels != self.runs.ignore], minlength=L).double()
        share = count / count.sum()
        found = 1 / share.clamp(min=1e-4).sqrt()
        return (found / (found * share).sum()).float()

    @torch.no_grad()
    def _counts(self, model: Model, *, is_frozen: bool) -> list[Any]:
        found = []
        for index in range(len(self.runs.benchmark.splits[self.split])):
            sample = self._sample(self.split, index, model)
            confusion = Confusion(self.runs.benchmark.num_classes, self.runs.ignore)
            logits = self._published(index, model, sample) if is_frozen else None
            confusion.update(model.refine_sample(sample, logits).max(1).indices, sample.truth)
            found.append(nonzero_counts(confusion.matrix))
        return found

    @cached_property
    def _known_logits(self) -> dict[int, Tensor]:
        return {}

    def _published(self, index: int, model: Model, sample: Sample) -> Tensor:
        """The published network's logits of an image that judges, found once in each process."""
        if index not in self._known_logits:
            self._known_logits[index] = model.logits(sample)
        return self._known_logits[index]

    def _sample(self, split: str, index: int, model: Joint) -> Sample:
        return self.runs.files.sample(split, index, model.network)

    def kept(self, choice: Choice) -> Kept:
        """The file of a choice; one for each seed, if the choice is trained and the seed is not 0."""
        benchmark, seed = self.runs.benchmark, self.seed if choice.trained else 0
        about = {
            "choice": asdict(choice), "tuned": asdict(self.tuned), "updates": self.updates, "seed": seed,
            "crop": self.crop, "weights": benchmark.digest, "quick": benchmark.quick,
            "images": {split: benchmark.splits[split].names for split in (TRAIN, self.split)},
        }  # fmt: skip
        name = "".join(c if c.isalnum() else "-" for c in choice.label)
        if self.split != VAL:
            name += f"-{self.split}"
        if seed:
            name += f"-{seed}"
        return Kept(
            self.runs.setup.output / "kept" / f"choices-{benchmark.title.lower()}" / f"{name}.json", about
        )

    @property
    def _size(self) -> int:
        return len(self.runs.benchmark.splits[TRAIN])

    @property
    def _classes(self) -> Sequence[int]:
        return self.runs.benchmark.counted


def tuned_potts(runs: Runs) -> Weights:
    """The best Potts CRF on the images for choices, after the published network."""
    task = Task("tuned")
    runs.complete([task])
    return runs.weights(task)


def _pays(gain: Interval) -> str:
    if gain.low > 0:
        return "yes"
    return "no: it costs" if gain.high < 0 else "cannot tell"


def _silent(*_: Any, **__: Any) -> None:
    """Progress of worker processes, which have no terminal."""

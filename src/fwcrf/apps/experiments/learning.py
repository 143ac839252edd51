"""Joint training of network and CRF on the first half of the images, evaluated on the second."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwcrf.apps.data import Splits
from fwcrf.apps.evaluation import Confusion, predict
from fwcrf.apps.experiments.halves import REPORT, TRAIN, write_halves
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.remembering import Features, network
from fwcrf.apps.experiments.runs import matrix_of, nonzero_counts
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.files import FileError
from fwcrf.apps.models import CNNCRF
from fwcrf.apps.training import Config, build, train
from fwcrf.torch_ops.printed import in_one_line

# Parameters that every training of a CRF learns, as keys of ``Result.moved``.
PARAMETERS = ("network", "weights", "compatibility")
# Settings of the CRF that a variant does not name: the 3 L^2 parameters of the paper.
_PAPER = {"learnable": ["weights", "compatibility"], "weights": "full"}


@dataclass(frozen=True)
class Variant:
    """A model to train: the network with a CRF of these settings, or, for ``crf=None``, the network alone."""

    label: str
    crf: dict[str, Any] | None
    optimizer: dict[str, Any] = field(default_factory=dict)
    epochs: int = 4
    validate_every: int | None = None  # epochs; None: after the last epoch only


@dataclass(frozen=True)
class Result:
    """A finished training run."""

    folder: Path
    model: CNNCRF
    counts: Tensor  # confusion matrices (images, L, L) after the last epoch
    curve: list[float]  # mean IoU in percent, per validation
    moved: dict[str, float]  # by how much training changed each parameter: the largest absolute change

    __repr__ = in_one_line


class Learning:
    """Training runs of one experiment, with common images and a common cache of the frozen backbone."""

    def __init__(self, setup: Setup) -> None:
        if not setup.weights.is_file():
            raise FileError(f"{setup.weights} does not exist; expected the network's initial weights.")
        self.setup = setup
        self.root: Path = write_halves(setup)
        self.num_images: int = len(Splits(self.root, TRAIN))
        self.network: build.Network = network(_features(setup))

    def config(self, variant: Variant, seed: int) -> Config:
        """The training config. The network's learning rate is ten times that of joint-voc: steps are few."""
        epochs = 1 if self.setup.quick else variant.epochs
        side = self.setup.side
        values: dict[str, Any] = {
            "data": {
                "name": "splits", "root": str(self.root), "train": TRAIN, "val": REPORT, "crop": [side, side],
                "scale": [1.0, 1.0],
            },
            "model": {
                "name": "own", "batch_norm": "frozen",
                "settings": {"weights": str(self.setup.weights), "canvas": None if self.setup.quick else 513},
            },
            "crf": None if variant.crf is None else {**_PAPER, **variant.crf},
            "optimizer": {
                "name": "sgd", "cnn_lr": 0.001, "crf_lr": 0.01, "weight_decay": 0.0, **variant.optimizer
            },
            "epochs": epochs,
            "batch_size": min(4, self.num_images),
            "micro_batch": 1,
            "seed": seed,
            "run": {"workers": 0, "validate_every": variant.validate_every or epochs, "checkpoint_every": 10},
        }  # fmt: skip
        return Config.of(values)

    def train(self, variant: Variant, seed: int) -> Result:
        """The result of a training run: stored, resumed or trained now."""
        config = self.config(variant, seed)
        folder = self.folder(config)
        self.setup.progress(f"{variant.label}, seed {seed}: {folder.name}", 0)
        with warnings.catch_warnings():
            # fw-fails trains with vanilla Frank-Wolfe on purpose.
            warnings.filterwarnings("ignore", "learnable=.* with vanilla Frank-Wolfe")
            # Reports say how far training moved the parameters.
            warnings.filterwarnings("ignore", "training left the CRF at its start")
            done = train(config, folder, self._tell, network=self.network)
        with (folder / "validation.csv").open(encoding="utf-8") as file:
            head, *lines = (line.strip().split(",") for line in file)
        curve = [100 * float(line[head.index("mean_iou")]) for line in lines]
        model = done.model.eval()
        moved = changes(self.start(variant, seed), model)
        return Result(folder, model, self.counts(model, folder), curve, moved)

    def start(self, variant: Variant, seed: int = 0) -> CNNCRF:
        """The model before its first training step."""
        config = self.config(variant, seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "learnable=.* with vanilla Frank-Wolfe")
            torch.manual_seed(seed)
            return build.model(config, Splits(self.root, REPORT).classes, self.network).eval()

    def untrained(
        self, variant: Variant, seed: int = 0, num_steps: int | None = None, half: str = REPORT
    ) -> Tensor:
        """Confusion matrices ``(images, L, L)`` before the first training step."""
        folder = self.folder(self.config(variant, seed))
        return self.counts(self.start(variant, seed), folder, num_steps, half, "start")

    def counts(
        self,
        model: CNNCRF,
        folder: Path,
        num_steps: int | None = None,
        half: str = REPORT,
        state: str = "trained",
    ) -> Tensor:
        """Confusion matrices ``(images, L, L)`` on a half, stored in the folder by ``state`` of the model.

        ``num_steps`` of the CRF are as in training unless given.
        """
        crf: Any = model.crf
        own = None if crf is None else crf.num_steps
        steps = own if num_steps is None or crf is None else num_steps
        kept = Kept(folder / "counts.json", {"root": self.root.name})
        key = f"{state}, {half}, {steps} steps"
        dataset = Splits(self.root, half)
        size = len(dataset.classes)
        if key not in kept:
            if crf is not None:
                crf.num_steps = steps
            found = []
            for _, labels, truth in predict(model, dataset):
                one = Confusion(size, dataset.classes.ignore_index)
                one.update(labels, truth)
                found.append(nonzero_counts(one.matrix))
            if crf is not None:
                crf.num_steps = own
            kept[key] = found
        return torch.stack([matrix_of(each, size) for each in kept[key]])

    def folder(self, config: Config) -> Path:
        """The folder of a config, common to all experiments."""
        mapping = {name: value for name, value in config.mapping().items() if name != "run"}
        mapping["data"] = {**mapping["data"], "root": self.root.name}
        text = json.dumps([mapping, config.run.validate_every], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        return self.setup.output / "kept" / "trained" / digest

    def _tell(self, line: str | None = None, count: int = 1) -> None:
        if line:
            self.setup.progress(line, 0)


def changes(before: CNNCRF, after: CNNCRF) -> dict[str, float]:
    """The largest absolute change of the network's parameters together, and of each parameter of the CRF."""
    found = {"network": 0.0}
    old = dict(before.named_parameters())
    for name, value in after.named_parameters():
        part, _, rest = name.partition(".")
        key = rest if part == "crf" else "network"
        apart = float((value.detach() - old[name].detach()).abs().max())
        found[key] = max(found.get(key, 0.0), apart)
    return found


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; None instead of the deviation of a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    found = torch.tensor(values, dtype=torch.float64)
    return found.mean().item(), found.std().item() if len(values) > 1 else None


# Caches of backbone features by (weights, quick), for all experiments of this process.
_FEATURES: dict[tuple[str, bool], Features] = {}


def _features(setup: Setup) -> Features:
    return _FEATURES.setdefault((str(setup.weights.resolve()), setup.quick), {})

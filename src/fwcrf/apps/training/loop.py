"""Training, step by step.

The loss is the mean of -log p(label) over all valid pixels of a step, plus the weighted penalty of the CRF.
Processes and micro-batches add up to this mean, so their number does not change the weight of a pixel.
Lovasz-softmax, if there is any, is of a micro-batch, and averaged with the weights of its pixels. The random
numbers of a step are drawn from (seed, step, micro-batch).
"""

from __future__ import annotations

import math
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fwcrf.apps.batch.lock import exclusive
from fwcrf.apps.data import Augmentation, Augmented, Classes, Segmentation
from fwcrf.apps.evaluation import Scores, predict
from fwcrf.apps.evaluation.evaluate import MEAN_IOU, ONCE
from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import remove_leftovers, writing
from fwcrf.apps.models import CNNCRF
from fwcrf.apps.training import build, checkpoint
from fwcrf.apps.training.batch_norm import share_batch_norm, training_mode
from fwcrf.apps.training.checkpoint import Checkpoint
from fwcrf.apps.training.config import Config, differences, write_config
from fwcrf.apps.training.distributed import Group
from fwcrf.apps.training.log import Log
from fwcrf.apps.training.loss import cross_entropy, label_loss, pixel_weights
from fwcrf.apps.training.optimizers import optimizer, set_learning_rates
from fwcrf.apps.training.order import Order, Share
from fwcrf.apps.training.schedule import poly
from fwcrf.layer import DenseCRF
from fwcrf.torch_ops.precision import widest

ALONE = Group()
# A CRF of which no parameter changed by this much, relative to its start, counts as not trained.
STILL = 0.02
Progress = Callable[..., None]


class Diverged(ValueError):
    """The loss is NaN or infinite."""


class Stopped(ValueError):
    """The run received SIGINT or SIGTERM and stopped after a checkpoint."""


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    model: CNNCRF
    classes: Classes
    step: int
    report: Mapping[str, Any] | None  # last validation


def train(
    config: Config,
    output: Path | str,
    progress: Progress = lambda *_, **__: None,
    group: Group = ALONE,
    network: build.Network | None = None,
) -> Trained:
    """Train, or resume the run in the folder ``output``. Every process of ``group`` calls it.

    The folder gets ``config.yaml``, ``train.csv``, ``validation.csv``, ``checkpoint.pt`` (to resume),
    ``best.pt`` (the weights with the best mean IoU) and, at the end, ``model.pt`` (the last weights).
    ``progress(line, count)`` is called with a line to show, or None, and the number of further steps done.
    ``network(num_classes, **settings)`` makes the network if ``config.model.name`` is "own".
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    with exclusive(output) if group.rank == 0 else nullcontext():
        if group.rank == 0:
            remove_leftovers(output)
        return _Run(config, output, progress, group, network).finish()


def length(config: Config) -> int:
    """The number of training steps of a config."""
    images = build.dataset(config.data, config.data.train)
    return config.epochs * Order(len(images), config.batch_size, config.seed).steps_per_epoch


class _Run:
    def __init__(
        self, config: Config, output: Path, progress: Progress, group: Group, network: build.Network | None
    ) -> None:
        self.config, self.output, self.progress, self.group = config, output, progress, group
        torch.manual_seed(config.seed)
        self.images = build.dataset(config.data, config.data.train)
        self.val = build.dataset(config.data, config.data.val) if config.data.val is not None else None
        self.classes = self.images.classes
        self.model = build.model(config, self.classes, network).to(config.run.device)
        if group.size > 1 and config.model.batch_norm == "trained":
            share_batch_norm(self.model)
        self.optimizer = optimizer(self.model, config.optimizer)
        self.order = Order(len(self.images), config.batch_size, config.seed)
        self.num_steps = config.epochs * self.order.steps_per_epoch
        self.step = 0
        self.best: float | None = None
        self.report: Mapping[str, Any] | None = None
        self._go_on()

    def finish(self) -> Trained:
        """Run the remaining steps and return the trained model."""
        group, run = self.group, self.config.run
        log = Log(self.output, self.step, self.classes.names, run.tensorboard) if group.rank == 0 else None
        try:
            with _asked_to_stop() as asked:
                for images, labels in self._batches():
                    training_mode(self.model, self.config.model.batch_norm == "frozen")
                    loss, stop = self._take_step(images, labels, asked())
                    self.step += 1
                    self._note(log, loss)
                    epoch, place = divmod(self.step, self.order.steps_per_epoch)
                    last = self.step == self.num_steps
                    if place == 0 and (epoch % run.validate_every == 0 or last):
                        self._validate(log, epoch)
                    if self.step % run.checkpoint_every == 0 or place == 0 or stop:
                        self._save()
                    if stop and not last:
                        raise Stopped(
                            f"stopped after step {self.step} of {self.num_steps}; run again to resume."
                        )
        finally:
            if log is not None:
                log.close()
        if group.rank == 0:
            self._write_weights("model.pt")
            self._warn_if_nothing_moved()
        group.wait()
        return Trained(self.model, self.classes, self.step, self.report)

    # --- one step -----------------------------------------------------------------------------------

    def _take_step(self, images: Tensor, labels: Tensor, stop: bool) -> tuple[float, bool]:
        config, device = self.config, self.config.run.device
        images, labels = images.to(device), labels.to(device)
        weights = pixel_weights(labels, config.loss, self.classes.ignore_index)
        total = weights.sum(dtype=widest(weights.device))
        total, stops = self.group.sum(torch.stack([total, torch.full_like(total, stop)]))
        size = config.micro_batch or len(labels)
        parts = math.ceil(len(labels) / size)
        self.optimizer.zero_grad()
        loss = torch.zeros((), device=device)
        pieces = zip(*(each.split(size) for each in (images, labels, weights)), strict=True)
        for number, piece in enumerate(pieces):
            _seed(config.seed, self.step, self.group.rank * parts + number)
            part = self._loss(*piece) / total.clamp(min=1)
            if part.requires_grad:  # not for logits of a frozen network that are NaN
                part.backward()
            loss += part.detach()
        if config.crf is not None and config.crf.penalty and self.group.rank == 0:  # once for all processes
            penalty = config.crf.penalty * self.model.crf.penalty()  # type: ignore[union-attr,operator]
            penalty.backward()
            loss += penalty.detach()
        self.group.sum(loss)
        if not loss.isfinite():
            raise Diverged(
                f"the loss is {loss.item()} in step {self.step}, with learning rates {self._rates()}; start "
                "again in another folder with lower ones."
            )
        self.group.sum_gradients(p for group in self.optimizer.param_groups for p in group["params"])
        set_learning_rates(self.optimizer, poly(self.step, self.num_steps, config.optimizer.power))
        self.optimizer.step()
        return loss.item(), bool(stops)

    def _loss(self, image: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """The loss of labels times the sum of the pixels' weights, plus that of the auxiliary classifier."""
        ignore = self.classes.ignore_index
        given = self.model.logits(image)
        out = given.pop("out")
        if not out.detach().sum().isfinite():
            return out.sum() * math.nan  # NaN reaches all processes by the sum; a CRF would raise in this one
        log_p = self.model.refine(image, out)
        loss = label_loss(log_p, labels, weights, self.config.loss, ignore)
        for other in given.values():
            loss = loss + self.config.auxiliary * cross_entropy(other.log_softmax(1), labels, weights, ignore)
        return loss

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        data = self.config.data
        augmentation = Augmentation(data.crop, data.scale, data.flip, self.classes.ignore_index)
        share = Share(self.order, self.step, self.num_steps, self.group.rank, self.group.size)
        return iter(
            DataLoader(
                Augmented(self.images, augmentation, self.config.seed),
                batch_sampler=share,  # type: ignore[arg-type]
                num_workers=self.config.run.workers,
            )
        )

    # --- validation and files -----------------------------------------------------------------------

    def _validate(self, log: Log | None, epoch: int) -> None:
        if self.val is None:
            return
        self.model.eval()
        scores = Scores(self.classes, MEAN_IOU)
        part = _Part(self.val, self.group)
        for _, predicted, truth in predict(self.model, part, ONCE, self.config.run.device):
            scores.update(predicted, truth)
        self.group.sum(scores.confusion.matrix)
        scores.images = len(self.val)
        self.report = scores.report()
        mean_iou = self.report["mean_iou"]
        better = self.best is None or mean_iou > self.best
        self.best = mean_iou if better else self.best
        if log is not None:
            values = {"mean_iou": mean_iou, "accuracy": self.report["accuracy"], **self.report["iou"]}
            log.validation(self.step, epoch=epoch, **values)
            self.progress(f"epoch {epoch}: mean IoU {100 * mean_iou:.2f} %", 0)
            if better:
                self._write_weights("best.pt")

    def _note(self, log: Log | None, loss: float) -> None:
        if log is not None:
            rates = self._rates()
            epoch = (self.step - 1) // self.order.steps_per_epoch
            cnn = rates.get("cnn", rates.get("cnn-vectors"))
            log.step(self.step, epoch=epoch, loss=loss, cnn_lr=cnn, crf_lr=rates.get("crf"))
            self.progress()

    def _rates(self) -> dict[str, float]:
        return {group["name"]: group["lr"] for group in self.optimizer.param_groups}

    def _first_rates(self) -> dict[str, float]:
        return {group["name"]: group["initial_lr"] for group in self.optimizer.param_groups}

    def _go_on(self) -> None:
        path = self.output / "checkpoint.pt"
        if not path.exists():
            if self.group.rank == 0:
                write_config(self.output / "config.yaml", self.config)
            return
        found = checkpoint.read(path)
        # Settings that the version which wrote the checkpoint did not have are at their defaults.
        before = Config.of(found.config, str(path)).mapping()
        changed = [n for n in differences(before, self.config.mapping()) if not n.startswith("run.")]
        if changed:
            raise FileError(
                f"{path} belongs to a run with other settings ({', '.join(changed)}); choose another folder, "
                "or remove this one to start afresh."
            )
        self.model.load_state_dict(found.model)
        self.optimizer.load_state_dict(found.optimizer)  # type: ignore[arg-type]
        self.step, self.best, self.report = found.step, found.best, found.report
        self.progress(f"going on after step {self.step} of {self.num_steps}", self.step)

    def _warn_if_nothing_moved(self) -> None:
        crf = self.model.crf
        moved = crf.movement() if isinstance(crf, DenseCRF) else {}
        if moved and max(moved.values()) < STILL:
            far = ", ".join(f"{name} {100 * value:.2g} %" for name, value in moved.items())
            rates = {name: rate for name, rate in self._first_rates().items() if name.startswith("crf")}
            warnings.warn(
                f"training left the CRF at its start ({far}; a change counts from {100 * STILL:g} %), with "
                f"rates {rates} over {self.num_steps} steps: the result is the result of the initial values. "
                "Raise optimizer.crf_lr, lower crf.penalty, or take more epochs; optimizer.name=adam moves "
                "each parameter by up to its rate in every step. With solver 'fw' nothing moves at any rate.",
                stacklevel=4,
            )

    def _save(self) -> None:
        if self.group.rank == 0:
            state = Checkpoint(
                self.step,
                self.config.mapping(),
                self.model.state_dict(),
                self.optimizer.state_dict(),
                self.best,
                self.report,
            )
            checkpoint.save(self.output / "checkpoint.pt", state)

    def _write_weights(self, name: str) -> None:
        with writing(self.output / name) as file:
            torch.save(self.model.state_dict(), file)


class _Part:
    """The images that one process validates: every ``group.size``-th image, starting at its rank."""

    def __init__(self, dataset: Segmentation, group: Group) -> None:
        self.dataset = dataset
        self.indices = range(group.rank, len(dataset), group.size)
        self.classes = dataset.classes

    @property
    def names(self) -> list[str]:
        return [self.dataset.names[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.dataset[self.indices[index]]


def _seed(*key: int) -> None:
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) >> 1)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after SIGINT (Ctrl-C) or SIGTERM.

    A second signal raises KeyboardInterrupt at once.
    """
    asked = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, note)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

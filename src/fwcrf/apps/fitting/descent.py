"""One fit: Adam on the logarithms of parameters, through ``fwcrf.DenseCRF``, on crops of labelled images.

A temperature of the scores is no parameter of its own, as in ``fwcrf.apps.tuning.parameters``: to divide the
scores by T is to multiply all kernel weights and lambda by T. Lambda is fitted in its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.batch.job import Reading, read_files, recorded_warnings
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.parameters import named_kernels, parameters, per_label, with_parameters
from fwcrf.apps.tuning.table import read_truth
from fwcrf.compatibility import compatibility
from fwcrf.layer import DenseCRF
from fwcrf.losses import lovasz_softmax
from fwcrf.torch_ops.printed import in_one_line

GROUPS = ("lambda", "weights", "bandwidths", "label-weights", "compatibility")
# Logarithms of parameters stay this close to their start, a factor of 50.
_FARTHEST = math.log(50.0)
_VOID = -100


@dataclass(frozen=True)
class Options:
    """Options of a fit. The defaults of ``learn``, ``loss`` and ``rate`` were chosen by cross-validation."""

    learn: tuple[str, ...] = ("lambda", "weights", "compatibility")  # of GROUPS
    loss: Literal["lovasz", "cross-entropy"] = "lovasz"
    num_steps: int = 60  # of Adam
    batch: int = 2  # crops per step
    crop: int = 160  # the side of a crop, in pixels
    rate: float = 0.05  # at the first step, in logarithms of parameters; it falls to 0 as a cosine
    penalty: float = 0.01  # on half the squared logarithms of factors from the start
    seed: int = 0


@dataclass(frozen=True)
class Example:
    """An image ``(channels, *grid)`` for the layer, logits ``(L, *grid)``, truth, and the size of a pixel."""

    image: Tensor
    logits: Tensor
    truth: Tensor
    spacing: tuple[float, ...]

    __repr__ = in_one_line


def read_example(item: Item, reading: Reading) -> Example:
    """An item as tensors; its logits are the logarithms of the probabilities that ``fwcrf.refine`` reads."""
    inputs, truth = read_files(item.image, item.scores, reading), read_truth(item, reading)
    found = inputs.refine({"num_steps": 0, "balance": 0.0}, return_probabilities=True)
    if found.probabilities is None or found.labels.shape != truth.shape:
        raise FileError(
            f"{item.truth} has shape {truth.shape}, and the labels {found.labels.shape}; expected the same."
        )
    p = torch.from_numpy(np.moveaxis(np.asarray(found.probabilities, np.float32), -1, 0))
    values = np.asarray(found.picture.values)
    colours = values[None] if values.ndim == truth.ndim else np.moveaxis(values, -1, 0)
    spacing = found.picture.spacing or (1.0,) * truth.ndim
    return Example(
        torch.from_numpy(np.ascontiguousarray(colours, np.float32)),
        p.clamp(min=torch.finfo(torch.float32).tiny).log(),
        torch.from_numpy(np.where(truth == reading.void, _VOID, truth)),
        tuple(float(s) for s in (spacing if isinstance(spacing, Sequence) else (spacing,) * truth.ndim)),
    )


class Model:
    """Settings as a layer whose parameters are the start times exp(theta)."""

    def __init__(self, settings: Settings, example: Example, options: Options) -> None:
        """The model at the start, for images with the labels, axes and units of ``example``."""
        num_labels = len(example.logits)
        spaced = any(size != 1 for size in example.spacing)
        if "label-weights" in options.learn:
            settings = per_label(settings, num_labels)
        learned = {
            name: value for name, value in parameters(settings).items() if _group(name) in options.learn
        }
        self.settings = settings
        self.start: dict[str, float] = learned
        matrix = compatibility(settings.compatibility, num_labels).matrix(num_labels).float()
        self.matrix: Tensor = matrix
        self.pairs: Tensor = torch.triu_indices(num_labels, num_labels)
        # An entry of 0 stays: it has no logarithm.
        self.pairs = self.pairs[:, matrix[tuple(self.pairs)] != 0]
        learns = "compatibility" in options.learn
        entries = self.pairs.shape[1] if learns else 0
        if not learned and not entries:
            raise ValueError(
                f"nothing to fit: learn={options.learn} names no parameter of these settings; expected any "
                f"of {', '.join(GROUPS)}."
            )
        self.theta: Tensor = torch.zeros(len(learned) + entries, requires_grad=True)
        given = settings.arguments()
        names = ["weights", *(["compatibility"] if learns else [])]
        names += ["lambda"] if "lambda" in learned else []
        # With a size of pixels other than 1, the layer's bandwidths, in pixels, depend on the image.
        names += ["bandwidths"] if spaced or any(_group(n) == "bandwidths" for n in learned) else []
        several = any(isinstance(kernel.get("weight"), list) for kernel in settings.kernels)
        self.crf: DenseCRF = DenseCRF(
            num_labels, given["kernels"], given["compatibility"], given["solver"], settings.num_steps, names,
            weights="label" if several else "scalar", balance=settings.balance,
            self_edges=settings.self_edges, spatial_dims=example.truth.dim(), epsilon=1e-3,
        )  # fmt: skip

    def __call__(self, example: Example) -> Tensor:
        """Log-probabilities of the layer at theta."""
        factors = self.theta.clamp(-_FARTHEST, _FARTHEST).exp()
        values = {n: v * f for (n, v), f in zip(self.start.items(), factors, strict=False)}
        given: dict[str, Tensor] = {}
        weights = self.crf.weights.detach().clone()
        for i, (prefix, kernel) in enumerate(named_kernels(self.settings.kernels).items()):
            for name, value in values.items():
                if name.startswith(f"{prefix}.weight"):
                    label = name.removeprefix(f"{prefix}.weight").lstrip(".")
                    weights[(i, int(label)) if label else i] = value
            for field in kernel.keys() & {"xy", "color"} if "bandwidths" in self.crf.learnable else ():
                name = f"log_bandwidths.{i}_{field}"
                value = self.crf.get_parameter(name).detach().exp()
                if f"{prefix}.{field}" in values:
                    value = values[f"{prefix}.{field}"].expand_as(value)
                if field == "xy":
                    value = value / torch.tensor(example.spacing)
                given[name] = value.log()
        given["weights"] = weights
        if "lambda" in values:
            given["log_lambda"] = values["lambda"].log()
        if "compatibility" in self.crf.learnable:
            entries = self.matrix[tuple(self.pairs)] * factors[len(self.start) :]
            M = self.matrix.clone().index_put(tuple(self.pairs), entries)
            given["compatibility"] = M.index_put(tuple(self.pairs.flip(0)), entries)
        return torch.func.functional_call(self.crf, given, (example.image, example.logits))

    def found(self) -> tuple[dict[str, float], list[list[float]] | None]:
        """Parameters by name, and the matrix if it was fitted, with four digits."""
        with torch.no_grad():
            factors = self.theta.clamp(-_FARTHEST, _FARTHEST).exp().tolist()
        point = {n: float(f"{v * f:.4g}") for (n, v), f in zip(self.start.items(), factors, strict=False)}
        if "compatibility" not in self.crf.learnable:
            return point, None
        M = self.matrix.clone()
        for s, t, f in zip(*self.pairs.tolist(), factors[len(self.start) :], strict=True):
            M[s, t] = M[t, s] = float(self.matrix[s, t]) * f
        return point, [[float(f"{v:.4g}") for v in row] for row in M.tolist()]


@dataclass(frozen=True)
class FitJob:
    """Function from items to the settings that are fitted to them."""

    settings: Settings
    reading: Reading
    options: Options

    def __call__(self, items: Sequence[Item]) -> dict[str, Any]:
        torch.set_num_threads(1)
        with recorded_warnings():  # of files, which the measurement of the start has reported
            examples = [read_example(item, self.reading) for item in items]
            model, losses = descend(examples, self.settings, self.options)
        point, matrix = model.found()
        labels = len(model.matrix) if "label-weights" in self.options.learn else None
        return {
            "point": point, "matrix": matrix, "start": model.start, "num_labels": labels, "losses": losses
        }  # fmt: skip


def descend(examples: Sequence[Example], settings: Settings, options: Options) -> tuple[Model, list[float]]:
    """The fitted model, and the loss of each step."""
    model = Model(settings, examples[0], options)
    optimizer = torch.optim.Adam([model.theta], lr=options.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, options.num_steps))
    rng, losses, order = np.random.default_rng(options.seed), [], []
    for _ in range(options.num_steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(options.batch):
            # Every image once before any image again.
            order = order or rng.permutation(len(examples)).tolist()
            part = cropped(examples[order.pop()], options.crop, rng)
            if (part.truth == _VOID).all():
                continue
            loss = _loss(model(part), part.truth, options.loss) / options.batch
            loss.backward()
            total += float(loss.detach())
        (0.5 * options.penalty * model.theta.square().sum()).backward()
        optimizer.step()
        schedule.step()
        losses.append(total)
    return model, losses


def _loss(log_p: Tensor, truth: Tensor, name: str) -> Tensor:
    if name == "lovasz":
        return lovasz_softmax(log_p.exp(), truth, ignore_index=_VOID, spatial_dims=truth.dim())
    return torch.nn.functional.nll_loss(log_p[None], truth[None], ignore_index=_VOID)


def cropped(example: Example, size: int, rng: np.random.Generator) -> Example:
    """A random window of at most ``size`` pixels along each axis."""
    grid = example.truth.shape
    first = [int(rng.integers(max(1, n - size + 1))) for n in grid]
    window = (..., *(slice(a, a + size) for a in first))
    return replace(
        example, image=example.image[window].contiguous(), logits=example.logits[window].contiguous(),
        truth=example.truth[window].contiguous(),
    )  # fmt: skip


def with_fitted(
    settings: Settings, point: Mapping[str, float], matrix: list[list[float]] | None, num_labels: int | None
) -> Settings:
    """Settings with fitted parameters; one weight per label if ``num_labels`` is given."""
    if num_labels is not None:
        settings = per_label(settings, num_labels)
    settings = with_parameters(settings, point)
    return settings if matrix is None else replace(settings, compatibility=matrix)


def _group(name: str) -> str:
    """The group of a parameter; "" if it has no gradient."""
    last = name.rpartition(".")[2]
    ends = {"xy": "bandwidths", "color": "bandwidths", "weight": "weights", "lambda": "lambda"}
    return "label-weights" if last.isdigit() else ends.get(last, "")

"""Evaluate a model on a data set: scores in a JSON file, labels in PNG files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.data.classes import Classes
from fwcrf.apps.evaluation.boundary import BoundaryF, trimap
from fwcrf.apps.evaluation.confusion import Confusion
from fwcrf.apps.evaluation.tta import Views, probabilities
from fwcrf.apps.files.atomic import writing
from fwcrf.optional import needed


class Labelled(Protocol):
    """Data set for evaluation. An item starts with an image ``(3, H, W)`` and its labels ``(H, W)``."""

    @property
    def names(self) -> list[str]: ...
    @property
    def classes(self) -> Classes: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True)
class Measures:
    """Measures besides the mean IoU. ``subsets`` are named lists of classes; radii are in pixels."""

    subsets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    trimaps: Sequence[float] = ()
    boundary: bool = False
    boundary_radius: float | None = None


# Frozen, so safe as defaults of arguments.
ONCE = Views()
MEAN_IOU = Measures()


class Scores:
    """Accumulator of all measures, updated image by image."""

    def __init__(self, classes: Classes, measures: Measures) -> None:
        L, ignore = len(classes), classes.ignore_index
        self.classes = classes
        self.measures = measures
        self.confusion: Confusion = Confusion(L, ignore)
        self.trimaps: dict[float, Confusion] = {radius: Confusion(L, ignore) for radius in measures.trimaps}
        self.boundary: BoundaryF | None = (
            BoundaryF(L, ignore, measures.boundary_radius) if measures.boundary else None
        )
        self.images: int = 0

    def update(self, predicted: Tensor, truth: Tensor) -> None:
        """Count one image, labels ``(H, W)``."""
        self.images += 1
        self.confusion.update(predicted, truth)
        for radius, confusion in self.trimaps.items():
            confusion.update(predicted, truth, trimap(truth, radius, self.classes.ignore_index))
        if self.boundary is not None:
            self.boundary.update(predicted, truth)

    def report(self) -> dict[str, Any]:
        """Content of the JSON file. The IoU of a class that does not occur is None."""
        names = self.classes.names
        found: dict[str, Any] = {
            "images": self.images,
            "mean_iou": self.confusion.mean_iou(),
            "accuracy": self.confusion.accuracy(),
            "mean_iou_of_present": self.confusion.mean_iou(self.confusion.present()),
            "iou": dict(zip(names, self.confusion.iou().tolist(), strict=True)),
        }
        for name, classes in self.measures.subsets.items():
            found[f"mean_iou_{name}"] = self.confusion.mean_iou(classes)
        if self.trimaps:
            found["trimap_mean_iou"] = {f"{r:g}": c.mean_iou() for r, c in self.trimaps.items()}
        if self.boundary is not None:
            found["boundary_f"] = self.boundary.mean()
            found["boundary_f_of"] = dict(zip(names, self.boundary.per_class().tolist(), strict=True))
        found["confusion"] = self.confusion.matrix.tolist()
        return _without_nan(found)


def predict(
    model: Callable[[Tensor], Tensor], dataset: Labelled, views: Views = ONCE, device: str = "cpu"
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield name, labels and true labels of each image. Labels maximize the mean probability over views."""
    for index, name in enumerate(dataset.names):
        image, truth = dataset[index][:2]
        with torch.no_grad():
            labels = probabilities(model, image[None].to(device), views)[0].argmax(0)
        yield name, labels.cpu(), truth


def evaluate(
    predictions: Iterator[tuple[str, Tensor, Tensor]] | Sequence[tuple[str, Tensor, Tensor]],
    classes: Classes,
    measures: Measures = MEAN_IOU,
    output: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Report on predictions. Each has a name, labels and true labels, ``(H, W)``.

    With a folder ``output``, also write the labels to ``labels/NAME.png`` in the classes' colours, and last
    the report, with ``settings``, to ``scores.json``. Each write is atomic.
    """
    scores = Scores(classes, measures)
    for name, predicted, truth in predictions:
        scores.update(predicted, truth)
        if output is not None:
            write_labels(Path(output) / "labels" / f"{name}.png", predicted.numpy(), classes.palette())
    report = scores.report()
    if output is not None:
        write_report(Path(output) / "scores.json", {**report, **({"settings": settings} if settings else {})})
    return report


def write_labels(path: Path, labels: np.ndarray, palette: np.ndarray) -> None:
    """Write a PNG whose pixels are the labels, with the palette ``(256, 3)``."""
    Image = needed("PIL.Image", "images")
    picture = Image.frombytes("P", labels.shape[::-1], np.ascontiguousarray(labels, np.uint8).tobytes())
    picture.putpalette(palette.astype(np.uint8).tobytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        picture.save(file, "PNG")


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Write the report as JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        file.write((json.dumps(report, indent=2) + "\n").encode())


def _without_nan(value: Any) -> Any:
    """Value with nan replaced by None, because JSON has no nan."""
    if isinstance(value, Mapping):
        return {name: _without_nan(v) for name, v in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value

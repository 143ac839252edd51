"""Options of ``fwcrf fit``, compared by cross-validation and measured on images without part in the fit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.local import Pool
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.tables import Row
from fwcrf.apps.experiments.verdict import Interval, above
from fwcrf.apps.files import FileError
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.fitting import Options
from fwcrf.apps.fitting.descent import FitJob, with_fitted
from fwcrf.apps.tuning.choice import mean_iou
from fwcrf.apps.tuning.table import AreasJob, Table


@dataclass(frozen=True)
class Judge:
    """Fits from ``start``, kept in ``folder``. ``classes`` count in the mean IoU; None: all of the truth."""

    folder: Path
    start: Settings = Settings()  # noqa: RUF009 - frozen
    reading: Reading = Reading()  # noqa: RUF009
    num_folds: int = 3
    classes: tuple[int, ...] | None = None

    def cross_validated(self, items: Sequence[Item], options: Options) -> Interval:
        """The gain in mean IoU, in percent, on images that had no part in the fit that labels them."""
        folds = np.array_split(np.random.default_rng(0).permutation(len(items)), self.num_folds)
        after: dict[int, np.ndarray] = {}
        for fold in folds:
            others = [items[k] for k in sorted(set(range(len(items))) - set(fold.tolist()))]
            settings = self.fitted(others, options)
            for k in fold.tolist():
                after[k] = self._areas(settings, [items[k]])[0]
        size = max(each.shape[-1] for each in after.values())
        return self._gain(items, np.stack([_wide(after[k], size) for k in range(len(items))]))

    def held_out(self, items: Sequence[Item], judged: Sequence[Item], options: Options) -> Interval:
        """The gain on the images ``judged`` of a fit to ``items``."""
        return self._gain(judged, self._areas(self.fitted(items, options), judged))

    def score(self, items: Sequence[Item], settings: Settings | None = None) -> float:
        """Mean IoU in percent, by default of the start."""
        areas = self._areas(settings or self.start, items)
        return float(100 * mean_iou(_of(areas.sum(0), self.classes)))

    def fitted(self, items: Sequence[Item], options: Options) -> Settings:
        """Settings of a fit, which is kept."""
        about = {
            "start": self.start.fingerprint(),
            "reading": asdict(self.reading),
            "options": asdict(options),
        }
        kept = Kept(self.folder / "fits.json", "fits")
        key = json.dumps([about, [item.image for item in items]], sort_keys=True)
        if key not in kept:
            kept[key] = FitJob(self.start, self.reading, options)(items)
        found = kept[key]
        return with_fitted(self.start, found["point"], found["matrix"], found["num_labels"])

    def _gain(self, items: Sequence[Item], after: np.ndarray) -> Interval:
        before = self._areas(self.start, items)
        size = max(before.shape[-1], after.shape[-1])
        one, two = (_of(_wide(each, size), self.classes) for each in (after, before))

        def ahead(shares: Tensor) -> Tensor:
            scores = [mean_iou(np.tensordot(shares.numpy(), each, 1)) for each in (one, two)]
            return torch.from_numpy(100 * (scores[0] - scores[1]))

        return above(ahead, len(items))

    def _areas(self, settings: Settings, items: Sequence[Item]) -> np.ndarray:
        failed = self._table.measure(items, [[settings]])
        for item, message in failed.items():
            raise FileError(f"{item.image}: {message}")
        return self._table.areas([settings], items)[0]

    @cached_property
    def _table(self) -> Table:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Table(self.reading, _Here(AreasJob(self.reading), 1), self.folder / "areas.jsonl")


def compared(judge: Judge, items: Sequence[Item], candidates: Mapping[str, Options]) -> list[Row]:
    """A row per candidate: the cross-validated gain over the start, with its interval."""
    found: list[Row] = []
    for label, options in candidates.items():
        gain = judge.cross_validated(items, options)
        found.append({"fit": label, "gain": gain.value, "low": gain.low, "high": gain.high})
    return found


class _Here(Pool):
    """A pool without processes: the images of one fit are few."""

    def run(self, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        yield from ((number, self.job(item)) for number, item in enumerate(items))


def _of(areas: np.ndarray, classes: Sequence[int] | None) -> np.ndarray:
    if classes is None:
        return areas
    return _wide(areas, max(classes) + 1)[..., list(classes)]


def _wide(areas: np.ndarray, size: int) -> np.ndarray:
    """Areas with zeros for labels that none of these images has."""
    more = max(0, size - areas.shape[-1])
    return np.pad(areas, [(0, 0)] * (areas.ndim - 1) + [(0, more)])

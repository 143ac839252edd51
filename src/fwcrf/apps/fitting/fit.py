"""Cross-validated fit: the start is kept unless the fit is better on images that had no part in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.local import Failure, Pool
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.digest import content_identity
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.safe_json import load_json
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.fitting.descent import GROUPS, FitJob, Options, with_fitted
from fwcrf.apps.tuning.choice import Choice, choose, mean_iou
from fwcrf.apps.tuning.table import AreasJob, Table


@dataclass(frozen=True)
class Fitted:
    """Result of ``fit``."""

    settings: Settings  # of the fit on all images, or the start
    choice: Choice  # between the start, 0, and the fit, 1
    start: dict[str, float]  # values of the parameters that were fitted
    folds: list[dict[str, float]]  # their values in each fold
    point: dict[str, float] | None  # their values in the fit on all images; None if the start is kept
    scores_alone: float  # the mean IoU without a CRF
    items: list[Item]  # that were used
    failures: list[tuple[Item, str]]  # images that were left out, and the reasons
    warnings: list[tuple[str, str]]  # files of scores, and warnings about them


def fit(
    items: Sequence[Item],
    settings: Settings = Settings(),  # noqa: B008 - frozen
    reading: Reading = Reading(),  # noqa: B008
    options: Options = Options(),  # noqa: B008
    *,
    num_folds: int = 5,
    num_workers: int | None = None,
    journal: Path | str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Fitted:
    """Settings fitted by gradients, if they are better than the start on images without part in the fit.

    The images are divided into ``num_folds``. A fit without the images of a fold labels these images. If
    ``fwcrf.apps.tuning.choice`` prefers these labels to the labels of the start, the result is a fit on all
    images. ``journal`` is a file for fits and measurements, with which the same call resumes; ``progress`` is
    called with a line after each fit.
    """
    for name in options.learn:
        if name not in GROUPS:
            raise ValueError(f"learn has {name!r}; expected any of {', '.join(GROUPS)}.")
    without = [item for item in items if item.truth is None]
    if without or not items:
        which = f"{without[0].image} has none" if without else "there are no images"
        raise ValueError(f"a fit needs images with true labels, and {which}.")
    if num_folds < 2:
        raise ValueError(f"num_folds={num_folds}; expected 2 or more: one of them judges.")
    alone = replace(settings, num_steps=0)
    with Pool(AreasJob(reading), num_workers) as pool:
        table = Table(reading, pool, journal)
        failures = table.measure(items, [[alone, settings]])
        used = [item for item in items if item not in failures]
        if len(used) < 2:
            message = next(iter(failures.values()), "a fold needs an image to fit to, and one to judge by.")
            raise FileError(f"{len(used)} of the {len(items)} images can be used; {message}")
        order = np.random.default_rng(options.seed).permutation(len(used))
        folds = np.array_split(order, min(num_folds, len(used)))
        seen = [[used[i] for i in sorted(set(range(len(used))) - set(fold.tolist()))] for fold in folds]
        found = _fits(seen, settings, reading, options, num_workers, journal, progress)
        after = np.empty(len(used), object)
        for fold, values in zip(folds, found, strict=True):
            judged = [used[i] for i in fold]
            for item, message in table.measure(judged, [[_settings(settings, values)]]).items():
                raise FileError(f"{item.image}: {message}")
            after[fold] = [_settings(settings, values)] * len(fold)
        rows = [table.areas([settings, one], [item])[:, 0] for one, item in zip(after, used, strict=True)]
        size = max(row.shape[-1] for row in rows)
        areas = np.stack([np.pad(r, ((0, 0), (0, 0), (0, size - r.shape[-1]))) for r in rows], 1)
        choice = choose(areas, np.array([0.0, 1.0]))
        last: dict[str, Any] | None = None
        if choice.index:
            (last,) = _fits([used], settings, reading, options, num_workers, journal, progress)
        return Fitted(
            settings if last is None else _settings(settings, last),
            choice,
            found[0]["start"],
            [one["point"] for one in found],
            None if last is None else last["point"],
            float(mean_iou(table.areas([alone], used)[0].sum(0))),
            used,
            list(failures.items()),
            table.warnings,
        )


def _settings(settings: Settings, values: dict[str, Any]) -> Settings:
    return with_fitted(settings, values["point"], values["matrix"], values["num_labels"])


def _fits(
    groups: Sequence[Sequence[Item]],
    settings: Settings,
    reading: Reading,
    options: Options,
    num_workers: int | None,
    journal: Path | str | None,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """The fit to each group of items, from the journal if it is there."""
    from fwcrf import __version__

    path = None if journal is None else Path(journal).with_name(f"{Path(journal).stem}-fits.jsonl")
    known = _known(path)
    contents: dict[Item, Any] = {}

    def key(group: Sequence[Item]) -> str:
        for item in group:
            if item not in contents:
                contents[item] = [content_identity(p) for p in (item.image, item.scores, item.truth) if p]
        files = [contents[item] for item in group]
        more = {"reading": asdict(reading), "options": asdict(options), "files": files}
        return settings.fingerprint(version=__version__, **more)

    keys = [key(group) for group in groups]
    missing = [i for i, one in enumerate(keys) if one not in known]
    with Pool(FitJob(settings, reading, options), num_workers) as pool:
        for number, answer in pool.run([groups[i] for i in missing]):
            if isinstance(answer, Failure):
                raise FileError(f"a fit failed: {answer.message}")
            known[keys[missing[number]]] = answer
            if path is not None:
                with open(path, "ab") as file:
                    file.write(json.dumps([keys[missing[number]], answer]).encode() + b"\n")
            progress(", ".join(f"{name} {value:g}" for name, value in answer["point"].items()))
    return [known[one] for one in keys]


def _known(path: Path | None) -> dict[str, dict[str, Any]]:
    """Fits of a journal by their key; damaged lines are skipped."""
    found = {}
    for line in path.read_bytes().splitlines() if path is not None and path.exists() else ():
        try:
            key, answer = load_json(line, "the journal")
            if isinstance(answer["point"], dict) and {"matrix", "start", "num_labels"} <= answer.keys():
                found[key] = answer
        except (ValueError, TypeError, LookupError, AttributeError):
            continue
    return found

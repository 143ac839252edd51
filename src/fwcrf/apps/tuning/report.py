"""Figures of a search, and a page with them."""

from __future__ import annotations

import base64
import html
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fwcrf.apps.batch.job import Reading, read_files
from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.palette import overlay
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.parameters import with_parameters
from fwcrf.apps.tuning.table import read_truth
from fwcrf.apps.tuning.trials import Tuned
from fwcrf.optional import needed

# The number of images shown before and after: the most changed images.
_SHOWN = 6
_GAIN = "gain per image"
_UNIT = (
    "A gain is the logarithm of an image's error with the start over its error with the settings tried: 0.1 "
    "is about ten percent less error, and -0.1 ten percent more. A point is the mean over the images; the "
    "grey line joins the means of fifths of the trials."
)
# The effect of each parameter, by the last word of its name.
_EFFECTS = {
    "lambda": "Strength of the solver's regularizer. Larger values keep probabilities soft for longer.",
    "temperature": "Divides the logits. Above 1 the network counts for less, against all kernels.",
    "steps": "Steps of the solver. More steps carry labels farther, and take longer.",
    "balance": "Favour for labels with a small share of the image. Larger values keep small and thin parts.",
    "weight": "Penalty for labels that differ between similar pixels. Larger values smooth more.",
    "xy": "Distance in pixels over which pixels influence each other.",
    "color": "Difference in colour over which pixels influence each other. Larger values see fewer edges.",
}
_STYLE = "body { font: 15px/1.45 sans-serif; max-width: 72em; margin: 2em auto } img { max-width: 100% } "
_STYLE += "td, th { text-align: left; padding: 2px 12px 2px 0 }"


def write_plot(path: Path | str, tuned: Tuned) -> None:
    """Plot the trials into a PNG, SVG or PDF file."""
    with writing(path) as file:
        plot_trials(tuned).savefig(file, format=Path(path).suffix[1:] or "png")


def write_report(path: Path | str, tuned: Tuned, settings: Settings, reading: Reading, summary: str) -> None:
    """Write a self-contained HTML page. ``settings`` are the start, ``summary`` is text for its head."""
    sections = [
        ("Trials", f"<p>{_UNIT}</p>\n{_embedded(plot_trials(tuned))}"),
        ("Parameters", _effects(tuned)),
        ("Images", _embedded(plot_images(tuned))),
        ("Most changed images", _embedded(plot_labels(tuned, settings, reading))),
    ]
    body = "".join(f"<h2>{title}</h2>\n{content}\n" for title, content in sections)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>fwcrf tune</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>fwcrf tune</h1>\n<pre>{html.escape(summary)}</pre>\n"
        f"{body}</body></html>\n"
    )
    with writing(path) as file:
        file.write(page.encode())


def _effects(tuned: Tuned) -> str:
    """HTML table: the effect of each parameter in words, and the gains of its low and high values."""
    gains = np.array([np.mean(trial.gains) for trial in tuned.trials])
    rows = ["<tr><th>parameter</th><th>effect</th><th>in these trials</th></tr>"]
    for name in tuned.trials[0].point:
        words = [word for word in name.split(".") if not word.isdigit()]
        values = np.array([trial.point[name] for trial in tuned.trials])
        cells = html.escape(name), _EFFECTS[words[-1]], _trend(values, gains)
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _trend(values: np.ndarray, gains: np.ndarray) -> str:
    """Mean gains of the lowest and the highest third of the values, and whether they differ.

    >>> _trend(np.arange(1, 10.0), np.arange(1, 10) / 10)
    'up to 3: gain +0.200; from 7 on: +0.800. Higher is better.'
    """
    order = np.argsort(values, kind="stable")
    third = len(order) // 3
    if third < 2 or values[order[third - 1]] >= values[order[-third]]:
        return "Too few different values to tell."
    low, high = gains[order[:third]], gains[order[-third:]]
    error = math.hypot(low.std(ddof=1), high.std(ddof=1)) / math.sqrt(third)
    difference = high.mean() - low.mean()
    verdict = "No clear difference."
    if abs(difference) > 2 * error:
        verdict = "Higher is better." if difference > 0 else "Lower is better."
    ends = f"up to {values[order[third - 1]]:g}: gain {low.mean():+.3f}; from {values[order[-third]]:g} on: "
    return f"{ends}{high.mean():+.3f}. {verdict}"


def plot_trials(tuned: Tuned) -> Any:
    """Figure of the mean gain over the start against each parameter, with means of five intervals."""
    needed("matplotlib", "plot")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    names = list(tuned.trials[0].point)
    columns = max(1, min(3, len(names)))
    rows = max(1, math.ceil(len(names) / columns))
    figure = Figure(figsize=(4 * columns, 3 * rows + 0.6), layout="constrained")
    gains = np.array([np.mean(trial.gains) for trial in tuned.trials])
    every = figure.subplots(rows, columns, squeeze=False).flat
    for axes, name in zip(every, names, strict=False):
        values = np.array([trial.point[name] for trial in tuned.trials])
        axes.scatter(values, gains, s=16, alpha=0.6)
        parts = np.array_split(np.argsort(values, kind="stable"), min(5, len(values)))
        axes.plot(
            [np.median(values[part]) for part in parts],
            [gains[part].mean() for part in parts],
            color="grey",
        )
        axes.plot(values[0], 0.0, "ks", label="start")
        axes.plot(tuned.best.point[name], np.mean(tuned.best.gains), "r*", markersize=12, label="chosen")
        axes.set(xscale="log", xlabel=name, ylabel=_GAIN)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    for axes in figure.axes[len(names) :]:
        axes.set_axis_off()
    figure.axes[0].legend(fontsize="small")
    figure.suptitle(f"{len(tuned.trials)} trials on {tuned.num_images} images")
    return figure


def plot_images(tuned: Tuned) -> Any:
    """Figure of the gain of each image, seen by the choice and in the cross-validation."""
    needed("matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots()
    order = np.argsort(tuned.choice.unseen)
    for gains, marker, label in (
        (tuned.best.gains, "r*", "chosen settings"),
        (tuned.choice.unseen, "ko", "cross-validated"),
    ):
        axes.plot(np.array(gains)[order], marker, label=label)
    axes.axhline(0.0, color="grey", linewidth=1)
    axes.set_xticks(
        range(len(order)), [Path(tuned.items[i].image).stem for i in order], rotation=90, fontsize=7
    )
    axes.set(ylabel=_GAIN)
    axes.legend(fontsize="small")
    return figure


def plot_labels(tuned: Tuned, settings: Settings, reading: Reading) -> Any:
    """Figure with a row per image, the most changed images: truth, and labels of scores, start and choice.

    If the start was kept, the candidate with the best score on these images is in the place of the choice.
    """
    needed("matplotlib", "plot")
    from matplotlib.figure import Figure

    kept = tuned.choice.index == 0
    trial = max(tuned.trials, key=lambda trial: np.mean(trial.gains)) if kept else tuned.best
    models = {
        "scores": replace(settings, num_steps=0),
        "start": settings,
        "best here, not chosen" if kept else "chosen": with_parameters(settings, trial.point),
    }
    shown = sorted(range(tuned.num_images), key=lambda i: -abs(trial.gains[i]))[:_SHOWN]
    figure = Figure(figsize=(12, 2.6 * len(shown)), layout="constrained")
    for row, index in zip(figure.subplots(len(shown), 4, squeeze=False), shown, strict=True):
        item = tuned.items[index]
        inputs, truth = read_files(item.image, item.scores, reading), read_truth(item, reading)
        maps = {f"{Path(item.image).stem}: truth": np.where(truth == reading.void, 0, truth)}
        maps |= {name: inputs.refine(model.arguments()).labels for name, model in models.items()}
        for axes, (name, labels) in zip(row, maps.items(), strict=True):
            # Of a volume, the middle slice.
            middle = tuple(size // 2 for size in labels.shape[:-2])
            axes.imshow(overlay(inputs.picture.values[middle], labels[middle]))
            axes.set_axis_off()
            axes.set_title(name, fontsize=9)
    return figure


def _embedded(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=80)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'

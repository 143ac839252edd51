"""Plot of the trials."""

from __future__ import annotations

import math
from pathlib import Path

from fwcrf.apps.files.atomic import writing
from fwcrf.apps.tuning.trials import Tuned
from fwcrf.optional import needed


def plot(path: Path | str, tuned: Tuned) -> None:
    """Plot the mean IoU against each parameter into a PNG, SVG or PDF file."""
    needed("matplotlib", "plot")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    names = list(tuned.trials[0].point)
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(4 * columns, 3 * rows + 0.6), layout="constrained")
    for axes, name in zip(figure.subplots(rows, columns, squeeze=False).flat, names, strict=False):
        axes.scatter(
            [t.point[name] for t in tuned.trials], [100 * t.score for t in tuned.trials], s=16, alpha=0.6
        )
        axes.axhline(100 * tuned.scores_alone, color="grey", linestyle=":", label="scores alone")
        axes.plot(tuned.trials[0].point[name], 100 * tuned.trials[0].score, "ks", label="start")
        axes.plot(tuned.best.point[name], 100 * tuned.best.score, "r*", markersize=12, label="best")
        axes.set(xscale="log", xlabel=name, ylabel="mean IoU, %")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    for axes in figure.axes[len(names) :]:
        axes.set_axis_off()
    figure.axes[0].legend(fontsize="small")
    figure.suptitle(f"{len(tuned.trials)} trials on {tuned.num_images} images")
    with writing(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:] or "png")

"""Figures of the results, if matplotlib is installed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any


def drawn(name: str, results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw a benchmark's figure as a PNG file. Returns its path, or [] if the benchmark has no figure."""
    draw = _FIGURES.get(name)
    if draw is None:
        return []
    try:
        import matplotlib
    except ModuleNotFoundError:
        print("no figure: matplotlib is not installed (pip install 'fwcrf[plot]')")
        return []
    matplotlib.use("Agg")
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.png"
    figure = draw(results)
    figure.savefig(path, dpi=120)
    return [path]


def _figure(columns: int) -> tuple[Any, Any]:
    # pyplot would keep the figure in its global state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * columns, 4.2), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def scaling(results: dict[str, Any]) -> Any:
    """The figure of time over pixels, channels and threads."""
    figure, (pixels, channels, threads) = _figure(3)
    sizes = results["per pixel"]
    counts = [int(w) * int(h) for w, h in (size.split(" x ") for size in sizes)]
    for measure in ("build, ns", "filter, ns", "5 steps of mf, ns"):
        values = [row[measure] * n / 1e6 for n, row in zip(counts, sizes.values(), strict=True)]
        pixels.loglog(counts, values, "o-", label=measure.removesuffix(", ns"))
    pixels.set(xlabel="pixels", ylabel="ms", title="Pixels (21 labels, 2 threads)")
    pixels.legend()
    _line(channels, results["milliseconds by channels"], "channels", "One filter, 500 x 375, 2 threads")
    _line(threads, results["milliseconds by threads"], "threads", "5 steps of mf, 500 x 375, 21 labels")
    return figure


def _line(axes: Any, values: dict[int, float], label: str, title: str) -> None:
    axes.plot([int(key) for key in values], list(values.values()), "o-")
    axes.set(xlabel=label, ylabel="ms", title=title)
    axes.set_ylim(bottom=0)


def energy(results: dict[str, Any]) -> Any:
    """The remaining energy gap over time, and time over the number of steps: medians over the images."""
    by_weights = results["curves"]
    figure, (*axes, steps) = _figure(len(by_weights) + 1)
    _times(steps, next(iter(by_weights.values())), results["unit"])
    for each, (weights, by_scene) in zip(axes, by_weights.items(), strict=True):
        ones = list(by_scene.values())
        for number, solver in enumerate(ones[0]["curves"]):
            points = zip(*(one["curves"][solver] for one in ones), strict=True)
            line = [_point(ones, point) for point in points]
            style = ("-", "--", ":")[number // 10 % 3]
            each.plot(*zip(*line, strict=True), style, marker=".", label=solver)
        each.axhline(results["close"], color="grey", linewidth=0.8)
        each.set(xscale="log", yscale="log", title=f"Weights {weights}")
        each.set(xlabel=f"time, in inferences of ten steps by {results['unit']}")
        each.set(ylabel="remaining fraction of the gap to the best known energy")
        each.set_ylim(1e-4, 1.5)
    axes[-1].legend(fontsize=6, ncols=2)
    return figure


def _times(axes: Any, by_scene: dict[str, dict[str, Any]], unit: str) -> None:
    """Time against the number of steps, set-up included."""
    ones = list(by_scene.values())
    for solver, taken in ones[0]["seconds"].items():
        each = {k: statistics.median(one["seconds"][solver][k] / one["unit"] for one in ones) for k in taken}
        axes.plot([*each], [*each.values()], "o-", label=solver)
    axes.set(xlabel="steps", ylabel=f"time, in inferences of ten steps by {unit}", title="Time against steps")
    axes.set_ylim(bottom=0)
    axes.legend()


def _point(ones: list[dict], point: tuple) -> tuple[float, float]:
    times = [seconds / one["unit"] for one, (_, seconds, _) in zip(ones, point, strict=True)]
    rest = [
        (energy - one["best"]) / max(one["start"] - one["best"], 1e-12)
        for one, (_, _, energy) in zip(ones, point, strict=True)
    ]
    return statistics.median(times), max(statistics.median(rest), 1e-4)


_FIGURES: dict[str, Callable[[dict[str, Any]], Any]] = {"scaling": scaling, "energy": energy}

"""SVG figures in the paper's style: a colour per solver, dashed lines for decreasing steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fwcrf.apps.experiments.curves import Curve
from fwcrf.optional import needed

COLORS = {
    "mf": "#1f77b4", "fw": "#8c564b", "efw": "#2ca02c", "l2fw": "#d62728", "pgd": "#ff7f0e",
    "fista": "#9467bd", "admm": "#17becf",
}  # fmt: skip
# Colours of solvers beyond the paper, in order of appearance, with thin lines.
_MORE = (
    "#393b79", "#637939", "#8c6d31", "#843c39", "#7b4173", "#6b6ecf", "#b5cf6b", "#e7ba52", "#d6616b",
    "#ce6dbd", "#9c9ede", "#7f7f7f", "#bd9e39",
)  # fmt: skip
# Line styles distinguish several curves of one solver.
_DASHES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 2, 1, 2)))


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    curves: Sequence[Curve]
    xlabel: str
    ylabel: str = "E_k - E_0"
    from_x: float | None = None  # left end of the x axis; points to the left do not affect the y axis
    own_scale: bool = False  # independent y axis; otherwise all panels share one scale


def lines(panels: Sequence[Panel]) -> bytes:
    """An SVG of panels side by side, with one y scale except for panels with ``own_scale``."""
    figure, axes = _axes(len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        drawn: dict[tuple[str, bool], int] = {}
        more = list(dict.fromkeys(c.solver for c in panel.curves if c.solver not in COLORS))
        colors = COLORS | {solver: _MORE[number % len(_MORE)] for number, solver in enumerate(more)}
        for curve in panel.curves:
            number = drawn.setdefault((curve.solver, curve.diminishing), 0)
            drawn[curve.solver, curve.diminishing] += 1
            axis.plot(
                curve.x,
                curve.y,
                color=colors[curve.solver],
                linestyle="--" if curve.diminishing else _DASHES[number % len(_DASHES)],
                linewidth=1.8 if curve.solver in COLORS else 1.0,
                label=curve.label,
                marker="o" if len(curve.x) == 1 else None,
            )
        axis.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
        axis.legend(fontsize=6.5, ncols=2)
        axis.grid(alpha=0.3)
    _same_scale(axes, panels)
    return _svg(figure)


def bars(
    title: str,
    values: Mapping[str, Mapping[str, float]],
    ylabel: str,
    errors: Mapping[str, float] | None = None,
) -> bytes:
    """An SVG of bars ``values[group][bar]``. Error bars ``errors[bar]`` are drawn if there is one group."""
    names = list(next(iter(values.values())))
    figure, (axis,) = _axes(1, width=max(6.0, 0.45 * len(names) * len(values)))
    width = 0.8 / len(values)
    for number, (group, heights) in enumerate(values.items()):
        places = [place + (number - (len(values) - 1) / 2) * width for place in range(len(names))]
        spread = [errors.get(name, 0.0) for name in names] if errors and len(values) == 1 else None
        axis.bar(places, [heights[name] for name in names], width, label=group, yerr=spread, capsize=3)
    finite = [h for heights in values.values() for h in heights.values() if h == h]
    low, high = min(finite), max(finite)
    # The axis does not start at 0, since the differences are about one percent.
    margin = max(0.15 * (high - low), 0.1)
    axis.set(title=title, ylabel=ylabel, ylim=(max(0.0, low - 2 * margin), high + margin))
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
    if len(values) > 1:
        axis.legend(fontsize=7)
    axis.grid(axis="y", alpha=0.3)
    return _svg(figure)


def _axes(count: int, width: float = 5.0) -> tuple[Any, list[Any]]:
    needed("matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, 3.8), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, sharex=True)[0])


def _same_scale(axes: Sequence[Any], panels: Sequence[Panel]) -> None:
    """Give the y axes equal lengths, each centred on its panel's curves."""
    ranges = {axis: _range(panel) for axis, panel in zip(axes, panels, strict=True) if not panel.own_scale}
    height = 1.1 * max(high - low for low, high in ranges.values()) or 1.0
    for axis, (low, high) in ranges.items():
        axis.set_ylim((low + high - height) / 2, (low + high + height) / 2)
    starts = [panel.from_x for panel in panels if panel.from_x is not None]
    if starts:
        axes[0].set_xlim(left=min(starts))


def _range(panel: Panel) -> tuple[float, float]:
    seen = [
        y
        for curve in panel.curves
        for x, y in zip(curve.x, curve.y, strict=True)
        if panel.from_x is None or x >= panel.from_x
    ]
    return min(seen), max(seen)


def _svg(figure: Any) -> bytes:
    from matplotlib import rc_context

    file = io.BytesIO()
    # Text as text elements; a fixed salt gives the same bytes for the same curves.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fwcrf"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()

"""Figures of labels and energies, by matplotlib: ``pip install 'fwcrf[plot]'``.

Without ``ax``, a figure is made by ``matplotlib.pyplot``: ``plt.show()`` and notebooks show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.files.palette import as_picture
from fwcrf.optional import needed
from fwcrf.solvers import Record, Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["before_after", "colors", "energy", "overlay"]

_OPACITY = 0.5
# The legend has the largest regions only: with 150 labels it would hide the picture.
_MOST_ENTRIES = 12
# Brightness of the photograph behind the changed pixels.
_DIMMED = 0.35
_TO_BACKGROUND = (1.0, 1.0, 1.0)
# Far from each other in CIELAB, and far from grey.
_COLORS = (
    "4b5ac3", "ff003c", "e1e100", "00b42d", "ff800d", "965aff", "00f0b4", "a52d3c", "ff0096", "ff9696",
    "874b0f", "00ff00", "963c78", "3ca5ff", "3c690f", "00d2ff", "c3e187", "ffa5ff", "6900ff", "f0b469",
    "ff3cff",
)  # fmt: skip


def colors(count: int) -> np.ndarray:
    """Colours of the labels 0, 1, ..., ``(count, 3)`` from 0 to 1: 21 bright ones, then the same darker.

    >>> colors(150).shape
    (150, 3)
    """
    table = np.array([[int(code[i : i + 2], 16) for i in (0, 2, 4)] for code in _COLORS]) / 255
    turn, place = np.divmod(np.arange(count), len(table))
    return table[place] * 0.75 ** (turn % 4)[:, None]


def overlay(
    image: np.ndarray | Tensor,
    labels: np.ndarray | Tensor,
    *,
    names: Sequence[str] | None = None,
    background: int | None = 0,
    ax: Axes | None = None,
) -> Axes:
    """Axes with an image, its labels in colour, and a legend.

    Args:
        image: ``(H, W)`` or ``(H, W, channels)`` for numpy, ``(channels, H, W)`` for torch.
        labels: ``(H, W)``, whole numbers. Negative labels are not drawn.
        names: the names of the labels 0, 1, ... for the legend.
        background: the label without a colour; ``None`` to colour all labels.
        ax: the axes to draw into; by default the axes of a new figure.
    """
    picture, (shown,) = _read(image, labels)
    if ax is None:
        _, (ax,) = _subplots(1, picture.shape)
    _show(ax, _painted(picture, shown, background))
    handles = _handles([shown], names, background)
    if handles:
        ax.legend(handles=handles, loc="upper right", fontsize="small", framealpha=0.8)
    return ax


def before_after(
    image: np.ndarray | Tensor,
    before: np.ndarray | Tensor,
    after: np.ndarray | Tensor,
    *,
    names: Sequence[str] | None = None,
    background: int | None = 0,
    titles: Sequence[str] = ("image", "before", "after", "changed"),
) -> Figure:
    """Figure of an image, labels before and after, and the changed pixels in the colours of their new labels.

    Pixels that changed to the background are white. The arguments are as in ``overlay``.
    """
    picture, (first, second) = _read(image, before, after)
    if len(titles) != 4:
        raise ValueError(f"there are {len(titles)} titles; expected 4, one for each panel.")
    figure, axes = _subplots(4, picture.shape)
    panels = (
        picture,
        _painted(picture, first, background),
        _painted(picture, second, background),
        _changed(picture, first, second, background),
    )
    for each, panel, title in zip(axes, panels, titles, strict=True):
        _show(each, panel)
        each.set_title(title)
    handles = _handles([first, second], names, background)
    if background is not None and ((first != second) & (second == background)).any():
        handles += [_handle(_TO_BACKGROUND, f"changed to {_name(names, background)}")]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    return figure


def energy(trace: Solution | Sequence[Record], *, label: str | None = None, ax: Axes | None = None) -> Axes:
    """Axes with the energy of the rounded labels (solid) and of the iterate (dashed) after each step.

    Args:
        trace: a solution that was found with ``trace=True``, or its trace. Of a batch, each image has a line.
        label: a name in the legend, to tell the solvers of several calls apart.
        ax: the axes to draw into; by default the axes of a new figure.
    """
    records = trace.trace if isinstance(trace, Solution) else trace
    if not records:
        raise ValueError(
            "there is no trace of the energy; expected a run with trace=True, for example solve()."
        )
    if ax is None:
        _, (ax,) = _subplots(1, (3, 4))
        ax.set(xlabel="step", ylabel="energy")
    steps = [record.k for record in records]
    color: Any = None
    for kind, style in (("rounded", "-"), ("energy", "--")):
        values = torch.stack([getattr(record, kind).reshape(-1) for record in records]).cpu()
        name = "of the labels" if kind == "rounded" else "of the iterate"
        lines = ax.plot(steps, values.numpy(), style, color=color)
        lines[0].set_label(f"{label}, {name}" if label else name)
        if color is None and values.shape[1] == 1:
            color = lines[0].get_color()
    ax.legend(fontsize="small")
    return ax


def _subplots(count: int, shape: Sequence[int]) -> tuple[Figure, Sequence[Axes]]:
    """A new figure, and its axes side by side, for pictures of a shape."""
    width = 5.0 if count == 1 else 3.6
    size = (count * width, width * shape[0] / shape[1] + 0.4)
    pyplot = needed("matplotlib.pyplot", "plot")
    figure, axes = pyplot.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
    return figure, axes[0]


def _show(ax: Axes, picture: np.ndarray) -> None:
    ax.imshow(picture)
    ax.set_axis_off()


def _read(image: Any, *maps: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """The image as colours from 0 to 1, and the maps of labels as numpy arrays."""
    if isinstance(image, Tensor):
        image = image.detach().cpu()
        image = (image.movedim(0, -1) if image.ndim == 3 else image).numpy()
    image = np.asarray(image)
    if image.ndim not in (2, 3):
        raise ValueError(
            f"image has shape {image.shape}; expected (H, W) or (H, W, channels), for a torch tensor "
            "(channels, H, W). Choose one image of a batch, one slice of a volume."
        )
    read = [np.asarray(one.detach().cpu() if isinstance(one, Tensor) else one) for one in maps]
    for labels in read:
        if labels.shape != image.shape[:2]:
            raise ValueError(
                f"labels has shape {labels.shape}, and the image has {image.shape[:2]} pixels; expected one "
                "label per pixel. Scores become labels by argmax over the axis of the labels."
            )
        if labels.dtype.kind not in "iub":
            raise TypeError(f"labels has dtype {labels.dtype}; expected whole numbers.")
    return as_picture(image) / 255.0, [labels.astype(np.int64) for labels in read]


def _painted(picture: np.ndarray, labels: np.ndarray, background: int | None) -> np.ndarray:
    """The picture with labels in colour, opaque along the borders of regions."""
    drawn = _drawn(labels, background)
    opacity = np.where(_borders(labels), 1.0, _OPACITY) * drawn
    palette = colors(int(labels.max(initial=0)) + 1)
    return picture + opacity[..., None] * (palette[labels.clip(0)] - picture)


def _drawn(labels: np.ndarray, background: int | None) -> np.ndarray:
    """True for pixels with a colour."""
    return (labels >= 0) & (labels != (-1 if background is None else background))


def _borders(labels: np.ndarray) -> np.ndarray:
    """True for pixels of which the label differs from that of a neighbour, in lines of visible width."""
    different = np.zeros(labels.shape, bool)
    for axis in (0, 1):
        for far in range(1, max(1, round(max(labels.shape) / 300)) + 1):
            near, other = (np.swapaxes(labels, 0, axis)[part] for part in (np.s_[far:], np.s_[:-far]))
            seen = np.swapaxes(different, 0, axis)
            seen[far:] |= near != other
            seen[:-far] |= near != other
    return different


def _changed(
    picture: np.ndarray, before: np.ndarray, after: np.ndarray, background: int | None
) -> np.ndarray:
    """The picture in dark grey, with changed pixels in the colour of their new label."""
    palette = colors(int(after.max(initial=0)) + 1)
    new = np.where(_drawn(after, background)[..., None], palette[after.clip(0)], _TO_BACKGROUND)
    dimmed = _DIMMED * picture.mean(-1, keepdims=True)
    return np.where((before != after)[..., None], new, dimmed)


def _handles(maps: Iterable[np.ndarray], names: Sequence[str] | None, background: int | None) -> list[Any]:
    """Entries of a legend: the labels with a colour, by number, at most the largest few."""
    every = np.concatenate([labels[_drawn(labels, background)] for labels in maps])
    found, areas = np.unique(every, return_counts=True)
    largest = np.sort(found[np.argsort(-areas, kind="stable")[:_MOST_ENTRIES]])
    palette = colors(int(largest.max(initial=0)) + 1)
    return [_handle(palette[k], _name(names, k)) for k in largest.tolist()]


def _handle(color: Any, text: str) -> Any:
    patch = needed("matplotlib.patches", "plot").Patch
    return patch(facecolor=color, edgecolor="grey", linewidth=0.5, label=text)


def _name(names: Sequence[str] | None, label: int) -> str:
    return names[label] if names is not None and label < len(names) else f"label {label}"

"""Whether an image's values and the bandwidths of the kernels can belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fwcrf.features import bandwidths
from fwcrf.inputs.arrays import Stored, kind
from fwcrf.kernels import Bilateral
from fwcrf.kernels.gaussians import Kernel
from fwcrf.kernels.lattice import MAX_DIMENSION
from fwcrf.torch_ops.native import warn_caller

_ROWS = 32
# Bandwidths of less than this see no two whole numbers as neighbours.
_BETWEEN_WHOLE = 0.3


def check_image(image: Stored, kernels: Sequence[Kernel]) -> None:
    """Refuse an image that kernels do not take; warn of one whose units are not those of the bandwidths."""
    if kind(image.array) not in "if":
        raise TypeError(
            f"image has dtype {image.array.dtype}; expected whole or floating-point numbers: convert it "
            "first."
        )
    channels, dims = image.channels or 1, len(image.grid)
    for kernel in kernels:
        if not isinstance(kernel, Bilateral):
            continue
        if kernel.method == "lattice" and dims + channels > MAX_DIMENSION:
            raise ValueError(
                f"image has shape {tuple(image.array.shape)}, which is {channels} channels; expected at "
                f"most {MAX_DIMENSION - dims} beside {dims} positions. Channels are on the last axis of a "
                "numpy array (or pass channel_axis=), and before the grid in a torch tensor. If there are "
                "so many, reduce them, by principal components for example."
            )
        color = bandwidths(kernel.color, channels, "color")
        check_units(lambda: _sample(image), kind(image.array), color, "image")


def check_units(values: Callable[[], Tensor], kind: str, color: Sequence[float], name: str) -> None:
    """Warn of bandwidths that see no difference between values, or nothing but differences.

    They are asked for only where they could be wrong.
    """
    if kind == "i" and max(color) >= _BETWEEN_WHOLE:
        return
    sample = values()
    low, high = (float(v) for v in sample.aminmax())
    if not math.isfinite(high - low):
        sample = sample[torch.isfinite(sample)]
        if sample.numel() == 0:
            return
        low, high = (float(v) for v in sample.aminmax())
    if kind == "f" and 0 < high - low <= min(color):
        warn_caller(
            f"{name} has values from {low:.3g} to {high:.3g}, and the colour bandwidth is {min(color):g}: "
            "no two values are further apart than that, so that no edge is seen. Bandwidths are in the "
            "units of the data: pass values from 0 to 255, or for 0 to 1 a bandwidth such as "
            f"color={13 / 255:.2f}."
        )
    if kind == "i" and high - low > 1:
        warn_caller(
            f"{name} has whole numbers from {low:g} to {high:g}, and the colour bandwidth is "
            f"{max(color):g}: only equal values are neighbours. Bandwidths are in the units of the data: "
            "color=13 is usual for 0 to 255."
        )


def _sample(image: Stored) -> Tensor:
    """Some rows of the first image."""
    every = max(1, image.grid[0] // _ROWS)
    return image.part(torch.float64, slice(0, 1), (slice(0, image.grid[0], every), *image.whole[1:]))

"""An image as points: a vector of features for every pixel.

Inside the library an image is ``(*batch, n, channels)`` with its grid ``shape`` beside it, pixels in
row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.inputs.arrays import locate
from fwcrf.inputs.numbers import real, reals
from fwcrf.torch_ops.native import (
    check_finite,
    empty,
    has_values,
    threads_for,
    untraced,
    unwrapped,
    warn_caller,
)

_DEVIATIONS = (
    "positive, finite standard deviations in the units of the data (pixels for positions, grey levels for "
    "colours)"
)
# With a bandwidth below this, two different whole numbers are not neighbours.
_BETWEEN_WHOLE = 0.3
# Colour bandwidths up to this are for values of 0 to 255; scaled to them, fewer than two grey levels are a
# mistake.
_FOR_BYTES, _GREY_LEVELS = 64.0, 2.0
# Images that were normalised for a network have values up to this.
_NORMALISED = 8.0
# Pixels, grey levels and weight of the default's bilateral kernel, for remedies.
MEASURED = 80.0, 6.0, 2.4


def pixels(
    image: Tensor | np.ndarray,
    *,
    spatial_dims: int = 2,
    channel_axis: int | None = -1,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, tuple[int, ...]]:
    """An image as ``(*batch, n, channels)``, and the shape of its grid.

    A torch image is ``(channels, *grid)`` or ``(batch, channels, *grid)``; a numpy image is
    ``(*grid, channels)`` or ``(batch, *grid, channels)``, with its channels at ``channel_axis``
    (``None``: a grey image without that axis). ``spatial_dims`` is the number of grid axes;
    ``dtype`` that of the values, by default float64 for float64 and float32 for every other dtype.

    >>> import numpy as np
    >>> values, shape = pixels(np.zeros((4, 5, 3), dtype=np.uint8))
    >>> tuple(values.shape), shape
    ((20, 3), (4, 5))
    """
    if not isinstance(image, Tensor | np.ndarray):
        raise TypeError(f"image is a {type(image).__name__}; expected a torch tensor or a numpy array.")
    found = locate(image, "image", spatial_dims, channel_axis, channels="required")
    values = found.flat()
    if values.is_complex() or values.dtype == torch.bool:
        raise TypeError(f"image has dtype {values.dtype}; expected real numbers.")
    wide = values.dtype == torch.float64
    return values.to(dtype or (torch.float64 if wide else torch.float32)), found.grid


def bandwidths(
    value: float | Sequence[float] | Tensor | np.ndarray, count: int, name: str
) -> tuple[float, ...]:
    """One positive standard deviation per axis from a number or a sequence."""
    if isinstance(value, Tensor):
        value = unwrapped(value)
        if not has_values(value):
            raise TypeError(
                f"torch.vmap over {name} was asked for; expected the same bandwidths in all calls. A loop "
                "over the bandwidths takes different ones."
            )
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    several = isinstance(value, Sequence) and not isinstance(value, str)
    values: Sequence[float] = value if several else (value,) * count  # type: ignore[assignment]
    if len(values) != count:
        raise ValueError(f"{name}={value!r} has {len(values)} entries; expected one number or {count}.")
    for v in values:
        if type(v) not in (float, int) or not 0 < v < math.inf:
            real(v, name, _DEVIATIONS, lambda s: 0 < s < math.inf)
    return tuple(map(float, values))


def check_bandwidth(value: Any, name: str) -> None:
    """Refuse a value that holds no standard deviations, of any number of axes; tensors by dtype alone."""
    if isinstance(value, Tensor):
        reals(value, name)
        return
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value) > 0
    bandwidths(value, len(value) if several else 1, name)


def reciprocals(value: float | Sequence[float] | Tensor | np.ndarray, name: str, like: Tensor) -> Tensor:
    """1 / standard deviation per column of ``like``, ``(columns,)``; differentiable in a tensor ``value``."""
    count = like.shape[-1]
    if not isinstance(value, Tensor):
        known = torch.tensor(bandwidths(value, count, name), dtype=like.dtype, device="cpu").reciprocal()
        return known.to(like.device, non_blocking=True)
    if has_values(unwrapped(value)):
        bandwidths(value, count, name)
    return value.to(like).expand(count).reciprocal()


def positions(
    shape: Sequence[int],
    like: Tensor,
    xy: float | Sequence[float] | Tensor = 1.0,
    origin: Sequence[int] | None = None,
) -> Tensor:
    """Pixel coordinates of a grid, divided by ``xy``, in row-major order: ``(n, axes)``.

    ``origin`` is the coordinates of the first pixel, if the grid is a window of a larger one.
    """
    columns = []
    inverse = reciprocals(xy, "xy", like.new_empty(len(shape)))
    for axis, (size, factor) in enumerate(zip(shape, inverse, strict=True)):
        first = 0 if origin is None else origin[axis]
        line = torch.arange(first, first + size, dtype=like.dtype, device=like.device) * factor
        columns.append(line.view([-1 if a == axis else 1 for a in range(len(shape))]).expand(tuple(shape)))
    return torch.stack(columns, -1).flatten(0, -2)


def bilateral(
    values: Tensor,
    shape: Sequence[int],
    xy: float | Sequence[float] | Tensor,
    color: float | Sequence[float] | Tensor,
    origin: Sequence[int] | None = None,
) -> Tensor:
    """Positions / ``xy`` and colours / ``color``, concatenated: ``(*batch, n, axes + channels)``.

    ``origin`` is as in ``positions``. Differentiable in the values, and in bandwidths that are tensors.
    """
    learned = any(isinstance(t, Tensor) and t.requires_grad for t in (values, xy, color))
    if untraced(values) and not (learned and torch.is_grad_enabled()):
        out = empty((*values.shape[:-1], len(shape) + values.shape[-1]), values.dtype)
        threads = threads_for(out.numel())
        scales = (*bandwidths(xy, len(shape), "xy"), *bandwidths(color, values.shape[-1], "color"))
        flat = values.detach().reshape(-1, *values.shape[-2:])
        if not _core.bilateral_features(
            flat,
            torch.tensor(shape, dtype=torch.int64, device="cpu"),
            values.new_tensor(scales).reciprocal(),
            out.view(*flat.shape[:-1], -1),
            threads,
        ):
            check_finite(values, "image")
        if origin is not None and any(origin):
            corner = [first / scale for first, scale in zip(origin, scales, strict=False)]
            out[..., : len(shape)] += out.new_tensor(corner)
        return out
    if values.is_cpu:
        # On another device kernels look at their features, and this would be one more wait for it.
        check_finite(values, "image")
    place = positions(shape, values, xy, origin)
    tone = values * reciprocals(color, "color", values)
    return torch.cat([place.expand(*values.shape[:-1], -1), tone], -1)


def check_units(values: Callable[[], Tensor], kind: str, color: Sequence[float], name: str) -> None:
    """Warn if colour bandwidths exceed all differences of values, or are far too small for them.

    ``kind`` is "byte" or "i" for whole numbers, of 8 bits or more, and "f" for floating point. ``values`` is
    called only if the dtype leaves doubt.
    """
    if kind == "byte" and max(color) >= _BETWEEN_WHOLE:
        return
    sample = values()
    low, high = (float(v) for v in sample.aminmax())
    if not math.isfinite(high - low):
        sample = sample[torch.isfinite(sample)]
        if sample.numel() == 0:
            return
        low, high = (float(v) for v in sample.aminmax())
    span = high - low
    # Values of a network's input, 0 to 1 or normalised, in up to three channels.
    small = len(color) <= 3 and max(-low, high) <= _NORMALISED and min(color) > span / 2
    if kind == "f" and span > 0 and (span <= min(color) or small):
        unit = 1.0 if low >= 0 and high <= 1 else span
        warn_caller(
            f"{name} has values from {low:.3g} to {high:.3g}, and the colour bandwidth is {min(color):g}: "
            f"no two values are further apart than {span / min(color):.2g} bandwidths, so that the kernel "
            "sees hardly an edge. Bandwidths are in the units of the data: pass values from 0 to 255, or "
            f"{_measured(unit)}."
        )
    elif kind != "f" and span > 1 and max(color) < _BETWEEN_WHOLE:
        warn_caller(
            f"{name} has whole numbers from {low:g} to {high:g}, and the colour bandwidth is "
            f"{max(color):g}: only equal values are neighbours. Bandwidths are in the units of the data: "
            f"pass {_measured(255.0 if high <= 255 else high)}."
        )
    elif low >= 0 and high > 255 and max(color) <= _FOR_BYTES and 255 * max(color) < _GREY_LEVELS * high:
        # Signed values, as of CT, have units of their own.
        warn_caller(
            f"{name} has values up to {high:g}, and the colour bandwidth is {max(color):g}, which is meant "
            "for values from 0 to 255: hardly any two pixels are alike. Bandwidths are in the units of the "
            f"data: pass {name} * {255 / high:.3g}, or {_measured(high)}."
        )


def _measured(unit: float) -> str:
    """A bandwidth of the default for values of which ``unit`` are 255 grey levels, and its kernel."""
    xy, color, weight = MEASURED
    scaled = f"{color / 255 * unit:.3g}"
    return f"a bandwidth such as color={scaled}, that of the default: Bilateral({xy:g}, {scaled}, {weight:g})"

"""Arrays of users, in memory or on disk, read window by window.

A torch tensor is ``(channels, *grid)`` or ``(batch, channels, *grid)``. Everything else follows numpy:
``(*grid, channels)`` or ``(batch, *grid, channels)``, with the channels at ``channel_axis``. An object
with a shape, a dtype and slices (a memory map, a Zarr array, an HDF5 dataset) is never read as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.layout import put_transposed, put_transposed_and_argmax, transposed
from fwcrf.torch_ops.native import as_int64, empty, refuse_jit_trace, warn_caller
from fwcrf.torch_ops.printed import in_one_line

Window = tuple[slice, ...]

# About this many rows show whether numbers are of the expected kind.
_ROWS = 32
# Scores have the proportions of an image if no axis is enlarged by the first factor more than another axis;
# of two grids, one has them clearly better by the second factor.
_PROPORTIONAL, _CLEARLY = 1.2, 1.2
# Images are padded to multiples of these numbers of pixels, strides of networks.
_MULTIPLES = 8, 16, 32, 64
_NUMPY = {
    torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64, torch.bool: np.bool_,
    torch.uint8: np.uint8,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Located:
    """An array and the roles of its axes."""

    array: Any
    name: str
    grid_axes: tuple[int, ...]
    channel_axis: int | None = None
    batch_axis: int | None = None

    __repr__ = in_one_line

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.array.shape[a] for a in self.grid_axes)

    @property
    def channels(self) -> int | None:
        return None if self.channel_axis is None else self.array.shape[self.channel_axis]

    @property
    def batch(self) -> int | None:
        return None if self.batch_axis is None else self.array.shape[self.batch_axis]

    @property
    def whole(self) -> Window:
        return tuple(slice(0, size) for size in self.grid)

    @property
    def is_torch(self) -> bool:
        return isinstance(self.array, Tensor)

    def read(
        self, dtype: torch.dtype, images: slice, window: Window, device: torch.device | None = None
    ) -> Tensor:
        """A part, ``(*batch, *window, channels)`` as far as the array has these axes."""
        found = self.part(dtype, images, window, device)
        if self._channels_first:
            dims = len(self.grid_axes)
            return transposed(found.flatten(-dims)).unflatten(-2, found.shape[-dims:])
        return found.permute(self._order)

    def pixels(self, images: slice, window: Window) -> Tensor:
        """A part of bytes as it is stored, with any strides: ``(*batch, n, channels)``."""
        found = self.part(torch.uint8, images, window).permute(self._order)
        return (found.unsqueeze(-1) if self.channel_axis is None else found).flatten(-len(self.grid) - 1, -2)

    def sample(self, most: int = _ROWS) -> Tensor:
        """About ``most`` rows of the first image in float64, as ``read`` returns them."""
        rows = slice(0, self.grid[0], max(1, self.grid[0] // most))
        return self.read(torch.float64, slice(0, 1), (rows, *self.whole[1:]))

    def flat(self) -> Tensor:
        """The whole array, ``(*batch, n, channels)``; differentiable if it is a tensor."""
        array = self.array
        if not isinstance(array, Tensor):
            # A copy settles read-only memory, foreign byte order and negative strides.
            array = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
        if self.channel_axis is None:
            return array.flatten(-len(self.grid_axes)).unsqueeze(-1)
        return array.permute(self._order).flatten(-len(self.grid_axes) - 1, -2)

    def read_channels_first(
        self, dtype: torch.dtype, images: slice, window: Window, device: torch.device | None = None
    ) -> Tensor | None:
        """A part, ``(*batch, channels, pixels)``, or None if the array has another layout."""
        if not self._channels_first:
            return None
        return self.part(dtype, images, window, device).flatten(-len(self.grid_axes))

    def part(
        self, dtype: torch.dtype, images: slice, window: Window, device: torch.device | None = None
    ) -> Tensor:
        """A part in the layout of the array."""
        found = self.array[self._index(images, window)]
        if not isinstance(found, Tensor):
            # A copy settles read-only memory, foreign byte order and negative strides.
            wanted = np.uint64 if dtype == torch.int64 and found.dtype == np.uint64 else _NUMPY[dtype]
            plain = isinstance(found, np.ndarray) and found.dtype == wanted and found.flags.carray
            found = torch.from_numpy(found if plain else np.array(found, dtype=wanted, order="C"))
        found = found.detach()
        if found.dtype == torch.uint64 and dtype == torch.int64:
            found = as_int64(found)
        if found.dtype == dtype and device in (None, found.device):
            return found
        if found.is_cpu and found.dtype != dtype and device in (None, found.device):
            return empty(found.shape, dtype).copy_(found)
        return found.to(device, dtype)

    def write_with_argmax(self, images: slice, window: Window, values: Tensor, labels: Located) -> bool:
        """Write the values, and their argmax to ``labels``, in one pass; False if that is not possible."""
        if not (self.is_torch and labels.is_torch and self._channels_first):
            return False
        dims = len(self.grid_axes)
        part, found = (one.array[one._index(images, window)] for one in (self, labels))
        if not (part.is_contiguous() and found.is_contiguous()):
            return False
        return put_transposed_and_argmax(
            values.flatten(-dims - 1, -2), part.flatten(-dims), found.flatten(-dims)
        )

    def write(self, images: slice, window: Window, values: Tensor) -> None:
        """Write values ``(*batch, *window, channels)`` to a part: the inverse of ``read``."""
        part = self.array[self._index(images, window)] if self.is_torch and self._channels_first else None
        if part is not None and part.is_contiguous():
            dims = len(self.grid_axes)
            put_transposed(values.flatten(-dims - 1, -2), part.flatten(-dims))
            return
        values = values.permute([self._order.index(a) for a in range(values.dim())])
        self.array[self._index(images, window)] = values if self.is_torch else values.cpu().numpy()

    @property
    def _channels_first(self) -> bool:
        """True if the channels come right before the grid."""
        return self.channel_axis is not None and self._order[:-1] == [
            a for a in range(len(self.array.shape)) if a != len(self.array.shape) - len(self.grid_axes) - 1
        ]

    @property
    def _order(self) -> list[int]:
        """The array's axes in the order batch, grid, channels."""
        return [a for a in (self.batch_axis, *self.grid_axes, self.channel_axis) if a is not None]

    def _index(self, images: slice, window: Window) -> tuple[slice, ...]:
        index = [slice(None)] * len(self.array.shape)
        for axis, part in zip(self.grid_axes, window, strict=True):
            index[axis] = part
        if self.batch_axis is not None:
            index[self.batch_axis] = images
        return tuple(index)


def locate(
    value: Any,
    name: str,
    spatial_dims: int,
    channel_axis: int | None = -1,
    *,
    channels: bool | Literal["required"] = True,
    alike: bool = False,
) -> Located:
    """The array with the roles of its axes: the one reader of layouts.

    An array with no more axes than the grid has no channels, unless ``channels`` are ``"required"``; a mask
    or a label map, with ``channels=False``, never has any. ``alike`` is for torch tensors in numpy's layout.
    """
    array = as_array(value, name)
    shape = tuple(array.shape)
    extra = len(shape) - spatial_dims
    torch_layout = isinstance(array, Tensor) and not alike
    absent = channel_axis is None and not torch_layout
    no_channels = not channels or absent or (extra == 0 and channels != "required")
    if extra not in ((0, 1) if no_channels else (1, 2)):
        raise ValueError(
            f"{name} has shape {shape}; expected {_layouts(torch_layout, not no_channels)} with "
            f"{spatial_dims} grid axes: spatial_dims= sets their number."
        )
    if math.prod(shape) == 0:
        raise ValueError(f"{name} has shape {shape}; expected at least one pixel, channel and image.")
    axes = list(range(len(shape)))
    where = None
    if not no_channels:
        at = -spatial_dims - 1 if torch_layout else channel_axis
        assert at is not None
        if not -len(shape) <= at < len(shape):
            raise ValueError(f"channel_axis={at} with {name} of shape {shape}; expected one of its axes.")
        where = axes.pop(at)
    first = axes.pop(0) if len(axes) > spatial_dims else None
    return Located(array, name, tuple(axes), where, first)


def scores_flat(scores: Tensor, num_labels: int, spatial_dims: int, name: str) -> Tensor:
    """Scores ``(*batch, L, *grid)`` of a network as ``(*batch, L, n)``, in float32 or float64.

    >>> scores_flat(torch.zeros(2, 3, 4, 5), num_labels=3, spatial_dims=2, name="logits").shape
    torch.Size([2, 3, 20])
    """
    found = locate(scores, name, spatial_dims, channels="required")
    if not scores.is_floating_point():
        raise TypeError(f"{name} has dtype {scores.dtype}; expected floating point: convert with .float().")
    if found.channels != num_labels:
        raise ValueError(
            f"{name} has shape {tuple(scores.shape)}, {found.channels} labels; expected {num_labels} "
            "on the axis before the grid. num_labels= must be their number."
        )
    return (scores if scores.dtype == torch.float64 else scores.float()).flatten(-spatial_dims)


def check_same_grid(image: Tensor, scores: Tensor, spatial_dims: int, name: str) -> None:
    """Refuse an image and scores that are not tensors with the same grid, batch and device."""
    if torch._C._get_tracing_state() is not None:
        refuse_jit_trace()
    for called, value in (("image", image), (name, scores)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{called} is a {type(value).__name__}; expected a torch tensor.")
    pair = [locate(t, n, spatial_dims, channels="required") for t, n in ((image, "image"), (scores, name))]
    check_grid(pair[0], pair[1], f"Resize one of them, for example the {name}.")
    check_batch(pair[0], pair[1])
    if image.device != scores.device:
        raise ValueError(f"image is on {image.device} and {name} on {scores.device}; move one of them.")


def answer(
    array: Any, name: str, like: Located, grid: Sequence[int], channels: int | None, at: int, dtype: Any
) -> Located:
    """The array to write to: ``array``, or if it is None a new one of the type and device of ``like``.

    It has the batch of ``like``, the grid, and channels, if any, at axis ``at``.
    """
    axes: list[str] = ["batch"] * (like.batch is not None) + ["grid"] * len(grid)
    shape = [*([] if like.batch is None else [like.batch]), *grid]
    if channels is not None:
        at %= len(axes) + 1
        axes.insert(at, "channels")
        shape.insert(at, channels)
    if array is None:
        array = _new(shape, dtype, like)
    elif tuple(getattr(array, "shape", ())) != tuple(shape):
        raise ValueError(
            f"{name} has shape {getattr(array, 'shape', None)}; expected {tuple(shape)}, like the result."
        )
    return Located(
        array,
        name,
        tuple(a for a, axis in enumerate(axes) if axis == "grid"),
        axes.index("channels") if "channels" in axes else None,
        0 if "batch" in axes else None,
    )


def _new(shape: Sequence[int], dtype: Any, like: Located) -> Any:
    if not like.is_torch:
        return np.empty(shape, dtype=dtype)
    device = like.array.device
    return empty(shape, dtype) if device.type == "cpu" else torch.empty(shape, dtype=dtype, device=device)


def as_array(value: Any, name: str) -> Any:
    """The value as an array with a shape, a dtype and slices."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array; expected a plain one: pass {name}.filled(0), and the mask as ignore=."
        )
    if isinstance(value, Tensor | np.ndarray):
        return value
    if all(hasattr(value, attribute) for attribute in ("shape", "dtype", "__getitem__")):
        return value
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return np.asarray(value)
    raise TypeError(
        f"{name} is a {type(value).__name__}; expected a torch tensor, a numpy array, or something with a "
        "shape, a dtype and slices. np.asarray makes an array of lists."
    )


def kind(array: Any) -> str:
    """``"b"`` for booleans, ``"i"`` for integers, ``"f"`` for floating point, another letter otherwise."""
    dtype = array.dtype
    if isinstance(dtype, torch.dtype):
        if dtype == torch.bool:
            return "b"
        return "f" if dtype.is_floating_point else "c" if dtype.is_complex else "i"
    found = np.dtype(dtype).kind
    return "i" if found == "u" else found


def shares_memory(a: Any, b: Any) -> bool:
    """True if a change of one array may change the other one."""
    if a is b:
        return True
    pair = [_in_memory(one) for one in (a, b)]
    if any(one is None for one in pair):
        return False
    if all(isinstance(one, np.memmap) and one.filename is not None for one in (a, b)):
        return a.filename == b.filename  # a file that is mapped twice has two addresses
    try:
        return np.shares_memory(*pair, max_work=1 << 20)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _in_memory(array: Any) -> np.ndarray | None:
    """The array's memory as a numpy array; None if it is not in this machine's memory."""
    if isinstance(array, Tensor):
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(array.element_size())
        return array.detach().view(whole).numpy() if array.is_cpu and whole is not None else None
    return array if isinstance(array, np.ndarray) else None


def largest(dtype: Any) -> int:
    """The largest integer of a dtype."""
    return int(torch.iinfo(dtype).max if isinstance(dtype, torch.dtype) else np.iinfo(dtype).max)


def check_grid(image: Located, scores: Located, remedy: str) -> None:
    """Refuse an image and scores of different grids; the message has the likely cause, or ``remedy``."""
    if image.grid != scores.grid:
        raise ValueError(
            f"image has shape {tuple(image.array.shape)} and {scores.name} {tuple(scores.array.shape)}: "
            f"grids of {_by(image.grid)} and {_by(scores.grid)}; expected the same grid. "
            f"{_cause(image, scores) or remedy}"
        )


def check_label_axis(
    image: Sequence[int], scores: Located, *, num_labels: int | None = None, told: bool = False
) -> None:
    """Refuse scores to be resized if another axis of labels fits the image better; warn if it fits as well.

    ``num_labels`` is the number that the user expects, if any; ``told`` if the user named the axis.
    """
    if scores.channel_axis is None or scores.grid == tuple(image):
        return
    axes = sorted((*scores.grid_axes, scores.channel_axis))
    shape = tuple(scores.array.shape)
    grids = {axis: tuple(shape[a] for a in axes if a != axis) for axis in axes if axis != scores.channel_axis}
    if num_labels is not None and (scores.is_torch or all(shape[axis] != num_labels for axis in grids)):
        return
    fitting = [axis for axis, grid in grids.items() if _fits(image, grid)]
    fits = _fits(image, scores.grid)
    if not fits and not fitting:
        most = stretch(image, scores.grid) / _CLEARLY
        fitting = [axis for axis, grid in grids.items() if stretch(image, grid) < min(_PROPORTIONAL, most)]
    if not fitting or (fits and told):
        return
    moves = [f"{axis}, {scores.channel_axis}" for axis in fitting]
    name = scores.name
    how = " or ".join(
        f"{name}.movedim({m})" if scores.is_torch else f"np.moveaxis({name}, {m})" for m in moves
    )
    where = " or ".join(map(str, fitting))
    found = (
        f"{name} has shape {shape}: {scores.channels} labels on a grid of {_by(scores.grid)}, and the image "
        f"has {_by(image)} pixels"
    )
    keep = f"num_labels={scores.channels}"
    if fits:
        if not scores.is_torch:
            keep = f"channel_axis={scores.channel_axis}"
        warn_caller(
            f"{found}, which fits; but so do labels at axis {where}. If they are there, pass {how}; if not, "
            f"pass {keep}."
        )
        return
    raise ValueError(
        f"{found}; expected their proportions, as of {_by(grids[fitting[0]])}. The labels of {name} seem to "
        f"be at axis {where}: pass {how}. If they are not, pass {keep}."
    )


def _fits(image: Sequence[int], scores: Sequence[int]) -> bool:
    """True if one stride for all axes leads to the grid of the scores, up to rounding or padding."""
    pairs = list(zip(image, scores, strict=True))
    # Rounded up or down, or with samples on both ends: n - 1 to n + 1 strides are the size of the image.
    rounded = max(size / (n + 1) for size, n in pairs) <= min(size / max(n - 1, 0.01) for size, n in pairs)
    return rounded or any(len({-(-size // m) * m / n for size, n in pairs}) == 1 for m in _MULTIPLES)


def stretch(image: Sequence[int], scores: Sequence[int]) -> float:
    """The factor by which one axis is enlarged more than another; 1 for equal proportions."""
    factors = [size / n for size, n in zip(image, scores, strict=True)]
    return max(factors) / min(factors)


def check_batch(one: Located, scores: Located) -> None:
    """Refuse an array whose batch is not the batch of the scores."""
    if one.batch is not None and one.batch != scores.batch:
        of = "none" if scores.batch is None else f"one of {scores.batch}"
        volume = " If they are volumes, pass spatial_dims=3." if one.batch == 1 else ""
        raise ValueError(
            f"{one.name} has shape {tuple(one.array.shape)}, a batch of {one.batch}, and {scores.name} "
            f"{tuple(scores.array.shape)}, which has {of}; expected the same batch, or one {one.name} for "
            f"all.{volume}"
        )


def extremes(stored: Located, ignore: Located | None = None) -> tuple[int, int]:
    """The least and the largest integer of an array, read some rows at a time; -1 for ignored pixels."""
    ends = [part.aminmax() for part in some_rows(stored, ignore)]
    return min(int(e.min) for e in ends), max(int(e.max) for e in ends)


def distinct(stored: Located, ignore: Located | None = None) -> set[int]:
    """The different integers from 0 on of an array without its ignored pixels, read some rows at a time."""
    return {value for part in some_rows(stored, ignore) for value in part.unique().tolist() if value >= 0}


def some_rows(stored: Located, ignore: Located | None = None) -> Iterator[Tensor]:
    """The integers of each image, some rows at a time, with -1 at the pixels of the mask ``ignore``."""
    rows = max(1, (1 << 24) // max(1, math.prod(stored.grid[1:])))
    for image in range(stored.batch or 1):
        for start in range(0, stored.grid[0], rows):
            window = (slice(start, min(start + rows, stored.grid[0])), *stored.whole[1:])
            part = stored.read(torch.int64, slice(image, image + 1), window)
            if ignore is not None:
                aside = ignore.read(torch.bool, slice(image, image + 1), window, part.device)
                part = part.masked_fill(aside, -1)
            yield part


def _by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _layouts(torch_layout: bool, channels: bool) -> str:
    if not channels:
        return "(*grid) or (batch, *grid)"
    if torch_layout:
        return "(channels, *grid) or (batch, channels, *grid)"
    return "(*grid, channels) or (batch, *grid, channels)"


def _cause(image: Located, scores: Located) -> str | None:
    """The likely cause of different grids, with a remedy; None if the shapes do not show it."""
    if image.channel_axis is not None and tuple(image.array.shape) == (scores.batch, *scores.grid):
        return (
            "The image seems to have no channel axis: pass channel_axis=None, or for a volume spatial_dims=3."
        )
    moved_image, moved_scores = _with_channels_elsewhere(image), _with_channels_elsewhere(scores)
    if (
        moved_image is not None
        and moved_scores is not None
        and moved_image.grid == moved_scores.grid
        # An image has fewer channels than rows; else its channels are in the right place already.
        and (moved_image.channels or 0) < (image.channels or 0)
    ):
        if image.is_torch or scores.is_torch:
            return f"Torch tensors have their channels before the grid: permute both, as in {_move(image)}."
        place = "first" if moved_image.channel_axis == 0 else f"at axis {moved_image.channel_axis}"
        return f"The channels seem to come {place}: pass channel_axis={moved_image.channel_axis}."
    for moved, one, other in ((moved_image, image, scores), (moved_scores, scores, image)):
        if moved is not None and moved.grid == other.grid:
            entries = "channels" if one is image else "labels"
            return f"The {entries} of {one.name} seem to be at axis {moved.channel_axis}: pass {_move(one)}."
    if image.grid[::-1] == scores.grid:
        return f"Height and width of one of them are exchanged; rows come first: pass {_swap(image)}."
    return None


def _with_channels_elsewhere(stored: Located) -> Located | None:
    """The array with its channels at the other end of the grid; None if it has no channels."""
    if stored.channel_axis is None:
        return None
    axes = sorted((*stored.grid_axes, stored.channel_axis))
    other = axes.pop(-1 if stored.channel_axis == axes[0] else 0)
    return Located(stored.array, stored.name, tuple(axes), other, stored.batch_axis)


def _move(stored: Located) -> str:
    moved = _with_channels_elsewhere(stored)
    assert moved is not None
    if stored.is_torch:
        return f"{stored.name}.movedim({moved.channel_axis}, {stored.channel_axis})"
    return f"np.moveaxis({stored.name}, {moved.channel_axis}, {stored.channel_axis})"


def _swap(stored: Located) -> str:
    first, last = stored.grid_axes[0], stored.grid_axes[-1]
    return f"{stored.name}.swapaxes({first}, {last})"

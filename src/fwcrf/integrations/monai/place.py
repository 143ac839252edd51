"""The place of a network's output on its image, from the affines of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fwcrf.apps.files.place import Align, place_in_space
from fwcrf.optional import needed

needed("monai", "monai")
from monai.data.meta_tensor import MetaTensor  # noqa: E402

Resize = Literal["scores", "image"] | None
Units = Literal["mm", "voxels"]
# Two affines are one if no entry differs by more than this share of a voxel.
_TOLERANCE = 0.01


class Place(NamedTuple):
    """The size of a voxel of the result, None for bandwidths in voxels; and the place of other scores."""

    spacing: tuple[float, ...] | None
    align: Align | None


def metadata_of(pred: Any, image: Any, dims: int, resize: Resize) -> Any:
    """The output or the image, whichever has the metadata of the result.

    Raises ValueError if the result lies on the grid of the one, and the affine of the other one only is
    known.
    """
    placed = [one for one in (pred, image) if isinstance(one, MetaTensor)]
    if _same_grid(pred, image, dims) or not placed or resize is None:
        return placed[0] if placed else pred
    name, target = ("image", image) if resize == "scores" else ("scores", pred)
    if not isinstance(target, MetaTensor):
        raise ValueError(
            f"resize={resize!r}: the result lies on the grid of the {name}, which is no MetaTensor, so that "
            "its affine is not known; expected one."
        )
    return target


def places(pred: Any, image: Any, dims: int, count: int, units: Units, resize: Resize) -> list[Place]:
    """The places of ``count`` items of a batch, or of one item."""
    placed = [one for one in (pred, image) if isinstance(one, MetaTensor)]
    if units == "mm" and not placed:
        raise ValueError(
            "units='mm', and neither the scores nor the image is a MetaTensor, which knows the size of a "
            "voxel; expected one (LoadImage makes them, unless set_track_meta(False)), or units='voxels'."
        )
    if not placed:
        return [Place(None, None)] * count
    same = _same_grid(pred, image, dims)
    affines = [one.affine.double().cpu().expand(count, -1, -1) for one in placed]
    if len(placed) == 2 and same:
        _check_equal(affines[0], affines[1], dims)
    aligns: list[Align | None] = [None] * count
    if len(placed) == 2 and not same and resize is not None:
        grids = image.shape[-dims:], pred.shape[-dims:]
        aligns = [_align(scores, picture, grids) for scores, picture in zip(*affines, strict=True)]
    if units == "voxels":
        return [Place(None, align) for align in aligns]
    target = metadata_of(pred, image, dims, resize).affine.double().cpu().expand(count, -1, -1)
    lengths = torch.linalg.vector_norm(target[:, :-1, :dims], dim=1)
    return [Place(tuple(one), align) for one, align in zip(lengths.tolist(), aligns, strict=True)]


def _same_grid(pred: Any, image: Any, dims: int) -> bool:
    return tuple(pred.shape[-dims:]) == tuple(image.shape[-dims:])


def _check_equal(scores: Tensor, image: Tensor, dims: int) -> None:
    least = torch.linalg.vector_norm(image[:, :-1, :dims], dim=1).amin()
    if bool((scores - image).abs().amax() > _TOLERANCE * least):
        raise ValueError(
            f"the affines of the scores and of the image differ: {scores.tolist()} and {image.tolist()}; "
            "expected the same grid. ResampleToMatch brings one onto the other."
        )


def _align(scores: Tensor, image: Tensor, grids: tuple[Sequence[int], Sequence[int]]) -> Align | None:
    """The place of the scores along the axes of the image. An axis beyond them is one voxel."""
    dims = len(grids[0])
    of_three = ((*grids[0], *[1] * (3 - dims)), (*grids[1], *[1] * (3 - dims)))
    found = place_in_space(
        ("the image", "the scores"), (image.numpy(), scores.numpy()), of_three, remedy="ResampleToMatch"
    )
    return None if found is None else (found[0][:dims], found[1][:dims])

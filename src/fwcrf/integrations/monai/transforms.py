"""Transforms of MONAI that refine the output of a network."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from fwcrf.integrations.monai.place import Place, Units, metadata_of, places
from fwcrf.optional import needed
from fwcrf.refinement import check_names, refine

needed("monai", "monai")
from monai.config.type_definitions import KeysCollection  # noqa: E402
from monai.data.meta_tensor import MetaTensor  # noqa: E402
from monai.transforms.transform import MapTransform, Transform  # noqa: E402
from monai.utils.enums import TransformBackends  # noqa: E402
from monai.utils.type_conversion import convert_to_dst_type, convert_to_tensor  # noqa: E402

# Arguments of ``refine`` that follow from the tensors, or belong to a call.
_OWN = (
    "from_labels", "channel_axis", "spatial_dims", "spacing", "return_probabilities", "out",
    "keep", "ignore", "scribbles",
)  # fmt: skip


class DenseCRF(Transform):
    """Refined probabilities, or with ``argmax`` labels, of a network's output for an image.

    ``DenseCRF()(pred, image)`` takes ``(labels, *grid)`` and ``(channels, *grid)``, tensors or arrays, or a
    ``MetaTensor`` that is a batch of them. The result has the type, device and metadata of ``pred``, or the
    metadata of ``image`` if ``pred`` has none, so that it can be inverted and saved. With ``resize`` and
    another resolution, the affines of both say how they lie on each other, and the result has the metadata
    of the one whose grid it has.

    Args:
        from_logits: ``pred`` holds logits. One channel is the probability, or the logit, of label 1.
        argmax: return labels ``(1, *grid)`` as floating-point numbers, as ``AsDiscrete(argmax=True)`` does.
        units: of position bandwidths. ``"mm"`` takes the size of a voxel from the affine of ``pred``, or
            else of ``image``; one of them has to be a ``MetaTensor``.
        batched: the first axis of all inputs is a batch. By default it is so for a batch of ``MetaTensor``.
        arguments: ``preset``, ``kernels`` and any other argument of ``fwcrf.refine``.
    """

    backend: list[Any] = [TransformBackends.TORCH]  # noqa: RUF012 - as in MONAI

    def __init__(
        self,
        *,
        from_logits: bool = False,
        argmax: bool = False,
        units: Units = "mm",
        batched: bool | None = None,
        **arguments: Any,
    ) -> None:
        if units not in ("mm", "voxels"):
            raise ValueError(f"units={units!r} is not known; expected 'mm' or 'voxels'.")
        check_names(arguments, "DenseCRF", without=_OWN)
        self.from_logits: bool = from_logits
        self.argmax: bool = argmax
        self.units: Units = units
        self.batched: bool | None = batched
        self.arguments: dict[str, Any] = arguments

    def __call__(
        self, pred: Any, image: Any, *, keep: Any = None, ignore: Any = None, scribbles: Any = None
    ) -> Any:
        """Masks and scribbles are as in ``fwcrf.refine``, with an axis for their one channel."""
        p, i = (convert_to_tensor(one, track_meta=False) for one in (pred, image))
        masks = {"keep": keep, "ignore": ignore, "scribbles": scribbles}
        masks = {
            name: convert_to_tensor(one, track_meta=False) for name, one in masks.items() if one is not None
        }
        batched = self.batched
        if batched is None:
            batched = any(isinstance(one, MetaTensor) and one.is_batch for one in (pred, image))
        dims, resize = p.dim() - 1 - batched, self.arguments.get("resize")
        like = metadata_of(pred, image, dims, resize)
        where = places(pred, image, dims, len(p) if batched else 1, self.units, resize)
        if batched:
            each = [
                self._refined(p[k], i[k], place, {name: one[k] for name, one in masks.items()})
                for k, place in enumerate(where)
            ]
            found = torch.stack(each)
        else:
            found = self._refined(p, i, where[0], masks)
        return convert_to_dst_type(found, like, dtype=found.dtype)[0]

    def _refined(self, pred: Tensor, image: Tensor, place: Place, masks: dict[str, Tensor]) -> Tensor:
        whole = {"keep": torch.bool, "ignore": torch.bool, "scribbles": torch.int64}
        options = {**self.arguments, **{name: mask[0].to(whole[name]) for name, mask in masks.items()}}
        if place.align is not None:
            options["align"] = place.align
        half = pred.dtype in (torch.float16, torch.bfloat16)
        labels, likely = refine(
            image.to(pred.device), pred.float() if half else pred,
            from_logits=self.from_logits, spatial_dims=pred.dim() - 1, spacing=place.spacing,
            return_probabilities=True, **options,
        )  # fmt: skip
        return labels.unsqueeze(0).to(likely.dtype) if self.argmax else likely


class DenseCRFd(MapTransform):
    """``DenseCRF`` for entries of a dictionary: ``keys`` are the outputs of networks.

    ``keep_key``, ``ignore_key`` and ``scribbles_key`` name entries with masks, which may be missing. The
    other arguments are those of ``DenseCRF``.
    """

    backend: list[Any] = DenseCRF.backend

    def __init__(
        self,
        keys: KeysCollection,
        image_key: str = "image",
        *,
        keep_key: str | None = None,
        ignore_key: str | None = None,
        scribbles_key: str | None = None,
        allow_missing_keys: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.image_key = image_key
        self.mask_keys: dict[str, str | None] = {
            "keep": keep_key,
            "ignore": ignore_key,
            "scribbles": scribbles_key,
        }
        self.refiner: DenseCRF = DenseCRF(**arguments)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        found = dict(data)
        if self.image_key not in found:
            raise KeyError(
                f"image_key={self.image_key!r} of {type(self).__name__} is not in the data, which has "
                f"{', '.join(map(str, found))}; expected the image."
            )
        masks = {name: data[key] for name, key in self.mask_keys.items() if key is not None and key in data}
        for key in self.key_iterator(found):
            found[key] = self.refiner(found[key], data[self.image_key], **masks)
        return found

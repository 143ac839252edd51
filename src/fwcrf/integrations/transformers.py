"""Refinement of what models of Hugging Face transformers return, aligned with the images as they were fed.

=========================================  ===========================================================
SegFormer, BEiT, UperNet, DPT, ...         ``logits`` over the whole image, ``align_corners=False``
MaskFormer, Mask2Former, OneFormer         classes and masks of queries, over the image and its padding
SAM, SAM-HQ, SAM 2                         ``pred_masks``, mapped back by the processor itself
=========================================  ===========================================================

Nothing here imports transformers but ``Segmenter``, when it is called: outputs and processors are objects of
the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import fwcrf
from fwcrf.inputs.numbers import whole
from fwcrf.inputs.resample import Align, Alignment, aligned, needed, resample
from fwcrf.optional import needed as needed_package
from fwcrf.refinement import check_names

__all__ = ["Segmenter", "refine_masks", "refine_semantic"]

# Numbers per chunk of rows, of the masks of all queries at the size of the image.
_AT_ONCE = 1 << 25
# Arguments of ``fwcrf.refine`` that follow from the outputs.
_OWN = (
    "from_logits", "from_labels", "num_labels", "channel_axis", "spatial_dims", "resize", "align", "out",
)  # fmt: skip


def refine_semantic(
    outputs: Any,
    images: Any,
    processor: Any,
    *,
    inputs: Mapping[str, Any] | None = None,
    void: bool = False,
    return_probabilities: bool = False,
    **options: Any,
) -> Any:
    """Refined label maps ``(H, W)``, one for each image, as of ``post_process_semantic_segmentation``.

    Args:
        outputs: of a model for semantic segmentation (``logits``), or of a model that pairs classes with
            masks (``class_queries_logits`` and ``masks_queries_logits``).
        images: the image or the images that the processor was given, in their original sizes: of Pillow,
            arrays ``(H, W, 3)``, or tensors ``(3, H, W)``.
        processor: the processor, or image processor, of the model.
        inputs: the answer of the processor for these images. Without it, a processor that pads is
            called once more, to learn where the padding is.
        void: with classes and masks, return the number of classes as the label of pixels that no mask
            claims. Otherwise such pixels are uncertain, and get the label of their neighbourhood.
        return_probabilities: return also a list of the probabilities, ``(labels, H, W)``.
        options: further arguments of ``fwcrf.refine``.
    """
    check_names(options, "refine_semantic", without=_OWN)
    pictures = _pictures(images)
    image_processor = getattr(processor, "image_processor", processor)
    _check_crop(image_processor)
    classes, grids = _read_outputs(outputs)
    if len(grids) != len(pictures):
        raise ValueError(
            f"there are {len(pictures)} images, and outputs for {len(grids)}; expected as many, in the same "
            "order."
        )
    if void and classes is None:
        raise ValueError("void=True is for outputs with classes and masks of queries; these are logits.")
    canvases = _canvases(image_processor, images, inputs, len(pictures))
    labels, likely = [], []
    for index, (picture, canvas) in enumerate(zip(pictures, canvases, strict=True)):
        scores, size = grids[index].float(), _size(picture)
        keep, align = _placed(size, _size(scores), canvas)
        scores = scores[:, : keep[0], : keep[1]]
        if classes is None:
            # The number of labels tells refine that their axis is known.
            where: dict[str, Any] = {
                "from_logits": True, "num_labels": max(2, len(scores)), "resize": "scores", "align": align,
            }  # fmt: skip
        else:
            where = {}
            scores = _of_queries(classes[index].float(), scores, aligned(size, keep, align), void=void)
        found = fwcrf.refine(
            picture, scores, spatial_dims=2, return_probabilities=return_probabilities, **where, **options
        )
        labels.append(found[0] if return_probabilities else found)
        likely.append(found[1] if return_probabilities else None)
    return (labels, likely) if return_probabilities else labels


def refine_masks(
    outputs: Any,
    images: Any,
    processor: Any,
    *,
    inputs: Mapping[str, Any] | None = None,
    temperature: float = 1.0,
    **options: Any,
) -> list[Tensor]:
    """Refined masks of a SAM-like model: a list with booleans ``(prompts, masks, H, W)`` for each image.

    ``processor.post_process_masks`` brings the low-resolution logits to the image, without their padding.

    Args:
        outputs: of the model, or its ``pred_masks``, logits ``(images, prompts, masks, h, w)``.
        images: as for ``refine_semantic``.
        processor: as for ``refine_semantic``.
        inputs: as for ``refine_semantic``.
        temperature: a number by which logits are divided: SAM's are large, and the CRF changes only pixels
            that are not certain.
        options: further arguments of ``fwcrf.refine``, by default ``preset="binary"``.
    """
    check_names(options, "refine_masks", without=(*_OWN, "return_probabilities"))
    pictures, masks = _pictures(images), getattr(outputs, "pred_masks", outputs)
    if len(masks) != len(pictures) or masks[0].ndim != 4:
        raise ValueError(
            f"there are {len(pictures)} images, and masks of {len(masks)}, each with {masks[0].ndim} axes; "
            "expected as many, and (prompts, masks, h, w) each: pred_masks of the outputs."
        )
    image_processor = getattr(processor, "image_processor", processor)
    sizes = [_size(picture) for picture in pictures]
    arguments: dict[str, Any] = {"original_sizes": sizes, "binarize": False}
    if "reshaped_input_sizes" in signature(image_processor.post_process_masks).parameters:
        known = inputs if inputs is not None else image_processor(images=images, return_tensors="pt")
        arguments["reshaped_input_sizes"] = [tuple(map(int, one)) for one in known["reshaped_input_sizes"]]
    logits = image_processor.post_process_masks([one.float() for one in masks], **arguments)
    if "kernels" not in options:
        options = {"preset": "binary", **options}
    found = []
    for picture, one in zip(pictures, logits, strict=True):
        flat = one.reshape(-1, 1, *one.shape[-2:]) / temperature
        labels = fwcrf.refine(picture, flat, from_logits=True, spatial_dims=2, **options)
        found.append((labels == 1).view(one.shape))
    return found


class Segmenter:
    """A callable like the pipeline ``"image-segmentation"`` for semantic segmentation, with refined masks.

    Args:
        model: of any of the classes that ``refine_semantic`` knows.
        processor: its processor.
        batch_size: the number of images that the model gets at a time. 1 for images of different sizes, and
            a processor that keeps their proportions and does not pad.
        options: further arguments of ``refine_semantic``, such as ``void`` and ``preset``.
    """

    def __init__(self, model: Any, processor: Any, *, batch_size: int = 4, **options: Any) -> None:
        named = [name for name in options if name != "void"]
        check_names(named, "Segmenter", without=(*_OWN, "return_probabilities"))
        self.model = model
        self.processor = processor
        self.batch_size: int = whole(batch_size, "batch_size", 1, "images at a time")
        self.options = options

    def __call__(self, images: Any) -> list[Any]:
        """Segments of the image or of each image: ``{"score": None, "label": name, "mask": Image}``.

        Images are of Pillow, of any mode, or arrays, or anything that
        ``transformers.image_utils.load_image`` loads, or a batch of them as one array.
        """
        if not isinstance(images, list | tuple) and getattr(images, "ndim", 3) != 4:
            return self([images])[0]
        return [self._segments(labels) for labels in self.labels(images)]

    def labels(self, images: Sequence[Any]) -> Iterator[Tensor]:
        """Refined label maps ``(H, W)``, one image after the other."""
        load = needed_package("transformers.image_utils", "transformers").load_image
        for first in range(0, len(images), self.batch_size):
            part = [
                image if hasattr(image, "shape") else load(image)
                for image in images[first : first + self.batch_size]
            ]
            more = {}
            if self.model.config.model_type == "oneformer":
                more["task_inputs"] = ["semantic"] * len(part)
            # A dtype is for floating-point inputs only.
            inputs = self._processed(part, more).to(self.model.device, dtype=self.model.dtype)
            with torch.no_grad():
                outputs = self.model(**inputs)
            yield from refine_semantic(outputs, part, self.processor, inputs=inputs, **self.options)

    def _processed(self, images: list[Any], more: dict[str, Any]) -> Any:
        try:
            return self.processor(images=images, return_tensors="pt", **more)
        except (ValueError, RuntimeError) as error:
            if len({_size(picture) for picture in _pictures(images)}) == 1:
                raise
            raise ValueError(
                f"batch_size={self.batch_size}, and {type(self.processor).__name__} makes no batch of images "
                "of different sizes; expected batch_size=1, or a processor that pads or has one size."
            ) from error

    def _segments(self, labels: Tensor) -> list[dict[str, Any]]:
        Image = needed_package("PIL.Image", "transformers")
        names, found = self.model.config.id2label, labels.cpu().numpy()
        return [
            {
                "score": None,
                "label": names.get(int(label), "void"),
                "mask": Image.fromarray(((found == label) * 255).astype(np.uint8)),
            }
            for label in np.unique(found)
        ]


class Canvas(NamedTuple):
    """The input of a model: its size, and the size of the image in its top left corner."""

    size: tuple[int, int]
    image: tuple[int, int]


def _pictures(images: Any) -> list[Any]:
    """The images as ``fwcrf.refine`` takes them: tensors with channels first, arrays with channels last."""
    if isinstance(images, list | tuple):
        return [_picture(image) for image in images]
    if getattr(images, "ndim", 3) == 4:
        return [_picture(image) for image in images]
    return [_picture(images)]


def _picture(image: Any) -> Any:
    if isinstance(image, Tensor):
        return image
    values = np.asarray(image.convert("RGB") if hasattr(image, "convert") else image)
    if values.ndim == 2:
        return values[..., None]
    return np.moveaxis(values, 0, -1) if values.shape[0] in (1, 3) and values.shape[-1] > 4 else values


def _size(picture: Any) -> tuple[int, int]:
    height, width = picture.shape[-2:] if isinstance(picture, Tensor) else picture.shape[:2]
    return int(height), int(width)


def _read_outputs(outputs: Any) -> tuple[Tensor | None, Tensor]:
    """The classes of queries, ``(images, queries, classes + 1)``, or None; and logits of all pixels."""
    classes = getattr(outputs, "class_queries_logits", None)
    if classes is not None:
        return classes, outputs.masks_queries_logits
    logits: Any = getattr(outputs, "logits", None)
    if isinstance(logits, Tensor) and logits.ndim == 4:
        return None, logits
    raise TypeError(
        f"outputs is a {type(outputs).__name__}; expected logits (images, labels, h, w), or "
        "class_queries_logits and masks_queries_logits. For SAM's masks: refine_masks."
    )


def _check_crop(processor: Any) -> None:
    """Refuse a processor that cuts parts of images off."""
    name = type(processor).__name__
    if getattr(processor, "do_center_crop", None):
        raise ValueError(
            f"{name} crops the centre of images (do_center_crop=True), so that the scores do not cover the "
            "images; expected a processor without: set processor.do_center_crop = False before images are "
            "processed."
        )
    # ConvNeXT's resizes small images to more than their size, and crops, without that argument.
    if hasattr(processor, "crop_pct") and hasattr(processor, "size") and processor.do_resize:
        edge = processor.size["shortest_edge"]
        if edge < 384 and getattr(processor, "do_center_crop", None) is None:
            raise ValueError(
                f"{name} crops the centre of images at size={{'shortest_edge': {edge}}}, so that the "
                "scores do not cover the images; expected 384 or more, or a processor for segmentation."
            )


def _canvases(
    processor: Any, images: Any, inputs: Mapping[str, Any] | None, count: int
) -> Sequence[Canvas | None]:
    """The canvas of each image; None for an image that fills it."""
    if inputs is None and "pixel_mask" in getattr(processor, "model_input_names", ()):
        inputs = processor(images=images, return_tensors="pt")
    mask = None if inputs is None else inputs.get("pixel_mask")
    if mask is not None:
        pixels = torch.as_tensor(mask, dtype=torch.bool, device="cpu")
        return [Canvas(_size(one), (int(one.any(1).sum()), int(one.any(0).sum()))) for one in pixels]
    for name in ("do_pad", "do_split_image"):
        if getattr(processor, name, None):
            raise ValueError(
                f"{type(processor).__name__} has {name}=True, and its answer has no pixel_mask, so that the "
                f"place of the scores on the images is not known; expected {name}=False. Or take the scores "
                "from post_process_semantic_segmentation(..., return_segmentation_scores=True), and pass "
                "them to fwcrf.refine."
            )
    return [None] * count


def _placed(
    size: tuple[int, int], grid: tuple[int, int], canvas: Canvas | None
) -> tuple[tuple[int, int], Align]:
    """The number of samples that lie on the image, per axis, and their place on it.

    >>> _placed((100, 60), (32, 32), Canvas((128, 128), (50, 30)))
    ((13, 8), ((8.0, 8.0), (3.5, 3.5)))
    """
    if canvas is None or canvas.image == canvas.size:
        return grid, "centers"
    keep, strides, offsets = [], [], []
    for pixels, samples, fed, all_fed in zip(size, grid, canvas.image, canvas.size, strict=True):
        stride = all_fed / samples * pixels / fed
        offset = stride / 2 - 0.5
        keep.append(min(samples, max(1, math.ceil((pixels - 1 - offset) / stride) + 1)))
        strides.append(stride)
        offsets.append(offset)
    return (keep[0], keep[1]), (tuple(strides), tuple(offsets))


def _of_queries(classes: Tensor, masks: Tensor, alignment: Alignment, *, void: bool) -> Tensor:
    """Probabilities ``(labels, H, W)`` from class logits ``(queries, classes + 1)`` and mask logits.

    The mass of a class is the sum over queries of its probability times that of the mask, as in
    ``post_process_semantic_segmentation``, of mask logits at the size of the image. Mass that is missing
    to 1 belongs to no class.
    """
    weights = classes.softmax(-1)[:, :-1]
    height, width = (axis.size for axis in alignment)
    mass = masks.new_empty(weights.shape[1], height, width)
    rows = max(1, _AT_ONCE // (len(weights) * width))
    last = masks.permute(1, 2, 0)
    for top in range(0, height, rows):
        window = slice(top, min(top + rows, height)), slice(0, width)
        part = last[needed(window, alignment)]
        mass[:, window[0]] = (resample(part, window, alignment).sigmoid() @ weights).permute(2, 0, 1)
    total = mass.sum(0, keepdim=True)
    missing = (1 - total).clamp(min=0)
    # fwcrf.refine takes 0 for 1e-8 too, and warns, which is meant for scores of users.
    mass = torch.cat([mass, missing.clamp(min=1e-8)]) if void else mass.add_(missing / len(mass))
    return mass.div_(total + missing)

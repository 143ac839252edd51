"""Outputs of models of Hugging Face transformers: small ones of the real classes, with random weights."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

import fwcrf
from fwcrf import hf
from fwcrf.examples import load
from fwcrf.kernels import Spatial

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = [(50, 70), (64, 40)]
SWIN = {
    "model_type": "swin",
    "image_size": 64,
    "embed_dim": 8,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 1, 1, 1],
    "window_size": 4,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
FEW = {"encoder_feedforward_dim": 16, "dim_feedforward": 16, "encoder_layers": 1, "num_attention_heads": 2}
TINY = {"hidden_size": 16, "mlp_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def images():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


@pytest.fixture(scope="module", autouse=True)
def seed():
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def segformer():
    config = transformers.SegformerConfig(
        num_labels=5, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
    )  # fmt: skip
    processor = transformers.SegformerImageProcessor(size={"height": 64, "width": 64})
    return transformers.SegformerForSemanticSegmentation(config).eval(), processor


def mask2former():
    config = transformers.Mask2FormerConfig(
        backbone_config={**SWIN}, hidden_dim=32, feature_size=32, mask_feature_size=32, decoder_layers=2,
        num_queries=6, num_labels=5, **FEW,
    )  # fmt: skip
    return transformers.Mask2FormerForUniversalSegmentation(config), transformers.Mask2FormerImageProcessor


def maskformer():
    decoder = {
        "model_type": "detr", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "num_queries": 6,
        "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    }  # fmt: skip
    config = transformers.MaskFormerConfig(
        backbone_config={**SWIN},
        mask_feature_size=32,
        fpn_feature_size=32,
        decoder_config=decoder,
        num_labels=5,
    )
    return transformers.MaskFormerForInstanceSegmentation(config), transformers.MaskFormerImageProcessor


def oneformer():
    config = transformers.OneFormerConfig(
        backbone_config={**SWIN}, num_queries=6, conv_dim=32, mask_dim=32, hidden_dim=32, decoder_layers=2,
        query_dec_layers=1, text_encoder_width=16, text_encoder_num_layers=1, text_encoder_vocab_size=50,
        task_seq_len=7, num_labels=5, **FEW,
    )  # fmt: skip
    return transformers.OneFormerForUniversalSegmentation(config), transformers.OneFormerImageProcessor


# --- logits ---------------------------------------------------------------------------------------


def test_logits_of_images_of_several_sizes_lie_where_transformers_puts_them(segformer):
    model, processor = segformer
    with torch.no_grad():
        outputs = model(**processor(images=images(), return_tensors="pt"))
    outputs.logits = outputs.logits * 100
    without = hf.refine_semantic(outputs, images(), processor, num_steps=0)
    theirs = processor.post_process_semantic_segmentation(outputs, target_sizes=SIZES)
    for ours, same in zip(without, theirs, strict=True):
        assert torch.equal(ours, same) and len(ours.unique()) > 1
    refined, likely = hf.refine_semantic(outputs, images(), processor, return_probabilities=True)
    for image, logits, labels, p in zip(images(), outputs.logits, refined, likely, strict=True):
        assert torch.equal(labels, fwcrf.refine(image, logits, from_logits=True, resize="scores"))
        assert torch.equal(labels, p.argmax(0))


def test_stored_scores_of_a_network_are_refined_as_without_transformers(segformer):
    from transformers.modeling_outputs import SemanticSegmenterOutput

    example = load("chelsea", upsample=False)
    logits = torch.from_numpy(example.logits).permute(2, 0, 1)
    photo = Image.fromarray(example.image)
    (labels,) = hf.refine_semantic(SemanticSegmenterOutput(logits=logits[None]), photo, segformer[1])
    plain = fwcrf.refine(example.image, example.logits, from_logits=True, resize="scores")
    assert np.array_equal(labels.numpy(), plain)
    assert labels.unique().tolist() == [0, 8]  # background and cat


def test_a_callable_like_the_pipeline(segformer):
    model, processor = segformer
    segmenter = hf.Segmenter(model, processor, batch_size=1, kernels=[Spatial(3.0)])
    pictures = [Image.fromarray(one) for one in images()]
    found = segmenter(pictures)
    assert [len(segments) > 0 for segments in found] == [True, True]
    alone = segmenter(pictures[1])
    assert [one["label"] for one in alone] == [one["label"] for one in found[1]]
    pipe = transformers.pipeline("image-segmentation", model=model, image_processor=processor)
    theirs = pipe(pictures[1], subtask="semantic")
    assert alone[0].keys() == theirs[0].keys() and alone[0]["mask"].mode == theirs[0]["mask"].mode
    assert {one["label"] for one in alone} <= set(model.config.id2label.values())
    cover = sum(np.asarray(one["mask"]).astype(int) for one in alone)
    assert cover.shape == SIZES[1] and (cover == 255).all()


def standard(logits):
    """Logits of a network without training, on the scale of a trained one."""
    centred = logits - logits.mean((2, 3), keepdim=True)
    return 4 * centred / centred.std((2, 3), keepdim=True)


SMALL = {
    "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 64, "patch_size": 16, "num_labels": 4,
}  # fmt: skip
INPUT = {"size": {"height": 64, "width": 64}}


def beit():
    config = transformers.BeitConfig(**SMALL, out_indices=[1, 2, 3, 4], use_auxiliary_head=False)
    return transformers.BeitForSemanticSegmentation(config), transformers.BeitImageProcessor(
        **INPUT, do_center_crop=False
    )


def dpt():
    config = transformers.DPTConfig(
        **SMALL, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8] * 4, fusion_hidden_size=8,
        is_hybrid=False, use_auxiliary_head=False,
    )  # fmt: skip
    return transformers.DPTForSemanticSegmentation(config), transformers.DPTImageProcessor(**INPUT)


def upernet():
    stages = ["stage1", "stage2", "stage3", "stage4"]
    backbone = transformers.ConvNextConfig(hidden_sizes=[8] * 4, depths=[1] * 4, out_features=stages)
    config = transformers.UperNetConfig(
        backbone_config=backbone, num_labels=4, hidden_size=8, use_auxiliary_head=False
    )
    return transformers.UperNetForSemanticSegmentation(config), transformers.SegformerImageProcessor(**INPUT)


@pytest.mark.parametrize("make", [beit, dpt, upernet])
def test_other_models_with_logits(make):
    """On images larger than the logits: for smaller ones transformers skips samples."""
    model, processor = make()
    large = [image.repeat(2, 0).repeat(2, 1) for image in images()]
    with torch.no_grad():
        outputs = model.eval()(**processor(images=large, return_tensors="pt"))
    outputs.logits = standard(outputs.logits)
    ours = hf.refine_semantic(outputs, large, processor, num_steps=0)
    sizes = [image.shape[:2] for image in large]
    theirs = processor.post_process_semantic_segmentation(outputs, target_sizes=sizes)
    for labels, same in zip(ours, theirs, strict=True):
        assert torch.equal(labels, same) and len(labels.unique()) > 1


def test_a_model_in_half_precision_gets_its_dtype(segformer):
    model, processor = segformer
    half = type(model)(model.config).to(torch.bfloat16).eval()
    (segments,) = hf.Segmenter(half, processor, kernels=[Spatial(3.0)])(images()[:1])
    pipe = transformers.pipeline("image-segmentation", model=half, image_processor=processor)
    assert segments[0].keys() == pipe(Image.fromarray(images()[0]), subtask="semantic")[0].keys()


def test_a_processor_that_crops_or_pads_without_a_mask_is_refused(segformer):
    from transformers.modeling_outputs import SemanticSegmenterOutput

    outputs = SemanticSegmenterOutput(logits=torch.zeros(2, 3, 8, 8))
    for change, message in (
        ({"do_center_crop": True}, r"crops the centre of images .* set processor\.do_center_crop = False"),
        ({"do_pad": True}, "do_pad=True, and its answer has no pixel_mask"),
    ):
        processor = transformers.SegformerImageProcessor(size={"height": 64, "width": 64})
        for name, value in change.items():
            setattr(processor, name, value)
        with pytest.raises(ValueError, match=message):
            hf.refine_semantic(outputs, images(), processor)


@pytest.mark.parametrize(("labels", "shape"), [(150, (600, 512)), (3, (300, 451)), (1, (300, 451))])
def test_the_axis_of_labels_is_known_whatever_the_proportions(segformer, labels, shape):
    """An image made square, whose grid of 150 x 128 would fit it; and a grid of 2 x 3 with 3 labels."""
    from transformers.modeling_outputs import SemanticSegmenterOutput

    grid = (128, 128) if labels == 150 else (2, 3)
    logits = torch.zeros(1, labels, *grid)
    logits[:, int(labels > 1), :, grid[1] // 2 :] = 2.0  # one channel is label 1
    image = np.full((*shape, 3), 40, np.uint8)
    image[:, shape[1] // 2 :] = 200
    (found,) = hf.refine_semantic(
        SemanticSegmenterOutput(logits=logits), image, segformer[1], kernels=[Spatial(3.0)], num_steps=1
    )
    assert tuple(found.shape) == shape and found[0, -1] == 1


@pytest.mark.parametrize(("size", "crops"), [(224, True), (384, False)])
def test_a_processor_that_crops_by_its_size_is_refused(segformer, size, crops):
    processor = transformers.ConvNextImageProcessor(size={"shortest_edge": size})
    with torch.no_grad():
        outputs = segformer[0](processor(images=images(), return_tensors="pt")["pixel_values"])
    if crops:
        with pytest.raises(ValueError, match=r"crops .*\{'shortest_edge': 224\}.*; expected 384 or more"):
            hf.refine_semantic(outputs, images(), processor)
    else:
        assert [tuple(one.shape) for one in hf.refine_semantic(outputs, images(), processor)] == SIZES


def test_images_of_every_mode_and_arrays_of_several_images(segformer):
    segmenter = hf.Segmenter(*segformer, kernels=[Spatial(3.0)])
    picture = Image.fromarray(images()[0])
    for mode in ("L", "P", "RGBA", "CMYK"):
        given = picture.convert(mode)
        found, expected = segmenter(given), segmenter(given.convert("RGB"))
        assert [one["label"] for one in found] == [one["label"] for one in expected]
        assert [one["mask"].tobytes() for one in found] == [one["mask"].tobytes() for one in expected]
    turned = Image.fromarray(images()[0])
    turned.getexif()[0x0112] = 6  # a camera held upright, as the pipeline of transformers takes it
    assert segmenter(turned)[0]["mask"].size == SIZES[0]
    assert len(segmenter(np.stack([images()[0]] * 2))) == 2


def test_sizes_that_make_no_batch_need_batches_of_one(segformer):
    processor = transformers.DPTImageProcessor(
        size={"height": 64, "width": 64}, keep_aspect_ratio=True, ensure_multiple_of=32
    )
    pictures = [Image.fromarray(one) for one in (images()[0][:20], images()[1])]
    with pytest.raises(ValueError, match=r"batch_size=4, and DPT.* different sizes; expected batch_size=1"):
        hf.Segmenter(segformer[0], processor)(pictures)
    found = hf.Segmenter(segformer[0], processor, batch_size=1, kernels=[Spatial(3.0)])(pictures)
    assert [one[0]["mask"].size for one in found] == [(70, 20), (40, 64)]


def test_arguments_that_have_no_place_are_named(segformer):
    from transformers.modeling_outputs import SemanticSegmenterOutput

    for name in ("return_probabilities", "inputs", "presets", "align"):
        with pytest.raises(TypeError, match=f"{name}= is no argument of Segmenter; expected preset"):
            hf.Segmenter(*segformer, **{name: None})
    with pytest.raises(ValueError, match="batch_size=0"):
        hf.Segmenter(*segformer, batch_size=0)
    one = SemanticSegmenterOutput(logits=torch.zeros(1, 3, 8, 8))
    with pytest.raises(TypeError, match=r"resize= is no argument of refine_semantic"):
        hf.refine_semantic(one, images()[:1], segformer[1], resize="image")
    with pytest.raises(TypeError, match=r"return_probabilities= is no argument of refine_masks"):
        hf.refine_masks(torch.zeros(1, 1, 1, 8, 8), images()[:1], segformer[1], return_probabilities=True)


def test_wrong_outputs_are_named(segformer):
    from transformers.modeling_outputs import BaseModelOutput, SemanticSegmenterOutput

    processor = segformer[1]
    one = SemanticSegmenterOutput(logits=torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="there are 2 images, and outputs for 1"):
        hf.refine_semantic(one, images(), processor)
    with pytest.raises(ValueError, match="void=True is for outputs with classes"):
        hf.refine_semantic(one, images()[:1], processor, void=True)
    with pytest.raises(TypeError, match=r"outputs is a BaseModelOutput; expected logits"):
        hf.refine_semantic(BaseModelOutput(torch.zeros(1, 4, 8)), images()[:1], processor)
    with pytest.raises(ValueError, match=r"masks of 1, each with 2 axes; expected"):
        hf.refine_masks(torch.zeros(1, 3, 8, 8)[:, 0], images()[:1], processor)


# --- classes and masks of queries -----------------------------------------------------------------


@pytest.mark.parametrize("make", [mask2former, maskformer, oneformer])
def test_classes_and_masks_become_probabilities_as_in_transformers(make, tmp_path):
    """For a batch without padding, whose masks transformers places correctly too."""
    model, kind = make()
    model.eval()
    more = {}
    if make is oneformer:
        names = {str(label): {"isthing": 0, "name": str(label)} for label in range(5)}
        (tmp_path / "classes.json").write_text(json.dumps(names))
        more = {"repo_path": str(tmp_path), "class_info_file": "classes.json"}
    processor = kind(size={"shortest_edge": 64, "longest_edge": 100}, **more)
    batch = [images()[0], images()[0][::-1].copy()]
    inputs = processor(images=batch, return_tensors="pt")
    if make is oneformer:
        inputs["task_inputs"] = torch.zeros(2, 7, dtype=torch.long)
    with torch.no_grad():
        outputs = model(**inputs)
    random = torch.Generator().manual_seed(1)
    shape = outputs.masks_queries_logits.shape
    coarse = 4 * torch.randn(*shape[:2], 4, 4, generator=random)
    outputs.masks_queries_logits = interpolate(coarse, shape[-2:], mode="bilinear")
    outputs.class_queries_logits = 3 * torch.randn(outputs.class_queries_logits.shape, generator=random)
    found = hf.refine_semantic(
        outputs, batch, processor, num_steps=0, return_probabilities=True, inputs=inputs
    )
    theirs = processor.post_process_semantic_segmentation(outputs, target_sizes=SIZES[:1] * 2)
    masks = interpolate(outputs.masks_queries_logits, SIZES[0], mode="bilinear").sigmoid()
    weights = outputs.class_queries_logits.softmax(-1)[..., :-1]
    for labels, p, same, mass in zip(
        *found, theirs, torch.einsum("bqc,bqhw->bchw", weights, masks), strict=True
    ):
        missing = (1 - mass.sum(0)).clamp(min=0)
        torch.testing.assert_close(p, (mass + missing / 5) / (mass.sum(0) + missing), rtol=1e-4, atol=1e-5)
        # They interpolate probabilities, and 384 by 384 masks, rather than the masks' logits.
        assert (labels == same).float().mean() > 0.97 and len(labels.unique()) > 1


def test_masks_over_a_padded_batch_lie_on_their_images():
    """transformers stretches the padding over the image, and puts the object elsewhere."""
    from transformers.models.mask2former.modeling_mask2former import Mask2FormerForUniversalSegmentationOutput

    processor = transformers.Mask2FormerImageProcessor(size={"shortest_edge": 64, "longest_edge": 100})
    inputs = processor(images=images(), return_tensors="pt")
    height, width = inputs["pixel_mask"].shape[-2:]
    fed = [(int(one.any(1).sum()), int(one.any(0).sum())) for one in inputs["pixel_mask"]]
    assert fed == [(64, 96), (128, 64)] and (height, width) == (128, 96)
    truth, masks = [], torch.full((2, 2, height // 4, width // 4), -8.0)
    for index, ((h, w), (fed_h, fed_w)) in enumerate(zip(SIZES, fed, strict=True)):
        object = torch.zeros(1, 1, h, w)
        object[..., h // 4 : h // 2, w // 2 :] = 1
        truth.append(object[0, 0].bool())
        small = interpolate(object, (fed_h // 4, fed_w // 4), mode="bilinear", antialias=True)[0, 0]
        masks[index, 1, : fed_h // 4, : fed_w // 4] = 16 * small - 8
    masks[:, 0] = -masks[:, 1]
    classes = torch.tensor([[9.0, 0, 0], [0, 9.0, 0]]).expand(2, 2, 3)
    outputs = Mask2FormerForUniversalSegmentationOutput(
        class_queries_logits=classes, masks_queries_logits=masks
    )
    theirs = processor.post_process_semantic_segmentation(outputs, target_sizes=SIZES)
    for given in (None, inputs):
        ours = hf.refine_semantic(outputs, images(), processor, inputs=given, num_steps=0)
        for labels, right, wrong in zip(ours, truth, theirs, strict=True):
            iou = [((one == 1) & right).sum() / ((one == 1) | right).sum() for one in (labels.bool(), wrong)]
            assert iou[0] > 0.85 > 0.5 > iou[1]


def test_pixels_that_no_mask_claims_are_void_or_follow_their_neighbours(segformer):
    from transformers.models.maskformer.modeling_maskformer import MaskFormerForInstanceSegmentationOutput

    masks = torch.full((1, 2, 20, 30), -4.0)
    masks[:, 0, :, :14] = 4
    masks[:, 1, :, 16:] = 4
    outputs = MaskFormerForInstanceSegmentationOutput(
        class_queries_logits=torch.tensor([[[4.0, 0, 0], [0, 4.0, 0]]]), masks_queries_logits=masks
    )
    processor = transformers.MaskFormerImageProcessor()
    inputs = {"pixel_mask": torch.ones(1, 80, 120)}
    image = np.full((20, 30, 3), 40, np.uint8)
    image[:, 15:] = 200
    for void, middle, more in ((True, 2, {"num_steps": 0}), (False, 0, {})):
        (labels,) = hf.refine_semantic(outputs, image, processor, inputs=inputs, void=void, **more)
        assert labels[10, [3, 14, 27]].tolist() == [0, middle, 1]


def test_pixels_that_several_masks_claim_are_not_void_and_give_no_warning():
    from transformers.models.maskformer.modeling_maskformer import MaskFormerForInstanceSegmentationOutput

    masks = torch.full((1, 2, 20, 30), 4.0)
    outputs = MaskFormerForInstanceSegmentationOutput(
        class_queries_logits=torch.tensor([[[2.0, 1, -3], [1, 0, -3]]]), masks_queries_logits=masks
    )
    image, inputs = np.full((20, 30, 3), 40, np.uint8), {"pixel_mask": torch.ones(1, 20, 30)}
    processor = transformers.MaskFormerImageProcessor()
    (labels,), (p,) = hf.refine_semantic(
        outputs, image, processor, inputs=inputs, void=True, return_probabilities=True
    )
    assert not labels.any() and len(p) == 3 and p[2].max() < 1e-6


@pytest.mark.parametrize("make", [mask2former, oneformer])
def test_the_callable_for_images_of_several_sizes_in_one_batch(make, tmp_path):
    """OneFormer's processor has a tokenizer, for the task."""
    model, kind = make()
    size, options = {"shortest_edge": 64, "longest_edge": 100}, {"kernels": [Spatial(3.0)]}
    if make is oneformer:
        names = {str(label): {"isthing": 0, "name": str(label)} for label in range(5)}
        (tmp_path / "classes.json").write_text(json.dumps(names))
        letters = [chr(code) for code in range(33, 127)]
        words = [*letters, *(f"{one}</w>" for one in letters), "<|startoftext|>", "<|endoftext|>"]
        tokens = transformers.CLIPTokenizer(vocab={word: k for k, word in enumerate(words)}, merges=[])
        processor = transformers.OneFormerProcessor(
            kind(size=size, repo_path=str(tmp_path), class_info_file="classes.json"), tokens,
            max_seq_length=7, task_seq_length=7,
        )  # fmt: skip
    else:
        processor = kind(size=size)
    both = hf.Segmenter(model.eval(), processor, **options)([Image.fromarray(one) for one in images()])
    for segments, (height, width) in zip(both, SIZES, strict=True):
        cover = sum(np.asarray(one["mask"]).astype(int) for one in segments)
        assert cover.shape == (height, width) and (cover == 255).all()


# --- masks ----------------------------------------------------------------------------------------


PROMPTS = {"hidden_size": 16, "image_size": 64, "mask_input_channels": 4}


def prompted():
    return [[[30.0, 20.0]], [[10.0, 30.0]]]


def spread(masks):
    """Logits of a network without training, on the scale of a trained one."""
    flat = masks.flatten(-2)
    return ((flat - flat.mean(-1, keepdim=True)) / flat.std(-1, keepdim=True) * 4).view(masks.shape)


def test_masks_of_sam_are_refined_at_the_size_of_the_image():
    config = transformers.SamConfig(
        vision_config={
            **TINY, "output_channels": 16, "image_size": 64, "patch_size": 8, "window_size": 4,
            "global_attn_indexes": [0], "num_pos_feats": 8,
        },
        prompt_encoder_config={**PROMPTS, "patch_size": 8},
        mask_decoder_config={**TINY, "iou_head_hidden_dim": 16},
    )  # fmt: skip
    model = transformers.SamModel(config).eval()
    processor = transformers.SamProcessor(
        transformers.SamImageProcessor(
            size={"longest_edge": 64}, pad_size={"height": 64, "width": 64}, do_pad=True
        )
    )
    inputs = processor(images=images(), input_points=prompted(), return_tensors="pt")
    sizes = {name: inputs.pop(name) for name in ("original_sizes", "reshaped_input_sizes")}
    with torch.no_grad():
        outputs = model(**inputs)
    outputs.pred_masks = spread(outputs.pred_masks)
    theirs = processor.post_process_masks(outputs.pred_masks, **sizes)
    for given in (None, sizes):
        ours = hf.refine_masks(outputs, images(), processor, inputs=given, num_steps=0)
        assert [tuple(one.shape) for one in ours] == [(1, 3, *size) for size in SIZES]
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    refined = hf.refine_masks(outputs, images(), processor, inputs=sizes, temperature=4)
    assert any((a != b).any() for a, b in zip(refined, ours, strict=True))


def test_masks_of_sam_hq_are_refined_at_the_size_of_the_image():
    config = transformers.SamHQConfig(
        vision_config={
            **TINY, "output_channels": 16, "image_size": 64, "patch_size": 8, "window_size": 4,
            "global_attn_indexes": [0], "num_pos_feats": 8,
        },
        prompt_encoder_config={**PROMPTS, "patch_size": 8},
        mask_decoder_config={**TINY, "iou_head_hidden_dim": 16, "vit_dim": 16},
    )  # fmt: skip
    model = transformers.SamHQModel(config).eval()
    processor = transformers.SamHQProcessor(
        transformers.SamImageProcessor(
            size={"longest_edge": 64}, pad_size={"height": 64, "width": 64}, do_pad=True
        )
    )
    boxes = [[[1.0, 2, 30, 40], [5, 5, 20, 30]], [[1.0, 2, 30, 40], [3, 3, 9, 9]]]
    inputs = processor(images=images(), input_boxes=boxes, return_tensors="pt")
    sizes = {name: inputs.pop(name) for name in ("original_sizes", "reshaped_input_sizes")}
    with torch.no_grad():
        outputs = model(**inputs, multimask_output=False)
    outputs.pred_masks = spread(outputs.pred_masks)
    ours = hf.refine_masks(outputs, images(), processor, num_steps=0)
    theirs = processor.post_process_masks(outputs.pred_masks, **sizes)
    assert [tuple(one.shape) for one in ours] == [(2, 1, *size) for size in SIZES]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


class Sam2Processing:
    """The part of Sam2ImageProcessor that is used: it needs torchvision, which `make integrations` has."""

    def post_process_masks(self, masks, original_sizes, mask_threshold=0.0, binarize=True, **kwargs):
        found = [
            interpolate(one, size, mode="bilinear") for one, size in zip(masks, original_sizes, strict=True)
        ]
        return [one > mask_threshold for one in found] if binarize else found


def with_torchvision():
    return transformers.utils.is_torchvision_available()


def sam_2_processor():
    """The processor of SAM 2 and what it makes of the images, or the same by hand without torchvision."""
    if not with_torchvision():
        known = {
            "pixel_values": torch.randn(2, 3, 64, 64),
            "input_points": torch.tensor(prompted())[:, None],
            "input_labels": torch.ones(2, 1, 1).int(),
        }
        return Sam2Processing(), known
    size = {"height": 64, "width": 64}
    images_ = transformers.Sam2ImageProcessor(size=size, mask_size={"height": 16, "width": 16})
    processor = transformers.Sam2Processor(images_)
    points = [[one] for one in prompted()]
    known = processor(images=images(), input_points=points, input_labels=[[[1]], [[1]]], return_tensors="pt")
    assert known.pop("original_sizes").tolist() == [list(size) for size in SIZES]
    return processor, known


@pytest.mark.skipif("not with_torchvision()", reason="torchvision is not installed: make integrations")
def test_the_stand_in_for_the_processor_of_sam_2_answers_like_it():
    masks = torch.randn(2, 1, 3, 16, 16)
    real, ours = transformers.Sam2ImageProcessor(), Sam2Processing()
    for more in ({}, {"binarize": False}):
        each = (one.post_process_masks(masks, original_sizes=SIZES, **more) for one in (real, ours))
        assert all(torch.equal(a, b) for a, b in zip(*each, strict=True))


def test_masks_of_sam_2_are_refined_at_the_size_of_the_image():
    backbone = {
        "model_type": "sam2_hiera_det_model", "hidden_size": 8, "num_attention_heads": 1,
        "blocks_per_stage": [1, 2, 7, 2], "embed_dim_per_stage": [8, 16, 32, 64],
        "num_attention_heads_per_stage": [1, 1, 1, 1], "image_size": [64, 64],
    }  # fmt: skip
    vision = transformers.Sam2VisionConfig(
        backbone_config=backbone, backbone_channel_list=[64, 32, 16, 8], fpn_hidden_size=16,
        backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
    )  # fmt: skip
    config = transformers.Sam2Config(
        vision_config=vision,
        prompt_encoder_config={**PROMPTS, "patch_size": 16},
        mask_decoder_config={**TINY, "iou_head_hidden_dim": 16},
    )  # fmt: skip
    model, (processor, known) = transformers.Sam2Model(config).eval(), sam_2_processor()
    with torch.no_grad():
        outputs = model(**known)
    outputs.pred_masks = spread(outputs.pred_masks)
    ours = hf.refine_masks(outputs, images(), processor, num_steps=0)
    theirs = processor.post_process_masks(outputs.pred_masks, SIZES)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    # One image beside many masks: each is refined as if it were alone.
    (all_,) = hf.refine_masks(outputs.pred_masks[:1], images()[:1], processor)
    for index in range(3):
        alone = hf.refine_masks(outputs.pred_masks[:1, :, index : index + 1], images()[:1], processor)
        assert torch.equal(all_[:, index], alone[0][:, 0])

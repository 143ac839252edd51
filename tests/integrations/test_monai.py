"""Transforms and the block beside MONAI's own classes."""

import inspect

import numpy as np
import pytest
import torch

import fwcrf
from fwcrf.kernels import Bilateral, Exact, Spatial

monai = pytest.importorskip("monai", reason="MONAI is not installed: pip install 'fwcrf[monai]'")
from monai.data import MetaTensor, decollate_batch, list_data_collate  # noqa: E402
from monai.networks import blocks  # noqa: E402
from monai.transforms import (  # noqa: E402
    AsDiscreted,
    Compose,
    EnsureChannelFirstd,
    Invertd,
    LoadImaged,
    SaveImaged,
    Spacingd,
)

from fwcrf.integrations.monai import CRF, DenseCRF, DenseCRFd  # noqa: E402

# Where pydicom is, MONAI's loaders would rather decode on a GPU, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:NvImgCodec")
KERNELS = (Spatial(2.0), Bilateral(8.0, 40.0, weight=3.0))
AFFINE = torch.tensor(
    [[-0.8, 0, 0, 5], [0, 0.7, -1.0, 3], [0, 0.3, 2.5, 1], [0, 0, 0, 1.0]], dtype=torch.float64
)
SPACING = tuple(torch.linalg.vector_norm(AFFINE[:3, :3], dim=0).tolist())


def volume(shape=(9, 10, 7), labels=3):
    generator = torch.Generator().manual_seed(0)
    truth = torch.linspace(0, labels - 0.01, shape[0]).long().view(-1, *[1] * (len(shape) - 1)).expand(shape)
    image = 80.0 * truth.unsqueeze(0) + 20 * torch.randn((1, *shape), generator=generator)
    logits = torch.nn.functional.one_hot(truth, labels).movedim(-1, 0) + torch.randn(
        (labels, *shape), generator=generator
    )
    return image, logits


@pytest.mark.parametrize("argmax", [False, True])
@pytest.mark.parametrize("of", ["pred", "image", "both"])
def test_bandwidths_are_millimetres_by_the_affine(argmax, of):
    image, logits = volume()
    pred, picture = logits, image
    if of != "image":
        pred = MetaTensor(logits, affine=AFFINE, meta={"filename_or_obj": "case1.nii"})
    if of != "pred":
        picture = MetaTensor(image, affine=AFFINE, meta={"filename_or_obj": "case1.nii"})
    found = DenseCRF(from_logits=True, argmax=argmax, kernels=KERNELS)(pred, picture)
    labels, likely = fwcrf.refine(
        image, logits, from_logits=True, spacing=SPACING, kernels=KERNELS, return_probabilities=True
    )
    assert isinstance(found, MetaTensor) and found.meta["filename_or_obj"] == "case1.nii"
    assert torch.equal(found.affine, AFFINE)
    assert torch.equal(found.as_tensor(), labels[None].float() if argmax else likely)
    assert not torch.equal(
        labels, fwcrf.refine(image, logits, from_logits=True, kernels=KERNELS, spatial_dims=3)
    )


@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray])
@pytest.mark.parametrize("shape", [(12, 13), (6, 7, 5)])
def test_tensors_and_arrays_in_voxels(kind, shape):
    image, logits = volume(shape)
    p = logits.softmax(0)
    given = (p.numpy(), image.numpy()) if kind is np.ndarray else (p, image)
    found = DenseCRF(kernels=KERNELS, units="voxels")(*given)
    _, likely = fwcrf.refine(image, p, kernels=KERNELS, spatial_dims=len(shape), return_probabilities=True)
    assert type(found) is kind
    np.testing.assert_array_equal(np.asarray(found), likely.numpy())
    with pytest.raises(ValueError, match=r"knows the size of a voxel; expected one .* or units='voxels'"):
        DenseCRF(kernels=KERNELS)(*given)


@pytest.mark.parametrize("shape", [(12, 13), (6, 7, 5)])
def test_a_collated_batch_is_its_items(shape):
    image, logits = volume(shape)
    items = []
    for scale in (1.0, 2.0):
        affine = torch.diag(torch.tensor([scale, 1.0, 3.0, 1.0], dtype=torch.float64))
        items.append(
            {"image": MetaTensor(image * scale, affine=affine), "pred": MetaTensor(logits, affine=affine)}
        )
    transform = DenseCRFd("pred", from_logits=True, argmax=True, kernels=KERNELS)
    single = [transform(item)["pred"] for item in items]
    batch = transform(list_data_collate(items))["pred"]
    assert batch.shape == (2, 1, *shape)
    for one, other in zip(decollate_batch(batch), single, strict=True):
        assert torch.equal(one, other) and torch.equal(one.affine, other.affine)
    plain = [torch.stack([item[key].as_tensor() for item in items]) for key in ("pred", "image")]
    found = DenseCRF(from_logits=True, argmax=True, units="voxels", batched=True, kernels=KERNELS)(*plain)
    expected = fwcrf.refine(*plain[::-1], from_logits=True, kernels=KERNELS, spatial_dims=len(shape))
    assert torch.equal(found[:, 0], expected.float())


def test_masks_of_a_dictionary():
    image, logits = volume()
    scribbles, ignore = torch.full((1, 9, 10, 7), -1), torch.zeros(1, 9, 10, 7)
    scribbles[0, :, 4, 2], ignore[0, :, :, 6] = 1, 1
    data = {"image": image, "pred": logits, "clicks": scribbles, "outside": ignore}
    settings = {"from_logits": True, "units": "voxels", "argmax": True, "kernels": KERNELS}
    keys = {"scribbles_key": "clicks", "ignore_key": "outside", "keep_key": "missing"}
    found = DenseCRFd("pred", **keys, **settings)(data)
    expected = fwcrf.refine(
        image, logits, from_logits=True, kernels=KERNELS, spatial_dims=3, scribbles=scribbles[0],
        ignore=ignore[0].bool(),
    )  # fmt: skip
    assert torch.equal(found["pred"][0], expected.float()) and found["image"] is image
    assert torch.equal(found["pred"][0, :, 4, 2], torch.ones(9))
    with pytest.raises(KeyError, match="other"):
        DenseCRFd(["pred", "other"], **settings)(data)
    DenseCRFd(["pred", "other"], allow_missing_keys=True, **settings)(data)


def test_a_pipeline_of_files_is_inverted_and_saved(tmp_path):
    """Loaded, resampled, refined, brought back to the grid of the file, and saved with its affine."""
    nibabel = pytest.importorskip("nibabel")
    image, _ = volume((12, 14, 6))
    affine = np.diag([1.0, 1.0, 2.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(image[0].numpy(), affine), tmp_path / "case.nii.gz")
    before = Compose(
        [LoadImaged("image"), EnsureChannelFirstd("image"), Spacingd("image", pixdim=(1.5, 1.5, 1.5))]
    )
    data = before({"image": str(tmp_path / "case.nii.gz")})
    data["pred"] = torch.cat([80 - data["image"], data["image"] - 80]) / 40  # a network, with metadata
    after = Compose(
        [
            DenseCRFd("pred", from_logits=True, kernels=KERNELS),
            Invertd("pred", before, orig_keys="image", nearest_interp=False, to_tensor=True),
            AsDiscreted("pred", argmax=True),
            SaveImaged(
                "pred", output_dir=tmp_path, output_postfix="crf", separate_folder=False, print_log=False
            ),
        ]
    )
    found = after(data)["pred"]
    assert found.shape == (1, 12, 14, 6)
    saved = nibabel.load(tmp_path / "case_crf.nii.gz")
    np.testing.assert_allclose(saved.affine, affine)
    np.testing.assert_array_equal(saved.get_fdata(), found[0].numpy())
    assert (found[0].numpy() == (image[0].numpy() > 80)).mean() > 0.8


def write_series(folder, values):
    """Slices of a scanner: turned by 20 degrees, 3 mm apart, 0.7 mm between rows, 0.8 mm between columns.

    Returns the affine that nibabel's conventions give them: towards right, anterior, superior.
    """
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    cosine, sine = np.cos(0.35), np.sin(0.35)
    along_row, along_column, across = [1.0, 0, 0], [0, cosine, sine], [0, -sine, cosine]
    first, series = np.array([-90.0, -120, 35]), generate_uid()
    for k, one in enumerate(values):
        slice_ = Dataset()
        slice_.file_meta = FileMetaDataset()
        slice_.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        slice_.file_meta.MediaStorageSOPClassUID = slice_.SOPClassUID = CTImageStorage
        slice_.file_meta.MediaStorageSOPInstanceUID = slice_.SOPInstanceUID = generate_uid()
        slice_.SeriesInstanceUID, slice_.Modality, slice_.InstanceNumber = series, "CT", k + 1
        slice_.ImagePositionPatient = [f"{x:.8f}" for x in first + 3.0 * k * np.array(across)]
        slice_.ImageOrientationPatient = [f"{x:.8f}" for x in (*along_row, *along_column)]
        slice_.PixelSpacing, slice_.SliceThickness = [0.7, 0.8], 3.0
        slice_.Rows, slice_.Columns = one.shape
        slice_.SamplesPerPixel, slice_.PhotometricInterpretation = 1, "MONOCHROME2"
        slice_.BitsAllocated, slice_.BitsStored, slice_.HighBit, slice_.PixelRepresentation = 16, 16, 15, 1
        slice_.RescaleSlope, slice_.RescaleIntercept = 1, -1024
        slice_.PixelData = one.astype("<i2").tobytes()
        slice_.save_as(folder / f"{k}.dcm", enforce_file_format=True)
    steps = np.array([np.array(along_row) * 0.8, np.array(along_column) * 0.7, np.array(across) * 3.0]).T
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = np.diag([-1, -1, 1]) @ steps, np.diag([-1, -1, 1]) @ first
    return affine


def test_a_series_of_a_scanner_keeps_its_place(tmp_path):
    """DICOM, by MONAI's reader, refined in millimetres, and saved as NIfTI."""
    pytest.importorskip("pydicom", reason="pydicom is not installed: make integrations")
    nibabel = pytest.importorskip("nibabel")
    image, logits = volume((9, 10, 7))
    values = (image[0].numpy() + 1024).round()  # columns, rows, slices
    (tmp_path / "series").mkdir()
    affine = write_series(tmp_path / "series", values.transpose(2, 1, 0))
    load = Compose([LoadImaged("image", reader="PydicomReader"), EnsureChannelFirstd("image")])
    data = load({"image": str(tmp_path / "series")})
    np.testing.assert_allclose(data["image"].affine, affine, atol=1e-5)
    np.testing.assert_allclose(data["image"][0], values - 1024)
    data["pred"] = logits  # of a network, without metadata
    save = SaveImaged("pred", output_dir=tmp_path, output_postfix="", separate_folder=False, print_log=False)
    found = Compose([DenseCRFd("pred", from_logits=True, argmax=True, kernels=KERNELS), save])(data)["pred"]
    expected = fwcrf.refine(
        data["image"].as_tensor(), logits, from_logits=True, spacing=(0.8, 0.7, 3.0), kernels=KERNELS
    )
    assert (found[0] == expected).float().mean() > 0.99
    (saved,) = map(nibabel.load, tmp_path.glob("*.nii.gz"))
    np.testing.assert_allclose(saved.affine, affine, atol=1e-4)
    np.testing.assert_array_equal(saved.get_fdata(), found[0])


def coarser(shift):
    """The affine of samples two voxels apart, the first one ``shift`` voxels after the first voxel."""
    change = torch.diag(torch.tensor([2.0, 2, 2, 1], dtype=torch.float64))
    change[:3, 3] = shift
    return AFFINE @ change


@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("resize", ["scores", "image"])
def test_results_of_another_resolution_lie_on_their_grid(resize, shift):
    image, logits = volume((12, 10, 8))
    coarse = logits[:, ::2, ::2, ::2].contiguous()
    transform = DenseCRF(from_logits=True, argmax=True, kernels=KERNELS, resize=resize)
    pred, picture = MetaTensor(coarse, affine=coarser(shift)), MetaTensor(image, affine=AFFINE)
    found = transform(pred, picture)
    spacing = SPACING if resize == "scores" else tuple(2 * one for one in SPACING)
    expected = fwcrf.refine(
        image, coarse, from_logits=True, spacing=spacing, kernels=KERNELS, resize=resize,
        align=((2.0,) * 3, (shift,) * 3), spatial_dims=3,
    )  # fmt: skip
    assert torch.equal(found[0].as_tensor(), expected.float())
    assert torch.equal(found.affine, AFFINE if resize == "scores" else coarser(shift))
    both = [{"pred": pred, "image": picture}] * 2
    batch = list_data_collate(both)
    assert torch.equal(transform(batch["pred"], batch["image"])[1].as_tensor(), found.as_tensor())


def test_resizing_needs_the_place_of_the_result():
    image, logits = volume((12, 10, 8))
    coarse = logits[:, ::2, ::2, ::2]
    placed = MetaTensor(coarse, affine=coarser(0.5)), MetaTensor(image, affine=AFFINE)
    transforms = {
        resize: DenseCRF(from_logits=True, kernels=KERNELS, resize=resize) for resize in ("scores", "image")
    }
    with pytest.raises(ValueError, match=r"the result lies on the grid of the image, which is no MetaTensor"):
        transforms["scores"](placed[0], image)
    with pytest.raises(ValueError, match=r"lies on the grid of the scores, which is no MetaTensor"):
        transforms["image"](coarse, placed[1])
    elsewhere = MetaTensor(coarse, affine=coarser(4.0))
    with pytest.raises(ValueError, match=r"the scores lies elsewhere than the image.*ResampleToMatch"):
        transforms["scores"](elsewhere, placed[1])
    flat = DenseCRF(from_logits=True, kernels=KERNELS, resize="scores")(
        *(MetaTensor(one.as_tensor()[..., 0], affine=one.affine) for one in placed)
    )
    assert flat.shape == (3, 12, 10) and torch.equal(flat.affine, AFFINE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outputs_in_half_precision_are_refined_in_single_precision(dtype):
    image, logits = volume()
    half = logits.to(dtype)
    found = DenseCRF(from_logits=True, units="voxels", kernels=KERNELS)(half, image)
    expected = DenseCRF(from_logits=True, units="voxels", kernels=KERNELS)(half.float(), image)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_other_grids_and_words_are_refused():
    image, logits = volume()
    other = AFFINE.clone()
    other[0, 3] += 0.5
    with pytest.raises(ValueError, match="expected the same grid"):
        DenseCRF(from_logits=True)(MetaTensor(logits, affine=other), MetaTensor(image, affine=AFFINE))
    with pytest.raises(ValueError, match="expected 'mm' or 'voxels'"):
        DenseCRF(units="cm")


def test_arguments_are_checked_before_the_first_image():
    for name in ("kernel", "spacing", "scribbles"):
        with pytest.raises(TypeError, match=f"{name}= is no argument of DenseCRF; expected preset"):
            DenseCRFd("pred", **{name: None})
    with pytest.raises(KeyError, match="image_key='ct' of DenseCRFd is not in the data, which has mr, pred"):
        DenseCRFd("pred", "ct")({"mr": torch.rand(1, 4, 5), "pred": torch.rand(2, 4, 5)})


def test_arguments_of_the_block_are_monais():
    ours, theirs = (inspect.signature(one).parameters.values() for one in (CRF, blocks.CRF))
    assert [(one.name, one.default) for one in ours] == [(one.name, one.default) for one in theirs]
    ours, theirs = (list(inspect.signature(one.forward).parameters) for one in (CRF, blocks.CRF))
    assert ours == theirs


@pytest.mark.parametrize("shape", [(19,), (7, 9), (4, 5, 6)])
@pytest.mark.parametrize("matrix", [False, True])
def test_the_block_is_the_iteration_of_monai(shape, matrix):
    """MONAI's forward with exact filters; its own are in C++ extensions that its wheel does not have."""
    torch.manual_seed(0)
    reference, logits = torch.randn(2, 1, *shape), torch.randn(2, 3, *shape)
    C = torch.tensor([[1.0, 0.3, 0], [0.3, 1, -0.2], [0, -0.2, 0.5]]) if matrix else None
    settings = {"iterations": 3, "bilateral_weight": 0.8, "gaussian_weight": 0.5, "update_factor": 1.2}
    settings |= {"bilateral_spatial_sigma": 4.0, "bilateral_color_sigma": 0.7, "gaussian_spatial_sigma": 2.0}
    block = CRF(**settings, compatibility_matrix=C)
    exact = [
        Bilateral(4.0, 0.7, 1.2 * 0.8, normalization="after", method="exact"),
        Spatial(2.0, 1.2 * 0.5, normalization="after", method="exact"),
    ]
    axes = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    places = torch.stack(axes, -1).flatten(0, -2).float()
    for item in range(2):
        filters = []
        for features in (torch.cat([places / 4, reference[item].view(-1, 1) / 0.7], -1), places / 2):
            K = Exact(features).to_dense()
            filters.append(K / K.sum(-1, keepdim=True))
        z = logits[item].flatten(1).T
        x = z.softmax(-1)
        for _ in range(3):
            message = 0.8 * filters[0] @ x + 0.5 * filters[1] @ x
            x = (z + 1.2 * (message if C is None else message @ C)).softmax(-1)
        close = block(logits, reference)[item].flatten(1).T
        assert (close - x).abs().max() < 0.08  # the lattice
        block_exact = CRF(**settings, compatibility_matrix=C)
        block_exact.kernels = tuple(exact)
        assert torch.allclose(block_exact(logits, reference)[item].flatten(1).T, x, atol=1e-4)


def test_the_block_has_gradients_takes_metadata_and_refuses_what_has_no_energy():
    reference, logits = torch.randn(1, 1, 6, 7), torch.randn(1, 2, 6, 7, requires_grad=True)
    CRF()(MetaTensor(logits), MetaTensor(reference)).square().sum().backward()
    assert logits.grad is not None and logits.grad.abs().sum() > 0
    nothing = CRF(bilateral_weight=0, gaussian_weight=0)(logits, reference)
    assert torch.equal(nothing, logits.softmax(1))
    with pytest.raises(ValueError, match="is not symmetric; expected a symmetric one"):
        CRF(compatibility_matrix=torch.tensor([[0.0, 1.0], [0.0, 0.0]]))

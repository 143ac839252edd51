"""Kernels as a user names them: what they build from an image, and how they refuse settings."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import DTYPES, assert_rounding, generator, normal, points

from fwcrf.kernels import Bilateral, Exact, Gaussian, Lattice, Separable, Spatial

H, W = 6, 7
IMAGE = torch.randint(0, 256, (2, 3, H, W), generator=generator(0), dtype=torch.uint8)
NORMALIZATIONS = ("symmetric", "none", "before", "after")
every_normalization = pytest.mark.parametrize("normalization", NORMALIZATIONS)
KERNELS = {
    "bilateral lattice": Bilateral(xy=4, color=60),
    "bilateral exact": Bilateral(xy=4, color=60, method="exact"),
    "spatial separable": Spatial(xy=2),
    "spatial lattice": Spatial(xy=2, method="lattice"),
    "spatial exact": Spatial(xy=2, method="exact"),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def exact_bilateral(image, xy, color):
    """The definition, pixel by pixel."""
    place = np.stack(np.meshgrid(np.arange(H), np.arange(W), indexing="ij"), -1).reshape(-1, 2) / np.array(xy)
    tone = image.double().numpy().transpose(1, 2, 0).reshape(H * W, -1) / np.array(color)
    features = np.concatenate([place, tone], -1)
    return torch.from_numpy(np.exp(-0.5 * ((features[:, None] - features) ** 2).sum(-1)))


@pytest.mark.parametrize(
    ("xy", "color"),
    [(4.0, 60.0), ((2.0, 6.0), 60.0), (4.0, (30.0, 60.0, 90.0)), ([6, 2], [20, 30, 40])],
    ids=str,
)
def test_exact_bilateral_is_the_definition(xy, color):
    K = Bilateral(xy=xy, color=color, method="exact", normalization="none").operator(IMAGE[0].double())
    assert_rounding(K.to_dense(), exact_bilateral(IMAGE[0], xy, color))


@pytest.mark.parametrize("xy", [2.0, (1.0, 3.0), [3, 1]], ids=str)
@every_normalization
def test_spatial_methods_agree(xy, normalization):
    image = IMAGE[0].double()
    separable, exact, lattice = (
        Spatial(xy=xy, method=m, normalization=normalization).operator(image).to_dense()
        for m in ("separable", "exact", "lattice")
    )
    assert_rounding(separable, exact)
    assert (lattice - exact).norm() < 0.2 * exact.norm()


def test_methods_build_what_they_say():
    assert isinstance(Bilateral(normalization="none").operator(IMAGE), Lattice)
    assert isinstance(Bilateral(method="exact", normalization="none").operator(IMAGE), Exact)
    assert isinstance(Spatial(normalization="none").operator(IMAGE), Separable)


@every_kernel
@every_normalization
def test_normalization(kernel, normalization):
    image = IMAGE[0].double()
    kernel = dataclasses.replace(kernel, normalization=normalization)
    matrix = kernel.operator(image).to_dense()
    one = torch.ones(H * W, dtype=torch.float64)
    if normalization == "none":
        assert_rounding(matrix.diagonal(), one)
    if normalization == "before":
        assert_rounding(matrix.sum(-2), one, times=4)
    if normalization == "after":
        assert_rounding(matrix.sum(-1), one, times=4)
    if normalization == "symmetric":
        # D^-1/2 K D^-1/2 has the eigenvector D^1/2 1 with eigenvalue 1; K has a unit diagonal.
        root = matrix.diagonal().rsqrt()
        assert_rounding(matrix @ root, root, times=10)
    if normalization in ("none", "symmetric"):
        assert_rounding(matrix, matrix.mT)


@every_kernel
def test_defaults_to_symmetric_normalization(kernel):
    image = IMAGE[0].double()
    explicit = dataclasses.replace(kernel, normalization="symmetric")
    assert torch.equal(kernel.operator(image).to_dense(), explicit.operator(image).to_dense())


def test_default_bandwidths_are_those_of_the_paper():
    assert (Bilateral().xy, Bilateral().color, Bilateral().weight) == (80, 13, 1)
    assert (Spatial().xy, Spatial().weight) == (3, 1)


@every_kernel
def test_numpy_and_torch_give_the_same(kernel):
    expected = kernel.operator(IMAGE).row_sums()
    array = IMAGE.permute(0, 2, 3, 1).numpy()
    assert torch.equal(kernel.operator(array).row_sums(), expected)
    first = np.moveaxis(array, -1, 0)
    assert torch.equal(kernel.operator(first, channel_axis=0).row_sums(), expected)
    grey = kernel.operator(IMAGE[:, :1]).row_sums()
    assert torch.equal(kernel.operator(array[..., 0], channel_axis=None).row_sums(), grey)


@every_kernel
def test_batch_of_images(kernel):
    x = normal(2, H * W, 3)
    K = kernel.operator(IMAGE.double())
    expected = torch.stack([kernel.operator(image.double())(xi) for image, xi in zip(IMAGE, x, strict=True)])
    assert_rounding(K(x), expected)


@every_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operator_has_the_dtype_of_the_image(kernel, dtype):
    assert kernel.operator(IMAGE.to(dtype)).row_sums().dtype == dtype


@pytest.mark.parametrize("grid", [(9,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize(
    "kernel", [Bilateral(xy=2, color=1), Bilateral(xy=2, color=1, method="exact"), Spatial(xy=1)], ids=repr
)
def test_other_grids(kernel, grid):
    image = normal(2, *grid)
    K = kernel.operator(image, spatial_dims=len(grid))
    assert K.n == int(np.prod(grid))
    assert_rounding(K.row_sums(), K.to_dense().sum(-1), times=4)


# --- settings that are refused -------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, -3.0, float("nan"), float("inf"), (3.0, 0.0)], ids=repr)
@pytest.mark.parametrize("kernel", [Bilateral, Spatial, lambda xy: Spatial(xy, method="lattice")])
def test_bandwidths_must_be_positive(kernel, value):
    with pytest.raises(ValueError, match=r"xy=.*positive, finite standard deviations"):
        kernel(xy=value).operator(IMAGE)


@pytest.mark.parametrize("value", [0.0, -3.0, float("nan"), (3.0, 0.0, 1.0)], ids=repr)
def test_color_bandwidths_must_be_positive(value):
    with pytest.raises(ValueError, match=r"color=.*positive, finite standard deviations"):
        Bilateral(color=value).operator(IMAGE)


def test_one_bandwidth_for_each_axis():
    with pytest.raises(ValueError, match=r"xy=\(1, 2, 3\) has 3 entries; expected one number or 2"):
        Spatial(xy=(1, 2, 3)).operator(IMAGE)
    with pytest.raises(ValueError, match=r"color=\(1, 2\) has 2 entries; expected one number or 3"):
        Bilateral(color=(1, 2)).operator(IMAGE)


@pytest.mark.parametrize(
    ("kernel", "valid"),
    [
        (Bilateral, ("lattice", "exact")),
        (Spatial, ("separable", "lattice", "exact")),
        (Gaussian, ("lattice", "exact")),
    ],
)
def test_unknown_method_lists_the_valid_ones(kernel, valid):
    argument = points(9, 2) if kernel is Gaussian else IMAGE
    with pytest.raises(ValueError, match="'fast'") as error:
        kernel(method="fast").operator(argument)
    for name in valid:
        assert f"'{name}'" in str(error.value)


@pytest.mark.parametrize("kernel", [Bilateral, Spatial, Gaussian])
def test_unknown_normalization_lists_the_valid_ones(kernel):
    argument = points(9, 2) if kernel is Gaussian else IMAGE
    with pytest.raises(ValueError, match=r"'rows'.*symmetric, none, before, after"):
        kernel(normalization="rows").operator(argument)


@pytest.mark.parametrize("kernel", [Bilateral(), Spatial()], ids=["bilateral", "spatial"])
def test_an_image_is_needed(kernel):
    with pytest.raises(TypeError, match="image is a list"):
        kernel.operator([[1.0]])
    with pytest.raises(TypeError, match="expected real numbers"):
        kernel.operator(IMAGE > 100)
    with pytest.raises(ValueError, match="at least one pixel"):
        kernel.operator(IMAGE[..., :0])


# --- precision -----------------------------------------------------------------------------------

MATRIX = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 4.0]], dtype=torch.float64)
PRECISIONS = {
    "number": (2.5, 2.5 * torch.eye(3, dtype=torch.float64)),
    "numbers": ([0.5, 1.0, 4.0], torch.diag(torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64))),
    "vector": (torch.tensor([0.5, 1.0, 4.0]), torch.diag(torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64))),
    "rows": (MATRIX.tolist(), MATRIX),
    "matrix": (MATRIX, MATRIX),
}
every_precision = pytest.mark.parametrize(("precision", "matrix"), PRECISIONS.values(), ids=PRECISIONS)


@every_precision
@pytest.mark.parametrize("shape", [(13, 3), (2, 9, 3)], ids=str)
def test_precision_is_the_definition(precision, matrix, shape):
    features = points(*shape)
    K = Gaussian(precision=precision, method="exact", normalization="none").operator(features)
    difference = features.unsqueeze(-2) - features.unsqueeze(-3)
    expected = (-0.5 * torch.einsum("...i,ij,...j->...", difference, matrix, difference)).exp()
    assert_rounding(K.to_dense(), expected, times=2)


@every_precision
def test_precision_with_a_lattice(precision, matrix):
    """It is the lattice of transformed features."""
    features = points(40, 3)
    K = Gaussian(precision=precision, normalization="none").operator(features)
    moved = features @ torch.linalg.cholesky(matrix)
    expected = Gaussian(normalization="none").operator(moved)
    assert_rounding(K.to_dense(), expected.to_dense(), times=100)


def test_no_precision_takes_features_as_they_are():
    features = points(13, 3)
    K = Gaussian(method="exact", normalization="none").operator(features)
    assert torch.equal(K.to_dense(), Exact(features).to_dense())


def test_precision_can_be_learnt():
    features, x = points(7, 3), normal(7, 2)
    matrix = MATRIX.clone().requires_grad_()

    def apply(matrix):
        symmetric = (matrix + matrix.mT) / 2
        return Gaussian(precision=symmetric, method="exact").operator(features)(x)

    assert torch.autograd.gradcheck(apply, (matrix,))


@pytest.mark.parametrize(
    "precision",
    [0.0, -1.0, [1.0, 1.0, -1.0], [1.0, 0.0, 1.0], float("nan"), -MATRIX, torch.ones(3, 3), MATRIX.triu()],
    ids=[
        "zero",
        "negative",
        "one negative",
        "one zero",
        "nan",
        "negative matrix",
        "singular",
        "not symmetric",
    ],
)
@pytest.mark.parametrize("method", ["lattice", "exact"])
def test_precision_must_be_positive_definite(precision, method):
    with pytest.raises(ValueError, match="not symmetric positive definite"):
        Gaussian(precision=precision, method=method).operator(points(9, 3))


@pytest.mark.parametrize(
    "precision",
    [[1.0, 2.0], torch.eye(2), torch.ones(3, 2), torch.ones(1, 3, 3)],
    ids=["2", "2x2", "3x2", "1x3x3"],
)
def test_precision_must_fit_the_features(precision):
    with pytest.raises(ValueError, match=r"precision has shape .*3 numbers or a 3 x 3 matrix"):
        Gaussian(precision=precision).operator(points(9, 3))

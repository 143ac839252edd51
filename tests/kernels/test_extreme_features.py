"""Features that are too small, too large, all the same, or not numbers."""

import re

import pytest
import torch
from helpers import assert_rounding, covering, generator, normal, points, uniform

from fwcrf.kernels import Bilateral, Exact, Gaussian, Lattice, Spatial

NEAR_IDENTITY = "close to the identity"
every_engine = pytest.mark.parametrize("engine", ["native", "torch"])
both_methods = pytest.mark.parametrize("method", ["lattice", "exact"])


def random_image():
    return torch.randint(0, 256, (3, 20, 20), generator=generator(0), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("image", "kernel"),
    [
        (random_image(), Bilateral(xy=1e-8, color=1e-8)),
        (random_image(), Bilateral(xy=80, color=1e-8)),
        (random_image(), Bilateral(xy=1e-8, color=13)),
        (uniform(3, 20, 20, dtype=torch.float32), Bilateral(xy=80, color=1e-12)),
        (uniform(3, 20, 20), Bilateral(xy=80, color=1e-12)),
        (random_image(), Spatial(xy=1e-8, method="lattice")),
    ],
    ids=["both", "color", "position", "color 1e-12", "color 1e-12 double", "spatial"],
)
@pytest.mark.timeout(30)
def test_tiny_bandwidth_warns_and_gives_nearly_the_identity(image, kernel):
    with pytest.warns(UserWarning, match=NEAR_IDENTITY):
        K = kernel.operator(image)
    x = normal(400, 3)
    assert (K(x) - x).norm() < 0.02 * x.norm()


@pytest.mark.timeout(30)
def test_bandwidth_beyond_what_a_double_resolves():
    with pytest.raises(ValueError, match=r"standard deviations from the origin.*larger bandwidths"):
        Bilateral(xy=1e-12, color=1e-12).operator(random_image())


@pytest.mark.parametrize("xy", [1e-8, 1e-12, 1e-30])
def test_tiny_bandwidth_of_a_separable_kernel_is_the_identity(xy):
    x = normal(400, 3)
    assert torch.equal(Spatial(xy=xy).operator(random_image().double())(x), x)


def test_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match=NEAR_IDENTITY) as caught:
        Bilateral(xy=1e-8, color=1e-8).operator(random_image())
    assert [w.filename for w in caught] == [__file__]


def test_no_warning_for_a_sensible_kernel_or_a_single_point():
    Bilateral().operator(random_image())  # warnings are errors
    Gaussian().operator(torch.zeros(1, 3))


@every_engine
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_point_far_away(engine, dtype):
    near = points(60, 3, dtype=dtype)
    features = torch.cat([near, torch.full((1, 3), 1e9, dtype=dtype)])
    K, alone = (Lattice.uncalibrated(f, engine=engine) for f in (features, near))
    matrix = K.to_dense()
    assert (matrix[-1, :-1] == 0).all() and (matrix[:-1, -1] == 0).all()
    assert matrix[-1, -1] > 0
    assert_rounding(matrix[:-1, :-1], alone.to_dense())


def test_one_point_far_away_in_a_model():
    features = torch.cat([points(60, 3), torch.full((1, 3), 1e9, dtype=torch.float64)])
    K = Gaussian().operator(features)
    matrix = K.to_dense()
    assert matrix.isfinite().all()
    assert_rounding(matrix[-1, -1], torch.ones((), dtype=torch.float64))


@every_engine
@pytest.mark.parametrize("d", [1, 5, 16])
@pytest.mark.parametrize("reach", [1e14, 1e200])
def test_too_far_is_refused_and_the_limit_named(engine, d, reach):
    features = points(9, d)
    features[4, d // 2] = -reach
    with pytest.raises(ValueError, match="standard deviations from the origin") as error:
        Lattice.build(features, engine=engine)
    assert f"{reach:.3g}" in str(error.value)


@pytest.mark.parametrize("d", [1, 2, 5, 16])
def test_what_is_refused_lies_beyond_the_limit_in_the_message(d):
    reach = 1e10
    while True:
        features = points(9, d)
        features[0, 0] = reach
        try:
            Lattice.uncalibrated(features)
        except ValueError as error:
            limit = float(re.search(r"less than about (\S+?)\.? ", str(error)).group(1))
            break
        reach *= 1.5
    assert limit <= 1.1 * reach


@covering(engine=["native", "torch"], n=[1, 2, 3, 50], d=[1, 3, 5, 16], value=[0.0, 0.3, -7.5, 1e5])
def test_all_points_in_one_place(engine, n, d, value):
    features = torch.full((n, d), value, dtype=torch.float64)
    K = Lattice.build(features, engine=engine)
    matrix = K.to_dense()
    assert_rounding(matrix, matrix[0, 0].expand(n, n))
    if n > 1:
        # The scale is fitted to pairs of points, and all of them are at distance 0.
        assert_rounding(matrix, torch.ones(n, n, dtype=torch.float64), times=4)
    normalized = K.with_unit_diagonal().normalized("symmetric").to_dense()
    assert_rounding(normalized, torch.full((n, n), 1 / n, dtype=torch.float64), times=20)


@both_methods
@pytest.mark.parametrize("normalization", ["symmetric", "none", "before", "after"])
def test_a_single_point(method, normalization):
    K = Gaussian(method=method, normalization=normalization).operator(normal(1, 3))
    assert_rounding(K(torch.ones(1, 1, dtype=torch.float64)), torch.ones(1, 1, dtype=torch.float64))
    assert K.without_self_edges()(torch.ones(1, 1, dtype=torch.float64)).abs().item() < 1e-15


@both_methods
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [(0, 0), (31, 1), (63, 2), (64, 0), (66, 2)])
def test_features_must_be_finite(method, value, place):
    features = points(67, 3, dtype=torch.float32)
    features[place] = value
    with pytest.raises(ValueError, match=r"features .*NaN or infinite"):
        Gaussian(method=method).operator(features)


@both_methods
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_images_must_be_finite(method, value):
    image = uniform(3, 6, 7)
    image[1, 2, 3] = value
    with pytest.raises(ValueError, match="image has 1 values that are NaN or infinite, of 126"):
        Bilateral(method=method).operator(image)


@both_methods
@pytest.mark.parametrize("bad", [[[1.0, 2.0]], None, 3.0], ids=["list", "none", "number"])
@pytest.mark.parametrize("precision", [None, 2.0])
def test_features_must_be_a_tensor(method, bad, precision):
    with pytest.raises(TypeError, match=f"features is a {type(bad).__name__}.*torch tensor"):
        Gaussian(method=method, precision=precision).operator(bad)


@both_methods
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float16], ids=str)
def test_features_must_be_float(method, dtype):
    with pytest.raises(TypeError, match=f"features has dtype {dtype}.*float32 or float64"):
        Gaussian(method=method).operator(torch.ones(4, 2, dtype=dtype))


@both_methods
@pytest.mark.parametrize("shape", [(3,), (3, 0), (0, 2), (2, 0, 3), (0, 5, 3)], ids=str)
def test_features_must_be_points(method, shape):
    with pytest.raises(ValueError, match=re.escape(f"features has shape {shape}")):
        Gaussian(method=method).operator(torch.zeros(shape))


def test_more_than_16_features_are_refused_by_the_lattice_only():
    features = points(9, 17)
    with pytest.raises(ValueError, match=r"17 columns.*1 to 16.*method='exact'"):
        Gaussian(method="lattice").operator(features)
    assert Gaussian(method="exact").operator(features).n == Gaussian().operator(features).n == 9


@pytest.mark.parametrize(
    "layout", ["transposed", "rows apart", "expanded batch", "expanded points", "half the columns"]
)
@every_engine
def test_layout_of_features_does_not_matter(layout, engine):
    features = points(2, 30, 4)
    other = {
        "transposed": lambda: features.mT.contiguous().mT,
        "rows apart": lambda: torch.stack([features, -features], 2).flatten(1, 2)[:, ::2],
        "expanded batch": lambda: features[:1].expand(2, -1, -1),
        "expanded points": lambda: features[:, :1].expand(-1, 30, -1),
        "half the columns": lambda: torch.cat([features, features], -1)[..., 2:6],
    }[layout]()
    assert not other.is_contiguous()
    K, expected = (Lattice.build(f, engine=engine) for f in (other, other.contiguous()))
    for name in ("index", "splat", "order", "neighbors"):
        assert torch.equal(getattr(K, name), getattr(expected, name))
    x = normal(2, 30, 3)
    assert torch.equal(K(x), expected(x))
    assert_rounding(Exact(other)(x), Exact(other.contiguous())(x))

"""The native engine and plain torch build the same lattice, bit for bit, and filter alike."""

import pytest
import torch
from helpers import DTYPES, assert_rounding, covering, generator, normal, points, uniform
from hypothesis import given
from hypothesis import strategies as st

from fwcrf.kernels import Lattice

TABLES = ("index", "splat", "order", "neighbors")


def spread(shape, seed):
    return normal(*shape, seed=seed)


def integers(shape, seed):
    return torch.randint(-3, 4, shape, generator=generator(seed)).double()


def on_the_borders(shape, seed):
    """Integer coordinates in the lattice's own basis, where many of its simplices meet."""
    axis = torch.arange(1, shape[-1] + 1, dtype=torch.float64)
    own = (2 / 3) ** 0.5 * (shape[-1] + 1) / (axis * (axis + 1)).sqrt()
    return torch.randint(-9, 10, shape, generator=generator(seed)).double() / own


def duplicates(shape, seed):
    few = normal(4, shape[-1], seed=seed)
    return few[torch.randint(0, 4, shape[:-1], generator=generator(seed))]


def one_far_away(shape, seed):
    features = normal(*shape, seed=seed)
    features[..., 0, :] += 1e6
    return features


ARRANGEMENTS = [spread, integers, on_the_borders, duplicates, one_far_away]


@st.composite
def features(draw):
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 80)), draw(st.integers(1, 16))
    arrange = draw(st.sampled_from(ARRANGEMENTS))
    scale = draw(st.sampled_from([1e-3, 0.1, 1.0, 1.0, 7.3, 100.0, 1e6]))
    dtype = draw(st.sampled_from(DTYPES))
    return (arrange(shape, draw(st.integers(0, 99))) * scale).to(dtype)


def build_both(features, **settings):
    return (Lattice.uncalibrated(features, engine=engine, **settings) for engine in ("native", "torch"))


def assert_same_lattice(one, other):
    for name in TABLES:
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype and a.shape == b.shape, name
        assert torch.equal(a, b), f"{name} differs in {int((a != b).sum())} of {a.numel()} places"


identity_is_fine = pytest.mark.filterwarnings("ignore:all .* points lie in lattice cells of their own")


@identity_is_fine
@given(features())
def test_same_lattice_and_same_answer(features):
    native, torch_engine = build_both(features)
    assert_same_lattice(native, torch_engine)
    x = normal(*features.shape[:-1], 3, dtype=features.dtype)
    assert_rounding(native(x), torch_engine(x), times=4)
    assert_rounding(native.diagonal(), torch_engine.diagonal())


@identity_is_fine
@covering(arrange={f.__name__: f for f in ARRANGEMENTS}, d=range(1, 17), dtype=DTYPES)
def test_same_lattice_in_every_dimension(arrange, d, dtype):
    """More points than the native engine embeds at a time, and not a multiple of that."""
    native, torch_engine = build_both(arrange((2, 167, d), d).to(dtype))
    assert_same_lattice(native, torch_engine)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129])
@pytest.mark.parametrize("d", [2, 5, 7])
def test_same_lattice_for_any_number_of_points(n, d):
    features = points(n, d, dtype=torch.float32) if n > 1 else normal(1, d, dtype=torch.float32)
    assert_same_lattice(*build_both(features))


@pytest.mark.parametrize("scale", [1e6, 1e8, 1e10])
@pytest.mark.parametrize("d", [1, 3, 8, 16])
@identity_is_fine
def test_same_lattice_far_from_the_origin(scale, d):
    """Keys of a vertex take several words."""
    assert_same_lattice(*build_both(normal(2, 40, d) * scale))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("blur", ["symmetric", "forward", "reverse"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 11, 16])
def test_same_answer(d, blur, dtype):
    native, torch_engine = (
        Lattice.build(points(2, 60, d, dtype=dtype), blur=blur, engine=e) for e in ("native", "torch")
    )
    x = normal(3, 2, 60, 5, dtype=dtype)
    assert_rounding(native.splat, torch_engine.splat)  # calibrated by the same factor
    assert_rounding(native(x), torch_engine(x), times=4)
    assert_rounding(native.diagonal(), torch_engine.diagonal(), times=4)
    apart = uniform(2, 60, dtype=dtype) + 0.5, uniform(2, 60, dtype=dtype, seed=1) + 0.5
    one, other = (K.scaled(*apart).shifted(apart[0]) for K in (native, torch_engine))
    assert_rounding(one(x), other(x), times=4)
    assert_rounding(one.T(x), other.T(x), times=4)


@pytest.mark.parametrize(
    ("d", "engine"), [(1, "native"), (2, "native"), (5, "native"), (13, "native"), (2, "torch"), (5, "torch")]
)
def test_gradient_in_the_features(d, engine):
    """Of the lattice as it is, away from borders of simplices."""
    features, x = points(5, d, seed=1).requires_grad_(), normal(5, 2)

    def apply(features):
        K = Lattice.uncalibrated(features, engine=engine)
        return K(x), K.diagonal(), K.normalized("symmetric")(x), K.normalized("after").T(x)

    assert torch.autograd.gradcheck(apply, (features,))


@pytest.mark.parametrize(("d", "engine"), [(2, "native"), (5, "native"), (2, "torch")])
def test_gradient_in_the_features_through_the_calibration(d, engine):
    features, x = points(2, 6, d, seed=1).requires_grad_(), normal(2, 6, 1).requires_grad_()

    def apply(features, x):
        K = Lattice.build(features, engine=engine).with_unit_diagonal()
        return K(x), K.normalized("symmetric").without_self_edges()(x)

    assert torch.autograd.gradcheck(apply, (features, x))


def test_second_derivatives_in_the_features():
    features, x = points(6, 2, seed=1).requires_grad_(), normal(6, 2).requires_grad_()

    def apply(features, x):
        K = Lattice.uncalibrated(features)
        return K.with_unit_diagonal().normalized("symmetric")(x)

    assert torch.autograd.gradgradcheck(apply, (features, x))


def test_gradients_of_both_engines_agree():
    found = []
    for engine in ("native", "torch"):
        features = points(3, 60, 5).requires_grad_()
        K = Lattice.build(features, engine=engine).with_unit_diagonal().normalized("symmetric")
        (K(normal(3, 60, 4)) * normal(3, 60, 4, seed=1)).sum().backward()
        found.append(features.grad)
    assert_rounding(*found, times=10)


@pytest.mark.parametrize("setting", [{"engine": "cuda"}, {"blur": "sideways"}], ids=str)
def test_unknown_setting_is_refused_at_once(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        Lattice.build(points(9, 2), **setting)

"""The fused engine answers as the terms do one by one, whatever they are."""

import copy
import pickle

import pytest
import torch
from helpers import DTYPES, ROUNDING, covering, normal, uniform

from fwcrf import Energy, pairwise
from fwcrf.compatibility import Full, Potts
from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model, Settings
from fwcrf.engine.update import Map, Update
from fwcrf.kernels import Bilateral, Exact, Gaussian, Separable, Spatial
from fwcrf.pairwise import dense, of_image
from fwcrf.torch_ops.simplex import project_onto_simplex

# A spatial kernel of three and more pixels in float32 lies on a coarser grid.
COARSE = 1e-4
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

KERNELS = {
    "both": [Spatial(1.3), Bilateral(4.0, 0.4)],
    "spatial": [Spatial(1.3)],
    "wide spatial": [Spatial(3.0)],
    "very wide spatial": [Spatial((7.7, 12.0))],
    "bilateral": [Bilateral(4.0, 0.4)],
    "not normalized": [Spatial(1.3, normalization="none"), Bilateral(4.0, 0.4, normalization="none")],
    "three": [Bilateral(4.0, 0.4, weight=0.5), Spatial(1.0, weight=2.0), Bilateral(2.0, 0.9, weight=-1.0)],
    "features": [Gaussian(weight=0.7), Spatial((2.0, 1.0))],
}
GRIDS = [
    (1,),
    (2,),
    (50,),
    (1, 1),
    (1, 40),
    (40, 1),
    (3, 5),
    (4, 16),
    (5, 17),
    (33, 47),
    (2, 3, 4),
    (7, 6, 5),
]
COMPATS = {
    "potts": 1.5,
    "diagonal": lambda L: normal(L, seed=5),
    "full": lambda L: normal(L, L, seed=6),
}


def parts(P):
    return P.terms if isinstance(P, pairwise.Sum) else [P]


def one_by_one(P, x):
    """P x by the operators alone."""
    return sum(t.compat.apply(t.operator(x)) for t in parts(P))


def image(*shape, dtype, seed=0):
    return uniform(*shape, dtype=dtype, seed=seed)


def model(kernels, grid=(9, 11), labels=4, compat=1.0, dtype=torch.float64, batch=(), **more):
    compat = compat(labels) if callable(compat) else compat
    P = of_image(kernels, image(*batch, 3, *grid, dtype=dtype), labels, compat=compat, **more)
    assert isinstance(P.engine(), Model)
    return P


def assert_same(P, x, u):
    assert P.engine().refuse(x, u) is None
    expected = one_by_one(P, x)
    scale = float(expected.abs().max())
    allowed = COARSE if x.dtype == torch.float32 else 4 * ROUNDING[x.dtype]
    torch.testing.assert_close(P(x), expected, rtol=0, atol=allowed * scale)
    torch.testing.assert_close(P.plus(x, u), expected + u, rtol=0, atol=allowed * (scale + 1))


@every_dtype
@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
def test_same_as_one_by_one(kernels, compat, dtype):
    P = model(kernels, compat=compat, dtype=dtype)
    x = normal(99, 4, dtype=dtype, seed=1)
    assert_same(P, x, normal(99, 4, dtype=dtype, seed=2))


@every_dtype
@pytest.mark.parametrize("labels", [*range(1, 18), 21, 24, 25, 31, 32, 33, 67])
def test_any_number_of_labels(labels, dtype):
    P = model(KERNELS["both"], labels=labels, dtype=dtype, compat=1.5)
    x, u = normal(99, labels, dtype=dtype, seed=1), normal(99, labels, dtype=dtype, seed=2)
    assert_same(P, x, u)
    if labels <= P.engine().native.most_labels():
        assert_same(model(KERNELS["both"], labels=labels, dtype=dtype, compat=COMPATS["full"]), x, u)


@covering(grid=GRIDS, xy=[0.7, 3.0, 40.0], dtype=DTYPES)
def test_any_grid(grid, xy, dtype):
    P = of_image([Spatial(xy)], image(3, *grid, dtype=dtype), 5, spatial_dims=len(grid))
    n = torch.Size(grid).numel()
    assert_same(P, normal(n, 5, dtype=dtype, seed=1), normal(n, 5, dtype=dtype, seed=2))


@every_dtype
@pytest.mark.parametrize("batch", [(1,), (3,)], ids=str)
def test_batches_are_loops(batch, dtype):
    P = model(KERNELS["three"], batch=batch, dtype=dtype)
    x, u = normal(*batch, 99, 4, dtype=dtype, seed=1), normal(*batch, 99, 4, dtype=dtype, seed=2)
    assert_same(P, x, u)


def test_one_model_serves_a_batch():
    P = model(KERNELS["three"])
    x, u = normal(3, 99, 4, seed=1), normal(3, 99, 4, seed=2)
    assert_same(P, x, u)
    for i in range(3):
        torch.testing.assert_close(P.plus(x, u)[i], P.plus(x[i], u[i]), rtol=1e-13, atol=1e-13)


def test_self_edges_and_weights_per_label():
    P = model(KERNELS["both"], self_edges=True, weights=[uniform(4), 2.0])
    x = normal(99, 4, seed=1)
    assert_same(P, x, normal(99, 4, seed=2))


def test_forbidden_labels_stay_forbidden():
    P = model(KERNELS["both"])
    u = normal(99, 4, seed=2)
    u[::3, 1] = torch.inf
    g = Energy(P, u).grad(uniform(99, 4))
    assert torch.equal(torch.isinf(g), torch.isinf(u)) and not torch.isnan(g).any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("kernels", ["spatial", "bilateral", "both"])
def test_values_that_are_not_finite_are_refused(kernels, value):
    P, x = model(KERNELS[kernels]), normal(99, 4)
    x[7, 2] = value
    with pytest.raises(ValueError, match="x has 1 values that are NaN or infinite"):
        P(x)


def test_wrong_shapes_are_named():
    P = model(KERNELS["both"])
    with pytest.raises(ValueError, match="4 labels on the last axis"):
        P.plus(normal(99, 3), normal(99, 3))
    with pytest.raises(ValueError, match="one row for each of the 99 points"):
        P(normal(98, 4))


def test_layout_of_memory_does_not_matter():
    P = model(KERNELS["both"])
    x, u = normal(4, 99, seed=1).mT, normal(4, 99, seed=2).mT
    torch.testing.assert_close(P.plus(x, u), P.plus(x.contiguous(), u.contiguous()))


def test_threads_change_rounding_only():
    P = model(KERNELS["three"], grid=(70, 90), labels=21, dtype=torch.float32)
    x = normal(6300, 21, dtype=torch.float32, seed=1)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found.append(P(x))
            assert torch.equal(P(x), found[-1])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-5 * float(found[0].abs().max()))


# --- derivatives -------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 4, 7, 10, 16])
@pytest.mark.parametrize("compat", ["potts", "full"])
def test_gradients_are_those_of_the_terms(compat, labels):
    kernels = KERNELS["both"]
    operators = [k.operator(image(3, 9, 11, dtype=torch.float64)) for k in kernels]
    x, u = (normal(2, 99, labels, seed=s).requires_grad_() for s in (1, 2))
    if compat == "potts":
        weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (0.7, -1.2)]
        compats = [Potts(w) for w in weights]
    else:
        weights = [normal(labels, labels, seed=s).requires_grad_() for s in (3, 4)]
        compats = [Full(0.5 * (w + w.mT)) for w in weights]
    P = pairwise.dense(operators, labels, compat=compats)
    assert P.engine().refuse(x, u) is None
    direction = normal(2, 99, labels, seed=9)
    inputs = (x, u, *weights)
    fused = torch.autograd.grad(P.plus(x, u), inputs, direction, retain_graph=True)
    expected = torch.autograd.grad(one_by_one(P, x) + u, inputs, direction)
    for a, b in zip(fused, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("compat", ["potts", "full"])
def test_difference_quotients(compat):
    operators = [k.operator(image(3, 3, 4, dtype=torch.float64)) for k in KERNELS["both"]]
    weights = [normal(3, 3, seed=s) for s in (3, 4)]
    weights = [(w[0, 0] if compat == "potts" else w).clone().requires_grad_() for w in weights]

    def apply(x, u, *weights):
        compats = [Potts(w) if w.dim() == 0 else Full(0.5 * (w + w.mT)) for w in weights]
        return pairwise.dense(operators, 3, compat=compats).plus(x, u)

    inputs = (normal(12, 3, seed=1).requires_grad_(), normal(12, 3, seed=2).requires_grad_(), *weights)
    assert torch.autograd.gradcheck(apply, inputs)
    assert torch.autograd.gradgradcheck(apply, inputs)


# --- what it leaves to others --------------------------------------------------------------------


def test_leaves_what_it_cannot_do():
    picture = image(3, 6, 7, dtype=torch.float64)
    learned = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    x = normal(42, 3)
    assert isinstance(of_image([Bilateral(4.0, 0.4, method="exact")], picture, 3).engine(), Refusal)
    for kernel in (Spatial(learned), Bilateral(learned, 0.4)):
        P = of_image([kernel], picture, 3)
        assert isinstance(P.engine().refuse(x, None), Refusal)  # one application, with gradients
        assert P(x).requires_grad


@pytest.mark.parametrize("normalization", ["before", "after"])
@pytest.mark.parametrize("xy", [1.3, 4.0])
def test_asymmetric_operators_are_for_inference(normalization, xy):
    kernels = [Spatial(xy, normalization=normalization), Bilateral(4.0, 0.4, normalization=normalization)]
    P, x, u = model(kernels), normal(99, 4, seed=1), normal(99, 4, seed=2)
    assert_same(P, x, u)
    single = model(kernels, dtype=torch.float32)
    assert_same(single, x.float(), u.float())
    assert isinstance(P.engine().refuse(x.requires_grad_(), u), Refusal)
    assert torch.autograd.gradcheck(lambda x: P.plus(x, u), (x,), fast_mode=True)


def test_takes_only_its_own_dtype_and_batch():
    P = model(KERNELS["both"], batch=(2,))
    assert P.engine().refuse(normal(2, 99, 4), None) is None
    assert isinstance(P.engine().refuse(normal(2, 99, 4).float(), None), Refusal)
    assert isinstance(P.engine().refuse(normal(99, 4), None), Refusal)
    torch.testing.assert_close(P(normal(99, 4)), one_by_one(P, normal(99, 4)))


def test_grids_of_several_shapes_go_one_by_one():
    K = [Separable.build(shape, 1.2, torch.empty((), dtype=torch.float64)) for shape in ((9, 11), (11, 9))]
    P = dense(K, 3)
    x = normal(99, 3)
    assert isinstance(P.engine(), Refusal)
    torch.testing.assert_close(P(x), one_by_one(P, x))
    assert isinstance(dense([K[0], K[0]], 3).engine(), Model)


def test_separable_operators_keep_their_factors_per_axis():
    K = Separable.build((5, 6), 1.7, torch.empty((), dtype=torch.float64))
    place = torch.cartesian_prod(torch.arange(5.0), torch.arange(6.0)).double() / 1.7
    for mode in ("symmetric", "before", "after"):
        expected = Exact(place).normalized(mode)
        torch.testing.assert_close(K.normalized(mode).to_dense(), expected.to_dense())
        torch.testing.assert_close(K.normalized(mode).T.to_dense(), expected.T.to_dense())
        torch.testing.assert_close(K.normalized(mode).diagonal(), expected.diagonal())
        torch.testing.assert_close(K.normalized(mode).row_sums(), expected.row_sums())


def test_a_model_in_use_can_be_copied_and_pickled():
    P = model([Spatial(1.3), Bilateral(4.0, 0.4)])
    x = torch.softmax(normal(99, 4), -1)
    expected = P(x)
    for copied in (copy.deepcopy(P), pickle.loads(pickle.dumps(P))):
        torch.testing.assert_close(copied(x), expected)


@pytest.mark.parametrize("map", [Map.SOFTMAX, Map.PROJECT])
@pytest.mark.parametrize("compat", ["Potts", "matrix"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("steps", [(1.0, 1.0, 1.0), (0.7, 1.0, 0.0, 0.4)])
def test_gradients_in_lambda_and_step_sizes_in_one_call(map, compat, given, steps):
    image = 255 * uniform(3, 6, 7, seed=1)
    M = normal(5, 5, seed=2).requires_grad_()
    P = of_image(
        [Spatial(2), Bilateral(4, 60)], image, 5, compat=Full(M + M.mT) if compat == "matrix" else 1.3
    )
    model = P.engine()
    assert isinstance(model, Model)
    x = normal(42, 5, seed=3).softmax(-1).requires_grad_() if given else None
    u = normal(42, 5, seed=4).requires_grad_()
    weight = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    sizes = torch.tensor(steps, dtype=torch.float64, requires_grad=True)
    leaves = [t for t in (x, u, weight, sizes, M if compat == "matrix" else None) if t is not None]
    pull = normal(42, 5, seed=5)

    updates = [Update(map, -1 / 0.8, step=a) for a in steps]
    end = model.run(x, u, updates, Settings(weight, sizes))
    assert type(end.grad_fn).__name__ == "_RunBackward"
    found = torch.autograd.grad(end, leaves, pull, retain_graph=True)

    y = torch.softmax(-u, -1) if x is None else x
    oracle = torch.softmax if map == Map.SOFTMAX else lambda v, _: project_onto_simplex(v, 1.0)
    for a in sizes:
        y = y + a * (oracle(-(P(y) + u) / weight, -1) - y)
    torch.testing.assert_close(end, y)
    for ours, theirs in zip(found, torch.autograd.grad(y, leaves, pull), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)

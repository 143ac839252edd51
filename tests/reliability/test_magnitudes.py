"""Numbers near the end of the float range: the right result, or a refusal that says why. Never NaN."""

import numpy as np
import pytest
import torch
from helpers import normal
from problems import ORDERED
from torch.testing import assert_close

import fwcrf
from fwcrf.kernels import Bilateral, Exact, Spatial
from fwcrf.pairwise import Matrix, dense, of_image
from fwcrf.pydensecrf import densecrf as dcrf

NAMES = fwcrf.solvers.names()
SIZES = {torch.float32: (1e30, 1e38, 3e38), torch.float64: (1e30, 1e300, 1e308)}
DTYPES = pytest.mark.parametrize("dtype", SIZES, ids=["float32", "float64"])
SOLVERS = pytest.mark.parametrize("name", NAMES)
# The settings that weigh a regularizer.
LAMBDAS = {"admm": "rho", "bregman-admm": "rho"} | dict.fromkeys(
    ("efw", "l2fw", "tsallis-fw", "mixed-fw", "binary-entropy-fw", "pnorm-fw"), "weight"
)
H, W, L = 3, 4, 3
N = H * W
IMAGE = torch.rand(3, H, W, generator=torch.Generator().manual_seed(0)).mul(255).round()


def kernels(weight=1.0):
    return [Bilateral(xy=3, color=60, weight=weight), Spatial(xy=1)]


def pairwise(path, dtype, weight=1.0, compat=1.0):
    """P by native code, or by operations of torch."""
    if path == "torch":
        return dense([Exact(normal(N, 2).to(dtype))], L, weights=[weight], compat=compat)
    return of_image(kernels(weight), IMAGE.to(dtype), L, compat=compat, dtype=dtype)


def outcome(path, dtype, name, logits, weight=1.0, compat=1.0, **settings):
    """x after three steps, a point of the simplices with finite gradients, or the sentence of the refusal.

    By the engine in one call, by the engine in single steps, or by operations of torch.
    """
    if name == "cccp-qp1":
        settings["max_steps"] = 10
    logits = logits.to(dtype).clone().requires_grad_()
    try:
        solver = fwcrf.solvers.get(name, **settings)
        E = fwcrf.Energy.of_logits(pairwise(path, dtype, weight, compat), logits)
        watch = (lambda k, x: None) if path == "steps" else None
        x = fwcrf.minimize(E, solver, num_steps=3, callback=watch).probabilities
    except ValueError as error:
        return str(error)
    if x.requires_grad:
        (grad,) = torch.autograd.grad((x * normal(N, L, seed=4).to(dtype)).sum(), logits)
        assert torch.isfinite(grad).all()
    assert (x >= 0).all()
    assert_close(x.sum(-1), torch.ones(N, dtype=dtype))
    return x.detach()


def compared(name, logits, dtype, **more):
    """The outcome of the engine, which agrees with single steps, and for each path with float64."""
    engine, steps, plain = (
        outcome(path, dtype, name, logits, **more) for path in ("engine", "steps", "torch")
    )
    if isinstance(engine, str):
        assert engine == steps == plain
        return engine
    assert_close(engine, steps, rtol=1e-3, atol=1e-3)
    if dtype == torch.float32:
        for path, found in (("engine", engine), ("torch", plain)):
            exact = outcome(path, torch.float64, name, logits.float().double(), **more)
            best = exact.topk(2, -1).values
            clear = best[..., 0] - best[..., 1] > 1e-3
            assert torch.equal(found.argmax(-1)[clear], exact.argmax(-1)[clear])
    return engine


@DTYPES
@SOLVERS
def test_logits_of_any_size_have_the_labels_of_exact_arithmetic(name, dtype):
    logits = normal(N, L, seed=1).clamp(-1, 1)
    for row, size in enumerate(SIZES[dtype]):
        logits[row] *= size
        logits[row + 3, 1], logits[row + 6, 2] = size, -size
    found = compared(name, logits, dtype)
    assert torch.equal(found.argmax(-1)[:6], logits.argmax(-1)[:6])


@DTYPES
@SOLVERS
def test_a_mask_of_the_lowest_number_is_as_good_as_minus_infinity(name, dtype):
    """For one label, for all labels but one, and for all labels, which are then equally likely."""
    masked, forbidden = normal(N, L, seed=3), normal(N, L, seed=3)
    for logits, low, all_labels in (
        (masked, torch.finfo(dtype).min, torch.finfo(dtype).min),
        (forbidden, -torch.inf, 0.0),
    ):
        logits[0, 0] = low
        logits[1, :2] = low
        logits[2] = all_labels
        logits[3, 1], logits[4, 0] = -torch.inf, torch.inf
    found = compared(name, masked, dtype)
    assert found[0, 0] == found[1, 0] == found[1, 1] == found[3, 1] == found[4, 1] == 0
    assert_close(found, outcome("engine", dtype, name, forbidden), rtol=0.0, atol=1e-5)


@DTYPES
@SOLVERS
def test_weights_beyond_the_limit_are_refused(name, dtype):
    for size in SIZES[dtype]:
        for more in ({"weight": size}, {"compat": size}, {"compat": ORDERED.to(dtype) * (size / 2)}):
            sentence = compared(name, normal(N, L, seed=1), dtype, **more)
            assert f"compatibility is {size:.3g}; expected at most 1.1e+12" in sentence


@SOLVERS
def test_weights_up_to_the_limit_are_taken(name):
    """Rounding decides on most labels, but not where the logits are larger than all messages."""
    logits = normal(N, L, seed=1)
    logits[0] *= 1e20
    for path in ("engine", "steps", "torch"):
        found = outcome(path, torch.float32, name, logits, weight=2.0**40)
        assert found[0].argmax() == logits[0].argmax()


@DTYPES
@pytest.mark.parametrize("name", LAMBDAS)
def test_lambda_beyond_the_limits_is_refused(name, dtype):
    for size in (SIZES[dtype][0], SIZES[dtype][-1], 1 / SIZES[dtype][0], 1 / SIZES[dtype][-1]):
        for value in (size, torch.tensor(size, dtype=dtype)):
            with pytest.raises(ValueError, match="from 1e-12 to 1e\\+20"):
                fwcrf.solvers.get(name, **{LAMBDAS[name]: value})


@pytest.mark.parametrize("name", LAMBDAS)
def test_lambda_at_the_limits_is_right(name):
    for size in (1e-12, 1e20):
        compared(name, normal(N, L, seed=1), torch.float32, **{LAMBDAS[name]: size})


@pytest.mark.parametrize("gradient", ["unrolled", "checkpoint", "implicit"])
def test_the_layer(gradient):
    logits = normal(L, H, W, seed=1).float()
    logits[:, 0, 0], logits[1, 1, 1], logits[2, 2, 2] = torch.finfo(torch.float32).min, 3e38, -3e38
    crf = fwcrf.DenseCRF(L, kernels(), learnable=("weights", "compatibility"), gradient=gradient)
    y = crf(IMAGE, logits.requires_grad_())
    (y * normal(L, H, W, seed=2)).sum().backward()
    assert torch.isfinite(y).all()
    assert all(torch.isfinite(t.grad).all() for t in (logits, *crf.parameters()))
    with torch.no_grad():
        crf.weights.fill_(3e38)
    with pytest.raises(ValueError, match="compatibility is 3e\\+38; expected at most"):
        crf(IMAGE, logits)


@pytest.mark.filterwarnings("ignore:no pixel changed", "ignore:logits has shape.*which fits; but so do")
def test_refine_and_points():
    image = IMAGE.permute(1, 2, 0).numpy()
    logits = np.sign(normal(H, W, L, seed=1).numpy()).astype(np.float32) * np.float32(3e38)
    logits[0, 0] = np.finfo(np.float32).min
    more = {"from_logits": True, "return_probabilities": True, "kernels": kernels()}
    for scores, size in ((logits, None), (logits[..., :1], None), (logits[:2, :2], "scores")):
        _, x = fwcrf.refine(image, scores, resize=size, **more)
        assert np.isfinite(x).all()
    args = normal(N, 2).numpy(), None, logits.reshape(N, L)
    _, x = fwcrf.refine_points(*args, from_logits=True, return_probabilities=True)
    assert np.isfinite(x).all()
    with pytest.raises(ValueError, match="compatibility is 3e\\+38; expected at most"):
        fwcrf.refine_points(*args, from_logits=True, compatibility=3e38)


def test_the_drop_in():
    image = IMAGE.permute(1, 2, 0).to(torch.uint8).contiguous().numpy()
    unary = np.sign(normal(L, N, seed=1).numpy()).astype(np.float32) * np.float32(3e38)
    unary[:, 0] = np.finfo(np.float32).max
    crf = dcrf.DenseCRF2D(W, H, L)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseBilateral(sxy=3, srgb=20, rgbim=image, compat=3)
    Q = np.array(crf.inference(3))
    assert np.isfinite(Q).all()
    assert (Q[:, 1:].argmax(0) == unary[:, 1:].argmin(0)).all()
    for compat in (3e38, np.full(L, 3e38, np.float32)):
        with pytest.raises(ValueError, match="compatibility is 3e\\+38; expected at most"):
            crf.addPairwiseGaussian(sxy=3, compat=compat)


@DTYPES
@pytest.mark.parametrize("name", fwcrf.solvers.names(graphs=True))
def test_graphs(name, dtype):
    unary, edges = normal(5, L, seed=1).to(dtype), [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]
    largest = SIZES[dtype][-1]
    unary[0], unary[1, 0], unary[2] = torch.finfo(dtype).max, torch.finfo(dtype).max, -largest
    unary[3, 1] = -largest
    found = fwcrf.SparseMRF(unary, edges, 1.0).solve(name, num_steps=3)
    assert torch.isfinite(found.probabilities).all()
    assert torch.isfinite(found.energy)
    assert found.labels[3] == 1
    assert found.bound is None or found.bound <= found.energy


@DTYPES
def test_costs_of_edges_beyond_the_limit_are_refused(dtype):
    size, unary = SIZES[dtype][-1], torch.zeros(2, L, dtype=dtype)
    table = torch.full((1, L, L), size, dtype=dtype)
    table[0, 0, 0] = torch.inf
    for costs in (size, [size], table[0, 1:2].expand(L, L), table):
        with pytest.raises(ValueError, match=r"compatibility is (3e\+38|1e\+308); expected at most"):
            fwcrf.SparseMRF(unary, [[0, 1]], costs)


def test_a_matrix_or_a_factor_beyond_the_limit_is_refused():
    P = Matrix(torch.full((4, 4), 3e38), 2)
    for large in (P, 3e38 * Matrix(torch.ones(4, 4), 2)):
        for way in (lambda E: fwcrf.minimize(E, "cccp-qp1", num_steps=1), lambda E: E.grad(E.start())):
            with pytest.raises(ValueError, match="compatibility is 3e\\+38; expected at most"):
                way(fwcrf.Energy(large, torch.zeros(2, 2)))


def test_numbers_of_a_graph_keep_their_digits_in_float64():
    mrf = fwcrf.SparseMRF(torch.zeros(2, 2, dtype=torch.float64), [[0, 1]], 0.1)
    assert float(mrf.value(torch.tensor([0, 1]))) == 0.1

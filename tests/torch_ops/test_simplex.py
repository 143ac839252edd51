"""Projection onto the simplex and softmax: values, derivatives, and how torch sees them."""

import sys

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import torch
from helpers import DTYPES, assert_rounding, covering, normal
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from fwcrf import _core
from fwcrf.regularizers import Entropy, SquaredL2
from fwcrf.torch_ops.simplex import project_onto_simplex, softmax

ops = torch.ops.fwcrf
MAPS = {"project": project_onto_simplex, "softmax": softmax}
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 21, 33, 150, 1000)
INF, NAN = float("inf"), float("nan")

each_map = pytest.mark.parametrize("project", MAPS.values(), ids=MAPS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def sorted_projection(v):
    """The textbook algorithm, in float64."""
    v = v.double()
    v = v - v.amax(-1, keepdim=True)
    a = v.sort(-1, descending=True).values
    threshold = (a.cumsum(-1) - 1) / torch.arange(1, v.shape[-1] + 1)
    support = (a > threshold).sum(-1, keepdim=True)
    return (v - threshold.gather(-1, support - 1)).clamp(min=0)


REFERENCES = {"project": sorted_projection, "softmax": lambda v: torch.softmax(v.double(), -1)}


def assert_on_simplex(p):
    assert (p >= 0).all()
    allowed = (p.shape[-1] + 4) * torch.finfo(p.dtype).eps
    torch.testing.assert_close(p.double().sum(-1), torch.ones(p.shape[:-1]).double(), rtol=0, atol=allowed)


def away_from_kinks(*shape, seed=0):
    """Rows in float64 whose projection keeps its support when entries move by 1e-3."""
    v = normal(2000, shape[-1], seed=seed)
    p = sorted_projection(v)
    threshold = torch.where(p > 0, v - p, NAN).nanmean(-1, keepdim=True)
    rows = v[((v - threshold).abs() > 1e-2).all(-1)]
    count = int(np.prod(shape[:-1]))
    assert len(rows) >= count
    return rows[:count].reshape(shape).clone()


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("forbidden", [False, True])
@each_dtype
def test_projection_of_long_rows(spread, forbidden, dtype):
    """With as many labels, a sum from one end to the other would be off by more than an entry."""
    v = (spread * normal(2, 70_000)).to(dtype)
    if forbidden:
        v[:, 1::2] = -INF
    p = project_onto_simplex(v)
    assert (p.double().sum(-1) - 1).abs().max() < 1e5 * torch.finfo(dtype).eps
    exact = sorted_projection(v)
    # The reference adds up 70,000 numbers in float64.
    allowed = 4 if dtype == torch.float32 else 70_000
    size = exact.max() + v[v > -INF].abs().max()
    assert (p - exact).abs().max() <= allowed * torch.finfo(dtype).eps * size


@covering(strength=3, name=list(MAPS), length=LENGTHS, spread=[0.01, 1.0, 30.0], dtype=DTYPES)
def test_reference(name, length, spread, dtype):
    for rows in (1, 7, 37):
        v = spread * normal(rows, length, dtype=dtype, seed=rows)
        p = MAPS[name](v)
        assert_on_simplex(p)
        # Entries are relative to the largest of their row, and their difference is rounded once.
        relative = max(1.0, spread) * 10 * torch.finfo(dtype).eps
        torch.testing.assert_close(p.double(), REFERENCES[name](v), rtol=relative, atol=relative / 10)


@pytest.mark.parametrize("length", [1, 3, 21])
def test_projection_by_root_finding(length):
    for v in 2 * normal(20, length):
        row = v.numpy()
        threshold = scipy.optimize.brentq(
            lambda t, row=row: np.maximum(row - t, 0).sum() - 1, row.min() - 2, row.max(), xtol=1e-14
        )
        expected = torch.from_numpy(np.maximum(row - threshold, 0))
        torch.testing.assert_close(project_onto_simplex(v), expected, rtol=0, atol=1e-12)


def test_projection_is_the_nearest_point():
    v = normal(6, 5)
    for row, p in zip(v.numpy(), project_onto_simplex(v).numpy(), strict=True):
        found = scipy.optimize.minimize(
            lambda q, row=row: ((q - row) ** 2).sum(),
            np.full(5, 0.2),
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(p, found.x, atol=1e-6)


def test_softmax_is_scipys():
    v = 5 * normal(40, 21)
    expected = torch.from_numpy(scipy.special.softmax(v.numpy(), -1))
    torch.testing.assert_close(softmax(v), expected, rtol=1e-14, atol=0)


@each_dtype
def test_exponential_to_the_last_digits(dtype):
    """Of a pair, the smaller over the larger is exp of the difference: every part of its range."""
    smallest = float(np.log(torch.finfo(dtype).tiny))
    x = torch.linspace(0.999 * smallest, 0, 200_001, dtype=torch.float64).to(dtype)
    p = softmax(torch.stack([x, torch.zeros_like(x)], -1))[:, 0].numpy().astype(np.longdouble)
    e = np.exp(x.numpy().astype(np.longdouble))
    exact = e / (1 + e)
    assert np.abs((p - exact) / exact).max() < 2 * torch.finfo(dtype).eps


@each_dtype
def test_exponential_below_the_normal_numbers(dtype):
    smallest = float(np.log(torch.finfo(dtype).tiny))
    p = softmax(torch.tensor([[0.0, 1.001 * smallest, 10 * smallest, -INF]], dtype=dtype))
    assert p.tolist() == [[1, 0, 0, 0]]


@each_dtype
def test_ties(dtype):
    for length in LENGTHS:
        for project in MAPS.values():
            p = project(torch.full((3, length), 0.3, dtype=dtype))
            rounding = (length + 4) * torch.finfo(dtype).eps  # of a sum, entry by entry
            torch.testing.assert_close(p, torch.full_like(p, 1 / length), rtol=rounding, atol=0)
    p = project_onto_simplex(torch.tensor([[2.0, 1.0, 2.0, 1.0], [1.0, 1.0, 1.0, 0.0]], dtype=dtype))
    expected = torch.tensor([[0.5, 0, 0.5, 0], [1 / 3, 1 / 3, 1 / 3, 0]], dtype=dtype)
    torch.testing.assert_close(p, expected)
    assert p[0, 1] == 0  # an entry at the threshold is outside


@each_map
@each_dtype
def test_extreme_values(project, dtype):
    top = torch.finfo(dtype).max / 4
    tiny = torch.finfo(dtype).tiny
    v = torch.tensor(
        [
            [1e30, -1e30, 0, 1e29],
            [-1e30, -1e30, -1e30, -3e30],
            [top, -top, top, 0],
            [tiny, -tiny, 0, tiny / 8],
            [tiny / 8, tiny / 16, 0, -tiny / 8],
            [1e6 + 0.5, 1e6, 1e6 + 0.25, 0],
        ],
        dtype=dtype,
    )
    p = project(v)
    assert_on_simplex(p)
    third, half = [1 / 3] * 3 + [0], [0.5, 0, 0.5, 0]
    expected = torch.tensor([[1, 0, 0, 0], third, half, [0.25] * 4, [0.25] * 4], dtype=dtype)
    torch.testing.assert_close(p[:5], expected)
    torch.testing.assert_close(p[5], project(torch.tensor([0.5, 0, 0.25, -1e6], dtype=dtype)))


@each_map
@each_dtype
@pytest.mark.parametrize("length", [3, 8, 21])
def test_forbidden_labels(project, dtype, length):
    """Minus infinity gets 0, and the others what they would get without it."""
    v = normal(40, length, dtype=dtype)
    forbidden = normal(40, length, seed=1) > 0
    forbidden[:, 1] = False
    p = project(v.masked_fill(forbidden, -INF))
    assert_on_simplex(p)
    assert (p[forbidden] == 0).all()
    for row, left, allowed in zip(v, p, ~forbidden, strict=True):
        torch.testing.assert_close(left[allowed], project(row[allowed]))
    assert torch.equal(project(-v.masked_fill(forbidden, -INF), -1.0), p)


@each_map
@each_dtype
@pytest.mark.parametrize("length", [1, 2, 21])
@pytest.mark.parametrize("bad", [NAN, INF, "all -inf"])
def test_rows_without_an_answer_hold_nan_and_leave_the_others_alone(project, dtype, length, bad):
    v = normal(50, length, dtype=dtype)
    expected = project(v)
    for row in (0, 13, 49):
        w = v.clone()
        w[row, -1 if bad != "all -inf" else slice(None)] = -INF if bad == "all -inf" else bad
        p = project(w)
        assert p[row].isnan().any()
        others = torch.arange(50) != row
        assert torch.equal(p[others], expected[others])


def test_scale_multiplies():
    for project in MAPS.values():
        for dtype in DTYPES:
            for length in (3, 21):
                v = normal(30, length, dtype=dtype)
                assert torch.equal(project(v, -2.5), project(v * -2.5))
                torch.testing.assert_close(project(v, 0.0), torch.full_like(v, 1 / length))


@each_map
def test_a_row_does_not_depend_on_its_neighbours(project):
    for dtype in DTYPES:
        for length in (2, 5, 21, 40):
            v = normal(100, length, dtype=dtype)
            p = project(v)
            for i in (0, 15, 16, 50, 99):
                assert torch.equal(project(v[i]), p[i])
            v.requires_grad_()
            (g,) = torch.autograd.grad(project(v), v, normal(100, length, dtype=dtype, seed=1))
            w = v.detach()[50:51].requires_grad_()
            (h,) = torch.autograd.grad(project(w), w, normal(100, length, dtype=dtype, seed=1)[50:51])
            assert torch.equal(g[50:51], h)


@given(
    st.lists(st.integers(0, 5), max_size=3),
    st.integers(1, 40),
    st.sampled_from([torch.float16, torch.bfloat16, *DTYPES]),
    st.sampled_from([1e-3, 1.0, 20.0]),
    st.sampled_from(["plain", "transposed", "every other", "expanded", "reversed axes"]),
    st.integers(0, 1000),
)
def test_any_shape_dtype_and_stride(batch, length, dtype, spread, layout, seed):
    v = (spread * normal(*batch, length, seed=seed)).to(dtype)
    if layout == "transposed":
        v = v.unsqueeze(-1).mT.contiguous().mT.squeeze(-1) if v.dim() < 2 else v.mT.contiguous().mT
    elif layout == "every other":
        v = v.repeat_interleave(2, -1)[..., ::2]
    elif layout == "expanded":
        v = v.unsqueeze(0).expand(3, *v.shape)
    elif layout == "reversed axes":
        axes = list(range(v.dim()))[::-1]
        v = v.permute(axes).contiguous().permute(axes)
    for name, project in MAPS.items():
        p = project(v)
        assert (p.shape, p.dtype, p.device) == (v.shape, v.dtype, v.device)
        if v.numel() == 0:
            continue
        assert (p >= 0).all()
        expected = REFERENCES[name](v)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(p.double(), expected, rtol=80 * eps, atol=2 * eps)


@each_map
def test_refuses_what_has_no_rows_of_real_numbers(project):
    for v in (torch.arange(3), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.complex64)):
        with pytest.raises(TypeError, match=f"dtype {v.dtype}; expected floating point"):
            project(v)
    for v in (torch.tensor(1.0), torch.ones(3, 0)):
        with pytest.raises(ValueError, match="at least one entry per row"):
            project(v)


# --- derivatives -------------------------------------------------------------------------------


@each_map
@pytest.mark.parametrize("length", [1, 2, 5, 9, 21])
@pytest.mark.parametrize("scale", [1.0, -0.7])
def test_derivatives(project, length, scale):
    v = (away_from_kinks(2, 3, length) / scale).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: project(v, scale), v, eps=1e-5)
    assert torch.autograd.gradgradcheck(lambda v: project(v, scale) * v, v, eps=1e-5)


def test_third_derivative_of_softmax():
    v = normal(4).requires_grad_()

    def hessian_times(project, x):
        (g,) = torch.autograd.grad(project(x)[0], x, create_graph=True)
        (h,) = torch.autograd.grad(g[1], x, create_graph=True)
        return torch.autograd.grad(h[2], x)[0]

    torch.testing.assert_close(hessian_times(softmax, v), hessian_times(lambda x: torch.softmax(x, -1), v))


@each_dtype
@pytest.mark.parametrize("length", LENGTHS)
def test_derivative_of_the_projection_subtracts_the_mean_over_the_support(length, dtype):
    v, g = normal(37, length, dtype=dtype).requires_grad_(), normal(37, length, dtype=dtype, seed=1)
    p = project_onto_simplex(v, -2.0)
    (actual,) = torch.autograd.grad(p, v, g)
    for row, d, found in zip(p.detach(), g, actual, strict=True):
        support = row > 0
        assert (found[~support] == 0).all()
        expected = -2 * (d[support] - d[support].mean())
        torch.testing.assert_close(found[support], expected, rtol=1e-5, atol=1e-6)


@each_dtype
@pytest.mark.parametrize("length", LENGTHS)
def test_derivative_of_softmax_is_torchs(length, dtype):
    v, g = normal(37, length, dtype=dtype).requires_grad_(), normal(37, length, dtype=dtype, seed=1)
    (actual,) = torch.autograd.grad(softmax(v, -2.0), v, g)
    (expected,) = torch.autograd.grad(torch.softmax(-2 * v, -1), v, g)
    assert_rounding(actual, expected, times=4)


@each_map
def test_gradient_of_an_expanded_sum(project):
    v = normal(30, 21).requires_grad_()
    (g,) = torch.autograd.grad(project(v).sum(), v)
    assert g.abs().max() < 1e-14


@each_map
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_short_floats_have_gradients(project, dtype):
    v = normal(5, 21, dtype=dtype).requires_grad_()
    g = normal(5, 21, dtype=dtype, seed=1)
    (actual,) = torch.autograd.grad(project(v), v, g)
    w = v.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(project(w), w, g.float())
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected.to(dtype), rtol=0, atol=2e-2)


# --- as torch operators ------------------------------------------------------------------------


def forward_arguments(dtype):
    return normal(3, 4, 5, dtype=dtype), -0.5


def derivative_arguments(dtype):
    return normal(3, 4, 5, dtype=dtype), project_onto_simplex(normal(3, 4, 5, dtype=dtype, seed=1)), -0.5


CALLS = {
    "project": (ops.project, forward_arguments),
    "project_derivative": (ops.project_derivative, derivative_arguments),
    "softmax": (ops.softmax, forward_arguments),
    "softmax_derivative": (ops.softmax_derivative, derivative_arguments),
}
each_call = pytest.mark.parametrize(("op", "arguments"), CALLS.values(), ids=CALLS)


@each_call
def test_opcheck(op, arguments):
    assert set(torch.library.opcheck(op.default, arguments(torch.float32)).values()) == {"SUCCESS"}


@each_call
@each_dtype
def test_fake_and_meta_tensors(op, arguments, dtype):
    *tensors, scale = arguments(dtype)
    tensors = [t.mT.contiguous().mT for t in tensors]
    expected = op(*tensors, scale)
    with FakeTensorMode() as mode:
        fake = op(*map(mode.from_tensor, tensors), scale)
    meta = op(*(t.to("meta") for t in tensors), scale)
    for one in (fake, meta):
        assert (one.shape, one.dtype, one.stride()) == (expected.shape, expected.dtype, expected.stride())


@each_call
@each_dtype
def test_plain_torch_gives_the_same(op, arguments, dtype):
    """What runs on other devices, here on the CPU."""
    *tensors, scale = arguments(dtype)
    plain = {
        "project": "_project",
        "project_derivative": "_project_derivative",
        "softmax": "_softmax",
        "softmax_derivative": "_softmax_derivative",
    }[op.default.name().split("::")[1]]
    function = getattr(sys.modules["fwcrf.torch_ops.simplex"], plain).registered._init_fn
    assert_rounding(op(*tensors, scale), function(*tensors, scale), times=2)
    if len(tensors) == 1:
        v = tensors[0].index_fill(-1, torch.tensor([1]), INF)
        assert_rounding(op(v, scale), function(v, scale), times=2)
        assert function(torch.full_like(v, INF), scale).isnan().all()


@each_map
def test_vmap(project):
    v = normal(4, 3, 5)
    expected = project(v, -2.0)
    assert torch.equal(torch.vmap(lambda v: project(v, -2.0))(v), expected)
    assert torch.equal(
        torch.vmap(lambda v: project(v, -2.0), in_dims=2, out_dims=2)(v.movedim(0, 2)).movedim(2, 0), expected
    )
    twice = torch.vmap(torch.vmap(lambda v: project(v, -2.0)))(v)
    assert torch.equal(twice, expected)


@each_map
def test_func_transforms(project):
    v, g = normal(4, 5), normal(4, 5, seed=1)
    w = v.clone().requires_grad_()
    (expected,) = torch.autograd.grad((project(w) * g).sum(), w)
    actual = torch.func.grad(lambda v: (project(v) * g).sum())(v)
    assert torch.equal(actual, expected)
    per_row = torch.vmap(torch.func.grad(lambda v, g: (project(v) * g).sum()))(v, g)
    assert_rounding(per_row, expected)
    jacobian = torch.func.jacrev(project)(v[0])
    assert_rounding(jacobian @ g[0], expected[0])
    hessian = torch.func.jacrev(torch.func.jacrev(lambda v: (project(v) ** 2).sum()))(v[0])
    assert_rounding(hessian, hessian.mT)


@pytest.mark.filterwarnings("ignore:.*Function.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("g", [Entropy(0.3), SquaredL2(0.3)], ids=lambda g: type(g).__name__)
def test_compile(g):
    torch.compiler.reset()
    v, weights = normal(6, 5).requires_grad_(), normal(6, 5, seed=1)
    compiled = torch.compile(lambda v: g.argmin(v * 2) * weights, fullgraph=True, backend="aot_eager")
    expected, actual = g.argmin(v * 2) * weights, compiled(v)
    assert_rounding(actual, expected)
    for one, other in zip(
        torch.autograd.grad(actual.sum(), v), torch.autograd.grad(expected.sum(), v), strict=True
    ):
        assert_rounding(one, other)
    torch.compiler.reset()


@each_call
def test_arguments_are_left_alone(op, arguments):
    args = arguments(torch.float64)
    copies = [a.clone() for a in args[:-1]]
    op(*args)
    for argument, copy in zip(args, copies, strict=False):
        assert torch.equal(argument, copy)


# --- threads, instruction sets, memory -----------------------------------------------------------


@each_map
@each_dtype
@pytest.mark.parametrize("length", [2, 21, 40])
def test_number_of_threads_changes_nothing(project, dtype, length, num_threads):
    v = normal(400_003 // length, length, dtype=dtype).requires_grad_()
    g = normal(*v.shape, dtype=dtype, seed=1)
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        p = project(v)
        results.append((p.detach(), *torch.autograd.grad(p, v, g)))
    for p, d in results[1:]:
        assert torch.equal(p, results[0][0])
        assert torch.equal(d, results[0][1])


@each_dtype
def test_native_calls_refuse_arrays_that_do_not_fit(dtype):
    v, short = normal(4, 5, dtype=dtype), normal(3, 5, dtype=dtype)
    with pytest.raises(ValueError, match="output shape"):
        _core.project(v, 1.0, short, 1)
    with pytest.raises(ValueError, match="one derivative per row"):
        _core.softmax_derivative(v, short, 1.0, v.clone(), 1)
    with pytest.raises(ValueError, match="at least one entry"):
        _core.softmax(v[:, :0].contiguous(), 1.0, v[:, :0].contiguous(), 1)

"""The custom operators as torch sees them: schema, fake tensors, autograd registration."""

import pytest
import torch
from helpers import KINDS, assert_rounding, normal, points, uniform
from torch._subclasses.fake_tensor import FakeTensorMode

from fwcrf.kernels import Lattice, Separable

ops = torch.ops.fwcrf


def exact_arguments(dtype):
    return normal(2, 7, 3, dtype=dtype), points(7, 2, dtype=dtype), points(2, 7, 2, dtype=dtype), True


def exact_rectangle(dtype):
    return normal(5, 3, dtype=dtype), points(7, 2, dtype=dtype), points(5, 2, dtype=dtype, seed=1), True


def lattice_arguments(dtype, *, order=0, shift=False):
    K = Lattice.build(points(9, 3, dtype=dtype))
    slice_weight = K.slice * 2
    added = uniform(9, dtype=dtype) if shift else None
    return (
        normal(2, 9, 3, dtype=dtype),
        K.index,
        K.splat,
        slice_weight,
        K.neighbors,
        added,
        0.5,
        K.identity,
        order,
        True,
    )


def axis_arguments(dtype):
    K = Separable.build((6,), 1.5, torch.empty((), dtype=dtype))
    return normal(2, 6, 3, dtype=dtype), *K.taps, True


CALLS = {
    "exact": (ops.exact_filter, exact_arguments),
    "exact-rectangle": (ops.exact_filter, exact_rectangle),
    "lattice": (ops.lattice_filter, lattice_arguments),
    "lattice-forward": (ops.lattice_filter, lambda dtype: lattice_arguments(dtype, order=1)),
    "lattice-shift": (ops.lattice_filter, lambda dtype: lattice_arguments(dtype, order=2, shift=True)),
    "axis": (ops.axis_filter, axis_arguments),
}
every_call = pytest.mark.parametrize(("op", "arguments"), CALLS.values(), ids=CALLS)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def move(value, to):
    if isinstance(value, torch.Tensor):
        return to(value)
    return [move(v, to) for v in value] if isinstance(value, list) else value


@every_call
def test_opcheck(op, arguments):
    results = torch.library.opcheck(op.default, arguments(torch.float64))
    assert set(results.values()) == {"SUCCESS"}


@every_call
@both_dtypes
def test_fake_tensors(op, arguments, dtype):
    args = arguments(dtype)
    expected = op(*args)
    with FakeTensorMode() as mode:
        fake = op(*(move(a, mode.from_tensor) for a in args))
    assert (fake.shape, fake.dtype, fake.stride()) == (expected.shape, expected.dtype, expected.stride())


@every_call
@both_dtypes
def test_meta_tensors(op, arguments, dtype):
    args = arguments(dtype)
    expected = op(*args)
    meta = op(*(move(a, lambda t: t.to("meta")) for a in args))
    assert meta.device.type == "meta"
    assert (meta.shape, meta.dtype) == (expected.shape, expected.dtype)


@every_call
def test_arguments_are_left_alone(op, arguments):
    args = arguments(torch.float64)
    copies = [move(a, torch.clone) for a in args]
    op(*args)
    for argument, copy in zip(args, copies, strict=True):
        torch.testing.assert_close(argument, copy, rtol=0, atol=0)


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_operator_takes_fake_tensors(case):
    K, x = case.operator(torch.float32), case.x(torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = K(mode.from_tensor(x))
    assert (y.shape, y.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_export(case):
    """An operator is one opaque node of an exported graph, or a few of torch's own."""

    class Filter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.K = case.operator(torch.float64)

        def forward(self, x):
            return self.K(x)

    x = case.x(torch.float64)
    program = torch.export.export(Filter(), (x,))
    assert_rounding(program.module()(x), case.operator(torch.float64)(x))

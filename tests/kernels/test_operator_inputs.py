"""What an operator takes, and how it refuses the rest."""

import numpy as np
import pytest
import torch
from helpers import DTYPES, KINDS, Case, assert_rounding, covering, normal

every_kind = pytest.mark.parametrize("case", KINDS, ids=str)
LAYOUTS = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "rows apart": lambda x: torch.stack([x, -x], 1).flatten(0, 1)[::2],
    "columns apart": lambda x: torch.stack([x, -x], -1).flatten(-2)[:, ::2],
    "offset": lambda x: torch.cat([x[:1], x])[1:],
}


@every_kind
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_in_memory_does_not_matter(case, layout):
    K, x = case.operator(torch.float32), case.x(torch.float32, channels=5)
    other = layout(x)
    torch.testing.assert_close(other, x, rtol=0, atol=0)
    assert_rounding(K(other), K(x))


@every_kind
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_expanded(case, axis):
    K = case.operator(torch.float32)
    shape = [2, K.n, 5]
    one = [1 if a == axis else size for a, size in enumerate(shape)]
    x = normal(*one, dtype=torch.float32).expand(shape)
    assert x.stride(axis) == 0
    torch.testing.assert_close(K(x), K(x.contiguous()), rtol=0, atol=0)


@every_kind
def test_x_is_left_alone(case):
    K, x = case.operator(torch.float32), case.x(torch.float32)
    before = x.clone()
    y = K(x)
    torch.testing.assert_close(x, before, rtol=0, atol=0)
    assert y.data_ptr() != x.data_ptr()


@covering(case=KINDS, form=["plain", "model", "chain"], built=DTYPES, given=DTYPES)
def test_answer_has_the_dtype_of_x(case, form, built, given):
    case = Case(case.base, form)
    y = case.operator(built)(case.x(given))
    assert y.dtype == given
    expected = case.operator(torch.float64)(case.x(torch.float64))
    tolerance = 4 if torch.float32 in (built, given) else 1
    precision = torch.float32 if torch.float32 in (built, given) else torch.float64
    assert_rounding(y.to(precision), expected.to(precision), times=tolerance)


@every_kind
@pytest.mark.parametrize("channels", [1, 2, 17])
def test_channels_do_not_mix(case, channels):
    K, x = case.operator(torch.float64), case.x(torch.float64, channels=channels)
    assert_rounding(K(x), torch.cat([K(column) for column in x.split(1, -1)], -1))


@every_kind
@pytest.mark.parametrize("form", ["plain", "model", "transposed"])
@pytest.mark.parametrize(("value", "place"), [(float("nan"), 0), (float("inf"), 7), (-float("inf"), -1)])
def test_x_must_be_finite(case, form, value, place):
    K, x = Case(case.base, form).operator(torch.float32), case.x(torch.float32)
    x.view(-1)[place] = value
    with pytest.raises(ValueError, match="x has 1 values that are NaN or infinite"):
        K(x)


@every_kind
def test_sum_that_overflows_is_no_error(case):
    """Large finite values are allowed even where their sum is not finite."""
    K = case.operator(torch.float32)
    x = torch.zeros(K.n, 1)
    x[0], x[1] = 3e38, 3e38
    K(x)


@every_kind
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16], ids=str
)
def test_x_must_be_float(case, dtype):
    K = case.operator(torch.float32)
    with pytest.raises(TypeError, match=f"{dtype}.*float32 or float64"):
        K(torch.zeros(K.n, 1, dtype=dtype))


@every_kind
@pytest.mark.parametrize("convert", [torch.Tensor.tolist, np.asarray], ids=["list", "numpy"])
def test_x_must_be_a_tensor(case, convert):
    K = case.operator(torch.float32)
    x = convert(torch.zeros(K.n, 1))
    with pytest.raises(TypeError, match=f"x is a {type(x).__name__}.*torch tensor"):
        K(x)


@every_kind
@pytest.mark.parametrize(
    "shape",
    [
        lambda n: (n,),
        lambda n: (n + 1, 2),
        lambda n: (n - 1, 2),
        lambda n: (2, n),
        lambda n: (3, 2, n),
        lambda n: (),
    ],
)
def test_shape_that_does_not_fit_names_both(case, shape):
    K = case.operator(torch.float32)
    shape = shape(K.n)
    with pytest.raises(ValueError) as error:
        K(torch.zeros(shape))
    assert str(shape) in str(error.value)
    assert f"(*batch, {K.n}, channels)" in str(error.value)


@every_kind
def test_unknown_normalization_lists_the_valid_ones(case):
    with pytest.raises(ValueError, match=r"'rows'.*symmetric, none, before, after"):
        case.operator(torch.float32).normalized("rows")

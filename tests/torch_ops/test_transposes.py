"""Between layouts, and from rows to labels."""

from __future__ import annotations

import torch
from helpers import DTYPES, covering

from fwcrf.torch_ops.layout import argmax, put_transposed, put_transposed_and_argmax, transposed

every_size = covering(n=[1, 5, 16, 67, 1003], length=[1, 2, 7, 8, 9, 21, 64, 65, 150], dtype=DTYPES)


@every_size
def test_rows_and_columns_change_places(n: int, length: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, n, length, dtype=dtype)
    assert torch.equal(transposed(x), x.mT)
    assert torch.equal(transposed(x.mT), x)


def test_into_an_array_of_another_kind() -> None:
    x = torch.rand(6, 4)
    half = torch.empty(4, 6, dtype=torch.float16)
    put_transposed(x, half)
    assert torch.equal(half, x.mT.half())
    strided = torch.zeros(4, 12)[:, ::2]
    put_transposed(x, strided)
    assert torch.equal(strided, x.mT)


@every_size
def test_the_largest_of_each_row(n: int, length: int, dtype: torch.dtype) -> None:
    # Few different values, so that there are ties; and what is no number counts as the largest.
    x = torch.randint(0, 5, (2, n, length)).to(dtype)
    first = (x == x.amax(-1, keepdim=True)).to(torch.uint8).argmax(-1)
    assert torch.equal(argmax(x), first)
    x[0, n // 2, length // 2] = torch.nan
    x[0, n // 3] = -torch.inf
    assert torch.equal(argmax(x), x.argmax(-1))


@every_size
def test_rows_change_places_and_tell_their_largest(n: int, length: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, 9, (2, n, length)).to(dtype)
    out, largest = torch.empty(2, length, n, dtype=dtype), torch.empty(2, n, dtype=torch.int64)
    assert put_transposed_and_argmax(x, out, largest)
    assert torch.equal(out, x.mT) and torch.equal(largest, argmax(x))


def test_arrays_of_other_kinds_are_left_to_others() -> None:
    x, out, largest = torch.rand(6, 4), torch.empty(4, 6), torch.empty(6, dtype=torch.int64)
    assert not put_transposed_and_argmax(x, out.half(), largest)
    assert not put_transposed_and_argmax(x, out, largest.int())
    assert not put_transposed_and_argmax(x, torch.empty(4, 12)[:, ::2], largest)


def test_the_largest_of_nothing_and_of_views() -> None:
    assert argmax(torch.empty(0, 3)).shape == (0,)
    x = torch.rand(5, 40)[:, ::2]
    assert torch.equal(argmax(x), x.argmax(-1))
    assert torch.equal(argmax(x.half()), x.half().argmax(-1))


def test_gradients_in_memory_of_ours_are_added_up_in_place() -> None:
    x = torch.zeros(1, 600, 700, requires_grad=True)
    with torch.profiler.profile() as profile:
        (transposed(x) + transposed(x)).sum().backward()
    added = [event.name for event in profile.events() if event.name in ("aten::add", "aten::add_")]
    assert added == ["aten::add", "aten::add_"]  # forward, and backward

"""Kernel operators to test, tolerances, and seeded inputs.

An operator is tested by being listed: ``BASES`` says how to build one, ``FORMS`` what may be done to it,
and the tests run over ``CASES``, most of their product.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels import Exact, Lattice, Operator, Separable

DTYPES = (torch.float32, torch.float64)

# What sums in another order may differ by, relative to the largest entry of the expected result.
ROUNDING = {torch.float32: 3e-6, torch.float64: 5e-15}

# Relative L2 error of the lattice against the exact kernel, averaged over three photographs (80 px, 13 grey
# levels), as README.md and docs/accuracy.md claim it; no photograph may exceed it by more than a third.
LATTICE_CLAIM = {"none": 0.034, "symmetric": 0.021}
LATTICE_ERROR = {normalization: 1.3 * claim for normalization, claim in LATTICE_CLAIM.items()}
# How far the best scalar multiple of the lattice may be from the lattice as calibrated.
LATTICE_SCALE_ERROR = 0.02


def assert_rounding(
    actual: Tensor, expected: Tensor, *, times: float = 1.0, scale: float | Tensor | None = None
) -> None:
    """Equal up to ``times`` the rounding of numbers of size ``scale``, by default that of the largest."""
    actual, expected = actual.detach(), expected.detach()
    if scale is None:
        scale = expected.abs().max() if expected.numel() else 0.0
    allowed = times * ROUNDING[expected.dtype] * float(scale)
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=allowed)


def covering(*, strength: int = 2, **values: Sequence[Any] | Mapping[str, Any]) -> Any:
    """``@covering(n=[1, 7], labels=[2, 3], dtype=DTYPES)``: a part of the product, with every pair of values.

    With ``strength=1`` it has every single value, with 3 every triple. A mapping gives its values ids.
    """
    ids = {name: list(map(str, v)) for name, v in values.items()}
    lists = [list(v.values()) if isinstance(v, Mapping) else list(v) for v in values.values()]
    rows = covering_rows([len(v) for v in lists], strength)
    names = [
        "-".join(ids[name][i].removeprefix("torch.") for name, i in zip(ids, row, strict=True))
        for row in rows
    ]
    chosen = [tuple(v[i] for v, i in zip(lists, row, strict=True)) for row in rows]
    return pytest.mark.parametrize(tuple(values), chosen, ids=names)


def covering_rows(sizes: Sequence[int], strength: int = 2) -> list[tuple[int, ...]]:
    """Rows of indices, row[j] < sizes[j], in which any ``strength`` columns take all their values."""

    def groups(row: tuple[int | None, ...]) -> set[tuple[tuple[int, int], ...]]:
        known = [(column, index) for column, index in enumerate(row) if index is not None]
        return set(combinations(known, strength))

    columns = combinations(range(len(sizes)), strength)
    missing = [
        tuple(zip(chosen, indices, strict=True))
        for chosen in columns
        for indices in product(*(range(sizes[c]) for c in chosen))
    ]
    uncovered, rows = dict.fromkeys(missing), []
    while uncovered:
        given = dict(next(iter(uncovered)))
        row: tuple[int | None, ...] = tuple(given.get(c) for c in range(len(sizes)))
        for c in range(len(sizes)):
            if row[c] is None:
                # Equal gains go to the index that was used least.
                used = Counter(r[c] for r in rows)
                filled = [(*row[:c], i, *row[c + 1 :]) for i in range(sizes[c])]
                row = max(filled, key=lambda r: (len(groups(r) & uncovered.keys()), -used[r[c]]))
        for group in groups(row):
            uncovered.pop(group, None)
        rows.append(row)
    return rows


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Drawn in float64, so that both dtypes see the same numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed)).to(dtype)


def uniform(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator(seed)).to(dtype)


def points(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Features of which many see each other, in any dimension; the last point repeats the first."""
    features = normal(*shape, seed=seed) * 1.5 / shape[-1] ** 0.5
    features[..., -1, :] = features[..., 0, :]
    return features.to(dtype)


# --- operators ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """An operator as it is built from features, or for a grid in the dtype of the features."""

    kind: str
    build: Callable[[Tensor], Operator]
    features: tuple[int, ...] = ()  # their shape, (*batch, n, d)
    symmetric: bool = True


@dataclass(frozen=True)
class Form:
    """Something done to an operator, and the same done to its matrix."""

    apply: Callable[[Operator, Tensor, Tensor], Operator]  # operator and two vectors (*batch, n)
    dense: Callable[[Tensor, Tensor, Tensor], Tensor]
    symmetric: bool = True


def grid(*shape: int, xy: Any) -> Base:
    return Base("separable", lambda like: Separable.build(shape, xy, like))


def lattice(*features: int, engine: str, blur: str = "symmetric") -> Base:
    build = partial(Lattice.build, engine=engine, blur=blur)
    return Base(f"lattice-{engine}", build, features, symmetric=blur == "symmetric")


BASES: dict[str, Base] = {
    "exact": Base("exact", Exact, (17, 3)),
    "exact-batch": Base("exact", Exact, (3, 11, 2)),
    "separable-1d": grid(19, xy=1.5),
    "separable-2d": grid(5, 4, xy=1.2),
    "separable-3d": grid(3, 2, 4, xy=0.8),
    "separable-anisotropic": grid(6, 4, xy=(0.7, 2.5)),
    "separable-wide": grid(4, 5, xy=30.0),
    **{
        f"lattice-{d}d-{e}": lattice(19, d, engine=e)
        for d in (1, 2, 3, 5, 8, 16)
        for e in ("native", "torch")
    },
    **{f"lattice-batch-{e}": lattice(3, 11, 5, engine=e) for e in ("native", "torch")},
    **{
        f"lattice-{blur}-{e}": lattice(17, 5, engine=e, blur=blur)
        for blur in ("forward", "reverse")
        for e in ("native", "torch")
    },
    "lattice-forward-8d-native": lattice(17, 8, engine="native", blur="forward"),
    "lattice-forward-batch-native": lattice(2, 11, 2, engine="native", blur="forward"),
}


def _powers_of_row_sums(left: float, right: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def dense(k: Tensor, a: Tensor, b: Tensor) -> Tensor:
        sums = k.sum(-1)
        return sums.pow(left).unsqueeze(-1) * k * sums.pow(right).unsqueeze(-2)

    return dense


def _with_diagonal(k: Tensor, diagonal: Tensor) -> Tensor:
    return k - torch.diag_embed(k.diagonal(dim1=-2, dim2=-1)) + torch.diag_embed(diagonal)


def _model(k: Tensor) -> Tensor:
    unit = _with_diagonal(k, torch.ones_like(k[..., 0]))
    scaled = _powers_of_row_sums(-0.5, -0.5)(unit, unit, unit)
    return _with_diagonal(scaled, torch.zeros_like(k[..., 0]))


FORMS: dict[str, Form] = {
    "plain": Form(lambda K, a, b: K, lambda k, a, b: k),
    "none": Form(lambda K, a, b: K.normalized("none"), lambda k, a, b: k),
    "symmetric": Form(lambda K, a, b: K.normalized("symmetric"), _powers_of_row_sums(-0.5, -0.5)),
    "before": Form(lambda K, a, b: K.normalized("before"), _powers_of_row_sums(0, -1), symmetric=False),
    "after": Form(lambda K, a, b: K.normalized("after"), _powers_of_row_sums(-1, 0), symmetric=False),
    "scaled": Form(lambda K, a, b: K.scaled(a), lambda k, a, b: a[..., None] * k * a[..., None, :]),
    "scaled-apart": Form(
        lambda K, a, b: K.scaled(a, b),
        lambda k, a, b: a[..., None] * k * b[..., None, :],
        symmetric=False,
    ),
    "shifted": Form(lambda K, a, b: K.shifted(a), lambda k, a, b: k + torch.diag_embed(a)),
    "unit-diagonal": Form(
        lambda K, a, b: K.with_unit_diagonal(),
        lambda k, a, b: _with_diagonal(k, torch.ones_like(a)),
    ),
    "no-self-edges": Form(
        lambda K, a, b: K.without_self_edges(),
        lambda k, a, b: _with_diagonal(k, torch.zeros_like(a)),
    ),
    # What a model uses by default.
    "model": Form(
        lambda K, a, b: K.with_unit_diagonal().normalized("symmetric").without_self_edges(),
        lambda k, a, b: _model(k),
    ),
    # Every operation after every other.
    "chain": Form(
        lambda K, a, b: K.shifted(a).scaled(b, a).shifted(b).scaled(a).without_self_edges().shifted(a),
        lambda k, a, b: _with_diagonal(
            a[..., None] * b[..., None] * (k + torch.diag_embed(a)) * a[..., None, :].square(), a
        ),
        symmetric=False,
    ),
    "transposed": Form(
        lambda K, a, b: K.scaled(a, b).shifted(b).T,
        lambda k, a, b: (a[..., None] * k * b[..., None, :] + torch.diag_embed(b)).mT,
        symmetric=False,
    ),
}


@dataclass(frozen=True)
class Case:
    base: str
    form: str

    @property
    def kind(self) -> str:
        return BASES[self.base].kind

    @property
    def symmetric(self) -> bool:
        return BASES[self.base].symmetric and FORMS[self.form].symmetric

    @property
    def batched(self) -> bool:
        return len(BASES[self.base].features) > 2

    def features(self, dtype: torch.dtype) -> Tensor:
        shape = BASES[self.base].features
        return points(*shape, dtype=dtype) if shape else torch.empty(0, dtype=dtype)

    def plain(self, dtype: torch.dtype) -> Operator:
        """The operator before anything is done to it."""
        return operator(self.base, "plain", dtype)

    def operator(self, dtype: torch.dtype) -> Operator:
        return operator(self.base, self.form, dtype)

    def vectors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What the operator is scaled and shifted by: (*batch, n), between 0.5 and 1.5."""
        K = self.plain(dtype)
        shape = (*K.batch_shape, K.n)
        return uniform(*shape, dtype=dtype, seed=1) + 0.5, uniform(*shape, dtype=dtype, seed=2) + 0.5

    def images(self, dtype: torch.dtype) -> Iterator[Operator]:
        """One operator for each image of a batch, built alone."""
        for features, *vectors in zip(self.features(dtype), *self.vectors(dtype), strict=True):
            yield FORMS[self.form].apply(BASES[self.base].build(features), *vectors)

    def x(self, dtype: torch.dtype, channels: int = 3, seed: int = 3) -> Tensor:
        K = self.operator(dtype)
        return normal(*K.batch_shape, K.n, channels, dtype=dtype, seed=seed)

    def __str__(self) -> str:
        return f"{self.base}-{self.form}"


@cache
def operator(base: str, form: str, dtype: torch.dtype) -> Operator:
    case = Case(base, form)
    if form == "plain":
        return BASES[base].build(case.features(dtype))
    return FORMS[form].apply(case.plain(dtype), *case.vectors(dtype))


# One of every kind in every form; what a form does to the others is seen in a few.
IN_EVERY_FORM = (
    "exact-batch",
    "separable-2d",
    "lattice-5d-torch",
    "lattice-batch-native",
    "lattice-forward-native",
)
IN_FEW = ("plain", "model", "chain")
CASES = [Case(base, form) for base in BASES for form in (FORMS if base in IN_EVERY_FORM else IN_FEW)]


def cases(**wanted: Any) -> list[Case]:
    """The cases whose attributes are as wanted: one value, or one of a tuple of values."""
    return [
        case
        for case in CASES
        if all(
            getattr(case, name) in (value if isinstance(value, tuple) else (value,))
            for name, value in wanted.items()
        )
    ]


# One operator of every kind, for what does not depend on its numbers.
KINDS = [
    Case(base, "plain")
    for base in ("exact", "separable-2d", "lattice-5d-native", "lattice-forward-native", "lattice-5d-torch")
]


# --- processes ---------------------------------------------------------------------------------


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _send(connection: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        connection.send((True, function(*args)))
    except BaseException:
        connection.send((False, traceback.format_exc()))
        raise


def in_process(function: Callable[..., Any], *args: Any, start: str = "spawn", timeout: float = 60) -> Any:
    """``function(*args)`` in a process of its own; fails if that hangs, crashes or raises.

    Arguments and result travel by pickle: numpy arrays or plain Python, for torch shares memory instead.
    """
    context = multiprocessing.get_context(start)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, args), daemon=True)
    process.start()
    sender.close()
    try:
        assert receiver.poll(timeout), f"no answer within {timeout} s"
        succeeded, value = receiver.recv()
    except EOFError:
        process.join(5)
        raise AssertionError(f"the process died with exit code {process.exitcode}") from None
    finally:
        process.kill()  # it has answered, or never will
        process.join()
        receiver.close()
    assert succeeded, f"in the other process:\n{value}"
    return value


# --- arrays that end where memory ends -----------------------------------------------------------


class Fenced:
    """Arrays whose last byte, or first, lies beside a page that may not be touched."""

    def __init__(self, at_end):
        self.at_end = at_end
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def __call__(self, tensor):
        source = np.ascontiguousarray(tensor.numpy())
        page = mmap.PAGESIZE
        inner = max(1, -(-source.nbytes // page)) * page
        private_anonymous = 0x22
        base = self.libc.mmap(None, inner + 2 * page, 3, private_anonymous, -1, 0)
        assert base not in (None, ctypes.c_void_p(-1).value)
        for fence in (base, base + page + inner):
            assert self.libc.mprotect(fence, page, 0) == 0
        start = base + page + (inner - source.nbytes if self.at_end else 0)
        memory = (ctypes.c_char * source.nbytes).from_address(start)
        array = np.frombuffer(memory, source.dtype).reshape(source.shape)
        array[...] = source
        return torch.from_numpy(array)


def run_fenced(at_end):
    fence = Fenced(at_end)
    for dtype in DTYPES:
        for d in (1, 2, 5, 16):
            for n in (1, 3, 70):
                features = fence(normal(1, n, d, dtype=dtype))
                K = Lattice.uncalibrated(features.expand(1, n, d) if n > 1 else features)
                tables = [fence(t.flatten(0, -2)) for t in (K.index, K.splat, K.splat)]
                order, neighbors, shift = (
                    fence(K.order.flatten(0, -2)),
                    fence(K.neighbors),
                    fence(K.splat[0, :, 0]),
                )
                found, slopes = (fence(torch.empty(s, dtype=dtype)) for s in ((n,), (n, d + 1)))
                _core.diagonal(tables[0], tables[1], order, neighbors, 0.5, -0.3, found, slopes, 1)
                for channels in (1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65):
                    x = fence(normal(1, n, channels, dtype=dtype))
                    out = fence(torch.empty(1, n, channels, dtype=dtype))
                    for threads in (1, 2):
                        assert _core.filter(x, *tables, neighbors, shift, 0.5, -0.3, 0, out, threads)
                    taps = fence(torch.ones(min(n, 3), dtype=dtype))
                    _core.filter_axis(x, taps, out, 1)
    return "untouched"

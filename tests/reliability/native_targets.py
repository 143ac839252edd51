"""Fuzz targets of the native module: arrays of any shape and content, never a crash.

Tables of lattices are made by the library, because their entries are taken on trust; shapes, dtypes and
values are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from api_targets import Refused, check_probabilities, sentences
from choices import NOT_FINITE, Choices, array, flag, number, pick, positive

import fwcrf
from fwcrf import _core, graphs, pairwise
from fwcrf.kernels import Bilateral, Lattice, Spatial
from fwcrf.torch_ops.lattice_torch import embedding_adjoint
from fwcrf.torch_ops.native import empty

DTYPES = (np.float32, np.float64)


def _values(c: Choices, shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, bool]:
    """Values, now and then not finite; and whether they all are."""
    values = array(c, shape, dtype)
    if values.size and not c.integer(0, 3):
        values.flat[c.integer(0, values.size - 1)] = pick(c, NOT_FINITE)
    return values, bool(np.isfinite(values).all())


def simplex(c: Choices) -> None:
    """Projections onto simplices, softmax, and their derivatives."""
    dtype, shape = pick(c, DTYPES), (c.integer(0, 40), c.integer(1, 70))
    v, finite = _values(c, shape, dtype)
    scale = pick(c, (1.0, -1.0, 0.0, 1e-3, -1e6, number(c)))
    threads = c.integer(1, 3)
    p, d = np.full_like(v, np.nan), np.full_like(v, np.nan)
    soft = flag(c)
    (_core.softmax if soft else _core.project)(v, scale, p, threads)
    with np.errstate(over="ignore"):
        bounded = finite and bool(np.isfinite(v * np.asarray(scale, dtype)).all())
    if bounded and len(p):
        check_probabilities(p)
    given, given_finite = _values(c, shape, dtype)
    (_core.softmax_derivative if soft else _core.project_derivative)(given, p, scale, d, threads)
    if bounded and given_finite and float(np.abs(given).max(initial=0)) * abs(scale) < 1e30:
        assert np.isfinite(d).all(), "a derivative that is not finite"


def lattice(c: Choices) -> None:
    """A lattice built from any features, filtered, transposed, and its diagonal."""
    dtype = pick(c, (torch.float32, torch.float64))
    batch, n, d = c.integer(1, 3), c.integer(1, 80), c.integer(1, 16)
    features = torch.from_numpy(array(c, (batch, n, d))).to(dtype)
    with sentences():
        torch.set_num_threads(c.integer(1, 2))
        K = Lattice.uncalibrated(
            features, blur=pick(c, ("symmetric", "forward", "reverse")), identity=pick(c, (0.0, -0.1))
        )
        x, finite = _values(c, (batch, n, c.integer(0, 70)), DTYPES[dtype == torch.float64])
        assert int(K.index.min()) >= 0 and int(K.index.max()) < K.vertices
        assert int(K.neighbors.min()) >= 0 and int(K.neighbors.max()) <= K.vertices
        y = K(torch.from_numpy(np.clip(x, -1e20, 1e20)))
        sums = Lattice.symmetric(features).row_sums()
        assert torch.isfinite(sums).all(), "row sums of a normalised lattice"
        diagonal = K.diagonal()
        g = torch.from_numpy(array(c, (batch * n, d + 1), largest=1e3)).to(dtype)
        of_features, order = g.new_empty(batch * n, d), K.order.view(batch * n, -1)
        _core.embedding_adjoint(g, order, np.ones(d), of_features, c.integer(1, 2))
        expected = embedding_adjoint(g.double(), order, [1.0] * d)
    assert torch.allclose(of_features.double(), expected, atol=0.1 if dtype == torch.float32 else 1e-9)
    assert torch.isfinite(diagonal).all() and torch.isfinite(y).all()
    assert finite or bool(np.isinf(x).any()), "values that are no numbers were not seen"


def grid(c: Choices) -> None:
    """Filters along an axis, transposition, features of pixels, and bounds."""
    dtype, threads = pick(c, DTYPES), c.integer(1, 3)
    shape = (c.integer(0, 5), c.integer(0, 40), c.integer(0, 40))
    x = array(c, shape, dtype, largest=1e10)
    taps = array(c, (c.integer(1, 60),), dtype, largest=1e3)
    out = np.full_like(x, np.nan)
    _core.filter_axis(x, taps, out, threads)
    assert np.isfinite(out).all()
    turned = np.full((shape[0], shape[2], shape[1]), np.nan, dtype)
    _core.transpose(x, turned, threads)
    assert (turned == x.swapaxes(1, 2)).all()
    beside, sums = array(c, turned.shape, dtype, largest=1.0), np.zeros(shape[2] + 1)
    _core.transpose_and_sum(x, beside, 2.0, turned, sums, threads)
    assert (turned == 2 * x.swapaxes(1, 2)).all()
    exact = x.astype(np.float64)
    expected = [*exact.sum((0, 1)), (exact.swapaxes(1, 2) * beside).sum()]
    np.testing.assert_allclose(sums, expected, atol=1e-4 * float(np.abs(exact).sum() + 1))
    shrunk(c, dtype, threads)
    sizes = np.array([c.integer(1, 6) for _ in range(c.integer(1, 3))])
    channels = c.integer(0, 4)
    values = array(c, (c.integer(0, 3), int(sizes.prod()), channels), dtype, largest=1e10)
    inverse = array(c, (len(sizes) + channels,), dtype, largest=1e3)
    features = np.full((*values.shape[:2], len(inverse)), np.nan, dtype)
    assert _core.bilateral_features(values, sizes, inverse, features, threads)
    assert np.isfinite(features).all()
    image_lattice(c, values, sizes, inverse, threads)
    if features[:1].size:
        finite, low, high = _core.feature_bounds(features[0])
        assert (
            finite
            and (np.array(low) == features[0].min(0)).all()
            and (np.array(high) == features[0].max(0)).all()
        )


def image_lattice(
    c: Choices, values: np.ndarray, sizes: np.ndarray, inverse: np.ndarray, threads: int
) -> None:
    """The lattice of images with small values, which has finite weights."""
    images, n, channels = values.shape
    d = len(inverse)
    if not images or not channels or d > 5:
        return
    small = np.remainder(values, 7)
    index = np.full((images, n, d + 1), -1, np.int32)
    weight = np.full((images, n, d + 1), np.nan, values.dtype)
    shift, minus = np.full((2, images, n), np.nan, values.dtype)
    neighbors = _core.image_lattice(
        small, sizes.tolist(), [0.5] * d, pick(c, ([], [2] * len(sizes))), [1.0] * d, np.arange(n), n // 2,
        -0.3, 1.0, 0.5, -0.1, 1e-6, 8.0, index, weight, shift, minus, threads,
    )  # fmt: skip
    assert index.min() >= 0 and index.max() < neighbors.shape[1]
    assert all(np.isfinite(t).all() for t in (weight, shift, minus))


def shrunk(c: Choices, dtype: Any, threads: int) -> None:
    """A band along the last axis of a grid, into whole vectors, and along any axis."""
    lanes = (_core.ModelF64 if dtype == np.float64 else _core.ModelF32).lanes()
    outer, columns, rows = c.integer(0, 3), c.integer(1, 12), c.integer(1, 8)
    width = c.integer(1, columns)
    random = np.random.default_rng(c.integer(0, 2**32 - 1))
    first = np.sort(random.integers(0, columns - width + 1, rows)).astype(np.int32)
    weight = array(c, (rows, width), dtype, largest=1e3)
    full = np.zeros((rows, columns))
    for row, start, own in zip(full, first, weight, strict=True):
        row[start : start + width] = own
    cell = lanes * c.integer(1, 4)
    for along, inner in ((False, c.integer(1, cell)), (True, 2 * lanes * c.integer(1, 3))):
        x = array(c, (outer, columns, inner), dtype, largest=1e10)
        out = np.full((outer, rows, inner if along else cell), np.nan, dtype)
        (_core.shrink_axis if along else _core.shrink_lines)(x, (first, weight), out, threads)
        error = np.abs(out[..., :inner] - full @ x)
        assert (error <= 100 * np.finfo(dtype).eps * (np.abs(full) @ np.abs(x)) + 1e-30).all()
        assert np.isfinite(out).all()


def pruning(c: Choices) -> None:
    """Labels merged into one and given their shares again: rows of softmax stay the same."""
    dtype, threads = pick(c, DTYPES), c.integer(1, 3)
    n, labels = c.integer(0, 40), c.integer(1, 70)
    u = array(c, (n, labels), dtype, largest=1e3)
    kept = np.flatnonzero(np.random.default_rng(c.integer(0, 2**32 - 1)).uniform(size=labels) < 0.5)
    gap, most = np.full(labels, np.nan, dtype), np.full(labels, np.nan, dtype)
    p = np.full_like(u, np.nan)
    _core.softmax(u, -1.0, p, threads)
    x = pick(c, (None, p))
    _core.label_spans(x, u, gap, most, threads)
    if n:
        assert (gap >= 0).all() and (most == (0 if x is None else p.max(0))).all()
        best, where, rare = np.zeros((1, n), dtype), np.full((1, n), -1), np.full((1, labels), np.nan, dtype)
        _core.best_labels(u[None], [(n, 0, 1, n)], best, where, threads)
        assert (p[range(n), where[0]] >= p.max(1) - 1e-6).all() and np.abs(best - p.max(1)).max() < 1e-6
        _core.rarity(u[None], [(n, 0, 1, n)], 0.01, rare, threads)
        assert (rare >= 0).all() and (rare[0, np.setdiff1d(range(labels), where)] == 0).all()
    few, energies = (np.full((n, len(kept) + 1), np.nan, dtype) for _ in range(2))
    back = np.full_like(u, np.nan)
    try:
        _core.merge_labels(x, u, kept, -1.0, few, energies, threads)
    except ValueError as error:  # fewer pixels or labels than a vector has lanes
        raise Refused(str(error)) from error
    check_probabilities(few)
    _core.unmerge_labels(u, kept, -1.0, few, energies, back, threads)
    assert np.abs(back - p).max(initial=0) < 1e-4, "a share that is not the label's own"


def model(c: Choices) -> None:
    """P x + u of a dense model by the fused engine, and its derivatives."""
    dtype = pick(c, (torch.float32, torch.float64))
    batch = pick(c, ((), (1,), (3,)))
    shape = tuple(c.integer(1, 20) for _ in range(pick(c, (2, 1, 3))))
    labels = c.integer(1, 70)
    kernels: list[Any] = []
    for _ in range(c.integer(1, 3)):
        kernels.append(
            Spatial(
                positive(c, 0.05, 50),
                pick(c, (1.0, -2.0)),
                normalization=pick(c, ("symmetric", "none", "after")),
            )
            if flag(c)
            else Bilateral(positive(c, 0.5, 50), positive(c, 0.5, 50), pick(c, (1.0, 0.0)))
        )
    image = torch.from_numpy(array(c, (*batch, c.integer(1, 3), *shape), largest=1e4)).to(dtype)
    compat = pick(c, (1.0, torch.from_numpy(array(c, (labels, labels), largest=10.0))))
    with sentences():
        torch.set_num_threads(c.integer(1, 2))
        P = pairwise.of_image(
            kernels, image, labels, compat=compat, spatial_dims=len(shape), self_edges=flag(c)
        )
        n = math.prod(shape)
        x = torch.from_numpy(array(c, (*batch, n, labels), largest=1e6)).to(dtype)
        u = torch.from_numpy(array(c, (*batch, n, labels), largest=1e6)).to(dtype)
        if flag(c):
            x.requires_grad_()
        y = P.plus(x, u)
    assert torch.isfinite(y).all(), "P x + u is not finite"
    if x.requires_grad:
        (g,) = torch.autograd.grad(y.sum(), x)
        assert torch.isfinite(g).all()


def inverse(c: Choices) -> None:
    """Entries of the inverse of a band matrix, from its factors."""
    n, band = c.integer(1, 12), c.integer(0, 3)
    columns = [range(j + 1, min(n, j + 1 + band)) for j in range(n)]
    first = np.cumsum([0, *map(len, columns)])
    row = np.array([i for column in columns for i in column], np.int32)
    random = np.random.default_rng(c.integer(0, 2**32 - 1))
    factor, pivot = random.uniform(-0.5, 0.5, len(row)), random.uniform(1, 2, n)
    at, diagonal = np.full(len(row), np.nan), np.full(n, np.nan)
    _core.selected_inverse(first, row, factor, pivot, at, diagonal)
    lower, column = np.eye(n), np.repeat(np.arange(n), np.diff(first))
    lower[row, column] = factor
    expected = np.linalg.inv(lower * pivot @ lower.T)
    assert np.allclose(diagonal, expected.diagonal()) and np.allclose(at, expected[row, column])


def graph(c: Choices) -> None:
    """A sparse model solved, differentiated, rounded, and searched from disturbed labels; an inverse."""
    inverse(c)
    dtype = pick(c, (torch.float32, torch.float64))
    n, m, labels = c.integer(2, 30), c.integer(0, 60), c.integer(1, 20)
    random = np.random.default_rng(c.integer(0, 2**32 - 1))
    ends = np.sort((random.integers(0, n, (m, 1)) + [0, 1] * random.integers(1, n, (m, 1))) % n, axis=1)
    ends = np.unique(ends, axis=0)
    m = len(ends)
    if m and not c.integer(0, 9):
        ends[0] = pick(c, ((-1, 0), (0, 0), (0, n)))
    unary = torch.from_numpy(_values(c, (n, labels), np.float64)[0]).to(dtype)
    weight = torch.from_numpy(array(c, (m,), largest=1e3)).to(dtype)
    tables = torch.from_numpy(array(c, (m, labels, labels), largest=1e3)).to(dtype)
    matrix = torch.from_numpy(array(c, (labels, labels), largest=10.0)).to(dtype)
    terms = pick(
        c,
        (graphs.Potts(weight), graphs.TruncatedLinear(1.0, 2.0), graphs.Full(matrix), graphs.Tables(tables)),
    )
    with sentences():
        torch.set_num_threads(c.integer(1, 2))
        mrf = fwcrf.SparseMRF(unary, torch.from_numpy(ends), terms)
        solution = mrf.solve(
            pick(c, ("l2fw", "mf", "fw")), num_steps=c.integer(1, 3), restarts=c.integer(0, 2), seed=n
        )
        labelled = solution.labels
    assert int(labelled.min()) >= 0 and int(labelled.max()) < labels
    check_probabilities(solution.probabilities.numpy())
    assert not torch.isnan(mrf.value(labelled)).any()
    x = torch.from_numpy(array(c, (n, labels), largest=1e6)).to(dtype).requires_grad_()
    y = mrf.energy().pairwise(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    assert torch.isfinite(y).all() and torch.isfinite(g).all()


# The arguments of every function but the threads: a letter for the dtype (f for float32 or float64,
# d for float64, i for int32, l for int64, b for uint8) and the number of axes; s for a number, [] for a list,
# () for a tuple.
FUNCTIONS: dict[str, str] = {
    "softmax": "f2 s f2",
    "project": "f2 s f2",
    "softmax_derivative": "f2 f2 s f2",
    "project_derivative": "f2 f2 s f2",
    "transpose": "f3 f3",
    "transpose_and_argmax": "f3 f3 l2",
    "transpose_log": "f3 s s f3",
    "transpose_log_derivative": "f3 f3 s s f3",
    "transpose_blend_log": "f3 f3 s s s f3",
    "blend_log_derivative": "f3 f3 f3 s s s f3 f3",
    "transpose_and_sum": "f3 f3 s f3 d1",
    "argmax": "f2 l1",
    "energies": "f3 s s s f3",
    "filter_axis": "f3 f1 f3",
    "tap_slopes": "f3 f3 d1",
    "bilateral_features": "f3 l1 f1 f3",
    "feature_bounds": "f2",
    "build_lattice": "f3 d1 l1 l1 i3 f3 l3",
    "image_lattice": "f3 [s] [s] [s] [s] l1 s s s s s s s i3 f3 f2 f2",
    "diagonal": "i2 f2 l2 i3 s s f1 f2",
    "embedding_adjoint": "f2 l2 d1 f2",
    "normalize": "i3 f3 l3 i3 f1 s s s f3 f2 f2",
    "gaussian_sums": "f3 f3 f2",
    "sampled_sums": "f3 l1 s i3 f3 i3 s s s s f2 f2",
    "placed": "f3 f1 s f3",
    "scaled_rows": "f2 f1 f2 [f1] [f1]",
    "filter": "f3 i2 f2 f2 i3 f1 s s s f3",
    "corner_dots": "f3 f3 f2 i2 f2 i3 s s s f2 f1",
    "row_products": "f3 f3 f2 f2",
    "shrink_lines": "f3 (i1,f2) f3",
    "shrink_axis": "f3 (i1,f2) f3",
    "band_products": "f4 f4 s s f2",
    "best_labels": "f3 [(s,s,s,s)] f2 l2",
    "rarity": "f3 [(s,s,s,s)] s f2",
    "label_spans": "f2 f2 f1 f1",
    "take_labels": "f2 l1 f2",
    "spread_labels": "f2 l1 f2",
    "merge_labels": "f2 f2 l1 s f2 f2",
    "unmerge_labels": "f2 l1 s f2 f2 f2",
    "adjacency": "i2 l1 i1 i1",
    "levels": "l1 i1 l1",
    "selected_inverse": "l1 i1 d1 d1 d1 d1",
    "edge_sum": "f3 f3 f2 f3 s s l1 i1 i1 f3",
    "table_sum": "f3 f3 f4 l1 i1 i1 f3",
    "edge_inner": "f3 f3 i2 s f2",
    "edge_outer": "f3 f3 i2 f4",
    "graph_descent": "f3 f3 f2 f3 f4 l1 i1 i1 s s s l2",
    "normalized_weights": "i2 f2 i3 s s s s s f2 f2",
    "set_threads": "s",
    "isa_for_rows": "s",
    "ModelF32.row": "s",
    "ModelF64.row": "s",
    "empty": "s",
    "order_words": "s",
    "threads_for": "s s",
    "quotient_range": "[s] [s] [s]",
    "ModelF32.add_lattice": "i3 f3 f3 i3 f2 s s s",
    "ModelF64.add_lattice": "i3 f3 f3 i3 f2 s s s",
    "ModelF32.add_grid": "[s] [s] [(i1,f2)] [(i1,f2)] [(i1,f2)] (f1,f1,f1) f2",
    "ModelF64.add_grid": "[s] [s] [(i1,f2)] [(i1,f2)] [(i1,f2)] (f1,f1,f1) f2",
    "ModelF32.run": "f3 (s,s,f3,f3,s) f3 d1 [f2] d2 [f3] [f3] f3 f3 d3 s s [f3] [f3] d2",
    "ModelF64.run": "f3 (s,s,f3,f3,s) f3 d1 [f2] d2 [f3] [f3] f3 f3 d3 s s [f3] [f3] d2",
    "SpreadsF32.array": "s s s",
    "SpreadsF64.array": "s s s",
    "GraphModel.trws": "d2 s s s l1 d1 s",
    "GraphModel.cut": "s l1",
    "GraphModel.energy": "l1",
    "GraphModel.expand": "s s l1",
    "GraphModel.eliminate": "s s s l1",
    "GraphModel.balls": "s s s s s l1",
    "GraphModel.branch": "s s s s l1",
    "GraphModel.patches": "s s s s s l1",
    "GraphModel.propagate": "b3 b2",
    "GraphModel.repair": "b3 s s s l1",
    "GraphModel.take_better_parts": "l1 l1",
    "GraphModel.sweep": "d1 d1 s d2",
    "GraphModel.kick": "s s s l1",
}
_WITHOUT_THREADS = {
    *("feature_bounds", "adjacency", "empty", "set_threads", "order_words", "threads_for", "quotient_range"),
    *("add_lattice", "add_grid", "run", "row", "isa_for_rows", "selected_inverse", "levels", "array"),
    *(name.rpartition(".")[2] for name in FUNCTIONS if name.startswith("GraphModel.")),
}
# Without arguments that could be wrong.
WITHOUT_ARGUMENTS = (
    *("isa", "openmp", "max_threads", "maps", "duals", "most_labels", "lanes", "typical_cost", "steps"),
)
_DTYPES = {"i": np.int32, "l": np.int64, "d": np.float64, "b": np.uint8}


def _argument(c: Choices, kind: str, sizes: list[int], floating: Any) -> Any:
    """An argument of a kind, now and then of another one."""
    if kind.startswith("["):
        return [_argument(c, kind[1:-1], sizes, floating) for _ in range(c.integer(0, 2))]
    if kind.startswith("("):
        return tuple(_argument(c, one, sizes, floating) for one in kind[1:-1].split(","))
    if kind == "s":
        return pick(c, (0, 1, 2, 1.0, -0.5, -1.0, -3, True, False, None, "x", float("nan")))
    axes = int(kind[1]) if c.integer(0, 19) else c.integer(0, 4)
    dtype = _DTYPES.get(kind[0], floating)
    if not c.integer(0, 19):
        dtype = pick(c, (np.float32, np.float64, np.int32, np.int64, np.float16, np.complex64))
    values: Any = np.zeros(tuple(pick(c, sizes) for _ in range(axes)), dtype)
    how = c.integer(0, 40)
    if how == 0 and values.ndim:
        values = values[..., ::-1]
    elif how == 1:
        values = np.asfortranarray(values)
    elif how == 2:
        values.flags.writeable = False
    elif how == 3:
        values = pick(c, (None, 3, [1.0], "x", torch.empty(values.shape, device="meta")))
    return values


def _graph_model(c: Choices, sizes: list[int]) -> _core.GraphModel:
    """A path of nodes, closed with three or more; now and then with a wrong argument."""
    n = max(1, sizes[0])
    ends = [(i, i + 1) for i in range(n - 1)] + [(0, n - 1)] * (n > 2)
    first, neighbor, slot = np.zeros(n + 1, np.int64), *np.zeros((2, 2 * len(ends)), np.int32)
    _core.adjacency(np.array(ends, np.int32).reshape(-1, 2), first, neighbor, slot)
    unary, weight = array(c, (n, n), largest=1e3), array(c, (len(ends),), largest=1e3)
    given: list[Any] = [unary, 0, weight, None, None, 0.0, first, neighbor, slot]
    if not c.integer(0, 9):
        place = c.integer(0, len(given) - 1)
        kind = ("d2", "s", "d1", "d2", "d3", "s", "l1", "i1", "i1")[place]
        given[place] = _argument(c, kind, sizes, np.float64)
    return _core.GraphModel(*given)


def arguments(c: Choices) -> None:
    """Arrays of wrong shapes, dtypes, orders and kinds: an exception, or an answer where they fit."""
    name = pick(c, [*FUNCTIONS])
    same = c.integer(0, 4)
    sizes = [same] * 3 if flag(c) else [c.integer(0, 4) for _ in range(3)]
    floating = pick(c, DTYPES)
    given = [_argument(c, kind, sizes, floating) for kind in FUNCTIONS[name].split()]
    owner, _, method = name.rpartition(".")
    threads = () if method in _WITHOUT_THREADS else (pick(c, (1, 2, 0, -1, 10**12)),)
    try:
        if owner == "GraphModel":
            place: Any = _graph_model(c, sizes)
        else:
            place = getattr(_core, owner)() if owner else _core
        getattr(place, method)(*given, *threads)
    except (
        ValueError,
        TypeError,
        OverflowError,
        IndexError,
        BufferError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise Refused(str(error)) from error


def memory(c: Choices) -> None:
    """Blocks taken and given back in any order."""
    held: list[torch.Tensor] = []
    for _ in range(c.integer(1, 12)):
        if held and flag(c):
            held.pop(c.integer(0, len(held) - 1))
        else:
            size = c.integer(0, 3 << 18)
            block = empty((size,), torch.float32)
            block[:1] = len(held)
            block[-1:] = len(held)
            held.append(block)


TARGETS: dict[str, Callable[[Choices], None]] = {
    f"native_{target.__name__}": target
    for target in (simplex, lattice, grid, pruning, model, graph, arguments, memory)
}

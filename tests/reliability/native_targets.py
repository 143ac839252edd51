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
        diagonal = K.diagonal()
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
    sizes = np.array([c.integer(1, 6) for _ in range(c.integer(1, 3))])
    channels = c.integer(0, 4)
    values = array(c, (c.integer(0, 3), int(sizes.prod()), channels), dtype, largest=1e10)
    inverse = array(c, (len(sizes) + channels,), dtype, largest=1e3)
    features = np.full((*values.shape[:2], len(inverse)), np.nan, dtype)
    assert _core.bilateral_features(values, sizes, inverse, features, threads)
    assert np.isfinite(features).all()
    if features[:1].size:
        finite, low, high = _core.feature_bounds(features[0])
        assert (
            finite
            and (np.array(low) == features[0].min(0)).all()
            and (np.array(high) == features[0].max(0)).all()
        )


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


def graph(c: Choices) -> None:
    """A sparse model solved, differentiated, rounded, and searched from disturbed labels."""
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


_FUNCTIONS: dict[str, tuple[int, ...]] = {  # numbers of axes of the arrays they take
    "softmax": (2, -1, 2),
    "project": (2, -1, 2),
    "softmax_derivative": (2, 2, -1, 2),
    "project_derivative": (2, 2, -1, 2),
    "transpose": (3, 3),
    "filter_axis": (3, 1, 3),
    "bilateral_features": (3, 1, 1, 3),
    "feature_bounds": (2,),
    "build_lattice": (3, 1, 1, 1, 3, 3, 3),
    "diagonal": (2, 2, 2, 3, -1, -1, 1, 2),
    "sampled_sums": (3, 1, -1, 3, 3, 3, -1, -1, -1, -1, 2, 2),
    "filter": (3, 2, 2, 2, 3, 1, -1, -1, -1, 3),
    "label_spans": (2, 2, 1, 1),
    "take_labels": (2, 1, 2),
    "spread_labels": (2, 1, 2),
    "merge_labels": (2, 2, 1, -1, 2, 2),
    "unmerge_labels": (2, 1, -1, 2, 2, 2),
    "adjacency": (2, 1, 1, 1),
    "edge_sum": (3, 3, 2, 3, -1, -1, 1, 1, 1, 3),
    "table_sum": (3, 3, 4, 1, 1, 1, 3),
    "edge_inner": (3, 3, 2, -1, 2),
    "edge_outer": (3, 3, 2, 4),
    "graph_descent": (3, 3, 2, 3, 4, 1, 1, 1, -1, -1, -1, 2),
}
_WITHOUT_THREADS = ("feature_bounds", "adjacency")


def arguments(c: Choices) -> None:
    """Arrays of wrong shapes, dtypes, orders and kinds: an exception, or an answer where they fit."""
    name = pick(c, [*_FUNCTIONS])
    sizes = [c.integer(0, 4) for _ in range(3)]
    given: list[Any] = []
    for axes in _FUNCTIONS[name]:
        if axes < 0:
            given.append(pick(c, (0, 1, 1.0, -3, None, "x", float("nan"))))
            continue
        shape = tuple(pick(c, sizes) for _ in range(axes if c.integer(0, 9) else c.integer(0, 4)))
        dtype = pick(c, (np.float32, np.float64, np.int32, np.int64, np.float16, np.complex64))
        values: Any = np.zeros(shape, dtype)
        kind = c.integer(0, 12)
        if kind == 0 and values.ndim:
            values = values[..., ::-1]
        elif kind == 1:
            values = np.asfortranarray(values)
        elif kind == 2:
            values.flags.writeable = False
        elif kind == 3:
            values = pick(c, (None, 3, [1.0], "x", torch.empty(shape, device="meta")))
        given.append(values)
    threads = () if name in _WITHOUT_THREADS else (pick(c, (1, 2, 0, -1, 10**12)),)
    try:
        getattr(_core, name)(*given, *threads)
    except (ValueError, TypeError, OverflowError, IndexError, BufferError, RuntimeError) as error:
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
    for target in (simplex, lattice, grid, model, graph, arguments, memory)
}

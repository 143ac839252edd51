"""Triton's build, diagonal, fit, oracles and grids: in the interpreter against native code, and compiled.

Neither needs a GPU. Both run in processes of their own: Triton reads its settings when it is imported.
"""

from importlib.util import find_spec

import pytest
import torch
from helpers import ROUNDING, environment, in_process, normal, points, uniform

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install 'fwcrf[gpu]'"
)

# Features, points of an image, images, dtype, standard deviations by which points are spread.
BUILDS = [
    (1, 9, 1, torch.float32, 1.0),
    (2, 40, 2, torch.float64, 3.0),
    (3, 33, 2, torch.float64, 1.0),
    (5, 70, 1, torch.float32, 1.0),
    (8, 20, 1, torch.float32, 1.0),
    (13, 5, 1, torch.float64, 0.3),
]


def differing_tables():
    """By shape: the names of the tables in which Triton's lattice is not the native one, bit for bit."""
    from fwcrf.kernels import Lattice
    from fwcrf.torch_ops import lattice as ops
    from fwcrf.torch_ops import lattice_build_triton

    found = {}
    for d, n, images, dtype, spread in BUILDS:
        for seed, integers in ((0, False), (1, True)):
            features = points(images, n, d, dtype=dtype, seed=seed) * spread
            features = features.round() if integers else features  # on the borders of simplices
            K = Lattice.uncalibrated(features)
            scale = [(2 / 3) ** 0.5 * (d + 1) / ((i + 1) * (i + 2)) ** 0.5 for i in range(d)]
            wanted = ops.build_native(features, scale)
            built = lattice_build_triton.build(features, scale, *ops.quotient_bounds(features, scale))
            assert built is not None and K.index.shape == built[0].shape
            names = ("index", "weight", "order", "neighbors")
            pairs = zip(names, built, wanted, strict=True)
            found[str((d, n, images, integers))] = [
                name for name, a, b in pairs if a.dtype != b.dtype or not torch.equal(a, b)
            ]
    return found


@needs_triton
@pytest.mark.filterwarnings("ignore:all .* points lie in lattice cells of their own")
def test_the_same_lattice_as_the_native_engine():
    with environment(TRITON_INTERPRET="1"):
        found = in_process(differing_tables, timeout=280)
    assert len(found) == 2 * len(BUILDS)
    assert not any(found.values()), found


GRIDS = [((7,), 1.0, torch.float64), ((9, 30), 2.5, torch.float32), ((4, 5, 6), 9.0, torch.float64)]


def worst_errors():
    """By kernel: the largest error over the rounding of its dtype."""
    from fwcrf.kernels import Lattice, Separable
    from fwcrf.torch_ops import (
        exact,
        lattice_diagonal_triton,
        lattice_fit_triton,
        rows_triton,
        separable_triton,
        simplex,
    )
    from fwcrf.torch_ops import lattice as ops

    found = {}

    def compare(name, got, wanted):
        error = float((got - wanted).abs().max() / wanted.abs().max()) / ROUNDING[wanted.dtype]
        found[name] = max(found.get(name, 0.0), error)

    for d, n, dtype in [(1, 9, torch.float32), (5, 60, torch.float32), (7, 20, torch.float64)]:
        K = Lattice.uncalibrated(points(2, n, d, dtype=dtype))
        factor = uniform(2, 1, dtype=dtype) + 0.5
        flat = [t.flatten(0, 1) for t in (K.splat, K.index, K.order)]
        own = ops.lattice_diagonal(*flat, K.neighbors, 0.5, -0.1)
        compare("diagonal", lattice_diagonal_triton.diagonal(*flat, K.neighbors, 0.5, -0.1), own)
        compare("place", lattice_fit_triton.place(K.splat, -0.3, factor), ops.placed(K.splat, -0.3, factor))
        left, right = points(2, 30, d, dtype=dtype), points(2, 200, d, dtype=dtype, seed=1)
        sums = exact.exact_sums(left, right)
        compare("sums", lattice_fit_triton.gaussian_sums(left, right), sums)
        other = sums * uniform(*sums.shape, dtype=dtype)
        for given in (other, torch.zeros_like(other)):
            fitted = lattice_fit_triton.fitted(sums, given, 0.3, ops.LEAST, ops.MOST)
            compare("fit", fitted, ops.fitted_scale(sums, given, 0.3, dtype))
        sliced = uniform(len(own), dtype=dtype) + 2
        total = sliced + (1 - own)
        divided = lattice_fit_triton.divide(flat[0], own, sliced)
        wanted = (flat[0] / total.sqrt()[:, None], (1 - own) / total, -own / total)
        for a, b in zip(divided, wanted, strict=True):
            compare("divide", a, b)
    for labels, dtype in [(1, torch.float32), (2, torch.float64), (21, torch.float32), (70, torch.float64)]:
        v = 3 * normal(90, labels, dtype=dtype)
        v[3:9, 0] = -torch.inf if labels > 1 else 1.0
        v[11] = 0.0
        for scale in (0.7, -1 / 0.3):
            u = v if scale > 0 else -v
            compare("project", rows_triton.project(u, scale), simplex._project(u, scale))
            compare("softmax", rows_triton.softmax(u, scale), simplex._softmax(u, scale))
        y, base, weight = (
            v.nan_to_num(neginf=0.0),
            normal(90, labels, dtype=dtype),
            torch.tensor(1.3, dtype=dtype),
        )
        term = weight * (y.sum(-1, keepdim=True) - y)
        compare("potts", rows_triton.potts(y, base, weight), base + term)
        if labels > 1:
            compare("potts", rows_triton.potts(y, None, weight), term)
    for shape, sigma, dtype in [
        ((7,), 1.0, torch.float64),
        ((9, 30), 2.5, torch.float32),
        ((4, 5, 6), 9.0, torch.float64),
    ]:
        S = Separable.build(shape, sigma, torch.empty((), dtype=dtype)).normalized("after")
        x, shift = normal(2, S.n, 3, dtype=dtype), uniform(S.n, dtype=dtype)
        y = x
        for axis, taps in enumerate(S.taps):
            outer = 2
            for size in shape[:axis]:
                outer *= size
            added = (x, shift) if axis == len(shape) - 1 else ()
            lines = y.reshape(outer, shape[axis], -1)
            y = separable_triton.filter(lines, taps, S.left[axis], S.right[axis], *added)
        compare("axis", y.view(x.shape), S(x) + shift[:, None] * x)
        plain = Separable.build(shape[:1], sigma, torch.empty((), dtype=dtype))
        lines = normal(2, shape[0], 3, dtype=dtype)
        compare("axis", separable_triton.filter(lines, plain.taps[0]), plain(lines))
    bad = torch.tensor([[torch.nan, 1, 2], [torch.inf, 1, 2], [-torch.inf] * 3, [0.0, 1, 2]])
    for of in (rows_triton.project, rows_triton.softmax):
        assert of(bad, 1.0).isnan().any(-1).tolist() == [True, True, True, False]
    return found


@needs_triton
def test_the_same_answers_as_native_code():
    with environment(TRITON_INTERPRET="1"):
        found = in_process(worst_errors, timeout=280)
    assert {*found} == {"diagonal", "place", "sums", "fit", "divide", "project", "softmax", "potts", "axis"}
    assert all(error < 4 for error in found.values()), found


NUMBERS = "*T"
POINTERS = {
    "neighbors": "*i32", "index": "*i32", "slot": "*i32", "first": "*i32", "is_first": "*i32",
    "count": "*i32",
    "order": "*i64", "fields": "*i64", "table": "*i64", "keys": "*i64", "bits": "i64", "image_factor": "i64",
    "remainder_factor": "i64",
}  # fmt: skip
PLAIN = {"n", "vertices", "points", "rows", "labels", "length", "inner", "reach", "channels", "columns",
         "places", "table_mask"}  # fmt: skip
CONSTANTS = {
    "ROWS": 64, "LABELS": 32, "ADDED": True, "SCALED": True, "SHIFTED": True, "ENTRIES": 1024, "TAP": 0.5,
    "IDENTITY": -0.1, "WORDS": 1, "CORNERS": 6, "WIDE": 8, "POINTS": 32, "PLACES": 1024, "EXPONENT": -0.3,
    "SCALE": (1.0, 2.0, 3.0, 4.0, 5.0), "D": 5, "COLUMNS": 128, "FALLBACK": 0.1, "LEAST": 1e-6, "MOST": 8.0,
}  # fmt: skip
MODULES = ("rows", "separable", "lattice_build", "lattice_diagonal", "lattice_fit", "trial")


def compiled_sizes(backend, arch, warp, dtype):
    """Bytes of machine code of each kernel."""
    from importlib import import_module

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    found = {}
    for name in MODULES:
        module = import_module(f"fwcrf.torch_ops.{name}_triton")
        for kernel in [value for key, value in vars(module).items() if key.endswith("_kernel")]:
            constants = {key: value for key, value in CONSTANTS.items() if key in kernel.arg_names}
            signature = {
                key: "constexpr"
                if key in constants
                else POINTERS.get(key, "i32" if key in PLAIN else NUMBERS).replace("T", dtype)
                for key in kernel.arg_names
            }
            places = {(kernel.arg_names.index(key),): value for key, value in constants.items()}
            options = {"enable_fp_fusion": False} if kernel.__name__ == "embed_kernel" else None
            program = triton.compile(
                ASTSource(kernel, signature, places), target=GPUTarget(backend, arch, warp), options=options
            )
            found[kernel.__name__] = len(program.asm["cubin" if backend == "cuda" else "hsaco"])
    return found


@needs_triton
@pytest.mark.parametrize(
    "target",
    [("cuda", 80, 32), ("cuda", 90, 32), ("cuda", 100, 32), ("cuda", 120, 32), ("hip", "gfx942", 64)],
    ids=lambda t: str(t[1]),
)
def test_compiles_for(target, tmp_path):
    dtype = "fp64" if target[1] in (90, "gfx942") else "fp32"
    with environment(TRITON_CACHE_DIR=str(tmp_path)):
        found = in_process(compiled_sizes, *target, dtype, timeout=280)
    assert len(found) == 14 and all(size > 1000 for size in found.values()), found

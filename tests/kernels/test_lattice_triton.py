"""The Triton engine: its answers in Triton's interpreter, and whether it compiles for real GPUs.

Neither needs a GPU. Both run in processes of their own: Triton reads its settings when it is imported.
"""

from importlib.util import find_spec

import pytest
import torch
from helpers import ROUNDING, environment, in_process, normal, points, uniform

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install 'fwcrf[gpu]'"
)

# Dimension, points, images, channels (more than a block has), dtype.
SHAPES = [
    (1, 9, 1, 1, torch.float32),
    (2, 40, 2, 3, torch.float64),
    (5, 50, 1, 21, torch.float32),
    (3, 33, 1, 70, torch.float64),
]


def worst_error():
    """By shape, over rounding: the largest error of an answer, and of <Kx, y> against <x, K'y>."""
    from fwcrf.kernels import Lattice
    from fwcrf.torch_ops import lattice as ops
    from fwcrf.torch_ops import lattice_triton

    found = {}
    for d, n, images, channels, dtype in SHAPES:
        K = Lattice.build(points(n, d, dtype=dtype))
        x, y = (normal(images, n, channels, dtype=dtype, seed=s) for s in (0, 1))
        slice, shift = uniform(*K.splat.shape, dtype=dtype), uniform(n, dtype=dtype)
        tables = [(None, None), (slice, shift)]
        worst = adjoint = 0.0
        for order, back in ((0, 0), (1, 2)):
            for sliced, shifted in tables:
                rest = (K.neighbors, shifted, 0.5, -0.1)
                got = lattice_triton.filter(x, K.index, K.splat, sliced, *rest, order)
                wanted = ops.lattice_filter(x, K.index, K.splat, sliced, *rest, order)
                worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
                last = K.splat if sliced is None else sliced
                other = None if sliced is None else K.splat
                transposed = lattice_triton.filter(y, K.index, last, other, *rest, back)
                apart = (got * y).sum() - (x * transposed).sum()
                adjoint = max(adjoint, float(apart.abs() / (got.norm() * y.norm())))
        found[str((d, n, images, channels, dtype))] = (worst / ROUNDING[dtype], adjoint / ROUNDING[dtype])
    return found


@needs_triton
def test_same_answer_as_the_native_engine_and_exact_adjoint():
    with environment(TRITON_INTERPRET="1"):
        found = in_process(worst_error, timeout=280)
    assert len(found) == len(SHAPES)
    for shape, (error, adjoint) in found.items():
        assert error < 4 and adjoint < 4, f"{shape}: {error}, {adjoint}"


POINTERS = {
    "splat_kernel": {"x": "*T", "index": "*i32", "weight": "*T", "values": "*T"},
    "blur_kernel": {"source": "*T", "target": "*T", "neighbors": "*i32"},
    "finish_kernel": {"source": "*T", "values": "*T", "target": "*T", "neighbors": "*i32"},
    "slice_kernel": {"values": "*T", "index": "*i32", "weight": "*T", "x": "*T", "shift": "*T", "out": "*T"},
}
CONSTANTS = {"CORNERS": 6, "POINTS": 32, "CHANNELS": 32, "SHIFTED": True, "DIRECTIONS": 2,
             "TAP": 0.5, "IDENTITY": -0.1}  # fmt: skip


def compiled_sizes(backend, arch, warp, dtype):
    """Bytes of machine code of each kernel."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fwcrf.torch_ops import lattice_triton

    found = {}
    for name, pointers in POINTERS.items():
        kernel = getattr(lattice_triton, name)
        constants = {key: value for key, value in CONSTANTS.items() if key in kernel.arg_names}
        signature = {
            key: "constexpr" if key in constants else pointers.get(key, "i32").replace("T", dtype)
            for key in kernel.arg_names
        }
        places = {(kernel.arg_names.index(key),): value for key, value in constants.items()}
        source = ASTSource(kernel, signature, places)
        program = triton.compile(source, target=GPUTarget(backend, arch, warp))
        machine_code = program.asm["cubin" if backend == "cuda" else "hsaco"]
        found[name] = len(machine_code)
    return found


@needs_triton
@pytest.mark.parametrize(
    "target",
    [("cuda", 80, 32), ("cuda", 90, 32), ("cuda", 100, 32), ("cuda", 120, 32), ("hip", "gfx942", 64)],
    ids=lambda t: str(t[1]),
)
def test_compiles_for(target, tmp_path):
    dtype = "fp64" if target[1] == 90 else "fp32"
    with environment(TRITON_CACHE_DIR=str(tmp_path)):
        found = in_process(compiled_sizes, *target, dtype, timeout=280)
    assert {*found} == {*POINTERS}
    assert all(size > 1000 for size in found.values()), found

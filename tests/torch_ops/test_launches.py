"""The work of a GPU for one forward of the layer, counted on fake tensors: see ``launches``."""

import sys
from contextlib import nullcontext

import pytest
import torch
from launches import fake_device, recorded_triton

from fwcrf import DenseCRF, solvers, stepsizes
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.torch_ops import triton_engine

# Vertices of the lattice: an assumption, since fake tensors have no colours.
VERTICES = 50_000
SIDE, LABELS = 513, 21
# Launches, gigabytes, and waits of the host: limits, within a tenth of the figures in docs/gpu.md.
FORWARD = {"triton": (150, 3.5, 3), "torch": (1380, 28.0, 3)}
# No order of additions is fixed in these, on CUDA.
UNORDERED = {"splat_kernel", "put_", "histc", "bincount", "scatter_reduce", "kthvalue"}


def numbers(tensor):
    if tensor.dtype == torch.bool:
        return True
    return 0.5 if tensor.is_floating_point() else VERTICES


def few(tensor):
    return 0.5 if tensor.is_floating_point() else tensor.dtype == torch.bool or 500


@pytest.fixture(params=["triton", "torch"])
def engine(request, monkeypatch):
    with recorded_triton() if request.param == "triton" else nullcontext():
        if request.param == "torch":
            monkeypatch.setattr(triton_engine, "works", lambda device: False)
        yield request.param


@pytest.fixture
def crf():
    made = DenseCRF(LABELS)
    made._checked = True  # the units of the first image are looked at once
    return made


def inputs(device, *grid):
    return (torch.empty(1, channels, *grid, device=device) for channels in (3, LABELS))


def forward(crf, device, side=SIDE):
    with torch.no_grad():
        assert crf(*inputs(device, side, side)).shape == (1, LABELS, side, side)


def test_launches_bytes_and_waits_of_a_forward(engine, crf):
    launches, gigabytes, waits = FORWARD[engine]
    with fake_device("cuda", numbers) as counts:
        forward(crf, "cuda")
    assert 0.9 * launches < counts.launches <= launches, counts.by_name
    assert 0.9e9 * gigabytes < counts.moved <= 1e9 * gigabytes, counts.bytes_of
    assert counts.waits == waits, counts.waited_for
    # For the extremes of the logits, and for the build: bounds of the features, number of vertices.
    build = [place for place in counts.waited_for if "layout.py" not in place]
    assert len(build) == 2, build


def test_nothing_fake_is_kept_for_later_calls():
    """A traced forward leaves no fake numbers in what the next image of the same size would find."""
    crf = DenseCRF(LABELS, [Spatial(3, weight=0.125), Bilateral(80, 13, weight=3.25)], learnable=())
    crf._checked = True
    with recorded_triton(), fake_device("cuda", few):
        forward(crf, "cuda", side=37)
    image, logits = torch.rand(1, 3, 37, 37) * 255, torch.randn(1, LABELS, 37, 37)
    assert crf(image, logits).isfinite().all()


def test_a_later_forward_of_the_same_size_copies_less(crf):
    with recorded_triton(), fake_device("cuda", few) as counts:
        forward(crf, "cuda", side=40)
        first = counts.launches
        forward(crf, "cuda", side=40)
    assert counts.launches - first < first


@pytest.mark.parametrize("name", ["mf", "l2fw", "fw"])
def test_no_wait_and_no_copy_inside_a_step(engine, crf, name):
    with fake_device("cuda", few) as counts, torch.no_grad():
        E = crf.energy(*inputs("cuda", 40, 50))
        solver = solvers.get(name)
        state = solver.step(E, solver.init(E, E.start()), 0)
        waits, copies, launches = counts.waits, counts.by_name["copies"], counts.launches
        solver.step(E, state, 1)
    assert counts.waits == waits, counts.waited_for
    assert counts.by_name["copies"] == copies
    assert engine == "torch" or 8 < counts.launches - launches <= 18


def test_no_double_precision_where_the_device_has_none(crf):
    with fake_device("mps", few) as counts, torch.no_grad():
        forward(crf, "mps", side=40)
        E = crf.energy(*inputs("mps", 40, 50))
        E.value(E.start())
        for name in ("mf", "l2fw"):
            solver = solvers.get(name, step=stepsizes.LineSearch())
            solver.step(E, solver.init(E, E.start()), 0)
    assert torch.float32 in counts.dtypes and torch.float64 not in counts.dtypes


def test_a_fixed_order_of_additions_if_torch_must_be_deterministic(engine, crf):
    torch.use_deterministic_algorithms(True)
    try:
        with fake_device("cuda", few) as counts:
            forward(crf, "cuda", side=40)
    finally:
        torch.use_deterministic_algorithms(False)
    assert counts.launches > 100
    assert not UNORDERED & counts.by_name.keys()
    assert not counts.float_scans


def test_the_watch_sees_waits_copies_and_scans():
    with fake_device("cuda", lambda tensor: 1.0) as counts:
        x = torch.empty(3, 4, device="cuda")
        assert counts.launches == 0
        x.mT.contiguous()
        assert (counts.launches, counts.moved) == (1, 2 * 48)
        x.sum().item()
        x.cpu()
        torch.ones(3, device="cpu").to(x.device, non_blocking=True)
        assert counts.waits == 2 and counts.by_name["copies"] == 2
        x.cumsum(-1)
        assert counts.float_scans
        with pytest.raises(AssertionError, match="waits for a size"):
            torch.unique(x)


def test_triton_is_as_before_after_a_recording():
    before = {name: module for name, module in sys.modules.items() if "triton" in name}
    with recorded_triton():
        pass
    assert {name: module for name, module in sys.modules.items() if "triton" in name} == before

"""Which engine serves a tensor, and where Triton is installed but does not work."""

import importlib.util

import pytest
import torch

from fwcrf.torch_ops import lattice_device, triton_engine

GPU = torch.device("cuda", 0)
NO_COMPILER = "Failed to find C compiler. Please specify via CC environment variable or set triton.knobs."


@pytest.fixture
def installed(monkeypatch):
    """As if Triton were installed; its answer about a device is forgotten before and after."""
    find = importlib.util.find_spec
    monkeypatch.setattr(triton_engine, "find_spec", lambda name: object() if name == "triton" else find(name))
    triton_engine.works.cache_clear()
    yield monkeypatch
    triton_engine.works.cache_clear()


class OnGpu:
    """The part of a tensor on a GPU at which the choice looks."""

    is_cuda, is_cpu, dtype, device = True, False, torch.float32, GPU


def test_without_a_c_compiler_plain_torch_answers_with_one_warning(installed):
    def fail(device):
        raise RuntimeError(NO_COMPILER)

    installed.setattr(triton_engine, "_try", fail)
    installed.setattr(triton_engine, "transformed", lambda x: False)
    with pytest.warns(UserWarning, match="Failed to find C compiler.*Plain torch is used.*CC") as caught:
        assert not triton_engine.serves(OnGpu())
    assert not triton_engine.serves(OnGpu())
    assert len(caught) == 1
    asked = []
    installed.setattr(lattice_device.lattice_torch, "filter", lambda *arguments: asked.append(arguments))
    lattice_device.filter(OnGpu(), *[None] * 8)
    assert len(asked) == 1


def test_where_it_works_it_serves_floats_on_gpus_only(installed):
    installed.setattr(triton_engine, "_try", lambda device: None)
    installed.setattr(triton_engine, "transformed", lambda x: False)
    x = OnGpu()
    assert triton_engine.serves(x)
    x.dtype = torch.float16
    assert not triton_engine.serves(x)
    assert not triton_engine.serves(torch.ones(3))


def test_without_triton_there_is_no_warning(monkeypatch):
    monkeypatch.setattr(triton_engine, "find_spec", lambda name: None)
    assert not triton_engine.works.__wrapped__(GPU)

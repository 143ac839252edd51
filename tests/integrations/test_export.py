"""Layers outside of fwcrf: exported programs of torch's own operators, ONNX, and AOTInductor."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from crfs import image, logits

from fwcrf import DenseCRF
from fwcrf.integrations.export import plain
from fwcrf.kernels import Bilateral, Spatial

SINGLE = {"dtype": torch.float32}
GRID = (10, 12)


@pytest.fixture
def onnxruntime():
    """onnxruntime, which `make integrations` installs; docs/export.md runs a plain program in `make test`."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def inputs(seed=0):
    return image(1, grid=GRID, seed=seed, **SINGLE), logits(1, grid=GRID, seed=seed, **SINGLE)


def layer(**more):
    photo, z = inputs()
    kernels = [Spatial(2.0), Bilateral(6.0, 0.1, method="exact")]
    crf = DenseCRF(
        z.shape[1], more.pop("kernels", kernels), num_steps=more.pop("num_steps", 3), **more
    ).eval()
    return crf, (photo, z)


def exported(crf, given):
    with torch.no_grad():
        return torch.export.export(crf, given, strict=False)


def operators(program):
    return {
        str(node.target)
        for module in program.graph_module.modules()
        if hasattr(module, "graph")
        for node in module.graph.nodes
    }


@pytest.mark.parametrize("solver", ["l2fw", "mf"])
def test_a_plain_program_has_operators_of_torch_only(solver, tmp_path, onnxruntime):
    crf, given = layer(solver=solver, num_steps=1, learnable=("weights", "compatibility"))
    program = exported(crf, given)
    assert any(name.startswith("fwcrf.") for name in operators(program))
    without = plain(program)
    assert not any("fwcrf" in name for name in operators(without))
    torch.export.save(without, tmp_path / "crf.pt2")
    loaded = torch.export.load(tmp_path / "crf.pt2").module()
    for seed in range(2):
        photo, z = inputs(seed)
        torch.testing.assert_close(loaded(photo, z).exp(), crf(photo, z).exp().detach(), rtol=1e-4, atol=1e-4)


def test_a_lattice_is_refused():
    program = exported(*layer(kernels=[Bilateral(6.0, 0.1)]))
    with pytest.raises(ValueError, match=r"the program has fwcrf\.\w+\.default.*a lattice"):
        plain(program)


def test_onnx_runtime_finds_the_same_labels(onnxruntime):
    crf, given = layer()
    model = torch.onnx.export(plain(exported(crf, given)), given, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(
        model.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for seed in range(2):
        photo, z = inputs(seed)
        names = [one.name for one in session.get_inputs()]
        (found,) = session.run(None, dict(zip(names, (photo.numpy(), z.numpy()), strict=True)))
        with torch.no_grad():
            expected = crf(photo, z)
        torch.testing.assert_close(torch.from_numpy(found).exp(), expected.exp(), rtol=1e-4, atol=1e-4)


def test_aotinductor_runs_lattices_from_python(tmp_path, onnxruntime):
    """With the operators of fwcrf, which are there while fwcrf is."""
    crf, given = layer(kernels=[Spatial(2.0), Bilateral(6.0, 0.1)])
    path = str(tmp_path / "crf.pt2")
    torch._inductor.aoti_compile_and_package(exported(crf, given), package_path=path)
    run = torch._inductor.aoti_load_package(path)
    photo, z = inputs(1)
    with torch.no_grad():
        torch.testing.assert_close(run(photo, z).exp(), crf(photo, z).exp(), rtol=1e-4, atol=1e-4)


PAGE = Path(__file__).parents[2] / "docs" / "export.md"


@pytest.mark.timeout(900)  # two compilations
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_program_in_cpp_of_the_page_finds_the_same_labels(tmp_path, onnxruntime):
    """A plain layer, without Python: compiled and called as the page says."""
    (source,) = re.findall(r"```cpp\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "3 * 8 * 10" in source
    (tmp_path / "crf.cpp").write_text(source)
    (commands,) = re.findall(r"```bash\nT=.*?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    build, call = (shlex.split(one) for one in commands.replace("$T", torch.__path__[0]).splitlines())
    subprocess.run(build, cwd=tmp_path, check=True, timeout=400)
    crf, _ = layer(num_steps=2)
    photo, z = image(1, grid=(8, 10), **SINGLE), logits(1, grid=(8, 10), **SINGLE)
    package = str(tmp_path / "crf.so.pt2")
    torch._inductor.aoti_compile_and_package(plain(exported(crf, (photo, z))), package_path=package)
    for name, values in (("image", photo), ("logits", z)):
        values.numpy().tofile(tmp_path / f"{name}.raw")
    subprocess.run(call, cwd=tmp_path, check=True, timeout=100, env={})
    found = torch.from_numpy(np.fromfile(tmp_path / "found.raw", np.float32)).view(z.shape)
    with torch.no_grad():
        torch.testing.assert_close(found.exp(), crf(photo, z).exp(), rtol=1e-4, atol=1e-4)

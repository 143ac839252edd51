"""Torch's modes and defaults change no result: not under them, and not in calls that come after."""

import ast
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import mode_doors
import pytest
import torch

import fwcrf
from fwcrf import stepsizes
from fwcrf.kernels import Exact, Lattice
from fwcrf.pairwise import dense

PACKAGE = Path(__file__).parents[1] / "src" / "fwcrf"


@pytest.fixture(scope="module")
def ran():
    """The results by mode, of one process each that runs every door under the mode and then without it."""
    command = [sys.executable, mode_doors.__file__]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    errors = {door: one for door, one in found["none"]["under"].items() if isinstance(one, str)}
    assert not errors  # equal errors would pass as equal results
    return found


def differing(found, expected):
    return {door: (one, expected[door]) for door, one in found.items() if one != expected[door]}


@pytest.mark.posix
@pytest.mark.parametrize("mode", [mode for mode in mode_doors.MODES if mode != "none"])
def test_training_after_a_mode_is_training_without_it(ran, mode):
    assert not differing(ran[mode]["after"], ran["none"]["after"])


@pytest.mark.posix
@pytest.mark.parametrize("mode", [mode for mode in mode_doors.MODES if mode != "none"])
def test_a_mode_changes_no_result(ran, mode):
    expected = ran["none"]["under"]
    found = ran[mode]["under"]
    if mode in ("inference_mode", "no_grad"):
        # Derivatives, which a door lists after its values, are not asked for.
        trained = {door for door, one in found.items() if len(one) < len(expected[door])}
        assert trained == {"layer", "layer, all learned", "losses", "minimize", "official"}
        found = {door: one for door, one in found.items() if door not in trained}
    assert not differing(found, expected)


FACTORIES = {
    *("empty", "ones", "zeros", "full", "eye", "arange", "linspace", "rand", "randn", "randint", "randperm"),
    *("tensor", "as_tensor", "asarray", "scalar_tensor", "tril_indices", "triu_indices"),
}


def test_every_new_tensor_names_its_device_and_dtype():
    """Without them, torch's defaults decide."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "apps" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner, name = node.func.value, node.func.attr
            if not (isinstance(owner, ast.Name) and owner.id == "torch" and name in FACTORIES):
                continue
            missing = {"device", "dtype"} - {keyword.arg for keyword in node.keywords}
            if name == "arange":
                missing -= {"dtype"}  # of whole numbers: int64
            if missing:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name} without {sorted(missing)}")
    assert not found, "\n".join(found)


# --- values kept by an object --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_diagonal_found_under_a_mode_has_derivatives_later(mode):
    x = torch.rand(6, 2)

    def slope(first):
        features = torch.linspace(0, 3, 12).view(6, 2).requires_grad_()
        K = Lattice.build(features)
        with first():
            K.diagonal()
        return torch.autograd.grad(K.without_self_edges()(x).square().sum(), features)[0]

    assert torch.equal(slope(mode), slope(contextlib.nullcontext))


def test_a_bound_found_in_inference_mode_serves_training_later():
    unary = torch.rand(6, 3, requires_grad=True)
    E = fwcrf.Energy(dense([Exact(torch.rand(6, 2))], 3), unary)
    with torch.inference_mode():
        assert E.smoothness >= 0
    adaptive = fwcrf.solvers.get("l2fw", step=stepsizes.Adaptive())
    fwcrf.minimize(E, adaptive, num_steps=3).probabilities.square().sum().backward()
    assert unary.grad is not None


def test_labels_read_in_inference_mode_are_targets_of_a_loss_later():
    logits = mode_doors.logits()
    found = fwcrf.DenseCRF(3).solve(mode_doors.image(), logits)
    with torch.inference_mode():
        assert found.labels.shape == (9, 12)
    logits.requires_grad_()
    torch.nn.functional.cross_entropy(logits[None], found.labels[None]).backward()
    assert logits.grad is not None


def test_parameters_follow_the_defaults_and_no_other_tensor_does():
    with torch.device("meta"):
        crf = fwcrf.DenseCRF(3, learnable=mode_doors.LEARNED)
    assert {p.device.type for p in crf.parameters()} == {"meta"}
    crf.to_empty(device="cpu")
    crf.load_state_dict(fwcrf.DenseCRF(3, learnable=mode_doors.LEARNED).state_dict())
    assert torch.isfinite(crf(mode_doors.image(), mode_doors.logits())).all()

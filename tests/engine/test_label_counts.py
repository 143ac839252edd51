"""The engine takes the same numbers of labels on every instruction set, with the results of torch."""

import pytest
import torch
from helpers import environment, in_process, normal, uniform

import fwcrf
from fwcrf import Energy, _core, pairwise, solvers
from fwcrf.compatibility import Full, Potts
from fwcrf.engine.update import Map
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.solvers.plan import as_updates
from fwcrf.torch_ops.simplex import project_onto_simplex, softmax

GRID = (9, 11)
LABELS = (2, 4, 21, 40, 64)
MOST = {torch.float32: 64, torch.float64: 32}
ORACLES = {Map.SOFTMAX: softmax, Map.PROJECT: project_onto_simplex}


def model(labels, dtype, compat):
    """P and its learned weights."""
    picture = uniform(3, *GRID, dtype=dtype)
    operators = [k.operator(picture) for k in (Spatial(1.3), Bilateral(4.0, 0.4))]
    if compat == "potts":
        weights = [torch.tensor(w, dtype=dtype, requires_grad=True) for w in (0.7, 1.2)]
        compats = [Potts(w) for w in weights]
    else:
        weights = [normal(labels, labels, dtype=dtype, seed=s).requires_grad_() for s in (3, 4)]
        compats = [Full(0.5 * (w + w.mT)) for w in weights]
    return pairwise.dense(operators, labels, compat=compats), weights


def gradients(labels, dtype, compat, solver):
    """(x and its gradients by the engine or None, the same by torch)."""
    P, weights = model(labels, dtype, compat)
    u = normal(99, labels, dtype=dtype, seed=2).requires_grad_()
    direction = normal(99, labels, dtype=dtype, seed=9)
    updates = as_updates(solvers.get(solver), 3)
    y = start = softmax(u, -1.0)
    for update in updates:
        # No term by its engine: operators and compatibilities one after the other.
        y = ORACLES[update.map](sum(t.compat.apply(t.operator(y)) for t in P.terms) + u, update.scale)
    expected = [y, *torch.autograd.grad(y, (u, *weights), direction, retain_graph=True)]
    if P.engine().refuse(start, u, updates):
        return None, expected
    x = P.engine().run(None, u, updates)
    return [x, *torch.autograd.grad(x, (u, *weights), direction)], expected


def with_gradients():
    """For each case: whether the engine takes it, and the largest relative difference."""
    cases = {}
    for dtype in MOST:
        for labels in (*LABELS, MOST[dtype], MOST[dtype] + 1):
            for compat, solver in (("potts", "mf"), ("potts", "l2fw"), ("full", "mf")):
                found, expected = gradients(labels, dtype, compat, solver)
                error = max(
                    float((a - b).abs().max() / b.abs().max())
                    for a, b in zip(found or expected, expected, strict=True)
                )
                cases[str(dtype), labels, compat, solver] = (found is not None, error)
    return cases, _core.isa()


def with_duals():
    """The largest differences between steps of the engine and steps one by one."""
    errors = {}
    for labels in (21, 32):
        for compat in ("potts", "full"):
            P, _ = model(labels, torch.float64, compat)
            E = Energy(P, normal(99, labels, seed=2))
            for solver in ("mf", "emd", "admm"):
                with torch.no_grad():
                    assert fwcrf.minimize(E, solver, num_steps=3).engine.startswith("native")
                    one, other = (
                        fwcrf.minimize(E, solver, num_steps=3, callback=callback).probabilities
                        for callback in (None, lambda k, x: None)
                    )
                errors[labels, compat, solver] = float((one - other).abs().max())
    return errors


def every_count():
    """The largest difference for each number of labels: each length of rows has compiled code of its own."""
    errors = {}
    for dtype, most in MOST.items():
        for labels in range(2, most + 1):
            P, _ = model(labels, dtype, "potts")
            u = normal(99, labels, dtype=dtype, seed=2).requires_grad_()
            updates = as_updates(solvers.get("mf"), 2)
            y = softmax(u, -1.0)
            for update in updates:
                y = softmax(sum(t.compat.apply(t.operator(y)) for t in P.terms) + u, update.scale)
            x = P.engine().run(None, u, updates)
            errors[str(dtype), labels] = float((x - y).detach().abs().max() / torch.finfo(dtype).eps)
    return errors


def rows():
    """The lengths of the rows of 1 to 40 labels, by dtype."""
    models = _core.ModelF32, _core.ModelF64
    return _core.isa(), [[one.row(labels) for labels in range(1, 41)] for one in models]


@pytest.mark.parametrize("isa", ["", "avx512", "avx2", "generic"])
def test_rows_that_shorter_vectors_pad_less_have_them(isa):
    """With AVX-512, where vectors of AVX2 are there too; not where an instruction set is asked for."""
    with environment(FWCRF_ISA=isa):
        used, found = in_process(rows, timeout=100)
    lanes = {"generic": 4, "avx2": 8, "avx512": 16}[used]
    for most, lengths in zip((lanes, lanes // 2), found, strict=True):
        for labels, length in enumerate(lengths, 1):
            # Of rows of up to two vectors; beyond, padding matters less.
            last = (labels - 1) % most + 1
            half = labels <= 2 * most and 2 * last <= most
            vector = most // 2 if not isa and used == "avx512" and half else most
            assert length == -(-labels // vector) * vector


def both():
    lanes = [_core.ModelF32.lanes(), _core.ModelF64.lanes()]
    return *with_gradients(), with_duals(), lanes, every_count()


@pytest.fixture(scope="module", params=["generic", "avx2", "avx512"])
def found(request):
    with environment(FWCRF_ISA=request.param):
        cases, used, errors, lanes, counts = in_process(both, timeout=200)
    if used != request.param:
        assert request.param != "generic"
        pytest.skip(f"not available here: {used} is used instead of {request.param}")
    return cases, errors, lanes, counts


def test_same_labels_with_gradients(found):
    for (dtype, labels, *_), (taken, error) in found[0].items():
        most = 64 if dtype == "torch.float32" else 32
        assert taken == (labels <= most), (dtype, labels)
        assert error <= (1e-4 if dtype == "torch.float32" else 1e-11), (dtype, labels)


def test_same_labels_with_duals_and_matrices(found):
    assert max(found[1].values()) < 1e-11, found[1]


def test_every_number_of_labels(found):
    assert max(found[3].values()) < 100, {case: error for case, error in found[3].items() if error >= 100}


def test_lanes_and_most_labels(found):
    single, double = found[2]
    assert single == 2 * double and single in (4, 8, 16)
    assert (_core.ModelF32.most_labels(), _core.ModelF64.most_labels()) == tuple(MOST.values())

"""A step of a solver on another device never waits for it, and has no shape that depends on values.

There is no such device here. Two stand-ins: plain tensors on the torch engine, with every operation watched;
and tensors on the meta device, which cannot be looked at because they hold nothing.
"""

import pytest
import torch
from helpers import assert_rounding, normal, points
from torch.utils._python_dispatch import TorchDispatchMode

from fwcrf import pairwise, solvers
from fwcrf.energy import Energy
from fwcrf.kernels import Lattice, Separable
from fwcrf.torch_ops import lattice_torch, separable_torch, simplex

WAITING = {
    "_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "masked_select",
    "_unique", "_unique2", "unique_dim", "unique_consecutive",
}  # fmt: skip
SOLVERS = ["mf", "l2fw", "fw", "efw", "pgd", "fista", "emd", "anneal-fw"]


class Watch(TorchDispatchMode):
    """Refuses operations for which the host has to wait for a device."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.seen.add(name)
        if name in WAITING:
            raise AssertionError(f"{name} makes the host wait")
        return function(*args, **(kwargs or {}))


def energy(dtype=torch.float32):
    shape = (6, 5)
    K = Lattice.build(points(30, 5, dtype=dtype), engine="torch").with_unit_diagonal().normalized("symmetric")
    S = Separable.build(shape, 1.2, K.splat).normalized("symmetric")
    P = pairwise.dense([K, S], 3)
    return Energy(P, normal(30, 3, dtype=dtype))


@pytest.fixture
def unchecked(monkeypatch):
    """As on another device, where values are not looked at in a step."""
    monkeypatch.setattr("fwcrf.kernels.lattice.check_finite", lambda x, name: None)
    monkeypatch.setattr("fwcrf.torch_ops.lattice.check_finite", lambda x, name: None)


@pytest.mark.parametrize("name", SOLVERS)
def test_no_waiting_in_a_step(name, unchecked):
    E, solver = energy(), solvers.get(name)
    with torch.no_grad():
        state = solver.init(E, simplex.softmax(E.unary, -1.0))
        state = solver.step(E, state, 0)  # what is found once is found here
        with Watch() as watch:
            solver.step(E, state, 1)
    assert any("embedding_bag" in operation for operation in watch.seen)  # the step was seen


def test_the_watch_sees_waiting():
    with pytest.raises(AssertionError, match="makes the host wait"), Watch():
        bool(torch.ones(1).sum() > 0)


def without_values(*tensors):
    return [t.to("meta") for t in tensors]


@pytest.mark.parametrize("order", [0, 1])
def test_filter_without_values(order):
    K = Lattice.build(points(30, 5, dtype=torch.float32), engine="torch")
    x, index, splat, neighbors, shift = without_values(
        torch.empty(2, 30, 3), K.index, K.splat, K.neighbors, K.splat[:, 0]
    )
    with torch.no_grad():
        y = lattice_torch.filter(x, index, splat, None, neighbors, shift, 0.5, -0.1, order)
    assert y.shape == x.shape and y.device.type == "meta"


def test_oracles_and_grids_without_values():
    v, taps = without_values(torch.empty(30, 3), torch.empty(4))
    with torch.no_grad():
        for oracle in (simplex._project, simplex._softmax):
            assert oracle.registered._init_fn(v, 2.0).device.type == "meta"
        for derivative in (simplex._project_derivative, simplex._softmax_derivative):
            assert derivative.registered._init_fn(v, v, 2.0).shape == v.shape
        assert separable_torch.filter(v.view(1, 30, 3), taps).shape == (1, 30, 3)


@pytest.mark.filterwarnings("ignore:.*Function.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", ["mf", "l2fw"])
def test_a_step_compiles_whole(name):
    E, solver = energy(torch.float64), solvers.get(name)

    def step(x):
        return solver.step(E, solver.init(E, x), 0).x

    x = simplex.softmax(E.unary, -1.0)
    torch.compiler.reset()
    with torch.no_grad():
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        assert_rounding(compiled(x), step(x))
    torch.compiler.reset()

"""The memory of ``gradient="checkpoint"``, counted in iterates."""

import weakref

import pytest
import torch
from problems import kernel_energy
from torch.testing import assert_close

import fwcrf
from fwcrf.gradients import Checkpoint, Unrolled


class Watched:
    """A solver whose iterates are counted for as long as their memory is in use."""

    def __init__(self, solver):
        self.solver, self.alive, self.most, self.steps = solver, 0, 0, 0

    def init(self, f, x0):
        return self.solver.init(f, x0)

    def step(self, f, state, k):
        state = self.solver.step(f, state, k)
        self.steps += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        return state._replace(x=Copied.apply(state.x, self))

    def free(self):
        self.alive -= 1


class Copied(torch.autograd.Function):
    """The identity, in memory that tells the solver when it is freed."""

    @staticmethod
    def forward(ctx, x, solver):
        copy = x.detach().numpy().copy()
        weakref.finalize(copy, solver.free)
        return torch.from_numpy(copy)

    @staticmethod
    def backward(ctx, g):
        return g, None


@pytest.mark.parametrize(("num_steps", "most"), [(3, 6), (16, 12), (64, 20), (144, 28)])
def test_checkpoints_keep_about_two_square_roots_of_the_iterates(num_steps, most):
    E = kernel_energy(2)
    unary = E.unary.clone().requires_grad_()
    found = []
    for gradient in (Unrolled(), Checkpoint()):
        watched = Watched(fwcrf.solvers.get("efw", weight=4.0))
        x = gradient(fwcrf.Energy(E.pairwise, unary), watched, None, num_steps)
        (grad,) = torch.autograd.grad(x.square().sum(), unary)
        found.append((grad, watched.most, watched.steps))
        del x
    assert_close(found[1][0], found[0][0])
    assert found[0][1] >= num_steps
    assert found[1][1] <= most
    assert found[1][2] <= 3 * num_steps

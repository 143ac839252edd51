"""Steps back that read the pixels between vertices only give the gradients of whole steps back."""

import pytest
import torch
from helpers import DTYPES, covering, generator, normal
from test_lazy import KERNELS, SHAPES, energy

from fwcrf import _core, solvers
from fwcrf.engine.limits import SPREADS
from fwcrf.engine.model import _derivatives
from fwcrf.engine.update import Start
from fwcrf.solvers.plan import as_updates

# Relative to the largest entry.
RTOL = {torch.float32: 2e-5, torch.float64: 1e-12}


class Run:
    """Steps of l2fw from softmax(-unary), with all their points."""

    def __init__(self, E, num_steps, **settings):
        self.model, self.unary = E.pairwise.engine(), E.unary
        self.weights = self.model._weights(E.unary)
        self.updates = as_updates(solvers.get("l2fw", **settings), num_steps)
        self.points = [torch.softmax(-E.unary, -1), *(torch.empty_like(E.unary) for _ in range(num_steps))]
        self.spreads = SPREADS[E.unary.dtype]()
        self.model.call(
            self.points[0], E.unary, self.weights, self.updates, self.points[1:], spreads=self.spreads
        )

    def back(self, g, *, few, sloped=True, from_unary=False):
        """The gradients in the unary and in the start, the slopes, and the share of pixels each step read.

        Steps are whole if each has an array of its own.
        """
        count, (x0, *ends) = len(self.updates), self.points
        ds = [torch.full_like(g, torch.nan) for _ in range(1 if few else count)] * (count if few else 1)
        total, of_x, reads = torch.full_like(g, torch.nan), torch.full_like(g, torch.nan), []
        last, *back = _derivatives(self.updates, from_unary, after=False)
        outs = [*ds[-2::-1], None if from_unary else of_x]
        slopes, _ = self.model.call(
            g, None, self.weights, back, outs, [*ends[-2::-1], x0], total,
            start=Start(last.map, last.scale, ends[-1], ds[-1], last.step), slopes=sloped, checked=False,
            point_spreads=self.spreads if few else None, reads=reads,
        )  # fmt: skip
        found = [total, *([] if from_unary else [of_x]), *([slopes[:, 0, 0]] if sloped else [])]
        return found, [read / g[..., 0].numel() for read in reads]


def compare(run, g, dtype, **how):
    expected, whole = run.back(g, few=False, **how)
    found, shares = run.back(g, few=True, **how)
    assert set(whole) == {1.0}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=RTOL[dtype] * float(b.abs().max()))
    return shares


@covering(
    shape=SHAPES, kernels=KERNELS, labels=[2, 3, 9, 20], dtype=DTYPES, batch=[(), (2,)], threads=[1, 2],
    num_steps=[2, 3, 6], sloped=[True, False], from_unary=[True, False],
)  # fmt: skip
def test_gradients_of_few_pixels_are_those_of_whole_steps(
    shape, kernels, labels, dtype, batch, threads, num_steps, sloped, from_unary, monkeypatch
):
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    E = energy(labels, shape, dtype, kernels=kernels, batch=batch, spread=8.0)
    run = Run(E, num_steps, weight=0.3)
    g = normal(*E.unary.shape, dtype=dtype, seed=5)
    compare(run, g, dtype, sloped=sloped, from_unary=from_unary)


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_back_read_few_pixels(dtype):
    E = energy(6, (60, 70), dtype, kernels=KERNELS["lattice"], spread=8.0)
    run = Run(E, 5, weight=0.3)
    shares = compare(run, normal(*E.unary.shape, dtype=dtype, seed=5), dtype)
    assert len(shares) == 5 and shares[-1] == 1 and 0 < max(shares[:-1]) < 0.4


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("labels", [2, 5, 21])
def test_pixels_that_settle_and_move_again(labels, threads, monkeypatch):
    """Points of no run: in every step other pixels are between vertices, in the last two none."""
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    E = energy(labels, (31, 77), spread=8.0)
    run = Run(E, 7)
    for k, point in enumerate(run.points):
        at = torch.randint(labels, point.shape[:-1], generator=generator(k))
        inner = torch.rand(point.shape[:-1], generator=generator(k + 50)) < (0.015 if k < 6 else 0.0)
        inner[100 * k : 100 * k + 64] = k < 6
        vertices = torch.nn.functional.one_hot(at, labels).to(point)
        soft = torch.softmax(normal(*point.shape, dtype=point.dtype, seed=k + 90), -1)
        point.copy_(torch.where(inner[:, None], soft, vertices))
    shares = compare(run, normal(*E.unary.shape, dtype=torch.float32), torch.float32, sloped=False)
    if labels <= 4 * _core.ModelF32.lanes():
        assert shares[0] == 0 and all(0.05 < share < 0.6 for share in shares[1:-1]), shares
    else:  # rows of more than four vectors, as 21 labels in vectors of 16 bytes
        assert all(share == 1 for share in shares), shares


def test_soft_points_take_whole_steps():
    E = energy(4, (40, 50), spread=0.05, smooth=False)
    run = Run(E, 4, weight=3.0)
    assert compare(run, normal(*E.unary.shape, dtype=torch.float32), torch.float32) == [1.0] * 4

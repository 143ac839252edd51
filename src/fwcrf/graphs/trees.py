"""``SparseMRF.solve`` for lp-trws and lp-bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fwcrf import _core
from fwcrf import rounding as roundings
from fwcrf.graphs.bundle import Bundle, shares
from fwcrf.graphs.chains import ChainOracle, chains
from fwcrf.graphs.mrf import GraphSolution, SparseMRF, typical_costs
from fwcrf.graphs.native import native_costs, native_models
from fwcrf.lp.trees import ChainBundle, SequentialTrees
from fwcrf.runtime import max_threads
from fwcrf.torch_ops.printed import in_one_line

_FAR = 1e9  # seconds: no limit
# The bundle ends if its planes promise no rise at steps this many times as far as the first ones.
_LARGEST = 1e4


@dataclass(frozen=True, eq=False, repr=False)
class TreeSolution(GraphSolution):
    """A ``GraphSolution`` of lp-trws or lp-bundle. TRW-S's ``probabilities`` are the labels that it chose."""

    bounds: list[Tensor] | None = None  # of each image: the bound after each step, without rounding errors


@torch.no_grad()
def solve(
    model: SparseMRF, solver: SequentialTrees, *, num_steps: int, rounding: roundings.Rounding
) -> TreeSolution:
    """The solution after steps of TRW-S, each a forward and a backward pass; then of the bundle, if asked."""
    E = model.energy()
    unary = E.unary.detach()
    shape = unary.shape[:-1]
    rows = unary.reshape(-1, *unary.shape[-2:]).double().cpu()
    passes = solver.passes if isinstance(solver, ChainBundle) else num_steps
    runs, sizes = [], typical_costs(model).reshape(-1).tolist()
    for image, native in enumerate(native_models(model)):
        run = _messages(native, rows[image], solver, passes, model.num_edges, sizes[image])
        if isinstance(solver, ChainBundle):
            oracle = ChainOracle(chains(model.num_nodes, model.edges), native_costs(model)[image])
            run = _bundled(run, native, oracle, rows[image], solver, num_steps, sizes[image])
        runs.append(run)
    points, bounds, traces, _, _, ended = zip(*runs, strict=True)
    x = torch.stack(points).view(unary.shape).to(unary)
    bound = torch.tensor(bounds, dtype=torch.float64, device=unary.device).view(shape[:-1]) + model.constant
    taken = ", ".join(str(len(trace)) for trace in traces)
    engine = f"native TRW-S: {taken} of {num_steps} steps"
    if isinstance(solver, ChainBundle):
        engine = f"TRW-S, then bundle: {taken} of {num_steps} steps"
    return TreeSolution(
        x, E, rounding, None, all(ended), model, bound, [trace + model.constant for trace in traces],
        engine=engine,
    )  # fmt: skip


class _Run(NamedTuple):
    """A point, the bound, the bounds of all steps, TRW-S's messages, and whether the run ended early."""

    x: Tensor
    bound: float
    trace: Tensor
    forward: Tensor  # (m, L), of the last two passes
    backward: Tensor
    ended: bool

    __repr__ = in_one_line


def _messages(
    native: _core.GraphModel,
    unary: Tensor,
    solver: SequentialTrees,
    num_steps: int,
    num_edges: int,
    size: float,
) -> _Run:
    """TRW-S; ``size`` is that of typical costs."""
    labels = unary.argmin(-1)
    messages = torch.zeros(num_edges, unary.shape[-1], dtype=torch.float64, device="cpu")
    trace = torch.empty(num_steps, dtype=torch.float64, device="cpu")
    forward = torch.zeros_like(messages)
    size = max(size, abs(native.energy(labels)))
    steps, _, bound, ended = native.trws(
        messages, num_steps, _FAR, solver.tolerance * size, labels, trace, max_threads(), forward
    )
    return _Run(one_hot(labels, unary.shape[-1]).double(), bound, trace[:steps], forward, messages, ended)


def _bundled(
    before: _Run,
    native: _core.GraphModel,
    oracle: ChainOracle,
    unary: Tensor,
    solver: ChainBundle,
    num_steps: int,
    size: float,
) -> _Run:
    """Steps of the bundle after TRW-S, until the gap is closed or the planes promise no rise."""
    labels = before.x.argmax(-1)
    native.kick(0, 0, _FAR, labels)
    energy, far, bound = native.energy(labels), 0.1 * native.typical_cost(), before.bound
    tolerance = solver.tolerance * max(size, abs(energy))
    bundle = Bundle(oracle, unary, shares(oracle, unary, before.forward, before.backward), far, solver.planes)
    bounds, ended = [], energy - bound <= tolerance
    while len(bounds) < num_steps and not ended:
        if bundle.step() <= tolerance:
            bundle.prox *= 4
        bound = max(bound, bundle.bound)
        bounds.append(bound)
        ended = energy - bound <= tolerance or bundle.prox > _LARGEST * far
    y = bundle.mean(bundle.points)
    other = y.argmax(-1)
    native.kick(0, 0, _FAR, other)
    # The better ones of TRW-S's labels and of labels from the mean of the chains.
    x = y if native.energy(other) < energy else one_hot(labels, unary.shape[-1]).double()
    trace = torch.tensor(bounds, dtype=torch.float64, device="cpu")
    return _Run(x, bound, trace, before.forward, before.backward, ended)

"""``SparseMRF.solve`` for the solvers of the linear relaxation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fwcrf import rounding as roundings
from fwcrf.energy import Energy
from fwcrf.graphs.mrf import GraphSolution, SparseMRF
from fwcrf.lp.relaxation import Relaxation, relax
from fwcrf.lp.solvers import EntropicRelaxation, LinearSolver
from fwcrf.solvers.minimize import minimize
from fwcrf.torch_ops.native import kept_property


@dataclass(frozen=True, eq=False, repr=False)
class LinearSolution(GraphSolution):
    """A ``GraphSolution`` with probabilities of edges; ``bound`` is never None."""

    edge_probabilities: Tensor | None = None  # (*batch, m, L, L), rows by the first node
    solver: LinearSolver | None = None
    relaxation: Relaxation | None = None
    point: Tensor | None = None  # last iterate, a point of the relaxation

    @kept_property
    def log_partition_bound(self) -> Tensor | None:
        """Upper bound on log sum exp(-E) over labellings, ``(*batch,)``. None but for lp-trw, weight 1."""
        assert self.solver is not None and self.relaxation is not None and self.point is not None
        assert self.model is not None
        found = self.solver.log_partition_bound(self.relaxation, self.point)
        return None if found is None else found - self.model.constant


@torch.no_grad()
def solve(
    model: SparseMRF,
    solver: LinearSolver,
    *,
    num_steps: int,
    rounding: roundings.Rounding,
    x0: Tensor | None,
    trace: bool,
    tol: float | None,
    callback: Callable[[int, Tensor], None] | None,
) -> LinearSolution:
    """The solution after steps on the relaxation of a model. ``x0`` and ``callback`` have rows of nodes."""
    E = model.energy()
    R = relax(E.unary, model.edges, E.pairwise.double().tables())  # type: ignore[attr-defined]
    rounding = partial(_better, rounding)
    near = isinstance(solver, EntropicRelaxation) and not solver.polytope(R).is_exact
    if near and tol is not None:
        raise ValueError(
            f"tol={tol} with linear programs by messages, which find no gap; expected None, or "
            "oracle='program'."
        )

    def round_rows(_: Energy, x: Tensor) -> Tensor:
        return R.rows(rounding(E, R.nodes(x).to(model.unary.dtype)))

    found = minimize(
        R,
        solver,
        solver.start(R) if x0 is None else R.independent(_rows(x0, R)),
        num_steps=num_steps,
        rounding=round_rows,
        trace=trace,
        tol=tol,
        callback=None if callback is None else lambda k, x: callback(k, R.nodes(x).to(model.unary.dtype)),
    )
    x = found.probabilities
    return LinearSolution(
        R.nodes(x).to(model.unary.dtype),
        E,
        rounding,
        found.trace,
        found.converged,
        model,
        solver.bound(R, x) + model.constant,
        R.pairs(x).to(model.unary.dtype),
        solver,
        R,
        x,
        engine=f"{found.engine}; linear programs by messages" if near else found.engine,
    )


def _better(rounding: roundings.Rounding, E: Energy, x: Tensor) -> Tensor:
    """The labels of lower energy: rounded from x, or from the argmax of x.

    The argmax may be near the best labels while E of x, as independent probabilities of nodes, is high. If
    x is far from a vertex, rounding from x is better.
    """
    likely = roundings.nearest(x)
    first, second = rounding(E, x), rounding(E, one_hot(likely, x.shape[-1]).to(x))
    return torch.where((E.of_labels(second) < E.of_labels(first)).unsqueeze(-1), second, first)


def _rows(x0: Tensor, R: Relaxation) -> Tensor:
    if not isinstance(x0, Tensor) or x0.shape != R.nodes(R.unary).shape:
        kind = f"has shape {tuple(x0.shape)}" if isinstance(x0, Tensor) else f"is {type(x0).__name__}"
        raise ValueError(f"x0 {kind}; expected a tensor of shape {tuple(R.nodes(R.unary).shape)}.")
    return x0.to(R.unary)

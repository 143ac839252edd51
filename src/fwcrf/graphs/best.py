"""``SparseMRF.solve`` without a solver: the best labels that a time allows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fwcrf import rounding as roundings
from fwcrf.graphs.certify import certify
from fwcrf.graphs.mrf import GraphSolution, SparseMRF, typical_costs
from fwcrf.graphs.native import forbidden_pairs, native_models
from fwcrf.graphs.search import Progress, Search, search
from fwcrf.torch_ops.native import has_values


@torch.no_grad()
def solve(
    model: SparseMRF,
    *,
    time_limit: float,
    seed: int,
    progress: Callable[[Progress], None] | None,
    certificate: float = 0.0,
) -> GraphSolution:
    """The solution of a search. Images of a batch are searched in sequence and share the time.

    ``certificate`` is a number of seconds for cycle cuts of models with two labels, after the search.
    """
    E = model.energy()
    if not has_values(E.unary):
        raise TypeError(
            "a search needs the values of unary; name a solver to trace its steps: solver='l2fw'."
        )
    unary = E.unary.detach().to(device="cpu", dtype=torch.float64)
    shape, num_labels = unary.shape[:-1], unary.shape[-1]
    masks = forbidden_pairs(model)
    possible = None
    if masks is not None:
        unary, possible = _propagated(model, unary, masks)
    natives = native_models(model, unary)
    sizes = typical_costs(model).reshape(-1).tolist()
    left, found = time_limit, []
    for k, (native, costs) in enumerate(zip(natives, unary.reshape(-1, *unary.shape[-2:]), strict=True)):
        s = Search(
            native, costs, model.num_edges, left / (len(natives) - k), model.constant, seed + k, progress,
            None if masks is None else masks[k], sizes[k],
        )  # fmt: skip
        stopped = bool(found) and found[-1].ending == "interrupted"  # for the whole batch
        if stopped:
            s.finish("interrupted")
        elif possible is None or possible[k]:
            search(s)
        else:
            s.bound, s.ending = torch.inf, "no labelling avoids all forbidden pairs"
            s.proven = s.exact = True
        left = max(left - s.elapsed, 0.0)
        if certificate > 0 and not s.proven and s.ending != "interrupted":
            of_edges = E.pairwise.double().tables()  # type: ignore[attr-defined]
            tables = of_edges.expand(*shape[:-1], -1, 2, 2)
            tables = tables.reshape(len(natives), model.num_edges, 2, 2)[k]
            try:
                certify(s, model.edges.cpu().numpy(), tables.cpu().numpy(), certificate / len(natives))
            except KeyboardInterrupt:
                s.ending = "interrupted"
        found.append(s)
    device, batch = E.unary.device, shape[:-1]
    labels = torch.stack([s.labels for s in found]).view(shape).to(device)
    bound = torch.tensor([s.bound for s in found], dtype=torch.float64, device=device).view(batch)
    closed = torch.tensor([s.proven for s in found], dtype=torch.bool, device=device).view(batch)
    energy = model.value(labels)
    # Values of an exact method differ by rounding; or both are +inf: every labelling has a forbidden pair,
    # if the best labelling has one. Its finite cost is more than all savings elsewhere.
    exact = torch.tensor([s.exact for s in found], dtype=torch.bool, device=device).view(batch)
    bound = torch.where(
        exact | (closed & (energy == torch.inf)), energy, torch.minimum(bound + model.constant, energy)
    )
    endings = dict.fromkeys(s.ending for s in found)
    return GraphSolution(
        one_hot(labels, num_labels).to(E.unary),
        E,
        roundings.get("nearest"),
        None,
        bool(closed.all()),
        model,
        bound,
        engine=f"search: {'; '.join(endings)}",
    )


def _propagated(model: SparseMRF, unary: Tensor, masks: list[Tensor]) -> tuple[Tensor, list[bool]]:
    """Unary with +inf for labels that have no allowed partner; False for images without a labelling."""
    images = unary.reshape(-1, *unary.shape[-2:])
    possible, reduced = [], []
    for native, costs, mask in zip(native_models(model, unary), images, masks, strict=True):
        allowed = (costs < torch.inf).to(torch.uint8)
        possible.append(native.propagate(mask, allowed))
        reduced.append(costs.masked_fill(allowed == 0, torch.inf) if possible[-1] else costs)
    return torch.stack(reduced).view(unary.shape), possible

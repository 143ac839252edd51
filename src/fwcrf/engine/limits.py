"""The limits of the engine: terms, arrays and updates that it takes, and a sentence for every refusal.

The same rules serve one application of P, a run of a solver, and the forecast of a run from which
``fwcrf.refine`` estimates its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.compatibility import Compatibility
from fwcrf.engine.update import DERIVATIVE, Update
from fwcrf.kernels.exact import Exact
from fwcrf.kernels.lattice import Lattice
from fwcrf.kernels.operator import Operator, Rescaled, Shifted
from fwcrf.kernels.separable import Separable
from fwcrf.torch_ops.native import transformed
from fwcrf.torch_ops.printed import in_one_line

Terms = Sequence[tuple[Operator, Compatibility]]
MODELS: dict[torch.dtype, Any] = {torch.float32: _core.ModelF32, torch.float64: _core.ModelF64}
SPREADS: dict[torch.dtype, Any] = {torch.float32: _core.SpreadsF32, torch.float64: _core.SpreadsF64}
MAX_TERMS = 8
MAX_AXES = 8


@dataclass(frozen=True)
class Refusal:
    """The reason for which the engine does not take a task."""

    reason: str

    def __str__(self) -> str:
        return f"generic path: {self.reason}"


class Task(NamedTuple):
    """A model and its arrays, as far as the limits for labels, updates and gradients depend on them."""

    labels: int
    dtype: torch.dtype
    potts: bool  # every compatibility is a number
    updates: Sequence[Update] = ()  # none for one application of P
    gradients: bool = False
    symmetric: bool = True  # every kernel is symmetric


def refuse_task(task: Task) -> Refusal | None:
    """A refusal of the number of labels or of the updates; None if the engine takes the task."""
    duals = any(u.lean != 0 or u.dual for u in task.updates)
    most = MODELS[task.dtype].most_labels()
    limited = {"gradients": task.gradients, "dual variables": duals, "matrices": not task.potts}
    if task.labels > most and any(limited.values()):
        cause = next(name for name, present in limited.items() if present)
        return Refusal(f"{task.labels} labels with {cause}; the engine takes up to {most} then")
    if not task.gradients:
        return None
    if not task.symmetric:
        return Refusal("the backward pass of a kernel that is not symmetric is another kernel")
    if duals or any(u.keep != 0 or u.map not in DERIVATIVE for u in task.updates):
        return Refusal("gradients are native for steps to a softmax or a projection only")
    return None


def refuse_methods(methods: Sequence[str]) -> Refusal | None:
    """A refusal of the methods of kernels; None if the engine takes all of them."""
    if not 1 <= len(methods) <= MAX_TERMS:
        return Refusal(f"{len(methods)} kernels; the engine takes 1 to {MAX_TERMS}")
    outside = [method for method in methods if method not in ("lattice", "separable")]
    return Refusal(f"kernels with method={outside[0]!r} are applied outside the engine") if outside else None


class Part(NamedTuple):
    """The kernel of one term, without the diagonal ``shift`` that is added to it."""

    kernel: Operator
    method: str  # "lattice", "separable", "exact", ...
    shift: Tensor | None
    example: Tensor
    n: int
    batch_shape: torch.Size
    tables: Sequence[Tensor | None]  # may be learned
    symmetric: bool

    __repr__ = in_one_line


def part(operator: Operator) -> Part:
    """The kernel of a term, read once."""
    K, shift = (operator.inner, operator.shift) if isinstance(operator, Shifted) else (operator, None)
    method = type(K).__name__.lower()
    if isinstance(K, Rescaled) and isinstance(K.inner, Exact):
        method = "exact"
    tables: Sequence[Tensor | None] = ()
    if isinstance(K, Lattice):
        tables = (K.splat, K.slice, K.shift)
    elif isinstance(K, Separable):
        tables = (*K.taps, *(K.left or ()), *(K.right or ()), shift)
    batch = K.batch_shape if shift is None else shift.shape[:-1]
    return Part(K, method, shift, K.example, K.n, batch, tables, K.is_symmetric)


def refuse_parts(parts: Sequence[Part]) -> Refusal | None:
    """A refusal of the kernels of a model; None if the engine takes them all."""
    if torch.compiler.is_compiling():
        return Refusal("torch is tracing the code")
    refusals = [refuse_methods([p.method for p in parts]), *map(_refuse_part, parts)]
    if refusal := next(filter(None, refusals), None):
        return refusal
    if len({p.example.dtype for p in parts}) > 1 or parts[0].example.dtype not in MODELS:
        return Refusal("the kernels have different dtypes; the engine takes float32 or float64 for all")
    grids = {p.kernel.shape for p in parts if isinstance(p.kernel, Separable)}
    if len({p.n for p in parts}) > 1 or len(grids) > 1:
        return Refusal("the kernels are over different grids")
    if len({p.batch_shape for p in parts} - {torch.Size()}) > 1:
        return Refusal("the kernels have different batches")
    return None


def refuse_arrays(batch: torch.Size, dtype: torch.dtype, x: Tensor, unary: Tensor | None) -> Refusal | None:
    """A refusal of arrays for a model with this batch and dtype; None if the engine takes them."""
    if transformed(x):
        return Refusal("torch traces or transforms the code")
    if not x.is_cpu or (unary is not None and not unary.is_cpu):
        return Refusal(f"the arrays are on {x.device}; the engine runs on the CPU")
    if x.dtype != dtype or (unary is not None and unary.dtype != dtype):
        return Refusal(f"the arrays are {x.dtype} and the kernels {dtype}")
    if (batch and x.shape[:-2] != batch) or (unary is not None and unary.shape != x.shape):
        return Refusal("the arrays are broadcast against each other or against a batch of kernels")
    return Refusal("the arrays are empty") if x.numel() == 0 else None


def _refuse_part(part: Part) -> Refusal | None:
    K, shift = part.kernel, part.shift
    if isinstance(K, Lattice):
        known = K.engine == "native" and shift is None
    elif isinstance(K, Separable):
        known = len(K.shape) <= MAX_AXES
    else:
        return refuse_methods([part.method])
    if not part.example.is_cpu:
        return Refusal(f"the kernels are on {part.example.device}; the engine runs on the CPU")
    if not known:
        return Refusal(f"this form of {type(K).__name__} is applied outside the engine")
    if isinstance(K, Separable) and K.banded is None:
        return Refusal(f"the spatial kernel is too wide for banded matrices on a grid of {K.shape}")
    return None

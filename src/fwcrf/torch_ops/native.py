"""Calls of native code: whether torch allows one, memory for its result, its number of threads.

``register`` makes a torch operator of a native function. torch.compile and torch.export see one opaque node;
an autograd Function around the operator adds gradients.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fwcrf import _core

# The dtypes that native code takes.
FLOATS = (torch.float32, torch.float64)
# Below this many bytes, torch's own allocation is as fast.
_LARGE = 1 << 19
# Below this many multiplications a thread costs more to wake than it saves.
_WORK_PER_THREAD = 400_000

# A forked child inherits an OpenMP pool without its threads, and the next parallel region, ours or
# torch's own, would wait for them for ever. torch's data loaders do the same in their workers.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


# --- tracing, transforms and gradients ------------------------------------------------------------


def transformed(x: Tensor) -> bool:
    """True while torch traces the code, or if x stands in for torch.func or forward-mode derivatives."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or unpack_dual(x).tangent is not None
    )


def differentiated(*tensors: Tensor | None) -> bool:
    """True if the caller may ask for derivatives in one of the tensors; the first is not None."""
    # Inside torch.func a tensor does not show whether an outer transform differentiates it.
    if not torch.compiler.is_compiling() and transformed(tensors[0]):  # type: ignore[arg-type]
        return True
    if not torch.is_grad_enabled():
        return False
    return any(t is not None and t.requires_grad for t in tensors)


def untraced(x: Tensor) -> bool:
    """True for a plain CPU tensor: no tracing, no torch.func, no dispatch mode.

    The first call of a custom operator loads torch's compiler, which takes longer than refining an image.
    Native code is therefore called directly where nothing observes the call.
    """
    return x.is_cpu and not transformed(x) and not torch._C._len_torch_dispatch_stack()


def has_values(x: Tensor) -> bool:
    """True if the numbers of x can be read: not while torch traces or transforms the code."""
    return not (
        torch.compiler.is_compiling()
        or x.is_meta
        or isinstance(x, torch._subclasses.FakeTensor)
        or torch._C._functorch.is_functorch_wrapped_tensor(x)  # type: ignore[attr-defined]
    )


def check_finite(x: Tensor, name: str) -> None:
    """Refuse NaN and infinity."""
    if not has_values(x) or torch.isfinite(x.sum()) or torch.isfinite(x).all():
        return
    bad = int((~torch.isfinite(x)).sum())
    raise ValueError(
        f"{name} has {bad} values that are NaN or infinite, of {x.numel()}; expected finite numbers. "
        "torch.nan_to_num replaces them, if they are meant."
    )


def warn_caller(message: str) -> None:
    """Issue a warning that points at the line outside this package that led to it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fwcrf."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context without autocast on the device of x."""
    device = x.device.type if isinstance(x, Tensor) else "cpu"
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


# --- memory and threads ---------------------------------------------------------------------------


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised CPU tensor, from memory that is kept for reuse: see ``csrc/runtime/blocks.hpp``."""
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE:
        return torch.empty(tuple(shape), dtype=dtype)
    # Not a view: autograd adds gradients in place if their memory belongs to one tensor alone.
    return torch.frombuffer(_core.empty(size), dtype=dtype).resize_(tuple(shape))


def empty_like(x: Tensor, count: int = 1) -> list[Tensor]:
    """``count`` uninitialised tensors of the shape and dtype of x."""
    return [empty(x.shape, x.dtype) for _ in range(count)]


def threads_for(work: int) -> int:
    """The number of threads for ``work`` multiplications: torch's, fewer for little work."""
    return max(1, min(torch.get_num_threads(), work // _WORK_PER_THREAD))


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NativeOperator:
    """An operator without gradients: native code on plain CPU tensors, plain torch elsewhere."""

    registered: Any  # the operator of torch.library, for tracing, vmap and other devices
    native: Callable[..., Any]

    def __call__(self, first: Tensor, *rest: Any) -> Any:
        return (self.native if untraced(first) else self.registered)(first, *rest)


def register(
    name: str,
    portable: Callable[..., Any],
    native: Callable[..., Any],
    *,
    fake: Callable[..., Any] | None = None,
    batched: Callable[..., Any] | None = None,
) -> NativeOperator:
    """The operator ``fwcrf::name``: ``native`` on the CPU, ``portable`` on every other device.

    ``portable`` carries the annotations from which torch reads the schema. ``fake`` gives the shape of the
    result, by default that of the first argument; ``batched`` is the rule of torch.vmap.
    """
    registered = torch.library.custom_op(f"fwcrf::{name}", portable, mutates_args=())
    registered.register_kernel("cpu")(native)
    registered.register_fake(fake or _like_first)
    if batched is not None:
        registered.register_vmap(batched)
    return NativeOperator(registered, native)


def _like_first(first: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(first, memory_format=torch.contiguous_format)

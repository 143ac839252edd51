"""Calls of native code: whether torch allows one, memory for its result, its number of threads.

``register`` makes a torch operator of a native function. torch.compile and torch.export see one opaque node;
an autograd Function around the operator adds gradients.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fwcrf import _core, runtime
from fwcrf.runtime import LARGEST

_P = ParamSpec("_P")
_R = TypeVar("_R")
# The dtypes that native code takes.
FLOATS = (torch.float32, torch.float64)

# A forked child inherits an OpenMP pool without its threads, and the next parallel region, ours or
# torch's own, would wait for them for ever. torch's data loaders do the same in their workers.
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


# --- tracing, transforms and gradients ------------------------------------------------------------


def transformed(x: Tensor) -> bool:
    """True while torch traces the code, or if x stands in for torch.func or forward-mode derivatives."""
    if torch.compiler.is_compiling():
        return True
    if torch._C._get_tracing_state() is not None:
        refuse_jit_trace()
    return torch._C._are_functorch_transforms_active() or unpack_dual(x).tangent is not None


def refuse_jit_trace() -> None:
    raise RuntimeError(
        "torch.jit.trace records the numbers of one image and would repeat them for every other image; "
        "expected a tracer that sees operators: torch.export.export or torch.compile, and "
        "torch.onnx.export with dynamo=True."
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


def observed() -> bool:
    """True while torch compiles, or in a dispatch mode, as for fake tensors: keep no tensor made now."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def has_values(x: Tensor) -> bool:
    """True if the numbers of x can be read: not while torch traces or transforms the code."""
    return not (
        torch.compiler.is_compiling()
        or x.is_meta
        or isinstance(x, torch._subclasses.FakeTensor)
        or torch._C._functorch.is_functorch_wrapped_tensor(x)  # type: ignore[attr-defined]
    )


def unwrapped(x: Tensor) -> Tensor:
    """The tensor that torch.func.grad wraps, whose numbers can be read; x itself outside of it."""
    while torch._C._functorch.is_gradtrackingtensor(x):  # type: ignore[attr-defined]
        x = torch._C._functorch.get_unwrapped(x)  # type: ignore[attr-defined]
    return x


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
    """Issue a warning that points at the line that led to it, outside of this package and of torch."""
    level, frame = 1, sys._getframe()
    # torch calls the forward of a layer.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("fwcrf.", "torch.")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context without autocast on the device of x."""
    device = x.device.type if isinstance(x, Tensor) else "cpu"
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in the dtype of both, also under autocast."""
    with full_precision(a):
        return a @ b


# --- independence of torch's modes and defaults -----------------------------------------------------


def as_tensor(value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers as a tensor: a tensor on its device, all else on the CPU; Python's own floats as float32.

    ``torch.as_tensor`` would use the default dtype, and move even a tensor to the default device.
    """
    if isinstance(value, Tensor):
        return value if dtype is None else value.to(dtype)
    array = np.asarray(value)
    if dtype is None and array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
        array = array.astype(np.float32)
    return torch.tensor(array, dtype=dtype, device="cpu")


def as_int64(integers: Tensor) -> Tensor:
    """Integers as int64; numbers from 2^63 on, which are too large for it, as ``LARGEST``.

    ``Tensor.long`` would make negative numbers of them.
    """
    found = integers.long()
    return found.masked_fill(found < 0, LARGEST) if integers.dtype == torch.uint64 else found


def plain() -> AbstractContextManager[object]:
    """A context for values that are kept for later calls: gradients as usual, whatever mode the caller is in.

    A tensor made in inference mode cannot be saved for backward, and one made under no_grad has no graph.
    """
    return torch.inference_mode(False)


def kept_property(function: Callable[[Any], _R]) -> functools.cached_property[_R]:
    """A ``cached_property`` whose value does not depend on the mode in which it is first read."""
    return functools.cached_property(torch.inference_mode(False)(with_memory_errors(function)))


# --- memory and threads ---------------------------------------------------------------------------


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised CPU tensor, from memory that is kept for reuse: see ``csrc/runtime/blocks.hpp``."""
    size = math.prod(shape) * dtype.itemsize
    if size < runtime.LARGE:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    # Not a view: autograd adds gradients in place if their memory belongs to one tensor alone.
    return torch.frombuffer(_core.empty(size), dtype=dtype).resize_(tuple(shape))


def with_memory_errors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``runtime.with_memory_errors``, but the function alone while torch compiles the code."""

    @functools.wraps(function)
    def door(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except (RuntimeError, MemoryError, ValueError) as error:
            runtime.name_missing_memory(error)
            raise

    return door


def empty_like(x: Tensor, count: int = 1) -> list[Tensor]:
    """``count`` uninitialised tensors of the shape and dtype of x."""
    return [empty(x.shape, x.dtype) for _ in range(count)]


def threads_for(work: int) -> int:
    """The number of threads for ``work`` multiplications: torch's, fewer for little work."""
    return _core.threads_for(work, torch.get_num_threads())


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

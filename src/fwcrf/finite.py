"""Whether numbers can be looked at, and whether they are finite."""

from __future__ import annotations

import torch
from torch import Tensor


def has_values(x: Tensor) -> bool:
    """Whether x can be looked at: not while torch traces or transforms the code."""
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

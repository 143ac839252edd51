"""Parameter groups, each with its own learning rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fwcrf.apps.models import CNNCRF
from fwcrf.apps.training.config import Optimizer


def parameter_groups(model: CNNCRF, settings: Optimizer) -> list[dict[str, Any]]:
    """The groups "cnn" (matrices), "cnn-vectors" (biases and norms) and "crf" of trainable parameters.

    Parameters of the CRF with a rate of their own are groups of their own: "crf-temperature". Weight decay
    applies to the matrices of the network alone. Empty groups are left out.
    """
    learning = [p for p in model.cnn.parameters() if p.requires_grad]
    crf = [p for p in model.crf.parameters() if p.requires_grad] if model.crf is not None else []
    layer: Any = model.crf
    own = {name: layer.learned(name) for name in settings.crf_lrs}
    apart = {id(p) for parameters in own.values() for p in parameters}
    groups = [
        {
            "name": "cnn",
            "params": [p for p in learning if p.dim() > 1],
            "weight_decay": settings.weight_decay,
            "initial_lr": settings.cnn_lr,
        },
        {
            "name": "cnn-vectors",
            "params": [p for p in learning if p.dim() <= 1],
            "initial_lr": settings.cnn_lr,
        },
        {"name": "crf", "params": [p for p in crf if id(p) not in apart], "initial_lr": settings.crf_lr},
        *(
            {"name": f"crf-{name}", "params": own[name], "initial_lr": rate}
            for name, rate in settings.crf_lrs.items()
        ),
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError(
            "no parameter is trainable; expected fewer modules in model.frozen, or names in crf.learnable."
        )
    for group in groups:
        group.setdefault("weight_decay", 0.0)
        group["lr"] = group["initial_lr"]
    return groups


def optimizer(model: CNNCRF, settings: Optimizer) -> torch.optim.Optimizer:
    """The optimizer given by ``settings``, with the groups of ``parameter_groups``."""
    groups = parameter_groups(model, settings)
    if settings.name == "adam":
        return torch.optim.Adam(groups)
    return torch.optim.SGD(groups, momentum=settings.momentum)


def set_learning_rates(optimizer: torch.optim.Optimizer, share: float) -> dict[str, float]:
    """Set each group's learning rate to ``share`` times the initial one. Returns the rates by group name."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * share
    return {group["name"]: group["lr"] for group in optimizer.param_groups}


def frozen(model: nn.Module, parts: tuple[str, ...]) -> None:
    """Freeze the parameters of the modules named in ``parts``."""
    known = dict(model.named_modules())
    for part in parts:
        if part not in known:
            raise ValueError(
                f"there is no module {part!r} to freeze; expected one of {', '.join(_top(known))}."
            )
        known[part].requires_grad_(False)


def _top(known: dict[str, nn.Module]) -> list[str]:
    return [name for name in known if name and "." not in name]

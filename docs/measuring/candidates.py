"""Settings that differ from the default in a few values."""

from __future__ import annotations

from typing import Any

import fwcrf
from fwcrf.presets import Preset

DEFAULT = fwcrf.presets.get("default")
SPATIAL, BILATERAL = DEFAULT.kernels


def candidate(
    xy: float = BILATERAL["xy"],
    color: float = BILATERAL["color"],
    weight: float = BILATERAL["weight"],
    balance: float = DEFAULT.balance,
    near: float = SPATIAL["weight"],
    steps: int = DEFAULT.num_steps,
    solver: str = DEFAULT.solver["name"],
    temperature: float = 1.0,
) -> dict[str, Any]:
    """Arguments of ``counts.run``: the default with other values; ``near`` is the spatial weight."""
    kernels = (
        {**SPATIAL, "weight": near},
        {"kind": "bilateral", "xy": float(xy), "color": float(color), "weight": weight},
    )
    preset = Preset("", kernels, {"name": solver}, num_steps=steps, balance=balance)
    return {**preset.arguments(), "temperature": temperature}

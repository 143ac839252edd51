"""Named settings of a refinement, each measured on real scores: docs/presets.md has the tables.

A preset is plain values, so that programs list presets without importing torch. An argument that is given
to ``fwcrf.refine`` replaces the preset's.

>>> names()
['default', 'paper', 'pydensecrf', 'pseudo-labels', 'scribbles', 'binary']
>>> get("paper").kernels[1]
{'kind': 'bilateral', 'xy': 80.0, 'color': 13.0, 'weight': 1.0}
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fwcrf.kernels import Kernel

__all__ = ["PRESETS", "Preset", "arguments", "get", "names"]


class Unset(Enum):
    """The default of an argument whose value is the preset's."""

    OF_PRESET = "of the preset"

    def __repr__(self) -> str:
        return "OF_PRESET"


OF_PRESET: Final = Unset.OF_PRESET

# Kernels that settings, the command line and the page offer: the name of the class in ``fwcrf.kernels``, in
# small letters, and its fields, the weight last.
KERNELS: dict[str, tuple[str, ...]] = {"bilateral": ("xy", "color", "weight"), "spatial": ("xy", "weight")}


@dataclass(frozen=True, eq=False)
class Preset:
    """Settings that belong together; ``solver`` has a name and the settings of ``solvers.get``."""

    purpose: str
    kernels: Sequence[Mapping[str, Any]]
    solver: Mapping[str, Any]
    num_steps: int = 10
    compatibility: float = 1.0
    balance: float = 0.0
    self_edges: bool = False

    def arguments(self) -> dict[str, Any]:
        """Arguments for ``fwcrf.refine``.

        >>> get("pydensecrf").arguments()["num_steps"]
        5
        """
        return {
            **arguments(self.solver, self.kernels),
            "num_steps": self.num_steps,
            "compatibility": self.compatibility,
            "balance": self.balance,
            "self_edges": self.self_edges,
        }


def arguments(solver: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The solver and the kernels that plain values describe, as arguments for ``fwcrf.refine``."""
    from fwcrf import solvers

    each = [{**kernel} for kernel in kernels]
    return {
        "solver": solvers.get(**solver),
        "kernels": tuple(kernel_class(kernel.pop("kind"))(**kernel) for kernel in each),
    }


def kernel_class(kind: str) -> type[Kernel]:
    """The class of a kind of ``KERNELS``.

    >>> kernel_class("spatial")()
    Spatial(xy=3.0, weight=1.0, method='separable', normalization='symmetric')
    """
    from fwcrf import kernels

    return getattr(kernels, kind.title())


def names() -> list[str]:
    """The names that ``get`` takes."""
    return [*PRESETS]


def get(name: str | Preset) -> Preset:
    """The preset of this name, or the preset itself."""
    if isinstance(name, Preset):
        return name
    if not isinstance(name, str) or name not in PRESETS:
        near = difflib.get_close_matches(str(name), PRESETS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"preset={name!r} is not known; expected one of {', '.join(PRESETS)}.{hint}")
    return PRESETS[name]


def _kernels(spatial: tuple[float, float], bilateral: tuple[float, float, float]) -> list[dict[str, Any]]:
    """A spatial kernel (pixels, weight) and a bilateral kernel (pixels, grey levels, weight)."""
    return [
        {"kind": "spatial", "xy": spatial[0], "weight": spatial[1]},
        {"kind": "bilateral", "xy": bilateral[0], "color": bilateral[1], "weight": bilateral[2]},
    ]


# The values of arguments that are not given beside kernels of the caller's own.
OWN_KERNELS = Preset("kernels of the caller's own", (), {"name": "l2fw"})

PRESETS: dict[str, Preset] = {
    "default": Preset(
        "a segmentation network's scores for photographs",
        _kernels((3.0, 0.3), (80.0, 6.0, 2.4)),
        {"name": "l2fw"},
        num_steps=5,
        balance=0.3,
    ),
    "paper": Preset(
        "the model and the solver of the paper's experiments on inference",
        _kernels((3.0, 1.0), (80.0, 13.0, 1.0)),
        {"name": "l2fw"},
    ),
    "pydensecrf": Preset(
        "the example of pydensecrf's README: mean field with self-edges",
        _kernels((3.0, 3.0), (80.0, 13.0, 10.0)),
        {"name": "mf"},
        num_steps=5,
        self_edges=True,
    ),
    "pseudo-labels": Preset(
        "label maps made from class activation maps, with from_labels",
        _kernels((3.0, 0.3), (50.0, 5.0, 3.0)),
        {"name": "l2fw"},
        balance=0.3,
    ),
    "scribbles": Preset(
        "strokes of the labels and no scores: the labels spread over similar colours",
        _kernels((3.0, 0.3), (80.0, 6.0, 5.0)),
        {"name": "l2fw"},
        num_steps=30,
    ),
    "binary": Preset(
        "a network's scores for one object against the background",
        _kernels((3.0, 0.3), (50.0, 5.0, 4.0)),
        {"name": "l2fw"},
        num_steps=5,
        balance=0.3,
    ),
}

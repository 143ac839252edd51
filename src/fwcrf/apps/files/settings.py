"""The settings of a refinement, and their file format.

::

    solver: {name: l2fw, weight: 1.0}       # weight is lambda
    num_steps: 10
    kernels:
      - {kind: spatial, xy: 3, weight: 1}
      - {kind: bilateral, xy: 80, color: 13, weight: 1}
    compatibility: 1.0
    rounding: nearest

Omitted settings have the defaults of ``fwcrf.refine``. The file is YAML or JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.safe_yaml import LARGEST, load_yaml
from fwcrf.optional import needed

# The fields of each kind of kernel, the weight last; ``fwcrf.kernels`` would import torch.
KERNELS: dict[str, tuple[str, ...]] = {"bilateral": ("xy", "color", "weight"), "spatial": ("xy", "weight")}


@dataclass(frozen=True)
class Settings:
    """All inputs of ``fwcrf.refine`` except image and scores, as plain values of a YAML file."""

    solver: Mapping[str, Any] = field(default_factory=lambda: {"name": "l2fw"})
    num_steps: int = 10
    kernels: Sequence[Mapping[str, Any]] = (
        {"kind": "spatial", "xy": 3.0, "weight": 1.0},
        {"kind": "bilateral", "xy": 80.0, "color": 13.0, "weight": 1.0},
    )
    compatibility: Any = 1.0
    rounding: str = "nearest"

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "settings") -> Settings:
        """Settings from a mapping, as parsed from a file. Error messages name ``source``.

        >>> Settings.of({"solver": "mf", "num_steps": 5}).solver
        {'name': 'mf'}
        """
        known = [f.name for f in fields(cls)]
        if not isinstance(values, Mapping):
            raise FileError(f"{source} holds a {type(values).__name__}; expected names and values.")
        for name in values:
            if name not in known:
                raise FileError(f"{source} has {name!r}; expected any of {', '.join(known)}.")
        given = dict(values)
        if isinstance(given.get("solver"), str):
            given["solver"] = {"name": given["solver"]}
        settings = cls(**_plain(given, source))
        settings._check(source)
        return settings

    def _check(self, source: str) -> None:
        if not isinstance(self.solver, Mapping) or not isinstance(self.solver.get("name"), str):
            raise FileError(f"{source}: solver is {self.solver!r}; expected a name, or name: and settings.")
        steps = self.num_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise FileError(f"{source}: num_steps is {steps!r}; expected a whole number, 0 or more.")
        if isinstance(self.kernels, str) or not isinstance(self.kernels, Sequence):
            raise FileError(f"{source}: kernels is {self.kernels!r}; expected a list.")
        for kernel in self.kernels:
            kind = kernel.get("kind") if isinstance(kernel, Mapping) else None
            if kind not in KERNELS:
                raise FileError(f"{source}: kernel {kernel!r}; expected kind: {', or kind: '.join(KERNELS)}.")
            for name in kernel:
                if name not in ("kind", *KERNELS[kind]):
                    raise FileError(
                        f"{source}: a {kind} kernel has {name!r}; expected {', '.join(KERNELS[kind])}."
                    )

    def mapping(self) -> dict[str, Any]:
        """Plain mapping, the inverse of ``of``."""
        return _plain(asdict(self), "settings")

    def fingerprint(self, **more: Any) -> str:
        """Hash of the settings and of ``more``: changes if any of them changes."""
        text = json.dumps([self.mapping(), more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def arguments(self) -> dict[str, Any]:
        """Arguments for ``fwcrf.refine``."""
        from fwcrf import solvers
        from fwcrf.kernels.kernel import KERNELS as kinds

        kernels = [{**kernel} for kernel in self.kernels]
        return {
            "solver": solvers.get(**self.solver),
            "num_steps": self.num_steps,
            "kernels": [kinds[kernel.pop("kind")](**kernel) for kernel in kernels],
            "compatibility": self.compatibility,
            "rounding": self.rounding,
        }


def read_settings(path: Path | str) -> Settings:
    """Settings from a YAML or JSON file."""
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    values = load_yaml(text, str(path), "cli")
    return Settings.of({} if values is None else values, str(path))


def write_settings(path: Path | str, settings: Settings, comment: str = "") -> None:
    """Write settings as YAML, atomically, below a comment."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    text = needed("yaml", "cli").safe_dump(settings.mapping(), sort_keys=False, default_flow_style=None)
    with writing(path) as file:
        file.write((lines + text).encode())


def _plain(value: Any, source: str) -> Any:
    """Value with tuples as lists, and numbers that YAML reads as text (1e-3) as floats."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v, source) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, source) for v in value]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, float) and not math.isfinite(value):
        raise FileError(f"{source} has {value}; expected finite numbers.")
    if value is not None and not isinstance(value, bool | int | float):
        raise FileError(f"{source} has {value!r}; expected numbers, words and lists of them.")
    return value

"""The settings of a refinement, and their file format.

::

    preset: default                         # of the settings that are omitted
    solver: {name: l2fw, weight: 1.0}       # weight is lambda
    num_steps: 5
    kernels:
      - {kind: spatial, xy: 3, weight: 0.3}
      - {kind: bilateral, xy: 80, color: 6, weight: 2.4}
    compatibility: 1.0
    balance: 0.3
    self_edges: false
    rounding: nearest

As in ``fwcrf.refine``, ``kernels`` with a preset replace its kernels only; without one, the settings that are
omitted are of the plain model (10 steps, no balance). The file is YAML or JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.safe_yaml import LARGEST, load_yaml
from fwcrf.optional import needed
from fwcrf.presets import KERNELS, OF_PRESET, OWN_KERNELS, PRESETS, Preset, arguments
from fwcrf.presets import get as get_preset

# The default of a field whose value depends on the kernels.
_OMITTED: Any = OF_PRESET


@dataclass(frozen=True)
class Settings:
    """All inputs of ``fwcrf.refine`` except image and scores, as plain values of a YAML file.

    Fields that are omitted are the default's; beside ``kernels``, they are the plain model's.

    >>> Settings().num_steps, Settings(kernels=[{"kind": "spatial", "xy": 3}]).num_steps
    (5, 10)
    """

    solver: Mapping[str, Any] = _OMITTED
    num_steps: int = _OMITTED
    kernels: Sequence[Mapping[str, Any]] = _OMITTED
    compatibility: Any = _OMITTED
    balance: float = _OMITTED
    self_edges: bool = _OMITTED
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        base = PRESETS["default"] if self.kernels is OF_PRESET else OWN_KERNELS
        for one in fields(self):
            if getattr(self, one.name) is OF_PRESET:
                object.__setattr__(self, one.name, getattr(base, one.name))

    @classmethod
    def of_preset(cls, preset: Preset) -> Settings:
        """The settings of a preset."""
        return cls(
            preset.solver, preset.num_steps, preset.kernels, preset.compatibility, preset.balance,
            preset.self_edges,
        )  # fmt: skip

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "settings") -> Settings:
        """Settings from a mapping, as parsed from a file. Error messages name ``source``.

        >>> Settings.of({"solver": "mf", "num_steps": 5}).solver
        {'name': 'mf'}
        """
        known = ["preset", *(f.name for f in fields(cls))]
        if not isinstance(values, Mapping):
            raise FileError(f"{source} holds a {type(values).__name__}; expected names and values.")
        for name in values:
            if name not in known:
                raise FileError(f"{source} has {name!r}; expected any of {', '.join(known)}.")
        given = dict(values)
        if isinstance(given.get("solver"), str):
            given["solver"] = {"name": given["solver"]}
        preset = given.pop("preset", OWN_KERNELS if "kernels" in given else "default")
        try:
            base = cls.of_preset(get_preset(preset))
        except ValueError as error:
            raise FileError(f"{source}: {error}") from error
        settings = replace(base, **_plain(given, source))
        settings._check(source)
        return settings

    def _check(self, source: str) -> None:
        if not isinstance(self.solver, Mapping) or not isinstance(self.solver.get("name"), str):
            raise FileError(f"{source}: solver is {self.solver!r}; expected a name, or name: and settings.")
        steps = self.num_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise FileError(f"{source}: num_steps is {steps!r}; expected a whole number, 0 or more.")
        if (
            isinstance(self.balance, bool)
            or not isinstance(self.balance, int | float)
            or not 0 <= self.balance <= 1
        ):
            raise FileError(f"{source}: balance is {self.balance!r}; expected a number from 0 to 1.")
        if not isinstance(self.self_edges, bool):
            raise FileError(f"{source}: self_edges is {self.self_edges!r}; expected true or false.")
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
            for name in KERNELS[kind][:-1]:
                given = kernel.get(name, 1.0)
                for value in given if isinstance(given, list) else [given]:
                    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                        raise FileError(
                            f"{source}: a {kind} kernel has {name} {value!r}; expected positive numbers, "
                            "standard deviations in pixels or grey levels."
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
        return {
            **arguments(self.solver, self.kernels),
            "num_steps": self.num_steps,
            "compatibility": self.compatibility,
            "balance": self.balance,
            "self_edges": self.self_edges,
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

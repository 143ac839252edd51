"""Settings of a training run, read from a YAML file.

A missing setting has the default given here. An unknown name raises an error that suggests the nearest
known name.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.safe_yaml import LARGEST, load_yaml
from fwcrf.apps.files.settings import Settings
from fwcrf.optional import needed


@dataclass(frozen=True)
class Data:
    """The data set and its augmentation for training."""

    name: Literal["voc", "cityscapes", "camvid", "splits", "folder"]
    root: str
    train: str = "train"  # the split to train on
    val: str | None = "val"  # the split to validate on
    crop: tuple[int, int] = (513, 513)
    scale: tuple[float, float] = (0.5, 2.0)
    flip: float = 0.5
    classes: tuple[str, ...] = ()  # for "folder": names in the order of the labels


@dataclass(frozen=True)
class Model:
    """The network."""

    name: Literal["mobilenetv2", "espnet", "resnet101", "xception65", "own"]  # own: an argument of ``train``
    weights: str | None = None  # file of the initial weights
    leave: tuple[str, ...] = ()  # prefixes of parameters not loaded from that file
    frozen: tuple[str, ...] = ()  # modules that are not trained
    batch_norm: Literal["frozen", "trained"] = "frozen"
    settings: dict[str, Any] = field(default_factory=dict)  # further arguments of the network


@dataclass(frozen=True)
class CRF:
    """The CRF after the network.

    The defaults learn a weight per kernel and label, and a temperature: of all ways that were measured
    (docs/experiments.md), the one with the highest mean IoU among the ways that cost nothing on any data set.
    """

    solver: str = "l2fw"
    settings: dict[str, Any] = field(default_factory=dict)  # arguments of the solver: weight (lambda), step
    num_steps: int = 5
    skip: float | None = None  # None: 0.5, and 0 for mean field
    compatibility: float = 1.0
    balance: float = 0.0
    temperature: float = 1.0
    bias: float = 0.0
    noise: float = 0.0
    learnable: tuple[str, ...] = ("weights", "temperature")
    weights: Literal["scalar", "label", "full"] = "label"
    penalty: float = 0.0  # weight in the loss of the squared distance of the parameters from their start
    spatial: float = 3.0
    bilateral: tuple[float, float] = (80.0, 13.0)
    # As in a file of settings, with their weights; if given, ``spatial`` and ``bilateral`` are not used.
    kernels: tuple[dict[str, Any], ...] = ()
    gradient: str = "unrolled"

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < math.inf:
            raise FileError(f"crf.penalty is {self.penalty}; expected a number of 0 or more.")
        if self.penalty and not self.learnable:
            raise FileError(
                f"crf.penalty is {self.penalty} and crf.learnable is empty; expected names in it, or 0."
            )
        if self.kernels:
            Settings.of({"kernels": list(self.kernels)}, "crf")


@dataclass(frozen=True)
class Optimizer:
    """The optimizer and its learning rates. A config with a CRF has other defaults: ``WITH_CRF``."""

    name: Literal["sgd", "adam"] = "sgd"
    cnn_lr: float = 0.001
    crf_lr: float = 0.01
    crf_lrs: dict[str, float] = field(default_factory=dict)  # by name of crf.learnable, instead of crf_lr
    momentum: float = 0.9
    weight_decay: float = 1e-4  # network matrices only; 0 for biases, norms and the CRF
    power: float = 0.9  # exponent of the schedule (1 - step / steps) ** power

    def __post_init__(self) -> None:
        for name, rate in self.crf_lrs.items():
            if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate < math.inf:
                raise FileError(f"optimizer.crf_lrs.{name} is {rate!r}; expected a number of 0 or more.")


@dataclass(frozen=True)
class Loss:
    """The loss of labels: cross-entropy, with weights near borders, and Lovasz-softmax beside it."""

    lovasz: float = 0.0  # weight of Lovasz-softmax beside the cross-entropy
    boundary: float = 0.0  # a pixel at a border has the weight 1 + boundary in the cross-entropy
    width: float = 3.0  # of borders, in pixels

    def __post_init__(self) -> None:
        for name, value in (("lovasz", self.lovasz), ("boundary", self.boundary)):
            if not 0 <= value < math.inf:
                raise FileError(f"loss.{name} is {value}; expected a number of 0 or more.")
        if not 0 < self.width < math.inf:
            raise FileError(f"loss.width is {self.width}; expected a positive number of pixels.")


# Defaults of the optimizer where the config has a CRF and names no optimizer: the measured recipe.
WITH_CRF: dict[str, Any] = {"name": "adam", "cnn_lr": 3e-5, "crf_lr": 0.02, "weight_decay": 0.0}


@dataclass(frozen=True)
class Run:
    """Settings that do not change the result."""

    workers: int = 2
    device: str = "cpu"
    checkpoint_every: int = 100  # steps
    validate_every: int = 1  # epochs
    tensorboard: bool = False


@dataclass(frozen=True)
class Config:
    """All settings of a run. ``Config.of`` reads nested dictionaries and names the first invalid entry."""

    data: Data
    model: Model
    crf: CRF | None = None
    optimizer: Optimizer = Optimizer()
    epochs: int = 50
    batch_size: int = 16  # total of all processes
    micro_batch: int | None = None  # images per backward pass; None: all images of a process
    auxiliary: float = 0.4  # weight of the auxiliary classifier's loss, if it has one
    seed: int = 0
    run: Run = Run()
    loss: Loss = Loss()

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("batch_size", self.batch_size)):
            if value < 1:
                raise FileError(f"{name} is {value}; expected at least 1.")
        learnable = () if self.crf is None else self.crf.learnable
        for name in self.optimizer.crf_lrs:
            if name not in learnable:
                raise FileError(
                    f"optimizer.crf_lrs has {name!r}, which is not learned; expected names of crf.learnable "
                    f"({', '.join(learnable) or 'empty'})."
                )
        if self.micro_batch is not None and self.micro_batch < 1:
            raise FileError(f"micro_batch is {self.micro_batch}; expected at least 1, or null.")

    def mapping(self) -> dict[str, Any]:
        """The nested dictionaries from which ``of`` recreates the config."""
        return _plain(dataclasses.asdict(self))

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "config") -> Config:
        """The config given by nested dictionaries. Error messages name ``source``.

        >>> config = Config.of({"data": {"name": "voc", "root": "."}, "model": {"name": "resnet101"}})
        >>> config.batch_size, config.data.crop
        (16, (513, 513))
        """
        return _read(cls, _with_recipe(values), source, "")


def _with_recipe(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """``values`` with the optimizer's defaults for a CRF, if they have one and name no optimizer."""
    if not isinstance(values, Mapping) or values.get("crf") is None:
        return values
    given = values.get("optimizer", {})
    if not isinstance(given, Mapping) or "name" in given:
        return values
    return {**values, "optimizer": {**WITH_CRF, **given}}


def read_config(path: Path | str, changes: Sequence[str] = ()) -> Config:
    """The config in a YAML file, or the packaged config of that name.

    Each of ``changes`` overrides one setting: ``"optimizer.crf_lr=0.1"``.
    """
    text, source = _text(path)
    values = load_yaml(text, source, "train")
    if not isinstance(values, dict):
        raise FileError(f"{source} holds a {type(values).__name__}; expected names and values.")
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise FileError(f"{change!r} has no '='; expected NAME=VALUE, for example data.root=VOC2012.")
        _set(values, name.split("."), load_yaml(value, f"{change!r}", "train"), change)
    return Config.of(values, source)


def write_config(path: Path, config: Config) -> None:
    """Write all settings, including the defaults, as YAML."""
    text = needed("yaml", "train").safe_dump(config.mapping(), sort_keys=False, default_flow_style=None)
    with writing(path) as file:
        file.write(text.encode())


def names() -> list[str]:
    """The names of the packaged configs."""
    return sorted(
        path.name.removesuffix(".yaml") for path in _packaged().iterdir() if path.name.endswith(".yaml")
    )


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted names of the settings whose values differ.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    ['a.c']
    """
    found = []
    for name in [*one, *(n for n in other if n not in one)]:
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found += differences(mine, theirs, f"{prefix}{name}.")
        elif mine != theirs:
            found.append(f"{prefix}{name}")
    return found


def _packaged():
    return files("fwcrf.apps.training") / "configs"


def _text(path: Path | str) -> tuple[bytes, str]:
    packaged = _packaged() / f"{path}.yaml"
    if not Path(path).exists() and packaged.is_file():
        return packaged.read_bytes(), str(path)
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST + 1), str(path)
    except OSError as error:
        raise FileError(
            f"{path} cannot be read: {error.strerror or error}. Packaged configs: {', '.join(names())}."
        ) from error


def _set(values: dict[str, Any], names: list[str], value: Any, change: str) -> None:
    for name in names[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise FileError(f"{change!r}: {name} is {values!r}; expected settings in it.")
    values[names[-1]] = value


def _read(kind: Any, value: Any, source: str, name: str) -> Any:
    """``value`` converted to the annotation ``kind``; FileError if it does not fit."""
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, source, name)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _read(next(a for a in arguments if a is not type(None)), value, source, name)
    if origin is Literal and value not in arguments:
        near = difflib.get_close_matches(str(value), arguments, 1)
        raise FileError(_wrong(source, name, value, f"one of {', '.join(arguments)}{_hint(near)}"))
    if origin is tuple:
        return _read_tuple(arguments, value, source, name)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise FileError(_wrong(source, name, value, "names and values"))
        return {str(k): _number(v) for k, v in value.items()}
    value = _number(value) if kind in (int, float) else value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise FileError(_wrong(source, name, value, words[kind]))
    return value


def _read_fields(kind: Any, values: Any, source: str, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise FileError(_wrong(source, prefix or "it", values, "names and values"))
    hints = get_type_hints(kind)
    for name in values:
        if name not in hints:
            near = difflib.get_close_matches(str(name), hints, 1)
            known = ", ".join(f"{prefix}{hint}" for hint in hints)
            raise FileError(f"{source}: {prefix}{name} is not known; expected any of {known}{_hint(near)}.")
    given = {n: _read(hints[n], v, source, f"{prefix}{n}" + "." * dataclasses.is_dataclass(_inner(hints[n])))
             for n, v in values.items()}  # fmt: skip
    for f in dataclasses.fields(kind):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and f.name not in given:
            raise FileError(f"{source}: {prefix}{f.name} is missing.")
    try:
        return kind(**given)
    except FileError as error:
        raise FileError(f"{source}: {error}") from error


def _inner(kind: Any) -> Any:
    """The type T of an annotation ``T | None``; any other annotation unchanged."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(a for a in get_args(kind) if a is not type(None))
    return kind


def _read_tuple(kinds: tuple[Any, ...], value: Any, source: str, name: str) -> tuple[Any, ...]:
    if kinds[-1] is Ellipsis and isinstance(value, list | tuple):
        return tuple(_read(kinds[0], v, source, name) for v in value)
    if not isinstance(value, list | tuple) or len(value) != len(kinds):
        many = "a list" if kinds[-1] is Ellipsis else f"a list of {len(kinds)}"
        raise FileError(_wrong(source, name, value, many))
    return tuple(_read(kind, v, source, name) for kind, v in zip(kinds, value, strict=True))


def _number(value: Any) -> Any:
    """``value`` as a float if it is the text of one: YAML reads 1e-3 as text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    return value


def _wrong(source: str, name: str, value: Any, expected: str) -> str:
    return f"{source}: {name.rstrip('.')} is {value!r}; expected {expected}."


def _hint(near: Sequence[str]) -> str:
    return f"; did you mean {near[0]}?" if near else ""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(v) for name, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value

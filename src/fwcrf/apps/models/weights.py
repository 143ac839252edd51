"""Load state dicts from files into networks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fwcrf.apps.files.errors import FileError

_MOST_WRAPPERS = 8


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The state dict in a ``.safetensors`` file, or in a file written by ``torch.save``.

    Unpickling is restricted to tensors. Wrappers of training scripts are removed: an outer dict with the key
    ``state_dict`` or ``model``, and the prefix ``module.`` of parallel training.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError:
            raise ImportError(f"{path} needs the safetensors package: pip install 'fwcrf[train]'.") from None
        return _whole(path, load_file)
    saved = _whole(path, partial(torch.load, map_location="cpu", weights_only=True))
    if not isinstance(saved, Mapping):
        raise FileError(f"{path} holds a {type(saved).__name__}; expected a state dict, names and tensors.")
    try:
        return unwrap(saved)
    except ValueError as error:
        raise FileError(f"{path}: {error}") from error


def _whole(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except OSError:
        raise
    # The exceptions for a damaged or hostile file are not documented.
    except Exception as error:
        raise FileError(
            f"{path} cannot be read as tensors: {f'{error}.'.splitlines()[0]} It may be damaged, or contain "
            "other objects than tensors, which are not read, because they can run code."
        ) from error


def unwrap(saved: Mapping[str, Any]) -> dict[str, Tensor]:
    """The state dict inside a saved object, without wrappers.

    >>> unwrap({"epoch": 3, "state_dict": {"module.weight": torch.ones(1)}})
    {'weight': tensor([1.])}
    """
    for _ in range(_MOST_WRAPPERS):
        inner = [saved[key] for key in ("state_dict", "model") if isinstance(saved.get(key), Mapping)]
        if not inner:
            return {str(name).removeprefix("module."): value for name, value in saved.items()}
        saved = inner[0]
    raise ValueError(f"the state dict has {_MOST_WRAPPERS} wrappers or more around it; expected one or two.")


def load(net: nn.Module, state: Mapping[str, Tensor], *, leave: Sequence[str] = ()) -> None:
    """Copy ``state`` into ``net``. Raises if a name or a shape does not match.

    ``leave`` are name prefixes of parameters that keep their values, for example of a classifier for
    other classes. ``num_batches_tracked`` of batch norms and the initial values of a CRF may be missing.
    """
    own = net.state_dict()
    left = {name for name in (*own, *state) if any(name.startswith(start) for start in leave)}
    given = {name: value for name, value in state.items() if name not in left}
    optional = {n for n in own if n.endswith("num_batches_tracked") or n.startswith("crf.start.")}
    missing = [name for name in own if name not in given and name not in left | optional]
    unknown = [name for name in given if name not in own]
    if missing or unknown:
        raise ValueError(_misfit(type(net).__name__, missing, unknown))
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; expected {tuple(own[name].shape)}. To keep the "
                f"network's own values: leave=({name.rsplit('.', 1)[0]!r},)."
            )
    net.load_state_dict(given, strict=False)


def _misfit(net: str, missing: list[str], unknown: list[str]) -> str:
    parts = [f"the weights do not fit {net}"]
    for kind, names, candidates in (("missing", missing, unknown), ("not known", unknown, missing)):
        if names:
            near = difflib.get_close_matches(names[0], candidates, 1)
            hint = f" (there is {near[0]!r})" if near else ""
            parts.append(f"{len(names)} {kind}, the first {names[0]!r}{hint}")
    return "; ".join(parts) + "."

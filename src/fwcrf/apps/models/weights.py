"""State dicts from files into networks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fwcrf.storage.errors import FileError


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The state dict of a ``.safetensors`` file, or of one that ``torch.save`` wrote.

    Nothing but tensors is unpickled. What training scripts wrap around a state dict is taken off: a dict with
    ``state_dict`` or ``model`` in it, and the ``module.`` of parallel training before each name.
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
    return unwrap(saved)


def _whole(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except OSError:
        raise
    # What is raised for a damaged or hostile file is written down nowhere.
    except Exception as error:
        raise FileError(
            f"{path} cannot be read as tensors: {f'{error}.'.splitlines()[0]} Is it damaged, or does it hold "
            "more than tensors? That is not read, because it can run code."
        ) from error


def unwrap(saved: Mapping[str, Any]) -> dict[str, Tensor]:
    """The names and tensors inside what was saved.

    >>> unwrap({"epoch": 3, "state_dict": {"module.weight": torch.ones(1)}})
    {'weight': tensor([1.])}
    """
    for key in ("state_dict", "model"):
        if isinstance(saved.get(key), Mapping):
            return unwrap(saved[key])
    return {str(name).removeprefix("module."): value for name, value in saved.items()}


def load(net: nn.Module, state: Mapping[str, Tensor], *, leave: Sequence[str] = ()) -> None:
    """Copy ``state`` into ``net``: every name and every shape must fit.

    ``leave`` names the parts of the network, by how their names begin, that stay as they are: a classifier
    for other classes, for example. Counters of batch norm need not be there.
    """
    own = net.state_dict()
    left = {name for name in (*own, *state) if any(name.startswith(start) for start in leave)}
    given = {name: value for name, value in state.items() if name not in left}
    optional = {name for name in own if name.endswith("num_batches_tracked")}
    missing = [name for name in own if name not in given and name not in left | optional]
    unknown = [name for name in given if name not in own]
    if missing or unknown:
        raise ValueError(_misfit(type(net).__name__, missing, unknown))
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; expected {tuple(own[name].shape)}. To start that "
                f"part afresh: leave=({name.rsplit('.', 1)[0]!r},)."
            )
    net.load_state_dict(given, strict=False)


def _misfit(net: str, missing: list[str], unknown: list[str]) -> str:
    parts = [f"the weights do not fit {net}"]
    for what, names, others in (("missing", missing, unknown), ("not known", unknown, missing)):
        if names:
            near = difflib.get_close_matches(names[0], others, 1)
            hint = f" (there is {near[0]!r})" if near else ""
            parts.append(f"{len(names)} {what}, the first {names[0]!r}{hint}")
    return "; ".join(parts) + "."

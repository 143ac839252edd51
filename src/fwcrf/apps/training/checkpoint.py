"""The state of a run between two steps, in a file that is written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import writing
from fwcrf.torch_ops.printed import in_one_line

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The complete state from which a resumed run gives the same result as an uninterrupted run.

    Learning rates, the order of the images, augmentation and dropout are functions of the config and the
    step, so the checkpoint does not store them.
    """

    step: int  # steps taken
    config: Mapping[str, Any]
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    best: float | None = None  # the best mean IoU so far
    report: Mapping[str, Any] | None = None  # last validation

    __repr__ = in_one_line


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint atomically."""
    with writing(path) as file:
        torch.save({"format": _FORMAT, **vars(checkpoint)}, file)


def read(path: Path) -> Checkpoint:
    """The checkpoint in a file, read without running code from it (``weights_only``)."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        if stored.pop("format") != _FORMAT:
            raise FileError(
                f"{path} was written by another version of fwcrf; start a new run in another folder."
            )
        return Checkpoint(**stored)
    except (FileError, OSError):
        raise
    # torch does not document the exceptions for a damaged file: UnpicklingError, UnicodeDecodeError...
    except Exception as error:
        raise FileError(
            f"{path} is not a checkpoint of fwcrf, or it is damaged: {f'{error}.'.splitlines()[0]}"
        ) from error

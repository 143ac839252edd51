"""The state of a run between two steps, in a file that is whole at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwcrf.apps.files import FileError
from fwcrf.storage.atomic import writing

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on as if it had not been stopped.

    Learning rates, the order of the images, what is drawn to vary them and what dropout draws are functions
    of the config and the step: there is nothing else to keep.
    """

    step: int  # steps taken
    config: Mapping[str, Any]
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    best: float | None = None  # the best mean IoU so far
    report: Mapping[str, Any] | None = None  # of the last validation


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file, whole or not at all."""
    with writing(path) as file:
        torch.save({"format": _FORMAT, **vars(checkpoint)}, file)


def read(path: Path) -> Checkpoint:
    """Read it without running any code in it."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        if stored.pop("format") != _FORMAT:
            raise FileError(
                f"{path} was written by another version of fwcrf; train afresh in another folder."
            )
        return Checkpoint(**stored)
    except (FileError, OSError):
        raise
    # What torch raises for a damaged file is written down nowhere: UnpicklingError, UnicodeDecodeError...
    except Exception as error:
        raise FileError(
            f"{path} is no checkpoint of fwcrf, or damaged: {f'{error}.'.splitlines()[0]}"
        ) from error

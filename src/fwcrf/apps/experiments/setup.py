"""Options of an experiment, with its input and output folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fwcrf.apps.files import FileError


@dataclass(frozen=True)
class Setup:
    """``data`` is the folder of ``voc2012`` and ``weights``; all results go to ``output``.

    ``quick`` tries an experiment within minutes: every fourth pixel of the images, fewer settings.
    """

    data: Path
    output: Path
    num_images: int | None = None  # None: 32 for energies, all images of a half for accuracies
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    num_workers: int | None = None  # None: one per processor
    paper: Path | None = None  # CSV file of the paper's curves
    epochs: int | None = None  # the largest number of epochs in joint; None: as many as a recipe has
    progress: Callable[..., None] = field(default=lambda *_, **__: None, compare=False)

    @property
    def voc(self) -> Path:
        return self.data / "voc2012"

    @property
    def for_energies(self) -> int:
        """The number of images for mean energies."""
        return self.num_images or (4 if self.quick else 32)

    @property
    def for_accuracies(self) -> int:
        """The largest number of images per half for accuracies."""
        return self.num_images or (8 if self.quick else 10**6)

    @property
    def every(self) -> int:
        """The subsampling factor of images along each axis."""
        return 4 if self.quick else 1

    @property
    def side(self) -> int:
        """The longer side of training images, in pixels."""
        return 81 if self.quick else 321

    @property
    def weights(self) -> Path:
        """The file of the network's initial weights."""
        return self.data / "weights" / "deeplabv3_mnv2_dm05_voc_trainaug.safetensors"


def data_folder(given: Path | None) -> Path:
    """``given``, or the folder in the environment variable ``FWCRF_DATA``."""
    found = given or (Path(os.environ["FWCRF_DATA"]) if os.environ.get("FWCRF_DATA") else None)
    if found is None:
        raise FileError(
            "no folder of images; give the folder that contains voc2012 by --data, or in FWCRF_DATA."
        )
    if not (found / "voc2012" / "val.txt").is_file():
        raise FileError(f"{found} has no voc2012/val.txt; expected the folder that contains voc2012.")
    return found


def paper_curves(given: Path | None, data: Path) -> Path | None:
    """``given``, ``FWCRF_PAPER``, or ``paper/curves.csv`` next to the data. None if it does not exist."""
    if given is not None and not given.is_file():
        raise FileError(f"{given} does not exist; expected a CSV file of the paper's curves.")
    named = os.environ.get("FWCRF_PAPER")
    found = given or (Path(named) if named else data.resolve().parent / "paper" / "curves.csv")
    return found if found.is_file() else None

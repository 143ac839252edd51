"""What an experiment is asked to do, and where it finds and puts things."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fwcrf.apps.files import FileError


@dataclass(frozen=True)
class Setup:
    """``data`` holds ``voc2012`` and ``weights``; everything is written to ``output``.

    ``quick`` is for a look at the whole in a minute: every fourth pixel of the images, fewer settings.
    """

    data: Path
    output: Path
    num_images: int | None = None  # None: 32 for energies, all of a half for accuracies
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    num_workers: int | None = None  # None: one per processor
    paper: Path | None = None  # the curves of the paper's figures
    progress: Callable[..., None] = field(default=lambda *_, **__: None, compare=False)

    @property
    def voc(self) -> Path:
        return self.data / "voc2012"

    @property
    def for_energies(self) -> int:
        """How many images energies are averaged over."""
        return self.num_images or (4 if self.quick else 32)

    @property
    def for_accuracies(self) -> int:
        """How many images of each half accuracies are of, at most."""
        return self.num_images or (8 if self.quick else 10**6)

    @property
    def every(self) -> int:
        """Of the images, every so many pixels are taken along each axis."""
        return 4 if self.quick else 1

    @property
    def side(self) -> int:
        """The longer side of the images for training, in pixels."""
        return 81 if self.quick else 321

    @property
    def weights(self) -> Path:
        """Of the network that training starts from."""
        return self.data / "weights" / "deeplabv3_mnv2_dm05_voc_trainaug.safetensors"


def data_folder(given: Path | None) -> Path:
    """The folder given, or ``FWCRF_DATA``."""
    found = given or (Path(os.environ["FWCRF_DATA"]) if os.environ.get("FWCRF_DATA") else None)
    if found is None:
        raise FileError(
            "there are no images: give the folder that holds voc2012 by --data, or in FWCRF_DATA."
        )
    if not (found / "voc2012" / "val.txt").is_file():
        raise FileError(f"{found} has no voc2012/val.txt; expected the folder that holds voc2012.")
    return found


def paper_curves(given: Path | None, data: Path) -> Path | None:
    """The file given, ``FWCRF_PAPER``, or ``paper/curves.csv`` beside the data; None where there is none."""
    if given is not None and not given.is_file():
        raise FileError(f"{given} is not there; expected a CSV file with the curves of the paper's figures.")
    named = os.environ.get("FWCRF_PAPER")
    found = given or (Path(named) if named else data.resolve().parent / "paper" / "curves.csv")
    return found if found.is_file() else None

"""The job of a batch: refine the scores of one image file into a label map."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.atomic import staging
from fwcrf.apps.files.digest import content_identity, sha256
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.images import Picture, read_image
from fwcrf.apps.files.labels import encode_labels
from fwcrf.apps.files.limits import DEFAULT_LIMIT
from fwcrf.apps.files.scores import Given, read_scores
from fwcrf.apps.files.settings import Settings
from fwcrf.torch_ops.printed import in_one_line

if TYPE_CHECKING:
    from fwcrf.inputs.resample import Align


@dataclass(frozen=True)
class Reading:
    """Reading options for image files and score files."""

    kind: Given | None = None  # kind of scores; None: from the file
    key: str | None = None  # name of the array in a .npz file
    label_axis: int = -1
    num_labels: int | None = None
    confidence: float | None = None  # confidence in label maps
    void: int = 255  # value of unlabelled pixels in label maps
    resize: Literal["scores", "image"] | None = None
    limit: int = DEFAULT_LIMIT
    align: Align = "centers"  # place of the scores on the image, for resize


_DEFAULT_READING = Reading()


@dataclass(frozen=True)
class Refined:
    """Labels and their image. ``probabilities`` is None unless requested."""

    picture: Picture
    labels: np.ndarray
    probabilities: np.ndarray | None = None

    __repr__ = in_one_line


@dataclass(frozen=True)
class Inputs:
    """An image and its scores as read from files, ready for ``fwcrf.refine``."""

    names: tuple[str, str]  # of the image and of the scores, for messages
    picture: Picture
    values: np.ndarray  # the scores
    options: dict[str, Any]  # arguments of ``fwcrf.refine`` that follow from the files

    def refine(self, arguments: dict[str, Any], *, return_probabilities: bool = False) -> Refined:
        """Result of ``fwcrf.refine`` with the arguments of ``Settings.arguments``."""
        import fwcrf

        options = {**arguments, **self.options, "return_probabilities": return_probabilities}
        try:
            found = fwcrf.refine(self.picture.values, self.values, **options)
        except ValueError as error:
            # The message is about arrays; the reader of the message knows files.
            raise FileError(f"{' with '.join(self.names)}: {error}") from error
        return Refined(self.picture, *found) if return_probabilities else Refined(self.picture, found)


def read_files(image: Path | str, scores: Path | str, reading: Reading = _DEFAULT_READING) -> Inputs:
    """An image file and a file of scores."""
    picture = read_image(image, limit=reading.limit)
    given = read_scores(
        scores, kind=reading.kind, key=reading.key, label_axis=reading.label_axis, limit=reading.limit
    )
    values = given.values
    dims = picture.spatial_dims or values.ndim - (given.kind != "labels")
    options: dict[str, Any] = {
        "from_logits": given.kind == "logits",
        "spatial_dims": dims,
        "spacing": picture.spacing,
        "resize": reading.resize,
        "align": reading.align,
        "num_labels": reading.num_labels,
        "channel_axis": -1 if reading.label_axis == -1 else dims,
    }
    if given.kind != "labels" and values.ndim > dims and reading.label_axis not in (-1, dims):
        try:
            _check_file_axes(picture, values, given.kind, dims, reading)
        except ValueError as error:
            raise FileError(f"{image} with {scores}: {error}") from error
    if given.kind == "labels":
        values = without_void(values, reading.void, str(scores))
        options["from_labels"] = reading.confidence or True
    return Inputs((str(image), str(scores)), picture, values, options)


def refine_files(
    image: Path | str,
    scores: Path | str,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    reading: Reading = _DEFAULT_READING,
    *,
    return_probabilities: bool = False,
) -> Refined:
    """Result of ``fwcrf.refine`` for an image file and a file of scores."""
    inputs = read_files(image, scores, reading)
    return inputs.refine(settings.arguments(), return_probabilities=return_probabilities)


def _check_file_axes(picture: Picture, values: np.ndarray, kind: str, dims: int, reading: Reading) -> None:
    """Refuse scores whose labels are elsewhere; the message counts the axes of the file."""
    from fwcrf.inputs.arrays import check_label_axis, locate

    stored = locate(np.moveaxis(values, -1, reading.label_axis), kind, dims, reading.label_axis)
    grid = locate(picture.values, "image", dims).grid
    check_label_axis(grid, stored, num_labels=reading.num_labels, told=True)


def without_void(labels: np.ndarray, void: int, name: str) -> np.ndarray:
    """Labels as int64, with -1 for unlabelled pixels."""
    known = labels.astype(np.int64)
    known[labels == void] = -1
    if known.max() < 1 and (known < 0).any():
        raise FileError(
            f"{name} has no labels other than 0 and {void}, which means unlabelled. If it is a mask, use "
            "kind='mask', or --from mask."
        )
    return known


@dataclass(frozen=True)
class Staged:
    """A finished output in a temporary file."""

    temporary: str
    sha256: str  # of its content
    key: str  # of its inputs and settings, see RefineJob.key
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RefineJob:
    """Function from an item to its output, staged as a temporary file in the output's folder.

    It runs on one thread, because the bits of a result depend on the number of threads.
    """

    folder: str
    settings: Settings = field(default_factory=Settings)
    reading: Reading = Reading()

    def __call__(self, item: Item) -> Staged:
        import torch

        torch.set_num_threads(1)
        output = Path(self.folder) / item.output
        # Before the inputs are read: if they change afterwards, the next batch sees another key.
        key = self.key(item)
        with recorded_warnings() as messages:
            found = refine_files(item.image, item.scores, self.settings, self.reading)
        try:
            with staging(output.parent) as (file, temporary):
                encode_labels(file, output.name, found.labels, affine=found.picture.affine)
        except OSError as error:
            raise FileError(f"{output} cannot be written: {error.strerror or error}.") from error
        return Staged(str(temporary), sha256(temporary), key, tuple(messages))

    def key(self, item: Item) -> str:
        """Hash of everything that the output depends on: settings, content of the input files and version."""
        from fwcrf import __version__

        files = [content_identity(path) for path in (item.image, item.scores)]
        return self.settings.fingerprint(version=__version__, reading=asdict(self.reading), files=files)


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """List of the warnings raised in the block, without duplicates; filled when the block ends."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield messages
    messages += dict.fromkeys(str(w.message) for w in recorded)

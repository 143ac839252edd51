"""The job of a batch: refine the scores of one image file into a label map."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.atomic import staging
from fwcrf.apps.files.digest import content_identity, sha256
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_by_name, format_of, stem
from fwcrf.apps.files.images import Picture, read_image
from fwcrf.apps.files.labels import encode_labels
from fwcrf.apps.files.limits import DEFAULT_LIMIT
from fwcrf.apps.files.palette import overlay as drawn
from fwcrf.apps.files.pictures import is_geotiff, write_colours
from fwcrf.apps.files.place import place_in_space
from fwcrf.apps.files.probabilities import encode_probabilities, ending_beside
from fwcrf.apps.files.scores import Given, read_scores
from fwcrf.apps.files.settings import Settings
from fwcrf.torch_ops.native import warn_caller
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
    units: Literal["file", "pixels"] | None = (
        None  # of position bandwidths; None: NIfTI's millimetres, else pixels
    )
    memory: int | None = None  # bytes of the work, as in fwcrf.refine
    bands: tuple[int, ...] | None = None  # the channels of the image to use, from 1 on; None: all


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
    bands: tuple[int, ...] | None = None  # the channels of the image to use, from 1 on; None: all

    def refine(self, arguments: dict[str, Any], *, return_probabilities: bool = False) -> Refined:
        """Result of ``fwcrf.refine`` with the arguments of ``Settings.arguments``."""
        import fwcrf

        options = {**arguments, **self.options, "return_probabilities": return_probabilities}
        try:
            found = fwcrf.refine(self._image(), self.values, **options)
        except ValueError as error:
            # The message is about arrays; the reader of the message knows files.
            raise FileError(f"{' with '.join(self.names)}: {error}") from error
        return Refined(self.picture, *found) if return_probabilities else Refined(self.picture, found)

    def _image(self) -> np.ndarray:
        values = self.picture.values
        if self.bands is None:
            return values
        there = values.shape[-1] if values.ndim > self.options["spatial_dims"] else 1
        if not all(1 <= band <= there for band in self.bands):
            chosen = ",".join(map(str, self.bands))
            raise FileError(f"{self.names[0]} has bands 1 to {there}; expected some of them, not {chosen}.")
        values = values.reshape(*values.shape[: self.options["spatial_dims"]], there)
        return values[..., [band - 1 for band in self.bands]]


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
        "spacing": _spacing(picture, str(image), reading),
        "resize": reading.resize,
        "align": reading.align,
        "num_labels": reading.num_labels,
        "channel_axis": -1 if reading.label_axis == -1 else dims,
        "memory": reading.memory,
    }
    names = (str(image), str(scores))
    grids = (picture.values.shape[:3], values.shape[:3])
    placed = place_in_space(names, (picture.affine, given.affine), grids)
    if placed is not None and reading.resize is not None:
        options["align"] = placed
    elif placed is not None and grids[0] == grids[1]:
        raise FileError(
            f"{scores} lies {placed[1]} voxels away from {image}, on a grid of the same size; expected the "
            "same place, or resize='scores' (--resize)."
        )
    if given.kind != "labels" and values.ndim > dims and reading.label_axis not in (-1, dims):
        try:
            _check_file_axes(picture, values, given.kind, dims, reading)
        except ValueError as error:
            raise FileError(f"{image} with {scores}: {error}") from error
    if given.kind == "labels":
        values = without_void(values, reading.void, str(scores))
        options["from_labels"] = reading.confidence or True
    return Inputs(names, picture, values, options, reading.bands)


def _spacing(picture: Picture, name: str, reading: Reading) -> tuple[float, ...] | None:
    if reading.units == "file" and picture.spacing is None:
        raise FileError(
            f"{name} does not say how large a pixel is; expected NIfTI, a GeoTIFF that is refined into a "
            ".tif, or bandwidths in pixels (units='pixels', --units pixels)."
        )
    return None if reading.units == "pixels" else picture.spacing


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


def keeps_place(image: Path | str, output: Path | str) -> bool:
    """True if the image is a GeoTIFF, and the output a TIFF, which then gets its coordinates and nodata."""
    if not Path(image).is_file() or format_of(image) != "tiff" or not is_geotiff(image):
        return False
    if format_by_name(output) == "tiff":
        return True
    warn_caller(
        f"{image} has coordinates or nodata, which {Path(output).name} cannot hold: they are not used. "
        "Expected a .tif as output (batch: --ending .tif)."
    )
    return False


def refine_place(
    image: Path | str, scores: Path | str, files: Sequence[Path], settings: Settings, reading: Reading
) -> None:
    """Write the labels, and with a second file the probabilities, of a GeoTIFF, window by window."""
    from fwcrf.integrations.geotiff.refine import refine_into

    given: Any = scores
    kind, options = reading.kind, settings.arguments()
    if format_of(scores) != "tiff":
        found = read_scores(
            scores, kind=kind, key=reading.key, label_axis=reading.label_axis, limit=reading.limit
        )
        given, kind = found.values, found.kind
        if kind == "labels":
            given = without_void(given, reading.void, str(scores))
    try:
        refine_into(
            files, image, given,
            kind=kind, confidence=reading.confidence or True, void=reading.void, resize=reading.resize,
            units="crs" if reading.units == "file" else "pixels", num_labels=reading.num_labels,
            align=reading.align, memory=reading.memory, bands=reading.bands, **options,
        )  # fmt: skip
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"{image} with {scores}: {error}") from error


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


# A function that writes to open files, or to the paths of the files.
Writer = Callable[[Sequence[tuple[IO[bytes], Path]]], None]


@dataclass(frozen=True)
class Beside:
    """A further file of an item: its path in the output folder, and its content in a temporary file."""

    output: str
    temporary: str
    sha256: str


@dataclass(frozen=True)
class Staged:
    """A finished output in a temporary file."""

    temporary: str
    sha256: str  # of its content
    key: str  # of its inputs and settings, see RefineJob.key
    warnings: tuple[str, ...] = ()
    beside: tuple[Beside, ...] = ()
    share: float | None = None  # of the pixels that the refinement changed, estimated; None if not known


@dataclass(frozen=True)
class RefineJob:
    """Function from an item to its output, staged as a temporary file in the output's folder.

    It runs on one thread, because the bits of a result depend on the number of threads. ``overlay`` and
    ``probabilities`` ask for further files: NAME-overlay.png, and NAME-probabilities.npz, or with the ending
    of labels in NIfTI and TIFF.
    """

    folder: str
    settings: Settings = field(default_factory=Settings)
    reading: Reading = Reading()
    overlay: bool = False
    probabilities: bool = False

    def __call__(self, item: Item) -> Staged:
        import torch

        torch.set_num_threads(1)
        # Before the inputs are read: if they change afterwards, the next batch sees another key.
        key = self.key(item)
        files: list[Beside] = []
        try:
            with recorded_warnings() as messages, recorded_changes() as shares:
                for names, write in self._writers(item):
                    files += self._staged(names, write)
        except BaseException:
            for one in files:
                Path(one.temporary).unlink(missing_ok=True)
            raise
        label_map, *beside = files
        share = sum(shares) / len(shares) if shares else None
        return Staged(label_map.temporary, label_map.sha256, key, tuple(messages), tuple(beside), share)

    def keeps_place(self, item: Item) -> bool:
        """True if the labels are written window by window, with the coordinates of the image."""
        return keeps_place(item.image, item.output)

    def refined(self, item: Item) -> Refined:
        """The labels of an item, and their probabilities if the job writes them."""
        return refine_files(
            item.image, item.scores, self.settings, self.reading, return_probabilities=self.probabilities
        )

    def beside(self, item: Item) -> list[str]:
        """The further files of an item, paths in the output folder."""
        path = PurePosixPath(item.output)
        ends = ["-overlay.png"] * self.overlay
        ends += [f"-probabilities{ending_beside(path.name)}"] * self.probabilities
        return [str(path.with_name(f"{stem(path.name)}{end}")) for end in ends]

    def key(self, item: Item) -> str:
        """Hash of everything that the output depends on: settings, content of the input files and version."""
        from fwcrf import __version__

        files = [content_identity(path) for path in (item.image, item.scores)]
        return self.settings.fingerprint(
            version=__version__, reading=asdict(self.reading), files=files, **self.more(item)
        )

    def more(self, item: Item) -> dict[str, Any]:
        """Further settings that the output depends on, as plain values."""
        return {}

    def _writers(self, item: Item) -> Iterator[tuple[list[str], Writer]]:
        """The files of an item, the label map first, and functions that write them."""
        if self.keeps_place(item):
            if self.overlay:
                raise FileError(
                    f"{item.image} has coordinates, and its labels are written window by window; leave out "
                    "the overlay."
                )
            yield (
                [item.output, *self.beside(item)],
                lambda files: refine_place(
                    item.image, item.scores, [path for _, path in files], self.settings, self.reading
                ),
            )
            return
        found = self.refined(item)
        if self.overlay and found.labels.ndim != 2:
            raise FileError(f"{item.image} is a volume, which cannot be drawn; leave out the overlay.")
        values, likely = found.picture.values, found.probabilities
        space: dict[str, Any] = {"affine": found.picture.affine, "header": found.picture.header}
        yield [item.output], lambda files: encode_labels(files[0][0], item.output, found.labels, **space)
        for name in self.beside(item):
            if self.overlay and name.endswith("-overlay.png"):
                yield [name], lambda files: write_colours(files[0][0], drawn(values, found.labels))
            else:
                assert likely is not None
                yield (
                    [name],
                    lambda files, name=name: encode_probabilities(files[0][0], name, likely, **space),
                )

    def _staged(self, names: Sequence[str], write: Writer) -> list[Beside]:
        outputs = [Path(self.folder) / name for name in names]
        try:
            with ExitStack() as stack:
                files = [stack.enter_context(staging(output.parent)) for output in outputs]
                write(files)
        except OSError as error:
            raise FileError(f"{outputs[0]} cannot be written: {error.strerror or error}.") from error
        return [Beside(name, str(path), sha256(path)) for name, (_, path) in zip(names, files, strict=True)]


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """List of the warnings raised in the block, without duplicates; filled when the block ends."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield messages
    messages += dict.fromkeys(str(w.message) for w in recorded)


class _Shares(logging.Handler):
    """A handler that collects the shares of changed pixels, which ``fwcrf.refine`` logs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        from fwcrf.changed import Changes

        for one in record.args if isinstance(record.args, tuple) else ():
            if isinstance(one, Changes):
                self.found.append(one.share)


@contextmanager
def recorded_changes() -> Iterator[list[float]]:
    """List of the shares of pixels that refinements in the block changed, estimates from some pixels."""
    log, handler = logging.getLogger("fwcrf"), _Shares()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler.found
    finally:
        log.removeHandler(handler)
        log.setLevel(before)

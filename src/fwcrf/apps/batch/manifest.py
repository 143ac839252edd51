"""The list of a batch: images, their scores, and the names of the outputs."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_by_name, stem
from fwcrf.apps.files.safe_json import load_json

_IMAGES = ("png", "jpeg", "tiff", "npy", "npz", "nifti")


@dataclass(frozen=True)
class Item:
    """One image of a batch: paths of image and scores, and the output's path in the output folder."""

    image: str
    scores: str
    output: str
    truth: str | None = None  # path of the true label map, for tuning


def read_manifest(
    source: Path | str,
    scores: Path | str | None = None,
    *,
    truth: Path | str | None = None,
    ending: str = ".png",
) -> list[Item]:
    """The items of a folder of images, or of a ``.csv`` or ``.jsonl`` file that lists them.

    In a folder, the scores of ``cat.jpg`` are the file ``cat.*`` in the folder ``scores``, and the truth is
    the file ``cat.*`` in ``truth``. A list has the columns ``image`` and ``scores``, and optionally
    ``output`` and ``truth``; its paths are relative to its folder. An output's default name is its image's,
    with ``ending``.
    """
    source = Path(source)
    if not source.exists():
        raise FileError(f"{source} cannot be read: No such file or directory.")
    if source.is_dir():
        items = list(_of_folder(source, scores, truth, ending))
        if not items:
            raise FileError(f"{source} has no images; expected PNG, JPEG, TIFF, .npy, .npz or NIfTI files.")
    else:
        if scores is not None or truth is not None:
            raise FileError(f"{source} is a list, which names scores and truth itself; leave them out.")
        items = list(_of_list(source, ending))
        if not items:
            raise FileError(f"{source} lists no images.")
    _check_outputs(items)
    return items


def _of_folder(
    folder: Path, scores: Path | str | None, truth: Path | str | None, ending: str
) -> Iterator[Item]:
    if scores is None:
        raise FileError(f"{folder} is a folder of images; add the folder of scores (scores=, or --scores).")
    of = [_by_stem(Path(place)) if place is not None else None for place in (scores, truth)]
    for path in sorted(folder.iterdir()):
        if format_by_name(path) in _IMAGES and not path.name.startswith("."):
            name = stem(path)
            found, true = (table.get(name) if table is not None else None for table in of)
            # A missing file is reported when its image is processed, like any unreadable file.
            found = found or Path(scores) / f"{name}.npy"
            if truth is not None:
                true = true or Path(truth) / f"{name}.png"
            yield Item(str(path), str(found), f"{name}{ending}", None if true is None else str(true))


def _by_stem(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder; expected one with a file for each image.")
    table: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if format_by_name(path) and not path.name.startswith("."):
            other = table.setdefault(stem(path), path)
            if other != path:
                raise FileError(f"{other} and {path.name} belong to the same image; keep one, or use a list.")
    return table


def _of_list(path: Path, ending: str) -> Iterator[Item]:
    for number, row in _rows(path):
        given = {k: v for k, v in row.items() if v not in (None, "")}
        for name in given:
            if name not in ("image", "scores", "output", "truth") or not isinstance(given[name], str):
                raise FileError(
                    f"{path}, line {number} has {name!r}: {given[name]!r}; expected the paths image and "
                    "scores, and optionally output and truth."
                )
        for name in ("image", "scores"):
            if name not in given:
                raise FileError(f"{path}, line {number} has no {name!r}; expected a path.")
        output = given.get("output", f"{stem(given['image'])}{ending}")
        for name, value in given.items():
            if "\0" in value:
                raise FileError(f"{path}, line {number}: {name} {value!r} has a NUL character; remove it.")
        check_inside(output, f"{path}, line {number}: ")
        places = {k: str(path.parent / v) for k, v in given.items() if k != "output"}
        yield Item(places["image"], places["scores"], output, places.get("truth"))


def _rows(path: Path) -> Iterator[tuple[int, dict]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".csv":
                table = csv.DictReader(file)
                for row in table:
                    if None in row:
                        raise FileError(
                            f"{path}, line {table.line_num} has more cells than there are columns."
                        )
                    yield table.line_num, row
            elif path.suffix in (".jsonl", ".ndjson"):
                for number, line in enumerate(file, 1):
                    if line.strip():
                        row = load_json(line, f"{path}, line {number}")
                        if not isinstance(row, dict):
                            raise FileError(f"{path}, line {number} is not an object: {{...}}.")
                        yield number, row
            else:
                raise FileError(
                    f"{path} is neither a folder nor a known kind of list; expected .csv or .jsonl."
                )
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read as {path.suffix[1:].upper()}: {error}.") from error


def check_inside(output: str, place: str = "") -> None:
    """Raise FileError if the path ``output`` leaves its folder. ``place`` is the start of the message."""
    if PurePosixPath(output).is_absolute() or ".." in PurePosixPath(output).parts:
        raise FileError(f"{place}output {output!r} leaves the output folder; expected a path inside it.")
    if "\0" in output:
        raise FileError(f"{place}output {output!r} has a NUL character; remove it.")


def _check_outputs(items: Iterable[Item]) -> None:
    images = defaultdict(list)
    for item in items:
        check_inside(item.output)
        images[str(PurePosixPath(item.output))].append(item.image)
    for output, several in images.items():
        if len(several) > 1:
            raise FileError(
                f"{several[0]} and {several[1]} would both be written to {output}; use a list with the "
                "column 'output' to name them."
            )

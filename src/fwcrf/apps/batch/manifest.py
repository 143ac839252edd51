"""What a batch is made of: pairs of an image and its scores, and the name of what is made of them."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fwcrf.apps.files.formats import format_by_name, stem
from fwcrf.storage.errors import FileError

_IMAGES = ("png", "jpeg", "tiff", "npy", "npz", "nifti")


@dataclass(frozen=True)
class Item:
    """One thing to do: refine the scores of an image into a file in the folder of the output."""

    image: str
    scores: str
    output: str
    truth: str | None = None  # a label map to compare with


def read_manifest(
    source: Path | str,
    scores: Path | str | None = None,
    *,
    truth: Path | str | None = None,
    ending: str = ".png",
) -> list[Item]:
    """The items of a folder of images, or of a ``.csv`` or ``.jsonl`` file that lists them.

    In a folder, the scores of ``cat.jpg`` are the file in the folder ``scores`` that is called ``cat`` and
    then something, and ``truth`` likewise. A list has the columns ``image`` and ``scores``, and may have
    ``output`` and ``truth``; paths in it start from the folder it is in. An output is called like its image,
    with ``ending``.
    """
    source = Path(source)
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
        raise FileError(f"{folder} is a folder of images; say where their scores are (scores=, or --scores).")
    of = [_by_stem(Path(place)) if place is not None else None for place in (scores, truth)]
    for path in sorted(folder.iterdir()):
        if format_by_name(path) in _IMAGES and not path.name.startswith("."):
            name = stem(path)
            found, true = (table.get(name) if table is not None else None for table in of)
            # One that is missing is reported when its turn comes, like any other file that cannot be read.
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
                raise FileError(
                    f"{other} and {path.name} belong to the same image; keep one, or write a list."
                )
    return table


def _of_list(path: Path, ending: str) -> Iterator[Item]:
    for number, row in _rows(path):
        given = {k: v for k, v in row.items() if v not in (None, "")}
        for name in given:
            if name not in ("image", "scores", "output", "truth") or not isinstance(given[name], str):
                raise FileError(
                    f"{path}, line {number} has {name!r}: {given[name]!r}; expected paths called image and "
                    "scores, and perhaps output and truth."
                )
        for name in ("image", "scores"):
            if name not in given:
                raise FileError(f"{path}, line {number} has no {name!r}; expected a path.")
        output = given.get("output", f"{stem(given['image'])}{ending}")
        if PurePosixPath(output).is_absolute() or ".." in PurePosixPath(output).parts:
            raise FileError(f"{path}, line {number}: output {output!r} leaves the folder of the outputs.")
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
                        row = json.loads(line)
                        if not isinstance(row, dict):
                            raise FileError(f"{path}, line {number} is not an object: {{...}}.")
                        yield number, row
            else:
                raise FileError(
                    f"{path} is no folder, and not a list that is known: expected .csv or .jsonl."
                )
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (csv.Error, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read as {path.suffix[1:].upper()}: {error}.") from error


def _check_outputs(items: Iterable[Item]) -> None:
    images = defaultdict(list)
    for item in items:
        images[str(PurePosixPath(item.output))].append(item.image)
    for output, several in images.items():
        if len(several) > 1:
            raise FileError(
                f"{several[0]} and {several[1]} would both be written to {output}; write a list with the "
                "column 'output' to tell them apart."
            )

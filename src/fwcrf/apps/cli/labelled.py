"""Labelled images on the command line: the common part of ``fwcrf tune`` and ``fwcrf fit``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fwcrf.apps.cli.flags import in_flags
from fwcrf.apps.cli.progress import print_warnings, say

if TYPE_CHECKING:
    from fwcrf.apps.batch.manifest import Item
    from fwcrf.apps.fitting import Fitted
    from fwcrf.apps.tuning import Tuned
    from fwcrf.apps.tuning.choice import Choice

Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of images, or a .csv or .jsonl list of image, scores and truth.",
        show_default=False,
    ),
]
Scores = Annotated[
    Path | None,
    typer.Option("--scores", "-s", metavar="FOLDER", help="Folder of scores: cat.npy for cat.jpg."),
]
Truth = Annotated[
    Path | None,
    typer.Option("--truth", "-t", metavar="FOLDER", help="Folder of true labels: cat.png for cat.jpg."),
]
Images = Annotated[int, typer.Option(min=1, help="Largest number of images, drawn at random.")]
Workers = Annotated[
    int | None, typer.Option("--workers", "-j", min=1, help="Processes (default: one per processor).")
]


def labelled_items(source: Path, scores: Path | None, truth: Path | None) -> list[Item]:
    """The images of a folder or of a list, with scores and truth."""
    from fwcrf.apps.batch.manifest import read_manifest

    if source.is_dir() and (scores is None or truth is None):
        raise typer.BadParameter(f"{source} is a folder; it needs --scores and --truth.", param_hint="SOURCE")
    if source.is_file() and (scores is not None or truth is not None):
        raise typer.BadParameter(
            f"{source} is a list, which names scores and truth itself.", param_hint="SOURCE"
        )
    return read_manifest(source, scores, truth=truth)


def check_output(path: Path, option: str, endings: Sequence[str]) -> None:
    """Refuse a path with another ending, or one that cannot be written to."""
    from fwcrf.apps.files.atomic import check_writable, is_special

    if path.suffix not in endings and not is_special(path):
        raise typer.BadParameter(f"{path} must end in {' or '.join(endings)}.", param_hint=option)
    check_writable(path)


def journal_of(output: Path, work: str) -> Path | None:
    """The file beside the output with which interrupted work resumes; None for a device or a pipe."""
    from fwcrf.apps.files.atomic import is_special

    return None if is_special(output) else output.with_name(f"{output.stem}-{work}.jsonl")


def score_lines(choice: Choice, scores_alone: float, start: str = "") -> list[str]:
    """Three lines with the mean IoU of the scores alone, of the start, and cross-validated."""
    difference = 100 * (choice.miou - choice.miou_start)
    return [
        f"scores alone     {100 * scores_alone:6.2f} %",
        f"start            {100 * choice.miou_start:6.2f} %  {start}".rstrip(),
        f"cross-validated  {100 * choice.miou:6.2f} %  difference {difference:+.2f} "
        f"+- {100 * choice.miou_error:.2f}; error per image {100 * math.expm1(-choice.gain):+.1f} % "
        f"+- {100 * choice.error:.1f} %",
    ]


def print_problems(found: Tuned | Fitted) -> None:
    """Print warnings, and the images that were left out with their errors."""
    print_warnings(found.warnings)
    for item, error in found.failures:
        say(f"left out: {item.image}: {in_flags(error)}")

"""``fwcrf batch``: refine many images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

import typer

from fwcrf.apps.cli.flags import in_flags
from fwcrf.apps.cli.options import parts_of, reading_of, settings_of, takes
from fwcrf.apps.cli.progress import print_warnings, progress, say

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading, RefineJob
    from fwcrf.apps.batch.run import Engine, Plan
    from fwcrf.apps.files.settings import Settings


class Running(NamedTuple):
    """Options of commands for many images: where their files come from, and which processes make them."""

    source: Path
    output: Path
    ending: str
    workers: int | None
    engine: str
    address: str | None
    overwrite: bool


def running_of(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, or a .csv or .jsonl list of image, scores and, optionally, output.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Output folder.")],
    ending: Annotated[str, typer.Option(help="Format of label maps without a name in the list.")] = ".png",
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Processes (default: one per processor).")
    ] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Local processes, or Ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A running Ray cluster (default: start one here).")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files that no batch has written.")
    ] = False,
) -> Running:
    """Options of commands for many images."""
    return Running(source, output, ending, workers, engine, address, overwrite)


Overlay = Annotated[
    bool, typer.Option("--overlay", help="Also draw the labels over each image, into NAME-overlay.png.")
]


@takes(running=running_of, settings=settings_of, reading=reading_of, parts=parts_of)
def batch(
    *,
    scores: Annotated[
        Path | None,
        typer.Option("--scores", "-s", metavar="FOLDER", help="Folder of scores: cat.npy for cat.jpg."),
    ] = None,
    overlay: Overlay = False,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Also write the probabilities, into NAME-probabilities.npz."),
    ] = False,
    running: Running,
    settings: Settings,
    reading: Reading,
    parts: dict[str, Any],
) -> None:
    """Refine the labels of many images.

    Finished images are skipped: after an interruption, run the same command again. An unreadable file is
    reported and skipped; the exit status is then 1.
    """
    from fwcrf.apps.batch.job import RefineJob

    job = partial(
        RefineJob, settings=settings, reading=replace(reading, **parts), overlay=overlay,
        probabilities=probabilities,
    )  # fmt: skip
    run_batch(job, running, scores, scores_flag="--scores", title="refining")


def run_batch(
    make: Callable[[str], RefineJob], running: Running, scores: Path | None, *, scores_flag: str, title: str
) -> NoReturn:
    """Run the job that ``make`` makes for the output folder; print failures and a summary, and exit."""
    from fwcrf.apps.batch.manifest import read_manifest
    from fwcrf.apps.batch.run import run
    from fwcrf.apps.files.labels import check_labels_name

    source, output, engine, address = running.source, running.output, running.engine, running.address
    if source.is_dir() and scores is None:
        raise typer.BadParameter(
            f"{source} is a folder; give the folder of its {scores_flag[2:]}.", param_hint=scores_flag
        )
    if source.is_file() and scores is not None:
        raise typer.BadParameter(
            f"{source} is a list, which names the {scores_flag[2:]} itself.", param_hint=scores_flag
        )
    try:
        check_labels_name(f"name{running.ending}")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ending") from error
    if address is not None and engine != "ray":
        raise typer.BadParameter("needs --engine ray.", param_hint="--address")
    if engine == "ray":
        # The workers of a cluster have other working directories.
        source, output, scores = source.absolute(), output.absolute(), scores and scores.absolute()
    items = read_manifest(source, scores, ending=running.ending)
    warnings, shares, failed, done = [], [], 0, 0
    with progress(title, len(items)) as advance:

        def announce(plan: Plan) -> None:
            if plan.stale:
                advance(f"{plan.stale} outputs of other settings or inputs are made again", 0)
            advance(None, plan.done)

        for outcome in run(
            items,
            make(str(output)),
            num_workers=running.workers,
            engine=_engine(engine, address),
            overwrite=running.overwrite,
            planned=announce,
        ):
            failed += outcome.error is not None
            done += outcome.error is None
            warnings += [(outcome.item.scores, message) for message in outcome.warnings]
            shares += [] if outcome.share is None else [outcome.share]
            error = outcome.error and in_flags(outcome.error)
            advance(f"failed: {outcome.item.image}: {error}" if error else None)
    print_warnings(warnings)
    changed = f"; {100 * sum(shares) / len(shares):.2g} % of the pixels changed" if shares else ""
    say(f"{done} refined, {len(items) - done - failed} done before, {failed} failed{changed}")
    raise typer.Exit(1 if failed else 0)


def _engine(name: str, address: str | None) -> Engine | None:
    if name == "local":
        return None
    from fwcrf.apps.batch.on_ray import run

    return partial(run, address=address)

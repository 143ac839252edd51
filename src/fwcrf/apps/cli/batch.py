"""``fwcrf batch``: refine many images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fwcrf.apps.cli.flags import in_flags
from fwcrf.apps.cli.options import reading_of, settings_of, takes
from fwcrf.apps.cli.progress import print_warnings, progress, say

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.batch.run import Engine, Plan
    from fwcrf.apps.files.settings import Settings


@takes(settings=settings_of, reading=reading_of)
def batch(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, or a .csv or .jsonl list of image, scores and, optionally, output.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Output folder.")],
    *,
    scores: Annotated[
        Path | None,
        typer.Option("--scores", "-s", metavar="FOLDER", help="Folder of scores: cat.npy for cat.jpg."),
    ] = None,
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
    settings: Settings,
    reading: Reading,
) -> None:
    """Refine the labels of many images.

    Finished images are skipped: after an interruption, run the same command again. An unreadable file is
    reported and skipped; the exit status is then 1.
    """
    from fwcrf.apps.batch.job import RefineJob
    from fwcrf.apps.batch.manifest import read_manifest
    from fwcrf.apps.batch.run import run
    from fwcrf.apps.files.labels import check_labels_name

    if source.is_dir() and scores is None:
        raise typer.BadParameter(
            f"{source} is a folder; give the folder of its scores.", param_hint="--scores"
        )
    if not source.is_dir() and scores is not None:
        raise typer.BadParameter(f"{source} is a list, which names the scores itself.", param_hint="--scores")
    try:
        check_labels_name(f"name{ending}")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ending") from error
    if address is not None and engine != "ray":
        raise typer.BadParameter("needs --engine ray.", param_hint="--address")
    if engine == "ray":
        # The workers of a cluster have other working directories.
        source, output, scores = source.absolute(), output.absolute(), scores and scores.absolute()
    items = read_manifest(source, scores, ending=ending)
    job = RefineJob(str(output), settings, reading)
    warnings, failed, done = [], 0, 0
    with progress("refining", len(items)) as advance:

        def announce(plan: Plan) -> None:
            if plan.stale:
                advance(f"{plan.stale} outputs of other settings or inputs are made again", 0)
            advance(None, plan.done)

        for outcome in run(
            items,
            job,
            num_workers=workers,
            engine=_engine(engine, address),
            overwrite=overwrite,
            planned=announce,
        ):
            failed += outcome.error is not None
            done += outcome.error is None
            warnings += [(outcome.item.scores, message) for message in outcome.warnings]
            error = outcome.error and in_flags(outcome.error)
            advance(f"failed: {outcome.item.image}: {error}" if error else None)
    print_warnings(warnings)
    say(f"{done} refined, {len(items) - done - failed} done before, {failed} failed")
    raise typer.Exit(1 if failed else 0)


def _engine(name: str, address: str | None) -> Engine | None:
    if name == "local":
        return None
    from fwcrf.apps.batch.on_ray import run

    return partial(run, address=address)

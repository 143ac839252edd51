"""``fwcrf tune``: search settings on labelled images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fwcrf.apps.cli.options import reading_of, settings_of, takes
from fwcrf.apps.cli.progress import print_warnings, progress

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.files.settings import Settings
    from fwcrf.apps.tuning import Tuned


@takes(settings=settings_of, reading=reading_of)
def tune(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, or a .csv or .jsonl list of image, scores and truth.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Output file, the best settings in YAML.")
    ],
    *,
    scores: Annotated[
        Path | None,
        typer.Option("--scores", "-s", metavar="FOLDER", help="Folder of scores: cat.npy for cat.jpg."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option("--truth", "-t", metavar="FOLDER", help="Folder of true labels: cat.png for cat.jpg."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of settings to try.")] = 40,
    images: Annotated[int, typer.Option(min=1, help="Number of images, drawn at random.")] = 10,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Parameter to tune, such as lambda or bilateral.xy (default: all)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also plot the trials: .png, .svg or .pdf.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Processes (default: one per processor).")
    ] = None,
    settings: Settings,
    reading: Reading,
) -> None:
    """Find lambda, weights and bandwidths on a few labelled images.

    Settings are compared by the mean IoU over all images together. Pass FILE to `fwcrf refine` and
    `fwcrf batch` with --config. After an interruption, the same command resumes.
    """
    import random

    from fwcrf.apps.batch.manifest import read_manifest
    from fwcrf.apps.files.atomic import check_writable
    from fwcrf.apps.files.settings import write_settings
    from fwcrf.apps.tuning import tune
    from fwcrf.apps.tuning.plot import plot as draw
    from fwcrf.optional import needed

    if source.is_dir() and (scores is None or truth is None):
        raise typer.BadParameter(f"{source} is a folder; it needs --scores and --truth.", param_hint="SOURCE")
    if output.suffix not in (".yaml", ".yml"):
        raise typer.BadParameter(f"{output} must end in .yaml or .yml.", param_hint="--output")
    if plot is not None:
        if plot.suffix not in (".png", ".svg", ".pdf"):
            raise typer.BadParameter(f"{plot} must end in .png, .svg or .pdf.", param_hint="--plot")
        needed("matplotlib", "plot")
        check_writable(plot)
    check_writable(output)
    items = read_manifest(source, scores, truth=truth)
    items = random.Random(seed).sample(items, min(images, len(items)))
    with progress("trying", trials) as advance:
        tuned = tune(
            items,
            settings,
            reading,
            only=only or None,
            num_trials=trials,
            seed=seed,
            num_workers=workers,
            journal=output.with_name(f"{output.stem}-trials.jsonl"),
            progress=lambda trial: advance(f"{100 * trial.score:6.2f} %  {_point_text(trial.point)}"),
        )
    print_warnings(tuned.warnings)
    for item, error in tuned.failures:
        print(f"left out: {item.image}: {error}", file=sys.stderr)
    summary = _summary(tuned, seed)
    write_settings(output, tuned.settings, summary)
    if plot is not None:
        draw(plot, tuned)
    print(summary)
    raise typer.Exit(1 if tuned.failures else 0)


def _summary(tuned: Tuned, seed: int) -> str:
    return (
        f"mean IoU over {tuned.num_images} images, {len(tuned.trials)} trials, seed {seed}\n"
        f"scores alone  {100 * tuned.scores_alone:6.2f} %\n"
        f"start         {100 * tuned.trials[0].score:6.2f} %  {_point_text(tuned.trials[0].point)}\n"
        f"best          {100 * tuned.best.score:6.2f} %  {_point_text(tuned.best.point)}"
    )


def _point_text(point: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in point.items())

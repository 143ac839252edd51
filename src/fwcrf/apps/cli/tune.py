"""``fwcrf tune``: search settings on labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fwcrf.apps.cli.labelled import (
    Images,
    Scores,
    Source,
    Truth,
    Workers,
    check_output,
    journal_of,
    labelled_items,
    print_problems,
    score_lines,
)
from fwcrf.apps.cli.options import reading_of, settings_of, takes
from fwcrf.apps.cli.progress import progress

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.batch.manifest import Item
    from fwcrf.apps.files.settings import Settings
    from fwcrf.apps.tuning import Tuned


@takes(settings=settings_of, reading=reading_of)
def tune(
    source: Source,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Output file, the chosen settings in YAML.")
    ],
    *,
    scores: Scores = None,
    truth: Truth = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of settings to try.")] = 64,
    images: Images = 40,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Parameter to tune, such as lambda or bilateral.xy (default: all)."
        ),
    ] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Tune one kernel weight per label, each within a factor of 2.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed, of images and settings to try.")] = 0,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page of curves and changed images: .html."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also plot the trials: .png, .svg or .pdf.")
    ] = None,
    workers: Workers = None,
    settings: Settings,
    reading: Reading,
) -> None:
    """Find lambda, steps, weights and bandwidths on labelled images.

    The settings from which the search starts change only if cross-validation over the images shows a gain.
    Pass FILE to `fwcrf refine` and `fwcrf batch` with --config. After an interruption, the same command
    resumes.
    """
    import random

    from fwcrf.apps.files.settings import write_settings
    from fwcrf.apps.tuning import tune
    from fwcrf.apps.tuning.parameters import parameters, per_label
    from fwcrf.apps.tuning.report import write_plot, write_report
    from fwcrf.optional import needed

    items = labelled_items(source, scores, truth)
    if per_class:
        settings = per_label(settings, _num_labels(items[0], reading))
    known = parameters(settings)
    for name in only or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r}; expected any of {', '.join(known)}.", param_hint="--only")
    for path, option, endings in (
        (output, "--output", (".yaml", ".yml")),
        (plot, "--plot", (".png", ".svg", ".pdf")),
        (report, "--report", (".html",)),
    ):
        if path is not None:
            check_output(path, option, endings)
    if plot is not None or report is not None:
        needed("matplotlib", "plot")
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
            journal=journal_of(output, "trials"),
            progress=lambda trial: advance(f"{100 * trial.score:6.2f} %  {_point_text(trial.point)}"),
        )
    print_problems(tuned)
    summary = _summary(tuned, seed)
    write_settings(output, tuned.settings, summary)
    if plot is not None:
        write_plot(plot, tuned)
    if report is not None:
        write_report(report, tuned, settings, reading, summary)
    print(summary)
    raise typer.Exit(1 if tuned.failures else 0)


def _summary(tuned: Tuned, seed: int) -> str:
    from fwcrf.apps.tuning.parameters import at_limits, ranges

    found, limits = tuned.choice, tuned.limits
    lines = [
        f"mean IoU over {tuned.num_images} images, {len(tuned.trials)} trials, seed {seed}",
        *score_lines(found, tuned.scores_alone, _point_text(tuned.trials[0].point)),
    ]
    if found.reason:
        lines.append(f"The start is kept: {found.reason}.")
        highest = max(tuned.trials, key=lambda trial: trial.score)
        beyond = at_limits(highest.point, ranges(tuned.trials[0].point))
        if beyond:
            lines.append(
                f"The trial with the highest mean IoU, which is not chosen, is at a limit of the search: "
                f"{', '.join(beyond)}. A start closer to it is worth a search: {_point_text(highest.point)}."
            )
    else:
        lines.append(f"chosen                     {_point_text(tuned.best.point)}")
    if limits:
        lines.append(
            f"At a limit of the search: {', '.join(limits)}. Search again from the result, with --config."
        )
    return "\n".join(lines)


def _num_labels(item: Item, reading: Reading) -> int:
    """Number of labels of an item's scores."""
    from fwcrf.apps.batch.job import read_files

    if reading.num_labels is not None:
        return reading.num_labels
    inputs = read_files(item.image, item.scores, reading)
    if "from_labels" in inputs.options:
        raise typer.BadParameter("label maps need --labels, the number of labels.", param_hint="--per-class")
    single = inputs.values.ndim == inputs.options["spatial_dims"] or inputs.values.shape[-1] == 1
    return 2 if single else inputs.values.shape[-1]


def _point_text(point: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in point.items())

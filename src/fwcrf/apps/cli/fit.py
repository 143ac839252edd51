"""``fwcrf fit``: kernel parameters and compatibility by gradients, on labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
    from fwcrf.apps.files.settings import Settings
    from fwcrf.apps.fitting import Fitted


@takes(settings=settings_of, reading=reading_of)
def fit(
    source: Source,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Output file, the settings in YAML.")
    ],
    *,
    scores: Scores = None,
    truth: Truth = None,
    learn: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Parameters to fit: lambda, weights, bandwidths, label-weights or compatibility "
            "(repeatable; default: lambda, weights and compatibility).",
        ),
    ] = None,
    loss: Annotated[
        Literal["lovasz", "cross-entropy"], typer.Option(help="Loss: of the mean IoU, or of each pixel.")
    ] = "lovasz",
    updates: Annotated[int, typer.Option(min=1, help="Steps of Adam in a fit.")] = 60,
    crop: Annotated[int, typer.Option(min=8, help="Side of a training crop, in pixels.")] = 160,
    rate: Annotated[float, typer.Option(min=0.0, help="Learning rate, of logarithms of parameters.")] = 0.05,
    penalty: Annotated[
        float, typer.Option(min=0.0, help="Penalty on squared logarithms of factors from the start.")
    ] = 0.01,
    folds: Annotated[
        int, typer.Option(min=2, help="Parts of the images, each judged by a fit to the rest.")
    ] = 5,
    images: Images = 40,
    seed: Annotated[int, typer.Option(help="Random seed, of images, folds and crops.")] = 0,
    workers: Workers = None,
    settings: Settings,
    reading: Reading,
) -> None:
    """Fit kernel weights, bandwidths, lambda and compatibility to labelled images, by gradients.

    The settings from which the fit starts change only if cross-validation over the images shows a gain. Pass
    FILE to `fwcrf refine` and `fwcrf batch` with --config. After an interruption, the same command resumes.
    """
    import random

    from fwcrf.apps.files.settings import write_settings
    from fwcrf.apps.fitting import GROUPS, Options, fit

    for name in learn or ():
        if name not in GROUPS:
            raise typer.BadParameter(f"{name!r}; expected any of {', '.join(GROUPS)}.", param_hint="--learn")
    check_output(output, "--output", (".yaml", ".yml"))
    items = labelled_items(source, scores, truth)
    items = random.Random(seed).sample(items, min(images, len(items)))
    options = Options(
        learn=tuple(learn) if learn else Options.learn,
        loss=loss,
        num_steps=updates,
        crop=crop,
        rate=rate,
        penalty=penalty,
        seed=seed,
    )
    with progress("fitting", folds + 1) as advance:
        fitted = fit(
            items,
            settings,
            reading,
            options,
            num_folds=folds,
            num_workers=workers,
            journal=journal_of(output, "fit"),
            progress=advance,
        )
    print_problems(fitted)
    summary = _summary(fitted, options.learn)
    write_settings(output, fitted.settings, summary)
    print(summary)
    raise typer.Exit(1 if fitted.failures else 0)


def _summary(fitted: Fitted, learn: tuple[str, ...]) -> str:
    found = fitted.choice
    lines = [
        f"mean IoU over {len(fitted.items)} images, {len(fitted.folds)} folds; fitted: {', '.join(learn)}",
        *score_lines(found, fitted.scores_alone),
    ]
    if fitted.start:
        lines.append(f"{'parameter':24s}{'start':>9s}{'folds, least to largest':>26s}{'all images':>12s}")
    for name, value in fitted.start.items():
        spread = sorted(fold[name] for fold in fitted.folds)
        last = "" if fitted.point is None else f"{fitted.point[name]:.4g}"
        ends = f"{spread[0]:.4g} to {spread[-1]:.4g}"
        lines.append(f"{name:24s}{value:9.4g}{ends:>26s}{last:>12s}".rstrip())
    lines.append(
        f"The start is kept: {found.reason}." if found.reason else "The fit to all images is written."
    )
    return "\n".join(lines)

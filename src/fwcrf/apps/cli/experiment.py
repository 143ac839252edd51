"""``fwcrf experiment``: the paper's experiments, on local images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def experiment(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="energy, lambda, lambdas, long, tune, potts-miou, fw-fails, joint, joint-voc, per-class, "
            "trainable, or all.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Output folder.")],
    *,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Contains voc2012, camvid and weights (default: FWCRF_DATA)."),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(min=2, help="Number of images (default: 32 for energies, half of val for accuracies)."),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seeds", help="Seed of a training run; repeatable (default: 0).")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs of a training run of joint, at most (default: 3 and 2)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few images, one or two minutes; the figures mean little.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Processes (default: one per processor).")
    ] = None,
    paper: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Curves of the paper's figures (default: FWCRF_PAPER, or paper/curves.csv beside the data).",
        ),
    ] = None,
) -> None:
    """Run experiments of the paper. Each writes NAME.csv, NAME.svg, NAME.txt and NAME-verdicts.csv.

    Several also write report.html. After an interruption, the same command resumes.
    """
    from fwcrf.apps.cli.progress import progress
    from fwcrf.apps.experiments import EXPERIMENTS, Setup, run
    from fwcrf.apps.experiments.setup import data_folder, paper_curves

    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise typer.BadParameter(
                f"{name!r}; expected all, or one of {', '.join(EXPERIMENTS)}.", param_hint="NAME"
            )
    if data is None and not os.environ.get("FWCRF_DATA"):
        raise typer.BadParameter("give the folder of the images, or set FWCRF_DATA.", param_hint="--data")
    folder = data_folder(data)
    output.mkdir(parents=True, exist_ok=True)
    with progress("experiments", 0) as advance:
        setup = Setup(
            folder,
            output,
            images,
            tuple(seeds or (0,)),
            quick,
            workers,
            paper_curves(paper, folder),
            epochs,
            advance,
        )
        outcomes = run(list(EXPERIMENTS) if "all" in names else names, setup)
    for outcome in outcomes:
        print(f"{outcome.name}\n{outcome.conclusion}")

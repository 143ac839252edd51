"""``fwcrf train``: train a network, a CRF behind it, or both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fwcrf.apps.cli.options import config_of


def train(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A YAML file, or the name of a built-in config: pretrain, finetune-voc, "
            "finetune-cityscapes, joint-voc, joint-cityscapes, joint-camvid, joint-small.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Output folder.")],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a setting, for example data.root=VOCdevkit."
        ),
    ] = None,
) -> None:
    """Train as CONFIG says. After an interruption, the same command resumes.

    In several processes: torchrun --nproc-per-node 2 -m fwcrf train ...
    """
    from fwcrf.apps.cli.progress import progress
    from fwcrf.apps.training import loop
    from fwcrf.apps.training.distributed import joined

    settings = config_of(config, changes or ())
    with joined(settings.run.device) as group:
        total = loop.length(settings) if group.rank == 0 else 0
        with progress("training", total) as advance:
            done = loop.train(settings, output, advance, group)
    if group.rank == 0 and done.report is not None:
        print(f"mean IoU {100 * done.report['mean_iou']:.2f} %")

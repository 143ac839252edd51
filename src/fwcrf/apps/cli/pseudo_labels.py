"""``fwcrf pseudo-labels``: labels for training from class activation maps of many images."""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fwcrf.apps.cli.batch import Overlay, Running, run_batch, running_of
from fwcrf.apps.cli.options import settings_of, size_of, takes

if TYPE_CHECKING:
    from fwcrf.apps.files.settings import Settings


@wraps(settings_of)
def _settings(**options: Any) -> Settings:
    """Settings of the preset "pseudo-labels", unless others are asked for."""
    if not any(options.get(name) for name in ("config", "preset", "bilateral", "spatial")):
        options["preset"] = "pseudo-labels"
    return settings_of(**options)


@takes(running=running_of, settings=_settings)
def pseudo_labels(
    *,
    maps: Annotated[
        Path | None,
        typer.Option(
            "--maps",
            "-m",
            metavar="FOLDER",
            help="Folder of maps, the scores here: cat.npy or cat.npz for cat.jpg.",
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='JSON, the labels of each image: {"cat": [8, 15]} (default: the array classes of its .npz '
            "file, else all maps, from 1 on).",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Sure background below LOW, sure objects above HIGH; one number for no unsure pixels "
            "(default: 0.05,0.3).",
        ),
    ] = None,
    power: Annotated[
        str | None,
        typer.Option(metavar="HIGH,LOW", help="In place of thresholds, powers of the background: 32,4."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence in labels above a threshold, between 0.5 and 1.")
    ] = 0.7,
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Array of maps in .npz files (default: maps).")
    ] = None,
    map_axis: Annotated[
        int, typer.Option(metavar="AXIS", help="Axis of the maps in their arrays (default: the last).")
    ] = -1,
    align: Annotated[
        str,
        typer.Option(
            metavar="ALIGN", help="Place of smaller maps: corners, centers or STRIDE,OFFSET (16,0)."
        ),
    ] = "centers",
    unsure: Annotated[int, typer.Option(metavar="LABEL", help="Label of pixels that are not sure.")] = 255,
    overlay: Overlay = False,
    limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Refuse files that would take more memory than this.")
    ] = "4GB",
    running: Running,
    settings: Settings,
) -> None:
    """Make labels for training from class activation maps.

    Settings are those of --preset pseudo-labels, unless given. Finished images are skipped: after an
    interruption, run the same command again.
    """
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.batch.pseudo_labels import PseudoLabelJob, read_classes
    from fwcrf.apps.files.scores import align_of

    if threshold is not None and power is not None:
        raise typer.BadParameter("a threshold and a power; expected one of them.", param_hint="--power")
    try:
        placed = align_of(align)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--align") from error
    reading = Reading(key=key, label_axis=map_axis, void=unsure, limit=size_of(limit), align=placed)
    job = partial(
        PseudoLabelJob, settings=settings, reading=reading, overlay=overlay,
        threshold=_numbers(threshold, "--threshold"), power=_numbers(power, "--power"),
        confidence=confidence, classes=None if classes is None else read_classes(classes),
    )  # fmt: skip
    run_batch(job, running, maps, scores_flag="--maps", title="labelling")


def _numbers(text: str | None, flag: str) -> tuple[float, ...] | None:
    """One or two numbers, in the order that ``fwcrf.pseudo_labels`` takes."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}; expected a number, or two with a comma.", param_hint=flag
        ) from None

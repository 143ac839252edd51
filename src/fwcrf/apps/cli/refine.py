"""``fwcrf refine``: refine one image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fwcrf.apps.cli.options import parts_of, reading_of, settings_of, takes
from fwcrf.apps.cli.progress import printed_log, say

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.files.settings import Settings


@takes(settings=settings_of, reading=reading_of, parts=parts_of)
def refine(
    image: Annotated[
        Path,
        typer.Argument(metavar="IMAGE", help="PNG, JPEG, TIFF, GeoTIFF, .npy or NIfTI.", show_default=False),
    ],
    scores: Annotated[
        Path, typer.Option("--scores", "-s", metavar="FILE", help=".npy, .npz, TIFF, NIfTI, or a label map.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Label map: .png, .npy, .npz, .tif or NIfTI."),
    ],
    *,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Also draw the labels over the image, into NAME-overlay.png.")
    ] = False,
    probabilities: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the probabilities: .npy, .npz, .tif or NIfTI."),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print the path that ran, and the changes."),
    ] = False,
    settings: Settings,
    reading: Reading,
    parts: dict[str, Any],
) -> None:
    """Refine the labels of IMAGE, given a network's scores."""
    from fwcrf.apps.batch.job import keeps_place, refine_files, refine_place
    from fwcrf.apps.files.atomic import check_writable, is_special, staged, writing
    from fwcrf.apps.files.formats import stem
    from fwcrf.apps.files.labels import check_labels_name, write_labels
    from fwcrf.apps.files.palette import overlay as draw
    from fwcrf.apps.files.pictures import write_colours
    from fwcrf.apps.files.probabilities import check_probabilities_name, encode_probabilities

    try:
        check_labels_name(output)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--output") from error
    try:
        form = None if probabilities is None else check_probabilities_name(probabilities)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--probabilities") from error
    if overlay and is_special(output):
        raise typer.BadParameter(
            f"{output} has no name to put it beside; leave it out.", param_hint="--overlay"
        )
    drawn = output.with_name(f"{stem(output)}-overlay.png") if overlay else None
    written = [path for path in (output, drawn, probabilities) if path is not None]
    for path in written:
        check_writable(path)
    files = [path for path in (image, scores, *written) if not is_special(path)]
    if len({path.resolve() for path in files}) < len(files):
        raise typer.BadParameter("two files have the same name; expected different ones.")

    reading = replace(reading, **parts)
    if keeps_place(image, output):
        if drawn is not None:
            raise typer.BadParameter("a GeoTIFF is not drawn; leave it out.", param_hint="--overlay")
        if probabilities is not None and form != "tiff":
            raise typer.BadParameter(
                f"{probabilities} must end in .tif, like the labels.", param_hint="--probabilities"
            )
        with printed_log(verbose), staged(written) as files:
            refine_place(image, scores, files, settings, reading)
        say(f"written: {', '.join(map(str, written))}")
        return
    with printed_log(verbose):
        found = refine_files(image, scores, settings, reading, return_probabilities=probabilities is not None)
    if drawn is not None and found.labels.ndim != 2:
        raise typer.BadParameter("a volume cannot be drawn; leave it out.", param_hint="--overlay")
    place = found.picture
    write_labels(output, found.labels, affine=place.affine, header=place.header)
    if drawn is not None:
        with writing(drawn) as file:
            write_colours(file, draw(found.picture.values, found.labels))
    if probabilities is not None and found.probabilities is not None:
        with writing(probabilities) as file:
            encode_probabilities(
                file, str(probabilities), found.probabilities, affine=place.affine, header=place.header
            )
    say(f"written: {', '.join(map(str, written))}")

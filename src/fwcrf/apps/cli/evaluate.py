"""``fwcrf eval``: accuracy of a model or of label maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fwcrf.apps.cli.options import config_of

if TYPE_CHECKING:
    from fwcrf.apps.data import Classes


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Output folder of `fwcrf train`, or a config.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Output folder."),
    ],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a setting, for example data.root=VOCdevkit."
        ),
    ] = None,
    weights: Annotated[
        str, typer.Option(metavar="FILE", help="Weights in the folder: model.pt or best.pt.")
    ] = "model.pt",
    split: Annotated[str | None, typer.Option(help="Split to evaluate on (default: the config's).")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Evaluate label maps FOLDER/NAME.png, not the model."),
    ] = None,
    scales: Annotated[
        list[float] | None, typer.Option("--scale", help="Also predict at this image scale; repeatable.")
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Also predict on mirrored images.")] = False,
    steps: Annotated[int | None, typer.Option(min=0, help="Steps of the CRF (default: as trained).")] = None,
    crf: Annotated[bool, typer.Option("--crf/--no-crf", help="Apply the model's CRF, if any.")] = True,
    subsets: Annotated[
        list[str] | None,
        typer.Option("--subset", metavar="NAME=CLASS,...", help="Also report the mean IoU of these classes."),
    ] = None,
    trimaps: Annotated[
        list[float] | None,
        typer.Option(
            "--trimap", metavar="PIXELS", help="Also report mean IoU this near borders; repeatable."
        ),
    ] = None,
    boundary: Annotated[bool, typer.Option("--boundary", help="Also report the boundary F-score.")] = False,
) -> None:
    """Measure the mean IoU over a data set. Writes FOLDER/scores.json and FOLDER/labels."""
    from fwcrf.apps.cli.progress import progress
    from fwcrf.apps.evaluation import Measures, Views, predict
    from fwcrf.apps.evaluation import evaluate as measure
    from fwcrf.apps.evaluation.labels import stored
    from fwcrf.apps.training import build

    trained = Path(run).is_dir()
    if steps is not None:
        changes = [*(changes or ()), f"crf.num_steps={steps}"]
    config = config_of(Path(run) / "config.yaml" if trained else run, changes or ())
    dataset = build.dataset(config.data, split or config.data.val or config.data.train)
    measures = Measures(_subsets(subsets or [], dataset.classes), trimaps or (), boundary)
    views = Views(tuple(scales or (1.0,)), flip)
    if labels is not None:
        predictions = stored(labels, dataset)
    else:
        model = build.restored(run, weights, config) if trained else build.model(config, dataset.classes)
        model.crf = model.crf if crf else None
        model.eval().to(config.run.device)
        predictions = predict(model, dataset, views, config.run.device)
    settings = {
        "of": run, "weights": weights if trained else config.model.weights, "data": config.data.root,
        "split": split or config.data.val, "labels": None if labels is None else str(labels),
        "scales": list(views.scales), "flip": flip, "crf": crf, "steps": steps,
    }  # fmt: skip
    with progress("evaluating", len(dataset)) as advance:
        report = measure(
            (_counted(p, advance) for p in predictions), dataset.classes, measures, output, settings
        )
    print(f"mean IoU {100 * report['mean_iou']:.2f} %, accuracy {100 * report['accuracy']:.2f} %")


def _counted(prediction, advance):
    advance()
    return prediction


def _subsets(texts: list[str], classes: Classes) -> dict[str, list[int]]:
    """Class numbers by name of a subset, from texts such as ``"animals=cat,dog"``."""
    found = {}
    for text in texts:
        name, equals, members = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r}; expected NAME=CLASS,CLASS,...", param_hint="--subset")
        try:
            found[name] = classes.numbers(members.split(","))
        except ValueError as error:
            raise typer.BadParameter(f"{text!r}: {error}", param_hint="--subset") from error
    return found

"""``fwcrf eval``: how good a model is, or label maps are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fwcrf.apps.data import Classes


def evaluate(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Folder of `fwcrf train`, or a config for it.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where scores and label maps are written."),
    ],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a setting, for example data.root=VOCdevkit."
        ),
    ] = None,
    weights: Annotated[
        str, typer.Option(metavar="FILE", help="Which weights of the folder: model.pt or best.pt.")
    ] = "model.pt",
    split: Annotated[
        str | None, typer.Option(help="Split to evaluate on (default: that of the config).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Evaluate the label maps NAME.png in a folder, not the model."),
    ] = None,
    scales: Annotated[
        list[float] | None, typer.Option("--scale", help="Show images at this scale, too; more than once.")
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Show images mirrored, too.")] = False,
    steps: Annotated[int | None, typer.Option(min=0, help="Steps of the CRF (default: as trained).")] = None,
    crf: Annotated[bool, typer.Option("--crf/--no-crf", help="With the CRF, if there is one.")] = True,
    subsets: Annotated[
        list[str] | None,
        typer.Option("--subset", metavar="NAME=CLASS,...", help="Also average over these classes."),
    ] = None,
    trimaps: Annotated[
        list[float] | None,
        typer.Option("--trimap", metavar="PIXELS", help="Also measure this near borders; more than once."),
    ] = None,
    boundary: Annotated[bool, typer.Option("--boundary", help="Also measure the boundary F-score.")] = False,
) -> None:
    """Mean IoU over a data set, per class and near borders, into FOLDER/scores.json and FOLDER/labels."""
    from fwcrf.apps.cli.progress import progress
    from fwcrf.apps.evaluation import Measures, Views, predict
    from fwcrf.apps.evaluation import evaluate as measure
    from fwcrf.apps.evaluation.labels import stored
    from fwcrf.apps.training import build, read_config

    trained = Path(what).is_dir()
    if steps is not None:
        changes = [*(changes or ()), f"crf.num_steps={steps}"]
    config = read_config(Path(what) / "config.yaml" if trained else what, changes or ())
    dataset = build.dataset(config.data, split or config.data.val or config.data.train)
    measures = Measures(_subsets(subsets or [], dataset.classes), trimaps or (), boundary)
    views = Views(tuple(scales or (1.0,)), flip)
    if labels is not None:
        predictions = stored(labels, dataset)
    else:
        model = build.restored(what, weights, config) if trained else build.model(config, dataset.classes)
        model.crf = model.crf if crf else None
        model.eval().to(config.run.device)
        predictions = predict(model, dataset, views, config.run.device)
    settings = {
        "of": what, "weights": weights if trained else config.model.weights, "data": config.data.root,
        "split": split or config.data.val, "labels": None if labels is None else str(labels),
        "scales": list(views.scales), "flip": flip, "crf": crf, "steps": steps,
    }  # fmt: skip
    with progress("evaluating", len(dataset)) as advance:
        report = measure(
            (_told(p, advance) for p in predictions), dataset.classes, measures, output, settings
        )
    print(f"mean IoU {100 * report['mean_iou']:.2f} %, accuracy {100 * report['accuracy']:.2f} %")


def _told(prediction, advance):
    advance()
    return prediction


def _subsets(texts: list[str], classes: Classes) -> dict[str, list[int]]:
    """``"animals=cat,dog"`` to numbers of classes."""
    found = {}
    for text in texts:
        name, equals, members = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r}; expected NAME=CLASS,CLASS,...", param_hint="--subset")
        found[name] = classes.numbers(members.split(","))
    return found

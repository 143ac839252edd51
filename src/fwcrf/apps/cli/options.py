"""Options shared by several commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.files.settings import Settings


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: add a function's options to a command, which gets the function's result as an argument.

    >>> def size(width: int = 3, height: int = 4): return width, height
    >>> @takes(size=size)
    ... def show(name: str, *, size): return name, size
    >>> show("a", width=5)
    ('a', (5, 4))
    >>> [*inspect.signature(show).parameters]
    ['name', 'width', 'height']
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        of = {name: _parameters(make) for name, make in groups.items()}
        merged = _parameters(command, without=groups)
        merged += [p for group in of.values() for p in group]

        @wraps(command)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            for name, make in groups.items():
                options[name] = make(**{p.name: options.pop(p.name) for p in of[name] if p.name in options})
            return command(*arguments, **options)

        del wrapped.__wrapped__  # else inspect.signature returns the command's signature
        wrapped.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in merged}
        return wrapped

    return decorate


def settings_of(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in YAML, as `fwcrf tune` writes them.")
    ] = None,
    solver: Annotated[str | None, typer.Option(metavar="NAME", help="Solver (default: l2fw).")] = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="Weight of the solver's regularizer.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Steps of the solver (default: 10).")] = None,
    bilateral: Annotated[
        tuple[float, float, float] | None,
        typer.Option(
            metavar="XY COLOR WEIGHT",
            help="Bilateral kernel: pixels, grey levels, weight (default: 80 13 1; weight 0 for none).",
        ),
    ] = None,
    spatial: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="XY WEIGHT", help="Spatial kernel: pixels, weight (default: 3 1; weight 0 for none)."
        ),
    ] = None,
    compatibility: Annotated[float | None, typer.Option(help="Potts penalty (default: 1).")] = None,
    rounding: Annotated[
        Literal["nearest", "bcd"] | None, typer.Option(help="Rounding (default: nearest).")
    ] = None,
) -> Settings:
    """Settings of the file ``config`` or the defaults; each option that is given replaces one of them."""
    from fwcrf.apps.files.settings import KERNELS, Settings, read_settings

    values: Any = (read_settings(config) if config is not None else Settings()).mapping()
    if solver is not None:
        values["solver"] = {"name": solver}
    if lambda_ is not None:
        values["solver"]["weight"] = lambda_
    for kind, given in {"bilateral": bilateral, "spatial": spatial}.items():
        if given is not None:
            rest = [kernel for kernel in values["kernels"] if kernel["kind"] != kind]
            asked = [{"kind": kind, **dict(zip(KERNELS[kind], given, strict=True))}] if given[-1] else []
            values["kernels"] = rest + asked
    single = {"num_steps": steps, "compatibility": compatibility, "rounding": rounding}
    values |= {name: value for name, value in single.items() if value is not None}
    try:
        settings = Settings.of(values)
        settings.arguments()
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error
    return settings


def reading_of(
    from_: Annotated[
        Literal["probabilities", "logits", "labels", "mask"] | None,
        typer.Option(
            "--from",
            help="Kind of scores (default: labels if whole numbers, else probabilities, unless the array of "
            "a .npz file is named logits or labels). A mask is label 1 where it is not 0.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="NAME", help="Array of scores in .npz files.")] = None,
    label_axis: Annotated[
        int, typer.Option(metavar="AXIS", help="Axis of the labels in arrays of scores.")
    ] = -1,
    labels: Annotated[
        int | None,
        typer.Option(min=2, help="Number of labels (default: one more than the largest in a map)."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence in label maps, between 0.5 and 1 (default: 0.7).")
    ] = None,
    void: Annotated[int, typer.Option(metavar="LABEL", help="Value of pixels without a label.")] = 255,
    resize: Annotated[
        Literal["scores", "image"] | None, typer.Option(help="Input to resize if the sizes differ.")
    ] = None,
    limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Refuse files that would take more memory than this.")
    ] = "4GB",
) -> Reading:
    """Reading options for image files and score files."""
    from fwcrf.apps.batch.job import Reading

    return Reading(from_, key, label_axis, labels, confidence, void, resize, size_of(limit))


def size_of(text: str) -> int:
    """Number of bytes, from text with or without a unit.

    >>> size_of("4GB"), size_of("1.5 kb"), size_of("300")
    (4000000000, 1500, 300)
    """
    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)b?", text.strip().lower())
    try:
        if found is not None:
            return int(float(found[1]) * units[found[2]])
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r} is not a size; expected a number and a unit, such as 500MB or 4GB.")


def _parameters(function: Callable[..., Any], without: Any = ()) -> list[inspect.Parameter]:
    """Parameters of a function, annotations evaluated. Parameters with defaults become keyword-only."""
    return [
        p.replace(
            kind=p.kind if p.default is p.empty else p.KEYWORD_ONLY,
            annotation=eval(p.annotation, function.__globals__)
            if isinstance(p.annotation, str)
            else p.annotation,
        )
        for name, p in inspect.signature(function).parameters.items()
        if name not in without
    ]

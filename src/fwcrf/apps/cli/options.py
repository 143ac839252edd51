"""Options shared by several commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.files.settings import Settings
    from fwcrf.apps.training.config import Config


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
        merged.sort(key=lambda p: p.kind)  # a group may have arguments, which come before options

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
    preset: Annotated[
        Literal["default", "paper", "pydensecrf", "pseudo-labels", "scribbles", "binary"] | None,
        typer.Option(
            help="Settings for a purpose; the options below replace single ones, and one kernel each."
        ),
    ] = None,
    solver: Annotated[str | None, typer.Option(metavar="NAME", help="Solver (default: l2fw).")] = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="Weight of the solver's regularizer.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of the solver (default: 5; with own kernels and no preset, 10)."),
    ] = None,
    bilateral: Annotated[
        tuple[float, float, float] | None,
        typer.Option(
            metavar="XY COLOR WEIGHT",
            help="Bilateral kernel: pixels, grey levels, weight (default: 80 6 2.4; weight 0 for none). "
            "Without --preset and --config, the model has the kernels that are given and no others, 10 steps "
            "and no balance.",
        ),
    ] = None,
    spatial: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="XY WEIGHT",
            help="Spatial kernel: pixels, weight (default: 3 0.3; weight 0 for none). As with --bilateral.",
        ),
    ] = None,
    compatibility: Annotated[
        float | None, typer.Option(min=0, help="Potts penalty, 0 or more (default: 1).")
    ] = None,
    balance: Annotated[
        float | None,
        typer.Option(help="Favour of rare labels, 0 to 1 (default: 0.3; with own kernels and no preset, 0)."),
    ] = None,
    rounding: Annotated[
        Literal["nearest", "bcd", "merge"] | None, typer.Option(help="Rounding (default: nearest).")
    ] = None,
) -> Settings:
    """Settings of the file ``config``, of a preset or of own kernels; an option replaces one of them."""
    from fwcrf.apps.files.settings import Settings, read_settings
    from fwcrf.presets import KERNELS, OWN_KERNELS, get

    if preset is not None and config is not None:
        raise typer.BadParameter(
            "a preset and a file of settings; expected one of them.", param_hint="--preset"
        )
    kernels = {kind: one for kind, one in (("bilateral", bilateral), ("spatial", spatial)) if one is not None}
    if config is not None:
        base = read_settings(config)
    else:
        # As with kernels= in fwcrf.refine: without a preset, the model is the kernels that are given.
        base = Settings.of_preset(OWN_KERNELS if kernels and preset is None else get(preset or "default"))
    values: dict[str, Any] = base.mapping()
    if solver is not None:
        _check_solver(solver)
        values = _changed(values, "--solver", solver={"name": solver})
    if lambda_ is not None:
        values = _changed(values, "--lambda", solver={**values["solver"], "weight": lambda_})
    for kind, given in kernels.items():
        if given[-1] < 0:
            raise typer.BadParameter(f"weight {given[-1]:g}; expected 0 or more.", param_hint=f"--{kind}")
        rest = [kernel for kernel in values["kernels"] if kernel["kind"] != kind]
        asked = [{"kind": kind, **dict(zip(KERNELS[kind], given, strict=True))}] if given[-1] else []
        values = _changed(values, f"--{kind}", kernels=rest + asked)
    if kernels and not values["kernels"]:
        raise typer.BadParameter(
            "weight 0, and no other kernel is left; expected one. --preset default keeps the other kernel of "
            "the default.",
            param_hint=" ".join(f"--{kind}" for kind in kernels),
        )
    single = {"num_steps": steps, "compatibility": compatibility, "balance": balance, "rounding": rounding}
    for name, value in single.items():
        if value is not None:
            values = _changed(values, f"--{name.removeprefix('num_')}", **{name: value})
    return Settings.of(values)


def _check_solver(name: str) -> None:
    """Refuse a solver that images cannot have."""
    from fwcrf import solvers

    known = solvers.names()
    if name in solvers.names(graphs=True) and name not in known:
        raise typer.BadParameter(
            f"{name!r} is for sparse graphs, with `fwcrf map`; expected one of {', '.join(known)}.",
            param_hint="--solver",
        )


def _changed(values: dict[str, Any], flag: str, **change: Any) -> dict[str, Any]:
    """The values of settings with a change; an error names the flag that caused it."""
    from fwcrf.apps.files.settings import Settings

    values = {**values, **change}
    try:
        Settings.of(values).arguments()
    except (ValueError, TypeError) as error:
        # The flag says which setting it is, and images have no solvers of graphs.
        text = re.sub(r"^(settings(:| has) |\w+'s weight=)|, lp-\w+", "", str(error))
        raise typer.BadParameter(text, param_hint=flag) from error
    return values


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
        int,
        typer.Option(
            metavar="AXIS", help="Axis of the labels in arrays of scores, from 0 (default: the last)."
        ),
    ] = -1,
    labels: Annotated[
        int | None,
        typer.Option(
            min=2, help="Number of labels (default: as in the scores; in a map, the largest and one)."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence in label maps, between 0.5 and 1 (default: 0.7).")
    ] = None,
    void: Annotated[int, typer.Option(metavar="LABEL", help="Value of pixels without a label.")] = 255,
    resize: Annotated[
        Literal["scores", "image"] | None, typer.Option(help="Input to resize if the sizes differ.")
    ] = None,
    align: Annotated[
        str,
        typer.Option(
            metavar="ALIGN",
            help="Place of scores on the image, for --resize: corners, centers or STRIDE,OFFSET (8,0).",
        ),
    ] = "centers",
    units: Annotated[
        Literal["file", "pixels"] | None,
        typer.Option(
            help="Units of position bandwidths: pixels, or of the file (NIfTI: millimetres, its default; "
            "GeoTIFF: of the coordinate system).",
        ),
    ] = None,
    limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Refuse files that would take more memory than this.")
    ] = "4GB",
) -> Reading:
    """Reading options for image files and score files."""
    from fwcrf.apps.batch.job import Reading
    from fwcrf.apps.files.scores import align_of

    if confidence is not None and not 0.5 < confidence < 1:
        raise typer.BadParameter(
            f"{confidence:g}; expected a number above 0.5 and below 1.", param_hint="--confidence"
        )
    try:
        placed = align_of(align)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--align") from error
    return Reading(from_, key, label_axis, labels, confidence, void, resize, size_of(limit), placed, units)


def parts_of(
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for the work beside image, scores and result: a larger image is solved in tiles "
            "(default: about 4GB).",
        ),
    ] = None,
    bands: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="Bands (channels) of the image to use, from 1 on: 4,3,2 (default: all)."
        ),
    ] = None,
) -> dict[str, Any]:
    """Fields of ``Reading``: the parts of the image that are used, and solved at a time."""
    try:
        numbers = None if bands is None else tuple(int(part) for part in bands.split(","))
    except ValueError:
        numbers = ()
    if numbers is not None and not (numbers and min(numbers) >= 1):
        raise typer.BadParameter(
            f"{bands!r}; expected numbers from 1 on with commas, such as 4,3,2.", param_hint="--bands"
        )
    return {"memory": None if memory is None else size_of(memory, "--memory"), "bands": numbers}


def config_of(config: Path | str, changes: Sequence[str]) -> Config:
    """Training config of a file, changed by ``--set``. A wrong change is bad usage; a wrong file fails."""
    from fwcrf.apps.files.errors import FileError
    from fwcrf.apps.training import read_config

    try:
        return read_config(config, changes)
    except FileError as error:
        try:
            read_config(config)
        except FileError:
            raise error from None
        raise typer.BadParameter(str(error), param_hint="--set") from error


def size_of(text: str, flag: str = "--limit") -> int:
    """Number of bytes, from text with or without a unit; an error names the flag.

    >>> size_of("4GB"), size_of("1.5 kb"), size_of("300")
    (4000000000, 1500, 300)
    """
    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)b?", text.strip().lower())
    try:
        if found is not None:
            return int(float(found[1]) * units[found[2]])
    # 1.2.3 is no number; one of 400 digits is infinite.
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(
        f"{text!r} is not a size; expected a number and a unit, such as 500MB or 4GB.", param_hint=flag
    )


def _parameters(function: Callable[..., Any], without: Any = ()) -> list[inspect.Parameter]:
    """Parameters of a function, annotations evaluated. Parameters with defaults become keyword-only."""
    return [
        p.replace(
            kind=p.kind if p.default is p.empty else p.KEYWORD_ONLY,
            annotation=eval(p.annotation, inspect.unwrap(function).__globals__)
            if isinstance(p.annotation, str)
            else p.annotation,
        )
        for name, p in inspect.signature(function).parameters.items()
        if name not in without
    ]

"""``fwcrf map``: the most likely labels of a graphical model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def map_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Unary and pairwise factors, .uai.", show_default=False)
    ],
    evidence: Annotated[
        Path | None, typer.Option("--evidence", "-e", metavar="FILE", help="Known labels, .uai.evid.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where the labels go (default: standard output)."
        ),
    ] = None,
    solver: Annotated[
        str, typer.Option(metavar="NAME", help="Solver, or lp-... for linear relaxations.")
    ] = "l2fw",
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="Weight of the solver's regularizer.")
    ] = None,
    steps: Annotated[int, typer.Option(min=0, help="Steps of the solver.")] = 50,
    rounding: Annotated[Literal["nearest", "bcd"], typer.Option(help="Rounding.")] = "bcd",
    restarts: Annotated[int, typer.Option(min=0, help="Local searches from disturbed labels.")] = 0,
    seed: Annotated[int, typer.Option(help="Of what is random.")] = 0,
) -> None:
    """Labels of low energy for MODEL, in the format of the UAI competitions.

    The energy, minus the logarithm of the product of all factors, goes to standard error.
    """
    import fwcrf
    from fwcrf.files.atomic import check_writable, writing

    if output is not None:
        check_writable(output)
    settings: dict[str, Any] = {} if lambda_ is None else {"weight": lambda_}
    if restarts:
        settings |= {"restarts": restarts, "seed": seed}
    found = fwcrf.read_uai(model, evidence=evidence).solve(solver, steps, rounding, **settings)
    labels = found.labels.tolist()
    text = f"MPE\n{len(labels)} {' '.join(map(str, labels))}\n"
    if output is None:
        sys.stdout.write(text)
    else:
        with writing(output) as file:
            file.write(text.encode())
    bound = getattr(found, "bound", None)
    known = "" if bound is None else f", which cannot be lower than {float(bound):.6f}"
    print(f"energy {float(found.energy):.6f}{known}", file=sys.stderr)

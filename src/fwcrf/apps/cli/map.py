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
        typer.Option("--output", "-o", metavar="FILE", help="Output file (default: standard output)."),
    ] = None,
    solver: Annotated[
        str, typer.Option(metavar="NAME", help="Solver, or lp-... for linear relaxations.")
    ] = "l2fw",
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="Weight of the solver's regularizer.")
    ] = None,
    steps: Annotated[int, typer.Option(min=0, help="Steps of the solver.")] = 50,
    rounding: Annotated[Literal["nearest", "bcd"], typer.Option(help="Rounding.")] = "bcd",
    restarts: Annotated[int, typer.Option(min=0, help="Local searches from perturbed labels.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print the path that ran, and why."),
    ] = False,
) -> None:
    """Find labels of low energy for MODEL. Writes them in the format of the UAI competitions.

    Standard error shows their energy (minus the logarithm of the product of all factors), that logarithm, a
    lower bound on the energy if the solver has one, and the time in seconds.
    """
    import time

    import fwcrf
    from fwcrf.apps.files.atomic import check_writable, writing

    if output is not None:
        check_writable(output)
    settings: dict[str, Any] = {} if lambda_ is None else {"weight": lambda_}
    if restarts:
        settings |= {"restarts": restarts, "seed": seed}
    if restarts and rounding != "bcd":
        raise typer.BadParameter("needs --rounding bcd.", param_hint="--restarts")
    try:
        fwcrf.solvers.get(solver, **({} if lambda_ is None else {"weight": lambda_}))
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint="--solver") from error
    mrf = fwcrf.read_uai(model, evidence=evidence)
    start = time.perf_counter()
    found = mrf.solve(solver, steps, rounding, **settings)
    labels, energy = found.labels.tolist(), float(found.energy)
    seconds = time.perf_counter() - start
    text = f"MPE\n{len(labels)} {' '.join(map(str, labels))}\n"
    if output is None:
        sys.stdout.write(text)
    else:
        with writing(output) as file:
            file.write(text.encode())
    print(f"energy {energy:.6f}\nlog-value {-energy:.6f}", file=sys.stderr)
    if found.bound is not None:
        print(f"bound {float(found.bound):.6f}", file=sys.stderr)
    print(f"seconds {seconds:.3f}", file=sys.stderr)
    if verbose:
        print(found.engine, file=sys.stderr)

"""``fwcrf map``: the most likely labels of a graphical model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from fwcrf.graphs import Progress


def map_(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Factors, .uai or .LG.", show_default=False)],
    evidence: Annotated[
        Path | None, typer.Option("--evidence", "-e", metavar="FILE", help="Known labels, .uai.evid.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Output file (default: standard output)."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", min=0.0, metavar="SECONDS", help="Time of the default search (3)."),
    ] = None,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Raise the bound by cycle cuts, for two labels; takes long."),
    ] = False,
    solver: Annotated[
        str,
        typer.Option(metavar="NAME", help="auto: exact or a search; or a solver with steps, or lp-... ."),
    ] = "auto",
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="Weight of the solver's regularizer.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Steps of the solver (50).")] = None,
    rounding: Annotated[
        Literal["nearest", "bcd", "merge"] | None, typer.Option(help="Rounding after the steps (bcd).")
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(min=0, help="Local searches from perturbed labels, after the steps (0).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print progress, the path that ran, and why."),
    ] = False,
) -> None:
    """Find labels of low energy for MODEL. Writes them in the format of the UAI competitions.

    Without settings the labels are optimal where an exact method is quick. Otherwise several methods search
    for at most --time-limit seconds; Ctrl-C ends the search and writes the best labels so far. --lambda,
    --steps, --rounding or --restarts without --solver mean --solver l2fw.

    Standard error shows their energy (minus the logarithm of the product of all factors), that logarithm, a
    lower bound on the energy and the gap in percent if the solver has a bound, whether the labels are proven
    optimal, and the time in seconds.
    """
    import time

    import fwcrf
    from fwcrf.apps.files.atomic import check_writable, writing

    if output is not None:
        check_writable(output)
    stepwise = {"weight": lambda_, "num_steps": steps, "rounding": rounding, "restarts": restarts}
    settings: dict[str, Any] = {name: value for name, value in stepwise.items() if value is not None}
    if solver == "auto" and settings:
        solver = "l2fw"
    if restarts and rounding not in (None, "bcd"):
        raise typer.BadParameter("needs --rounding bcd.", param_hint="--restarts")
    if solver == "auto":
        settings = {"time_limit": time_limit, "progress": _printed if verbose else None, "certify": certify}
    else:
        if certify:
            raise typer.BadParameter("needs the default solver.", param_hint="--certify")
        if time_limit is not None:
            raise typer.BadParameter("needs the default solver.", param_hint="--time-limit")
        try:
            fwcrf.solvers.get(solver, **({} if lambda_ is None else {"weight": lambda_}))
        except (ValueError, TypeError) as error:
            raise typer.BadParameter(f"{error} Or 'auto'.", param_hint="--solver") from error
    mrf = fwcrf.read_uai(model, evidence=evidence)
    start = time.perf_counter()
    found = mrf.solve(solver, seed=seed, **settings)
    labels, energy = found.labels[: mrf.num_nodes - mrf.auxiliary].tolist(), float(found.energy)
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
        print(_proof(energy, float(found.bound), bool(found.proven)), file=sys.stderr)
    print(f"seconds {seconds:.3f}", file=sys.stderr)
    if verbose or found.engine.endswith("interrupted"):
        print(found.engine, file=sys.stderr)


def _proof(energy: float, bound: float, proven: bool) -> str:
    if energy == float("inf"):
        if proven:
            return "proven: all labellings have a factor of value 0"
        return "the labels have a factor of value 0; not proven that all have one"
    gap = 100 * (energy - bound) / max(abs(energy), 1e-300)
    return "proven optimal" if proven else f"gap {gap:.4f} %, not proven optimal"


def _printed(p: Progress) -> None:
    print(f"{p.seconds:8.3f} s  energy {p.energy:.6f}  bound {p.bound:.6f}  {p.method}", file=sys.stderr)

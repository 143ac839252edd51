"""The list of commands, and the message when one of them fails."""

from __future__ import annotations

import io
import os
import warnings
from typing import Annotated, Any

import typer

from fwcrf.apps.cli import (
    batch,
    bench,
    demo,
    evaluate,
    experiment,
    fit,
    map,
    pseudo_labels,
    refine,
    train,
    tune,
)
from fwcrf.apps.cli.flags import in_flags
from fwcrf.apps.cli.progress import say

# ClickException, the base of all errors about options and arguments: of click, or of a copy inside typer.
_Misuse: Any = typer.BadParameter.__mro__[2]

# Help is plain text: importing rich takes longer than all other imports together.
app: typer.Typer = typer.Typer(
    name="fwcrf",
    help="Dense conditional random fields by regularized Frank-Wolfe.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("refine")(refine.refine)
app.command("batch")(batch.batch)
app.command("pseudo-labels")(pseudo_labels.pseudo_labels)
app.command("tune")(tune.tune)
app.command("fit")(fit.fit)
app.command("map")(map.map_)
app.command("bench", context_settings=bench.ANY)(bench.bench)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("experiment")(experiment.experiment)
app.command("demo")(demo.demo)


def _version(asked: bool) -> None:
    if asked:
        from fwcrf import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the Python traceback of an error.")
    ] = False,
) -> None:
    if traceback:
        os.environ["FWCRF_TRACEBACK"] = "1"


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status. Expected errors are printed without a traceback."""
    # The message alone: the source line of a warning means nothing to a user.
    warnings.showwarning = lambda message, *_, **__: say(f"fwcrf: {in_flags(str(message))}")
    try:
        status = app(arguments, prog_name="fwcrf", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except SystemExit as status:
        if status.code is None or isinstance(status.code, int):
            return status.code or 0
        problem = str(status.code)
    except _Misuse as error:
        text = io.StringIO()
        error.show(file=text)
        for line in text.getvalue().splitlines():
            say(in_flags(line))
        return error.exit_code
    except MemoryError as error:
        problem = ": ".join(filter(None, ("there is too little memory for this", str(error))))
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        if os.environ.get("FWCRF_TRACEBACK"):
            raise
        problem = in_flags(str(error))
    say(f"fwcrf: {problem}")
    return 1

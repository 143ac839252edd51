"""Promises of docs/reliability.md name tests and commands that exist."""

import ast
import re
from pathlib import Path

import agree
import long_runs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE[PAGE.index("## Promises") : PAGE.index("## Agreement")].splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]


def functions_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_named_test_exists():
    assert len(ROWS) > 20
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > len(ROWS) - 2
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert not name or name in functions_of(path), f"{path} has no {name}"


def test_every_promise_has_a_test_or_a_command():
    for promise, test, command in ROWS:
        assert test or command, promise


def test_every_command_exists():
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = re.findall(r"`make ([a-z-]+)(?: ARGS=\"?([\w =.]+)\"?)?`", PAGE)
    assert len(commands) > 10
    known = {"agree": agree.kinds(), "reliability": long_runs.RUNS}
    for target, arguments in commands:
        assert target in targets, target
        for argument in arguments.split() if target in known else ():
            assert argument in known[target], f"make {target} ARGS={argument}"


def test_the_table_of_comparisons_has_every_kind():
    kinds = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert kinds == [*agree.kinds()]

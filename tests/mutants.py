"""Tests of the tests: small errors are put into the code one at a time, and some test must fail.

``make mutants`` tries a random sample with a fixed seed, ``make mutants ARGS=--all`` all of them. Every
mutant runs in a copy of the package, against the test files of its own file. Killed mutants are kept in
build/mutants.json and not tried again; ``--again`` forgets them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fwcrf"
RESULTS = ROOT / "build" / "mutants.json"
LIMIT = 120  # seconds; a mutant that takes longer is killed

# Files of the package, and the arguments of pytest that test each of them.
TESTED_BY = {
    "energy.py": ["tests/test_energy.py", "tests/test_stepsizes.py"],
    "pairwise.py": ["tests/test_pairwise.py", "tests/test_energy.py", "tests/engine/test_model.py"],
    "stepsizes.py": ["tests/test_stepsizes.py", "tests/test_theory.py"],
    "engine/prune.py": ["tests/engine/test_updates.py", "-k", "labels and not registers"],
    "engine/limits.py": ["tests/solvers/test_plan.py", "tests/engine/test_model.py"],
    "solvers/plan.py": ["tests/solvers/test_plan.py"],
    "apps/experiments/verdict.py": ["tests/apps/experiments/test_verdict.py"],
    "kernels/calibration.py": [
        "tests/kernels/test_auto.py",
        "tests/kernels/test_fitting.py",
        "tests/kernels/test_lattice_accuracy.py",
    ],
    "kernels/bands.py": ["tests/kernels/test_bands.py", "tests/kernels/test_separable.py"],
    "solvers/splits.py": ["tests/solvers/test_splits.py", "tests/test_gradient_table.py"],
    "torch_ops/magnitudes.py": ["tests/reliability/test_magnitudes.py"],
    "spectrum.py": ["tests/test_spectrum.py"],
    "theory.py": ["tests/test_theory.py"],
}

OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.USub: ast.UAdd, ast.Not: ast.UAdd,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names and results of the changes that can be made to one node, none of them to its children."""
    new = copy.copy(node)
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(node.op) in OPERATORS:
        if isinstance(node, ast.UnaryOp):
            yield f"drop {type(node.op).__name__}", node.operand
        else:
            new.op = OPERATORS[type(node.op)]()
            yield f"{type(node.op).__name__} to {type(new.op).__name__}", new
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        new.ops = [OPERATORS[type(node.ops[0])](), *node.ops[1:]]
        yield f"{type(node.ops[0]).__name__} to {type(new.ops[0]).__name__}", new
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        changed = node.value + 1 if isinstance(node.value, int) else 10 * node.value or 1.0
        yield f"{node.value} to {changed}", ast.Constant(changed)
    elif isinstance(node, ast.If | ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield "swap branches", new
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    ):
        yield f"delete {type(node).__name__}", ast.Pass()


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Names, unique within the file, and sources of all mutants; annotations and errors stay as they are."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list") or isinstance(
                node, ast.Raise | ast.JoinedStr
            ):
                _skip(value)
    places = [
        (parent, field, index, child)
        for parent in ast.walk(tree)
        if not hasattr(parent, "skip")
        for field, value in ast.iter_fields(parent)
        for index, child in enumerate(value if isinstance(value, list) else [value])
        if isinstance(child, ast.AST) and not hasattr(child, "skip") and hasattr(child, "lineno")
    ]
    for parent, field, index, child in places:
        for name, changed in changes(child):
            value = getattr(parent, field)
            setattr(
                parent,
                field,
                [*value[:index], changed, *value[index + 1 :]] if isinstance(value, list) else changed,
            )
            mutated = ast.unparse(ast.fix_missing_locations(tree))
            setattr(parent, field, value)
            yield f"{child.lineno}:{child.col_offset}-{child.end_col_offset} {name}", mutated


def _skip(value: object) -> None:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, ast.AST):
            for node in ast.walk(item):
                node.skip = True  # type: ignore[attr-defined]


def copied(folder: Path) -> Path:
    """A copy of the package with its compiled core."""
    from fwcrf import _core

    shutil.copytree(PACKAGE, folder / "fwcrf", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_core.__file__, folder / "fwcrf")
    return folder / "fwcrf"


# An editable install finds the package before any path does.
RUN = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirect" not in type(finder).__name__]
sys.path.insert(0, sys.argv.pop(1))
import fwcrf, pytest
assert fwcrf.__file__.startswith(sys.path[0])
sys.exit(pytest.main(sys.argv[1:]))
"""


def survives(package: Path, file: str, source: str) -> bool:
    """True if all tests of the file pass with this source in its place."""
    original = (package / file).read_text()
    (package / file).write_text(source)
    command = [sys.executable, "-c", RUN, str(package.parent), "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, *TESTED_BY[file]], cwd=ROOT, env=environment, timeout=LIMIT, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        (package / file).write_text(original)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help=f"some of {', '.join(TESTED_BY)}; all by default")
    parser.add_argument("--all", action="store_true", help="all mutants, not a sample")
    parser.add_argument("--number", type=int, default=60, help="of mutants in the sample")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("-n", type=int, default=2, help="mutants at a time")
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    arguments = parser.parse_args()
    killed: set[str] = set()
    if RESULTS.exists() and not arguments.again:
        killed = set(json.loads(RESULTS.read_text()))
    every = [(f, *m) for f in arguments.files or TESTED_BY for m in mutants((PACKAGE / f).read_text())]
    chosen = every
    if not arguments.all:
        chosen = random.Random(arguments.seed).sample(every, min(arguments.number, len(every)))
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        for k in range(arguments.n):
            copies.put(copied(Path(folder, str(k))))

        def run(mutant: tuple[str, str, str]) -> str | None:
            """The name of a mutant that survives; None for one that is killed."""
            file, name, source = mutant
            key = f"{file}:{name} {zlib.crc32(source.encode()):x}"
            if key in killed:
                return None
            package = copies.get()
            survived = survives(package, file, source)
            copies.put(package)
            print("survived" if survived else "killed", key, file=sys.stderr, flush=True)
            if survived:
                return f"{file}:{name}"
            killed.add(key)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(sorted(killed), indent=1))
            return None

        with ThreadPoolExecutor(arguments.n) as pool:
            files = sorted({file for file, *_ in chosen})
            unchanged = pool.map(run, [(file, "no change", (PACKAGE / file).read_text()) for file in files])
            if not all(unchanged):
                sys.exit(f"without a mutant, tests fail for some of {', '.join(files)}")
            survivors = [name for name in pool.map(run, chosen) if name]
    print(*(f"survived {name}" for name in survivors), sep="\n")
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed ({len(every)} in all)")


if __name__ == "__main__":
    main()

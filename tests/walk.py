"""The walk through the code that one call takes, as four numbers.

``python tests/walk.py`` prints the numbers, and with ``--files`` also the calls in every file of the package.

- files: distinct files under src/fwcrf in which a Python function was called.
- functions: distinct pairs of file and qualified name; comprehensions and generators count, as
  ``function.<locals>.<listcomp>``. Generated methods of dataclasses do not: they have no file.
- calls: `call` events of sys.setprofile in these files. A generator is called again whenever it resumes.
- changes of file: consecutive calls in two different files. Returns are not counted.

A call is counted after one call of the same kind, which imports modules and fills caches. Python 3.12 and
newer run comprehensions inside their function, so the numbers there are lower than with Python 3.11.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

import fwcrf

PACKAGE = Path(fwcrf.__file__).parent
HEIGHT, WIDTH, LABELS = 120, 160, 21


class Walk(NamedTuple):
    """Sizes of one walk."""

    files: int
    functions: int
    calls: int
    changes: int


def called(run: Callable[[], object]) -> list[tuple[str, str]]:
    """File, relative to the package, and qualified name of every function of ours that ``run`` calls."""
    root = str(PACKAGE) + "/"
    calls: list[tuple[str, str]] = []

    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no qualified name
            calls.append((code.co_filename.removeprefix(root), name))

    run()
    profiled(run, record)
    return calls


def profiled(run: Callable[[], object], record: Callable[[FrameType, str, Any], None]) -> None:
    """Call ``run`` with ``record`` as its profile function, and without finalizers of earlier objects."""
    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(record)
    try:
        run()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()


def measured(calls: list[tuple[str, str]]) -> Walk:
    """The four numbers of a list of calls."""
    files = [file for file, _ in calls]
    changes = sum(a != b for a, b in pairwise(files))
    return Walk(len(set(files)), len(set(calls)), len(calls), changes)


def refine() -> Callable[[], object]:
    """``fwcrf.refine`` with its default settings, on numpy arrays: uint8 image, float32 probabilities."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    scores = np.exp(rng.normal(size=(HEIGHT, WIDTH, LABELS)))
    probabilities = (scores / scores.sum(-1, keepdims=True)).astype(np.float32)
    return lambda: fwcrf.refine(image, probabilities)


def layer() -> Callable[[], object]:
    """Forward and backward of a ``DenseCRF`` with learned kernel weights, on a batch of one image."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (1, 3, HEIGHT, WIDTH), generator=generator).float()
    logits = torch.randn(1, LABELS, HEIGHT, WIDTH, generator=generator).requires_grad_()
    crf = fwcrf.DenseCRF(LABELS, learnable=("weights",))
    return lambda: crf(image, logits).sum().backward()


WALKS = {"refine": refine, "layer": layer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true", help="also print the calls in every file")
    arguments = parser.parse_args()
    for name, walk in WALKS.items():
        calls = called(walk())
        print(name, *(f"{value} {field}" for field, value in measured(calls)._asdict().items()))
        if arguments.files:
            for file, count in Counter(file for file, _ in calls).most_common():
                print(f"{count:6} {file}")


if __name__ == "__main__":
    main()

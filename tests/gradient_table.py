"""The table of docs/layer.md: for every solver and tensor, the ways to find its gradient.

``python tests/gradient_table.py`` measures it, and writes it into the page; a test compares the two.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
from crfs import crf, image, logits, quotients, slopes, verdict

from fwcrf import DenseCRF, solvers
from fwcrf.gradients import Checkpoint, Implicit, Unrolled
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.layer import LEARNABLE

PAGE = Path(__file__).parents[1] / "docs" / "layer.md"
GRID = (2, 3)
MODES = {"unrolled": Unrolled(), "checkpoint": Checkpoint(), "implicit": Implicit(tol=1e-9, max_steps=500)}
COLUMNS = ("logits", "image", *LEARNABLE)
# Weak kernels and strong regularizers: full steps soon reach their fixed point. Few inner steps.
KERNELS = [Spatial(1.21, weight=0.3, method="exact"), Bilateral(2.93, 0.37, weight=0.4, method="exact")]
SETTINGS: dict[str, dict] = {
    "l2fw": {"weight": 2.0},
    "efw": {"weight": 1.0},
    "tsallis-fw": {"weight": 2.0},
    "mixed-fw": {"weight": 2.0},
    "binary-entropy-fw": {"weight": 1.0},
    "pnorm-fw": {"weight": 2.0},
    "cccp-qp1": {"tol": 0.0, "max_steps": 10},
}
_PARAMETER = {"log_lambda": "lambda", "raw_steps": "steps", "raw_skip": "skip"}


def layer(name: str, mode: str, learnable: Iterable[str]) -> DenseCRF:
    """A small layer with exact kernels, away from the ends of intervals; ValueError if it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = crf(
            solver=solvers.get(name, **SETTINGS.get(name, {})),
            learnable=tuple(learnable),
            num_steps=3,
            kernels=KERNELS,
            gradient=MODES[mode],
        )
    with torch.no_grad():
        for parameter, p in made.named_parameters():
            if parameter.startswith("raw"):
                p.copy_(torch.linspace(0.4, 0.7, p.numel()).view(p.shape))
    return made


def measured(name: str) -> dict[tuple[str, str], str]:
    """By column and mode: right, zero (and rightly so), kink, wrong, or refused."""
    found = {}
    photo, z = image(grid=GRID), logits(grid=GRID)
    expected: dict[bool, dict] = {}
    for mode in MODES:
        accepted = []
        for learned in LEARNABLE:
            try:
                layer(name, mode, [learned])
                accepted.append(learned)
            except ValueError as refusal:
                assert "expected" in str(refusal)
                found[learned, mode] = "refused"
        try:
            made = layer(name, mode, accepted)
        except ValueError:
            found.update({(column, mode): "refused" for column in COLUMNS})
            continue
        implicit = mode == "implicit"
        if implicit not in expected:  # the steps are the same, whether they are computed once or twice
            expected[implicit] = quotients(made, photo, z, h=1e-4)
        for tensor, slope in slopes(made, photo, z).items():
            word = verdict(slope, expected[implicit][tensor])
            column = _column(tensor)
            zero = word == "right" and not bool(slope.any())
            found[column, mode] = _worst(found.get((column, mode)), "zero" if zero else word)
    return found


def _column(tensor: str) -> str:
    return _PARAMETER.get(tensor, tensor.split(".")[0].removeprefix("log_"))


def _worst(*words: str | None) -> str:
    order = ("wrong", "kink", "right", "zero", "refused")
    return next(word for word in order if word in words)


def cell(by_mode: dict[str, str]) -> str:
    """The entry of a table: the ways that are right, or one word for all of them."""
    words = set(by_mode.values())
    if len(words) == 1:
        word = words.pop()
        return {"right": "all"}.get(word, word)
    steps = {by_mode["unrolled"], by_mode["checkpoint"]}
    assert len(steps) == 1, by_mode
    word = steps.pop()
    rest = by_mode["implicit"]
    if rest == "refused":
        return {"right": "steps"}.get(word, f"steps: {word}")
    return f"steps; implicit: {rest}" if word == "right" else f"steps: {word}; implicit: {rest}"


def row(name: str) -> str:
    found = measured(name)
    cells = [cell({mode: found[column, mode] for mode in MODES}) for column in COLUMNS]
    return "| " + " | ".join([f"`{name}`", *cells]) + " |"


def rows_of_page() -> dict[str, str]:
    """The rows of the table in the page, by solver."""
    block = PAGE.read_text().split("<!-- gradients -->")[1]
    return {match[1]: line for line in block.splitlines() if (match := re.match(r"\| `([^`]+)` \|", line))}


if __name__ == "__main__":
    table = ["| solver | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in solvers.names():
        table.append(row(name))
        print(table[-1], file=sys.stderr)
    before, _, after = PAGE.read_text().split("<!-- gradients -->")
    PAGE.write_text("<!-- gradients -->".join([before, "\n\n" + "\n".join(table) + "\n\n", after]))

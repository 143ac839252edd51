"""``trainable``: fixed against learned steps and lambda."""

from __future__ import annotations

from typing import Any

from fwcrf.apps.experiments.accuracy import accuracy
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.learning import Learning, Variant
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.runs import SHOWN
from fwcrf.apps.experiments.setup import Setup

EPOCHS = 2
_ALWAYS = ("weights", "compatibility")
# As in the paper's table: initial step, and parameters learned besides weights and compatibility.
SETTINGS: dict[str, tuple[float, tuple[str, ...]]] = {
    "lambda fixed, step 1 fixed": (1.0, ()),
    "lambda fixed, step 0.5 fixed": (0.5, ()),
    "lambda fixed, step 0.5 learned": (0.5, ("steps",)),
    "lambda learned, step 0.5 learned": (0.5, ("steps", "lambda")),
}
STARTS = {"l2fw": 1.0, "efw": 0.7}


def variant(solver: str, name: str) -> Variant:
    step, more = SETTINGS[name]
    crf = {
        "solver": solver, "settings": {"weight": STARTS[solver], "step": step}, "noise": 0.01,
        "learnable": [*_ALWAYS, *more],
    }  # fmt: skip
    return Variant(f"{SHOWN[solver]}, {name}", crf, epochs=EPOCHS)


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    rows = []
    for solver in ("l2fw",) if setup.quick else STARTS:
        for name in SETTINGS:
            result = learning.train(variant(solver, name), setup.seeds[0])
            crf: Any = result.model.crf
            found = accuracy(result.confusion)
            rows.append(
                {
                    "solver": SHOWN[solver], "setting": name, "mIoU9": found.miou9, "mIoU18": found.miou18,
                    "lambda": crf.lambda_.item(),
                    "mean step": crf.steps.mean().item(),
                }
            )  # fmt: skip
    values = {
        solver: {row["setting"]: row["mIoU9"] for row in rows if row["solver"] == solver}
        for solver in dict.fromkeys(row["solver"] for row in rows)
    }
    return Outcome(
        "trainable",
        "Steps and lambda, fixed or learned",
        f"Trained as in joint, {learning.config(variant('l2fw', next(iter(SETTINGS))), 0).epochs} epochs at "
        f"{setup.side} pixels, seed {setup.seeds[0]}.",
        rows,
        rows,
        bars("mIoU9 on the second half", values, "mIoU9, %"),
        [finding(solver, [row for row in rows if row["solver"] == solver]) for solver in values],
    )


def finding(solver: str, rows: list[dict[str, Any]]) -> Finding:
    """The paper: learning steps and lambda makes no significant difference."""
    fixed = max(row["mIoU9"] for row in rows if row["setting"].endswith("fixed"))
    learned = max(row["mIoU9"] for row in rows if row["setting"].endswith("learned"))
    last = rows[-1]
    return Finding(
        f"{solver}: mIoU9 {fixed:.2f} with fixed and {learned:.2f} with learned steps or lambda; lambda went "
        f"from {rows[0]['lambda']:g} to {last['lambda']:.4g}, the mean step from "
        f"0.5 to {last['mean step']:.4g}",
        abs(fixed - learned) < 0.5,
    )

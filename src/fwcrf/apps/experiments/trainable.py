"""``trainable``: fixed against learned steps and lambda."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fwcrf.apps.experiments.accuracy import accuracy, miou9
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.figures import bars
from fwcrf.apps.experiments.learning import PARAMETERS, Learning, Variant
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.runs import SHOWN
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.experiments.verdict import within

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
CLAIMS = {"l2fw": Claim.LEARNED_L2FW, "efw": Claim.LEARNED_EFW}
MOVED = (*PARAMETERS, "log_lambda", "raw_steps")


def variant(solver: str, name: str) -> Variant:
    step, more = SETTINGS[name]
    crf = {
        "solver": solver, "settings": {"weight": STARTS[solver], "step": step}, "noise": 0.01,
        "learnable": [*_ALWAYS, *more],
    }  # fmt: skip
    return Variant(f"{SHOWN[solver]}, {name}", crf, epochs=EPOCHS)


def run(setup: Setup) -> Outcome:
    learning = Learning(setup)
    rows: list[dict[str, Any]] = []
    counts: dict[str, dict[str, Tensor]] = {}  # confusion matrices (images, L, L) by solver and setting
    for solver in ("l2fw",) if setup.quick else STARTS:
        for name in SETTINGS:
            result = learning.train(variant(solver, name), setup.seeds[0])
            crf: Any = result.model.crf
            found = accuracy(result.counts)
            counts.setdefault(solver, {})[name] = result.counts
            rows.append(
                {
                    "solver": SHOWN[solver], "setting": name, "mIoU9": found.miou9, "mIoU18": found.miou18,
                    "lambda": crf.lambda_.item(),
                    "mean step": crf.steps.mean().item(),
                }
                | {f"change of {each}": result.moved.get(each) for each in MOVED}
            )  # fmt: skip
    values = {
        solver: {row["setting"]: row["mIoU9"] for row in rows if row["solver"] == solver}
        for solver in dict.fromkeys(row["solver"] for row in rows)
    }
    return Outcome(
        "trainable",
        "Steps and lambda, fixed or learned",
        f"Trained as in per-class, {learning.config(variant('l2fw', next(iter(SETTINGS))), 0).epochs} epochs "
        f"at {setup.side} pixels, seed {setup.seeds[0]}.",
        rows,
        rows,
        bars("mIoU9 on the second half", values, "mIoU9, %"),
        [
            finding(solver, each, [row for row in rows if row["solver"] == SHOWN[solver]])
            for solver, each in counts.items()
        ],
    )


def finding(solver: str, counts: dict[str, Tensor], rows: list[dict[str, Any]]) -> Finding:
    """The best fixed setting against the best learned one."""
    means = {row["setting"]: row["mIoU9"] for row in rows}
    fixed, learned = (
        max((name for name in means if name.endswith(ending)), key=means.__getitem__)
        for ending in ("fixed", "learned")
    )
    last = rows[-1]
    return Finding(
        f"mIoU9 is {means[fixed]:.2f} with {fixed}, and {means[learned]:.2f} with {learned}; lambda went "
        f"from {STARTS[solver]:g} to {last['lambda']:.4g}, the mean step from 0.5 to {last['mean step']:.4g}",
        CLAIMS[solver],
        within(
            lambda shares: miou9(shares, counts[learned]) - miou9(shares, counts[fixed]),
            len(counts[fixed]),
            0.5,
            "difference",
        ),
    )

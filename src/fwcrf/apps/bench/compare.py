"""Ratios of a run compared with stored ratios: absolute times are not comparable between days.

A stored file keeps ratios of full and of quick runs separately, because their pictures differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BASELINE = Path("benchmarks/results/baseline.json")
TOLERANCE = 0.15

Ratios = dict[str, float]


@dataclass(frozen=True)
class Change:
    what: str
    before: float
    now: float

    @property
    def share(self) -> float:
        """New ratio divided by the stored one. Below 1 is worse: a ratio is the peer's time / ours."""
        return self.now / self.before


def changes(before: Mapping[str, float], now: Mapping[str, float]) -> list[Change]:
    """The changes of the ratios in both mappings, the worst first."""
    both = (Change(what, before[what], now[what]) for what in now if what in before)
    return sorted(both, key=lambda change: change.share)


def regressions(found: list[Change], tolerance: float) -> list[Change]:
    """The changes by a relative decrease of more than ``tolerance``."""
    return [change for change in found if change.share < 1 - tolerance]


def load(path: Path, quick: bool) -> Ratios:
    kind = "quick" if quick else "full"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}); expected ratios written by fwcrf bench --store."
        ) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); fwcrf bench --store writes it.") from None
    ratios = stored.get(kind) if isinstance(stored, dict) else None
    if not isinstance(ratios, dict) or not all(_positive(value) for value in ratios.values()):
        raise ValueError(f"{path} has no ratios of a {kind} run; fwcrf bench --store adds them.")
    return ratios


def store(path: Path, quick: bool, ratios: Mapping[str, float]) -> None:
    """Add ratios to a file atomically, keeping its other ratios."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kind = stored.setdefault("quick" if quick else "full", {})
    kind.update({what: round(value, 3) for what, value in ratios.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(partial, path)


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and value > 0

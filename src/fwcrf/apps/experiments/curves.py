"""Curves: means over a set of images, and the curves of the paper's figures."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fwcrf.apps.experiments.runs import Evaluations


@dataclass(frozen=True)
class Curve:
    """A curve to draw: ``solver`` selects its colour, ``diminishing`` a dashed line."""

    label: str
    x: list[float]
    y: list[float]
    solver: str
    diminishing: bool = False


def energies(seen: Sequence[Evaluations]) -> Tensor:
    """E_k - E_0 ``(steps, images)`` of the labels at each evaluated step k. The first step is 0."""
    found = torch.tensor([one.energies for one in seen], dtype=torch.float64).T
    return found - found[0]


def mean_energies(seen: Sequence[Evaluations]) -> list[float]:
    """E_k - E_0 of the labels at each evaluated step k, averaged over images."""
    return [statistics.fmean(each) for each in energies(seen).tolist()]


_SOLVERS = {
    "MF": "mf", "FW": "fw", "FW (Adam)": "fw", "eFW": "efw", "l2FW": "l2fw", "PGD": "pgd", "PGM": "fista",
    "ADMM": "admm",
}  # fmt: skip


def paper(path: Path, figure: str, dataset: str = "voc") -> list[Curve]:
    """The curves of one of the paper's figures. x is lambda in figures over lambda, else step or epoch."""
    found: dict[tuple[str, str, bool], tuple[list[float], list[float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["dataset"], row["figure"]) != (dataset, figure):
                continue
            weight = "" if "vs_lambda" in figure else row["lambda"]
            key = (row["method"], weight, row["stepsize"] == "diminishing")
            x, y = found.setdefault(key, ([], []))
            x.append(float(row["x"]))
            y.append(float(row["y"]))
    curves = []
    for (method, weight, diminishing), (x, y) in found.items():
        label = f"{method} {float(weight):g}" if weight else method
        curves.append(Curve(label + " (decreasing steps)" * diminishing, x, y, _SOLVERS[method], diminishing))
    return curves

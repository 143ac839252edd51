"""Runs of a solver on an image, and what is seen of its labels at some of the steps."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fwcrf import solvers
from fwcrf.evaluation import Confusion
from fwcrf.experiments.potts import PAPER, Potts, Problem
from fwcrf.simplex import softmax
from fwcrf.solvers import Solver
from fwcrf.stepsizes import Harmonic

SHOWN = {"mf": "MF", "fw": "FW", "efw": "eFW", "l2fw": "l2FW", "pgd": "PGD", "fista": "PGM", "admm": "ADMM"}


@dataclass(frozen=True)
class Run:
    """A solver by name, its lambda if it has one, and the steps after which the labels are looked at."""

    solver: str
    weight: float | None = None
    diminishing: bool = False  # steps of 2 / (k + 2) in place of 1
    steps: tuple[int, ...] = (10,)
    model: Potts = PAPER

    @property
    def label(self) -> str:
        """As the paper calls it: its PGM is FISTA.

        >>> Run("efw", 0.25, diminishing=True).label, Run("fista").label
        ('eFW 0.25 (decreasing steps)', 'PGM')
        """
        weight = "" if self.weight is None else f" {self.weight:g}"
        return f"{SHOWN.get(self.solver, self.solver)}{weight}" + " (decreasing steps)" * self.diminishing

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def build(self) -> Solver:
        settings: dict[str, Any] = {} if self.weight is None else {"weight": self.weight}
        if self.diminishing:
            settings["step"] = Harmonic()
        elif self.solver == "fw":
            settings["step"] = 1.0  # as in the paper's figures
        return solvers.get(self.solver, **settings)


@dataclass(frozen=True)
class Seen:
    """What was seen of a run on one image, step by step; it goes to JSON and back as it is."""

    energies: list[float]  # of the labels
    counts: list[list[list[int]]]  # non-zero entries of the confusion matrices: truth, label, number
    first: int  # pixels whose label after one step, if looked at, is not that of the first gradient

    def confusion(self, place: int, num_classes: int) -> Tensor:
        matrix = torch.zeros(num_classes, num_classes, dtype=torch.int64)
        if self.counts[place]:
            t, p, n = torch.tensor(self.counts[place]).T
            matrix[t, p] = n
        return matrix


@torch.no_grad()
def carry_out(run: Run, problem: Problem, truth: Tensor, ignore_index: int) -> Seen:
    """Take the steps of a run on the energy of an image, and look at the labels."""
    f = problem.energy()
    num_classes = f.unary.shape[-1]
    energies, counts, first = [], [], 0

    def look(k: int, x: Tensor) -> None:
        nonlocal first
        if k not in run.steps:
            return
        labels = x.argmax(-1)
        if k == 1:
            first = int((labels != problem.straight).sum())
        energies.append(problem.of_labels(labels))
        confusion = Confusion(num_classes, ignore_index)
        confusion.update(labels.view_as(truth), truth)
        where = confusion.matrix.nonzero()
        counts.append(torch.cat([where, confusion.matrix[tuple(where.T)][:, None]], 1).tolist())

    last = max(run.steps)
    if {*run.steps} <= {0, last}:
        # Steps that nobody looks at are taken at once.
        look(0, softmax(f.unary, -1.0))
        if last:
            look(last, solvers.minimize(f, run.build(), num_steps=last).probabilities)
    else:
        solvers.minimize(f, run.build(), num_steps=last, callback=look)
    return Seen(energies, counts, first)

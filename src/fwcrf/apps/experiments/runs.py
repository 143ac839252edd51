"""Runs of a solver on an image, and what is seen of its labels at some of the steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf import solvers
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments.potts import PAPER, Potts, Problem
from fwcrf.rounding import nearest
from fwcrf.solvers import Solver
from fwcrf.stepsizes import Harmonic
from fwcrf.torch_ops.simplex import softmax

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
    def path(self) -> str:
        """What decides where it leads, as text; not after how many steps one looks."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if name != "steps"}, sort_keys=True
        )

    def build(self) -> Solver:
        settings: dict[str, Any] = {} if self.weight is None else {"weight": self.weight}
        if self.diminishing:
            settings["step"] = Harmonic()
        elif self.solver == "fw":
            settings["step"] = 1.0  # as in the paper's figures
        return solvers.get(self.solver, **settings)


class Look(NamedTuple):
    """What is seen of the labels after a step; it goes to JSON and back as it is."""

    energy: float
    counts: list[list[int]]  # non-zero entries of the confusion matrix: truth, label, number
    apart: int = 0  # after one step: pixels whose label is not that of the first gradient


@dataclass(frozen=True)
class Seen:
    """What was seen of a run on one image, step by step."""

    energies: list[float]  # of the labels
    counts: list[list[list[int]]]  # as in ``Look``
    first: int  # pixels whose label after one step, if looked at, is not that of the first gradient

    @classmethod
    def of(cls, looks: Sequence[Look]) -> Seen:
        return cls([k.energy for k in looks], [k.counts for k in looks], sum(k.apart for k in looks))

    def confusion(self, place: int, num_classes: int) -> Tensor:
        matrix = torch.zeros(num_classes, num_classes, dtype=torch.int64)
        if self.counts[place]:
            t, p, n = torch.tensor(self.counts[place]).T
            matrix[t, p] = n
        return matrix


@dataclass(frozen=True, eq=False)
class View:
    """A problem whose true labels are known, to look at labels with."""

    problem: Problem
    truth: Tensor
    ignore_index: int
    _known: dict[bytes, Look] = field(default_factory=dict)

    @cached_property
    def start(self) -> Look:
        """Where all runs start."""
        return self.looks({0: nearest(softmax(self.problem.unary, -1.0))})[0]

    def looks(self, labels: Mapping[int, Tensor]) -> dict[int, Look]:
        """At the labels after some steps, each labelling once: steps and solvers often lead to the same."""
        keys = {k: _digest(x) for k, x in labels.items()}
        new = {keys[k]: x for k, x in labels.items() if keys[k] not in self._known}
        for (key, x), energy in zip(new.items(), self.problem.of_labels(list(new.values())), strict=True):
            self._known[key] = Look(energy, self._counts(x))
        apart = {k: int((x != self.problem.straight).sum()) if k == 1 else 0 for k, x in labels.items()}
        return {k: self._known[key]._replace(apart=apart[k]) for k, key in keys.items()}

    def _counts(self, labels: Tensor) -> list[list[int]]:
        L = self.problem.unary.shape[-1]
        found = torch.bincount(self._rows + labels, minlength=L * L)[: L * L].view(L, L)
        where = found.nonzero()
        return torch.cat([where, found[tuple(where.T)][:, None]], 1).tolist()

    @cached_property
    def _rows(self) -> Tensor:
        """Where the counts of each pixel's class begin; those of pixels that do not count come last."""
        L, truth = self.problem.unary.shape[-1], self.truth.flatten().long()
        Confusion(L, self.ignore_index).update(torch.zeros_like(truth), truth)  # refuses what is no class
        return L * truth.masked_fill(truth == self.ignore_index, L)


def _digest(labels: Tensor) -> bytes:
    return hashlib.blake2b(labels.to(torch.int16).numpy().tobytes(), digest_size=16).digest()


@torch.no_grad()
def carry_out(run: Run, view: View) -> dict[int, Look]:
    """Take the steps of a run on the energy of an image, and look at the labels."""
    f, last = view.problem.energy(), max(run.steps)
    labels: dict[int, Tensor] = {}

    def look(k: int, x: Tensor) -> None:
        if k in run.steps and k > 0:
            labels[k] = nearest(x)

    if {*run.steps} <= {0, last}:
        # Steps that nobody looks at are taken at once.
        if last:
            look(last, solvers.minimize(f, run.build(), num_steps=last).probabilities)
    else:
        solvers.minimize(f, run.build(), num_steps=last, callback=look)
    return ({0: view.start} if 0 in run.steps else {}) | view.looks(labels)

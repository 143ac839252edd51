"""Runs of a solver on an image; energy and confusion counts of the labels after given steps."""

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
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import softmax

SHOWN = {"mf": "MF", "fw": "FW", "efw": "eFW", "l2fw": "l2FW", "pgd": "PGD", "fista": "PGM", "admm": "ADMM"}
# Settings of the paper that are not the library's defaults, by solver. They are part of ``Run.path``.
SETTINGS: dict[str, dict[str, Any]] = {"emd": {"epsilon": 1e-10}}


@dataclass(frozen=True)
class Run:
    """A solver by name, its lambda if it has one, and the steps after which the labels are evaluated."""

    solver: str
    weight: float | None = None
    diminishing: bool = False  # step sizes 2 / (k + 2) instead of 1
    steps: tuple[int, ...] = (10,)
    model: Potts = PAPER

    @property
    def label(self) -> str:
        """The name in the paper's figures. The paper's PGM is FISTA.

        >>> Run("efw", 0.25, diminishing=True).label, Run("fista").label
        ('eFW 0.25 (decreasing steps)', 'PGM')
        """
        weight = "" if self.weight is None else f" {self.weight:g}"
        return f"{SHOWN.get(self.solver, self.solver)}{weight}" + " (decreasing steps)" * self.diminishing

    @property
    def path(self) -> str:
        """Key of stored results: all settings of the iterates as JSON, without the evaluated steps."""
        values = {name: value for name, value in asdict(self).items() if name != "steps"}
        return json.dumps(values | SETTINGS.get(self.solver, {}), sort_keys=True)

    def build(self) -> Solver:
        settings: dict[str, Any] = {} if self.weight is None else {"weight": self.weight}
        if self.diminishing:
            settings["step"] = Harmonic()
        elif self.solver == "fw":
            settings["step"] = 1.0  # as in the paper's figures
        return solvers.get(self.solver, **settings, **SETTINGS.get(self.solver, {}))


class Evaluation(NamedTuple):
    """Energy and confusion counts of the labels after a step. A NamedTuple of plain JSON values."""

    energy: float
    counts: list[list[int]]  # non-zero entries of the confusion matrix: truth, label, number
    differing: int = 0  # after step 1: pixels whose label is not the argmin of the first gradient


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of one run on one image, by step."""

    energies: list[float]  # energy of the labels
    counts: list[list[list[int]]]  # as in ``Evaluation``
    first: int  # ``Evaluation.differing`` of step 1; 0 if step 1 was not evaluated

    @classmethod
    def of(cls, found: Sequence[Evaluation]) -> Evaluations:
        return cls([k.energy for k in found], [k.counts for k in found], sum(k.differing for k in found))

    def confusion(self, place: int, num_classes: int) -> Tensor:
        return matrix_of(self.counts[place], num_classes)


def nonzero_counts(matrix: Tensor) -> list[list[int]]:
    """The non-zero entries of a confusion matrix: truth, label, number."""
    where = matrix.nonzero()
    return torch.cat([where, matrix[tuple(where.T)][:, None]], 1).tolist()


def matrix_of(counts: list[list[int]], num_classes: int) -> Tensor:
    """The confusion matrix of its non-zero entries."""
    matrix = torch.zeros(num_classes, num_classes, dtype=torch.int64)
    if counts:
        t, p, n = torch.tensor(counts).T
        matrix[t, p] = n
    return matrix


@dataclass(frozen=True, eq=False)
class Evaluator:
    """A problem with its true labels. Evaluates labellings, each distinct labelling once."""

    problem: Problem
    truth: Tensor
    ignore_index: int
    _cache: dict[bytes, Evaluation] = field(default_factory=dict)

    __repr__ = in_one_line

    @cached_property
    def start(self) -> Evaluation:
        """Evaluation of the labels at step 0, common to all runs."""
        return self.evaluate({0: nearest(softmax(self.problem.unary, -1.0))})[0]

    def evaluate(self, labels: Mapping[int, Tensor]) -> dict[int, Evaluation]:
        """Evaluations by step. Equal labellings, frequent among steps and solvers, are evaluated once."""
        keys = {k: _digest(x) for k, x in labels.items()}
        new = {keys[k]: x for k, x in labels.items() if keys[k] not in self._cache}
        for (key, x), energy in zip(new.items(), self.problem.of_labels(list(new.values())), strict=True):
            self._cache[key] = Evaluation(energy, self._counts(x))
        differing = {k: int((x != self.problem.straight).sum()) if k == 1 else 0 for k, x in labels.items()}
        return {k: self._cache[key]._replace(differing=differing[k]) for k, key in keys.items()}

    def _counts(self, labels: Tensor) -> list[list[int]]:
        L = self.problem.unary.shape[-1]
        return nonzero_counts(torch.bincount(self._rows + labels, minlength=L * L)[: L * L].view(L, L))

    @cached_property
    def _rows(self) -> Tensor:
        """Offset of each pixel's row in the flat confusion matrix; beyond its end for ignored pixels."""
        L, truth = self.problem.unary.shape[-1], self.truth.flatten().long()
        Confusion(L, self.ignore_index).update(torch.zeros_like(truth), truth)  # raises for invalid classes
        return L * truth.masked_fill(truth == self.ignore_index, L)


def _digest(labels: Tensor) -> bytes:
    return hashlib.blake2b(labels.to(torch.int16).numpy().tobytes(), digest_size=16).digest()


@torch.no_grad()
def carry_out(run: Run, evaluator: Evaluator) -> dict[int, Evaluation]:
    """Evaluations of a run's labels by step, on one image."""
    f, last = evaluator.problem.energy(), max(run.steps)
    labels: dict[int, Tensor] = {}

    def keep(k: int, x: Tensor) -> None:
        if k in run.steps and k > 0:
            labels[k] = nearest(x)

    if {*run.steps} <= {0, last}:
        # Without a callback the native engine takes all steps in one call.
        if last:
            keep(last, solvers.minimize(f, run.build(), num_steps=last).probabilities)
    else:
        solvers.minimize(f, run.build(), num_steps=last, callback=keep)
    return ({0: evaluator.start} if 0 in run.steps else {}) | evaluator.evaluate(labels)

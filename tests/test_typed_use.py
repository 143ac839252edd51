"""A program as users with a strict type checker write it: ``make check`` finds no unknown type in it."""

# pyright: strict

from pathlib import Path

import numpy as np
import torch

import fwcrf
from fwcrf.apps.files import read_labels, write_labels


def test_a_program_of_known_types_runs(tmp_path: Path) -> None:
    image = np.zeros((6, 7, 3), np.uint8)
    scores = np.full((6, 7, 3), 1 / 3, np.float32)
    labels = fwcrf.refine(image, scores, num_steps=2)
    write_labels(tmp_path / "labels.png", labels)
    assert read_labels(tmp_path / "labels.png").shape == (6, 7)

    layer = fwcrf.DenseCRF(3, num_steps=2, learnable=("weights",))
    answer: torch.Tensor = layer(torch.zeros(1, 3, 6, 7), torch.zeros(1, 3, 6, 7))
    loss = fwcrf.losses.energy(torch.zeros(1, 3, 6, 7), answer.softmax(1))
    assert loss.shape == ()

    kernel = fwcrf.kernels.Exact(torch.rand(8, 2)).normalized("symmetric")
    pairwise = fwcrf.pairwise.dense([kernel], 3, weights=[2.0])
    energy = fwcrf.Energy(pairwise, torch.rand(8, 3))
    step = fwcrf.stepsizes.LineSearch()
    solver = fwcrf.solvers.FrankWolfe(fwcrf.regularizers.SquaredL2(0.5), step)
    for solution in (
        fwcrf.minimize(energy, solver, num_steps=3),
        fwcrf.minimize(energy, fwcrf.solvers.get("efw", weight=0.5), num_steps=3, trace=True),
    ):
        assert solution.labels.shape == (8,)

    edges, weight = fwcrf.graphs.grid((2, 3))
    mrf = fwcrf.SparseMRF(torch.rand(6, 2), edges, fwcrf.graphs.Potts(weight))
    fwcrf.write_uai(tmp_path / "model.uai", mrf)
    assert fwcrf.read_uai(tmp_path / "model.uai").unary.shape == (6, 2)

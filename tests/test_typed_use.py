"""A program as users with a strict type checker write it: ``make check`` finds no unknown type in it."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import assert_type

import fwcrf
from fwcrf.apps.files import read_labels, write_labels
from fwcrf.arguments import ImageArguments, PointArguments

Numbers = NDArray[Any]


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


def test_refine_takes_images_of_known_types() -> None:
    scores = np.full((6, 7, 3), 1 / 3, np.float32)
    for image in (np.zeros((6, 7, 3), np.uint8), torch.zeros(3, 6, 7), Image.new("RGB", (7, 6))):
        assert fwcrf.refine(image, scores, num_steps=0).shape == (6, 7)
    for wrong in ("photograph.png", 3, [[1, 2], [3, 4]]):
        with pytest.raises(TypeError, match="image is a"):
            fwcrf.refine(wrong, scores)  # pyright: ignore


def test_refine_returns_the_type_that_it_is_given() -> None:
    image, scores = np.zeros((6, 7, 3), np.uint8), np.full((6, 7, 3), 1 / 3, np.float32)
    labels = assert_type(fwcrf.refine(image, scores, num_steps=1), Numbers)
    both = assert_type(fwcrf.refine(image, scores, return_probabilities=True), "tuple[Numbers, Numbers]")
    assert (labels.dtype, both[0].dtype, both[1].dtype) == (np.int64, np.int64, np.float32)

    tensor = torch.zeros(3, 6, 7)
    found = assert_type(fwcrf.refine(image, tensor, from_logits=True), torch.Tensor)
    pair = assert_type(
        fwcrf.refine(image, tensor, from_logits=True, return_probabilities=True),
        "tuple[torch.Tensor, torch.Tensor]",
    )
    assert (found.dtype, pair[0].dtype, pair[1].dtype) == (torch.int64, torch.int64, torch.float32)


def test_points_return_the_type_that_they_are_given() -> None:
    places, scores = np.random.default_rng(0).random((9, 2)), np.full((9, 3), 1 / 3)
    labels = assert_type(fwcrf.refine_points(places, None, scores), Numbers)
    pair = assert_type(
        fwcrf.refine_points(places, None, torch.full((9, 3), 1 / 3), return_probabilities=True),
        "tuple[torch.Tensor, torch.Tensor]",
    )
    assert labels.dtype == np.int64 and pair[1].dtype == torch.float32


@pytest.mark.parametrize(
    ("function", "listed"), [(fwcrf.refine, ImageArguments), (fwcrf.refine_points, PointArguments)]
)
def test_arguments_for_type_checkers_are_the_arguments_of_the_function(
    function: Callable[..., Any], listed: type[PointArguments]
) -> None:
    written = inspect.signature(function).parameters.values()
    # The mark of arguments that are not given is not for callers.
    named = {
        one.name: one.annotation.removesuffix(" | Unset") for one in written if one.kind is one.KEYWORD_ONLY
    }
    assert named.pop("return_probabilities") == "bool"
    assert {name: hint.__forward_arg__ for name, hint in listed.__annotations__.items()} == named

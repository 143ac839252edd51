"""The table of gradients in docs/layer.md is the measured one, and its kinks are kinks."""

import gradient_table
import pytest
import torch
from crfs import crf, image, logits, loss, quotients, slopes, verdict
from helpers import normal

from fwcrf import solvers
from fwcrf.stepsizes import Adaptive


@pytest.mark.parametrize("name", solvers.names())
def test_the_page_says_which_gradients_are_right(name):
    row = gradient_table.row(name)
    assert "wrong" not in row and "kink" not in row
    assert gradient_table.rows_of_page()[name] == row, "python tests/gradient_table.py writes the page"


def test_the_page_has_a_row_for_each_solver():
    assert list(gradient_table.rows_of_page()) == solvers.names()


KINKS = {
    "a step of 1": ("raw_steps", {"learnable": ("steps",), "solver": "efw"}, 1.0),
    "a step of 0": ("raw_steps", {"learnable": ("steps",), "solver": "efw"}, 0.0),
    "a skip of 1": ("raw_skip", {"learnable": ("skip",), "solver": "efw"}, 1.0),
    "a skip of 0": ("raw_skip", {"learnable": ("skip",), "solver": "efw"}, 0.0),
    "a multiple eigenvalue": (
        "weights",
        {"learnable": ("weights",), "weights": "label", "solver": solvers.get("efw", step=Adaptive())},
        1.0,
    ),
}


@pytest.mark.parametrize(("tensor", "settings", "value"), KINKS.values(), ids=KINKS)
def test_a_kink_is_a_kink(tensor, settings, value):
    """Slopes differ on both sides, the gradient is finite; a little way off the gradient is right."""
    layer, z = crf(num_steps=2, method="exact", **settings), logits()
    words = []
    for distance in (0.0, 0.05):
        point = value + distance * torch.linspace(0.5, 1.5, z.numel(), dtype=z.dtype)
        with torch.no_grad():
            target = layer.get_parameter(tensor)
            target.copy_(point[: target.numel()].view(target.shape))
        slope = slopes(layer, image(), z)[tensor]
        assert torch.isfinite(slope).all()
        words.append(verdict(slope, quotients(layer, image(), z)[tensor]))
    assert words == ["kink", "right"]


def test_anneal_has_no_linear_derivative_at_equal_logits():
    """Its strength s is 0 / 0 there: slopes of two directions do not add up. The gradient is finite."""
    layer, z = crf(num_steps=2, method="exact", solver="anneal-fw"), torch.zeros_like(logits())
    one, two = normal(*z.shape, seed=1), normal(*z.shape, seed=2)

    def slope(direction, h=1e-6):
        with torch.no_grad():
            return (loss(layer, image(), h * direction) - loss(layer, image(), -h * direction)) / (2 * h)

    assert abs(slope(one) + slope(two) - slope(one + two)) > 1e-3
    assert all(torch.isfinite(found).all() for found in slopes(layer, image(), z).values())

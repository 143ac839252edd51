"""Figures: drawn without a display, and read back from the axes."""

import sys

import numpy as np
import pytest
import torch

import fwcrf
from fwcrf import plot

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib draws: pip install 'fwcrf[plot]'")
NAMES = ("ground", "cat", "dog")


@pytest.fixture(autouse=True)
def no_display():
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture
def scene():
    """A grey image, and labels before and after: label 1 gains a column, label 2 loses its only pixel."""
    image = np.full((40, 60, 3), 128, np.uint8)
    before = np.zeros((40, 60), np.int64)
    before[10:30, 10:30] = 1
    before[35, 50] = 2
    after = before.copy()
    after[10:30, 30] = 1
    after[35, 50] = 0
    return image, before, after


def drawn(ax):
    """The picture of the axes, after a whole drawing of the figure."""
    ax.figure.canvas.draw()
    return np.asarray(ax.images[0].get_array())


def entries(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_overlay_colours_labels_and_names_them(scene):
    image, before, _ = scene
    ax = plot.overlay(image, before, names=NAMES)
    picture = drawn(ax)
    np.testing.assert_allclose(picture[0, 0], 128 / 255)  # the background
    np.testing.assert_allclose(picture[20, 20], (plot.colors(3)[1] + 128 / 255) / 2)
    np.testing.assert_allclose(picture[10, 20], plot.colors(3)[1])  # a border
    assert entries(ax.get_legend()) == ["cat", "dog"]


def test_overlay_of_torch_of_grey_and_of_all_labels(scene):
    image, before, _ = scene
    expected = drawn(plot.overlay(image, before))
    chw = torch.from_numpy(image).permute(2, 0, 1)
    np.testing.assert_array_equal(drawn(plot.overlay(chw, torch.from_numpy(before))), expected)
    np.testing.assert_array_equal(drawn(plot.overlay(image[..., 0], before)), expected)
    everything = plot.overlay(image, before, background=None)
    assert entries(everything.get_legend()) == ["label 0", "label 1", "label 2"]
    assert (drawn(everything)[0, 0] != expected[0, 0]).any()


def test_negative_labels_have_no_colour(scene):
    image, before, _ = scene
    ax = plot.overlay(image, np.full_like(before, -1), background=None)
    np.testing.assert_allclose(drawn(ax), 128 / 255)
    assert ax.get_legend() is None


def test_the_legend_of_many_labels_has_the_largest():
    labels = np.repeat(np.arange(40), np.arange(1, 41) * 2).reshape(40, 41)
    ax = plot.overlay(np.zeros((40, 41)), labels)
    assert entries(ax.get_legend()) == [f"label {k}" for k in range(28, 40)]


def test_before_after_shows_the_changed_pixels(scene):
    figure = plot.before_after(*scene, names=NAMES)
    assert [ax.get_title() for ax in figure.axes] == ["image", "before", "after", "changed"]
    changed = drawn(figure.axes[3])
    np.testing.assert_allclose(changed[15, 30], plot.colors(3)[1])
    np.testing.assert_allclose(changed[35, 50], 1.0)
    np.testing.assert_allclose(changed[20, 20], changed[0, 0])  # unchanged: dark, with or without a label
    assert changed[0, 0].max() < 0.3
    assert entries(figure.legends[0]) == ["cat", "dog", "changed to ground"]


def test_energy_draws_the_trace():
    energy = fwcrf.Energy(
        fwcrf.pairwise.dense([fwcrf.kernels.Exact(torch.rand(2, 8, 2))], 3), torch.rand(2, 8, 3)
    )
    solution = fwcrf.minimize(energy, "mf", num_steps=4, trace=True)
    ax = plot.energy(solution, label="mf")
    rounded = ax.lines[0]  # of the first image
    assert rounded.get_xdata().tolist() == [0, 1, 2, 3, 4]
    assert rounded.get_ydata().tolist() == [record.rounded[0].item() for record in solution.trace]
    assert len(ax.lines) == 4 and entries(ax.get_legend()) == ["mf, of the labels", "mf, of the iterate"]
    assert plot.energy(solution.trace, ax=ax) is ax and len(ax.lines) == 8


def test_a_run_without_a_trace_is_told_to_make_one():
    energy = fwcrf.Energy(fwcrf.pairwise.dense([fwcrf.kernels.Exact(torch.rand(8, 2))], 3), torch.rand(8, 3))
    with pytest.raises(ValueError, match="trace=True"):
        plot.energy(fwcrf.minimize(energy, "mf", num_steps=1))


def test_shapes_and_dtypes_that_do_not_fit_are_named(scene):
    image, before, after = scene
    with pytest.raises(ValueError, match=r"labels has shape \(40, 60, 3\), and the image has \(40, 60\)"):
        plot.overlay(image, image)
    with pytest.raises(ValueError, match=r"image has shape \(1, 40, 60, 3\).*one image of a batch"):
        plot.overlay(image[None], before)
    with pytest.raises(TypeError, match="labels has dtype float32; expected whole numbers"):
        plot.overlay(image, before.astype(np.float32))
    with pytest.raises(ValueError, match="2 titles; expected 4"):
        plot.before_after(image, before, after, titles=("a", "b"))


def test_without_matplotlib_the_message_has_the_command(scene, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fwcrf\[plot\]'"):
        plot.overlay(*scene[:2])


def test_the_colours_of_21_labels_differ_clearly():
    table = 255 * plot.colors(21)
    apart = np.abs(table[:, None] - table).sum(-1) + 1000 * np.eye(21)
    assert apart.min() > 60
    np.testing.assert_array_equal(plot.colors(5), plot.colors(30)[:5])

"""Presets: the same settings through every door, replaced by arguments, and the balance of rare labels."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from refine.refine_scenes import photograph, probabilities

import fwcrf
from fwcrf.apps.files.settings import Settings
from fwcrf.inputs.scores import rarity
from fwcrf.kernels import Bilateral, Spatial

IMAGE, P = photograph(40, 50), probabilities(40, 50)


def first(array):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(array, -1, 0)))


@pytest.mark.parametrize("name", fwcrf.presets.names())
def test_a_preset_is_its_arguments(name):
    given = fwcrf.presets.get(name).arguments()
    expected = fwcrf.refine(IMAGE, P, **given)
    np.testing.assert_array_equal(fwcrf.refine(IMAGE, P, preset=name), expected)
    np.testing.assert_array_equal(fwcrf.refine(IMAGE, P, preset=fwcrf.presets.get(name)), expected)


@pytest.mark.parametrize("name", fwcrf.presets.names())
def test_the_layer_has_the_presets_of_refine(name):
    steps = fwcrf.presets.get(name).num_steps
    crf = fwcrf.DenseCRF(P.shape[-1], preset=name, num_steps=steps)
    found = crf.solve(first(IMAGE).float(), first(np.log(P)).float()).labels
    np.testing.assert_array_equal(
        found.numpy(), fwcrf.refine(IMAGE, np.log(P), from_logits=True, preset=name)
    )


def test_arguments_replace_the_values_of_a_preset():
    given = fwcrf.presets.get("default").arguments()
    one = fwcrf.refine(IMAGE, P, solver="mf", num_steps=2, compatibility=0.5, balance=0.1, self_edges=True)
    two = fwcrf.refine(
        IMAGE, P, kernels=given["kernels"], solver="mf", num_steps=2, compatibility=0.5, balance=0.1,
        self_edges=True,
    )  # fmt: skip
    np.testing.assert_array_equal(one, two)


SPATIAL, BILATERAL = (2.0, 1.5), (20.0, 10.0, 3.0)
KERNELS = [Bilateral(*BILATERAL), Spatial(*SPATIAL)]
PLAIN_KERNELS = [
    {"kind": "bilateral", "xy": 20.0, "color": 10.0, "weight": 3.0},
    {"kind": "spatial", "xy": 2.0, "weight": 1.5},
]


def by_refine(preset, tmp_path, command):
    return fwcrf.refine(IMAGE, P, kernels=KERNELS, preset=preset)


def by_layer(preset, tmp_path, command):
    steps = 10 if preset is None else fwcrf.presets.get(preset).num_steps  # they are the layer's own
    crf = fwcrf.DenseCRF(P.shape[-1], KERNELS, preset=preset, num_steps=steps)
    return crf.solve(first(IMAGE).double(), first(np.log(P)).double()).labels.numpy()


def by_flags(preset, tmp_path, command, *more):
    Image.fromarray(IMAGE).save(tmp_path / "i.png")
    np.save(tmp_path / "p.npy", P)
    given = "refine", tmp_path / "i.png", "-s", tmp_path / "p.npy", "-o", tmp_path / "a.npy"
    flags = [] if more else ["--spatial", *SPATIAL, "--bilateral", *BILATERAL]
    if preset is not None and not more:
        flags += ["--preset", preset]
    assert command(*given, *flags, *more)[0] == 0
    return np.load(tmp_path / "a.npy")


def by_file(preset, tmp_path, command):
    values = {"kernels": PLAIN_KERNELS} | ({} if preset is None else {"preset": preset})
    (tmp_path / "s.json").write_text(json.dumps(values))
    return by_flags(preset, tmp_path, command, "--config", tmp_path / "s.json")


def by_settings(preset, tmp_path, command):
    if preset is None:
        settings = Settings(kernels=PLAIN_KERNELS)
    else:
        settings = replace(Settings.of_preset(fwcrf.presets.get(preset)), kernels=PLAIN_KERNELS)
    return fwcrf.refine(IMAGE, P, **settings.arguments())


DOORS = [by_refine, by_layer, by_flags, by_file, by_settings]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("preset", [None, "default", "pydensecrf"])
def test_own_kernels_replace_those_of_a_preset_and_have_nothing_else_without_one(
    preset, door, tmp_path, fwcrf_command
):
    plain = {"solver": "l2fw", "num_steps": 10, "compatibility": 1.0, "balance": 0.0, "self_edges": False}
    model = plain if preset is None else fwcrf.presets.get(preset).arguments()
    expected = fwcrf.refine(IMAGE, P, **{**model, "kernels": KERNELS})
    np.testing.assert_array_equal(door(preset, tmp_path, fwcrf_command), expected)


def test_own_kernels_have_different_results_with_presets():
    found = [fwcrf.refine(IMAGE, P, kernels=KERNELS, preset=one) for one in (None, "default", "pydensecrf")]
    assert not np.array_equal(found[0], found[1]) and not np.array_equal(found[1], found[2])


def test_own_kernels_of_points_have_nothing_else():
    points = np.stack(np.meshgrid(np.arange(8.0), np.arange(9.0)), -1).reshape(-1, 2)
    p = np.random.default_rng(0).dirichlet([1.0, 1.0], len(points))
    kernels = [Spatial(2.0, 1.5)]
    both = {"kernels": kernels, "return_probabilities": True}
    expected = fwcrf.refine_points(
        points, None, p, **both, solver="l2fw", num_steps=10, compatibility=1.0, self_edges=False
    )
    for one, other in zip(fwcrf.refine_points(points, None, p, **both), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_kernel_on_the_command_line(tmp_path, fwcrf_command):
    """Alone it is the model; with a preset it replaces the kernel of its kind, and weight 0 removes it."""
    default = fwcrf.presets.get("default").arguments()
    spatial, bilateral = default["kernels"]
    for flags, expected in (
        (["--bilateral", *BILATERAL], {"kernels": KERNELS[:1]}),
        (["--spatial", *SPATIAL], {"kernels": KERNELS[1:]}),
        (["--preset", "default", "--bilateral", *BILATERAL], {**default, "kernels": [spatial, KERNELS[0]]}),
        (["--preset", "default", "--spatial", 1, 0], {**default, "kernels": [bilateral]}),
    ):
        found = by_flags(None, tmp_path, fwcrf_command, *flags)
        np.testing.assert_array_equal(found, fwcrf.refine(IMAGE, P, **expected))


@pytest.mark.parametrize("name", ["papers", 3, False, ["default"]])
def test_another_name_is_refused(name):
    with pytest.raises(ValueError, match=r"preset=.* is not known; expected one of default, paper"):
        fwcrf.refine(IMAGE, P, preset=name)
    with pytest.raises(ValueError, match=r"preset=.* is not known"):
        fwcrf.DenseCRF(3, preset=name)


@pytest.mark.parametrize("balance", [-0.1, 1.1, np.nan, None, "much"])
def test_a_balance_is_a_number_from_0_to_1(balance):
    with pytest.raises((ValueError, TypeError), match="balance"):
        fwcrf.refine(IMAGE, P, balance=balance)


def test_balance_divides_probabilities_by_powers_of_the_shares():
    """With kernels of weight 0 nothing else is left: argmax of p / (share + 0.01)^balance."""
    kernels = [Spatial(3, weight=0.0)]
    p = np.random.default_rng(0).dirichlet([8.0, 2.0, 1.0], (60, 70))
    share = p.mean((0, 1)) + 0.01
    for balance in (0.3, 1.0):
        found = fwcrf.refine(IMAGE[:1, :1].repeat(60, 0).repeat(70, 1), p, kernels=kernels, balance=balance)
        np.testing.assert_array_equal(found, (p / share**balance).argmax(-1))


def test_a_label_that_is_nowhere_the_best_gets_no_favour():
    p = torch.tensor([[0.55, 0.05, 0.4], [0.35, 0.05, 0.6]]).expand(5, 2, 3)
    assert (rarity(p.log())[..., 1] == 0).all()


def test_tiles_batches_and_masks_see_the_shares_of_the_whole_image():
    whole = fwcrf.refine(IMAGE, P, kernels=[Spatial(1)], balance=0.5)
    tiled = fwcrf.refine(IMAGE, P, kernels=[Spatial(1)], balance=0.5, tile=16, overlap=12)
    np.testing.assert_array_equal(tiled, whole)
    other = probabilities(40, 50, seed=5)
    pair = fwcrf.refine(IMAGE, np.stack([P, other]), kernels=[Spatial(1)], balance=0.5)
    np.testing.assert_array_equal(pair[0], whole)
    np.testing.assert_array_equal(pair[1], fwcrf.refine(IMAGE, other, kernels=[Spatial(1)], balance=0.5))
    ignore = np.zeros(IMAGE.shape[:2], bool)
    ignore[:10] = True
    holes = np.where(ignore[..., None], np.nan, P)
    cut = fwcrf.refine(IMAGE[10:], P[10:], kernels=[Spatial(1)], balance=0.5)
    np.testing.assert_array_equal(
        fwcrf.refine(IMAGE, holes, kernels=[Spatial(1)], balance=0.5, ignore=ignore)[10:], cut
    )


def test_no_steps_change_nothing():
    np.testing.assert_array_equal(fwcrf.refine(IMAGE, P, num_steps=0), P.argmax(-1))


def test_gradients_flow_through_the_balance():
    crf = fwcrf.DenseCRF(3, kernels=[Spatial(1.5)], balance=0.4, num_steps=2).double()
    image = torch.rand(3, 4, 5, dtype=torch.float64)
    logits = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u: crf(image, u), logits)

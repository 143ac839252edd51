"""The page's presets: the settings of ``refine``, all of them within the reach of the page's controls."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from demo_pages import png, two_halves

import fwcrf
from fwcrf import solvers
from fwcrf.apps.demo import presets
from fwcrf.apps.demo.request import BOUNDS, Request
from fwcrf.apps.demo.sessions import Given, Picture, Session
from fwcrf.apps.demo.snippet import snippet
from fwcrf.apps.demo.solve import answer, read_logits
from fwcrf.kernels import Bilateral, Gaussian, Spatial

PROBABILITIES = np.random.default_rng(0).dirichlet(np.ones(3), (24, 36)).astype(np.float32)
ODD = {
    "solver": solvers.get("efw", weight=0.4),
    "num_steps": 3,
    "kernels": (
        Spatial(1, weight=0.7, method="lattice"),
        Bilateral(9, 20, weight=0.05, normalization="none"),
    ),
    "compatibility": 0.3,
    "self_edges": True,
}


def solved(**asked):
    """A session whose result is the answer to a request with scores of three labels."""
    given = Given(*read_logits(PROBABILITIES, "probabilities", (24, 36)), "scores.npy", "probabilities")
    session = Session(Picture(two_halves(), "own.png", bundled=False), uploaded=given)
    request = Request.of({"scores": "file", "num_labels": 3, "compare": [], **asked})
    list(answer(session, request, lambda: False))
    return session


def test_the_page_starts_from_the_settings_of_refine():
    expected = fwcrf.refine(two_halves(), PROBABILITIES)
    assert np.array_equal(solved().result.labels, expected)
    assert (expected != PROBABILITIES.argmax(-1)).any()


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_that_of_refine_and_within_the_bounds(name):
    controls = presets.controls(name)
    request = Request.of({"preset": name, **json.loads(json.dumps(controls))})
    assert request == Request.of({"preset": name})
    for bound, (low, high) in BOUNDS.items():
        kernel, _, part = bound.rpartition(".")
        value = controls.get(kernel, controls).get(part, low)
        assert low <= value <= high
    expected = fwcrf.refine(two_halves(), PROBABILITIES, **presets.PRESETS[name])
    assert np.array_equal(solved(preset=name).result.labels, expected)


def test_settings_without_a_control_are_the_presets(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "odd": ODD})
    result = solved(preset="odd").result
    assert np.array_equal(result.labels, fwcrf.refine(two_halves(), PROBABILITIES, **ODD))
    for name, value in (("compatibility", 1.0), ("self_edges", False)):  # each of them matters
        other = fwcrf.refine(two_halves(), PROBABILITIES, **{**ODD, name: value})
        assert not np.array_equal(result.labels, other)
    # With another value of a control, too; and the program has all of them.
    result = solved(preset="odd", num_steps=5).result
    assert np.array_equal(result.labels, fwcrf.refine(two_halves(), PROBABILITIES, **{**ODD, "num_steps": 5}))
    monkeypatch.chdir(tmp_path)
    Path("own.png").write_bytes(png(two_halves()))
    np.save("scores.npy", PROBABILITIES)
    Path("program.py").write_text(snippet(result))
    assert np.array_equal(runpy.run_path("program.py")["labels"], result.labels)


def test_a_kernel_that_a_preset_does_not_have_has_weight_0(monkeypatch):
    monkeypatch.setattr(presets, "PRESETS", {"default": {"kernels": [Bilateral(50, 9)]}})
    assert presets.controls("default")["spatial"]["weight"] == 0
    assert np.array_equal(
        solved().result.labels, fwcrf.refine(two_halves(), PROBABILITIES, kernels=[Bilateral(50, 9)])
    )


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ({"rounding": "bcd"}, "has rounding; expected"),
        ({"kernels": (Spatial(), Spatial())}, "expected one spatial"),
        ({"kernels": (Gaussian(),)}, "expected one spatial"),
        ({"compatibility": [1.0, 2.0]}, "expected a number"),
        ({"solver": solvers.get("l2fw", step=0.5)}, "not on the page"),
        ({"solver": "cmf1"}, "not on the page"),
    ],
)
def test_a_preset_that_the_page_cannot_show_is_refused(monkeypatch, preset, message):
    monkeypatch.setattr(presets, "PRESETS", {"default": {"kernels": (Spatial(), Bilateral()), **preset}})
    with pytest.raises(ValueError, match=message):
        presets.controls("default")

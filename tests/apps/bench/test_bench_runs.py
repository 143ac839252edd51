"""Tiny real runs: every part measures something, and what it says can be stored, compared and drawn."""

import json

import numpy as np
import pytest
import torch

from fwcrf.apps.bench import (
    anneal,
    bandwidth,
    energy,
    inference,
    others,
    peer,
    peers,
    pictures,
    plots,
    points,
    report,
    sizes,
)
from fwcrf.apps.bench.timing import Plan
from fwcrf.kernels.kernel import MOST_ERROR

TINY = Plan(rounds=1, threads=(1,), quick=True)


@pytest.fixture
def small(monkeypatch):
    """Pictures of 40 x 30 pixels, whatever is asked for."""
    monkeypatch.setattr(pictures, "WIDTH", 40)
    monkeypatch.setattr(pictures, "HEIGHT", 30)
    monkeypatch.setattr(pictures, "names", lambda most=None: ["chelsea", "coffee", "rocket"][:most])
    photograph = pictures.photograph
    monkeypatch.setattr(pictures, "named", lambda name, *size: pictures.resized(photograph(name), 40, 30))
    monkeypatch.setattr(pictures, "network_scores", lambda name: pictures.scores(pictures.named(name), 21))
    monkeypatch.setattr(bandwidth, "FLOATS", 1 << 16)


def test_inference(small, capsys):
    times, rows = inference.ordinary(TINY)
    assert {row.what.split(",")[0] for row in rows} == {
        "5 steps of mf", "10 steps of mf", "5 steps of l2fw", "10 steps of l2fw",
        "10 steps of l2fw against our mf",
    }  # fmt: skip
    assert all(spread.min > 0 for row in rows for spread in row.ours.values())
    share = inference.of_bandwidth({key: [10.0 if "10" in key[1] else 5.0] for key in times}, TINY)
    n = 40 * 30
    moved = 12 * n * inference.LABELS + 48 * n
    assert share["mf", 1]["GB/s"] == pytest.approx(moved / 1e9)  # a step takes a second


def test_other_libraries_and_sizes(small, capsys):
    (row,) = others.run(TINY)["rows"]
    assert "plain torch (stand-in)" in row.theirs and "pydensecrf" not in row.theirs
    works = sizes._volume(8, 3), sizes._batch(pictures.named("coffee"), 3, 2)
    for each in works:
        (row,) = sizes.compared("coffee", "work", each, TINY)
        assert {*row.theirs} == ({"pydensecrf"} if peer.dcrf else set())
        assert row.ours["coffee"].min > 0


def test_peers_answer_with_probabilities(small):
    image = pictures.named("coffee")
    unary = -pictures.scores(image, 4).reshape(4, -1)
    for name, each in peers.available().items():
        answer = each.inference(image, unary, 2)()
        found = np.asarray(answer, dtype=float).reshape(-1)
        assert found.size == unary.size and np.isfinite(found).all(), name
    labels, x = peers.ours(image, unary, 2, "l2fw")()
    assert labels.shape == (1, 30, 40) and x.shape == (1, 4, 30, 40)


def test_the_stand_in_agrees_with_us(small):
    """It is the same model, but that its spatial kernel is on a lattice too."""
    image = pictures.named("coffee")
    unary = -pictures.scores(image, 4).reshape(4, -1)
    theirs = peers.available()["plain torch (stand-in)"].inference(image, unary, 5)()
    labels, _ = peers.ours(image, unary, 5)()
    agreement = (theirs.argmax(-1) == labels.flatten()).float().mean()
    assert agreement > 0.95


def test_energy_against_time(small, monkeypatch, tmp_path, capsys):
    image = pictures.named("coffee")
    scene = anneal.Scene("coffee", image, torch.from_numpy(pictures.scores(image, 3)))
    monkeypatch.setattr(energy, "scenes", lambda plan: [scene])
    monkeypatch.setattr(energy, "QUICK", ("mf", "l2fw", "fw"))
    results = energy.run(TINY)
    one = results["curves"]["1, 1"]["coffee"]
    assert one["best"] <= one["start"]
    for solver, curve in one["curves"].items():
        _, seconds, energies = zip(*curve, strict=True)
        assert list(seconds) == sorted(seconds) or solver == "anneal-fw"
        assert min(energies) >= one["best"]
    assert [k for k, _, _ in one["curves"]["anneal-fw"]] == list(energy.PLANNED[1])
    (path,) = plots.drawn("energy", results, tmp_path)
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_reached_is_the_first_time_within_the_bound():
    curve = [(0, 1.0, 100.0), (1, 2.0, 1.01), (2, 4.0, 0.99), (3, 8.0, 0.0)]
    one = {"start": 100.0, "best": 0.0, "unit": 2.0, "curves": {"a": curve, "b": curve[:2]}}
    assert energy.reached(one, "a") == (2.0, 2)
    assert energy.reached(one, "b") is None
    assert energy.lines({"x": one})[0][:4] == ["a", "2.000", "2", "1 of 1"]
    assert energy.lines({"x": one})[1][1] == "never"


def test_growth_is_drawn(tmp_path):
    size = {"build, ns": 1.0, "filter, ns": 2.0, "5 steps of mf, ns": 3.0}
    results = {
        "per pixel": {"100 x 75": size, "200 x 150": size},
        "milliseconds by channels": {2: 1.0, 4: 2.0},
        "milliseconds by threads": {1: 2.0, 2: 1.0},
    }
    (path,) = plots.drawn("scaling", results, tmp_path)
    assert path.stat().st_size > 10_000
    assert plots.drawn("speed", {}, tmp_path) == []


def test_program(small, tmp_path, monkeypatch, fwcrf_command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "cores_at_hand", lambda: 1.0)
    status, out, err = fwcrf_command(
        "bench", "bandwidth", "dropin", "--quick", "--rounds", 1, "--store", "r.json"
    )
    assert (status, err) == (0, "")
    assert "drop-in, 10 steps" in out
    stored = json.loads((tmp_path / "bench-results" / "dropin.json").read_text())
    assert {row["threads"] for row in stored["results"]["rows"]} == {1, 2}
    assert stored["results"]["cores at hand"] == [1.0, 1.0]


def test_stand_in_volume_and_scores():
    volume = pictures.volume(12)
    assert volume.shape == (12, 12, 12) and volume.dtype == np.float32
    assert 0 <= volume.min() < volume.max() <= 255
    scores = pictures.scores(np.zeros((20, 30, 3), np.uint8), 5)
    assert scores.shape == (5, 20, 30) and np.isfinite(scores).all()


def test_points_are_measured_by_spread_and_size(monkeypatch, capsys):
    monkeypatch.setattr(points, "ERRORS", [(3, 1000)])
    monkeypatch.setattr(points, "SPREADS", {"few neighbours": lambda u: 8 * u})
    monkeypatch.setattr(points, "SIZES", (20, 40))
    monkeypatch.setattr(points, "DIMENSIONS", (2,))
    results = points.run(TINY)
    (dense,), (sparse,) = results["errors by size"].values(), results["errors by spread"].values()
    assert dense["symmetric"] < 0.2 < 0.4 < sparse["symmetric"]
    assert dense["warned"] < MOST_ERROR < sparse["warned"] and sparse["neighbours"] < 1 < dense["neighbours"]
    assert dense["warned"] > dense["symmetric"]  # it is the error for values of random sign, which is larger
    assert all(len(each) == 2 for each in results["exact over lattice"].values())
    assert "few neighbours" in capsys.readouterr().out

"""Tiny real runs: every part measures something, and what it says can be stored, compared and drawn."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from fwcrf.apps.bench import (
    anneal,
    bandwidth,
    energy,
    graph_map,
    inference,
    others,
    peer,
    peers,
    photographs,
    pictures,
    plots,
    points,
    report,
    sizes,
)
from fwcrf.apps.bench import small as small_images
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
    monkeypatch.setattr(
        pictures, "network_scores", lambda name, *size: pictures.scores(pictures.named(name), 21)
    )
    monkeypatch.setattr(bandwidth, "FLOATS", 1 << 16)


def test_inference(small, capsys):
    _, rows = inference.ordinary(TINY)
    assert {row.what.split(",")[0] for row in rows} == {
        "5 steps of mf", "10 steps of mf", "5 steps of l2fw", "10 steps of l2fw",
        "at most 50 steps of l2fw", "10 steps of l2fw against our mf",
    }  # fmt: skip
    assert all(spread.min > 0 for row in rows for spread in row.ours.values())
    times = inference.steps_of(TINY)
    assert {name for _, name, _ in times} == {"mf 1", "mf 2", "l2fw 1", "l2fw 2"}
    share = inference.of_bandwidth({key: [float(key[1].split()[1])] for key in times}, TINY)
    n = 40 * 30
    moved = 12 * n * inference.LABELS + 48 * n
    assert share["mf", 1]["GB/s"] == pytest.approx(moved / 1e9)  # a step takes a second


def test_photographs(small, monkeypatch, capsys):
    monkeypatch.setattr(pictures, "at_random", lambda count, seed: ["chelsea", "coffee"])
    if peer.dcrf is None:
        plain = peers.available()["plain torch (stand-in)"]
        monkeypatch.setattr(peers, "available", lambda: {"pydensecrf": plain})
    ratios = photographs.run(TINY)["ratios"]
    assert len(ratios) == 3 and all({*each} == {"chelsea", "coffee"} for each in ratios.values())
    assert min(v for each in ratios.values() for v in each.values()) > 0
    assert capsys.readouterr().out.count("; 1 thread ") == 3
    assert photographs.spread([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, 2.0, 4.0, 1.0, 5.0)


def test_scores_of_a_photograph_have_its_own_size(tmp_path, monkeypatch):
    """Upright photographs too; the grid of a network's scores covers a few pixels more."""
    monkeypatch.setenv("FWCRF_DATA", str(tmp_path))
    images, logits = (tmp_path / "voc2012" / "val" / name for name in ("images", "logits_deeplabv3"))
    images.mkdir(parents=True)
    logits.mkdir()
    Image.new("RGB", (30, 40)).save(images / "upright.jpg")
    np.savez(logits / "upright.npz", logits=np.arange(21 * 6 * 5, dtype=np.float16).reshape(21, 6, 5))
    assert pictures.size("upright") == (30, 40)
    assert pictures.named("upright", 30, 40).shape == (40, 30, 3)
    found = pictures.network_scores("upright", 30, 40)
    assert found.shape == (21, 40, 30)
    assert found[0, 8, 16] == 7 and found[20, 39, 0] == 20 * 30 + 5 * 39 / 8
    assert pictures.network_scores("upright", 60, 80).shape == (21, 80, 60)


def test_other_libraries_and_sizes(small, capsys):
    (row,) = others.run(TINY)["rows"]
    assert "plain torch (stand-in)" in row.theirs and "pydensecrf" not in row.theirs
    works = sizes._volume(8, 3), sizes._batch(pictures.named("coffee"), 3, 2)
    for each in works:
        rows = sizes.compared("coffee", "volume 8^3", each, TINY)
        assert [row.what for row in rows] == [f"10 steps of {s}, volume 8^3" for s in ("mf", "l2fw")]
        assert {row.target for row in rows} == {8.0}
        for row in rows:
            assert {*row.theirs} == ({"pydensecrf"} if peer.dcrf else set())
            assert row.ours["coffee"].min > 0


def test_small_images(monkeypatch, capsys):
    monkeypatch.setattr(small_images, "CALLS", 1)
    rows = small_images.run(TINY.alone())["rows"]
    assert [row.what for row in rows][::3] == ["8 x 8, 3 labels", "32 x 32, 21 labels"]
    assert all(row.threads == 1 and row.ours[""].min > 0 for row in rows)


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
    assert [*one["seconds"]["l2fw"]] == [0, *energy.TIMED, *energy.LONG]
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


def test_labels_of_graphs(monkeypatch, capsys):
    """Our methods on small models of each kind, and the cells of the table."""
    models = [("glass", graph_map.spin_glass(6, 0), None), ("potts", graph_map.potts(6, 2, 0.5), None)]
    models += [("stereo", graph_map.stereo(6, 8, 5), None), ("chains", graph_map.side_chains(9, 0), None)]
    monkeypatch.setattr(graph_map, "instances", lambda quick: iter(models))
    ours = {name: call for name, call in graph_map.METHODS.items() if name not in ("toulbar2", "PyMaxflow")}
    monkeypatch.setattr(graph_map, "METHODS", ours)
    found = graph_map.run(TINY)["instances"]
    assert list(found) == ["glass", "potts", "stereo", "chains"]
    for each in found.values():
        assert each["default"]["proven"] and each["default"]["energy"] == pytest.approx(each["best"])
        assert all(each[method]["energy"] >= each["best"] - 1e-9 for method in ours)
        assert each["lp-trws"]["bound"] <= each["best"] + 1e-9
    assert "| glass" in capsys.readouterr().out
    assert graph_map.cell(None, 1.0) == ""
    assert graph_map.cell(graph_map.Found(-9.0, None, True, 0.25), -10.0) == "10.000*, 0.250 s"

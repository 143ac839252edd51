"""Tiles cover the grid, keep to the memory, and leave no seams."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refine_scenes import KERNELS, photograph, probabilities

import fwcrf
from fwcrf.inputs.tiles import cover, fitted, plan_tiles
from fwcrf.kernels import Bilateral, Gaussian, Spatial


@st.composite
def covers(draw):
    dims = draw(st.integers(1, 3))
    numbers = lambda least: draw(st.lists(st.integers(least, 25), min_size=dims, max_size=dims))  # noqa: E731
    return numbers(1), numbers(1), numbers(0)


@given(covers())
def test_cores_partition_the_grid_and_windows_reach_beyond_them(drawn):
    grid, tile, overlap = drawn
    seen = np.zeros(grid, int)
    tiles = cover(grid, tile, overlap)
    for t in tiles:
        seen[t.core] += 1
        inside = np.zeros(grid, bool)
        inside[t.core] = True
        assert inside[t.window][t.inner].all() and inside[t.window].sum() == inside.sum()
        for c, w, size, most, reach in zip(t.core, t.window, grid, tile, overlap, strict=True):
            assert c.stop - c.start <= most
            assert (w.start, w.stop) == (max(0, c.start - reach), min(size, c.stop + reach))
    assert (seen == 1).all()
    for axis in range(len(grid)):
        lengths = {t.core[axis].stop - t.core[axis].start for t in tiles}
        assert max(lengths) - min(lengths) <= 1


@given(covers(), st.integers(1, 5000))
def test_fitted_tiles_keep_to_the_bound_or_are_as_small_as_is_reasonable(drawn, pixels):
    grid, _, overlap = drawn
    size = fitted(grid, overlap, pixels)
    largest = max(np.prod(t.shape) for t in cover(grid, size, overlap))
    if np.prod(grid) <= pixels:
        assert size == tuple(grid)
    if largest > pixels:
        assert all(s <= 2 * max(1, o) for s, o in zip(size, overlap, strict=True))
    assert all(s >= min(g, o) for s, g, o in zip(size, grid, overlap, strict=True))


def test_a_batch_is_split_before_an_image_is_cut():
    settings = dict(tile=None, overlap=(2, 2), bytes_per_pixel=1.0)
    whole = (slice(0, 10), slice(0, 10))
    parts = plan_tiles((10, 10), 5, memory=250, **settings)
    assert [(images.start, images.stop) for images, _ in parts] == [(0, 2), (2, 4), (4, 5)]
    assert all(t.window == whole for _, t in parts)
    parts = plan_tiles((10, 10), 2, memory=70, **settings)
    assert len(parts) > 2 and all(np.prod(t.shape) <= 70 for _, t in parts)
    assert {(images.start, images.stop) for images, _ in parts} == {(0, 1), (1, 2)}


def test_windows_of_a_huge_image_are_within_the_bound():
    parts = plan_tiles((30000, 30000), 1, tile=None, overlap=(240, 240), memory=2**30, bytes_per_pixel=600.0)
    assert max(np.prod(t.shape) for _, t in parts) * 600 <= 2**30
    assert len(parts) < 1500
    assert sum(np.prod(t.shape) for _, t in parts) < 2.5 * 30000**2


def test_batches_in_parts_are_batches():
    image = np.stack([photograph(9, 13, seed=s) for s in range(3)])
    p = np.stack([probabilities(9, 13, seed=s) for s in range(3)])
    whole = fwcrf.refine(image, p, kernels=KERNELS)
    calls = []
    parts = fwcrf.refine(image, p, kernels=KERNELS, memory=180_000, progress=lambda k, n: calls.append(n))
    np.testing.assert_array_equal(parts, whole)
    assert calls == [2, 2]


# --- seams --------------------------------------------------------------------------------------


def astronaut():
    """A photograph with the scores of a colour model that sees blocks."""
    from skimage import data

    image = data.astronaut()
    blocks = image.reshape(64, 8, 64, 8, 3).mean((1, 3))
    centres = np.array([[20, 20, 25], [210, 205, 200], [190, 110, 80], [170, 80, 40]])
    distance = ((blocks[..., None, :] - centres) ** 2).sum(-1)
    logits = -distance / (2 * 60.0**2)
    return image, np.repeat(np.repeat(logits, 8, 0), 8, 1).astype(np.float32)


def label_edges(labels, cuts):
    """Neighbours of different labels on either side of a cut, along both axes."""
    return sum(
        int((np.take(labels, cut, axis) != np.take(labels, cut - 1, axis)).sum())
        for axis, cut in itertools.product((0, 1), cuts)
    )


@pytest.mark.parametrize(("weight", "agreement"), [(1.0, 0.9995), (5.0, 0.9985)])
def test_tiles_leave_no_seams(weight, agreement):
    image, logits = astronaut()
    settings = dict(from_logits=True, kernels=[Spatial(3.0), Bilateral(15.0, 13.0, weight=weight)])
    whole = fwcrf.refine(image, logits, **settings)
    tiled = fwcrf.refine(image, logits, tile=128, **settings)
    changed = (whole != logits.argmax(-1)).mean()
    assert changed > 0.05
    assert (whole == tiled).mean() > agreement
    cuts = (128, 256, 384)
    there, elsewhere = label_edges(tiled, cuts), label_edges(whole, cuts)
    assert there <= elsewhere + 0.004 * 6 * 512
    # Without an overlap there is something to see, so that the test can fail.
    apart = fwcrf.refine(image, logits, tile=128, overlap=0, **settings)
    assert (whole == apart).mean() < 0.993
    assert label_edges(apart, cuts) > elsewhere + 0.05 * 6 * 512


def test_windows_share_the_lattice_of_the_whole():
    """Far from its border, a window's operator acts as that of the image does."""
    image, _ = astronaut()
    bilateral = Bilateral(8.0, 13.0)
    whole = bilateral.operator(image[:200, :200])
    x = np.random.default_rng(0).random((200, 200, 1)).astype(np.float32)
    expected = whole(torch.from_numpy(x).view(-1, 1)).view(200, 200)[80:120, 80:120]
    window = slice(37, 163)
    part = torch.from_numpy(np.ascontiguousarray(x[window, window])).view(-1, 1)

    def error(**place):
        K = bilateral.operator(np.ascontiguousarray(image[window, window]), **place)
        found = K(part).view(126, 126)[43:83, 43:83]
        return float((found - expected).norm() / expected.norm())

    assert error(origin=(37, 37)) < 1e-3
    assert error() > 5e-3


# --- memory -------------------------------------------------------------------------------------


MEASURED = """
import json, sys
from pathlib import Path
import numpy as np, torch
from skimage import data
import fwcrf
from fwcrf.kernels import Bilateral, Spatial
folder = Path(sys.argv[1])
torch.set_num_threads(1)
kernels = [Spatial(2), Bilateral(12, 13)]
image, p = (np.load(folder / name, mmap_mode="r") for name in ("image.npy", "p.npy"))
fwcrf.refine(np.asarray(image[:64, :64]), np.asarray(p[:64, :64]), kernels=kernels, num_steps=2)
out = np.lib.format.open_memmap(folder / "out.npy", "w+", np.uint8, image.shape[:2])
parts = []
def anonymous(what):  # pages of the files do not count: they can be dropped at any time
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[what].split()[0])
before = anonymous("RssAnon")
highest = before
def watch(K):
    def call(self, *given, **more):
        global highest
        highest = max(highest, anonymous("RssAnon"))
        answer = K(self, *given, **more)
        highest = max(highest, anonymous("RssAnon"))
        return answer
    return call
from fwcrf.engine.model import Model
Model.apply, Model.run = watch(Model.apply), watch(Model.run)
fwcrf.refine(image, p, kernels=kernels, num_steps=2, memory=int(sys.argv[2]), out=out,
             progress=lambda k, n: parts.append(n))
print(json.dumps([highest - before, parts[0], int(out.max())]))
"""


@pytest.mark.linux
def test_memory_stays_within_the_bound(tmp_path):
    from skimage import data

    image = np.tile(data.astronaut(), (2, 2, 1))
    np.save(tmp_path / "image.npy", image)
    dark = image.mean(-1, keepdims=True, dtype=np.float32) < 110
    np.save(tmp_path / "p.npy", np.where(np.concatenate([dark, ~dark], -1), 0.7, 0.3).astype(np.float16))
    memory = 50_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path, str(memory)], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    grown, parts, most = json.loads(done.stdout)
    assert parts >= 16 and most == 1
    assert 0.2 * memory < grown < memory


# --- what is refused ----------------------------------------------------------------------------

IMAGE, P = photograph(30, 40), probabilities(30, 40)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tile": 0}, r"tile=0; expected a number of pixels, at least 1, or 2 of them"),
        ({"tile": (5, 5, 5)}, r"tile=\(5, 5, 5\); expected"),
        ({"tile": 5.5}, r"tile=5\.5; expected"),
        ({"tile": True}, r"tile=True; expected"),
        ({"overlap": -1}, r"overlap=-1; expected a number of pixels, at least 0"),
        ({"memory": 0}, r"memory=0; expected a positive number"),
        ({"memory": 1000}, r"memory=1000 is too little for tiles as large as their overlap, \(16, 16\)"),
        ({"tile": 10, "kernels": [Gaussian()]}, r"a kernel without position bandwidths .*overlap="),
    ],
)
def test_bad_tiles(settings, message):
    settings = {"kernels": KERNELS, **settings}
    with pytest.raises(ValueError, match=message):
        fwcrf.refine(IMAGE, P, **settings)


def test_a_tile_that_is_no_number():
    with pytest.raises(TypeError, match=r"tile='auto'; expected a number of pixels"):
        fwcrf.refine(IMAGE, P, kernels=KERNELS, tile="auto")


def test_the_default_bound_is_exceeded_rather_than_refused(monkeypatch):
    monkeypatch.setattr("fwcrf.refinement.MEMORY", 1000)
    parts = []
    fwcrf.refine(IMAGE, P, kernels=KERNELS, progress=lambda k, n: parts.append(n))
    assert parts == [2, 2]

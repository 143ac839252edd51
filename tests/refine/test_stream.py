"""Frames of a video: the labels of ``refine``, unless a tie to the frame before is asked for."""

import numpy as np
import pytest
import torch
from refine_scenes import photograph, probabilities

import fwcrf
from fwcrf.kernels import Bilateral, Gaussian, Spatial

H, W, L = 18, 24, 3


def frames(count, shape=(H, W)):
    """Different photographs and scores."""
    return [(photograph(*shape, seed=k), probabilities(*shape, seed=k)) for k in range(count)]


@pytest.mark.parametrize("options", [{}, {"tile": 10, "overlap": 4}, {"return_probabilities": True}])
def test_frame_by_frame_it_is_refine(options):
    stream = fwcrf.Stream(**options)
    for image, p in [*frames(3), *frames(2, (12, 20))]:
        found, expected = stream(image, p), fwcrf.refine(image, p, **options)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert stream.count == 2 and stream.probabilities is None  # the size has changed


def test_an_equal_frame_keeps_its_lattice_and_a_changed_one_does_not():
    """Even if the frames lie in the same memory, as those of a camera do."""
    buffer, scores = torch.from_numpy(photograph(H, W)).movedim(-1, 0).float(), probabilities(H, W)
    scores = torch.from_numpy(scores).movedim(-1, 0)
    stream, kept = fwcrf.Stream(), []
    for change in (0, 0, 50, 50, 50):
        buffer[:, 3, 4] = change
        scores = scores.roll(1, 1)
        assert torch.equal(stream(buffer, scores), fwcrf.refine(buffer, scores))
        kept.append(stream.kept_lattices)
    assert kept == [0, 1, 1, 2, 3]
    assert torch.equal(
        stream(buffer, scores, compatibility=2.0), fwcrf.refine(buffer, scores, compatibility=2.0)
    )
    assert stream.kept_lattices == 3


def test_the_tie_is_an_edge_to_the_frame_before():
    """The answer for logits plus weight times the probabilities before, where colours are the same."""
    color, weight = 30.0, 1.5
    options = {"balance": 0, "return_probabilities": True}
    stream = fwcrf.Stream(coherence=weight, color=color, **options)
    before, likely, differ = None, None, 0
    for image, p in frames(4):
        image = (100 + 0.1 * image).astype(np.uint8)
        logits = np.log(p)
        if before is not None:
            distance = ((image.astype(np.float32) - before) ** 2).sum(-1, keepdims=True) / color**2
            similar = np.exp(-distance / 2)
            logits = logits + weight * similar * likely
        labels, found = stream(image, p)
        _, likely = fwcrf.refine(image, logits, from_logits=True, **options)
        np.testing.assert_allclose(found, likely, atol=2e-4)
        np.testing.assert_array_equal(labels, found.argmax(-1))
        if before is not None:
            assert stream.similarity == pytest.approx(similar.mean(), rel=1e-4)
            differ += (labels != fwcrf.refine(image, p, balance=0)).sum()
        before = image.astype(np.float32)
        np.testing.assert_array_equal(stream.probabilities.numpy(), found)
    assert stream.count == 4 and differ > 20


@pytest.mark.parametrize("tile", [False, 10])
@pytest.mark.parametrize("batch", [False, True])
def test_tiles_and_batches_are_tied_too(tile, batch):
    each = frames(3)
    options = {"tile": tile, "overlap": 12, "coherence": 1.0, "cut": 0.0, "color": 60.0}
    streams, both = [fwcrf.Stream(**options) for _ in range(2)], fwcrf.Stream(**options)
    for k in range(3):
        alone = [stream(*each[(k + shift) % 3]) for shift, stream in enumerate(streams)]
        if batch:
            pairs = zip(each[k], each[(k + 1) % 3], strict=True)
            np.testing.assert_array_equal(both(*(np.stack(pair) for pair in pairs)), np.stack(alone))
        else:
            plain = fwcrf.refine(*each[k], tile=tile, overlap=12)
            assert k == 0 or (alone[0] != plain).any()


def test_flicker_becomes_less_and_the_object_that_leaves_is_gone():
    """Noise in the scores of a still scene; then the object moves away, and leaves no trace."""
    random = np.random.default_rng(0)
    still, gone = np.full((30, 40, 3), 60, np.uint8), np.full((30, 40, 3), 60, np.uint8)
    still[8:20, 10:24] = 180
    labels = {}
    for coherence in (0.0, 1.5):
        stream, found, random = fwcrf.Stream(coherence=coherence), [], np.random.default_rng(0)
        for image in [still] * 8 + [gone] * 2:
            truth = image[..., 0] == 180
            noise = np.repeat(np.repeat(random.normal(0, 1.4, (3, 4)), 10, 0), 10, 1)
            z = 1.2 * (truth - 0.5) + noise
            found.append(stream(image, np.stack([np.zeros_like(z), z], -1), from_logits=True))
        labels[coherence] = np.stack(found)
    flicker = {c: (x[1:8] != x[:7]).mean() for c, x in labels.items()}
    assert flicker[1.5] < 0.6 * flicker[0.0]
    assert (labels[1.5][-1][8:20, 10:24] == labels[0.0][-1][8:20, 10:24]).mean() > 0.9


def test_a_cut_a_new_size_and_reset_forget():
    image, p = frames(1)[0]
    other = 255 - image
    stream = fwcrf.Stream(coherence=2.0)
    stream(image, p)
    np.testing.assert_array_equal(stream(other, p), fwcrf.refine(other, p))
    assert stream.count == 1 and stream.similarity < 0.1  # a cut
    stream(other, p)
    assert stream.count == 2 and stream.similarity == 1
    stream(other[:10], p[:10])
    assert stream.count == 1 and tuple(stream.probabilities.shape) == (10, W, L)
    stream.reset()
    assert stream.count == 0 and stream.probabilities is None and stream.similarity is None
    np.testing.assert_array_equal(stream(image, p), fwcrf.refine(image, p))


def test_a_warm_start_is_the_start_of_minimize():
    stream = fwcrf.Stream(start="previous", num_steps=2, preset="paper", return_probabilities=True)
    long = fwcrf.refine(*frames(1)[0], preset="paper", num_steps=40, return_probabilities=True)
    image, p = frames(1)[0]
    for _ in range(20):
        labels, likely = stream(image, p)
    np.testing.assert_array_equal(labels, long[0])
    np.testing.assert_allclose(likely, long[1], atol=1e-3)
    assert stream.kept_lattices == 19


def test_masks_and_scribbles_of_a_frame():
    (image, p), (_, q) = frames(2)
    image = (100 + 0.1 * image).astype(np.uint8)
    ignore, scribbles = np.zeros((H, W), bool), np.full((H, W), -1)
    ignore[:4], scribbles[6:9, 5:9] = True, 2
    q[:2] = np.nan
    stream = fwcrf.Stream(coherence=3.0)
    stream(image, p)
    found = stream(image, q, ignore=ignore, scribbles=scribbles)
    plain = fwcrf.refine(image, q, ignore=ignore, scribbles=scribbles)
    np.testing.assert_array_equal(found[:4], plain[:4])
    assert (found[6:9, 5:9] == 2).all() and (found != plain).any()


def test_a_frame_that_fails_is_forgotten():
    (image, p), (other, q) = frames(2)
    stream, same = (fwcrf.Stream(coherence=1.0, color=100.0) for _ in range(2))
    stream(image, p), same(image, p)
    with pytest.raises(ValueError, match="NaN"):
        stream(other, np.full_like(q, np.nan))
    np.testing.assert_array_equal(stream(other, q), same(other, q))
    assert stream.count == 2


def test_mistakes_are_named():
    with pytest.raises(TypeError, match=r"coherance= is no argument of fwcrf\.refine; expected preset,"):
        fwcrf.Stream(coherance=1.0)
    with pytest.raises(ValueError, match="expected 'scores' or 'previous'"):
        fwcrf.Stream(start="labels")
    with pytest.raises(ValueError, match="coherence=-1; expected 0 or more"):
        fwcrf.Stream(coherence=-1)
    image, p = frames(1)[0]
    with pytest.raises(ValueError, match=r"no kernel has a bandwidth of colours; expected color="):
        fwcrf.Stream(coherence=1.0, kernels=[Spatial(2.0), Gaussian()])(image, p)
    fwcrf.Stream(coherence=1.0, kernels=[Spatial(2.0), Bilateral(5.0, 20.0)])(image, p)

"""``out=`` and the inputs of ``refine`` in the same memory."""

import numpy as np
import pytest
import torch
from refine_scenes import photograph, probabilities

import fwcrf

TILES = {"tile": 8, "overlap": 2}
IMAGE, P = photograph(16, 20), probabilities(16, 20)
LABELS = P.argmax(-1)


def test_labels_written_over_the_labels_that_were_given():
    given = LABELS.copy()
    expected = fwcrf.refine(IMAGE, LABELS, from_labels=True, tile=False)
    fwcrf.refine(IMAGE, given, from_labels=True, tile=False, out=given)
    assert np.array_equal(given, expected)


def test_tiles_refuse_to_write_over_labels_that_later_tiles_read():
    given = LABELS.copy()
    with pytest.raises(ValueError, match=r"out shares memory with the label map.*copy"):
        fwcrf.refine(IMAGE, given, from_labels=True, out=given, **TILES)
    assert np.array_equal(given, LABELS)
    expected = fwcrf.refine(IMAGE, LABELS, from_labels=True, **TILES)
    assert np.array_equal(fwcrf.refine(IMAGE, LABELS, from_labels=True, out=given, **TILES), expected)


def test_a_view_of_the_probabilities_as_out_is_refused():
    p = np.ascontiguousarray(P)
    both = np.empty(P.shape[:2], np.int64), p[::1]
    with pytest.raises(ValueError, match=r"out\[1\] shares memory with probabilities"):
        fwcrf.refine(IMAGE, p, out=both, return_probabilities=True, **TILES)


def test_tensors_over_the_memory_of_arrays_are_seen():
    scribbles = np.full(P.shape[:2], -1)
    image, p = (torch.from_numpy(np.moveaxis(a, -1, 0).copy()) for a in (IMAGE, P))
    with pytest.raises(ValueError, match="out shares memory with scribbles"):
        fwcrf.refine(image, p, scribbles=scribbles, out=torch.from_numpy(scribbles), **TILES)


def test_a_file_that_is_mapped_twice_is_one_memory(tmp_path):
    path = tmp_path / "labels.npy"
    np.save(path, LABELS)
    given, out = np.load(path, mmap_mode="r"), np.load(path, mmap_mode="r+")
    with pytest.raises(ValueError, match="out shares memory with the label map"):
        fwcrf.refine(IMAGE, given, from_labels=True, out=out, **TILES)


def test_other_parts_of_one_memory_are_taken():
    memory = np.empty((2, *LABELS.shape), np.int64)
    memory[0] = LABELS
    fwcrf.refine(IMAGE, memory[0], from_labels=True, out=memory[1], **TILES)
    assert np.array_equal(memory[0], LABELS)


def test_labels_and_probabilities_in_one_memory_are_refused():
    memory = np.empty(P.shape, np.float32)
    labels = memory.reshape(-1)[: LABELS.size * 2].view(np.int64).reshape(LABELS.shape)
    with pytest.raises(ValueError, match=r"out\[0\] and out\[1\] share memory"):
        fwcrf.refine(IMAGE, P, out=(labels, memory), return_probabilities=True)

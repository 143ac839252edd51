"""What pydensecrf refuses is refused by the same exception, with a remedy; so is what crashes it."""

from importlib.util import find_spec

import numpy as np
import pytest

from fwcrf.pydensecrf import densecrf, eigen, utils

F32 = np.float32
IMAGE = np.zeros((2, 3, 3), np.uint8)
U = np.zeros((2, 6), F32)
FEATURES = np.random.default_rng(0).random((2, 6)).astype(F32)
LABELS = np.array([0, 1, 2, 1])


def crf(d):
    return d.DenseCRF2D(3, 2, 2)


# The call, the exception, a part of our message. Both libraries raise it.
REFUSED = {
    "no size": (lambda d, u, e: d.DenseCRF(4), TypeError, None),
    "size in an array": (lambda d, u, e: d.DenseCRF(np.array([4]), 2), TypeError, "an integer is required"),
    "size in words": (lambda d, u, e: d.DenseCRF("4", 2), TypeError, "an integer is required"),
    "no height": (lambda d, u, e: d.DenseCRF2D(3, 2), TypeError, None),
    "no steps": (lambda d, u, e: crf(d).inference(), TypeError, None),
    "steps in words": (lambda d, u, e: crf(d).inference("5"), TypeError, "an integer is required"),
    "no energies": (lambda d, u, e: crf(d).setUnaryEnergy(None), TypeError, "must not be None"),
    "a list": (lambda d, u, e: crf(d).setUnaryEnergy(U.tolist()), TypeError, "np.asarray"),
    "double": (lambda d, u, e: crf(d).setUnaryEnergy(U.astype(float)), ValueError, r"u.astype\(np.float32\)"),
    "half": (lambda d, u, e: crf(d).setUnaryEnergy(U.astype(np.float16)), ValueError, "astype"),
    "Fortran order": (
        lambda d, u, e: crf(d).setUnaryEnergy(np.asfortranarray(U)),
        ValueError,
        "ascontiguous",
    ),
    "every second": (
        lambda d, u, e: crf(d).setUnaryEnergy(np.zeros((2, 12), F32)[:, ::2]),
        ValueError,
        "contig",
    ),
    "labels last": (
        lambda d, u, e: crf(d).setUnaryEnergy(np.zeros((6, 2), F32)),
        ValueError,
        r"Need \(2, 6\)",
    ),
    "a map": (lambda d, u, e: crf(d).setUnaryEnergy(U.reshape(2, 2, 3)), ValueError, "expected 2, got 3"),
    "a matrix": (lambda d, u, e: crf(d).setUnaryEnergy(e.matrixXf(U)), ValueError, "contiguous"),
    "an array as Unary": (lambda d, u, e: crf(d).setUnary(U), TypeError, "setUnaryEnergy"),
    "no compat": (lambda d, u, e: crf(d).addPairwiseEnergy(FEATURES), TypeError, None),
    "double features": (
        lambda d, u, e: crf(d).addPairwiseEnergy(FEATURES.astype(float), 1),
        ValueError,
        "features.astype",
    ),
    "compat list": (
        lambda d, u, e: crf(d).addPairwiseGaussian(3, [1, 2]),
        TypeError,
        "compat must be a numpy array",
    ),
    "compat double": (lambda d, u, e: crf(d).addPairwiseGaussian(3, np.ones(2)), ValueError, "compat.astype"),
    "compat integers": (lambda d, u, e: crf(d).addPairwiseGaussian(3, np.ones(2, int)), ValueError, "astype"),
    "compat cube": (lambda d, u, e: crf(d).addPairwiseGaussian(3, np.ones((2, 2, 2), F32)), ValueError, ">2"),
    "compat complex": (lambda d, u, e: crf(d).addPairwiseGaussian(3, 1j), TypeError, "real number"),
    "one bandwidth of two": (lambda d, u, e: crf(d).addPairwiseGaussian((3,), 1), IndexError, None),
    "no bandwidth": (lambda d, u, e: crf(d).addPairwiseGaussian(None, 1), TypeError, None),
    "bandwidth in words": (lambda d, u, e: crf(d).addPairwiseGaussian("a", 1), TypeError, "real number"),
    "kernel in words": (lambda d, u, e: crf(d).addPairwiseGaussian(3, 1, kernel="a"), TypeError, "integer"),
    "mode in words": (
        lambda d, u, e: crf(d).addPairwiseGaussian(3, 1, normalization="a"),
        TypeError,
        "integer",
    ),
    "float image": (
        lambda d, u, e: crf(d).addPairwiseBilateral(3, 3, IMAGE.astype(F32), 1),
        ValueError,
        r"rgbim.astype\(np.uint8\)",
    ),
    "grey image": (lambda d, u, e: crf(d).addPairwiseBilateral(3, 3, IMAGE[..., 0], 1), ValueError, "got 2"),
    "four channels": (
        lambda d, u, e: crf(d).addPairwiseBilateral(3, 3, np.zeros((2, 3, 4), np.uint8), 1),
        ValueError,
        "create_pairwise_bilateral",
    ),
    "width first": (
        lambda d, u, e: crf(d).addPairwiseBilateral(3, 3, np.zeros((3, 2, 3), np.uint8), 1),
        ValueError,
        r"Need \(2, 3, 3\)",
    ),
    "two of three colours": (
        lambda d, u, e: crf(d).addPairwiseBilateral(3, (3, 3), IMAGE, 1),
        IndexError,
        None,
    ),
    "an array as Q": (lambda d, u, e: crf(d).klDivergence(np.ones((2, 6), F32)), TypeError, "MatrixXf"),
    "a step from an array": (
        lambda d, u, e: crf(d).stepInference(U, e.MatrixXf(), e.MatrixXf()),
        TypeError,
        "matrixXf",
    ),
    "a vector as matrix": (lambda d, u, e: e.matrixXf(U[0]), ValueError, "expected 2, got 1"),
    "certain labels": (lambda d, u, e: u.unary_from_labels(LABELS, 2, 1.0), AssertionError, "gt_prob"),
    "labels beyond the last": (lambda d, u, e: u.unary_from_labels(LABELS + 5, 2, 0.5), IndexError, None),
    "labels as floats": (lambda d, u, e: u.unary_from_labels(LABELS / 2, 2, 0.5), IndexError, None),
    "one label": (lambda d, u, e: u.unary_from_labels(LABELS, 1, 0.5), ZeroDivisionError, None),
    "scale 0": (lambda d, u, e: u.unary_from_softmax(U, scale=0), AssertionError, "scale"),
    "too many axes": (lambda d, u, e: u.create_pairwise_gaussian((1, 2, 3), (2, 3)), IndexError, None),
    "too many channels": (
        lambda d, u, e: u.create_pairwise_bilateral((1, 2), (1, 2, 3, 4), IMAGE, chdim=2),
        IndexError,
        None,
    ),
}


def nan(shape):
    return np.full(shape, np.nan, F32)


# What pydensecrf answers with memory that is not its own, with NaN, or by ending the process.
UNSOUND = {
    "a Unary": (lambda: crf(densecrf).setUnary(None), TypeError, "expected Unary"),
    "an abstract Unary": (lambda: crf(densecrf).setUnary(densecrf.Unary()), TypeError, "ConstUnary"),
    "a Unary of another size": (
        lambda: crf(densecrf).setUnary(densecrf.ConstUnary(np.zeros((2, 5), F32))),
        ValueError,
        r"Need \(2, 6\), got \(2, 5\)",
    ),
    "unequal k": (lambda: densecrf.LogisticUnary(U, U), ValueError, r"\(labels, k\)"),
    "features of other points": (
        lambda: crf(densecrf).addPairwiseEnergy(np.zeros((2, 5), F32), 1),
        ValueError,
        "one column for each of the 6 points",
    ),
    "no features": (
        lambda: crf(densecrf).addPairwiseEnergy(np.zeros((0, 6), F32), 1),
        ValueError,
        "1 to 256",
    ),
    "many features": (
        lambda: crf(densecrf).addPairwiseEnergy(np.zeros((257, 6), F32), 1),
        ValueError,
        "principal components",
    ),
    "features that are no numbers": (
        lambda: crf(densecrf).addPairwiseEnergy(nan((2, 6)), 1),
        ValueError,
        "NaN or infinite",
    ),
    "compat of other labels": (
        lambda: crf(densecrf).addPairwiseGaussian(3, np.ones(3, F32)),
        ValueError,
        "2 x 2 matrix",
    ),
    "compat of NaN": (lambda: crf(densecrf).addPairwiseGaussian(3, nan(2)), ValueError, "finite"),
    "NaN for a compat": (lambda: crf(densecrf).addPairwiseGaussian(3, float("nan")), ValueError, "finite"),
    "bandwidth 0": (lambda: crf(densecrf).addPairwiseGaussian((3, 0), 1), ValueError, "other than 0"),
    "colour bandwidth 0": (
        lambda: crf(densecrf).addPairwiseBilateral(3, 0, IMAGE, 1),
        ValueError,
        "other than 0",
    ),
    "NaN for a bandwidth": (
        lambda: crf(densecrf).addPairwiseGaussian(float("nan"), 1),
        ValueError,
        "expected a number",
    ),
    "NaN among many features": (
        lambda: crf(densecrf).addPairwiseEnergy(nan((17, 6)), 1),
        ValueError,
        "NaN or infinite for 6 of",
    ),
    "many features far away": (
        lambda: crf(densecrf).addPairwiseEnergy(np.full((17, 6), 1e30, F32), 1),
        ValueError,
        "no resolution",
    ),
    "another mode": (
        lambda: crf(densecrf).addPairwiseGaussian(3, 1, normalization=7),
        ValueError,
        "NormalizationType",
    ),
    "energies of NaN": (lambda: crf(densecrf).setUnaryEnergy(nan((2, 6))), ValueError, "NaN"),
    "all labels forbidden": (
        lambda: crf(densecrf).setUnaryEnergy(np.full((2, 6), np.inf, F32)),
        ValueError,
        "at least one",
    ),
    "no points": (lambda: densecrf.DenseCRF(0, 2), ValueError, "at least 1"),
    "fewer than no labels": (lambda: densecrf.DenseCRF2D(3, 2, -1), ValueError, "at least 1"),
    "Q of another model": (
        lambda: crf(densecrf).klDivergence(densecrf.DenseCRF(5, 2).inference(0)),
        ValueError,
        "same model",
    ),
    "axes without a bandwidth": (
        lambda: utils.create_pairwise_gaussian((3, 3), IMAGE.shape),
        ValueError,
        "chdim",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, exception, message = REFUSED[name]
    with pytest.raises(exception, match=message):
        call(densecrf, utils, eigen)


@pytest.mark.skipif(find_spec("pydensecrf") is None, reason="pydensecrf is not installed: make .venv/.peers")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_pydensecrf(name):
    import pydensecrf.densecrf
    import pydensecrf.eigen
    import pydensecrf.utils

    call, exception, _ = REFUSED[name]
    with pytest.raises(exception):
        call(pydensecrf.densecrf, pydensecrf.utils, pydensecrf.eigen)


@pytest.mark.parametrize("name", UNSOUND)
def test_refused_where_pydensecrf_is_unsound(name):
    call, exception, message = UNSOUND[name]
    with pytest.raises(exception, match=message):
        call()


def test_bandwidths_far_below_a_pixel_are_safe():
    """pydensecrf's 16-bit coordinates overflow: it corrupts its memory."""
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    model = densecrf.DenseCRF2D(30, 20, 2)
    energies = np.random.default_rng(1).random((2, 600)).astype(F32)
    model.setUnaryEnergy(energies)
    model.addPairwiseBilateral(sxy=1e-8, srgb=1e-6, rgbim=image, compat=1)
    alone = densecrf.DenseCRF(600, 2)
    alone.setUnaryEnergy(energies)
    alone.addPairwiseEnergy(np.arange(600, dtype=F32)[None] * 100, compat=1)
    np.testing.assert_allclose(np.array(model.inference(2)), np.array(alone.inference(2)), atol=1e-5)

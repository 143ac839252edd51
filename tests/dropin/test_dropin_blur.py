"""Blurs of whole rows, in place and in a stream, beside blurs of one vector of each row at a time."""

import dropin_cases as cases
import numpy as np
import pytest
import torch

import fwcrf.pydensecrf.densecrf as dcrf
from fwcrf.kernels import Lattice
from fwcrf.torch_ops.simplex import softmax

# Not a multiple of four points; and enough for a lattice of positions that is blurred in a stream.
SIZES = {"few": (83, 61), "many": (207, 171)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("labels", [2, 3, 21, 40, 70])
@pytest.mark.parametrize(("kernels", "size"), [("gaussian", "many"), ("fine", "few"), ("both", "few")])
def test_steps_equal_single_filters(kernels, size, labels, threads, num_threads):
    num_threads(threads)
    width, height = SIZES[size]
    crf = dcrf.DenseCRF2D(width, height, labels)
    rng = np.random.default_rng(labels)
    crf.setUnaryEnergy(rng.uniform(0, 3, (labels, width * height)).astype(np.float32))
    if kernels != "fine":
        crf.addPairwiseGaussian(sxy=1, compat=3)
    if kernels != "gaussian":
        crf.addPairwiseBilateral(sxy=20, srgb=3, rgbim=cases.picture(height, width), compat=4)
    E = crf.energy()
    x = softmax(E.unary, -1.0)
    for _ in range(3):
        x = softmax(E.pairwise(x) + E.unary, -1.0)
    torch.testing.assert_close(torch.from_numpy(np.array(crf.inference(3)).T), x, rtol=0, atol=3e-6)


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 7), (2, 2), (300, 3), (3, 300)])
def test_narrow_grids(shape):
    height, width = shape
    crf = dcrf.DenseCRF2D(width, height, 3)
    crf.setUnaryEnergy(np.random.default_rng(0).random((3, width * height)).astype(np.float32))
    crf.addPairwiseGaussian(sxy=1, compat=3)
    E = crf.energy()
    expected = softmax(E.pairwise(softmax(E.unary, -1.0)) + E.unary, -1.0)
    torch.testing.assert_close(torch.from_numpy(np.array(crf.inference(1)).T), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("labels", [60, 70])
def test_messages_far_above_one_keep_their_precision(labels):
    """Many labels have a way of their own: its sum over all labels cost digits of each."""
    crf = dcrf.DenseCRF2D(45, 40, labels)
    crf.setUnaryEnergy(np.random.default_rng(0).uniform(0, 4, (labels, 1800)).astype(np.float32))
    crf.addPairwiseGaussian(sxy=5, compat=8, normalization=dcrf.NO_NORMALIZATION)
    (kernel,) = crf._attractions
    index, splat, slice, order, neighbors = map(torch.from_numpy, kernel[:5])
    K = Lattice(index, splat.double(), slice.double(), order, neighbors, blur="forward")
    u = torch.from_numpy(crf._unary).double()
    x = (-u).softmax(-1)
    for _ in range(2):
        x = (-kernel.weight * K(x) - u).softmax(-1)
    torch.testing.assert_close(torch.from_numpy(np.array(crf.inference(2)).T).double(), x, rtol=0, atol=6e-5)

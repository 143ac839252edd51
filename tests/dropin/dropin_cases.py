"""Small problems in pydensecrf's own terms, solved by whichever implementation is passed in.

``make_reference.py`` stores what pydensecrf answers, so that the tests can compare without it.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np

REFERENCE = Path(__file__).with_name("reference.npz")

NORMALIZATIONS = ["NO_NORMALIZATION", "NORMALIZE_BEFORE", "NORMALIZE_AFTER", "NORMALIZE_SYMMETRIC"]
KERNELS = ["CONST_KERNEL", "DIAG_KERNEL", "FULL_KERNEL"]
COMPATS = {
    "number": 2.5,
    "negative": -0.7,
    "integer": 3,
    "vector": np.array([-1.5, 0.5, -2.0], dtype=np.float32),
    "matrix": np.array([[0.0, 2.0, 0.5], [1.0, -1.0, 3.0], [0.25, 1.0, 0.5]], dtype=np.float32),
}


def random_points(seed: int, n: int, d: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Energies ``(labels, n)`` and features ``(d, n)``."""
    rng = np.random.default_rng(seed)
    energies = rng.uniform(0, 4, (labels, n)).astype(np.float32)
    return energies, rng.uniform(0, 3, (d, n)).astype(np.float32)


def picture(height: int, width: int) -> np.ndarray:
    """Two discs and a gradient with a little noise, uint8."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:height, :width]
    image = np.stack([x * 180 / width, y * 180 / height, np.full((height, width), 90.0)], -1)
    image[(x - width / 3) ** 2 + (y - height / 2) ** 2 < (height / 4) ** 2] = (220, 60, 40)
    image[(x - width / 1.4) ** 2 + (y - height / 3) ** 2 < (height / 5) ** 2] = (40, 200, 90)
    return np.clip(image + rng.normal(0, 8, image.shape), 0, 255).astype(np.uint8)


def scores(height: int, width: int, labels: int) -> np.ndarray:
    """Probabilities ``(labels, height, width)`` that are coarse and partly wrong."""
    rng = np.random.default_rng(11)
    coarse = rng.normal(0, 1.5, (labels, -(-height // 6), -(-width // 6)))
    fine = np.kron(coarse, np.ones((1, 6, 6)))[:, :height, :width] + rng.normal(
        0, 0.5, (labels, height, width)
    )
    weights = np.exp(fine)
    return (weights / weights.sum(0)).astype(np.float32)


def points(dcrf: ModuleType) -> dict[str, np.ndarray]:
    """Every normalization with every kind of compatibility, and several numbers of features."""
    found = {}
    energies, features = random_points(0, 60, 3, 3)
    for normalization, (name, compat) in product(NORMALIZATIONS, COMPATS.items()):
        crf = dcrf.DenseCRF(60, 3)
        crf.setUnaryEnergy(energies)
        crf.addPairwiseEnergy(features, compat=compat, normalization=getattr(dcrf, normalization))
        Q = crf.inference(4)
        found[f"{normalization} {name}"] = np.array(Q)
        found[f"{normalization} {name} kl"] = np.array(crf.klDivergence(Q))
    for d in (1, 2, 4, 6):
        energies, features = random_points(d, 50, d, 2)
        crf = dcrf.DenseCRF(50, 2)
        crf.setUnaryEnergy(energies)
        crf.addPairwiseEnergy(features, 1.5)
        found[f"{d} features"] = np.array(crf.inference(3))
    return found


def images(dcrf: ModuleType, utils: ModuleType) -> dict[str, np.ndarray]:
    """Gaussian and bilateral kernels on a picture, by both ways of adding them."""
    height, width, labels = 20, 32, 4
    image, probabilities = picture(height, width), scores(height, width, labels)
    found = {}

    crf = dcrf.DenseCRF2D(width, height, labels)
    crf.setUnaryEnergy(utils.unary_from_softmax(probabilities))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=20, srgb=13, rgbim=image, compat=10)
    found["2D"] = np.array(crf.inference(5))

    crf = dcrf.DenseCRF2D(width, height, labels)
    crf.setUnaryEnergy(utils.unary_from_softmax(probabilities, scale=0.8, clip=1e-3))
    crf.addPairwiseGaussian((4, 2), 1.5, dcrf.FULL_KERNEL, dcrf.NORMALIZE_AFTER)
    crf.addPairwiseBilateral(
        sxy=(30, 15), srgb=(20, 15, 25), rgbim=image, compat=4.0, kernel=dcrf.CONST_KERNEL,
        normalization=dcrf.NORMALIZE_BEFORE,
    )  # fmt: skip
    compat = -np.eye(labels, dtype=np.float32) + 0.25
    crf.addPairwiseGaussian(sxy=1, compat=compat, normalization=dcrf.NO_NORMALIZATION)
    Q, first, second = crf.startInference()
    found["start"] = np.array(Q)
    for _ in range(3):
        crf.stepInference(Q, first, second)
    found["steps"] = np.array(Q)

    crf = dcrf.DenseCRF(height * width, labels)
    crf.setUnaryEnergy(utils.unary_from_softmax(probabilities))
    crf.addPairwiseEnergy(utils.create_pairwise_gaussian(sdims=(3, 3), shape=(height, width)), compat=3)
    features = utils.create_pairwise_bilateral(sdims=(20, 20), schan=(13, 13, 13), img=image, chdim=2)
    crf.addPairwiseEnergy(features, compat=10)
    found["utils"] = np.array(crf.inference(5))

    labelled = probabilities.argmax(0) * (picture(height, width)[..., 0] > 60)  # 0: not known
    crf = dcrf.DenseCRF2D(width, height, labels - 1)
    crf.setUnaryEnergy(utils.unary_from_labels(labelled, labels - 1, gt_prob=0.7))
    crf.addPairwiseBilateral(sxy=20, srgb=13, rgbim=image, compat=10)
    found["labels"] = np.array(crf.inference(5))
    return found


def volumes(dcrf: ModuleType, utils: ModuleType) -> dict[str, np.ndarray]:
    """A grey volume and a multispectral picture, by features of one's own."""
    rng = np.random.default_rng(3)
    volume = rng.normal(100, 20, (5, 8, 9))
    volume[1:4, 2:6, 3:7] += 80
    energies = rng.uniform(0, 3, (2, volume.size)).astype(np.float32)
    crf = dcrf.DenseCRF(volume.size, 2)
    crf.setUnaryEnergy(energies)
    crf.addPairwiseEnergy(utils.create_pairwise_gaussian((1, 2, 2), volume.shape), compat=2)
    crf.addPairwiseEnergy(utils.create_pairwise_bilateral((2, 4, 4), (25,), volume), compat=5)
    found = {"volume": np.array(crf.inference(5))}

    bands = rng.uniform(0, 1, (6, 12, 14)).astype(np.float32)
    energies = rng.uniform(0, 3, (3, 12 * 14)).astype(np.float32)
    crf = dcrf.DenseCRF(12 * 14, 3)
    crf.setUnary(dcrf.ConstUnary(energies))
    crf.addPairwiseEnergy(utils.create_pairwise_bilateral((5, 5), [0.5] * 6, bands, chdim=0), compat=4)
    found["bands"] = np.array(crf.inference(5))

    crf = dcrf.DenseCRF(12 * 14, 3)
    logistic = rng.normal(0, 1, (3, 6)).astype(np.float32)
    crf.setUnary(dcrf.LogisticUnary(logistic, np.ascontiguousarray(bands.reshape(6, -1))))
    crf.addPairwiseEnergy(utils.create_pairwise_gaussian((2, 2), (12, 14)), compat=1)
    found["logistic"] = np.array(crf.inference(5))
    return found


def helpers(utils: ModuleType) -> dict[str, np.ndarray]:
    """What the functions of ``utils`` return, which has to be the same to the last bit."""
    labels = np.array([[0, 1, 2, 3], [3, 3, 0, 1]])
    probabilities = scores(4, 5, 3)
    probabilities[0, 0] = (0, 0, 1e-7, 1, 1)
    image = picture(4, 5)
    grey = image[..., 0].astype(np.float64) / 7
    return {
        "labels": utils.unary_from_labels(labels, 3, 0.7),
        "labels, 0 is one": utils.unary_from_labels(labels, 4, 0.55, zero_unsure=False),
        "compute_unary": utils.compute_unary(labels, 3),
        "compute_unary 0.9": utils.compute_unary(labels, 3, GT_PROB=0.9),
        "softmax": utils.unary_from_softmax(probabilities),
        "softmax, scaled": utils.unary_from_softmax(probabilities, scale=0.7),
        "softmax, clipped": utils.unary_from_softmax(probabilities, scale=0.9, clip=0.2),
        "softmax, double": utils.unary_from_softmax(probabilities.astype(np.float64), scale=0.35),
        "softmax, half": utils.unary_from_softmax(probabilities.astype(np.float16)),
        "softmax, one-hot": utils.unary_from_softmax(np.eye(3, dtype=np.int64)),
        "softmax_to_unary": utils.softmax_to_unary(scores(4, 5, 3)),
        "softmax_to_unary 0.6": utils.softmax_to_unary(probabilities, GT_PROB=0.6),
        "gaussian": utils.create_pairwise_gaussian((3, 2.5), (4, 5)),
        "gaussian, line": utils.create_pairwise_gaussian([0.7], [6]),
        "gaussian, volume": utils.create_pairwise_gaussian((3, 2, 7), (2, 3, 4)),
        "bilateral": utils.create_pairwise_bilateral((3, 2.5), (13, 7, 11), image, chdim=2),
        "bilateral, one number": utils.create_pairwise_bilateral((3, 2.5), 13, image, chdim=2),
        "bilateral, too few": utils.create_pairwise_bilateral((3, 2.5), (13,), image, chdim=2),
        "bilateral, first": utils.create_pairwise_bilateral(
            (3, 2), (13, 7, 9), image.transpose(2, 0, 1), chdim=0
        ),
        "bilateral, grey": utils.create_pairwise_bilateral((3, 2.5), (0.3,), grey),
        "bilateral, axes without a bandwidth": utils.create_pairwise_bilateral((2, 3), (5,), image),
        "gaussian in 2D": utils._create_pairwise_gaussian_2d(3, 2.5, (4, 5)),
        "bilateral in 2D": utils._create_pairwise_bilateral_2d(3, 2.5, 13, 7, 11, image),
    }


def marginals(dcrf: ModuleType, utils: ModuleType) -> dict[str, np.ndarray]:
    return {**points(dcrf), **images(dcrf, utils), **volumes(dcrf, utils)}

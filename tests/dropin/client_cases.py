"""Programs that use pydensecrf, in our words: the same calls, settings and layouts, on smaller inputs.

Each case gets ``densecrf`` and ``utils`` of an implementation and returns marginals ``(labels, n)``, of some
pixels only where there are many labels.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
from dropin_cases import picture, scores

Case = Callable[[ModuleType, ModuleType], np.ndarray]


def stego(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Unsupervised segmentation: float64 log-probabilities of a network, 27 classes, an image in C order."""
    image = np.ascontiguousarray(picture(24, 30))
    output = np.log(scores(24, 30, 27).astype(np.float64))
    U = utils.unary_from_softmax(np.exp(output) / np.exp(output).sum(0))
    d = dcrf.DenseCRF2D(30, 24, 27)
    d.setUnaryEnergy(np.ascontiguousarray(U))
    d.addPairwiseGaussian(sxy=1, compat=3)
    d.addPairwiseBilateral(sxy=67, srgb=3, rgbim=image, compat=4)
    Q = d.inference(10)
    return np.array(Q).reshape((27, 24, 30)).reshape(27, -1)[:, ::5]


def reco(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """reco and MaskContrast: a binary saliency map, its foreground and background."""
    foreground = scores(26, 31, 2)[1]
    U = utils.unary_from_softmax(np.stack([1 - foreground, foreground]))
    d = dcrf.DenseCRF2D(31, 26, 2)
    d.setUnaryEnergy(U)
    d.addPairwiseGaussian(sxy=1, compat=3)
    d.addPairwiseBilateral(sxy=67, srgb=3, rgbim=picture(26, 31), compat=4)
    return np.array(d.inference(10))


def deeplab_pytorch(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """A class with settings, called with an image and probabilities, 21 classes."""

    class DenseCRF:
        def __init__(self, iter_max, pos_w, pos_xy_std, bi_w, bi_xy_std, bi_rgb_std):
            self.settings = iter_max, pos_w, pos_xy_std, bi_w, bi_xy_std, bi_rgb_std

        def __call__(self, image, probmap):
            steps, pos_w, pos_xy, bi_w, bi_xy, bi_rgb = self.settings
            C, H, W = probmap.shape
            d = dcrf.DenseCRF2D(W, H, C)
            d.setUnaryEnergy(np.ascontiguousarray(utils.unary_from_softmax(probmap)))
            d.addPairwiseGaussian(sxy=pos_xy, compat=pos_w)
            d.addPairwiseBilateral(sxy=bi_xy, srgb=bi_rgb, rgbim=np.ascontiguousarray(image), compat=bi_w)
            return np.array(d.inference(steps)).reshape((C, H, W))

    crf = DenseCRF(iter_max=10, pos_xy_std=1, pos_w=3, bi_xy_std=67, bi_rgb_std=3, bi_w=4)
    return crf(picture(22, 27), scores(22, 27, 21)).reshape(21, -1)[:, ::4]


def bestie(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Instance segmentation from points: labels with a certainty of 0.7, no unknown label."""
    label = scores(25, 28, 5).argmax(0)
    d = dcrf.DenseCRF2D(28, 25, 5)
    d.setUnaryEnergy(utils.unary_from_labels(label, 5, gt_prob=0.7, zero_unsure=False))
    d.addPairwiseGaussian(sxy=1, compat=3)
    d.addPairwiseBilateral(sxy=67, srgb=3, rgbim=picture(25, 28), compat=4)
    return np.array(d.inference(10))


def clip_es(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Class activation maps and a power of the background, the image as an array of a list."""
    cams = scores(23, 29, 3)
    background = np.power(1 - cams.max(0, keepdims=True), 2)
    maps = np.concatenate([background, cams])
    image = np.array(picture(23, 29).tolist()).astype(np.uint8)
    d = dcrf.DenseCRF2D(29, 23, 4)
    d.setUnaryEnergy(np.ascontiguousarray(utils.unary_from_softmax(maps / maps.sum(0))))
    d.addPairwiseGaussian(sxy=1, compat=3)
    d.addPairwiseBilateral(sxy=67, srgb=3, rgbim=image, compat=4)
    return np.array(d.inference(10))


def psa(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """PSA, SEAM and PuzzleCAM: bandwidths and weights divided by a scale factor, deep copies of the image."""
    height, width, scale, labels = 24, 29, 12.0, 4
    image = np.copy(picture(height, width))
    d = dcrf.DenseCRF2D(width, height, labels)
    unary = np.ascontiguousarray(utils.unary_from_softmax(scores(height, width, labels)))
    d.setUnaryEnergy(unary)
    d.addPairwiseGaussian(sxy=3 / scale, compat=3)
    d.addPairwiseBilateral(sxy=80 / scale, srgb=13, rgbim=image, compat=10)
    return np.array(d.inference(10)).reshape((labels, height, width)).reshape(labels, -1)


def irn(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """IRN: labels as keys, certainty 0.7, 50 / 5 and weight 10."""
    label = scores(21, 26, 3).argmax(0)
    d = dcrf.DenseCRF2D(26, 21, 3)
    d.setUnaryEnergy(utils.unary_from_labels(label, 3, gt_prob=0.7, zero_unsure=False))
    d.addPairwiseGaussian(sxy=3, compat=3)
    d.addPairwiseBilateral(sxy=50, srgb=5, rgbim=np.ascontiguousarray(np.copy(picture(21, 26))), compat=10)
    return np.array(d.inference(10))


def cutler(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """CutLER's MaskCut: a soft mask, positions 1 px weight 4, colour 70 / 5 weight 10."""
    mask = scores(24, 24, 2)[1].astype(np.float32)
    U = utils.unary_from_softmax(np.stack([1 - mask, mask], axis=0))
    d = dcrf.DenseCRF2D(24, 24, 2)
    d.setUnaryEnergy(np.ascontiguousarray(U))
    d.addPairwiseGaussian(sxy=1, compat=4)
    d.addPairwiseBilateral(sxy=70, srgb=5, rgbim=np.ascontiguousarray(picture(24, 24)), compat=10)
    return np.array(d.inference(10))


def manga(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Masks of text: a uint8 mask as two labels, explicit kernel types, no normalization of the colours."""
    mask = (scores(20, 33, 2)[1] > 0.5).astype(np.uint8) * 255
    softmax = np.concatenate([mask[:, :, None] / 255, 1 - mask[:, :, None] / 255], axis=2)
    d = dcrf.DenseCRF2D(33, 20, 2)
    d.setUnaryEnergy(np.ascontiguousarray(utils.unary_from_softmax(softmax.transpose(2, 0, 1))))
    d.addPairwiseGaussian(sxy=1, compat=3, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NO_NORMALIZATION)
    d.addPairwiseBilateral(
        sxy=23, srgb=7, rgbim=picture(20, 33), compat=20, kernel=dcrf.DIAG_KERNEL,
        normalization=dcrf.NO_NORMALIZATION,
    )  # fmt: skip
    return np.array(d.inference(5))


def resunet(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """ResUNet++: a predicted mask with unknown 0, steps taken one by one."""
    label = (scores(22, 25, 2)[1] > 0.5).astype(np.int64) + 1
    d = dcrf.DenseCRF2D(25, 22, 2)
    d.setUnaryEnergy(utils.unary_from_labels(label, 2, gt_prob=0.7, zero_unsure=True))
    d.addPairwiseGaussian(sxy=(3, 3), compat=3, kernel=dcrf.DIAG_KERNEL,
                          normalization=dcrf.NORMALIZE_SYMMETRIC)  # fmt: skip
    Q, tmp1, tmp2 = d.startInference()
    for _ in range(10):
        d.stepInference(Q, tmp1, tmp2)
    return np.array(Q)


def salt(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Salt bodies, 101 x 101: a grey image as three channels, a mask of 0 and 1."""
    grey = picture(101, 101)[..., 0]
    label = (scores(101, 101, 2)[1] > 0.5).astype(np.uint8)
    d = dcrf.DenseCRF2D(101, 101, 2)
    d.setUnaryEnergy(utils.unary_from_labels(label, 2, gt_prob=0.7, zero_unsure=False))
    d.addPairwiseGaussian(sxy=(3, 3), compat=3)
    d.addPairwiseBilateral(sxy=(80, 80), srgb=(13, 13, 13), rgbim=np.repeat(grey[..., None], 3, 2), compat=10)
    return np.array(d.inference(10))[:, ::7]


def brains(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """MRBrainS: a volume of three modalities, 50 steps."""
    rng = np.random.default_rng(5)
    volume = rng.normal(100, 30, (3, 4, 9, 10)).astype(np.float32)
    U = utils.unary_from_softmax(scores(36, 10, 4).reshape(4, 4, 9, 10))
    d = dcrf.DenseCRF(360, 4)
    d.setUnaryEnergy(U)
    d.addPairwiseEnergy(utils.create_pairwise_gaussian(sdims=(3, 3, 3), shape=(4, 9, 10)), compat=3)
    features = utils.create_pairwise_bilateral(sdims=(8, 8, 8), schan=(40, 40, 40), img=volume, chdim=0)
    d.addPairwiseEnergy(features, compat=6)
    return np.array(d.inference(50))


def doodler(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Sparse doodles: most pixels unknown, features of utils with two bandwidths, 10 steps."""
    label = scores(24, 27, 3).argmax(0) + 1
    label[np.random.default_rng(1).random(label.shape) < 0.8] = 0
    U = utils.unary_from_labels(label.astype(int), 3, gt_prob=0.51)
    d = dcrf.DenseCRF2D(27, 24, 3)
    d.setUnaryEnergy(U)
    d.addPairwiseGaussian(sxy=(3, 3), compat=3, kernel=dcrf.DIAG_KERNEL,
                          normalization=dcrf.NORMALIZE_SYMMETRIC)  # fmt: skip
    features = utils.create_pairwise_bilateral(sdims=(27, 27), schan=(1, 1, 1), img=picture(24, 27), chdim=2)
    d.addPairwiseEnergy(features, compat=100, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC)
    return np.array(d.inference(10))


def cellseg3d(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """CellSeg3D: a volume with a leading axis of one, three bandwidths for its four axes."""
    image = np.random.default_rng(2).random((1, 6, 7, 8))
    prediction = scores(6, 56, 2).reshape(2, 6, 7, 8)
    d = dcrf.DenseCRF(6 * 7 * 8, 2)
    d.setUnaryEnergy(utils.unary_from_softmax(prediction))
    d.addPairwiseEnergy(
        utils.create_pairwise_gaussian(sdims=(3, 3, 3), shape=image.shape[1:]),
        compat=3, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC,
    )  # fmt: skip
    d.addPairwiseEnergy(
        utils.create_pairwise_bilateral((10, 10, 10), (5,), img=image, chdim=-1),
        compat=10, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC,
    )  # fmt: skip
    return np.array(d.inference(5))


def modalities(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Nine features per voxel: three positions and six modalities of a scanner."""
    rng = np.random.default_rng(8)
    features = np.concatenate(
        [
            utils.create_pairwise_gaussian((2, 2, 2), (4, 7, 8)),
            rng.normal(0, 0.4, (6, 224)).astype(np.float32),
        ]
    )
    d = dcrf.DenseCRF(224, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(scores(28, 8, 3).reshape(3, -1)))
    d.addPairwiseEnergy(np.ascontiguousarray(features), compat=4)
    return np.array(d.inference(10))


def wide(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """Twenty features per superpixel, of a network."""
    rng = np.random.default_rng(9)
    centres = rng.normal(0, 0.6, (3, 20))
    label = rng.integers(0, 3, 150)
    features = (centres[label] + rng.normal(0, 0.15, (150, 20))).astype(np.float32)
    d = dcrf.DenseCRF(150, 3)
    d.setUnaryEnergy(utils.unary_from_labels(label + 1, 3, gt_prob=0.6))
    d.addPairwiseEnergy(np.ascontiguousarray(features.T), compat=3)
    return np.array(d.inference(10))


def cloud(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """A point cloud: positions, and positions with colours and normals."""
    rng = np.random.default_rng(4)
    points, colour = rng.uniform(0, 2, (3, 220)), rng.uniform(0, 1, (3, 220))
    normals = rng.normal(0, 1, (3, 220))
    normals /= np.linalg.norm(normals, axis=0)
    d = dcrf.DenseCRF(220, 5)
    d.setUnaryEnergy(utils.unary_from_softmax(scores(22, 10, 5).reshape(5, -1)))
    d.addPairwiseEnergy(np.ascontiguousarray(points / 0.3, dtype=np.float32), compat=3)
    together = np.concatenate([points / 0.8, colour / 0.4, normals / 0.9])
    d.addPairwiseEnergy(np.ascontiguousarray(together, dtype=np.float32), compat=5)
    return np.array(d.inference(5))


def asymmetric(dcrf: ModuleType, utils: ModuleType) -> np.ndarray:
    """A matrix of costs with another cost for (cat, dog) than for (dog, cat); pydensecrf symmetrises it."""
    compat = np.array([[-3, 1, 0.5], [2, -3, 1.5], [0, 0.25, -2]], dtype=np.float32)
    d = dcrf.DenseCRF2D(26, 23, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(scores(23, 26, 3)))
    d.addPairwiseGaussian(sxy=3, compat=compat, kernel=dcrf.FULL_KERNEL)
    d.addPairwiseBilateral(sxy=40, srgb=13, rgbim=picture(23, 26), compat=compat)
    return np.array(d.inference(10))


CLIENTS: dict[str, Case] = {
    case.__name__: case
    for case in (
        stego, reco, deeplab_pytorch, bestie, clip_es, psa, irn, cutler, manga, resunet, salt, brains,
        doodler, cellseg3d, modalities, wide, cloud, asymmetric,
    )
}  # fmt: skip

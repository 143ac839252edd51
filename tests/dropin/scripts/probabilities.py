"""Refine the probabilities of a network: probabilities.py IMAGE PROBABILITIES.npy OUTPUT.npz"""

import sys

import numpy as np
import pydensecrf.densecrf as dcrf
from PIL import Image
from pydensecrf import utils


def crf_inference(image, probabilities, t=5, scale_factor=1):
    height, width = image.shape[:2]
    n_labels = probabilities.shape[0]
    d = dcrf.DenseCRF2D(width, height, n_labels)
    unary = np.ascontiguousarray(utils.unary_from_softmax(probabilities))
    d.setUnaryEnergy(unary)
    d.addPairwiseGaussian(sxy=3 / scale_factor, compat=3)
    d.addPairwiseBilateral(
        sxy=80 / scale_factor, srgb=13, rgbim=np.ascontiguousarray(np.copy(image)), compat=10
    )
    Q = d.inference(t)
    return np.array(Q).reshape((n_labels, height, width))


image = np.array(Image.open(sys.argv[1]).convert("RGB"))
refined = crf_inference(image, np.load(sys.argv[2]))
np.savez(
    sys.argv[3], marginals=refined.reshape(len(refined), -1), labels=refined.argmax(0),
    module=dcrf.__name__,
)  # fmt: skip

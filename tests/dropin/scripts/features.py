"""The same by features of one's own, of any dimension: features.py IMAGE DRAWING OUTPUT.npz"""

import sys

import numpy as np
import pydensecrf.densecrf as dcrf
from PIL import Image
from pydensecrf.utils import create_pairwise_bilateral, create_pairwise_gaussian, unary_from_labels

image = np.array(Image.open(sys.argv[1]).convert("RGB"))
drawing = np.array(Image.open(sys.argv[2]).convert("RGB")).astype(np.uint32)
drawing = drawing[..., 0] + 256 * drawing[..., 1] + 65536 * drawing[..., 2]

colors, labels = np.unique(drawing, return_inverse=True)
labels = labels.reshape(drawing.shape)
has_unknown = 0 in colors
n_labels = len(colors) - has_unknown

d = dcrf.DenseCRF(image.shape[1] * image.shape[0], n_labels)
d.setUnaryEnergy(unary_from_labels(labels, n_labels, gt_prob=0.7, zero_unsure=has_unknown))
feats = create_pairwise_gaussian(sdims=(3, 3), shape=image.shape[:2])
d.addPairwiseEnergy(feats, compat=3, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC)
feats = create_pairwise_bilateral(sdims=(80, 80), schan=(13, 13, 13), img=image, chdim=2)
d.addPairwiseEnergy(feats, compat=10, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC)
Q = d.inference(5)

np.savez(
    sys.argv[3], marginals=np.array(Q), labels=np.argmax(Q, axis=0).reshape(image.shape[:2]),
    module=dcrf.__name__,
)  # fmt: skip

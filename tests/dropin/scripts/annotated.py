"""Segment an image from a rough drawing of its labels: annotated.py IMAGE DRAWING OUTPUT.npz

A colour of the drawing is a label; black says nothing. Written as users of pydensecrf write such a script.
"""

import sys

import numpy as np
import pydensecrf.densecrf as dcrf
from PIL import Image
from pydensecrf.utils import unary_from_labels

image = np.array(Image.open(sys.argv[1]).convert("RGB"))
drawing = np.array(Image.open(sys.argv[2]).convert("RGB")).astype(np.uint32)
drawing = drawing[..., 0] + 256 * drawing[..., 1] + 65536 * drawing[..., 2]

colors, labels = np.unique(drawing, return_inverse=True)
labels = labels.reshape(drawing.shape)
has_unknown = 0 in colors
n_labels = len(colors) - has_unknown

d = dcrf.DenseCRF2D(image.shape[1], image.shape[0], n_labels)
d.setUnaryEnergy(unary_from_labels(labels, n_labels, gt_prob=0.7, zero_unsure=has_unknown))
d.addPairwiseGaussian(sxy=(3, 3), compat=3, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC)
d.addPairwiseBilateral(
    sxy=(80, 80), srgb=(13, 13, 13), rgbim=image, compat=10, kernel=dcrf.DIAG_KERNEL,
    normalization=dcrf.NORMALIZE_SYMMETRIC,
)  # fmt: skip
Q = d.inference(5)
MAP = np.argmax(Q, axis=0)

# The same once more, a step at a time.
Q2, tmp1, tmp2 = d.startInference()
divergences = []
for _ in range(5):
    d.stepInference(Q2, tmp1, tmp2)
    divergences.append(d.klDivergence(Q2) / MAP.size)

np.savez(
    sys.argv[3], marginals=np.array(Q), labels=MAP.reshape(image.shape[:2]), stepped=np.array(Q2),
    divergences=divergences, module=dcrf.__name__,
)  # fmt: skip

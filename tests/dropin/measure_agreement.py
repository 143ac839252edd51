"""Measure differences from pydensecrf on random models: ``python tests/dropin/measure_agreement.py [COUNT]``.

Beside each difference stands the change of pydensecrf's own marginals if the energies change by 3e-7 of their
values. docs/from-pydensecrf.md has the result for 1500 models.
"""

import sys

import numpy as np
import torch
from dropin_cases import NORMALIZATIONS

from fwcrf.pydensecrf import densecrf, utils

CHANGE = 3e-7


def model(dcrf, helpers, seed, change=0.0):
    """Marginals of a random grid of one to three axes, with one or two kernels of any kind."""
    rng = np.random.default_rng(seed)
    axes, labels = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    shape = tuple(int(v) for v in rng.integers(2, (60, 20, 9)[axes - 1], axes))
    crf = dcrf.DenseCRF(int(np.prod(shape)), labels)
    energies = rng.uniform(0, rng.choice([1, 3, 8]), (labels, int(np.prod(shape)))).astype(np.float32)
    noise = np.random.default_rng(seed + 10**6).uniform(-change, change, energies.shape)
    crf.setUnaryEnergy((energies * (1 + noise)).astype(np.float32))
    for _ in range(int(rng.integers(1, 3))):
        sdims = tuple(float(s) for s in rng.choice([0.5, 1, 2, 2.5, 3, 4, 10, 80], axes))
        channels = int(rng.choice([0, 1, 3]))
        if channels:
            image = rng.integers(0, 256, (*shape, channels)).astype(np.uint8)
            schan = (float(rng.choice([3, 5, 13, 50])),) * channels
            features = helpers.create_pairwise_bilateral(sdims, schan, image, chdim=axes)
        else:
            features = helpers.create_pairwise_gaussian(sdims, shape)
        kind, size = str(rng.choice(["number", "vector", "matrix"])), float(rng.uniform(0, 30))
        compat = {
            "number": size,
            "vector": (rng.normal(size=labels) * size / 3).astype(np.float32),
            "matrix": (rng.normal(size=(labels, labels)) * size / 3).astype(np.float32),
        }[kind]
        mode = getattr(dcrf, str(rng.choice(NORMALIZATIONS)))
        crf.addPairwiseEnergy(np.ascontiguousarray(features), compat, normalization=mode)
    return np.array(crf.inference(int(rng.integers(1, 11))))


def main(count):
    import pydensecrf.densecrf
    import pydensecrf.utils

    torch.set_num_threads(1)
    theirs = pydensecrf.densecrf, pydensecrf.utils
    ours, own, labels, points = [], [], 0, 0
    for seed in range(count):
        found, expected = model(densecrf, utils, seed), model(*theirs, seed)
        ours.append(np.abs(found - expected).max())
        own.append(np.abs(model(*theirs, seed, CHANGE) - expected).max())
        labels += int((found.argmax(0) != expected.argmax(0)).sum())
        points += found.shape[1]
    print(f"{count} models, {labels} of {points} labels differ")
    for name, values in (("from pydensecrf", ours), (f"of pydensecrf, by {CHANGE:g} of the energies", own)):
        quantiles = ", ".join(f"{np.quantile(values, q):.1e}" for q in (0.5, 0.9, 0.99, 1))
        print(f"largest change of a marginal {name}: median, 90 %, 99 %, all: {quantiles}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)

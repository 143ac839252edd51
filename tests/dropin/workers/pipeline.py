"""Refine a few images in workers of one kind, as pipelines of pseudo-labels do: pipeline.py KIND...

Prints a line of JSON for each kind: the module that the worker used, and the sum of its labels. Written as
users of pydensecrf write such a script; nothing here knows fwcrf.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pydensecrf.densecrf as dcrf
from pydensecrf.utils import unary_from_softmax


def refine(seed):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
    p = rng.dirichlet(np.ones(4), (20, 24)).transpose(2, 0, 1)
    d = dcrf.DenseCRF2D(24, 20, 4)
    d.setUnaryEnergy(unary_from_softmax(p))
    d.addPairwiseGaussian(sxy=1, compat=3)
    d.addPairwiseBilateral(sxy=67, srgb=3, rgbim=image, compat=4)
    return dcrf.DenseCRF2D.__module__, int(np.argmax(d.inference(10), axis=0).sum())


def loads_torch(seed):
    refine(seed)
    return "torch" in sys.modules, seed


def in_torch_worker(rank, answers):
    answers.put(refine(rank))


def torch_spawn():
    import torch.multiprocessing as mp

    answers = mp.get_context("spawn").SimpleQueue()
    mp.spawn(in_torch_worker, args=(answers,), nprocs=1)
    return [answers.get()]


def data_loader():
    from torch.utils.data import DataLoader

    return list(DataLoader(Refined(), batch_size=None, num_workers=1))


class Refined:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return refine(i)


def joblib():
    from joblib import Parallel, delayed

    return Parallel(n_jobs=2)(delayed(refine)(i) for i in range(2))


def pool(method, work=refine):
    with get_context(method).Pool(1) as workers:
        return workers.map(work, range(2))


def threads():
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(refine, range(2)))


def program(*flags):
    """Another program, started by name."""
    code = "import pydensecrf.densecrf as dcrf; print(dcrf.DenseCRF2D.__module__)"
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
    return [[done.stdout.strip() or done.stderr.strip().splitlines()[-1], 0]]


KINDS = {
    "here": lambda: [refine(0)],
    "threads": threads,
    "fork": lambda: pool("fork"),
    "spawn": lambda: pool("spawn"),
    "torch in spawned": lambda: pool("spawn", loads_torch),
    "torch spawn": torch_spawn,
    "DataLoader": data_loader,
    "joblib": joblib,
    "program": program,
    "isolated program": lambda: program("-I"),
}

if __name__ == "__main__":
    for kind in sys.argv[1:]:
        print(json.dumps([kind, KINDS[kind]()]), flush=True)

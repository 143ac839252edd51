"""``memory=`` is a promise: an image that is solved whole takes at most as much as was estimated."""

import json
import subprocess
import sys

import pytest

# Prints the bytes per pixel that `memory=` has to allow for one part, found by trying, and the bytes per
# pixel at the peak of the process. Linux resets the peak when 5 is written to clear_refs.
MEASURED = """
import json, sys
import numpy as np, torch
from skimage import data
import fwcrf

torch.set_num_threads(2)
side, labels, settings = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
if settings.pop("adaptive", False):
    settings["solver"] = fwcrf.solvers.get("l2fw", step=fwcrf.stepsizes.Adaptive())

blocks = settings.pop("segments", False)

def given(side):
    if blocks:
        settings["segments"] = np.arange(side)[:, None] // 8 * side + np.arange(side) // 8
    scores = np.exp(2 * np.random.default_rng(0).standard_normal((side, side, labels), dtype=np.float32))
    return data.astronaut()[:side, :side].copy(), scores / scores.sum(-1, keepdims=True)

def whole(image, scores, memory):
    parts = []
    try:
        fwcrf.refine(image, scores, memory=memory, progress=lambda k, n: parts.append(n), **settings)
    except ValueError as refused:
        assert "too little" in str(refused)
        return False
    return parts[0] == 1

def estimated(side=24):
    image, scores = given(side)
    low, high = 1, 1 << 30
    while high - low > side * side:
        middle = (low + high) // 2
        low, high = (low, middle) if whole(image, scores, middle) else (middle, high)
    return high / side**2

def status(name):
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))

expected, (image, scores) = estimated(), given(side)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
found = fwcrf.refine(image, scores, memory=1 << 34, **settings)
print(json.dumps([expected, (status("VmHWM") - before) / side**2]))
"""

NATIVE = {"solver": "pgd", "return_probabilities": True}
NOT_NATIVE = {"solver": "fista", "return_probabilities": True}
# Settings, side of the image, labels, and the largest factor of the estimate over the peak: searches take
# different memory from run to run and from step to step.
CASES = {
    "native": (NATIVE, 192, 100, 2.5),
    "not native": (NOT_NATIVE, 256, 21, 2.5),
    "eigenvalues": ({"adaptive": True, "num_steps": 3}, 384, 21, 5),
    "line search": ({"solver": "convex-fw", "num_steps": 3}, 256, 21, 3),
    "segments": ({"segments": True, "num_steps": 3, "return_probabilities": True}, 256, 21, 2.5),
    "descent": ({"rounding": "bcd", "num_steps": 3}, 192, 100, 4),
}


@pytest.mark.linux
@pytest.mark.parametrize(("settings", "side", "labels", "most"), CASES.values(), ids=CASES)
def test_the_peak_is_within_the_estimate_and_not_far_below(settings, side, labels, most):
    command = [sys.executable, "-c", MEASURED, str(side), str(labels), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    estimated, peak = json.loads(done.stdout)
    assert peak <= estimated <= most * peak

"""Small images take little time in Python: a limit on calls, which do not wobble as times do."""

import numpy as np
import pytest
from walk import profiled

import fwcrf

# Calls of functions in Python and of functions in C, to be lowered whenever they get fewer, and never raised.
# On a shared processor (AMD EPYC of the generation Zen 5, Python 3.11) they take 0.3 ms, beside 0.1 ms of
# native code, for 8 x 8 pixels with 21 labels; 1,640 calls, many of them operations of torch, took 0.85 ms.
MOST = 1030


def calls(run):
    """The number of calls in Python and in C, after two calls that fill caches."""
    counted = {"call": 0, "c_call": 0}

    def count(frame, event, argument):
        if event in counted:
            counted[event] += 1

    run(), run()
    profiled(run, count)
    return sum(counted.values())


def scene(side, labels):
    """An image of three parts and noisy probabilities of a label for each, which no refinement loses."""
    rng = np.random.default_rng(0)
    place = np.arange(side * side).reshape(side, side) * 3 // (side * side)
    image = np.repeat((80 * place + 40).astype(np.uint8)[..., None], 3, -1)
    likely = np.where(place[..., None] == np.arange(labels), 2.5, -4.0)
    likely[..., :3] = np.maximum(likely[..., :3], 0) + rng.normal(size=(side, side, 3))
    likely[0, 0, :2] = 0.0, 1.0  # a pixel that changes
    shares = np.exp(likely)
    return image, (shares / shares.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("side", [8, 32])
@pytest.mark.parametrize("labels", [3, 21])
def test_a_small_image_takes_few_calls(side, labels):
    image, probabilities = scene(side, labels)
    found = calls(lambda: fwcrf.refine(image, probabilities))
    assert 300 < found <= MOST, f"{found} calls; expected at most {MOST}"


def test_calls_are_counted_in_python_and_in_c():
    def inner():
        return len("a")

    assert calls(lambda: [inner(), inner()]) == 1 + 4 + 1  # the lambda, two calls of each, and sys.setprofile

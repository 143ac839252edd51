"""The same bits from run to run; rounding between numbers of threads and instruction sets."""

import hashlib

import numpy as np
import pytest
import torch
import work
from helpers import environment, in_process

from fwcrf import _core

# The largest difference of a probability, and the least share of equal labels: see docs/reliability.md.
PROBABILITIES, EQUAL_LABELS = 1e-5, 0.9999


def digest(threads):
    torch.set_num_threads(threads)
    found = hashlib.sha256()
    for answer in work.large():
        found.update(answer.tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("threads", [2])
def test_the_same_bits_from_run_to_run(threads, num_threads):
    expected = digest(threads)
    num_threads(1)
    assert digest(threads) == expected
    num_threads(1)
    assert in_process(digest, threads, timeout=100) == expected


def with_threads(threads):
    torch.set_num_threads(threads)
    # A scene without a pixel so near the border of a label's support that rounding decides: derivatives
    # jump there.
    return work.large(seed=2), _core.isa()


def check_rounding(found, expected):
    labels, x, solved, p, energy, *gradients = found
    labels_0, x_0, solved_0, p_0, energy_0, *gradients_0 = expected
    assert max(np.abs(x - x_0).max(), np.abs(p - p_0).max()) < PROBABILITIES
    assert min((labels == labels_0).mean(), (solved == solved_0).mean()) >= EQUAL_LABELS
    np.testing.assert_allclose(energy, energy_0, rtol=1e-5)
    for one, other in zip(gradients, gradients_0, strict=True):
        assert np.abs(one - other).max() <= 1e-4 * np.abs(other).max()


@pytest.mark.parametrize("threads", [2, 4])
def test_rounding_between_numbers_of_threads(threads, num_threads):
    num_threads(1)
    expected, _ = with_threads(1)
    check_rounding(with_threads(threads)[0], expected)


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_rounding_between_instruction_sets(isa, num_threads):
    expected, _ = with_threads(1)
    with environment(FWCRF_ISA=isa):
        found, used = in_process(with_threads, 1, timeout=100)
    if used != isa:
        assert isa != "generic"
        pytest.skip(f"not available here: {used} is used instead of {isa}")
    check_rounding(found, expected)

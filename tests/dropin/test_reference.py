"""The drop-in beside what pydensecrf answered to the same calls: stored, and live where it is installed."""

import cases
import numpy as np
import pytest
from make_reference import REFERENCE

from fwcrf.pydensecrf import densecrf, utils

# Measured: 2e-6. The same lattice and the same steps; rounding is all that differs.
MARGINALS = 2e-5


def compare(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=MARGINALS, atol=MARGINALS, err_msg=name)
        if expected.ndim == 2:
            assert ours[name].flags.f_contiguous == expected.flags.f_contiguous, name


def compare_exactly(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        np.testing.assert_array_equal(ours[name], expected, err_msg=name)
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].flags.c_contiguous, name


@pytest.fixture(scope="module")
def reference():
    with np.load(REFERENCE) as stored:
        return dict(stored)


def part(reference, kind):
    return {name.removeprefix(kind): value for name, value in reference.items() if name.startswith(kind)}


def test_marginals_are_those_of_pydensecrf(reference):
    ours = {name: np.asarray(value) for name, value in cases.marginals(densecrf, utils).items()}
    compare(ours, {n: np.asfortranarray(v) for n, v in part(reference, "marginals: ").items()})


def test_the_stored_cases_tell_models_apart(reference):
    """Each normalization and each compatibility changes the answer by far more than is allowed."""
    stored = part(reference, "marginals: ")
    for name in cases.COMPATS:
        answers = [stored[f"{mode} {name}"] for mode in cases.NORMALIZATIONS]
        for i, one in enumerate(answers):
            assert all(np.abs(one - other).max() > 100 * MARGINALS for other in answers[:i])


def test_utils_are_equal_to_the_last_bit(reference):
    compare_exactly(cases.helpers(utils), part(reference, "utils: "))


def test_the_reference_is_what_pydensecrf_answers_today(reference):
    theirs = pytest.importorskip("pydensecrf.densecrf", reason="make .venv/.bench installs it")
    import pydensecrf.utils

    compare(cases.marginals(theirs, pydensecrf.utils), part(reference, "marginals: "))
    compare_exactly(cases.helpers(pydensecrf.utils), part(reference, "utils: "))

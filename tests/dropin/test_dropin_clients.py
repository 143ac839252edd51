"""Programs that use pydensecrf, each beside pydensecrf's stored marginals; also in threads and children."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context

import numpy as np
import pytest
from client_cases import CLIENTS
from dropin_cases import REFERENCE

from fwcrf.pydensecrf import densecrf, utils

# Measured: 1.4e-5 (stego), 5e-6 for all others.
MARGINALS = 5e-5


@pytest.fixture(scope="module")
def reference():
    with np.load(REFERENCE) as stored:
        return {name: stored[f"client: {name}"] for name in CLIENTS}


def run(name):
    return CLIENTS[name](densecrf, utils)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_program_gives_the_labels_and_marginals_of_pydensecrf(name, reference):
    found, expected = run(name), reference[name]
    np.testing.assert_array_equal(found.argmax(0), expected.argmax(0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=MARGINALS)


@pytest.mark.skipif(find_spec("pydensecrf") is None, reason="pydensecrf is not installed: make .venv/.peers")
@pytest.mark.parametrize("name", CLIENTS)
def test_the_stored_marginals_are_those_of_pydensecrf_today(name, reference):
    theirs = [importlib.import_module(f"pydensecrf.{part}") for part in ("densecrf", "utils")]
    np.testing.assert_allclose(CLIENTS[name](*theirs), reference[name], rtol=0, atol=MARGINALS)


@pytest.mark.posix
def test_programs_in_threads_and_forked_children_give_the_same_bits():
    names = ["stego", "psa", "cellseg3d", "wide", "asymmetric"]
    alone = [run(name) for name in names]
    with ThreadPoolExecutor(4) as threads:
        for found, expected in zip(threads.map(run, names * 2), alone * 2, strict=True):
            np.testing.assert_array_equal(found, expected)
    with get_context("fork").Pool(2) as children:
        for found, expected in zip(children.map(run, names), alone, strict=True):
            np.testing.assert_array_equal(found, expected)

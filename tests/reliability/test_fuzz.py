"""The fuzz targets, a few cases each: ``make fuzz`` runs a million."""

from contextlib import suppress

import api_targets
import file_targets
import fuzz
import native_targets
import numpy as np
import pytest
from api_targets import Refused
from choices import Bytes, Drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

OF_CHOICES = api_targets.TARGETS | native_targets.TARGETS
CASES = {
    "refine": 25,
    "layer": 25,
    "energy": 25,
    "meta": 15,
    "native_model": 25,
    "native_graph": 25,
    "native_memory": 15,
}


def answered_or_refused(target, case):
    with suppress(Refused):
        target(case)


@pytest.mark.parametrize("name", OF_CHOICES)
def test_any_arguments(name, num_threads):
    @settings(max_examples=CASES.get(name, 50), suppress_health_check=[*HealthCheck])
    @given(st.data())
    def run(data):
        answered_or_refused(OF_CHOICES[name], Drawn(data.draw))

    run()


@pytest.mark.parametrize("name", file_targets.TARGETS)
def test_any_file(name):
    for number in range(150):
        data = fuzz.case(np.random.default_rng([7, number]), name)
        try:
            answered_or_refused(file_targets.TARGETS[name], data)
        except Exception as error:
            raise AssertionError(f"case {number}: {data[:60]!r}") from error


@pytest.mark.parametrize("name", file_targets.SEEDS)
def test_some_seeds_are_good_files(name):
    """Otherwise nothing behind the first check would ever be reached."""
    good = 0
    for data in file_targets.SEEDS[name]():
        try:
            file_targets.TARGETS[name](data)
            good += 1
        except Refused:
            pass
    assert good >= 1


def test_bytes_decide():
    choices = Bytes(b"\x05\xff\x00")
    assert [choices.integer(0, 9) for _ in range(4)] == [5, 5, 0, 0]

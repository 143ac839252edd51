import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fwcrf.stepsizes import Geometric

positive = st.floats(1e-3, 1e3)


@given(start=positive, end=positive, steps=st.integers(2, 50))
def test_goes_from_start_to_end_by_equal_ratios_and_stays(start, end, steps):
    values = [Geometric(start, end, steps)(k) for k in range(steps + 3)]
    assert values[0] == pytest.approx(start)
    assert values[steps - 1 :] == pytest.approx([end] * 4)
    logs = [math.log(v) for v in values[:steps]]
    ratios = [b - a for a, b in itertools.pairwise(logs)]
    assert ratios == pytest.approx([math.log(end / start) / (steps - 1)] * (steps - 1), abs=1e-9)


def test_one_step_is_the_last():
    assert Geometric(0.5, 0.1, 1)(0) == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0.0, 1.0, 5), "start=0.0; expected a positive"),
        ((1.0, -2.0, 5), "end=-2.0; expected a positive"),
        ((1.0, float("nan"), 5), "end=nan"),
        ((1.0, float("inf"), 5), "end=inf"),
        ((1.0, 0.1, 0), "steps=0; expected a whole number"),
        ((1.0, 0.1, 2.5), "steps=2.5"),
        ((1.0, 0.1, True), "steps=True"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Geometric(*settings)

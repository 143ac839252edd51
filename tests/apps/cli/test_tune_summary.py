"""The lines that ``fwcrf tune`` prints: limits of the search are named, whatever is chosen."""

import pytest

from fwcrf.apps.cli.tune import _summary
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.choice import Choice
from fwcrf.apps.tuning.parameters import ranges
from fwcrf.apps.tuning.trials import Trial, Tuned

START = {"lambda": 1.0, "spatial.weight": 0.3}


@pytest.mark.parametrize("name", START)
def test_a_limit_is_named_although_the_start_is_kept(name):
    trials = [Trial(START, 0.6, (0.0,)), Trial(START | {name: ranges(START)[name][1]}, 0.7, (0.1,))]
    choice = Choice(0, "the gain is within one standard error", (0.0,), 0.0, 0.1, 0.6, 0.6, 0.1)
    summary = _summary(Tuned(Settings(), trials, choice, [], 0.5, [], [], []), seed=0)
    assert f"which is not chosen, is at a limit of the search: {name}. A start closer to it" in summary
    inside = _summary(Tuned(Settings(), trials[:1], choice, [], 0.5, [], [], []), seed=0)
    assert "limit of the search" not in inside

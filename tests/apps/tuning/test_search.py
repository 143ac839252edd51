import math

import hypothesis
import hypothesis.strategies as st
import pytest

from fwcrf.apps.tuning.search import search

START = {"a": 1.0, "b": 80.0, "c": 13.0}
RANGES = {"a": (0.1, 10.0), "b": (20.0, 320.0), "c": (3.0, 50.0)}


def carried_out(score, num_trials, seed=0, start=START):
    """All points in the order they were asked for, with their scores."""
    rounds, tried, scores = search(start, RANGES, num_trials=num_trials, seed=seed), [], None
    while True:
        try:
            points = rounds.send(scores)
        except StopIteration:
            return tried
        scores = [score(p) for p in points]
        tried += zip(points, scores, strict=True)


def bowl(optimum):
    """Its greatest value, 0, is at ``optimum``."""
    return lambda p: -sum(math.log(p[name] / optimum[name]) ** 2 for name in p)


@hypothesis.given(st.integers(1, 60), st.integers(0, 99))
def test_as_many_points_as_asked_for_within_the_ranges_and_none_twice(num_trials, seed):
    tried = carried_out(bowl({"a": 0.3, "b": 30.0, "c": 20.0}), num_trials, seed)
    assert tried[0][0] == START
    assert len(tried) <= num_trials
    assert len({tuple(p.values()) for p, _ in tried}) == len(tried)
    for point, _ in tried:
        assert all(RANGES[name][0] * 0.99 <= value <= RANGES[name][1] * 1.01 for name, value in point.items())
    if num_trials <= 30:
        assert len(tried) == num_trials


@pytest.mark.parametrize("optimum", [{"a": 0.3, "b": 30.0, "c": 20.0}, {"a": 10.0, "b": 320.0, "c": 3.0}])
def test_the_optimum_is_approached(optimum):
    tried = carried_out(bowl(optimum), 80)
    best = max(tried, key=lambda t: t[1])[0]
    for name in best:
        assert optimum[name] / 1.25 < best[name] < optimum[name] * 1.25


def test_the_second_half_improves_on_the_first():
    """On average over seeds, half at random and half along parameters beats all at random."""
    score = bowl({"a": 0.3, "b": 30.0, "c": 20.0})
    mixed = [max(s for _, s in carried_out(score, 40, seed)) for seed in range(20)]
    at_random = [max(s for _, s in carried_out(score, 81, seed)[:41]) for seed in range(20)]
    assert sum(mixed) > 0.5 * sum(at_random)


def test_the_same_seed_asks_for_the_same():
    score = bowl({"a": 0.3, "b": 30.0, "c": 20.0})
    assert carried_out(score, 30, seed=3) == carried_out(score, 30, seed=3)
    assert carried_out(score, 30, seed=3) != carried_out(score, 30, seed=4)


def test_without_parameters_there_is_one_point():
    assert carried_out(lambda p: 0.0, 10, start={}) == [({}, 0.0)]

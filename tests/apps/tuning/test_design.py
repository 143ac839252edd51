import hypothesis
import hypothesis.strategies as st

from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.design import GROUP, _neighbours, design
from fwcrf.apps.tuning.parameters import (
    at_limits,
    bandwidths_of,
    distance,
    is_bandwidth,
    landmarks,
    parameters,
    ranges,
)

START = parameters(Settings())
RANGES = ranges(START)


@hypothesis.settings(max_examples=8)
@hypothesis.given(st.integers(1, 90), st.integers(0, 99))
def test_as_many_points_as_asked_for_within_the_ranges_and_none_twice(num_trials, seed):
    points = design(START, RANGES, num_trials=num_trials, seed=seed)
    assert points[0] == START
    assert len({tuple(point.values()) for point in points}) == len(points) == num_trials
    for point in points:
        for name, (low, high) in RANGES.items():
            assert low * 0.99 <= point[name] <= high * 1.01
    assert design(START, RANGES, num_trials=num_trials, seed=seed) == points


def test_logarithms_are_spread_evenly():
    points = design(START, RANGES, num_trials=257)
    for name in START:
        if name == "temperature":  # the weights that it multiplies are spread
            continue
        above = sum(point[name] > START[name] for point in points)
        assert 100 < above < 157 or name == "steps"
    assert design(START, RANGES, num_trials=257, seed=1) != points


def test_groups_share_bandwidths_and_every_second_lies_near():
    first = 1 + len(_neighbours(START, lambda name, u: START[name] * (2 + u)))
    points = design(START, RANGES, num_trials=first + 10 * GROUP)[first:]
    groups = [points[i : i + GROUP] for i in range(0, len(points), GROUP)]
    assert len({bandwidths_of(point) for point in points}) == 10
    for number, group in enumerate(groups):
        assert len({bandwidths_of(point) for point in group}) == 1
        if number % 2:
            # Rounding of the steps adds to their distance.
            assert all(distance(point | {"steps": START["steps"]}, START) < 0.505 for point in group)
    assert max(distance(point, START) for point in points) > 0.55


def test_neighbours_differ_in_one_parameter_and_come_first():
    near = design(START, RANGES, num_trials=1 + 2 * len(START))[1:]
    changed = [[name for name in START if point[name] != START[name]] for point in near]
    assert sorted(changed) == sorted([name] for name in START for _ in "ud")
    assert all(distance(point, START) < 0.13 for point in near)
    assert [is_bandwidth(name) for (name,) in changed] == sorted(is_bandwidth(name) for (name,) in changed)
    assert {point["temperature"] for point in near} == {1.0, 1.19, 0.841}


def test_landmarks_are_among_the_points():
    moved = {name: 2 * value for name, value in START.items()}
    points = design(moved, ranges(moved), landmarks(moved), num_trials=5)
    assert points[:2] == [moved, START]
    only = {"lambda": 3.0}
    assert landmarks(only)[0] == {"lambda": 1.0}


def test_without_parameters_there_is_one_point():
    assert design({}, {}, [{}], num_trials=10) == [{}]


def test_limits():
    for name, (low, high) in RANGES.items():
        for value in (low, 1.05 * low, high, high / 1.05, 2 * high):
            assert at_limits(START | {name: value}, RANGES) == [name]
    assert at_limits(START, RANGES) == []


def test_steps_are_whole_and_never_none():
    start = {"steps": 1}
    assert {point["steps"] for point in design(start, ranges(start), num_trials=9)} == {1, 2}

"""The part of a product of parameters that tests run over has every value, and every pair."""

from itertools import combinations, product

import pytest
from helpers import covering, covering_rows


@pytest.mark.parametrize("strength", [1, 2, 3])
@pytest.mark.parametrize(
    "sizes", [(1, 2, 3), (8, 8, 2, 2), (44, 3, 2), (3, 3, 3, 3), (2, 2, 2, 2, 2)], ids=str
)
def test_every_group_of_values_comes_up(sizes, strength):
    rows = covering_rows(sizes, strength)
    for columns in combinations(range(len(sizes)), strength):
        found = {tuple(row[c] for c in columns) for row in rows}
        assert found == set(product(*(range(sizes[c]) for c in columns)))
    assert all(0 <= i < size for row in rows for i, size in zip(row, sizes, strict=True))


def test_rows_are_few():
    largest = sorted((8, 8, 2, 2))[-2:]
    assert len(covering_rows((8, 8, 2, 2))) == largest[0] * largest[1]
    assert len(covering_rows((3, 3, 3, 3))) <= 13  # of 81; the least is 9
    assert len(covering_rows((8, 5), 1)) == 8


def test_parameters_have_their_names_values_and_ids():
    mark = covering(strength=1, n=[1, 2], kind={"a": "A", "b": "B"}).mark
    assert mark.args == (("n", "kind"), [(1, "A"), (2, "B")]) and mark.kwargs == {"ids": ["1-a", "2-b"]}

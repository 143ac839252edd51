"""The stored answers of the native core: for every number of labels, and differences are found."""

import compare_answers
import pytest

from fwcrf import _core


@pytest.mark.parametrize(("dtype", "model"), [("f32", _core.ModelF32), ("f64", _core.ModelF64)])
def test_every_number_of_labels_has_answers(dtype, model):
    labels = {
        count for kind, count in compare_answers.rows(compare_answers.STORED.read_text()) if kind == dtype
    }
    assert {*range(1, model.most_labels() + 1)} < labels  # and more, in panels


def test_a_difference_is_found():
    stored = compare_answers.STORED.read_text()
    line = next(line for line in stored.splitlines() if line.startswith("f64 7 "))
    value = line.split()[-1]
    changed = stored.replace(line, line.replace(value, str(float(value) + 1e-9)))
    found = compare_answers.largest_difference(changed, stored)
    assert found["f32"] == 0 and found["f64"] == pytest.approx(1e-9, rel=1e-3)
    broken = compare_answers.largest_difference(stored.replace(value, "nan"), stored)
    assert broken["f64"] == 1
    with pytest.raises(SystemExit, match="other questions"):
        compare_answers.largest_difference(stored.replace(line + "\n", ""), stored)

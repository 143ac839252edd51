"""compare_answers.py FOUND: compare answers of ``fwcrf_answers`` with the stored ones.

The stored answers are those of x86-64 with 16-byte vectors on one thread. Answers of other processors
differ by rounding: fused multiply-adds, another order of sums.
"""

import sys
from pathlib import Path

STORED = Path(__file__).parent / "native" / "answers.txt"
# Per dtype. Measured: 3e-7, and 2e-6 in one answer whose terms cancel; 1e-15.
TOLERANCE = {"f32": 4e-6, "f64": 1e-14}


def rows(text: str) -> dict[tuple[str, int], list[float]]:
    """The answers by dtype and number of labels."""
    split = (line.split() for line in text.splitlines())
    return {(dtype, int(labels)): [float(v) for v in values] for dtype, labels, *values in split}


def largest_difference(found: str, stored: str) -> dict[str, float]:
    """The largest difference per dtype; SystemExit if the questions are not the same."""
    one, other = rows(found), rows(stored)
    if {key: len(values) for key, values in one.items()} != {
        key: len(values) for key, values in other.items()
    }:
        sys.exit(
            "other questions than the stored ones; expected the same dtypes, labels and number of answers"
        )
    pairs = [(key[0], a, b) for key in one for a, b in zip(one[key], other[key], strict=True)]
    return {
        dtype: max(abs(a - b) if a == a else 1.0 for d, a, b in pairs if d == dtype) for dtype in TOLERANCE
    }


if __name__ == "__main__":
    found = largest_difference(Path(sys.argv[1]).read_text(), STORED.read_text())
    for dtype, difference in found.items():
        print(f"{dtype}: answers differ by at most {difference:.1e}; allowed are {TOLERANCE[dtype]:.0e}")
    sys.exit(any(found[dtype] > TOLERANCE[dtype] for dtype in found))

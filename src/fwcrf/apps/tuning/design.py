"""Candidates: a fixed design of points around the start, so that images never influence the points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fwcrf.apps.tuning.parameters import is_bandwidth

Point = dict[str, float]

# So many consecutive candidates have the same bandwidths, and share their kernels: on photographs, a lattice
# takes as long to build as five to ten steps of a solver.
GROUP = 4


def design(
    start: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    landmarks: Sequence[Point] = (),
    *,
    num_trials: int,
    seed: int = 0,
) -> list[Point]:
    """Up to ``num_trials`` different points: ``start``, ``landmarks``, and a Sobol sequence in logarithms.

    Every second group of points lies half as far from the start, for improvements by small changes.
    """
    import torch

    points = [dict(start), *landmarks]
    engine = torch.quasirandom.SobolEngine(max(1, len(start)), scramble=True, seed=seed)
    drawn = (2 * engine.draw(num_trials) - 1).tolist()
    for number in range(num_trials if start else 0):
        group = number // GROUP
        point = {}
        for axis, (name, value) in enumerate(start.items()):
            u = drawn[group if is_bandwidth(name) else number][axis] / (1 + group % 2)
            low, high = ranges[name]
            moved = value * (high / value if u > 0 else value / low) ** u
            point[name] = max(1, round(moved)) if name == "steps" else float(f"{moved:.3g}")
        points.append(point)
    different = {tuple(point.values()): point for point in points}
    return list(different.values())[:num_trials]

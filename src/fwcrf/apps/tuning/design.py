"""Candidates: a fixed design of points around the start, so that images never influence the points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fwcrf.apps.tuning.parameters import is_bandwidth, is_drawn

Point = dict[str, float]

# So many consecutive candidates have the same bandwidths, and share their kernels: on photographs, a lattice
# takes as long to build as five to ten steps of a solver.
GROUP = 4
# Neighbours of the start lie at this share of the way to a limit of the search.
_STEP = 0.25


def design(
    start: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    landmarks: Sequence[Point] = (),
    *,
    num_trials: int,
    seed: int = 0,
) -> list[Point]:
    """Up to ``num_trials`` different points: ``start``, ``landmarks``, neighbours, and a Sobol sequence.

    All are in logarithms. Most points that differ from a good start in all parameters are worse; a neighbour
    differs in one. Every second group of the Sobol points lies half as far from the start.
    """
    import torch

    def moved(name: str, u: float) -> float:
        """The value at ``u`` of the way to the upper limit, or at ``-u`` to the lower one."""
        value, (low, high) = start[name], ranges[name]
        found = value * (high / value if u > 0 else value / low) ** u
        return max(1, round(found)) if name == "steps" else float(f"{found:.3g}")

    points = [dict(start), *landmarks, *_neighbours(start, moved)]
    drawn_names = [name for name in start if is_drawn(name)]
    engine = torch.quasirandom.SobolEngine(max(1, len(drawn_names)), scramble=True, seed=seed)
    drawn = (2 * engine.draw(num_trials) - 1).tolist()
    for number in range(num_trials if drawn_names else 0):
        group = number // GROUP
        point = dict(start)
        for axis, name in enumerate(drawn_names):
            row = drawn[group if is_bandwidth(name) else number]
            point[name] = moved(name, row[axis] / (1 + group % 2))
        points.append(point)
    different = {tuple(point.values()): point for point in points}
    return list(different.values())[:num_trials]


def _neighbours(start: Mapping[str, float], moved: Callable[[str, float], float]) -> list[Point]:
    """Points that differ from the start in one parameter; bandwidths last, for the sake of shared kernels."""
    names = sorted(start, key=is_bandwidth)
    return [{**start, name: moved(name, u)} for name in names for u in (_STEP, -_STEP)]

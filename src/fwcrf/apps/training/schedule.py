"""The learning rate of each step."""

from __future__ import annotations


def poly(step: int, num_steps: int, power: float = 0.9) -> float:
    """(1 - step / num_steps) ** power, the factor of the initial learning rate at a step.

    It has no state besides the step, so a resumed run continues it exactly.

    >>> poly(0, 10), round(poly(5, 10), 4), poly(10, 10)
    (1.0, 0.5359, 0.0)
    """
    if not 0 <= step <= num_steps:
        raise ValueError(f"step={step} of num_steps={num_steps}; expected 0 to num_steps.")
    return (1 - step / num_steps) ** power

"""The largest numbers of a model, in float32 and float64 alike: within them no solver overflows.

==============  ==========================================================================  ========
``WEIGHT``      |weight x compatibility| of a kernel or an edge; more is refused            2^40
``LAMBDA``      smallest and largest weight of a regularizer; all else is refused           1e-12, 1e20
``ENERGY``      |unary|; a row with more is taken relative to its lowest entry, and labels  2^80
                that are more than this above it are forbidden
==============  ==========================================================================  ========

2^32 neighbours together send less than 2^73. A label that is 2^80 above another label of its node therefore
stays at 0 with every lambda: to forbid it changes no result, and masks such as ``torch.finfo(dtype).min`` in
the logits do as -inf does. Divided by the smallest lambda, unaries and messages are below 2^121; float32 ends
at 2^128.
"""

from __future__ import annotations

WEIGHT = 2.0**40
LAMBDA = (1e-12, 1e20)
ENERGY = 2.0**80


def refuse_weight(value: float) -> None:
    """Raise the error for a weight beyond the limit."""
    raise ValueError(
        f"the largest weight times compatibility is {value:.3g}; expected at most {WEIGHT:.3g}, so that sums "
        "over neighbours do not overflow. Divide weights, logits and lambda by a common factor, which "
        "changes no result."
    )

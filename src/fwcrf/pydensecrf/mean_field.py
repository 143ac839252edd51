"""Mean field on numpy arrays, by the native engine without torch.

The same steps as ``minimize(energy, "mf")``, which goes through ``fwcrf.engine`` to the same native call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fwcrf import _core
from fwcrf.lattice_geometry import TAP
from fwcrf.pydensecrf.kernel import Kernel
from fwcrf.runtime import empty, threads_for

_FORWARD = 1  # the order of the blur
_MAX_TERMS = 8
_MOST_STEPS = 4096  # of one native call, whose arguments take memory for each step
_SOFTMAX = _core.maps().index("softmax")
_WORK = 15  # of a value in a step: two threads of 32 x 32 pixels wait for each other longer than they save
# x <- softmax(-(P x + u)), as a row of ``fwcrf.engine.update.Update``.
_STEP = (_SOFTMAX, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0)


def start(unary: np.ndarray) -> np.ndarray:
    """softmax(-unary), ``(n, labels)``."""
    out = empty(unary.shape, np.float32)
    _core.softmax(unary, -1.0, out, threads_for(4 * unary.size))
    return out


@dataclass(frozen=True, eq=False)
class MeanField:
    """Steps of mean field with P = sum_c K_c (x) M_c: a matrix, or -I if M_c is None.

    K (x) -I is a Potts term of K's weight times -1, up to a number per pixel, which changes no step.
    """

    native: Any
    weights: np.ndarray  # of Potts terms; 0 for terms with a matrix
    matrices: Sequence[np.ndarray | None]

    @staticmethod
    def of(terms: Sequence[tuple[Kernel, np.ndarray | None]], labels: int) -> MeanField | None:
        """The steps with these terms; None if the engine does not take as many terms or labels."""
        matrices = [M for _, M in terms]
        many = labels > _core.ModelF32.most_labels() and any(M is not None for M in matrices)
        if len(terms) > _MAX_TERMS or many:
            return None
        native = _core.ModelF32()
        for kernel, _ in terms:
            index, splat, slice = kernel.index[None], kernel.splat[None], kernel.slice[None]
            native.add_lattice(index, splat, slice, kernel.neighbors, None, TAP, 0.0, _FORWARD)
        weights = np.array([-K.weight if M is None else 0.0 for K, M in terms], np.float64)
        matrices = [M if M is None else np.float32(K.weight) * M for K, M in terms]
        return MeanField(native, weights, matrices)

    def run(self, unary: np.ndarray, steps: int) -> np.ndarray:
        """The point after ``steps`` steps from softmax(-unary), ``(n, labels)``."""
        if not self.matrices or steps == 0:
            return start(unary)
        out = empty(unary.shape, np.float32)
        self._call(unary, unary, min(steps, _MOST_STEPS), out, (_SOFTMAX, -1.0, None, out[None], 1.0))
        for done in range(_MOST_STEPS, steps, _MOST_STEPS):
            self._call(out, unary, min(steps - done, _MOST_STEPS), out)
        return out

    def step(self, x: np.ndarray, unary: np.ndarray) -> None:
        """One step from x, in its memory."""
        if not self.matrices:
            return _core.softmax(unary, -1.0, x, threads_for(4 * unary.size))
        self._call(x, unary, 1, x)

    def _call(self, x: np.ndarray, unary: np.ndarray, steps: int, out: np.ndarray, start: Any = None) -> None:
        finite, *_ = self.native.run(
            x[None], start, unary[None], self.weights, self.matrices, np.array([_STEP] * steps, np.float64),
            [out[None]] * steps, [], None, None, None, False, threads_for(_WORK * len(self.weights) * x.size),
            [], [], None,
        )  # fmt: skip
        if not finite:
            raise ValueError(
                "Q has values that are NaN or infinite; expected marginals of inference or startInference."
            )

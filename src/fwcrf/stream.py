"""Frames of a video, refined one after the other as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from fwcrf.frames import Frames
from fwcrf.kernels.kernel import Bandwidth
from fwcrf.refinement import check_names, refine
from fwcrf.torch_ops.printed import in_one_line

if TYPE_CHECKING:
    from fwcrf.arguments import ImageLike


class Stream:
    """A callable that refines frame after frame: ``stream(frame, scores)`` is ``refine(frame, scores)``.

    By default the labels are the labels of ``refine``, frame by frame; a frame that equals the one before
    keeps its lattice. With ``coherence`` labels flicker less: each pixel is tied to itself in the frame
    before, as strongly as its colour is unchanged. Later frames are not used, and cuts need not be told.

    Frames of several cameras are a batch.

    Args:
        coherence: the weight of the tie, like a kernel's: the logits by which the label of the frame before
            gains where the colour is the same. 0 for none; 1 is a good first value.
        color: the standard deviation of colours between frames, in grey levels; by default the bandwidth
            of the first kernel that has one.
        start: the probabilities from which the solver starts, of the ``"scores"`` or of the ``"previous"``
            frame.
        cut: the similarity below which the frame before is forgotten.
        arguments: of ``refine``, the same for all frames; a call takes more, such as ``scribbles``.

    >>> import numpy as np
    >>> stream = Stream(coherence=1.0)
    >>> frame = np.full((20, 30, 3), 200, dtype=np.uint8)
    >>> frame[:, :15] = 50
    >>> clear = np.where(frame[..., :1] < 100, (0.1, 0.9), (0.9, 0.1))
    >>> wrong = 0.3 * clear + 0.7 * clear[..., ::-1]
    >>> [stream(frame, scores)[0, [0, 29]].tolist() for scores in (clear, wrong)]
    [[1, 0], [1, 0]]
    >>> stream.count, round(stream.similarity, 2)
    (2, 1.0)
    """

    def __init__(
        self,
        *,
        coherence: float = 0.0,
        color: Bandwidth | None = None,
        start: Literal["scores", "previous"] = "scores",
        cut: float = 0.1,
        **arguments: Any,
    ) -> None:
        check_names(arguments, "fwcrf.refine")
        self.arguments: dict[str, Any] = arguments
        self.frames: Frames = Frames(coherence=coherence, color=color, start=start, cut=cut)

    __repr__ = in_one_line

    def __call__(self, frame: ImageLike, scores: Any, **more: Any) -> Any:
        """The labels of the next frame, as ``refine`` returns them."""
        check_names(more, "fwcrf.refine")
        return refine(frame, scores, frames=self.frames, **{**self.arguments, **more})

    def reset(self) -> None:
        """Forget all frames, as at a cut."""
        self.frames.reset()

    @property
    def count(self) -> int:
        """The number of frames since the last reset, cut or change of size."""
        return self.frames.count

    @property
    def similarity(self) -> float | None:
        """The mean share, from 0 to 1, of the frame before that counted in the last frame."""
        return self.frames.similarity

    @property
    def probabilities(self) -> Tensor | None:
        """The probabilities ``(*batch, *grid, labels)`` of the last frame, if the next one needs them."""
        return self.frames.probabilities

    @property
    def kept_lattices(self) -> int:
        """The number of frames that equalled the frame before, and kept its lattice."""
        return self.frames.kept_lattices

"""Data to try the plugin with."""

from __future__ import annotations

from typing import Any

import numpy as np

from fwcrf import examples


def photograph() -> list[tuple[Any, dict[str, Any], str]]:
    """A photograph, and a network's probabilities of background, cat and all other labels."""
    found = examples.load("chelsea")
    p = np.exp(found.logits - found.logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    cat = found.names.index("cat")
    three = np.stack([p[..., 0], p[..., cat], 1 - p[..., 0] - p[..., cat]]).clip(0, 1)
    labels = p.argmax(-1)
    coarse = np.where(labels == cat, 1, np.where(labels == 0, 0, 2))
    shown = {"name": "probabilities", "visible": False, "contrast_limits": (0, 1)}
    return [
        (found.image, {"name": "photograph"}, "image"),
        (three.astype(np.float32), shown, "image"),
        (coarse, {"name": "labels"}, "labels"),
    ]

"""Photographs with a real network's scores: ``image, logits, names = load("rocket")``."""

from fwcrf.examples.photographs import NAMES, Example, load

__all__ = ["NAMES", "Example", "load"]

"""Losses for training: the CRF energy for weak supervision, Lovasz-softmax, cross-entropy near borders."""

from fwcrf.losses.boundary import boundary_cross_entropy, boundary_weights
from fwcrf.losses.crf import energy, gated_energy
from fwcrf.losses.lovasz import lovasz_softmax

__all__ = ["boundary_cross_entropy", "boundary_weights", "energy", "gated_energy", "lovasz_softmax"]

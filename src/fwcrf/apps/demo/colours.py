"""Scores from a few scribbled pixels: a mixture of Gaussians over colour for each label.

k-means divides the colours under a label's scribbles into a few clusters. Each cluster is a Gaussian with the
mean and covariance of its pixels, plus a minimum variance for clusters of equal colours. With p_l(c) the
density of label l, its probability is

    q_l(c) = trust p_l(c) / sum_m p_m(c) + (1 - trust) / L,

a mixture with the uniform distribution: the colour of one pixel says little, and a CRF can only change labels
that are uncertain. Labels without scribbles have density 0.

Scores are computed for 32 levels per channel and looked up, in milliseconds for a picture of any size.
"""

from __future__ import annotations

import numpy as np

CLUSTERS = 4
TRUST = 0.5
# Minimum standard deviation of a cluster, in grey levels of 0 to 255.
LEAST_SPREAD = 10.0
_LEVELS = 32
_MOST_PIXELS = 4000


def colour_scores(
    image: np.ndarray, scribbles: np.ndarray, num_labels: int, *, trust: float = TRUST
) -> np.ndarray:
    """Logits ``(H, W, L)`` for a picture ``(H, W, 3)`` of uint8 and scribbles ``(H, W)``, -1 elsewhere.

    >>> image = np.zeros((1, 4, 3), np.uint8)
    >>> image[0, 2:] = 200
    >>> colour_scores(image, np.array([[0, -1, 1, -1]]), 2).argmax(-1)
    array([[0, 0, 1, 1]])
    """
    if not 0 < trust < 1:
        raise ValueError(f"trust={trust!r}; expected a number between 0 and 1.")
    used = [label for label in range(num_labels) if (scribbles == label).any()]
    if len(used) < 2:
        raise ValueError(f"{len(used)} of {num_labels} labels have scribbles; expected at least two.")
    centres = (np.indices((_LEVELS,) * 3).reshape(3, -1).T + 0.5) * (256 / _LEVELS)
    log_density = np.full((len(centres), num_labels), -np.inf)
    for label in used:
        log_density[:, label] = _mixture(image[scribbles == label].astype(float), centres)
    highest = log_density.max(-1, keepdims=True)
    density = np.exp(log_density - highest)
    q = trust * density / density.sum(-1, keepdims=True) + (1 - trust) / num_labels
    code = image.astype(np.intp) // (256 // _LEVELS)
    return np.log(q).astype(np.float32)[(code[..., 0] * _LEVELS + code[..., 1]) * _LEVELS + code[..., 2]]


def _mixture(samples: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Log-density at the colours ``at`` (n, 3) of a mixture fitted to ``samples`` (m, 3)."""
    samples = samples[:: -(-len(samples) // _MOST_PIXELS)]
    cluster = _clusters(samples)
    terms = []
    for k in range(cluster.max() + 1):
        own = samples[cluster == k]
        centred = own - own.mean(0)
        covariance = centred.T @ centred / len(own) + LEAST_SPREAD**2 * np.eye(3)
        root = np.linalg.cholesky(np.linalg.inv(covariance))
        distance = (((at - own.mean(0)) @ root) ** 2).sum(-1)
        terms.append(np.log(len(own) / len(samples)) + np.log(np.diag(root)).sum() - distance / 2)
    return np.logaddexp.reduce(terms)


def _clusters(samples: np.ndarray, rounds: int = 8) -> np.ndarray:
    """Cluster of each sample, by k-means. Each start is the sample farthest from the previous ones."""
    centres = samples.mean(0, keepdims=True)
    for _ in range(min(CLUSTERS, len(samples)) - 1):
        distance = _squared(samples, centres).min(-1)
        centres = np.concatenate([centres, samples[[distance.argmax()]]])
    for _ in range(rounds):
        nearest = _squared(samples, centres).argmin(-1)
        # Drop empty clusters and renumber the rest.
        kept, nearest = np.unique(nearest, return_inverse=True)
        centres = np.stack([samples[nearest == k].mean(0) for k in range(len(kept))])
    return nearest


def _squared(samples: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((samples[:, None] - centres) ** 2).sum(-1)

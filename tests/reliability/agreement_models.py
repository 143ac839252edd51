"""Agreement of models: kernels, graphs, energies and pydensecrf against formulas written out in numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from agreement_cases import (
    EPS,
    ROUNDINGS,
    Explicit,
    Model,
    NotComparable,
    agree,
    image_of,
    random,
    size_of,
    solver_of,
    with_noise,
)
from choices import Choices, flag, pick, positive
from torch import Tensor

import fwcrf
from fwcrf import graphs
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.regularizers import Entropy, SquaredL2
from fwcrf.stepsizes import LineSearch, Step
from fwcrf.theory import conditional_gradient_norm

# --- formulas in numpy ----------------------------------------------------------------------------


def gaussian(kernel: Any, image: np.ndarray, *, self_edges: bool) -> np.ndarray:
    """The matrix of a kernel of an image ``(channels, height, width)``."""
    height, width = image.shape[-2:]
    y, x = np.mgrid[:height, :width]
    features = [y.ravel() / kernel.xy, x.ravel() / kernel.xy]
    if isinstance(kernel, Bilateral):
        features += [plane.ravel() / kernel.color for plane in image]
    f = np.stack(features, -1)
    K = np.exp(-0.5 * ((f[:, None] - f) ** 2).sum(-1))
    sums = K.sum(-1)
    if kernel.normalization == "symmetric":
        K = K / np.sqrt(sums[:, None] * sums)
    elif kernel.normalization == "before":
        K = K / sums
    elif kernel.normalization == "after":
        K = K / sums[:, None]
    return K if self_edges else K - np.diag(np.diag(K))


def matrix(compat: Any, weight: Any, labels: int) -> np.ndarray:
    """M of a kernel with a weight, a number or one per label: w_s M_st, symmetrised."""
    values = np.asarray(compat, float)
    M = values * (1 - np.eye(labels)) if values.ndim == 0 else np.diag(values) if values.ndim == 1 else values
    scaled = np.asarray(weight, float).reshape(-1, 1) * (M + M.T) / 2
    return (scaled + scaled.T) / 2


def dense(model: Model) -> list[tuple[np.ndarray, np.ndarray]]:
    """K and M of each term."""
    image = model.image.double().numpy()
    return [
        (gaussian(k, image, self_edges=model.self_edges), matrix(model.compat, k.weight, model.labels))
        for k in model.kernels
    ]


def project(v: np.ndarray) -> np.ndarray:
    """Rows projected onto the simplex, by sorting; entries of -inf get 0."""
    v = np.where(np.isinf(v), -1e9, v)
    s = -np.sort(-v, -1)
    top = np.cumsum(s, -1) - 1
    count = np.arange(1, v.shape[-1] + 1)
    size = (s - top / count > 0).sum(-1, keepdims=True)
    return np.maximum(v - np.take_along_axis(top, size - 1, -1) / size, 0)


def softmax(v: np.ndarray) -> np.ndarray:
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def entropy(x: np.ndarray) -> float:
    return float((x[x > 0] * np.log(x[x > 0])).sum())


# --- comparisons ----------------------------------------------------------------------------------


def formulas(c: Choices) -> None:
    """Runs of ``mf``, ``efw``, ``l2fw``, ``fw`` with exact kernels against the paper's formulas in numpy.

    Tolerance: 16 times the rounding of one gradient, for up to 4 steps and kernels computed from features.
    """
    dtype = pick(c, (torch.float32, torch.float64))
    model = Model.of(c, dtype=dtype, most=20, batch=(), methods=("exact",))
    name, steps, weight = pick(c, ("mf", "efw", "l2fw", "fw")), c.integer(1, 4), pick(c, (0.5, 1.0))
    solver = fwcrf.solvers.get(name, **({"weight": weight} if name in ("efw", "l2fw") else {}))
    found = fwcrf.minimize(model.energy(), solver, num_steps=steps).probabilities
    terms, labels = dense(model), model.labels

    def reference(noise: float, seed: int) -> list[Tensor]:
        u = with_noise(model.unary.double(), noise, seed).numpy()
        x = softmax(-u)
        for k in range(steps):
            g = sum(K @ x @ M for K, M in terms) + u
            if name == "fw":
                x = x + 2 / (k + 2) * (np.eye(labels)[g.argmin(-1)] - x)
            else:
                x = (
                    project(-g / weight)
                    if name == "l2fw"
                    else softmax(-g / (1.0 if name == "mf" else weight))
                )
        return [torch.from_numpy(x)]

    largest = sum(np.abs(K).sum(-1).max() * np.abs(M).sum(-1).max() for K, M in terms)
    rounding = 4 * ROUNDINGS * EPS[dtype] * (1 + size_of(model.unary) + float(largest))
    agree([found], reference, 4 * rounding, rounding, name)


# The largest relative L2 error of the lattice for rows of a simplex, by kernel and normalization.
# Of 4,238 such images the largest errors were 0.18, 0.028 and 0.048. docs/accuracy.md has photographs.
LATTICE_ERROR = {
    (Bilateral, "symmetric"): 0.3,
    (Spatial, "symmetric"): 0.05,
    (Spatial, "none"): 0.08,
    (Bilateral, "none"): 0.2,
}
# The scale of a lattice is fitted to pairs of pixels in sight of each other. With fewer pixels in sight than
# this, a tiny image has too few pairs, and without normalization the scale may be wrong by any factor.
IN_SIGHT = 12


def lattice(c: Choices) -> None:
    """K x by the lattice and by the exact kernel against the formula, for rows of a simplex.

    Tolerance: ``LATTICE_ERROR``, relative in the L2 norm, and rounding for the exact kernel.
    """
    grid = (c.integer(3, 12), c.integer(3, 10))
    image = torch.from_numpy(image_of(c, grid, c.integer(1, 3)))
    normalization: Any = pick(c, ("symmetric", "none"))
    if flag(c):
        kernel: Any = Bilateral(positive(c, 2.0, 8.0), positive(c, 15.0, 60.0), 1.0, "lattice", normalization)
    else:
        kernel = Spatial(positive(c, 1.0, 4.0), 1.0, "lattice", normalization)
    x = softmax(random(c).normal(size=(grid[0] * grid[1], c.integer(2, 6))))
    K = gaussian(kernel, image.numpy(), self_edges=True)
    expected = K @ x

    def error(method: str) -> float:
        same = type(kernel)(**{**kernel.__dict__, "method": method}).operator(image)
        return float(np.linalg.norm(same(torch.from_numpy(x)).numpy() - expected) / np.linalg.norm(expected))

    assert error("exact") <= ROUNDINGS * EPS[torch.float64], (
        f"{kernel}: the exact kernel is {error('exact'):.2g} off"
    )
    if normalization == "none" and isinstance(kernel, Bilateral) and K.sum(-1).mean() < IN_SIGHT:
        raise NotComparable("too few pixels in sight of each other")
    most = LATTICE_ERROR[type(kernel), normalization]
    assert error("lattice") <= most, f"{kernel}: relative error {error('lattice'):.3f}"


def sparse(c: Choices) -> None:
    """A dense model with exact kernels against a graph of all pairs of pixels: runs, energies, gradients.

    Tolerance: 8 times the rounding of one gradient.
    """
    dtype = pick(c, (torch.float32, torch.float64))
    model = Model.of(
        c, dtype=dtype, most=6, batch=(), methods=("exact",), normalizations=("symmetric", "none")
    )
    model.self_edges = False
    n = min(model.unary.shape[-2], 48)
    P = Explicit.of(model.pairwise(), dtype)
    explicit = Explicit([K[:n, :n] for K in P.kernels], P.matrices)
    unary = model.unary[:n]
    edges = torch.combinations(torch.arange(n), 2)
    i, j = edges.T
    each = [K[i, j] for K in explicit.kernels]
    if len(each) == 1:
        potential: Any = graphs.Full(explicit.matrices[0], each[0])
        if np.ndim(model.compat) == 0 and np.ndim(model.kernels[0].weight) == 0:
            potential = graphs.Potts(each[0] * float(model.compat) * float(model.kernels[0].weight))
    else:
        potential = graphs.Tables(
            sum(w[:, None, None] * M for w, M in zip(each, explicit.matrices, strict=True))
        )
    mrf = fwcrf.SparseMRF(unary, edges, potential)
    solver, steps = solver_of(c), c.integer(1, 3)
    rounding = ROUNDINGS * EPS[dtype] * (1 + size_of(unary) + explicit.largest())
    found = mrf.solve(solver, num_steps=steps, rounding="nearest")
    x = torch.softmax(-unary, -1)

    def reference(noise: float, seed: int) -> list[Tensor]:
        E = Energy(explicit, with_noise(unary, noise, seed))
        y = fwcrf.minimize(E, solver, num_steps=steps).probabilities
        finite = E.grad(x).masked_fill(torch.isinf(unary), 0.0)
        return [y, finite, E.value(x) / n]

    E = mrf.energy()
    grad = E.grad(x).masked_fill(torch.isinf(unary), 0.0)
    agree(
        [found.probabilities, grad, E.value(x) / n], reference, 8 * rounding, rounding, f"{potential!r}"[:60]
    )
    values = mrf.value(found.labels)
    expected = Energy(explicit, unary).of_labels(found.labels)
    if torch.isfinite(expected):
        assert abs(float(values - expected)) <= n * rounding, "energies of labels"


def energies(c: Choices) -> None:
    """E(x), its gradient and curvature, E of labels, the gap and the line search against sums in numpy.

    Tolerance: rounding of sums of as many terms as there are pairs of pixels and labels. A line search is
    right if no point of a grid of 200 is lower by more than rounding.
    """
    model = Model.of(c, dtype=torch.float64, most=6, batch=(), methods=("exact",),
                     normalizations=("symmetric", "none"))  # fmt: skip
    terms, u = dense(model), model.unary.numpy()
    E, r = model.energy(), random(c)
    n = len(u)
    free = np.isfinite(u)
    x = softmax(np.where(free, r.normal(size=u.shape), -np.inf))
    bounded = np.where(free, u, 0.0)
    quadratic = lambda a, b: sum(float((a * (K @ b @ M)).sum()) for K, M in terms)  # noqa: E731
    grad = sum(K @ x @ M for K, M in terms) + u
    size = n * (
        1 + size_of(model.unary) + sum(np.abs(K).sum(-1).max() * np.abs(M).sum(-1).max() for K, M in terms)
    )
    rounding = ROUNDINGS * EPS[torch.float64] * float(size)

    def near(found: Any, expected: float, what: str) -> None:
        assert abs(float(found) - expected) <= rounding, f"{what}: {float(found)!r}, expected {expected!r}"

    t = torch.from_numpy(x)
    near(E.value(t), 0.5 * quadratic(x, x) + float((bounded * x).sum()), "E(x)")
    near(
        E.value_from_grad(t, E.grad(t)),
        0.5 * quadratic(x, x) + float((bounded * x).sum()),
        "E from its gradient",
    )
    there = E.grad(t).numpy()
    assert np.isposinf(there[~free]).all(), "the gradient of a forbidden label"
    assert np.abs(there[free] - grad[free]).max() <= rounding, "the gradient"
    labels = np.array([r.choice(np.flatnonzero(row)) for row in free])
    pairs = sum(
        0.5 * float(K[i, j] * M[labels[i], labels[j]])
        for K, M in terms
        for i, j in itertools.product(range(n), repeat=2)
    )
    near(E.of_labels(torch.from_numpy(labels)), pairs + float(u[range(n), labels].sum()), "E of labels")
    w = pick(c, (0.3, 1.0, 2.0))
    g, p = (SquaredL2(w), project(-grad / w)) if flag(c) else (Entropy(w), softmax(-grad / w))
    value = (
        (lambda z: w / 2 * float((z * z).sum())) if isinstance(g, SquaredL2) else (lambda z: w * entropy(z))
    )
    gap = float((np.where(free, grad, 0.0) * (x - p)).sum()) + value(x) - value(p)
    near(conditional_gradient_norm(E, g, t), gap, "the gap")
    d = p - x
    near(E.curvature(torch.from_numpy(d)), quadratic(d, d), "the curvature")
    a = float(LineSearch()(Step(0, E, g, t, E.grad(t), torch.from_numpy(p))))
    bend, slope = quadratic(d, d), float((np.where(free, grad, 0.0) * d).sum())

    def along(s: float) -> float:
        return 0.5 * s * s * bend + s * slope + value(x + s * d)

    best = min(along(s) for s in np.linspace(0, 1, 201))
    assert 0 <= a <= 1 and along(a) <= best + rounding, (
        f"line search: {along(a) - best:.3g} above the best point"
    )


def dropin(c: Choices) -> None:
    """``fwcrf.pydensecrf`` against pydensecrf, on random models.

    Tolerance: 2e-5 as for the stored answers, times the size of the energies: the same lattice and the same
    steps in float32. Models whose reference moves as much under rounding are ties.
    """
    try:
        import pydensecrf.densecrf as theirs
    except ImportError:
        raise NotComparable("pydensecrf is not installed") from None
    from fwcrf.pydensecrf import densecrf as ours

    r = random(c)
    w, h, labels = c.integer(2, 10), c.integer(2, 9), c.integer(2, 5)
    unary = r.normal(0, pick(c, (0.5, 2.0)), (labels, w * h)).astype(np.float32)
    steps, grid = c.integer(1, 4), flag(c)
    image = np.ascontiguousarray(np.moveaxis(image_of(c, (h, w), 3), 0, -1).clip(0, 255).astype(np.uint8))
    parts: list[tuple[str, dict[str, Any]]] = []
    for _ in range(c.integer(1, 2)):
        compat: Any = pick(c, (3, -1.0, 0.5, "vector", "matrix"))
        if isinstance(compat, str):
            shape = (labels,) if compat == "vector" else (labels, labels)
            compat = r.normal(0, 1, shape).astype(np.float32)
        how = {"compat": compat, "kernel": c.integer(0, 2), "normalization": c.integer(0, 3)}
        if grid and flag(c):
            parts.append(("addPairwiseGaussian", {"sxy": positive(c, 0.7, 5), **how}))
        elif grid:
            more = {"sxy": positive(c, 1, 8), "srgb": positive(c, 8, 60), "rgbim": image}
            parts.append(("addPairwiseBilateral", {**more, **how}))
        else:
            features = r.normal(0, 2, (c.integer(1, 5), w * h)).astype(np.float32)
            parts.append(("addPairwiseEnergy", {"features": features, **how}))

    def run(library: Any, energies: np.ndarray) -> list[Tensor]:
        crf = library.DenseCRF2D(w, h, labels) if grid else library.DenseCRF(w * h, labels)
        crf.setUnaryEnergy(np.ascontiguousarray(energies))
        for name, given in parts:
            features = (given["features"],) if "features" in given else ()
            getattr(crf, name)(*features, **{k: v for k, v in given.items() if k != "features"})
        return [torch.from_numpy(np.array(crf.inference(steps)))]

    def reference(noise: float, seed: int) -> list[Tensor]:
        return run(theirs, with_noise(torch.from_numpy(unary), noise, seed).numpy())

    largest = sum(float(np.abs(given["compat"]).sum()) for _, given in parts)
    agree(
        run(ours, unary), reference, 2e-5, EPS[torch.float32] * (8 + 4 * largest), f"{[p for p, _ in parts]}"
    )

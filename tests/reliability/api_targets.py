"""Fuzz targets of the public interface: whatever is passed, a right answer or a sentence.

A target makes a case of choices and runs it. ``Refused`` stands for a ``ValueError`` or ``TypeError`` with a
message; anything else that is raised, and any answer that is not finite for finite input, is a find.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from choices import NOT_FINITE, Choices, array, flag, pick, positive, strided
from torch import Tensor

import fwcrf
from fwcrf import pairwise, solvers
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Gaussian, Spatial

FLOATS = (np.float32, np.float64, np.float16)
IMAGES = (np.uint8, np.float32, np.float64, np.int16, np.uint16, np.int64, np.float16, bool)
NORMALIZATIONS = ("symmetric", "none", "before", "after")
SOLVERS = ("l2fw", "mf", "fw", "efw", "anneal-fw", "pgd", "fista", "emd", "admm", "tsallis-fw", "mixed-fw",
           "binary-entropy-fw", "lp-fw", "convex-fw", "cmf2", "pgm", "bregman-admm")  # fmt: skip


class Refused(Exception):
    """The case was answered with a sentence."""


@contextmanager
def sentences() -> Iterator[None]:
    """Turn a refusal into ``Refused``; a message that is none is a find."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    except (ValueError, TypeError) as error:
        said = str(error)
        assert len(said) > 15 and "\n" not in said.strip(), f"not a sentence: {said!r}"
        raise Refused(said) from error


def check_probabilities(x: Any, tolerance: float = 2e-3) -> None:
    """On the simplex, labels last."""
    x = torch.as_tensor(np.asarray(x)).double() if not isinstance(x, Tensor) else x.detach().double()
    assert torch.isfinite(x).all(), "probabilities that are not finite"
    assert x.min() >= -tolerance and x.max() <= 1 + tolerance, "probabilities outside [0, 1]"
    assert ((x.sum(-1) - 1).abs() <= tolerance).all(), "probabilities that do not sum to 1"


def kernels(c: Choices) -> list[Any]:
    found: list[Any] = []
    for _ in range(c.integer(0, 3)):
        weight = pick(c, (1.0, 0.0, -1.0, 10.0, 1e-6, 1e4))
        normalization = pick(c, NORMALIZATIONS)
        kind = c.integer(0, 2)
        if kind == 0:
            found.append(
                Spatial(positive(c), weight, pick(c, ("separable", "lattice", "exact")), normalization)
            )
        elif kind == 1:
            found.append(
                Bilateral(positive(c), positive(c), weight, pick(c, ("lattice", "exact")), normalization)
            )
        else:
            precision = pick(c, (None, positive(c)))
            found.append(Gaussian(weight, precision, pick(c, ("lattice", "exact")), normalization))
    return found


def scores(c: Choices, shape: tuple[int, ...], labels: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Scores of pixels, labels last, and what says of which kind they are."""
    kind = c.integer(0, 3)
    if kind == 0:
        logits = array(c, (*shape, labels), np.float64, largest=30.0)
        p = np.exp(logits - logits.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True)).astype(pick(c, FLOATS)), {}
    if kind == 1:
        return array(c, (*shape, labels), pick(c, FLOATS)), {"from_logits": True}
    if kind == 2:
        random = np.random.default_rng(c.integer(0, 2**32 - 1))
        dtype = pick(c, (np.int64, np.uint8, np.int32, np.int8))
        low = 0 if np.dtype(dtype).kind == "u" else -1
        return random.integers(low, labels, shape).astype(dtype), {
            "from_labels": pick(c, (True, 0.6, 0.999999))
        }
    logits = array(c, (*shape, labels), pick(c, (np.float32, np.float64)), largest=1e4)
    random = np.random.default_rng(c.integer(0, 2**32 - 1))
    logits[random.uniform(size=logits.shape) < 0.3] = -np.inf  # labels that are forbidden
    return logits, {"from_logits": True}


def spoil(c: Choices, values: np.ndarray) -> np.ndarray:
    """Now and then, a value that is not finite."""
    if c.integer(0, 15) or values.dtype.kind != "f" or not values.size:
        return values
    values = values.copy()
    values.flat[c.integer(0, values.size - 1)] = pick(c, NOT_FINITE)
    return values


def as_torch(values: np.ndarray) -> Tensor:
    kept = values if all(s >= 0 for s in values.strides) and values.flags.writeable else values.copy()
    return torch.from_numpy(kept)


def refine(c: Choices) -> None:
    dims = pick(c, (2, 2, 2, 1, 3))
    grid = tuple(c.integer(1, 9) for _ in range(dims))
    labels = c.integer(1, 6)
    batch = pick(c, ((), (), (1,), (2,)))
    channels = c.integer(1, 4)
    image = spoil(c, strided(c, array(c, (*batch, *grid, channels), pick(c, IMAGES))))
    given, options = scores(c, (*batch, *grid), labels)
    given = spoil(c, given)
    if flag(c):
        options["keep"] = array(c, (*batch, *grid), bool)
    if flag(c):
        options["ignore"] = array(c, (*batch, *grid), bool)
    if flag(c) and flag(c):
        options["scribbles"] = np.random.default_rng(c.integer(0, 99)).integers(
            -1, max(2, labels), (*batch, *grid)
        )
    if flag(c) and flag(c):
        options |= {"tile": c.integer(1, 6), "overlap": c.integer(0, 5)}
    if not c.integer(0, 7):
        grid = tuple(c.integer(1, 9) for _ in range(dims))
        image = array(c, (*batch, *grid, channels), pick(c, IMAGES))
        options["resize"] = pick(c, ("scores", "image", None))
    if c.integer(0, 3) == 0:
        axis = -1 if options.get("from_labels") is None else None
        image, given = as_torch(np.moveaxis(image, -1, len(batch))), as_torch(given)
        if axis == -1:
            given = given.movedim(-1, len(batch))
        options = {k: as_torch(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    else:
        given = strided(c, given)
    with sentences():
        found, x = fwcrf.refine(
            image, given, solver=pick(c, SOLVERS), num_steps=c.integer(0, 4), kernels=kernels(c),
            compatibility=pick(c, (1.0, 0.0, -2.0, 100.0)), spatial_dims=dims,
            spacing=pick(c, (None, 1.0, positive(c))), rounding=pick(c, ("nearest", "bcd")),
            self_edges=flag(c), return_probabilities=True, **options,
        )  # fmt: skip
    assert type(found) is type(given)
    most = max(2, labels) if not options.get("from_labels") else int(np.asarray(given).max()) + 2
    found = np.asarray(found)
    assert found.dtype == np.int64 and found.min() >= 0 and found.max() < max(2, most)
    x = (
        np.asarray(x.movedim(len(batch), -1))
        if isinstance(x, Tensor) and x.ndim > found.ndim
        else np.asarray(x)
    )
    if x.ndim == found.ndim or x.shape[-1] == 1:  # one probability stands for two
        x = x if x.ndim > found.ndim else x[..., None]
        x = np.concatenate([1 - x, x], -1)
    check_probabilities(x.astype(np.float64))


def refine_points(c: Choices) -> None:
    n, labels = c.integer(1, 40), c.integer(1, 5)
    batch = pick(c, ((), (), (2,)))
    dtype = pick(c, (np.float32, np.float64))
    positions = spoil(c, strided(c, array(c, (*batch, n, c.integer(1, 4)), dtype)))
    features = pick(c, (None, array(c, (*batch, n, c.integer(1, 4)), dtype)))
    given, options = scores(c, (*batch, n), labels)
    if flag(c):
        options["ignore"] = array(c, (*batch, n), bool)
    chosen = None if flag(c) else kernels(c)
    with sentences():
        found, x = fwcrf.refine_points(
            positions, features, given, solver=pick(c, SOLVERS), num_steps=c.integer(0, 4), kernels=chosen,
            self_edges=flag(c), return_probabilities=True, **options,
        )  # fmt: skip
    assert found.shape == (*batch, n) and found.min() >= 0
    x = x[..., None] if x.ndim == found.ndim else x
    check_probabilities((np.concatenate([1 - x, x], -1) if x.shape[-1] == 1 else x).astype(np.float64))


LEARNABLE = ("weights", "compatibility", "lambda", "steps", "skip", "bandwidths")


def layer(c: Choices) -> None:
    """``DenseCRF`` forwards and backwards, on the CPU and on the meta device."""
    labels, channels = c.integer(1, 5), c.integer(1, 4)
    grid = (c.integer(1, 8), c.integer(1, 8))
    batch = pick(c, ((), (1,), (3,)))
    dtype = pick(c, (np.float32, np.float64, np.float16))
    logits = as_torch(spoil(c, array(c, (*batch, labels, *grid), dtype, largest=pick(c, (20.0, 1e4, 1e30)))))
    image = as_torch(
        strided(c, array(c, (*batch, channels, *grid), pick(c, (np.float32, np.uint8)), largest=1e6))
    )
    learnable = tuple(name for name in LEARNABLE if not c.integer(0, 3))
    chosen = [k for k in kernels(c) if not isinstance(k, Gaussian)] or None
    with sentences():
        crf = fwcrf.DenseCRF(
            labels, chosen, solver=pick(c, SOLVERS[:14]), num_steps=c.integer(0, 3), learnable=learnable,
            skip=pick(c, (0.0, 0.5, 1.0)), gradient=pick(c, ("unrolled", "unrolled", "implicit")),
            weights="full" if "weights" in learnable and flag(c) else "scalar", self_edges=flag(c),
            epsilon=pick(c, (1e-6, 1e-3)),
        )  # fmt: skip
        crf = crf.to(torch.float64) if dtype is np.float64 else crf
        logits.requires_grad_()
        log_p = crf(image, logits)
    assert log_p.shape == logits.shape and log_p.dtype == logits.dtype
    assert torch.isfinite(log_p).all(), "log-probabilities that are not finite"
    if labels > 1 and dtype is not np.float16:
        check_probabilities(log_p.detach().exp().movedim(len(batch), -1))
    if log_p.requires_grad:
        log_p.double().mean().backward()
        moderate = float(logits.detach().abs().max()) <= 20 and float(image.double().abs().max()) <= 255
        for parameter in (logits, *crf.parameters()):
            if parameter.grad is not None and moderate and dtype is not np.float16:
                assert torch.isfinite(parameter.grad).all(), "gradients that are not finite"


def meta(c: Choices) -> None:
    """Shapes alone: the answer has the shape of the logits, or a sentence says why not."""
    labels, grid = c.integer(1, 5), (c.integer(1, 8), c.integer(1, 8))
    batch = pick(c, ((), (2,)))
    wrong = 0 if c.integer(0, 4) else c.integer(1, 3)
    logits = torch.empty(*batch, labels + wrong // 2, *grid, device="meta")
    image = torch.empty(*batch, 3, grid[0] + wrong % 2, grid[1], device="meta")
    with sentences():
        crf = fwcrf.DenseCRF(labels, num_steps=c.integer(0, 3), kernels=[Spatial(positive(c, 0.1, 10))])
        answer = crf.to("meta")(image, logits)
    assert answer.shape == logits.shape and answer.is_meta


def energy(c: Choices) -> None:
    """``Energy`` and ``minimize`` with every solver, on features."""
    n, labels = c.integer(1, 30), c.integer(1, 5)
    batch = pick(c, ((), (), (2,)))
    dtype = pick(c, (torch.float32, torch.float64))
    features = as_torch(array(c, (*batch, n, c.integer(1, 6)), np.float64, largest=pick(c, (5.0, 1e6)))).to(
        dtype
    )
    unary = as_torch(spoil(c, array(c, (*batch, n, labels), np.float64, largest=pick(c, (10.0, 1e4, 1e30)))))
    compat = pick(c, (1.0, -1.0, 0.0, as_torch(array(c, (labels, labels), largest=10.0)).to(dtype)))
    with sentences():
        K = Gaussian(
            method=pick(c, ("lattice", "exact")), normalization=pick(c, NORMALIZATIONS[:2])
        ).operator(features)
        E = Energy(pairwise.dense([K], num_labels=labels, compat=compat), unary.to(dtype))
        steps = c.integer(0, 5)
        found = solvers.minimize(
            E, pick(c, SOLVERS), num_steps=steps, rounding=pick(c, ("nearest", "bcd")), trace=flag(c),
            tol=pick(c, (None, 1e-6)),
        )  # fmt: skip
        labels_found, energy_found = found.labels, found.energy
    check_probabilities(found.probabilities)
    assert labels_found.min() >= 0 and labels_found.max() < labels
    assert torch.isfinite(energy_found).all(), "an energy that is not finite"


def operators(c: Choices) -> None:
    """Operators of kernels: linear maps with a transpose, finite for finite input."""
    dtype = pick(c, (torch.float32, torch.float64))
    batch = pick(c, ((), (2,)))
    channels = c.integer(0, 40)
    kind = c.integer(0, 2)
    with sentences():
        if kind == 0:
            n, d = c.integer(1, 70), c.integer(1, 17)
            features = as_torch(strided(c, array(c, (*batch, n, d), np.float64))).to(dtype)
            K = Gaussian(1.0, pick(c, (None, positive(c))), pick(c, ("lattice", "exact")),
                         pick(c, NORMALIZATIONS)).operator(features)  # fmt: skip
        else:
            grid = tuple(c.integer(1, 9) for _ in range(pick(c, (2, 1, 3))))
            image = as_torch(strided(c, array(c, (*batch, c.integer(1, 3), *grid), np.float64, largest=1e6)))
            spec: Any = Spatial(positive(c, 1e-2, 1e4), 1.0, pick(c, ("separable", "lattice", "exact")),
                                pick(c, NORMALIZATIONS))  # fmt: skip
            if kind == 2:
                spec = Bilateral(
                    positive(c), positive(c), 1.0, pick(c, ("lattice", "exact")), pick(c, NORMALIZATIONS)
                )
            K = spec.operator(image.to(dtype), spatial_dims=len(grid))
        if flag(c):
            K = K.without_self_edges()
        x = as_torch(array(c, (*K.batch_shape, K.n, channels), np.float64, largest=1e6)).to(dtype)
        y = K(x)
        z = K.T(x)
        diagonal, sums = K.diagonal(), K.row_sums()
    assert y.shape == x.shape and z.shape == x.shape and y.dtype == dtype
    for t in (y, z, diagonal, sums):
        assert torch.isfinite(t).all(), "an operator's answer that is not finite"


def dropin(c: Choices) -> None:
    """``fwcrf.pydensecrf``, in the way scripts use it."""
    from fwcrf.pydensecrf import densecrf, utils

    w, h, labels = c.integer(1, 9), c.integer(1, 9), c.integer(1, 5)
    n = w * h
    with sentences():
        crf: Any = densecrf.DenseCRF2D(w, h, labels) if flag(c) else densecrf.DenseCRF(n, labels)
        if flag(c):
            unary = array(c, (labels, n), np.float32, largest=pick(c, (10.0, 1e30)))
        else:
            random = np.random.default_rng(c.integer(0, 999))
            unary = utils.unary_from_labels(random.integers(0, labels + 1, (h, w)), labels, 0.7)
        crf.setUnaryEnergy(spoil(c, unary))
        for _ in range(c.integer(0, 2)):
            compat = pick(c, (3, -1.0, 0, array(c, (labels,), np.float32, largest=10.0),
                              array(c, (labels, labels), np.float32, largest=10.0)))  # fmt: skip
            how = {"kernel": c.integer(0, 2), "normalization": c.integer(0, 3)}
            if isinstance(crf, densecrf.DenseCRF2D) and flag(c):
                crf.addPairwiseGaussian(sxy=positive(c), compat=compat, **how)
            elif isinstance(crf, densecrf.DenseCRF2D):
                image = strided(c, array(c, (h, w, 3), np.uint8))
                crf.addPairwiseBilateral(sxy=positive(c), srgb=positive(c), rgbim=image, compat=compat, **how)
            else:
                features = array(c, (c.integer(1, 5), n), np.float32, largest=1e6)
                crf.addPairwiseEnergy(features, compat=compat, **how)
        q = np.array(crf.inference(c.integer(0, 4)))
        Q, one, two = crf.startInference()
        for _ in range(c.integer(0, 2)):
            crf.stepInference(Q, one, two)
        divergence = crf.klDivergence(Q)
    assert q.shape == (labels, n)
    check_probabilities(q.T)
    check_probabilities(np.array(Q).T)
    assert not np.isnan(divergence)


TARGETS: dict[str, Callable[[Choices], None]] = {
    target.__name__: target for target in (refine, refine_points, layer, meta, energy, operators, dropin)
}

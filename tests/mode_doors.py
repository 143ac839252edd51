"""Every door of the library, first under a mode of torch and then without it, one process for each mode.

Prints one JSON object: by mode, for "under" the mode and "after" it, and by door, the dtype and a digest of
every result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import torch

import fwcrf
from fwcrf import losses, official, stepsizes, theory
from fwcrf.graphs import search
from fwcrf.graphs.native import native_models
from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.pydensecrf import densecrf as dcrf
from fwcrf.pydensecrf.utils import unary_from_softmax

CPU = torch.device("cpu")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers from 0 to 1 in float32, from numpy: torch's defaults do not reach them."""
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def likely(*shape: int, axis: int) -> np.ndarray:
    """Probabilities with the labels on an axis."""
    p = numbers(*shape) + np.float32(0.2)
    return p / p.sum(axis, keepdims=True)


def image(height: int = 9, width: int = 12) -> torch.Tensor:
    return torch.from_numpy(numbers(3, height, width) * np.float32(255))


def logits(labels: int = 3, height: int = 9, width: int = 12) -> torch.Tensor:
    return torch.from_numpy(4 * numbers(labels, height, width, seed=1))


def refine_numpy() -> list:
    picture = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    p = likely(9, 12, 3, axis=-1)
    matrix = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    found = [fwcrf.refine(picture, p, return_probabilities=True)]
    found += [fwcrf.refine(picture, p, solver=solver, compatibility=matrix, return_probabilities=True)
              for solver in ("l2fw", "tsallis-fw", "admm")]  # fmt: skip
    found.append(fwcrf.refine(picture, p, rounding="bcd", return_probabilities=True))
    found.append(fwcrf.refine(picture, p.argmax(-1), from_labels=True, return_probabilities=True))
    found.append(fwcrf.refine(picture, p[::2, ::2], resize="scores", return_probabilities=True))
    found.append(fwcrf.refine(picture, p, tile=6, overlap=2, keep=p[..., 0] > 0.5, ignore=p[..., 0] < 0.1,
                              return_probabilities=True))  # fmt: skip
    return [one for pair in found for one in pair]


def refine_torch() -> list:
    p = torch.from_numpy(likely(3, 9, 12, axis=0))
    exact = [Spatial(3, method="exact"), Bilateral(20, 60, method="exact")]
    found = fwcrf.refine(image(), p, return_probabilities=True)
    return [*found, *fwcrf.refine(image(), p, kernels=exact, return_probabilities=True)]


def refine_points() -> list:
    place, p = numbers(40, 3), likely(40, 4, axis=-1)
    found = fwcrf.refine_points(place, None, p, return_probabilities=True)
    return [*found, *fwcrf.refine_points(place, 255 * place, p, return_probabilities=True)]


def operators() -> list:
    found: list = []
    x = torch.from_numpy(numbers(108, 2))
    for normalization in ("symmetric", "none", "before"):
        for kernel in (
            Spatial(3, normalization=normalization),
            Bilateral(20, 60, normalization=normalization),
            Bilateral(20, 60, normalization=normalization, method="exact"),
        ):
            K = kernel.operator(image())
            found += [K(x), K.diagonal(), K.row_sums(), K.without_self_edges()(x)]
    K = Gaussian(precision=2.0, method="exact").operator(torch.from_numpy(3 * numbers(30, 2)))
    return [*found, K.to_dense()]


def solve() -> list:
    crf = fwcrf.DenseCRF(3)
    first = crf.solve(image(), logits())
    second = crf.solve(
        image(), logits(), solver=fwcrf.solvers.get("l2fw", step=stepsizes.Adaptive()), trace=True
    )
    records = [value for record in second.trace or () for value in (record.energy, record.gap)]
    return [first.labels, first.probabilities, first.energy, second.probabilities, *records]


def sparse_mrf() -> list:
    unary = torch.from_numpy(numbers(6, 3))
    edges = torch.from_numpy(np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 5]]))
    found: list = []
    mrf = fwcrf.SparseMRF(unary, edges, 0.5)
    for solver in ("l2fw", "mf", "lp-trw", "lp-meshi", "lp-bethe", "lp-rho", "lp-trws"):
        s = mrf.solve(solver=solver, num_steps=4)
        found += [s.labels, s.probabilities, s.energy]
    s = mrf.solve()  # by an exact method; the others are called by themselves
    (native,) = native_models(mrf)
    searched = search.Search(native, unary.double(), 6, 1.0)
    search.messages(searched)
    annealed = search.annealed(native, unary.double(), 5, 0)
    return [*found, s.labels, s.energy, s.bound, searched.labels, annealed]


def drop_in() -> list:
    d = dcrf.DenseCRF2D(12, 9, 3)
    d.setUnaryEnergy(unary_from_softmax(likely(3, 9, 12, axis=0)))
    d.addPairwiseGaussian(sxy=3, compat=3)
    picture = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    d.addPairwiseBilateral(sxy=20, srgb=13, rgbim=picture, compat=10)
    d.addPairwiseGaussian(sxy=1, compat=np.array([1, 0, -1], np.float32))
    Q, first, second = d.startInference()
    d.stepInference(Q, first, second)
    wide = dcrf.DenseCRF(40, 2)
    wide.setUnaryEnergy(numbers(2, 40))
    wide.addPairwiseEnergy(numbers(20, 40), compat=np.eye(2, dtype=np.float32))
    answers = [d.inference(5), d.inference(3, solver="l2fw"), Q, wide.inference(3)]
    return [*map(np.array, answers), np.array(d.klDivergence(Q))]


LEARNED = ("weights", "compatibility", "lambda", "steps", "skip", "bandwidths")


def layer(learnable: Iterable[str] = ()) -> list:
    crf = made[tuple(learnable)]
    given = logits().requires_grad_(), image().requires_grad_(bool(learnable))
    out = crf(given[1], given[0])
    found = [out]
    if out.requires_grad and torch.is_grad_enabled():
        wanted = [t for t in (*given, *crf.parameters()) if t.requires_grad]
        with torch.autocast("cpu", enabled=False):  # torch's own advice for backward passes
            found += torch.autograd.grad((out * out).sum(), wanted)
    return found


def loss() -> list:
    p = torch.from_numpy(likely(3, 9, 12, axis=0)).requires_grad_()
    target = torch.from_numpy(np.random.default_rng(3).integers(0, 3, (1, 9, 12)))
    values = [
        losses.energy(image(), p),
        losses.gated_energy(image(), p),
        losses.lovasz_softmax(p[None], target),
        losses.boundary_cross_entropy(p[None].log(), target),
    ]
    slopes = [torch.autograd.grad(v.sum(), p)[0] for v in values if v.requires_grad]
    return [losses.boundary_weights(target), *values, *slopes]


def every_solver() -> list:
    """All solvers by name, with all rules of step sizes on one of them, and all roundings."""
    unary = torch.from_numpy(numbers(72, 3, seed=2))
    E = fwcrf.Energy(fwcrf.pairwise.dense([kept[0]], 3), unary)
    found: list = []
    for name in fwcrf.solvers.names():
        s = fwcrf.minimize(E, name, num_steps=2)
        found += [s.probabilities, s.energy]
    for rule in (
        stepsizes.Harmonic(),
        stepsizes.LineSearch(),
        stepsizes.Adaptive(),
        stepsizes.SegmentSearch(),
    ):
        found.append(fwcrf.minimize(E, fwcrf.solvers.get("l2fw", step=rule), num_steps=3).probabilities)
    for rounding in ("nearest", "bcd", "merge"):
        found.append(fwcrf.minimize(E, "l2fw", num_steps=3, rounding=rounding).labels)
    return found


def bounds() -> list:
    unary = torch.from_numpy(numbers(30, 3, seed=2))
    E = fwcrf.Energy(fwcrf.pairwise.Matrix(torch.from_numpy(numbers(90, 90)), num_labels=3), unary)
    r = fwcrf.regularizers.SquaredL2(0.5)
    x = torch.from_numpy(likely(30, 3, axis=-1))
    found = [theory.conditional_gradient_norm(E, r, x), theory.tightness(E, r), theory.rounding_loss(E)]
    found += [
        np.array(theory.diameter(30)),
        E.smoothness,
        E.value(x),
        E.grad(x),
        E.curvature(x),
    ]
    bound = theory.StronglyConvexG(float(E.smoothness), r.strong_convexity, theory.diameter(30))
    return [*found, np.array(float(bound.optimality_adaptive(5, 1.0)))]


def papers_code() -> list:
    """The layer of ``fwcrf.official``, made before the mode as all modules are."""
    given = logits().requires_grad_()
    out = theirs(image()[None] / 255, given[None])
    found = [out]
    if out.requires_grad and torch.is_grad_enabled():
        with torch.autocast("cpu", enabled=False):
            found += torch.autograd.grad(out.sum(), (given, *theirs.parameters()))
    return found


def minimized() -> list:
    """A run on one energy that is kept from call to call, and so are the operators of its terms."""
    unary = torch.from_numpy(numbers(72, 3, seed=2)).requires_grad_()
    found: list = []
    for operator in kept:
        P = fwcrf.pairwise.dense([operator], 3)
        for solver in ("l2fw", fwcrf.solvers.get("efw", step=stepsizes.LineSearch())):
            x = fwcrf.minimize(fwcrf.Energy(P, unary), solver, num_steps=3).probabilities
            found += [x, *(torch.autograd.grad((x * x).sum(), unary) if x.requires_grad else ())]
    return found


DOORS: dict[str, Callable[[], list]] = {
    "refine numpy": refine_numpy,
    "refine torch": refine_torch,
    "refine points": refine_points,
    "operators": operators,
    "minimize": minimized,
    "layer": layer,
    "layer, all learned": lambda: layer(LEARNED),
    "solve": solve,
    "losses": loss,
    "SparseMRF": sparse_mrf,
    "drop-in": drop_in,
    "every solver": every_solver,
    "theory": bounds,
    "official": papers_code,
}

# Made before the mode: modules take their parameters from torch's defaults, as all modules do. The image of
# the operators has another size than all other images, so that no cache is filled for these.
made = {names: fwcrf.DenseCRF(3, learnable=names, num_steps=3) for names in ((), LEARNED)}
theirs = official.DenseGaussianCRF(
    3, 20, 0.3, 3, solver="fw", params=official.FrankWolfeParams(regularizer="negentropy", x0_weight=0.5)
)
kept = [kernel.operator(image(8, 9)) for kernel in (Bilateral(20, 60, normalization="before"), Spatial(3))]


@contextlib.contextmanager
def float64_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def meta_default():
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


MODES: dict[str, Callable[[], contextlib.AbstractContextManager]] = {
    "none": contextlib.nullcontext,
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64 default": float64_default,
    "meta default": meta_default,
}


def digests(door: Callable[[], list]) -> list[list[str]]:
    found = []
    for value in door():
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]
        found.append([str(array.dtype), digest])
    return found


def run() -> dict[str, object]:
    found: dict[str, object] = {}
    for name, door in DOORS.items():
        try:
            found[name] = digests(door)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def in_child(mode: str) -> dict[str, object]:
    """The results of a child process, whose caches are as empty as after the imports."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        with MODES[mode]():
            under = run()
        with os.fdopen(writer, "w") as out:
            json.dump({"under": under, "after": run()}, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as text:
        found = json.load(text)
    os.waitpid(child, 0)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps({mode: in_child(mode) for mode in MODES}))

"""Agreement of runs of solvers: the engine, batches, threads, dtypes, instruction sets, modes of torch."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from typing import Any

import torch
from agreement_cases import (
    EPS,
    ROUNDINGS,
    Explicit,
    Model,
    NotComparable,
    agree,
    compat_of,
    gradients_of,
    image_of,
    kernels_of,
    size_of,
    solver_of,
    unary_of,
    with_noise,
)
from choices import Bytes, Choices, flag, pick
from torch import Tensor

import fwcrf
from fwcrf import _core
from fwcrf.energy import Energy

DTYPES = (torch.float32, torch.float64)


def rounding_of(model: Model, P: Explicit, dtype: torch.dtype) -> float:
    """The rounding error of one gradient P x + u."""
    return ROUNDINGS * EPS[dtype] * (1 + size_of(model.unary) + P.largest())


def engine(c: Choices) -> None:
    """All steps in one native call against single steps on matrices in float64.

    Tolerance: the rounding of one gradient, 8 times: up to 4 steps of a map with slopes of up to 2. A
    run that amplifies rounding more is recognised by its reference, which then moves too.
    """
    dtype = pick(c, DTYPES)
    model = Model.of(c, dtype=dtype, methods=("lattice", "separable"))
    solver, steps = solver_of(c), c.integer(1, 4)
    found = fwcrf.minimize(model.energy(), solver, num_steps=steps)
    P = Explicit.of(model.pairwise(), torch.float64)
    rounding = rounding_of(model, P, dtype)

    def reference(noise: float, seed: int) -> list[Tensor]:
        E = Energy(P, with_noise(model.unary.double(), noise, seed))
        return [fwcrf.minimize(E, solver, num_steps=steps, callback=lambda k, x: None).probabilities]

    agree([found.probabilities], reference, 8 * rounding, rounding, found.engine or "")
    if not (found.engine or "").startswith("native"):
        raise NotComparable(found.engine)


def engine_gradients(c: Choices) -> None:
    """The same with derivatives in the unary and in the weights of the kernels.

    Tolerance: 50 times the rounding of one gradient, for derivatives are products over the steps and sums
    over all pixels; relative to the largest entry of each. Skipped where a support changes within rounding.
    """
    dtype = pick(c, DTYPES)
    model = Model.of(c, dtype=dtype, most=pick(c, (6, 40, 80)), methods=("lattice", "separable"),
                     normalizations=("symmetric", "none"))  # fmt: skip
    solver = solver_of(c, ("mf", "efw", "l2fw", "l2fw", "pgd", "emd"))
    steps = c.integer(1, 3)
    weights = [torch.as_tensor(k.weight).to(torch.float64) for k in model.kernels]
    seed = c.integer(0, 999)

    def run(kind: torch.dtype, explicit: bool, noise: float, trial: int) -> list[Tensor]:
        leaves = [w.to(kind).requires_grad_() for w in weights]
        P: Any = model.pairwise(leaves)
        unary = with_noise(model.unary.to(kind), noise, trial).requires_grad_()
        P = Explicit.of(P, kind) if explicit else P
        more = {"callback": lambda k, x: None} if explicit else {}
        x = fwcrf.minimize(Energy(P, unary), solver, num_steps=steps, **more).probabilities
        return [x, *gradients_of(x, [unary, *leaves], seed)]

    rounding = rounding_of(model, Explicit.of(model.pairwise(), torch.float64), dtype)
    found = run(dtype, False, 0.0, 0)
    # The kernels of the reference are matrices of the same operators, in the dtype of the image.
    agree(found, lambda noise, trial: run(torch.float64, True, noise, trial), 50 * rounding, rounding,
          f"{solver} {model.labels} labels")  # fmt: skip


def batch(c: Choices) -> None:
    """An image alone against the same image in a batch: probabilities, and energies of labels.

    Tolerance: rounding, 8 and 50 times as above: the batch is summed in other blocks.
    """
    dtype = pick(c, DTYPES)
    model = Model.of(c, dtype=dtype, most=80, batch=(c.integer(2, 3),))
    solver, steps = solver_of(c), c.integer(1, 3)
    which = c.integer(0, len(model.image) - 1)
    alone = Model(model.image[which], model.kernels, model.compat, model.self_edges, model.unary[which])
    rounding = rounding_of(alone, Explicit.of(alone.pairwise(), torch.float64), dtype)
    many = fwcrf.minimize(model.energy(), solver, num_steps=steps)

    def one(noise: float, trial: int) -> list[Tensor]:
        E = Energy(alone.pairwise(), with_noise(alone.unary, noise, trial))
        return [fwcrf.minimize(E, solver, num_steps=steps).probabilities]

    agree([many.probabilities[which]], one, 8 * rounding, rounding, f"{many.engine}, {solver}")
    labels = many.labels
    E = alone.energy().of_labels(labels[which])
    sizes = 1 + model.unary.shape[-2] * rounding / EPS[dtype]
    assert abs(float(E) - float(many.energy[which])) <= ROUNDINGS * EPS[dtype] * sizes, "energies of labels"


def threads(c: Choices) -> None:
    """One thread against two to four, on images large enough for all of them.

    Tolerance: as for the engine; the threads add up parts of the same sums.
    """
    dtype = pick(c, DTYPES)
    labels, grid = c.integer(2, pick(c, (4, 24))), (c.integer(12, 40), c.integer(12, 40))
    model = Model(
        torch.from_numpy(image_of(c, grid, c.integer(1, 3))).to(dtype),
        kernels_of(c, methods=("lattice", "separable"), normalizations=("symmetric", "none")),
        compat_of(c, labels),
        flag(c),
        torch.from_numpy(unary_of(c, (grid[0] * grid[1], labels))).to(dtype),
    )
    solver, steps, count, seed = solver_of(c), c.integer(1, 3), c.integer(2, 4), c.integer(0, 99)

    def run(number: int, noise: float, trial: int) -> list[Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(number)
        try:
            unary = with_noise(model.unary, noise, trial).requires_grad_()
            E = Energy(model.pairwise(), unary)
            x = fwcrf.minimize(E, solver, num_steps=steps).probabilities
            return [x, *gradients_of(x, [unary], seed)]
        finally:
            torch.set_num_threads(before)

    # Row sums of the kernels are at most the number of pixels in sight, and 1 if normalized.
    sums = sum(float(term.absolute_row_sums(labels).max()) for term in [model.pairwise()])
    rounding = ROUNDINGS * EPS[dtype] * (1 + size_of(model.unary) + sums)
    agree(run(count, 0.0, 0), lambda noise, trial: run(1, noise, trial), 50 * rounding, rounding,
          f"{count} threads, {solver}")  # fmt: skip


def precision(c: Choices) -> None:
    """A run in float32 against the same run in float64, features and kernels included.

    Tolerance: 32 times the rounding of one gradient: kernels are exponentials of sums of up to 5 squares, and
    their normalization sums them up. A lattice jumps where a pixel changes its cell; then the reference,
    from an image changed by rounding, jumps too.
    """
    model = Model.of(c, dtype=torch.float32, most=40)
    solver, steps = solver_of(c), c.integer(1, 3)
    P = Explicit.of(model.pairwise(), torch.float64)
    # Features are distances in bandwidths: 255 / 8 at most, squared in the exponent.
    rounding = 4 * rounding_of(model, P, torch.float32)
    found = fwcrf.minimize(model.energy(), solver, num_steps=steps)

    def reference(noise: float, seed: int) -> list[Tensor]:
        image = with_noise(model.image.double(), 255 * EPS[torch.float32] if noise else 0.0, seed)
        unary = with_noise(model.unary.double(), noise, seed)
        same = Model(image, model.kernels, model.compat, model.self_edges, unary)
        return [fwcrf.minimize(same.energy(), solver, num_steps=steps).probabilities]

    agree([found.probabilities], reference, 8 * rounding, rounding, f"{found.engine}, {solver}")


MODES = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "set_default_dtype": None,
}


class _DefaultDtype:
    def __enter__(self) -> None:
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *error: object) -> None:
        torch.set_default_dtype(self.before)


def modes(c: Choices) -> None:
    """A plain call after the same call in another mode of torch, on the same objects: the same bits.

    No tolerance: the same thread runs the same operations. The objects keep tables that the first call made.
    """
    labels, grid = c.integer(1, 6), (c.integer(3, 9), c.integer(3, 9))
    image = torch.from_numpy(image_of(c, grid, 3)).float()
    logits = -torch.from_numpy(unary_of(c, (labels, *grid), forbid=False)).float()
    learnable = [n for n in ("weights", "compatibility", "lambda", "steps", "skip") if not c.integer(0, 3)]
    kernels, seed = kernels_of(c, normalizations=("symmetric", "none")), c.integer(0, 99)
    name, steps = pick(c, ("l2fw", "efw", "mf")), c.integer(1, 3)
    if name == "mf" and "lambda" in learnable:
        name = "efw"
    chosen = [pick(c, [*MODES]) for _ in range(c.integer(1, 2))]

    def layer() -> fwcrf.DenseCRF:
        return fwcrf.DenseCRF(labels, kernels, solver=name, num_steps=steps, learnable=learnable, skip=0.25)

    def plain(crf: fwcrf.DenseCRF, E: Energy) -> list[Tensor]:
        scores = logits.clone().requires_grad_()
        y = crf(image, scores)
        found = gradients_of(y, [scores, *crf.parameters()], seed)
        x = fwcrf.minimize(E, "l2fw", num_steps=steps).probabilities
        found_labels = torch.from_numpy(fwcrf.refine(*arrays, kernels=kernels, num_steps=steps))
        solution = crf.solve(image, logits, num_steps=steps)
        return [y, *found, x, found_labels, solution.probabilities, solution.energy]

    shown = torch.softmax(torch.cat([logits, logits.flip(0)]), 0)
    arrays = (image.movedim(0, -1).numpy(), shown.movedim(0, -1).numpy())
    used, fresh = layer(), layer()

    def energy(crf: fwcrf.DenseCRF) -> Energy:
        return crf.energy(image, logits.clone())

    with torch.no_grad():
        of_used = energy(used)
    for mode in chosen:
        context = MODES[mode]
        with _DefaultDtype() if context is None else context():
            used(image, logits)
            fwcrf.minimize(of_used, "l2fw", num_steps=1).labels  # noqa: B018
            of_used.value(of_used.start())
            fwcrf.refine(*arrays, kernels=kernels, num_steps=1)
            used.solve(image, logits, num_steps=1).energy  # noqa: B018
    with torch.no_grad():
        of_fresh = energy(fresh)
    for number, (a, b) in enumerate(zip(plain(used, of_used), plain(fresh, of_fresh), strict=True)):
        assert a.dtype == b.dtype and torch.equal(a, b), f"result {number} after {chosen}: {name}"


# --- instruction sets -------------------------------------------------------------------------------


def isa_case(data: bytes, size: float = 0.0, trial: int = 0) -> list[Any]:
    """Results of one case on this process's instruction set, as arrays; with noise in the unary."""
    c = Bytes(data)
    dtype = pick(c, DTYPES)
    model = Model.of(c, dtype=dtype)
    solver, steps, seed = solver_of(c), c.integer(1, 3), c.integer(0, 99)
    unary = with_noise(model.unary, size, trial).requires_grad_()
    x = fwcrf.minimize(Energy(model.pairwise(), unary), solver, num_steps=steps).probabilities
    return [t.detach().numpy() for t in (x, *gradients_of(x, [unary], seed))]


def _serve(connection: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    connection.send(_core.isa())
    while (data := connection.recv_bytes()) != b"end":
        connection.send(isa_case(data))


class Worker:
    """A process on another instruction set that runs cases."""

    def __init__(self, isa: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        before = os.environ.get("FWCRF_ISA")
        os.environ["FWCRF_ISA"] = isa
        try:
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
        finally:
            if before is None:
                del os.environ["FWCRF_ISA"]
            else:
                os.environ["FWCRF_ISA"] = before
        other.close()
        self.isa = self.connection.recv()

    def __call__(self, data: bytes) -> list[Tensor]:
        self.connection.send_bytes(data)
        return [torch.from_numpy(values) for values in self.connection.recv()]

    def close(self) -> None:
        self.connection.send_bytes(b"end")
        self.process.join(10)


_workers: dict[str, Worker] = {}


def worker(isa: str) -> Worker:
    if isa not in _workers:
        _workers[isa] = Worker(isa)
    return _workers[isa]


def close_workers() -> None:
    while _workers:
        _workers.popitem()[1].close()


def isa(c: Choices) -> None:
    """The instruction set that is chosen here against every other one that the machine has.

    Tolerance: as for gradients of the engine.
    """
    other = worker(pick(c, [name for name in ("generic", "avx2", "avx512") if name != _core.isa()]))
    if other.isa == _core.isa():
        raise NotComparable("the machine does not have the instruction set")
    data = bytes(c.integer(0, 255) for _ in range(64))
    here = Bytes(data)
    dtype = pick(here, DTYPES)
    model = Model.of(here, dtype=dtype)
    rounding = rounding_of(model, Explicit.of(model.pairwise(), torch.float64), dtype)

    def reference(noise: float, seed: int) -> list[Tensor]:
        return [torch.from_numpy(values) for values in isa_case(data, noise, seed)]

    agree(other(data), reference, 50 * rounding, rounding, f"{other.isa} and {_core.isa()}")

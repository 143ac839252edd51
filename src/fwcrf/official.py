"""The classes of the paper's code, with its arguments, its model and its output.

``import fwcrf.official as CRF`` in place of ``import CRF``; or ``fwcrf.official.install()`` before an
unchanged ``import CRF``. P x = C (W_s K_s x + W_b K_b x): K has rows that sum to 1 and keeps its diagonal,
and the three matrices over labels are 1 x 1 convolutions, under the names of the paper's code, so that its
checkpoints load. They need not be symmetric: P x - logits is then not the gradient of the energy, and no step
is sure to lower it. docs/from-official-code.md has the differences.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fwcrf import gradients, solvers, stepsizes
from fwcrf.energy import Energy, inner, linear
from fwcrf.inputs.arrays import check_same_grid
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.kernel import Domain, Kernel
from fwcrf.kernels.operator import Operator
from fwcrf.pairwise import Pairwise, dense
from fwcrf.solvers import Solver
from fwcrf.torch_ops.native import full_precision, matmul, with_memory_errors
from fwcrf.torch_ops.printed import in_one_line

__all__ = ["ADMMParams", "CommonParams", "DenseGaussianCRF", "FrankWolfeParams", "install"]

_NAMES = {None: "fw", "l2": "l2fw", "negentropy": "efw"}
_ELSEWHERE = {"admm": "admm", "pgd": "pgd", "proxgrad": "fista", "md": "emd"}
_TINY = 1e-9


@dataclass
class FrankWolfeParams:
    """Settings of ``solver="fw"``: step sizes, regularizer, and the share of the start in the result."""

    stepsize: float = 1.0
    scheme: Literal["fixed", "standard", "linesearch", "learnable"] = "linesearch"
    regularizer: Literal["l2", "negentropy"] | None = None
    lambda_: float = 1.0
    lambda_learnable: bool = False
    x0_weight: float = 0.0
    x0_weight_learnable: bool = False

    def __post_init__(self) -> None:
        for name, known in (
            ("scheme", ("fixed", "standard", "linesearch", "learnable")),
            ("regularizer", _NAMES),
        ):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name}={value!r}; expected one of {', '.join(map(repr, known))}.")


@dataclass
class ADMMParams:
    """Settings of the paper's ``solver="admm"``, which ``DenseGaussianCRF`` refuses with a remedy."""

    rho: float = 1.0
    rho_type: str = "scalar"
    projection: str = "bregman"
    loose: bool = False
    init: str = "softmax"


class CommonParams:
    """Settings of the paper's ``solver="md"``, from an object of its command line."""

    def __init__(self, args: Any) -> None:
        self.stepsize: float = args.crf_stepsize
        self.scheme: str = args.crf_step_rule
        self.x0_weight: float = args.crf_x0_weight
        self.x0_weight_learnable: bool = args.crf_x0_weight_learnable


class DenseGaussianCRF(nn.Module):
    """The paper's layer: ``crf(image, logits)``, both ``(batch, channels, H, W)``, returns log(x + 1e-9).

    With ``solver="mf"`` and without ``x0_weight`` it returns the logits before the last softmax. ``alpha``
    and ``beta`` are the bandwidths of the bilateral kernel, ``gamma`` is the bandwidth of the spatial kernel,
    in the units of pixels and of the image. ``method`` is the method of the kernels, such as ``"exact"``.

    >>> params = FrankWolfeParams(scheme="fixed", regularizer="l2", x0_weight=0.5)
    >>> crf = DenseGaussianCRF(classes=3, alpha=160, beta=0.05, gamma=3.0, solver="fw", params=params)
    >>> crf(torch.rand(2, 3, 8, 9), torch.randn(2, 3, 8, 9)).shape
    torch.Size([2, 3, 8, 9])
    """

    spatial_weight: nn.Conv2d
    bilateral_weight: nn.Conv2d
    compatibility: nn.Conv2d
    params: FrankWolfeParams
    fw_lambda: float | Tensor
    fw_x0_weight: float | Tensor
    alphas: nn.Parameter

    def __init__(
        self,
        classes: int,
        alpha: float,
        beta: float,
        gamma: float,
        spatial_weight: float = -1,
        bilateral_weight: float = -1,
        compatibility: float = -1,
        init: Literal["potts", "potts-random", "random"] = "potts",
        bias: bool = False,
        solver: Literal["mf", "fw"] = "mf",
        iterations: int = 5,
        params: FrankWolfeParams | None = None,
        ergodic: bool = False,
        x0_weight: float = 0.0,
        output_logits: bool = True,
        print_energy: bool = False,
        *,
        method: Literal["lattice", "exact"] | None = None,
    ) -> None:
        super().__init__()
        _check(init, bias, solver, params, ergodic)
        self.classes: int = classes
        self.solver: Literal["mf", "fw"] = solver
        self.iterations: int = iterations
        self.x0_weight: float = x0_weight
        self.output_logits: bool = output_logits
        self.print_energy: bool = print_energy
        settings: dict[str, Any] = {"normalization": "after"}
        if method is not None:
            settings["method"] = method
        self.kernels: tuple[Kernel, ...] = (Spatial(gamma, **settings), Bilateral(alpha, beta, **settings))
        for name, value, sign in (
            ("spatial_weight", spatial_weight, 1),
            ("bilateral_weight", bilateral_weight, 1),
            ("compatibility", compatibility, -1),
        ):
            matrix = nn.Conv2d(classes, classes, (1, 1), bias=False)
            with torch.no_grad():
                if init == "potts":
                    matrix.weight.zero_()
                if init != "random":  # a negative number stands for 1
                    matrix.weight[..., 0, 0].diagonal().add_(sign * (1.0 if value < 0 else value))
            setattr(self, name, matrix)
        self.params = FrankWolfeParams() if params is None else params
        if solver == "fw":
            p = self.params
            self.fw_lambda = _number(p.lambda_, p.lambda_learnable)
            self.fw_x0_weight = _number(p.x0_weight, p.x0_weight_learnable)
            if p.scheme == "learnable":
                self.alphas = _parameter([p.stepsize] * iterations)

    @with_memory_errors
    def forward(self, image: Tensor, unaries: Tensor, return_energy: bool = False) -> Any:
        """log(x + 1e-9) after the iterations, in the layout of ``unaries``, which are logits.

        With ``return_energy``, also the energies of the start and of every step, ``(iterations + 1,)``,
        summed over the batch: of x, and of its labels.
        """
        for name, t in (("image", image), ("unaries", unaries)):
            if t.dim() != 4:
                raise ValueError(f"{name} has shape {tuple(t.shape)}; expected (batch, channels, H, W).")
        check_same_grid(image, unaries, 2, "unaries")
        if unaries.shape[1] != self.classes:
            raise ValueError(f"unaries has {unaries.shape[1]} channels; expected classes={self.classes}.")
        if self.iterations < 1:
            return unaries
        with full_precision(unaries):
            logits = unaries.flatten(2).mT.contiguous()
            domain = Domain.of_image(image, spatial_dims=2, dtype=logits.dtype)
            exactly = _Matrices([kernel.on(domain) for kernel in self.kernels], self._matrices(logits))
            x, path = self._solve(
                Energy(self._fast(exactly), -logits), exactly, return_energy or self.print_energy
            )
            found = x.mT.unflatten(-1, unaries.shape[2:]).to(unaries.dtype).contiguous()
            if not path:
                return found
            energies, discrete = _energies(path, exactly, logits, self.print_energy)
            return (found, energies, discrete) if return_energy else found

    def _matrices(self, like: Tensor) -> list[Tensor]:
        """For each kernel, the matrix M of P x = sum K x M, rows of x being distributions."""
        C, *W = (
            m.weight[..., 0, 0].to(like)
            for m in (self.compatibility, self.spatial_weight, self.bilateral_weight)
        )
        return [matmul(C, w).mT for w in W]

    def _fast(self, exactly: _Matrices) -> Pairwise:
        """P, as Potts terms if its matrices are -w I and not learned: a number per pixel changes no step."""
        found = []
        for M in exactly.matrices:
            w = -M.detach()[0, 0]
            if (M.requires_grad and torch.is_grad_enabled()) or not torch.equal(
                M.detach(), torch.diag(-w.expand(len(M)))
            ):
                return exactly
            found.append(float(w))
        return dense(exactly.operators, self.classes, weights=found, compat=1.0, self_edges=True)

    def _solve(self, E: Energy, exactly: _Matrices, traced: bool) -> tuple[Tensor, list[Tensor]]:
        """The result ``(batch, n, L)`` in the form of the output, and all points if traced."""
        share = self.fw_x0_weight if self.solver == "fw" else self.x0_weight
        start = (-E.unary).softmax(-1)
        mixed = lambda x: torch.lerp(x, start, share.to(x) if isinstance(share, Tensor) else share)  # noqa: E731
        path = [start] if traced else []
        solver, steps = self._solver(), self.iterations
        raw = self.solver == "mf" and self.output_logits and not self.x0_weight
        last = steps - 1 if raw else steps
        if traced:
            solvers.minimize(
                E, solver, num_steps=steps, callback=lambda k, x: path.append(mixed(x)) if k else None
            )
        x = gradients.get("unrolled")(E, solver, None, last) if last else start
        if raw:
            return -exactly.plus(x, E.unary), path
        x = mixed(x)
        return ((x + _TINY).log() if self.output_logits else x), path

    def _solver(self) -> Solver:
        if self.solver == "mf":
            return solvers.get("mf")
        p = self.params
        steps: dict[str, Any] = {"standard": stepsizes.Harmonic(), "linesearch": EnergySearch()}
        step = steps.get(p.scheme, p.stepsize)
        if p.scheme == "learnable":
            step = stepsizes.Sequence(self.alphas)
        weight = {} if p.regularizer is None else {"weight": self.fw_lambda}
        return solvers.get(_NAMES[p.regularizer], step=step, **weight)


@dataclass(frozen=True)
class EnergySearch:
    """The paper's code's line search: the least energy between x and p, whatever the regularizer."""

    def __call__(self, step: stepsizes.Step) -> Tensor:
        d = step.direction
        slope = linear(step.f.unary, d) + inner(step.x, step.change)  # type: ignore[attr-defined]
        return stepsizes.least_of_parabola(slope, inner(d, step.change))


@dataclass(frozen=True)
class _Matrices(Pairwise):
    """P x = sum_c K_c x M_c with any matrices M_c."""

    operators: Sequence[Operator]
    matrices: Sequence[Tensor]  # (L, L) each

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        parts = [matmul(K(x), M) for K, M in zip(self.operators, self.matrices, strict=True)]
        return torch.stack(parts).sum(0)

    def to_dense(self) -> Tensor:
        parts = [torch.kron(K.to_dense(), M.mT) for K, M in zip(self.operators, self.matrices, strict=True)]
        return torch.stack(parts).sum(0)


def install() -> None:
    """Make ``import CRF`` import this module. Raises ``RuntimeError`` if another module has the name."""
    own = sys.modules[__name__]
    if sys.modules.setdefault("CRF", own) is not own:
        raise RuntimeError(
            f"CRF is already imported, from {getattr(sys.modules['CRF'], '__file__', None)}; expected "
            "fwcrf.official.install() before the first import of CRF."
        )


def _number(value: float, learnable: bool) -> float | nn.Parameter:
    return _parameter(value) if learnable else value


def _parameter(value: float | Sequence[float]) -> nn.Parameter:
    """A new parameter, in torch's default dtype and device as the parameters of every module."""
    start = torch.tensor(value, dtype=torch.float64, device="cpu")
    return nn.Parameter(start.to(torch.get_default_device(), torch.get_default_dtype()))


def _energies(path: Sequence[Tensor], P: Pairwise, logits: Tensor, shown: bool) -> tuple[Tensor, Tensor]:
    found: tuple[list[Tensor], list[Tensor]] = [], []
    for k, x in enumerate(path):
        labels = nn.functional.one_hot(x.argmax(-1), x.shape[-1]).to(x)
        for values, y in zip(found, (x, labels), strict=True):
            values.append((0.5 * inner(y, P(y)) - linear(logits, y)).sum().float())
        if shown:
            print(f"{k}) e = {float(found[0][-1])}, e_discrete = {float(found[1][-1])}")
    return torch.stack(found[0]), torch.stack(found[1])


def _check(init: str, bias: bool, solver: str, params: object, ergodic: bool) -> None:
    if solver in _ELSEWHERE:
        raise ValueError(
            f"solver={solver!r}; expected 'mf' or 'fw'. fwcrf.DenseCRF(solver={_ELSEWHERE[solver]!r}) is the "
            "paper's algorithm."
        )
    known = {"solver": (solver, ("mf", "fw")), "init": (init, ("potts", "potts-random", "random"))}
    for name, (value, expected) in known.items():
        if value not in expected:
            raise ValueError(f"{name}={value!r}; expected one of {', '.join(map(repr, expected))}.")
    for name, value in (("bias", bias), ("ergodic", ergodic)):
        if value:
            raise ValueError(f"{name}={value!r}; expected False, the only value that is implemented here.")
    if solver == "fw" and not isinstance(params, FrankWolfeParams | None):
        raise TypeError(f"params={params!r}; expected FrankWolfeParams for solver='fw'.")

"""The CRF as a layer: an image and a network's logits in, log-probabilities out, everything learnable."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fwcrf import gradients, pairwise, solvers, stepsizes
from fwcrf.compatibility import Compatibility, Diagonal, Full, symmetric
from fwcrf.compatibility import compatibility as read_compatibility
from fwcrf.energy import Energy
from fwcrf.gradients import Gradient
from fwcrf.inputs.arrays import check_same_grid, locate, scores_flat
from fwcrf.inputs.numbers import real, reals, shown, whole
from fwcrf.inputs.scores import check_balance, check_logits, rarity
from fwcrf.inputs.tiles import sample
from fwcrf.kernels.kernel import Kernel, Weight, check_image, read_kernels
from fwcrf.presets import OF_PRESET, OWN_KERNELS, Preset, Unset
from fwcrf.presets import get as get_preset
from fwcrf.regularizers import Mixed, Simplex
from fwcrf.rounding import Rounding
from fwcrf.solvers import FrankWolfe, Solution, Solver
from fwcrf.solvers.frank_wolfe import regularized
from fwcrf.torch_ops.blends import affine
from fwcrf.torch_ops.layout import log_probabilities, transposed, unary_from_affine
from fwcrf.torch_ops.native import as_tensor, full_precision, has_values, kept_property, with_memory_errors
from fwcrf.torch_ops.simplex import softmax

LEARNABLE = ("weights", "compatibility", "lambda", "steps", "skip", "bandwidths", "temperature", "bias")
Weights = Literal["scalar", "label", "full"]
Init = Literal["potts", "negative-identity"]

# A learned lambda, bandwidth or temperature stays within this factor of its initial value.
_RANGE = 100.0
# The parameter of each learnable: exp, or a fold, of some is used.
_PARAMETER = {
    "lambda": "log_lambda", "steps": "raw_steps", "skip": "raw_skip", "bandwidths": "log_bandwidths",
    "temperature": "log_temperature",
}  # fmt: skip


def fold(raw: Tensor, low: float | Tensor = 0.0, high: float | Tensor = 1.0) -> Tensor:
    """Numbers reflected into [low, high], like light between two mirrors.

    The identity inside; both ends can be reached. The slope is 1 or -1 everywhere, so that an optimizer
    that steps over an end is reflected and never stuck.

    >>> fold(torch.tensor([0.25, 1.0, 1.25, -0.25]))
    tensor([0.2500, 1.0000, 0.7500, 0.2500])
    """
    r = ((raw - low) / (high - low)).remainder(2)
    reflected = low + (high - low) * torch.where(r <= 1, r, 2 - r)
    return torch.where((raw >= low) & (raw <= high), raw, reflected)


class DenseCRF(nn.Module):
    """A dense CRF behind a segmentation network, trained with it.

    ``crf(image, logits)`` takes ``num_steps`` steps of a solver on the energy of the image and the logits,
    from x0 = softmax(logits) to x, and returns log((1 - epsilon) y + epsilon / L) with
    y = (1 - skip) x + skip x0. A solution may have exact zeros; with epsilon, the logarithm is at least
    log(epsilon / L), and its slope at most L / epsilon. The logits of all this are the given logits divided
    by ``temperature``, plus ``bias``, a number for all labels or one for each.

    ``logits`` are ``(batch, L, *grid)`` or ``(L, *grid)``, ``image`` is ``(batch, channels, *grid)`` or
    ``(channels, *grid)``, its values in the units of the bandwidths. The result has the layout, dtype and
    device of the logits. Half precision, given or by autocast, is computed in float32.

    ``num_labels=1`` is a binary problem with one logit per pixel, for label 1 against label 0. The result
    is again one logit per pixel, the difference of both log-probabilities.

    ``learnable`` names the settings that become parameters:

    ================  ==============================================================================
    "weights"         of the kernels: one each, or with ``weights="label"`` L or ``"full"`` L x L each
    "compatibility"   an L x L matrix, symmetrised in use; one per kernel if that many were given
    "lambda"          the regularizer's weight, as its logarithm
    "steps"           one step size per step, folded into [0, 1]
    "skip"            folded into [0, 1]
    "bandwidths"      of the kernels, as logarithms: one per grid axis, and as many of colour as given
    "temperature"     of the logits, as its logarithm
    "bias"            of the logits, one number per label
    ================  ==============================================================================

    Lambda, bandwidths and temperature stay within a factor of 100 of their initial values. ``penalty()`` is
    the squared distance of all parameters from their initial values, for the loss; ``movement()`` is the
    distance of each.

    ``preset`` names the model as in ``fwcrf.refine``, by default the paper's: kernels, compatibility, solver,
    self-edges and ``balance``. ``kernels`` with a preset replace its kernels only; without one, the model has
    these kernels and no balance, as in ``fwcrf.refine``. The number of steps is the layer's own.

    >>> crf = DenseCRF(num_labels=3, learnable=("weights", "lambda"))
    >>> [name for name, _ in crf.named_parameters()]
    ['weights', 'log_lambda']
    >>> crf(torch.rand(2, 3, 8, 9) * 255, torch.randn(2, 3, 8, 9)).shape
    torch.Size([2, 3, 8, 9])
    """

    kernels: tuple[Kernel, ...]
    solver: Solver
    learnable: tuple[str, ...]
    gradient: Gradient
    num_classes: int
    # Present if learned:
    weights: nn.Parameter
    compatibility: nn.Parameter
    log_lambda: nn.Parameter
    raw_steps: nn.Parameter
    raw_skip: nn.Parameter
    log_bandwidths: nn.ParameterDict
    log_temperature: nn.Parameter
    start: Start  # initial values
    # A parameter if learned:
    bias: Tensor  # (num_labels,)
    _checked: bool = False  # True after the first image

    @with_memory_errors
    def __init__(
        self,
        num_labels: int,
        kernels: Sequence[Kernel] | None = None,
        compatibility: (
            float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] | Unset
        ) = OF_PRESET,
        solver: str | Solver | Unset = OF_PRESET,
        num_steps: int = 5,
        learnable: Sequence[str] = (),
        skip: float = 0.0,
        *,
        preset: str | Preset | None = None,
        balance: float | Unset = OF_PRESET,
        temperature: float = 1.0,
        bias: float | Sequence[float] | Tensor = 0.0,
        init: Init = "potts",
        noise: float = 0.0,
        weights: Weights = "scalar",
        gradient: str | Gradient = "unrolled",
        self_edges: bool | Unset = OF_PRESET,
        spatial_dims: int = 2,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__()
        if preset is None:
            preset = "paper" if kernels is None else OWN_KERNELS
        chosen = get_preset(preset).arguments()
        compat = chosen["compatibility"] if isinstance(compatibility, Unset) else compatibility
        _check_settings(num_labels, num_steps, learnable, skip, init, noise, weights, spatial_dims, epsilon)
        self.num_labels: int = int(num_labels)
        self.num_classes = max(2, self.num_labels)  # a single logit is the second of two
        self.kernels = chosen["kernels"] if kernels is None else read_kernels(kernels)
        self.solver = solvers.as_solver(chosen["solver"] if isinstance(solver, Unset) else solver)
        self.balance: float = chosen["balance"] if isinstance(balance, Unset) else check_balance(balance)
        self.num_steps: int = int(num_steps)
        self.learnable = tuple(name for name in LEARNABLE if name in learnable)
        self.gradient = gradients.get(gradient)
        self.gradient.check(self.solver)
        self._refuse_what_cannot_be_trained()
        self.self_edges: bool = chosen["self_edges"] if isinstance(self_edges, Unset) else self_edges
        self.spatial_dims: int = int(spatial_dims)
        self.epsilon: float = float(epsilon)
        self._skip = float(skip)
        self._temperature: float = real(
            temperature, "temperature", "a positive number", lambda t: 0 < t < math.inf
        )
        first_bias = _initial_bias(bias, self.num_labels)
        self._recalibrated = bool(
            {"temperature", "bias"} & set(self.learnable) or temperature != 1 or first_bias.any()
        )
        self._compatibility = _initial(compat, init, self.num_classes, len(self.kernels))
        self._moves = not _goes_to_vertices(self.solver)
        self._warn_if_nothing_can_be_learned()

        if "weights" in learnable:
            self.weights = _parameter(self._initial_weights(weights))
            if weights == "full":
                _add_noise(self.weights, noise)
        if "compatibility" in learnable:
            self.compatibility = _parameter(self._initial_compatibility())
            _add_noise(self.compatibility, noise)
        if "lambda" in learnable:
            self.log_lambda = _parameter(self._initial_lambda(), torch.log)
        if "steps" in learnable:
            self.raw_steps = _parameter(self._initial_steps())
        if "skip" in learnable:
            self.raw_skip = _parameter(as_tensor(skip, torch.float64))
        if "bandwidths" in learnable:
            self.log_bandwidths = nn.ParameterDict(
                {name: _parameter(value, torch.log) for name, value in self._initial_bandwidths().items()}
            )
        if "temperature" in learnable:
            self.log_temperature = _parameter(as_tensor(self._temperature, torch.float64), torch.log)
        if "bias" in learnable:
            self.bias = _parameter(first_bias)
        else:
            self.register_buffer("bias", _parameter(first_bias).detach(), persistent=False)
        if self.learnable:
            self.start = Start(self.named_parameters())

    # --- values of the parameters ---------------------------------------------------------------

    @property
    def skip(self) -> float | Tensor:
        """The share of x0 in the result, in [0, 1]."""
        return fold(self.raw_skip) if "skip" in self.learnable else self._skip

    @property
    def steps(self) -> Tensor:
        """The step sizes, ``(num_steps,)``, in [0, 1]."""
        return fold(self.raw_steps) if "steps" in self.learnable else self._initial_steps().float()

    @property
    def lambda_(self) -> Tensor:
        """The weight of the regularizer, positive."""
        start = self._initial_lambda()
        return _near(self.log_lambda, start) if "lambda" in self.learnable else start.float()

    @property
    def bandwidths(self) -> dict[str, Tensor]:
        """Standard deviations by kernel and field, for example ``"1.color"``."""
        start = self._initial_bandwidths()
        if "bandwidths" in self.learnable:
            start = {name: _near(self.log_bandwidths[name], value) for name, value in start.items()}
        else:
            start = {name: value.float() for name, value in start.items()}
        return {name.replace("_", "."): value for name, value in start.items()}

    @property
    def temperature(self) -> float | Tensor:
        """The positive number by which the logits are divided."""
        if "temperature" not in self.learnable:
            return self._temperature
        return _near(self.log_temperature, as_tensor(self._temperature, torch.float64))

    # --- distance from the initial values -------------------------------------------------------

    def penalty(self, learnable: Sequence[str] | None = None) -> Tensor:
        """The sum of squared differences of the parameters from their initial values, differentiable.

        Of all parameters, or of the ones of the names in ``learnable``. Differences are of the parameters
        as they are stored: of logarithms for lambda, bandwidths and temperature.

        >>> crf = DenseCRF(num_labels=3, learnable=("weights", "lambda"))
        >>> _ = torch.nn.init.constant_(crf.weights, 1.5)
        >>> crf.penalty().item()
        0.5
        """
        names = self.learnable if learnable is None else _known_names(learnable)
        squares = [(p - start).square().sum() for name in names for p, start in self._with_start(name)]
        return torch.stack(squares).sum() if squares else self.bias.new_zeros(())

    @torch.no_grad()
    def movement(self) -> dict[str, float]:
        """For each learned name, the root mean square of the differences from the initial values.

        Of weights and compatibility it is relative to the root mean square of the initial values.
        """
        found = {}
        for name in self.learnable:
            pairs = self._with_start(name)
            change, size = _size([p - start for p, start in pairs]), _size([start for _, start in pairs])
            found[name] = change / size if name in ("weights", "compatibility") and size else change
        return found

    def learned(self, name: str) -> list[nn.Parameter]:
        """The parameters of a name in ``learnable``, for a group of an optimizer.

        >>> DenseCRF(num_labels=2, learnable=("bias", "skip")).learned("bias")
        [Parameter containing:
        tensor([0., 0.], requires_grad=True)]
        """
        return [self.get_parameter(parameter) for parameter in self._parameters_of(name)]

    def _parameters_of(self, name: str) -> list[str]:
        if name not in self.learnable:
            raise ValueError(f"{name!r} is not learned; expected any of {', '.join(self.learnable)}.")
        prefix = _PARAMETER.get(name, name)
        return [each for each, _ in self.named_parameters() if each.split(".")[0] == prefix]

    def _with_start(self, name: str) -> list[tuple[Tensor, Tensor]]:
        """The parameters of a learnable, each with its initial value."""
        return [(self.get_parameter(each), self.start.of(each)) for each in self._parameters_of(name)]

    # --- from image and logits to the result ----------------------------------------------------

    @with_memory_errors
    def forward(self, image: Tensor, logits: Tensor) -> Tensor:
        """Log-probabilities in the layout of ``logits``; with ``num_labels=1`` one logit per pixel."""
        with full_precision(logits):
            f = self.energy(image, logits)
            skip = self.skip
            skips = isinstance(skip, Tensor) or skip > 0
            # The steps begin at x0 too: it is computed, and differentiated, once.
            x0 = softmax(f.unary, -1.0) if skips else None
            x = self.gradient(f, self._solver(), x0, self.num_steps)
            if not self._moves:
                x = gradients.constant_in(x, image, logits, *self.parameters())
            grid, single = logits.shape[-self.spatial_dims :], self.num_labels == 1
            share = torch.as_tensor(skip, dtype=x.dtype, device=x.device) if skips else None
            log_p = log_probabilities(x, self.epsilon, grid, single=single, other=x0, share=share)
            return log_p.to(logits.dtype)

    @with_memory_errors
    def energy(self, image: Tensor, logits: Tensor) -> Energy:
        """The energy that the layer minimises, over ``(*batch, n, L)`` with pixels in row-major order."""
        check_same_grid(image, logits, self.spatial_dims, "logits")
        scores = scores_flat(logits, self.num_labels, self.spatial_dims, "logits")
        if not self._checked and has_values(image) and has_values(logits):
            self._check(image, logits)
        if self._recalibrated:
            temperature = self.temperature
            if self.num_labels > 1 and not self.balance:
                unary = unary_from_affine(scores, 1 / temperature, self.bias)
                if unary is not None:
                    return Energy(self._pairwise(image, scores.dtype), unary, checked=True)
            scores = _recalibrated(scores, temperature, self.bias)
        if self.num_labels == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], -2)
        if self.balance:
            grid = logits.shape[-self.spatial_dims :]
            window = sample(slice(0, size) for size in grid)
            some = scores.unflatten(-1, grid)[(..., *window)].flatten(-self.spatial_dims)
            scores = scores + self.balance * rarity(some.mT).mT
        P = self._pairwise(image, scores.dtype)
        return Energy.of_logits(P, scores, labels_last=False)

    def _check(self, image: Tensor, logits: Tensor) -> None:
        """Warn about the units of the first image and of its logits; later ones are taken to be alike."""
        check_image(locate(image, "image", self.spatial_dims, channels="required"), self.kernels)
        check_logits(locate(logits, "logits", self.spatial_dims, channels="required"))
        self._checked = True

    @with_memory_errors
    def solve(
        self,
        image: Tensor,
        logits: Tensor,
        *,
        solver: str | Solver | None = None,
        num_steps: int | None = None,
        rounding: str | Rounding = "nearest",
        trace: bool = False,
        tol: float | None = None,
        callback: Callable[[int, Tensor], None] | None = None,
        least_change: float | None = None,
    ) -> Solution:
        """A solution without the skip: labels ``(*batch, *grid)``, probabilities in the layout of ``logits``.

        The solver and the number of steps are the layer's unless given; all other arguments are as in
        ``fwcrf.minimize``. With ``num_labels=1`` the probabilities are of label 1.
        """
        with full_precision(logits):
            found = solvers.minimize(
                self.energy(image, logits),
                self._solver() if solver is None else solver,
                num_steps=self.num_steps if num_steps is None else num_steps,
                rounding=rounding,
                trace=trace,
                tol=tol,
                callback=callback,
                least_change=least_change,
            )
            x = found.probabilities
            given = x[..., 1:] if self.num_labels == 1 else x
            grid = tuple(logits.shape[-self.spatial_dims :])
            return GridSolution(
                transposed(given).unflatten(-1, grid).to(logits.dtype),
                found.objective,
                found.rounding,
                found.trace,
                found.converged,
                engine=found.engine,
                x=x,
                grid=grid,
            )

    def _pairwise(self, image: Tensor, dtype: torch.dtype) -> pairwise.Pairwise:
        compat: Compatibility | Sequence[Compatibility] = self._compatibility
        if "compatibility" in self.learnable:
            M = symmetric(self.compatibility)
            compat = Full(M) if M.dim() == 2 else [Full(each) for each in M]
        weights: Sequence[Weight] | None = None
        if "weights" in self.learnable:
            weights = list(self.weights)
            if self.weights.dim() == 3:
                M = _matrices(compat, self.num_classes).to(self.weights)
                compat, weights = (
                    [Full(each) for each in symmetric(self.weights @ M)],
                    [1.0] * len(self.kernels),
                )
        return pairwise.of_image(
            self._kernels(), image, self.num_classes, compat=compat, weights=weights,
            self_edges=self.self_edges, spatial_dims=self.spatial_dims, dtype=dtype,
        )  # fmt: skip

    def _kernels(self) -> Sequence[Kernel]:
        if "bandwidths" not in self.learnable:
            return self.kernels
        fields: list[dict[str, Tensor]] = [{} for _ in self.kernels]
        for name, value in self.bandwidths.items():
            number, key = name.split(".")
            fields[int(number)][key] = value
        return [kernel.with_bandwidths(f) for kernel, f in zip(self.kernels, fields, strict=True)]

    def _solver(self) -> Solver:
        solver: Any = self.solver
        if "lambda" in self.learnable:
            name, _ = _regularizer_weight(solver)
            solver = replace(solver, regularizer=replace(solver.regularizer, **{name: self.lambda_}))
        if "steps" in self.learnable:
            solver = replace(solver, stepsize=stepsizes.Sequence(self.steps))
        return solver

    # --- initial values of the parameters -------------------------------------------------------

    def _initial_weights(self, kind: Weights) -> Tensor:
        L = self.num_classes
        each = []
        for kernel in self.kernels:
            w = as_tensor(kernel.weight, torch.float64).detach()
            if kind == "scalar" and w.dim():
                raise ValueError(
                    f"a kernel has {len(w)} weights, one per label; learn them as such: weights='label'."
                )
            if kind != "scalar":
                w = w.expand(L)
            each.append(torch.diag(w) if kind == "full" else w)
        return torch.stack(each)

    def _initial_compatibility(self) -> Tensor:
        return _matrices(self._compatibility, self.num_classes)

    def _initial_lambda(self) -> Tensor:
        _, weight = _regularizer_weight(self.solver)
        if weight is None:
            raise ValueError(
                f"'lambda' was asked for with {self.solver!r}, which has none, or one that changes from step "
                "to step; expected a solver with a regularizer of one weight, for example 'l2fw' or 'efw'."
            )
        if isinstance(weight, Tensor) and weight.dim():
            raise ValueError("'lambda' was asked for with one weight per node; expected one for all.")
        return torch.tensor(float(weight), dtype=torch.float64, device="cpu")

    def _initial_steps(self) -> Tensor:
        rule = getattr(self.solver, "stepsize", None)
        if not isinstance(rule, stepsizes.Schedule) or self.num_steps == 0:
            raise ValueError(
                f"'steps' was asked for with {self.solver!r} and num_steps={self.num_steps}; expected a "
                "solver whose steps are numbers, or a rule that depends on k alone, to start from."
            )
        steps = [float(rule.at(k)) for k in range(self.num_steps)]
        return torch.tensor(steps, dtype=torch.float64, device="cpu")

    def _initial_bandwidths(self) -> dict[str, Tensor]:
        found = {}
        for i, kernel in enumerate(self.kernels):
            for name, given in kernel.bandwidths().items():
                value = as_tensor(given, torch.float64).detach()
                value = value.expand(self.spatial_dims) if name == "xy" else value
                found[f"{i}_{name}"] = value.clone()
        if not found:
            raise ValueError(
                "'bandwidths' was asked for, but no kernel has any; expected Spatial or Bilateral kernels. "
                "Features of your own carry their scale: learn them."
            )
        return found

    def _refuse_what_cannot_be_trained(self) -> None:
        if getattr(self.solver, "graphs_only", False):
            raise ValueError(
                f"solver={self.solver!r} works on the linear relaxation of a sparse graph; expected one of "
                f"{', '.join(solvers.names())}. SparseMRF(...).solve('lp-...') takes it."
            )
        if "steps" in self.learnable and isinstance(self.gradient, gradients.Implicit):
            raise ValueError(
                "learnable has 'steps' with implicit gradients; expected gradient='unrolled' or "
                "'checkpoint'. A fixed point does not depend on the step sizes: nothing would be learned."
            )

    def _warn_if_nothing_can_be_learned(self) -> None:
        learned = [name for name in self.learnable if name in ("weights", "compatibility", "bandwidths")]
        if learned and not self._moves:
            warnings.warn(
                f"learnable={learned} with vanilla Frank-Wolfe ('fw'): its steps go to vertices, which do "
                "not move with the parameters or the logits, so that their gradient is zero almost "
                "everywhere and nothing is learned. Use a regularized solver: 'l2fw' or 'efw'.",
                stacklevel=3,
            )

    def extra_repr(self) -> str:
        settings = ("num_labels", "kernels", "solver", "num_steps", "learnable", "gradient", "epsilon")
        shown = {name: getattr(self, name) for name in settings}
        if self._recalibrated:
            t = self.temperature
            shown["temperature"] = t.item() if isinstance(t, Tensor) else t
            shown["bias"] = self.bias.tolist()
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


@dataclass(frozen=True, eq=False, repr=False)
class GridSolution(Solution):
    """A solution in the layout of an image; ``x`` is the point in the layout of the solver."""

    x: Tensor = field(kw_only=True)  # (*batch, n, L)
    grid: tuple[int, ...] = field(kw_only=True)

    @kept_property
    def labels(self) -> Tensor:
        """``(*batch, *grid)``."""
        return self._labels.unflatten(-1, self.grid)

    @kept_property
    def energy(self) -> Tensor:
        """E of the labels, one per image, ``(*batch,)`` in float64."""
        with torch.no_grad():
            return self.objective.of_labels(self._labels)

    @kept_property
    def _labels(self) -> Tensor:
        with torch.no_grad():
            return self.rounding(self.objective, self.x.detach())


class Start(nn.Module):
    """Initial values of parameters, in the state dict: a run that resumes has the same penalty."""

    def __init__(self, parameters: Iterable[tuple[str, Tensor]]) -> None:
        super().__init__()
        for name, p in parameters:
            self.register_buffer(_buffer(name), p.detach().clone())

    def of(self, parameter: str) -> Tensor:
        """The initial value of the parameter of this name."""
        return self.get_buffer(_buffer(parameter))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # State dicts of earlier versions have no initial values: the layer keeps its own.
        for name, own in self.named_buffers():
            state_dict.setdefault(prefix + name, own)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _buffer(parameter: str) -> str:
    """The name of a parameter without dots, which names of buffers cannot have."""
    return parameter.replace(".", "_")


def _size(tensors: Sequence[Tensor]) -> float:
    """The root mean square of all entries."""
    return float(torch.cat([t.flatten() for t in tensors]).square().mean().sqrt())


def _goes_to_vertices(solver: Solver) -> bool:
    """True for vanilla Frank-Wolfe, whose results do not move with the parameters."""
    if not isinstance(solver, FrankWolfe) or not isinstance(solver.regularizer, Simplex):
        return False
    return solver.split is regularized


def _recalibrated(scores: Tensor, temperature: float | Tensor, bias: Tensor) -> Tensor:
    """scores / temperature + bias, of ``(*batch, L, n)``; infinite scores are unchanged."""
    scale = 1 / (temperature.to(scores) if isinstance(temperature, Tensor) else temperature)
    offset = bias.to(scores).unsqueeze(-1)
    if has_values(scores) and torch.isfinite(scores.detach().sum()):
        return affine(scores, scale, offset) if isinstance(scale, Tensor) else scores * scale + offset
    # Not infinity times a number: the derivative in the temperature would be 0 times infinity.
    endless = torch.isinf(scores)
    return torch.where(endless, scores, scores.masked_fill(endless, 0.0) * scale + offset)


def _matrices(compat: Compatibility | Sequence[Compatibility], L: int) -> Tensor:
    """The matrix of a compatibility, ``(L, L)``; of one per kernel, ``(kernels, L, L)``."""
    if isinstance(compat, Sequence):
        return torch.stack([each.matrix(L).to(torch.float64) for each in compat])
    return compat.matrix(L)


def _regularizer_weight(solver: Solver) -> tuple[str, float | Tensor | None]:
    """The field of the regularizer that holds lambda, and its value; None if there is no such field."""
    regularizer = getattr(solver, "regularizer", None)
    if isinstance(regularizer, type):  # a regularizer for every step: anneal-fw
        return "weight", None
    name = "l2" if isinstance(regularizer, Mixed) else "weight"
    return name, getattr(regularizer, name, None)


def _parameter(start: Tensor, mapped: Callable[[Tensor], Tensor] = torch.clone) -> nn.Parameter:
    """A new parameter, in torch's default dtype and device as the parameters of every module."""
    start = start.detach().to(torch.get_default_device(), torch.get_default_dtype())
    return nn.Parameter(mapped(start))


def _near(log_value: Tensor, start: Tensor) -> Tensor:
    """exp of a parameter, within a factor of ``_RANGE`` of its initial value ``start``."""
    middle, half = start.to(log_value).log(), math.log(_RANGE)
    return fold(log_value, middle - half, middle + half).exp()


def _add_noise(parameter: nn.Parameter, noise: float) -> None:
    if noise:
        with torch.no_grad():
            parameter.add_(torch.randn_like(parameter), alpha=noise)


def _initial_bias(value: float | Sequence[float] | Tensor, num_labels: int) -> Tensor:
    found = reals(value, "bias", torch.float64).detach()
    if found.shape not in ((), (num_labels,)):
        raise ValueError(
            f"bias has shape {tuple(found.shape)}; expected a number, or one per label ({num_labels})."
        )
    if not torch.isfinite(found).all():
        raise ValueError(f"bias={shown(value)}; expected finite numbers.")
    return found.expand(num_labels).clone()


def _initial(
    value: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility],
    init: Init,
    L: int,
    kernels: int,
) -> Compatibility | list[Compatibility]:
    if init == "potts":
        if isinstance(value, list | tuple) and value and all(hasattr(each, "matrix") for each in value):
            if len(value) != kernels:
                raise ValueError(f"{len(value)} compatibilities for {kernels} kernels; expected one each.")
            return [read_compatibility(each, L) for each in value]
        return read_compatibility(value, L)  # type: ignore[arg-type]
    if not isinstance(value, int | float):
        raise ValueError(
            f"init='negative-identity' with compatibility of type {type(value).__name__}; expected a number "
            "w, for -w I. init='potts' takes any compatibility as it is."
        )
    return Diagonal(torch.full((L,), -float(value), dtype=torch.float64, device="cpu"))


def _check_settings(
    num_labels: int, num_steps: int, learnable: Sequence[str], skip: float, init: str, noise: float,
    weights: str, spatial_dims: int, epsilon: float,
) -> None:  # fmt: skip
    whole(num_labels, "num_labels", 1)
    whole(num_steps, "num_steps", 0)
    whole(spatial_dims, "spatial_dims", 1)
    _known_names(learnable)
    for name, value, known in (("init", init, get_args(Init)), ("weights", weights, get_args(Weights))):
        if value not in known:
            raise ValueError(f"{name}={value!r} is not known; expected one of {', '.join(known)}.")
    if weights != "scalar" and "weights" not in learnable:
        raise ValueError(f"weights={weights!r} without 'weights' in learnable; name it there.")
    real(skip, "skip", "a number from 0 to 1", lambda s: 0 <= s <= 1)
    real(noise, "noise", "a standard deviation of 0 or more", lambda s: 0 <= s < math.inf)
    real(epsilon, "epsilon", "a number between 0 and 1", lambda e: 0 < e < 1)


def _known_names(learnable: Sequence[str]) -> Sequence[str]:
    if isinstance(learnable, str):
        raise TypeError(f"learnable={learnable!r} is one string; expected a sequence: ({learnable!r},).")
    if not isinstance(learnable, Iterable):
        raise TypeError(
            f"learnable={shown(learnable)}; expected a sequence of names: {', '.join(LEARNABLE)}."
        )
    for name in learnable:
        if name not in LEARNABLE:
            raise ValueError(f"learnable has {name!r}; expected any of {', '.join(LEARNABLE)}.")
    return learnable

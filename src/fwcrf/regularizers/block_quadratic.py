"""A convex quadratic form of each node's labels, the convex part of CCCP and convergent mean field.

Use ``block_quadratic``: it returns a regularizer with a fast oracle if the form is a multiple of the squared
norm on the simplex, as for Potts, and a ``BlockQuadratic`` otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fwcrf.regularizers.closed import Entropy, Simplex, SquaredL2
from fwcrf.regularizers.dual import leading
from fwcrf.regularizers.linear import Linear, PerNode
from fwcrf.regularizers.mixed import Mixed
from fwcrf.regularizers.regularizer import SumOverNodes, Weight, check_weight, like, over_nodes, smallest
from fwcrf.torch_ops.native import has_values, matmul
from fwcrf.torch_ops.precision import widest
from fwcrf.torch_ops.printed import in_one_line

_MAX_ROUNDS, _STEPS_PER_ROUND = 200, 10
# Number of matrix entries in the Newton systems of one block of rows.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class BlockQuadratic(SumOverNodes):
    """r(x) = sum_i weight_i / 2 x_i' Q x_i + <linear, x> + entropy * sum x log x.

    Q is ``matrix``, (L, L), symmetric, and positive semidefinite on vectors that sum to zero (differences of
    points of a simplex). ``weight`` is 0 or more, a number or one per node; ``linear`` broadcasts against x.

    The oracle runs accelerated proximal gradient steps, each a projection (or, with entropy, the oracle of
    ``Mixed``), and a Newton step on the support after every 10. It stops when the duality gap of each row is
    at most ``tolerance`` * (weight * largest eigenvalue of Q + entropy), or after 2000 steps. In float32 the
    tolerance is at least 1e-5. A Newton step mostly ends the iteration, with a gap near rounding.

    >>> Q = torch.tensor([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]])
    >>> BlockQuadratic(Q).argmin(torch.tensor([[0.0, 0.5, 2.0]]))
    tensor([[0.5833, 0.4167, 0.0000]])
    """

    matrix: Tensor
    weight: Weight | None = None
    linear: Tensor | None = None
    entropy: Weight = 0.0
    tolerance: float = 1e-6

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        q = self.matrix
        if q.dim() != 2 or q.shape[0] != q.shape[1]:
            raise ValueError(f"matrix has shape {tuple(q.shape)}; expected (labels, labels).")
        if self.weight is not None:
            check_weight(self.weight, "BlockQuadratic's weight", zero=True)
        check_weight(self.entropy, "BlockQuadratic's entropy", zero=not isinstance(self.entropy, Tensor))
        if not self.tolerance > 0:
            raise ValueError(f"tolerance={self.tolerance!r}; expected a positive number such as 1e-6.")
        if not has_values(q):
            return
        q = q.detach()
        if not torch.isfinite(q).all() or not torch.allclose(q, q.mT, rtol=1e-5, atol=self._rounding()):
            raise ValueError(
                "matrix is not finite and symmetric; (matrix + matrix.mT) / 2 is symmetric, and r the same."
            )
        low, _ = self._spectrum()
        if low < -self._rounding():
            raise ValueError(
                f"matrix has the eigenvalue {low:.6g} on vectors that sum to zero; expected 0 or more. Add "
                f"{-low:.6g} to its diagonal here and subtract it in f, which leaves f + g as it is."
            )

    def _rounding(self) -> float:
        """A bound on the rounding error of an eigenvalue of the matrix."""
        q = self.matrix.detach()
        return 64 * torch.finfo(q.dtype).eps * q.abs().max().item()

    def _spectrum(self) -> tuple[float, float]:
        """The extreme eigenvalues of Q on vectors that sum to zero; (0, 0) for one label."""
        values = torch.linalg.eigvalsh(_centred(self.matrix.detach().double()))
        # Centring adds the eigenvalue 0 of the constant vector: omit the eigenvalue nearest to 0.
        values = values[values.abs().argsort()][1:] if len(values) > 1 else values * 0
        return values.min().item(), values.max().item()

    @property
    def quadratic(self) -> bool:
        return not isinstance(self.entropy, Tensor) and self.entropy == 0

    @property
    def _weight(self) -> Weight:
        return 1.0 if self.weight is None else self.weight

    @property
    def strong_convexity(self) -> float | Tensor:
        return smallest(self._weight * self._lowest() + 2 * self.entropy)

    def _lowest(self) -> float | Tensor:
        """The smallest eigenvalue of Q on vectors that sum to zero; differentiable if Q is learned."""
        low = max(0.0, self._spectrum()[0])
        if not self.matrix.requires_grad or low == 0:
            return low
        return torch.linalg.eigvalsh(_centred(self.matrix.double()))[1]  # after the 0 of the constant vector

    def argmin(self, c: Tensor) -> Tensor:
        if self.linear is not None:
            c = c + self.linear.to(c)
        tensors = [torch.as_tensor(t, dtype=c.dtype, device=c.device) for t in (self._weight, self.entropy)]
        tolerance = self.tolerance if c.dtype == torch.float64 else max(self.tolerance, 1e-5)
        return _Argmin.apply(c, self.matrix.to(c), *tensors, self.quadratic, tolerance)

    def per_node(self, x: Tensor) -> Tensor:
        form = (x * matmul(x, self.matrix.to(x))).sum(-1, dtype=widest(x.device))
        value = 0.5 * over_nodes(self._weight) * form
        if self.linear is not None:
            value = value + torch.where(x == 0, 0.0, x * self.linear.to(x)).sum(-1, dtype=widest(x.device))
        return value if self.quadratic else value + Entropy(self.entropy).per_node(x)

    def grad(self, x: Tensor) -> Tensor:
        grad = like(self._weight, x) * matmul(x, self.matrix.to(x))
        if self.linear is not None:
            grad = grad + self.linear.to(x)
        return grad if self.quadratic else grad + Entropy(self.entropy).grad(x)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        with torch.no_grad():
            # Minimal at argmin(0); maximal at a vertex, by convexity.
            low = self.per_node(self.argmin(self.matrix.new_zeros(1, num_labels, dtype=torch.float64)))
            high = 0.5 * self._weight * self.matrix.diagonal().double()
            high = high if self.linear is None else high + self.linear
        return low.min().item(), high[high < torch.inf].max().item()

    def curvature(self, d: Tensor) -> Tensor:
        if not self.quadratic:
            return super().curvature(d)
        return (
            over_nodes(self._weight) * (d * matmul(d, self.matrix.to(d))).sum(-1, dtype=widest(d.device))
        ).sum(-1)


def block_quadratic(
    matrix: Tensor, weight: Weight | None = None, linear: Tensor | None = None, entropy: Weight = 0.0
) -> PerNode:
    """``BlockQuadratic``, or an equal regularizer with a fast oracle if the matrix allows it.

    The matrix has to be Q = a I + 1 v' + v 1', as for Potts. Then x'Qx = a |x|^2 + 2 <v, x> on a simplex. A
    matrix that is learned gets a ``BlockQuadratic``: it leaves this form as soon as it moves.

    >>> block_quadratic(torch.eye(3) - torch.ones(3, 3), weight=0.5).g
    SquaredL2(weight=0.5)
    """
    general = BlockQuadratic(matrix, weight, linear, entropy)
    num_labels = len(matrix)
    k = torch.as_tensor(general._weight, dtype=matrix.dtype, device=matrix.device)
    low, high = general._spectrum()
    flat = high <= general._rounding()
    special = not matrix.requires_grad and high - low <= general._rounding()
    if not special or (not flat and has_values(k) and not (k > 0).all()):
        return general
    a = _centred(matrix).diagonal().sum() / max(1, num_labels - 1)
    rows = matrix.sum(-1) - a
    v = (rows - rows.mean() / 2) / num_labels
    shift = k * v.unsqueeze(0)
    linear = shift if linear is None else shift + linear
    if flat:
        return Linear(Simplex() if general.quadratic else Entropy(entropy), linear)
    return Linear(SquaredL2(k * a) if general.quadratic else Mixed(l2=k * a, entropy=entropy), linear)


def _centred(matrix: Tensor) -> Tensor:
    """P Q P, where P subtracts the mean: the restriction of Q to vectors that sum to zero."""
    matrix = matrix - matrix.mean(-1, keepdim=True)
    return matrix - matrix.mean(-2, keepdim=True)


# --- the oracle --------------------------------------------------------------------------------


def _slope(z: Tensor, x: Tensor, matrix: Tensor, weight: Tensor) -> Tensor:
    """The gradient of <z, x> + weight/2 x'Qx."""
    return z + weight * matmul(x, matrix)


def _gap(z: Tensor, x: Tensor, matrix: Tensor, weight: Tensor, part: Simplex | Entropy) -> Tensor:
    """max_y <slope, x - y> + part(x) - part(y), (m, 1): an upper bound on value(x) - min value."""
    slope = _slope(z, x, matrix, weight)
    slope = slope - slope.amin(-1, keepdim=True)

    def value(y: Tensor) -> Tensor:
        return part.per_node(y) + torch.where(y == 0, 0.0, slope * y).sum(-1, dtype=widest(y.device))

    return (value(x) - value(part.argmin(slope))).unsqueeze(-1)


def _move(x: Tensor, g: Tensor, matrix: Tensor, weight: Tensor, entropy: Tensor, quadratic: bool) -> Tensor:
    """-J g, where J is the inverse of the Hessian on the support and on vectors that sum to zero.

    Solves a symmetric system, bordered by the constraint on the sum. With an entropy it is scaled by
    d = sqrt(x), which keeps it well conditioned for small x; otherwise d = 1 on the support.
    """
    support = x > 0
    if quadratic:
        d = support.to(x.dtype)
        # For a singular Q the solution is not unique: a small ridge keeps it finite.
        ridge = (
            torch.finfo(x.dtype).eps ** 0.6 * matrix.detach().abs().amax() * weight.detach().amax() + 1e-30
        )
        diagonal = torch.where(support, ridge, 1.0)
    else:
        d = torch.where(support, torch.where(support, x, 1.0).sqrt(), 0.0)
        diagonal = entropy.expand(x.shape) if entropy.dim() else entropy * torch.ones_like(x)
    form = weight[..., None] * matrix if weight.dim() else weight * matrix
    system = d.unsqueeze(-1) * form * d.unsqueeze(-2) + torch.diag_embed(diagonal)
    system = torch.nn.functional.pad(system, (0, 1, 0, 1))
    border = torch.nn.functional.pad(d, (0, 1))
    last = torch.nn.functional.pad(torch.zeros_like(d), (0, 1), value=1.0)
    system = system + border.unsqueeze(-1) * last.unsqueeze(-2) + last.unsqueeze(-1) * border.unsqueeze(-2)
    right = torch.nn.functional.pad(-d * torch.where(support, g, 0.0), (0, 1))
    return d * torch.linalg.solve(system, right.unsqueeze(-1)).squeeze(-1)[..., :-1]


def _newton(z: Tensor, x: Tensor, matrix: Tensor, weight: Tensor, entropy: Tensor, quadratic: bool) -> Tensor:
    """x after a Newton step on its support; rows that would leave the simplex keep x."""
    slope = _slope(z, x, matrix, weight)
    if not quadratic:
        slope = slope + entropy * torch.log(torch.where(x > 0, x, 1.0))
    slope = torch.where(x > 0, slope - slope.amin(-1, keepdim=True), 0.0)
    new = x + _move(x, slope, matrix, weight, entropy, quadratic)
    kept = (torch.isfinite(new) & (new >= 0)).all(-1, keepdim=True)
    new = torch.where(kept, new, x)
    return new / new.sum(-1, keepdim=True)


def _solve_rows(
    z: Tensor, matrix: Tensor, weight: Tensor, entropy: Tensor, quadratic: bool, tolerance: float
) -> Tensor:
    """The oracle for rows (m, L) with weights (m, 1): accelerated proximal gradient, restarts, Newton."""
    top = torch.linalg.eigvalsh(_centred(matrix.double())).amax().to(z)
    unit = weight * top + entropy
    unit = torch.where(unit > 0, unit, 1.0)
    length = (weight * top).maximum(1e-3 * unit)
    rounding = 16 * torch.finfo(z.dtype).eps
    y = x = _near(length, entropy, quadratic).argmin(z)
    t = torch.ones_like(length)
    out = x.clone()
    left = torch.arange(len(z), device=z.device)
    for _ in range(_MAX_ROUNDS):
        near = _near(length, entropy, quadratic)
        for _ in range(_STEPS_PER_ROUND):
            new = near.argmin(_slope(z, y, matrix, weight) - length * y)
            back = ((y - new) * (new - x)).sum(-1, keepdim=True) > 0
            longer = 0.5 * (1 + (1 + 4 * t.square()).sqrt())
            momentum = torch.where(back, 0.0, (t - 1) / longer)
            y, x, t = new + momentum * (new - x), new, torch.where(back, 1.0, longer)
        part = Simplex() if quadratic else Entropy(entropy)
        gap = _gap(z, x, matrix, weight, part)
        for _ in range(1 if quadratic else 4):
            polished = _newton(z, x, matrix, weight, entropy, quadratic)
            lower = _gap(z, polished, matrix, weight, part)
            # The gap is quadratic in the error: even a gap within rounding leaves half of the digits to gain.
            better = lower < gap.maximum(rounding * unit)
            x, gap = torch.where(better, polished, x), torch.where(better, lower, gap)
            y, t = torch.where(better, x, y), torch.where(better, 1.0, t)
        out[left] = x
        open = (gap > tolerance * unit).squeeze(-1)
        if not open.any():
            break
        left, z, x, y, t, weight, entropy, length, unit = (
            s[open] for s in (left, z, x, y, t, weight, entropy, length, unit)
        )
    return out / out.sum(-1, keepdim=True)


def _near(length: Tensor, entropy: Tensor, quadratic: bool) -> SquaredL2 | Mixed:
    return SquaredL2(length) if quadratic else Mixed(l2=length, entropy=entropy)


@torch.library.custom_op("fwcrf::block_quadratic", mutates_args=())
def _solve(
    c: Tensor, matrix: Tensor, weight: Tensor, entropy: Tensor, quadratic: bool, tolerance: float
) -> Tensor:
    shape = torch.broadcast_shapes(c.shape, weight.shape, entropy.shape)
    num_labels = shape[-1]
    rows = c.expand(shape).reshape(-1, num_labels)
    k, v = (t.expand(*shape[:-1], 1).reshape(-1, 1) for t in (weight, entropy))
    size = max(8, _BLOCK // (num_labels + 1) ** 2)
    out = torch.empty_like(rows)
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        z = rows[block]
        z = z - z.amin(-1, keepdim=True)
        out[block] = _solve_rows(z, matrix, k[block], v[block], quadratic, tolerance)
    return out.view(shape)


@_solve.register_fake
def _(c, matrix, weight, entropy, quadratic, tolerance):  # type: ignore
    return c.new_empty(torch.broadcast_shapes(c.shape, weight.shape, entropy.shape))


@_solve.register_vmap
def _(info, in_dims, c, matrix, weight, entropy, quadratic, tolerance):  # type: ignore
    if in_dims[1] is not None:
        raise NotImplementedError(
            "vmap over BlockQuadratic's matrix is not supported; map over c or the weight instead."
        )
    c, weight, entropy = leading((c, weight, entropy), (in_dims[0], *in_dims[2:4]))
    return _solve(c, matrix, weight, entropy, quadratic, tolerance), 0


class _Argmin(torch.autograd.Function):
    """Implicit derivatives from the optimality conditions, as in ``dual.implicit``, with a full Hessian."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        c: Tensor, matrix: Tensor, weight: Tensor, entropy: Tensor, quadratic: bool, tolerance: float
    ) -> Tensor:
        return _solve(c, matrix, weight, entropy, quadratic, tolerance)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        c, *tensors, ctx.quadratic, _ = inputs
        ctx.shape = c.shape
        ctx.save_for_backward(output, *tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        p, matrix, weight, entropy = ctx.saved_tensors
        dc = _move(p, g, matrix, weight, entropy, ctx.quadratic)
        dmatrix = ((weight * dc).unsqueeze(-1) * p.unsqueeze(-2)).sum_to_size(matrix.shape)
        dweight = (dc * matmul(p, matrix)).sum_to_size(weight.shape)
        dentropy = (dc * torch.log(torch.where(p > 0, p, 1.0))).sum_to_size(entropy.shape)
        return (
            dc.sum_to_size(ctx.shape),
            0.5 * (dmatrix + dmatrix.mT),
            dweight,
            dentropy,
            None,
            None,
        )

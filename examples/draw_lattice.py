"""Draw the lattice filter in two dimensions: splat, blur, slice, and the exact kernel.

Points and weights come from a real lattice. They determine the positions of the vertices: each point is the
weighted mean of the corners of its simplex.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from fwcrf.kernels import Exact, Lattice
from fwcrf.torch_ops import lattice_torch


def scattered(count: int = 160) -> Tensor:
    """Features of two regions of an image: two clouds with few points between them, ``(n, 2)``."""
    generator = torch.Generator().manual_seed(3)
    clouds = torch.randn(count, 2, generator=generator, dtype=torch.float64) * torch.tensor([0.5, 0.75])
    clouds[: count // 2, 0] -= 1.6
    clouds[count // 2 :, 0] += 1.6
    return clouds


def vertices(features: Tensor) -> Tensor:
    """Positions of the vertices, ``(m, 2)``: first the points' vertices, then a dense grid's.

    The grid has enough points to determine every position by least squares.
    """
    side = torch.linspace(-5, 5, 80, dtype=torch.float64)
    every = torch.cat([features, torch.cartesian_prod(side, side)])
    K = Lattice.uncalibrated(every)
    weights = torch.zeros(K.n, K.neighbors.shape[1], dtype=torch.float64)
    weights.scatter_add_(1, K.index.long(), K.splat)
    return torch.linalg.lstsq(weights, every).solution


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/assets/lattice.png"))
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    features = scattered()
    K = Lattice.uncalibrated(features)
    places = vertices(features)[: K.neighbors.shape[1]]
    x = torch.zeros(K.n, 1, dtype=torch.float64)
    chosen = int(K.splat[: K.n // 2].amin(-1).argmax())  # the point farthest from the vertices
    x[chosen] = 1
    splatted = lattice_torch.splat(x[None], K.index, K.splat, len(places))
    blurred = lattice_torch.mix(splatted, K.neighbors, tap=0.5, identity=0.0, order=0)
    answer, exact = lattice_torch.slice(blurred, K.index, K.splat)[0], Exact(features)(x)
    answer = answer * (exact * answer).sum() / answer.square().sum()  # uncalibrated: fit the scale

    figure, axes = pyplot.subplots(1, 5, figsize=(15, 3.4), layout="constrained")
    titles = ("a value at one point", "splat", "blur", "slice", "exact kernel")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title)
        axis.set_aspect("equal")
        axis.set_axis_off()
        for down, up in [
            pair for per_axis in K.neighbors.tolist() for pair in enumerate(p[1] for p in per_axis)
        ]:
            if up < len(places):
                axis.plot(*places[[down, up]].T, color="0.85", linewidth=0.7, zorder=0)
    for axis, values in zip(axes[[0, 3, 4]], (x, answer, exact), strict=True):
        axis.scatter(*features.T, c=values[:, 0], s=14, cmap="viridis_r", vmin=0, vmax=1)
    for axis, values in zip(axes[[1, 2]], (splatted, blurred), strict=True):
        share = values[0, : len(places), 0] / values.max()
        axis.scatter(*places.T, c=share, s=8 + 60 * share, cmap="viridis_r", vmin=0, vmax=1)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.output, dpi=80)
    pyplot.close(figure)
    print(args.output)


if __name__ == "__main__":
    main()

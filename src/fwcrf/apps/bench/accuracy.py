"""Relative errors of K x in the L2 norm, of approximate kernels compared with the exact kernel.

*Raw* is K itself, also after the best scalar factor, which separates errors of scale and of shape.
*Symmetric* is D^-1/2 K D^-1/2 with D = K 1. *No self-edges* is the same without its diagonal, as a model
uses it. The inputs x are of three kinds: random rows of a simplex, random signs, and one-hot maps of
eight colour clusters.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image
from scipy.cluster.vq import kmeans2
from torch import Tensor

from fwcrf.apps.bench import peer, pictures
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Plan
from fwcrf.features import bilateral, pixels, positions
from fwcrf.kernels import Exact, Lattice, Operator, Separable, calibration
from fwcrf.kernels.kernel import gaussian
from fwcrf.kernels.lattice import BlurOrder, _Shape, lattice_shape

PICTURES = ["astronaut", "coffee", "chelsea"]
CHANNELS = 8
COLOR, SPATIAL = 13.0, 3.0
KINDS = ["simplex rows", "signs", "label maps"]
IDENTITIES = [0.4, 0.3, 0.2, 0.1, 0.0, -0.1, -0.2, -0.3, -0.4, -0.5]
PLACES = [0.3, 0.0, -0.3, -0.6, -0.9, -1.2]

Method = Callable[[Tensor, Tensor], dict[str, Tensor]]  # (features, x) -> K x by variant of K
Errors = dict[str, list[float]]  # by measure: one error per kind of x


def scenes() -> Iterator[tuple[str, str, np.ndarray, float]]:
    """Yield setting, name of the picture, image, and bandwidth of positions."""
    for name in PICTURES:
        image = pictures.photograph(name)
        yield "crop 96 x 72", name, pictures.crop(image), 80.0
        # The bandwidth covers the same part of the picture as 80 px do at a width of 500.
        yield "whole 160 x 120", name, pictures.resized(image, 160, 120), 25.6


def fields(image: np.ndarray) -> Tensor:
    """The three kinds of x, concatenated to ``(n, 3 * CHANNELS)``."""
    generator = torch.Generator().manual_seed(0)
    size = (image.shape[0] * image.shape[1], CHANNELS)
    rows = torch.rand(size, generator=generator) ** 4
    signs = torch.randint(0, 2, size, generator=generator) * 2.0 - 1
    _, cluster = kmeans2(image.reshape(-1, 3).astype(float), CHANNELS, minit="++", seed=0)
    labels = torch.nn.functional.one_hot(torch.from_numpy(cluster).long(), CHANNELS)
    return torch.cat([rows / rows.sum(-1, keepdim=True), signs, labels.float()], -1)


def features(image: np.ndarray, xy: float) -> dict[str, Tensor]:
    """The features of the tested kernels, by dimension."""
    values, shape = pixels(image)
    grey, _ = pixels(np.array(Image.fromarray(image).convert("L")), channel_axis=None)
    return {
        "2: position": positions(shape, values) / SPATIAL,
        "3: position and grey": bilateral(grey, shape, xy, COLOR),
        "5: position and colour": bilateral(values, shape, xy, COLOR),
    }


# --- methods -----------------------------------------------------------------------------------


def applied(raw: Operator, symmetric: Operator, x: Tensor) -> dict[str, Tensor]:
    y = symmetric(x)
    return {"raw": raw(x), "symmetric": y, "no self-edges": y - symmetric.diagonal().unsqueeze(-1) * x}


def exact(features: Tensor, x: Tensor) -> dict[str, Tensor]:
    return applied(Exact(features), Exact(features).normalized("symmetric"), x)


def fitted(features: Tensor, shape: _Shape, blur: BlurOrder) -> Lattice:
    """``Lattice.build`` with the given shape correction instead of the dimension's own."""
    K = Lattice.uncalibrated(features, blur=blur, identity=shape.identity)
    K = K.scaled((0.5 * shape.place * K.splat.square().sum(-1)).exp())
    return K.scaled(calibration.scale(features, K, shape.constant).sqrt().expand(len(features)))


def lattice(
    *,
    identity: float | None = None,
    place: float | None = None,
    blur: BlurOrder = "symmetric",
    rows: bool = True,
    unit: bool = True,
) -> Method:
    """Our lattice with changed or omitted corrections. Without arguments it equals ``gaussian``."""

    def method(features: Tensor, x: Tensor) -> dict[str, Tensor]:
        changed = {"identity": identity, "place": place}
        shape = lattice_shape(features.shape[-1])
        shape = shape._replace(**{key: value for key, value in changed.items() if value is not None})
        K = fitted(features, shape, blur)
        raw = K.scaled(calibration.row_factor(features, K)) if rows else K
        if unit:
            raw, K = raw.with_unit_diagonal(), K.with_unit_diagonal()
        return applied(raw, K.normalized("symmetric"), x)

    return method


def default(features: Tensor, x: Tensor) -> dict[str, Tensor]:
    return applied(gaussian(features, "lattice", "none"), gaussian(features, "lattice", "symmetric"), x)


def pydensecrf(features: Tensor, x: Tensor) -> dict[str, Tensor]:
    """Without "no self-edges": pydensecrf does not expose its diagonal."""
    return {"raw": peer.filtered(features, x, "none"), "symmetric": peer.filtered(features, x, "symmetric")}


def separable(shape: tuple[int, int]) -> Method:
    def method(features: Tensor, x: Tensor) -> dict[str, Tensor]:
        K = Separable.build(shape, SPATIAL, features)
        return applied(K, K.normalized("symmetric"), x)

    return method


def compared(kernel: str, shape: tuple[int, int]) -> dict[str, Method]:
    """The methods to compare for a kernel, by name."""
    theirs: dict[str, Method] = {"pydensecrf": pydensecrf} if peer.dcrf else {}
    if kernel.startswith("2"):
        return theirs | {"lattice": default, "separable (default)": separable(shape)}
    if kernel.startswith("3"):
        return theirs | {"lattice (default)": default}
    return theirs | {
        "lattice (default)": default,
        "one order of blurs": lattice(blur="forward"),
        "no identity share": lattice(identity=0.0),
        "no weight by place": lattice(place=0.0),
        "no factor per row": lattice(rows=False),
        "its own diagonal": lattice(unit=False),
        "scale only": lattice(identity=0.0, place=0.0, rows=False, unit=False),
    }


def methods(kernel: str, shape: tuple[int, int]) -> dict[str, Method]:
    """The methods of ``compared``, and sweeps over each of the two shape parameters."""
    shares = {f"identity {share}": lattice(identity=share) for share in IDENTITIES}
    places = {f"place {exponent}": lattice(place=exponent) for exponent in PLACES}
    return compared(kernel, shape) | shares | places


# --- errors ------------------------------------------------------------------------------------


def kinds(x: Tensor) -> tuple[Tensor, ...]:
    return x.split(CHANNELS, -1)


def distance(approximate: Tensor, exact: Tensor) -> float:
    return float((approximate - exact).norm() / exact.norm())


def scalar(approximate: Tensor, exact: Tensor) -> float:
    """The factor s that minimizes |s approximate - exact|."""
    return float((approximate * exact).sum() / approximate.square().sum())


def errors(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> Errors:
    pairs = {key: list(zip(kinds(y), kinds(wanted[key]), strict=True)) for key, y in got.items()}
    found = {key: [distance(a, b) for a, b in each] for key, each in pairs.items()}
    found["factor"] = [scalar(a, b) for a, b in pairs["raw"]]
    found["after it"] = [distance(s * a, b) for s, (a, b) in zip(found["factor"], pairs["raw"], strict=True)]
    return found


def agreement(features: Tensor, x: Tensor) -> list[float]:
    """Distance of pydensecrf from our lattice with forward blur only, up to pydensecrf's constant factor."""
    d = features.shape[-1]
    ours = Lattice.uncalibrated(features, blur="forward", identity=0.0)(x) / (1 + 2.0**-d)
    return [
        distance(a, b) for a, b in zip(kinds(ours), kinds(peer.filtered(features, x, "none")), strict=True)
    ]


# --- tables ------------------------------------------------------------------------------------

Results = dict[str, dict[str, dict[str, dict[str, Errors]]]]  # setting, kernel, method, picture


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    results: Results = {}
    agreements: dict[str, list[float]] = {}
    for setting, picture, image, xy in scenes():
        x = fields(image)
        for kernel, points in features(image, xy).items():
            wanted = exact(points, x)
            for name, method in methods(kernel, image.shape[:2]).items():
                by_picture = results.setdefault(setting, {}).setdefault(kernel, {}).setdefault(name, {})
                by_picture[picture] = errors(method(points, x), wanted)
            if peer.dcrf and kernel.startswith("5"):
                agreements[f"{picture}, {setting}"] = agreement(points, x)

    print(f"\nRelative error in percent, mean over three photographs, for {' / '.join(KINDS)}.")
    print("Positions: 3 px alone, else 80 px on crops and 25.6 px on whole photographs. Colours: 13.")
    for kernel in next(iter(results.values())):
        for setting, by_kernel in results.items():
            print(f"\n### {kernel}, {setting}\n")
            print(_compared(by_kernel[kernel]))
    for name, values in (("identity", IDENTITIES), ("place", PLACES)):
        for measure in ("symmetric", "raw"):
            print(f"\n### {measure.capitalize()} error in percent by {name}\n")
            print(_swept(results, measure, name, values))
    if agreements:
        print("\n### pydensecrf compared with our lattice, one order of blurs, no calibration\n")
        rows = [[name, *(f"{v:.1e}" for v in each)] for name, each in agreements.items()]
        print(table(["relative distance", *KINDS], rows))
    return {"errors": results, "agreement with pydensecrf": agreements}


def _means(by_picture: dict[str, Errors], measure: str) -> list[float]:
    """The mean error over the photographs, for each kind of x."""
    return [statistics.mean(each) for each in zip(*(e[measure] for e in by_picture.values()), strict=True)]


def _compared(by_method: dict[str, dict[str, Errors]]) -> str:
    columns = {
        "raw": (100, 1),
        "factor": (1, 2),
        "after it": (100, 1),
        "symmetric": (100, 1),
        "no self-edges": (100, 1),
    }
    rows = []
    for name, by_picture in by_method.items():
        if name.startswith(("identity ", "place ")):
            continue
        known = next(iter(by_picture.values()))
        cells = [
            " / ".join(f"{v * unit:.{digits}f}" for v in _means(by_picture, measure))
            if measure in known
            else ""
            for measure, (unit, digits) in columns.items()
        ]
        rows.append([name, *cells])
    return table(["", "raw", "best factor", "raw, after it", "symmetric", "no self-edges"], rows)


def _swept(results: Results, measure: str, name: str, values: list[float]) -> str:
    rows = []
    for kernel in next(iter(results.values())):
        for setting, by_kernel in results.items():
            each = [_means(by_kernel[kernel][f"{name} {value}"], measure) for value in values]
            for k, kind in enumerate(KINDS):
                line = [f"{kernel}; {setting}; {kind}", *(f"{m[k] * 100:.1f}" for m in each)]
                rows.append(line)
    return table(["", *map(str, values)], rows)

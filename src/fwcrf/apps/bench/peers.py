"""Complete inferences by peer libraries, if they can be imported.

None is required. pydensecrf (pydensecrf2 on PyPI) and crfseg install with pip; crfasrnn_pytorch, MONAI with
its native code and ConvCRF have to be built from source. All get the same bandwidths and number of steps,
as far as they have these settings; ``note`` names the differences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fwcrf import kernels
from fwcrf.apps.bench import peer
from fwcrf.apps.bench.timing import Work
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.features import bilateral, pixels, positions
from fwcrf.kernels import Lattice
from fwcrf.pairwise import dense, of_image
from fwcrf.solvers import minimize
from fwcrf.torch_ops.printed import in_one_line

XY, COLOR, SPATIAL = 80.0, 13.0, 3.0

# Arguments: image (H, W, 3) of uint8, unary energies (L, H * W), number of steps.
Inference = Callable[[np.ndarray, np.ndarray, int], Work]


@dataclass(frozen=True)
class Peer:
    inference: Inference
    note: str
    threads: bool  # True if it uses several threads

    __repr__ = in_one_line


def available() -> dict[str, Peer]:
    """The installed peers by name, and the stand-in in plain torch."""
    found: dict[str, Peer] = {}
    for name, make in _MAKERS.items():
        try:
            with _quiet():
                found[name] = make()
        except ImportError:
            continue
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Restore the logging handlers after the block: some libraries replace them on import."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers, root.level = handlers, level


def tensors(image: np.ndarray, unary: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The image and its logits as a batch of one, channels and labels first."""
    height, width = image.shape[:2]
    picture = torch.from_numpy(image).permute(2, 0, 1)[None].float().contiguous()
    return picture, torch.from_numpy(-unary).view(1, -1, height, width)


def _module(forward: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[np.ndarray, np.ndarray], Work]:
    def prepare(image: np.ndarray, unary: np.ndarray) -> Work:
        picture, logits = tensors(image, unary)

        @torch.no_grad()
        def work() -> Any:
            return forward(picture, logits)

        return work

    return prepare


def _pydensecrf() -> Peer:
    if peer.dcrf is None:
        raise ImportError("pydensecrf")

    def inference(image: np.ndarray, unary: np.ndarray, steps: int) -> Work:
        def work() -> np.ndarray:
            model = peer.model(image, unary, 0, XY, COLOR)
            model.addPairwiseGaussian(sxy=SPATIAL, compat=1)
            model.addPairwiseBilateral(sxy=XY, srgb=COLOR, rgbim=image, compat=1)
            return np.array(model.inference(steps))

        return work

    return Peer(inference, "mean field, C++, one thread", threads=False)


def _crfseg() -> Peer:
    from crfseg import CRF  # type: ignore[import-not-found]

    def inference(image: np.ndarray, unary: np.ndarray, steps: int) -> Work:
        layer = CRF(n_spatial_dims=2, n_iter=steps, returns="proba", smoothness_theta=SPATIAL)
        return _module(lambda picture, logits: layer(logits))(image, unary)

    return Peer(inference, "a spatial kernel in a window of 11 pixels; ignores the image", threads=True)


def _crfasrnn() -> Peer:
    from crfasrnn.crfrnn import CrfRnn  # type: ignore[import-not-found]
    from crfasrnn.params import DenseCRFParams  # type: ignore[import-not-found]

    def inference(image: np.ndarray, unary: np.ndarray, steps: int) -> Work:
        layer = CrfRnn(len(unary), steps, DenseCRFParams(alpha=XY, beta=COLOR, gamma=SPATIAL))
        return _module(layer)(image, unary)

    return Peer(inference, "mean field as a layer", threads=True)


def _monai() -> Peer:
    import monai._C  # type: ignore[import-not-found]  # noqa: F401 - without it the layer raises
    from monai.networks.blocks import CRF  # type: ignore[import-not-found]

    def inference(image: np.ndarray, unary: np.ndarray, steps: int) -> Work:
        layer = CRF(
            iterations=steps,
            bilateral_spatial_sigma=XY,
            bilateral_color_sigma=COLOR,
            gaussian_spatial_sigma=SPATIAL,
        )
        return _module(lambda picture, logits: layer(logits, picture))(image, unary)

    return Peer(inference, "mean field; rebuilds both lattices in every step", threads=True)


def _convcrf() -> Peer:
    from convcrf.convcrf import GaussCRF, default_conf  # type: ignore[import-not-found]

    def inference(image: np.ndarray, unary: np.ndarray, steps: int) -> Work:
        layer = GaussCRF(conf=default_conf, shape=image.shape[:2], nclasses=len(unary))
        return _module(lambda picture, logits: layer(logits, picture, num_iter=steps))(image, unary)

    return Peer(inference, "a window instead of the whole image: not dense", threads=True)


def _plain_torch() -> Peer:
    """A stand-in for torch libraries: our lattice in plain torch on the CPU."""

    def inference(image: np.ndarray, unary: np.ndarray, steps: int) -> Work:
        values, shape = pixels(image)
        energies = unary_from_logits(torch.from_numpy(-unary.T).contiguous())

        @torch.no_grad()
        def work() -> torch.Tensor:
            features = bilateral(values, shape, XY, COLOR), positions(shape, values, SPATIAL)
            operators = [Lattice.build(f, engine="torch").normalized("symmetric") for f in features]
            E = Energy(dense(operators, energies.shape[-1]), energies)
            return minimize(E, "mf", num_steps=steps).probabilities

        return work

    return Peer(inference, "not a library: our lattice in plain torch, for both kernels", threads=True)


_MAKERS: dict[str, Callable[[], Peer]] = {
    "pydensecrf": _pydensecrf,
    "crfasrnn_pytorch": _crfasrnn,
    "MONAI": _monai,
    "ConvCRF": _convcrf,
    "crfseg": _crfseg,
    "plain torch (stand-in)": _plain_torch,
}


def energy(image: np.ndarray, unary: np.ndarray) -> Energy:
    """The energy that ``ours`` minimises."""
    picture, logits = tensors(image, unary)
    P = of_image([kernels.Spatial(SPATIAL), kernels.Bilateral(XY, COLOR)], picture[0], len(unary))
    return Energy(P, unary_from_logits(logits[0].flatten(1).T.contiguous()))


def ours(image: np.ndarray, unary: np.ndarray, steps: int, solver: str = "mf") -> Work:
    """``refine`` on the same arrays, returning labels and probabilities."""
    from fwcrf import refine

    picture, logits = tensors(image, unary)
    picture = picture.byte()

    def work() -> Any:
        return refine(
            picture,
            logits,
            from_logits=True,
            solver=solver,
            num_steps=steps,
            kernels=[kernels.Spatial(SPATIAL), kernels.Bilateral(XY, COLOR)],
            return_probabilities=True,
        )

    return work

"""Kernels of the user's own: an ``operator(image)`` is enough, and what else they have is used."""

from dataclasses import dataclass

import pytest
import torch
from helpers import uniform

import fwcrf
from fwcrf import DenseCRF, Energy, minimize, pairwise
from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.kernels.kernel import Foreign, read_kernels

IMAGE = 255 * uniform(3, 9, 11, dtype=torch.float32)
P = torch.softmax(3 * uniform(3, 9, 11, dtype=torch.float32, seed=1), 0)


@dataclass(frozen=True)
class Own:
    weight: float = 0.7
    xy: object = 2.0
    normalization: str = "symmetric"

    def operator(self, image):
        return Spatial(self.xy, normalization=self.normalization).operator(image)


class Overridden(Bilateral):
    def operator(self, image, **layout):
        return Spatial(self.xy).operator(image, **layout)


class Channels(Gaussian):
    def operator(self, features):
        # Wide enough for a lattice over points, which warns if it is far off: 58 grey levels.
        return Gaussian(precision=0.0003, method="lattice").operator(features)


class Volumes:
    weight = 0.7

    def operator(self, image, *, spatial_dims=2):
        return Spatial(2.0).operator(image, spatial_dims=spatial_dims)


def refined(kernel, **more):
    return fwcrf.refine(IMAGE, P, kernels=[kernel], return_probabilities=True, **more)[1]


CASES = {
    "plain": (Own(), Spatial(2.0, weight=0.7), {}),
    "spacing": (Own(), Spatial(2.0, weight=0.7), {"spacing": 0.5}),
    "tiles": (Own(), Spatial(2.0, weight=0.7), {"tile": 5}),
    "ignored pixels": (Own(), Spatial(2.0, weight=0.7), {"ignore": IMAGE[0] > 200}),
    "a subclass": (Overridden(3.0), Spatial(3.0), {}),
    "a subclass, tiles": (Overridden(3.0), Spatial(3.0), {"tile": 5}),
    "features": (Channels(), Gaussian(precision=0.0003), {}),
}


@pytest.mark.parametrize("own, ours, more", CASES.values(), ids=CASES)
def test_refine_takes_the_users_operator(own, ours, more):
    torch.testing.assert_close(refined(own, **more), refined(ours, **more), rtol=0, atol=1e-6)


def test_bandwidths_of_the_users_kernel_are_learned():
    crf = DenseCRF(3, kernels=[Own()], learnable=("bandwidths",))
    assert crf.bandwidths.keys() == {"0.xy"}
    crf(IMAGE, P.log()).square().sum().backward()
    assert crf.log_bandwidths["0_xy"].grad.abs().sum() > 0


def test_volumes():
    volume, logits = (
        uniform(3, 4, 5, 6, dtype=torch.float32),
        uniform(3, 4, 5, 6, dtype=torch.float32, seed=1),
    )
    own, ours = (
        DenseCRF(3, kernels=[kernel], spatial_dims=3)(volume, logits)
        for kernel in (Volumes(), Spatial(2.0, weight=0.7))
    )
    torch.testing.assert_close(own, ours)


def test_points_need_a_kernel_over_points():
    with pytest.raises(TypeError, match=r"is for images; expected a subclass of fwcrf\.kernels\.Kernel"):
        fwcrf.refine_points(uniform(9, 2), None, P[:, 0, :9].T, kernels=[Own()])


def test_any_iterable_of_kernels():
    kernels = {"near": Spatial(), "own": Own()}
    assert (
        read_kernels(k for k in kernels.values())
        == read_kernels(kernels.values())
        == (Spatial(), Foreign(Own()))
    )
    assert read_kernels(Bilateral()) == (Bilateral(),)
    with pytest.raises(TypeError, match="kernels=3; expected a kernel or a sequence of kernels"):
        read_kernels(3)


@pytest.mark.parametrize("solver", ["l2fw", "mf", "pgd", "emd", "admm", "fista"])
def test_another_number_of_labels_is_refused_on_every_path(solver):
    model = pairwise.dense([Spatial(2).operator(torch.zeros(3, 5, 6))], 3)
    with pytest.raises(ValueError, match=r"shape \(30, 4\); expected .*3 labels on the last axis"):
        minimize(Energy(model, torch.zeros(30, 4)), solver, num_steps=2)


def test_a_hint_about_channels_only_where_it_can_be_right():
    with pytest.raises(ValueError, match="Resize one of them"):
        DenseCRF(3)(torch.rand(2, 3, 9, 9), torch.rand(2, 3, 9, 10))
    with pytest.raises(ValueError, match="channels before the grid"):
        fwcrf.refine(torch.rand(9, 10, 3), torch.rand(9, 10, 5))

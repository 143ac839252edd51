"""The energy as a loss."""

import pytest
import torch
from crfs import GRID, L, crf, image, kernels, logits

from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.losses import energy

N = 20


def probabilities(*batch, **more):
    return logits(*batch, **more).softmax(-3)


@pytest.mark.parametrize("with_logits", [False, True])
def test_is_the_energy_per_pixel_averaged_over_the_batch(with_logits):
    photo, x, z = image(3), probabilities(3), logits(3, seed=4)
    E = crf().energy(photo, z if with_logits else torch.zeros_like(z))
    each = E.value(x.flatten(2).mT) / N
    given = {"logits": z} if with_logits else {}
    torch.testing.assert_close(energy(photo, x, kernels(), reduction="none", **given), each)
    torch.testing.assert_close(energy(photo, x, kernels(), **given), each.mean())
    torch.testing.assert_close(energy(photo, x, kernels(), reduction="sum", **given), each.sum())


def test_gradient_is_that_of_the_energy():
    photo, z = image(3), logits(3, seed=4)
    x = probabilities(3).requires_grad_()
    energy(photo, x, kernels(), logits=z, reduction="sum").backward()
    expected = crf().energy(photo, z).grad(x.detach().flatten(2).mT.contiguous()) / N
    torch.testing.assert_close(x.grad, expected.mT.unflatten(-1, GRID))


def test_gradcheck_in_probabilities_image_and_compatibility():
    inputs = (
        image(1).requires_grad_(),
        probabilities(1).requires_grad_(),
        torch.rand(L, L, dtype=torch.float64).requires_grad_(),
    )
    assert torch.autograd.gradcheck(lambda photo, x, M: energy(photo, x, kernels(), M), inputs)


def test_is_not_negative_for_potts_and_zero_for_one_label():
    one = torch.zeros(2, L, *GRID).double()
    one[:, 1] = 1
    assert float(energy(image(2), one, kernels("exact"))) == pytest.approx(0.0, abs=1e-12)
    for seed in range(5):
        x = (5 * logits(2, seed=seed)).softmax(1)
        value = float(energy(image(2), x, kernels("exact")))
        assert 0 <= value <= 0.5 * (0.8 + 1.5)


def test_training_a_point_lowers_it_and_smooths():
    photo, z = image(dtype=torch.float32), logits(dtype=torch.float32).requires_grad_()
    optimizer = torch.optim.SGD([z], lr=20.0)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = energy(photo, z.softmax(0), kernels())
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < 0.5 * values[0]


def test_default_kernel_is_the_bilateral_one():
    photo, x = 255 * image(grid=(6, 7)), probabilities(grid=(6, 7))
    torch.testing.assert_close(energy(photo, x), energy(photo, x, [Bilateral(80, 13)]))


@pytest.mark.parametrize("grid", [(9,), (2, 3, 4)], ids=str)
def test_any_number_of_grid_axes(grid):
    d = len(grid)
    photo, x = image(2, grid=grid), logits(2, grid=grid).softmax(1)
    value = energy(photo, x, [Spatial(1.2)], spatial_dims=d, reduction="none")
    looped = [energy(i, p, [Spatial(1.2)], spatial_dims=d) for i, p in zip(photo, x, strict=True)]
    torch.testing.assert_close(value, torch.stack(looped))


def test_features_of_ones_own():
    photo, x = image(2, channels=4), probabilities(2)
    value = energy(photo, x, [Gaussian()])
    K = Gaussian(method="lattice").operator(photo.flatten(2).mT.contiguous()).without_self_edges().to_dense()
    flat = x.flatten(2).mT
    expected = 0.5 * torch.einsum("bis,bij,bjt,st->b", flat, K, flat, 1 - torch.eye(L).double()) / N
    torch.testing.assert_close(value, expected.mean())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: energy(image(), probabilities(), reduction="median"), "reduction='median'"),
        (lambda: energy(image(grid=(3, 3)), probabilities()), "image has shape.*probabilities .*grid"),
        (lambda: energy(image(), probabilities(), logits=logits(labels=4)), "logits has shape.*4 labels"),
        (lambda: energy(image(), probabilities(), compatibility=torch.eye(4)), "compatibility has shape"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""The start from a smaller model: where the two are equal, its constraints, and the labels it leads to."""

import itertools

import pytest
import torch
from helpers import normal

import fwcrf
from fwcrf import start
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.pairwise import of_image
from fwcrf.rounding import merge

HEIGHT, WIDTH, L = 30, 45, 3


def scene(noise=1.0):
    """A box, whose colour and scores differ from the rest, under noise."""
    generator = torch.Generator().manual_seed(0)
    box = torch.zeros(HEIGHT, WIDTH, dtype=torch.long)
    box[8:22, 10:30] = 1
    image = 60.0 + 120.0 * box + 4.0 * torch.randn(3, HEIGHT, WIDTH, generator=generator)
    unary = noise * torch.randn(HEIGHT * WIDTH, L, generator=generator)
    unary -= 0.3 * torch.nn.functional.one_hot(box.flatten(), L)
    return image, unary, box.flatten()


KERNELS = [Spatial(3, weight=1.0), Bilateral(20, 20, weight=3.0)]


def test_the_start_solves_the_model_on_means():
    """Squares of one colour and equal scores: the smaller model by hand, nearest to it at their centres."""
    image, unary, _ = scene()
    image = image[:, ::2, ::2].repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :HEIGHT, :WIDTH]
    maps = unary.T.reshape(L, HEIGHT, WIDTH)[:, ::2, ::2]
    full = maps.repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :HEIGHT, :WIDTH].flatten(1).T.contiguous()
    small = maps.flatten(1).T.contiguous()
    P = of_image([Spatial(1.5, weight=1.0), Bilateral(10, 20, weight=3.0)], image[:, ::2, ::2], L)
    solver = fwcrf.solvers.get("anneal-fw", steps=20, merge=True)
    expected = fwcrf.minimize(Energy(P, small), solver, num_steps=20).probabilities
    x0 = start.coarse(KERNELS, image, full, factor=2)
    where = torch.arange(HEIGHT * WIDTH).view(HEIGHT, WIDTH)[::2, ::2].flatten()
    sure = expected.amax(-1) > 0.9
    agree = (x0[where].argmax(-1) == expected.argmax(-1))[sure]
    assert sure.float().mean() > 0.5 and agree.float().mean() > 0.97
    torch.testing.assert_close(x0.sum(-1), torch.ones(HEIGHT * WIDTH))


def test_few_steps_from_it_end_below_few_steps_from_the_scores():
    image, unary, box = scene(noise=1.5)
    E = Energy(of_image(KERNELS, image, L), unary)
    x0 = start.coarse(KERNELS, image, unary)
    solver = fwcrf.solvers.get("anneal-fw", steps=2, start=0.1)
    after = [fwcrf.minimize(E, solver, x, num_steps=2, rounding="merge") for x in (x0, None)]
    assert float(after[0].energy) <= float(after[1].energy)
    assert (after[0].labels == box).float().mean() > 0.9
    x = torch.nn.functional.one_hot(x0.argmax(-1), L).to(unary)
    assert float(E.of_labels(merge(E, x))) <= float(E.of_labels(x0.argmax(-1))) + 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_against_all_labellings(seed):
    """Two rows of four pixels in float64: merges from the start never raise E, nor end below the optimum."""
    generator = torch.Generator().manual_seed(seed)
    image = 255 * torch.rand(3, 2, 4, generator=generator, dtype=torch.float64)
    unary = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    kernels = [Spatial(1.5), Bilateral(5, 400, weight=2.0)]
    E = Energy(of_image(kernels, image, 2), unary)
    optimum = min(float(E.of_labels(torch.tensor(labels))) for labels in itertools.product((0, 1), repeat=8))
    x0 = start.coarse(kernels, image, unary, factor=2)
    before = float(E.of_labels(x0.argmax(-1)))
    merged = float(E.of_labels(merge(E, torch.nn.functional.one_hot(x0.argmax(-1), 2).to(unary))))
    solver = fwcrf.solvers.get("anneal-fw", steps=4, start=0.1)
    plain, whole = (
        float(fwcrf.minimize(E, solver, x0, num_steps=4, rounding=rounding).energy)
        for rounding in ("nearest", "merge")
    )
    assert optimum - 1e-9 <= merged <= before + 1e-9
    assert optimum - 1e-9 <= whole <= plain + 1e-9


def test_a_batch_is_its_images():
    image, unary, _ = scene()
    x0 = start.coarse(KERNELS, torch.stack([image, image.flip(1)]), torch.stack([unary, 2 * unary]))
    for k, (picture, costs) in enumerate([(image, unary), (image.flip(1), 2 * unary)]):
        torch.testing.assert_close(x0[k], start.coarse(KERNELS, picture, costs), rtol=0, atol=1e-4)


def test_forbidden_labels_have_no_probability():
    image, unary, _ = scene()
    unary[:400, 0] = torch.inf
    unary[7, [0, 1]] = torch.inf
    x0 = start.coarse(KERNELS, image, unary)
    assert (x0[unary == torch.inf] == 0).all()
    torch.testing.assert_close(x0.sum(-1), torch.ones(HEIGHT * WIDTH))
    found = fwcrf.minimize(Energy(of_image(KERNELS, image, L), unary), "l2fw", x0, num_steps=2)
    assert torch.isfinite(found.energy)


def test_refusals():
    image, unary, _ = scene()
    with pytest.raises(ValueError, match="unary has 10 nodes and the image 1350 pixels, 30 x 45"):
        start.coarse(KERNELS, image, normal(10, L))
    with pytest.raises(ValueError, match="factor=1; expected"):
        start.coarse(KERNELS, image, unary, factor=1)

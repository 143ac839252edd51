"""Two labels are one number per pixel: the same ends as with rows of two."""

from __future__ import annotations

import pytest
import torch
from helpers import DTYPES, covering, normal, uniform

import fwcrf
from fwcrf import Energy, solvers
from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.pairwise import dense, of_image
from fwcrf.solvers.plan import as_updates

SOLVERS = {
    "mf": solvers.get("mf"),
    "efw": solvers.get("efw"),
    "efw, given steps": solvers.get("efw", step=[1.0, 0.7, 0.3]),
    "l2fw": solvers.get("l2fw"),
    "l2fw, half steps": solvers.get("l2fw", weight=0.5, step=0.5),
    "fw": solvers.get("fw"),
    "pgd": solvers.get("pgd"),
    "pgm": solvers.get("pgm", step=0.4),
    "emd": solvers.get("emd"),
}
KERNELS = {
    "both": [Bilateral(6.0, 0.3), Spatial(1.5)],
    "lattice": [Bilateral(6.0, 0.3)],
    "grid": [Spatial(2.0)],
    "wide grid": [Spatial(15.0), Bilateral(6.0, 0.3)],
    "three": [Bilateral(4.0, 0.4, weight=0.5), Spatial(1.0, weight=2.0), Bilateral(2.0, 0.9, weight=-1.0)],
    "not normalized": [Spatial(1.3, normalization="none"), Bilateral(4.0, 0.4, normalization="none")],
}
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def energy(kernels, grid=(13, 18), dtype=torch.float64, channels=3, batch=(), spread=2.0):
    P = of_image(kernels, uniform(*batch, channels, *grid, dtype=dtype), 2, spatial_dims=len(grid))
    n = torch.Size(grid).numel()
    return Energy(P, spread * normal(*batch, n, 2, dtype=dtype, seed=3))


def ends(E, solver, x0=None, num_steps=5):
    at_once = fwcrf.minimize(E, solver, x0, num_steps=num_steps).probabilities
    one_by_one = fwcrf.minimize(E, solver, x0, num_steps=num_steps, callback=lambda k, x: None).probabilities
    return at_once, one_by_one


def assert_same(E, solver, x0=None, **more):
    found, expected = ends(E, solver, x0, **more)
    atol = 1e-11 if E.unary.dtype == torch.float64 else 1e-4
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@covering(solver=SOLVERS, kernels=KERNELS, dtype=DTYPES)
def test_solvers_and_kernels(solver, kernels, dtype):
    assert_same(energy(kernels, dtype=dtype), solver)


@every_dtype
@pytest.mark.parametrize(
    "grid", [(1,), (40,), (1, 1), (1, 30), (30, 1), (33, 47), (5, 6, 7), (2, 3, 4, 5)], ids=str
)
@pytest.mark.parametrize("channels", [1, 3])
def test_any_grid(grid, channels, dtype):
    kernels = [Bilateral(6.0, 0.3), Spatial(1.5)]
    assert_same(energy(kernels, grid=grid, channels=channels, dtype=dtype), SOLVERS["mf"])


@pytest.mark.parametrize("num_steps", [1, 2, 7])
def test_from_a_given_start(num_steps):
    E = energy(KERNELS["both"], batch=(3,))
    x0 = torch.softmax(normal(3, 13 * 18, 2, seed=9), -1)
    kept = x0.clone()
    assert_same(E, SOLVERS["mf"], x0, num_steps=num_steps)
    assert torch.equal(x0, kept)


@pytest.mark.parametrize("solver", ["mf", "l2fw", "fw", "pgd"])
@every_dtype
def test_forbidden_labels_stay_at_zero(solver, dtype):
    E = energy(KERNELS["both"], dtype=dtype)
    E.unary[::3, 1] = torch.inf
    E.unary[1::3, 0] = torch.inf
    found, _ = ends(E, SOLVERS[solver])
    assert (found[::3, 1] == 0).all() and (found[::3, 0] == 1).all()
    assert (found[1::3, 0] == 0).all() and (found[1::3, 1] == 1).all()
    assert_same(E, SOLVERS[solver])


def test_small_probabilities_keep_their_digits():
    E = energy(KERNELS["both"], spread=12.0)
    found, expected = ends(E, SOLVERS["mf"])
    assert float(expected.min()) < 1e-12
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@every_dtype
def test_energies_far_from_zero(dtype):
    E = energy(KERNELS["both"], spread=3000.0, dtype=dtype)
    assert_same(E, SOLVERS["mf"])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads, monkeypatch):
    E = energy(KERNELS["both"], grid=(60, 70), dtype=torch.float32)
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    assert_same(E, SOLVERS["mf"])


def test_features_of_any_number():
    for d in (1, 2, 4, 7):
        K = Gaussian().operator(normal(150, d, seed=d))
        assert_same(Energy(dense([K], 2), normal(150, 2, seed=1)), SOLVERS["mf"])


def test_what_is_not_finite_is_refused():
    E = energy(KERNELS["both"])
    x = torch.full((13 * 18, 2), 0.5, dtype=torch.float64)
    x[7, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        E.pairwise.engine().run(x, E.unary, as_updates(SOLVERS["mf"], 3))

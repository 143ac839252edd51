"""The plan: every refusal of the engine is a sentence, and the forecast of a run is what happens."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from helpers import normal, uniform

import fwcrf
from fwcrf import Energy, _core, refinement, solvers, stepsizes
from fwcrf.engine.update import Dual, Map
from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.layer import LEARNABLE
from fwcrf.pairwise import of_image
from fwcrf.regularizers import Entropy, SquaredL2
from fwcrf.solvers import FrankWolfe
from fwcrf.solvers.admm import ADMM
from fwcrf.solvers.plan import (
    GENERIC_ARRAYS,
    NATIVE_ARRAYS,
    Plan,
    Refusal,
    arrays_per_label,
    as_updates,
    plan,
)

KERNELS = (Bilateral(6.0, 0.3), Spatial(1.5))


def energy(labels=3, *, kernels=KERNELS, dtype=torch.float64, compat=1.0, weights=None):
    P = of_image(kernels, uniform(3, 7, 9, dtype=dtype), labels, compat=compat, weights=weights)
    return Energy(P, normal(63, labels, dtype=dtype, seed=3))


def sentence(E, solver="l2fw", x0=None, num_steps=3, **more):
    found = plan(E, solvers.get(solver) if isinstance(solver, str) else solver, x0, num_steps, **more)
    assert isinstance(found, Refusal)
    return str(found)


def test_maps_and_duals_are_in_the_order_of_the_native_core():
    assert [m.name.lower() for m in Map] == [name.replace(" ", "_") for name in _core.maps()]
    assert [d.name.lower() for d in Dual] == _core.duals()


class Halved(FrankWolfe):
    def step(self, f, state, k):
        return super().step(f, state, k)._replace(x=state.x)


SOLVERS = {
    "AnnealedFrankWolfe are not updates of single rows": solvers.get("anneal-fw"),
    "Fista are not updates of single rows": solvers.get("fista"),
    "Halved are not updates of single rows": Halved(Entropy()),
    "step sizes of LineSearch depend on x": solvers.get("l2fw", step=stepsizes.LineSearch()),
    "step sizes are learned": solvers.get("l2fw", step=torch.tensor(0.5)),
    "lambda) differs between nodes": solvers.get("l2fw", weight=torch.full((63, 1), 2.0).double()),
    "the solver splits the energy": solvers.get("cmf1"),
    "oracle of Tsallis is neither": solvers.get("tsallis-fw"),
    "a step of 0 times an infinite energy": solvers.get("pgm", step=[1.0, 0.0]),
    "rho is a tensor": ADMM(torch.tensor(1.0)),
    "mirror map of ADMM is Entropy": solvers.get("bregman-admm"),
}


@pytest.mark.parametrize("expected", SOLVERS)
def test_a_solver_that_the_engine_does_not_take(expected):
    found = sentence(energy(), SOLVERS[expected])
    assert found.startswith("generic path: ") and expected in found
    assert fwcrf.minimize(energy(), SOLVERS[expected], num_steps=3).engine == found


def test_iterates_that_are_read():
    E = energy()
    assert "reads every iterate" in sentence(E, watched=True)
    found = fwcrf.minimize(E, "l2fw", num_steps=2, trace=True)
    assert "reads every iterate" in found.engine
    assert {record.engine for record in found.trace} == {found.engine}
    assert "reads every iterate" in fwcrf.minimize(E, "l2fw", num_steps=2, tol=1e-3).engine


def test_terms_that_the_engine_does_not_take():
    exact = (Bilateral(6.0, 0.3, method="exact"),)
    assert "method='exact' are applied outside" in sentence(energy(kernels=exact))
    assert "9 kernels; the engine takes 1 to 8" in sentence(energy(kernels=[Spatial(1.5)] * 9))
    learned = Bilateral(torch.tensor(6.0, requires_grad=True), 0.3)
    assert isinstance(plan(energy(kernels=(learned,)), solvers.get("l2fw"), None, 3), Plan)
    before = Bilateral(torch.tensor(6.0, requires_grad=True), 0.3, normalization="before")
    assert "not symmetric" in sentence(energy(kernels=(before,)))
    E = energy()
    assert "Multiple is applied one step at a time" in sentence(Energy(2.0 * E.pairwise, E.unary))


def test_arrays_that_the_engine_does_not_take():
    E = energy(dtype=torch.float32)
    assert "the arrays are torch.float64" in sentence(Energy(E.pairwise, E.unary.double()))
    P = of_image(KERNELS, uniform(2, 3, 7, 9), 3)
    assert "broadcast" in sentence(Energy(P, normal(63, 3)))


@pytest.mark.parametrize("labels", [40, 70])
def test_more_labels_than_fit_with_gradients(labels):
    weights = [torch.tensor(1.0, requires_grad=True)] * 2
    most = _core.ModelF32.most_labels()
    found = plan(energy(labels, dtype=torch.float32, weights=weights), solvers.get("l2fw"), None, 3)
    if labels <= most:
        assert isinstance(found, Plan)
    else:
        assert f"{labels} labels with gradients; the engine takes up to {most}" in str(found)


def test_steps_without_native_gradients():
    E = energy()
    E.unary.requires_grad_()
    assert "for steps to a softmax or a projection only" in sentence(E, "pgd")
    after = (Bilateral(6.0, 0.3, normalization="after"),)
    E = energy(kernels=after)
    assert isinstance(plan(E, solvers.get("l2fw"), None, 3), Plan)
    E.unary.requires_grad_()
    assert "not symmetric" in sentence(E)


def test_forbidden_labels_and_updates_without_the_unary():
    E = energy()
    E.unary[0, 1] = torch.inf
    assert isinstance(plan(E, solvers.get("l2fw"), None, 3), Plan)
    assert "would allow forbidden labels" in sentence(E, "admm")


def test_no_steps():
    assert "no steps" in sentence(energy(), num_steps=0)


def test_the_plan_says_which_kernels_run():
    found = fwcrf.minimize(energy(), "mf", num_steps=4)
    assert found.engine == "native engine: 4 steps in one call (lattice, separable)"


def test_all_that_the_layer_learns_takes_one_call():
    image, logits = 255 * torch.rand(3, 8, 9), torch.randn(3, 8, 9)
    for learnable in (("bandwidths",), LEARNABLE):
        crf = fwcrf.DenseCRF(3, num_steps=4, learnable=learnable, skip=0.5)
        assert "native engine: 4 steps in one call" in str(
            plan(crf.energy(image, logits), crf._solver(), None, 4)
        )


CASES = {
    "default": {},
    "mean field": {"solver": "mf"},
    "line search": {"solver": solvers.get("l2fw", step=stepsizes.LineSearch())},
    "annealed": {"solver": "anneal-fw"},
    "a matrix": {"compatibility": 1 - torch.eye(4)},
    "an exact kernel": {"kernels": [Bilateral(5, 20, method="exact")]},
    "a lattice of positions": {"kernels": [Spatial(3, method="lattice")]},
    "features": {"kernels": [Gaussian(precision=0.001)]},
    "no steps": {"num_steps": 0},
    "another regularizer": {"solver": FrankWolfe(SquaredL2(torch.tensor(1.0)))},
    "projected gradients": {"solver": "pgd"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_forecast_is_what_happens(options, caplog):
    """``refine`` estimates its memory before the run by the rules that decide in the run."""
    image = np.random.default_rng(0).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    p = np.random.default_rng(1).dirichlet(np.ones(4), (9, 11)).astype(np.float32)
    with caplog.at_level(logging.INFO, logger="fwcrf"):
        fwcrf.refine(image, p, **options)
    said = (record.getMessage() for record in caplog.records)
    (message,) = [text for text in said if "pixels changed" not in text]
    solver = options.get("solver", "l2fw")
    arrays = arrays_per_label(
        solvers.get(solver) if isinstance(solver, str) else solver,
        options.get("num_steps", 10),
        [kernel.image_method for kernel in options.get("kernels", (Spatial(), Bilateral()))],
        options.get("compatibility", 1.0),
        4,
        torch.float32,
        torch.device("cpu"),
    )
    assert (arrays == NATIVE_ARRAYS) == message.startswith("native"), message


@pytest.mark.parametrize("wide", [True, False])
def test_the_forecast_of_a_long_image_is_what_happens(wide, caplog, monkeypatch):
    """A kernel that reaches over all of 9000 pixels has larger bands than the engine takes."""
    forecasts = []

    def forecast(*args):
        forecasts.append(arrays_per_label(*args))
        return forecasts[-1]

    monkeypatch.setattr(refinement, "arrays_per_label", forecast)
    p = np.full((1, 9000, 2), 0.5, np.float32)
    kernels = [Spatial((3.0, 1e4 if wide else 80.0))]
    with caplog.at_level(logging.INFO, logger="fwcrf"):
        image = np.zeros((1, 9000, 3), np.uint8)
        fwcrf.refine(image, p, kernels=kernels, num_steps=1, memory=refinement.MEMORY)
    said = (record.getMessage() for record in caplog.records)
    (message,) = [text for text in said if "pixels changed" not in text]
    assert message.startswith("generic path: the spatial kernel is too wide" if wide else "native")
    assert forecasts == [GENERIC_ARRAYS if wide else NATIVE_ARRAYS]


def test_updates_are_known_without_an_energy():
    updates = as_updates(solvers.get("l2fw", weight=0.5, step=[1.0, 0.5]), 3)
    assert [(u.map, u.scale, u.step) for u in updates] == [
        (Map.PROJECT, -2.0, 1.0),
        (Map.PROJECT, -2.0, 0.5),
        (Map.PROJECT, -2.0, 0.5),
    ]

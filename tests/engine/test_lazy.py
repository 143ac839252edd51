"""Lazy steps, which read the pixels that a change can reach, end where whole steps do."""

import pytest
import torch
from helpers import DTYPES, covering, normal, uniform

import fwcrf
from fwcrf import Energy, solvers
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.pairwise import of_image
from fwcrf.solvers.plan import as_updates

SOLVERS = {
    "l2fw": solvers.get("l2fw"),
    "l2fw, sharp": solvers.get("l2fw", weight=0.1),
    "l2fw, half steps": solvers.get("l2fw", step=0.5),
    "fw": solvers.get("fw", step=1.0),
    "fw, falling": solvers.get("fw"),
    "pgd": solvers.get("pgd"),
    "mf": solvers.get("mf"),
}
SHAPES = {"line": (900,), "image": (37, 41), "wide": (4, 300), "volume": (9, 10, 11)}
KERNELS = {
    "both": lambda: [Bilateral(12.0, 1.0), Spatial(3.0)],
    "lattice": lambda: [Bilateral(12.0, 1.0)],
    "grid": lambda: [Spatial(3.0)],
    "fine": lambda: [Bilateral(9.0, 0.7), Spatial(0.8)],
}
# In units of rounding, for projections; softmax has a tolerance of its own.
ATOL = {torch.float32: 3e-5, torch.float64: 1e-10}
TOLERANCE = 1e-5


def energy(
    labels, shape=(37, 41), dtype=torch.float32, *, kernels=KERNELS["both"], batch=(), spread=3.0, smooth=True
):
    picture = uniform(*batch, 3, *shape, dtype=dtype)
    unary = spread * normal(*batch, *shape, labels, dtype=dtype, seed=3)
    if smooth:  # neighbours that agree, so that most pixels settle
        for axis in range(len(batch), len(batch) + len(shape)):
            for _ in range(3):
                unary = (unary + unary.roll(1, axis) + unary.roll(-1, axis)) / 1.7
    P = of_image(kernels(), picture, labels, spatial_dims=len(shape))
    return Energy(P, unary.flatten(len(batch), -2).contiguous())


def lazily(E, solver, num_steps, x0=None, tolerance=None):
    """The last point, and the share of pixels that each step read."""
    reads = []
    updates = as_updates(solver, num_steps)
    x = E.pairwise.engine().run(x0, E.unary, updates, reads=reads, tolerance=tolerance)
    pixels = E.unary[..., 0].numel()
    return x, [count / pixels for count in reads]


def wholly(E, solver, num_steps, x0=None):
    """The last point when every step is a call of its own."""
    x = torch.softmax(-E.unary, -1) if x0 is None else x0
    model = E.pairwise.engine()
    for update in as_updates(solver, num_steps):
        x = model.run(x, E.unary, [update])
    return x


@covering(
    solver=SOLVERS, shape=SHAPES, kernels=KERNELS, labels=[3, 5, 9, 20, 40], dtype=DTYPES, batch=[(), (2,)],
    threads=[1, 2],
)  # fmt: skip
def test_lazy_steps_end_where_whole_steps_do(
    solver, shape, kernels, labels, dtype, batch, threads, monkeypatch
):
    if labels == 40 and dtype == torch.float64:
        labels = 30
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    E = energy(labels, shape, dtype, kernels=kernels, batch=batch)
    softmax = solver is SOLVERS["mf"]
    for num_steps in (4, 9, 30):
        found, _ = lazily(E, solver, num_steps, tolerance=TOLERANCE if softmax else None)
        atol = 3 * TOLERANCE if softmax else ATOL[dtype]
        torch.testing.assert_close(found, wholly(E, solver, num_steps), rtol=0, atol=atol)


@pytest.mark.parametrize("solver", ["l2fw", "l2fw, sharp", "fw", "pgd", "mf"])
def test_steps_read_few_pixels_and_then_none(solver):
    E = energy(6, (60, 70), spread=2.0)
    _, shares = lazily(E, SOLVERS[solver], 60)
    assert shares[0] == 1 and sum(shares) < 15
    found = fwcrf.minimize(E, SOLVERS[solver], num_steps=60)
    some = [share for share in shares if 0 < share < 1]
    told = f", {len(some)} of them lazy, of {sum(some) / len(some):.1%} of the pixels" if some else ""
    rest = f"; nothing changed before the last {shares.count(0)}" if shares.count(0) else ""
    assert found.engine == f"native engine: 60 steps in one call (lattice, separable){told}{rest}"


@pytest.mark.parametrize("labels", [3, 20])
def test_soft_scores_take_whole_steps(labels):
    """Every pixel changes in every step."""
    E = energy(labels, (60, 70), spread=0.05, smooth=False)
    _, shares = lazily(E, solvers.get("l2fw", weight=3.0), 6)
    assert shares == [1.0] * 6


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("solver", ["l2fw, sharp", "fw"])
def test_everything_flips_in_one_late_step(solver, labels, threads, monkeypatch):
    """Groups of pixels that follow each other, then all: each waits until enough pixels have flipped."""
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    height, width, groups, each = 40, 50, 5, 0.03
    n = height * width
    picture = torch.full((3, height, width), 0.5)
    P = of_image([Bilateral(500.0, 10.0)], picture, labels, weights=(8.0,))
    # By lines, because the neighbours of a pixel that changes are read too.
    lines = torch.randperm(height, generator=torch.Generator().manual_seed(0))
    order = (lines[:, None] * width + torch.arange(width)).flatten()
    first = int(0.1 * n)
    unary = torch.zeros(n, labels)
    unary[:, 2:] = 9.0
    unary[order[:first], 1] = -20.0
    # The messages that a label gets when `count` pixels have it, at the pixels that flip next.
    have = torch.zeros(n, labels)
    flipped, begin = first, first
    for group in range(groups + 1):
        end = n if group == groups else begin + int(each * n)
        have.zero_()
        have[order[:flipped], 1] = 1.0
        have[order[flipped:], 0] = 1.0
        now = P(have)
        have[order[flipped - int(each * n / 2) : flipped], 1] = 0.0
        have[order[flipped - int(each * n / 2) : flipped], 0] = 1.0
        before = P(have)
        # Label 1 wins at these pixels for the first time when half of the last group has flipped.
        lead = ((now + before) / 2)[:, 1] - ((now + before) / 2)[:, 0]
        members = order[begin:end]
        unary[members, 0] = lead[members]
        flipped = begin = end
    E = Energy(P, unary)
    model, step = E.pairwise.engine(), SOLVERS[solver]
    x = torch.zeros(n, labels)
    x[order[:first], 1] = 1.0
    x[order[first:], 0] = 1.0
    start, counts = x, []
    for update in as_updates(step, 9):
        y = model.run(x, E.unary, [update])
        counts.append(int(((y - x).abs().amax(-1) > 0.5).sum()))
        x = y
    late = max(range(9), key=counts.__getitem__)
    assert late >= 4 and counts[late] > 0.7 * n, counts
    found, shares = lazily(E, step, 9, start)
    assert min(shares[1:late]) < 0.3, shares
    torch.testing.assert_close(found, x, rtol=0, atol=1e-5)


def test_a_tolerance_bounds_the_error_of_mean_field():
    E = energy(6, (60, 70), spread=6.0)
    expected = wholly(E, SOLVERS["mf"], 12)
    errors, read = [], []
    for tolerance in (1e-3, 1e-4, 1e-5, 0.0):
        x, shares = lazily(E, SOLVERS["mf"], 12, tolerance=tolerance)
        errors.append(float((x - expected).abs().max()))
        read.append(sum(shares))
    assert errors[0] < 3e-3 and errors[1] < 3e-4 and errors[2] < 3e-5 and errors[3] < 2e-6
    assert read == sorted(read) and read[0] < read[-1] == 12


@covering(
    solver=["l2fw", "l2fw, sharp", "l2fw, half steps", "fw", "mf"], labels=[2, 3, 9, 20], dtype=DTYPES,
    threads=[1, 2], batch=[(), (2,)],
)  # fmt: skip
def test_a_run_ends_when_no_pixel_would_move_by_the_tolerance(
    solver, labels, dtype, threads, batch, monkeypatch
):
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    E, tolerance = energy(labels, dtype=dtype, batch=batch, spread=2.0), 1e-3
    x, shares = lazily(E, SOLVERS[solver], 100, tolerance=tolerance)
    assert 0 < shares.count(0) < 98 and 0 not in shares[: -shares.count(0)]
    full = [u._replace(step=1.0) for u in as_updates(SOLVERS[solver], 1)]
    p = E.pairwise.engine().run(x, E.unary, full)
    assert float((p - x).abs().max()) <= 1.01 * tolerance


@pytest.mark.parametrize("solver", ["l2fw", "l2fw, sharp", "fw, falling", "pgd", "mf"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernels", KERNELS)
def test_two_labels_end_where_whole_steps_do(solver, kernels, threads, monkeypatch):
    monkeypatch.setattr("fwcrf.engine.model.threads_for", lambda work: threads)
    E = energy(2, (60, 70), kernels=KERNELS[kernels], spread=2.0)
    for num_steps in (3, 12, 90):
        x, shares = lazily(E, SOLVERS[solver], num_steps)
        expected = wholly(E, SOLVERS[solver], num_steps)
        torch.testing.assert_close(x, expected, rtol=0, atol=5e-5 if solver == "mf" else 5e-6)
    assert 0 < shares.count(0) < 87 or solver in ("pgd", "fw, falling")
    lazy = any(0 < share < 1 for share in shares)
    assert lazy == (kernels != "grid") or solver != "l2fw, sharp", shares


@pytest.mark.parametrize("model", ["many labels", "matrix"])
def test_runs_that_are_watched_from_outside_end_too(model):
    labels = 150 if model == "many labels" else 4
    E = energy(labels, spread=2.0)
    if model == "matrix":
        matrix = 1 - torch.eye(4) + 0.1 * torch.ones(4, 4)
        P = of_image(KERNELS["both"](), uniform(3, 37, 41, dtype=torch.float32), 4, compat=matrix)
        E = Energy(P, E.unary)
    x, shares = lazily(E, SOLVERS["l2fw"], 100, tolerance=1e-4)
    assert shares.count(0) >= 10 and len(shares) == 100
    torch.testing.assert_close(x, wholly(E, SOLVERS["l2fw"], 100), rtol=0, atol=1e-3)


def test_the_generic_path_ends_by_the_same_rule():
    E, steps = energy(4, spread=2.0), []
    solver = solvers.get("l2fw", step=fwcrf.stepsizes.LineSearch())
    found = fwcrf.minimize(E, solver, num_steps=200, least_change=1e-3, callback=lambda k, x: steps.append(x))
    assert found.engine.startswith("generic path") and len(steps) < 150
    p = solver.regularizer.argmin(E.grad(found.probabilities))
    assert float((p - found.probabilities).abs().max()) < 0.05


def test_refine_ends_natively(caplog):
    image, logits = uniform(40, 50, 3) * 255, 2 * normal(40, 50, 5)
    kernels = [Bilateral(12.0, 60.0), Spatial(3.0)]
    ends = {}
    with caplog.at_level("INFO", logger="fwcrf"):
        for tol in (None, 1e-3, 0.1):
            caplog.clear()
            _, x = fwcrf.refine(
                image.numpy(), logits.numpy(), from_logits=True, kernels=kernels, num_steps=200, tol=tol,
                return_probabilities=True,
            )  # fmt: skip
            (told,) = (m for m in caplog.messages if "engine" in m)
            assert told.startswith("native engine: 200 steps")
            _, _, rest = told.partition("; nothing changed before the last ")
            ends[tol] = torch.from_numpy(x), int(rest or 0)
    assert 150 < ends[1e-3][1] <= ends[0.1][1] < 199
    torch.testing.assert_close(ends[1e-3][0], ends[None][0], rtol=0, atol=1e-2)
    for bad in (-1e-3, 2.0, float("nan")):
        with pytest.raises(ValueError, match=r"tol=.*; expected 0 to 1"):
            fwcrf.refine(image.numpy(), logits.numpy(), from_logits=True, kernels=kernels, tol=bad)


def test_forbidden_labels_stay_at_zero():
    E = energy(5)
    E.unary[::3, 1] = torch.inf
    E.unary[::7, :4] = torch.inf
    for solver in ("l2fw", "fw", "pgd"):
        x, _ = lazily(E, SOLVERS[solver], 12)
        assert (x[::3, 1] == 0).all() and (x[::7, 4] == 1).all()
        torch.testing.assert_close(x, wholly(E, SOLVERS[solver], 12), rtol=0, atol=3e-5)

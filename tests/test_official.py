"""The paper's code's classes beside its iteration written out: dense matrices in float64 numpy."""

import re
import sys
from pathlib import Path
from time import process_time

import numpy as np
import pytest
import torch

import fwcrf
from fwcrf import official as CRF
from fwcrf.apps.evaluation.boundary import borders, within

L, H, W = 4, 6, 7
SIZES = {"alpha": 5.0, "beta": 0.2, "gamma": 1.5}


def inputs(batch=1, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(batch, 3, H, W, generator=g, dtype=dtype)
    return image, 2 * torch.randn(batch, L, H, W, generator=g, dtype=dtype)


def dense_kernels(image):
    """D^-1 K of one image, spatial and bilateral, with the diagonal."""
    y, x = np.mgrid[:H, :W].reshape(2, -1).astype(float)
    place, colour = np.stack([y, x]), image.reshape(3, -1)
    found = []
    for f in (place / SIZES["gamma"], np.concatenate([place / SIZES["alpha"], colour / SIZES["beta"]])):
        K = np.exp(-0.5 * ((f[:, :, None] - f[:, None]) ** 2).sum(0))
        found.append(K / K.sum(1, keepdims=True))
    return found


def softmax(z):
    e = np.exp(z - z.max(0))
    return e / e.sum(0)


def project(v):
    """Rows of labels (first axis) onto the simplex, by sorting."""
    u = -np.sort(-v, axis=0)
    tau = (np.cumsum(u, 0) - 1) / np.arange(1, len(v) + 1)[:, None]
    size = (u > tau).sum(0)
    return np.maximum(v - tau[size - 1, np.arange(v.shape[1])], 0)


def reference(image, logits, matrices, params, iterations, mean_field=False, x0_weight=0.0):
    """The result of the paper's code for one image, labels first."""
    Ks, Kb = dense_kernels(image)
    C, Ws, Wb = matrices

    def P(x):
        return C @ (Ws @ (x @ Ks.T) + Wb @ (x @ Kb.T))

    z = logits.reshape(L, -1)
    x = start = softmax(z)
    if mean_field:
        for _ in range(iterations):
            q = z - P(x)
            x = softmax(q)
        return q if not x0_weight else np.log((1 - x0_weight) * x + x0_weight * start + 1e-9)
    for k in range(iterations):
        g = P(x) - z
        if params.regularizer is None:
            p = np.eye(L)[g.argmin(0)].T
        elif params.regularizer == "l2":
            p = project(-g / params.lambda_)
        else:
            p = softmax(-g / params.lambda_)
        d = p - x
        if params.scheme == "linesearch":
            a, b = (d * P(d)).sum(), (x * P(d)).sum() - (d * z).sum()
            step = (0.0 if a / 2 + b > 0 else 1.0) if a <= 0 else min(max(-b / a, 0.0), 1.0)
        else:
            step = 2 / (2 + k) if params.scheme == "standard" else params.stepsize
        x = x + step * d
    return np.log((1 - params.x0_weight) * x + params.x0_weight * start + 1e-9)


def matrices(crf):
    parts = crf.compatibility, crf.spatial_weight, crf.bilateral_weight
    return [m.weight.detach().double()[..., 0, 0].numpy() for m in parts]


def layer(params=None, init="potts", **settings):
    torch.manual_seed(1)
    settings = {"spatial_weight": 3.0, "bilateral_weight": 2.0, "compatibility": 1.5, **settings}
    return CRF.DenseGaussianCRF(classes=L, **SIZES, init=init, params=params, method="exact", **settings)


@pytest.mark.parametrize("init", ["potts", "potts-random", "random"])
@pytest.mark.parametrize(
    "settings",
    [
        {"scheme": "fixed", "regularizer": "l2"},
        {"scheme": "fixed", "regularizer": "l2", "lambda_": 0.4, "x0_weight": 0.5, "stepsize": 0.6},
        {"scheme": "fixed", "regularizer": "negentropy", "lambda_": 0.7},
        {"scheme": "standard", "regularizer": "l2"},
        {"scheme": "standard"},
        {"scheme": "learnable", "stepsize": 0.8, "regularizer": "negentropy"},
        {"scheme": "linesearch", "regularizer": "l2", "lambda_": 2.0},
        {},
    ],
    ids=str,
)
def test_frank_wolfe_is_that_of_the_papers_code(settings, init):
    params = CRF.FrankWolfeParams(**settings)
    crf = layer(params, init, solver="fw", iterations=5)
    image, logits = inputs()
    expected = reference(image[0].numpy(), logits[0].numpy(), matrices(crf), params, 5)
    for context in (
        torch.no_grad,
        torch.enable_grad,
    ):  # Potts terms if nothing is learned, matrices otherwise
        with context():
            found = crf(image, logits)
        assert found.shape == logits.shape
        # Steps and lambda are float32 parameters: log amplifies their rounding where x is about 1e-9.
        np.testing.assert_allclose(
            found[0].detach().reshape(L, -1).exp(), np.exp(expected), rtol=0, atol=1e-7
        )
        if init == "potts":
            np.testing.assert_allclose(found[0].detach().reshape(L, -1), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("x0_weight", [0.0, 0.3])
@pytest.mark.parametrize("iterations", [1, 5])
def test_mean_field_returns_logits_before_the_softmax(iterations, x0_weight):
    crf = layer(iterations=iterations, x0_weight=x0_weight)
    image, logits = inputs()
    expected = reference(
        image[0].numpy(), logits[0].numpy(), matrices(crf), None, iterations, True, x0_weight
    )
    found = crf(image, logits)
    np.testing.assert_allclose(found[0].detach().reshape(L, -1), expected, rtol=0, atol=1e-7)
    with torch.no_grad():
        p = layer(iterations=iterations, x0_weight=x0_weight, output_logits=False)(image, logits)
    np.testing.assert_allclose(p, found.detach().softmax(1), rtol=0, atol=1e-7)


def test_images_of_a_batch_are_independent():
    params = CRF.FrankWolfeParams(regularizer="l2")
    crf = layer(params, "potts-random", solver="fw")
    image, logits = inputs(2)
    with torch.no_grad():
        both = crf(image, logits)
        each = [crf(image[i : i + 1], logits[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(both, torch.cat(each))


def test_energies_are_those_of_the_iterates():
    params = CRF.FrankWolfeParams(scheme="fixed", regularizer="l2")
    crf = layer(params, "potts-random", solver="fw", iterations=3)
    image, logits = inputs()
    with torch.no_grad():
        _, energies, discrete = crf(image, logits, return_energy=True)
    Ks, Kb = dense_kernels(image[0].numpy())
    C, Ws, Wb = matrices(crf)
    z = logits[0].numpy().reshape(L, -1)
    for k in range(4):
        x = np.exp(reference(image[0].numpy(), logits[0].numpy(), (C, Ws, Wb), params, k)) - 1e-9
        for y, found in ((x, energies), (np.eye(L)[x.argmax(0)].T, discrete)):
            value = (y * (0.5 * C @ (Ws @ y @ Ks.T + Wb @ y @ Kb.T) - z)).sum()
            assert float(found[k]) == pytest.approx(value, rel=1e-5)


def test_the_readme_runs_and_trains():
    """The README's layer behind a network; 1323 numbers for 21 classes."""
    params = CRF.FrankWolfeParams(
        scheme="fixed", stepsize=1.0, regularizer="l2", lambda_=1.0, lambda_learnable=False, x0_weight=0.5,
        x0_weight_learnable=False,
    )  # fmt: skip
    crf = CRF.DenseGaussianCRF(
        classes=21, alpha=160, beta=0.05, gamma=3.0, spatial_weight=1.0, bilateral_weight=1.0,
        compatibility=1.0, init="potts", solver="fw", iterations=5, params=params,
    )  # fmt: skip
    assert sum(p.numel() for p in crf.parameters()) == 1323
    torch.manual_seed(0)
    cnn = torch.nn.Conv2d(3, 21, 1)
    x = torch.rand(2, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    target = torch.zeros(2, 12, 10, dtype=torch.long)
    torch.nn.functional.nll_loss(crf(x, cnn(x)), target).backward()
    for p in (*crf.parameters(), *cnn.parameters()):
        assert p.grad is not None and torch.isfinite(p.grad).all()
    # By x0_weight: at a vertex of the simplex, the projection itself has no slope.
    assert cnn.weight.grad.abs().max() > 0


def test_gradients_are_those_of_difference_quotients():
    params = CRF.FrankWolfeParams(
        scheme="learnable", stepsize=0.7, regularizer="negentropy", lambda_=0.8, lambda_learnable=True,
        x0_weight=0.3, x0_weight_learnable=True,
    )  # fmt: skip
    crf = layer(params, "potts-random", solver="fw", iterations=3).double()
    matrices = {"spatial_weight.weight", "bilateral_weight.weight", "compatibility.weight"}
    names = {name for name, _ in crf.named_parameters()}
    assert names == matrices | {"fw_lambda", "fw_x0_weight", "alphas"}
    image, logits = inputs()
    loss = lambda: (crf(image, logits) * torch.linspace(0, 1, L, dtype=torch.float64)[:, None, None]).sum()  # noqa: E731
    found = torch.autograd.grad(loss(), tuple(crf.parameters()))
    for p, g in zip(crf.parameters(), found, strict=True):
        with torch.no_grad():
            at = p.view(-1)[0:1]
            at += 1e-6
            high = loss()
            at -= 2e-6
            low = loss()
            at += 1e-6
        assert float(g.reshape(-1)[0]) == pytest.approx(float(high - low) / 2e-6, rel=1e-4, abs=1e-6)


def test_a_checkpoint_of_the_papers_code_loads():
    crf = layer()
    state = {
        f"{n}.weight": torch.rand(L, L, 1, 1) for n in ("spatial_weight", "bilateral_weight", "compatibility")
    }
    crf.load_state_dict(state)
    image, logits = inputs()
    expected = reference(image[0].numpy(), logits[0].numpy(), matrices(crf), None, 5, True)
    np.testing.assert_allclose(crf(image, logits)[0].detach().reshape(L, -1), expected, atol=1e-7)


def test_a_mask_is_refined_in_a_band_around_its_border():
    """INSID3's refinement in our words: certain inside and outside, undecided in a band, two classes."""
    params = CRF.FrankWolfeParams(
        scheme="fixed", stepsize=1.0, regularizer="l2", lambda_=1.0, lambda_learnable=False, x0_weight=0.0,
        x0_weight_learnable=False,
    )  # fmt: skip
    crf = CRF.DenseGaussianCRF(
        classes=2, alpha=12.0 / 8, beta=0.03, gamma=4.0 / 8, spatial_weight=3.0, bilateral_weight=20.0,
        compatibility=1.0, init="potts", solver="fw", iterations=10, params=params,
    ).to("cpu")  # fmt: skip
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(64.0), indexing="ij")
    truth = (x - 30) ** 2 + (y - 24) ** 2 < 14**2
    image = torch.where(truth, 0.8, 0.3).expand(1, 3, -1, -1).contiguous()
    distance = ((x - 32) ** 2 + (y - 24) ** 2).sqrt()  # a mask that is off by two pixels
    inside, outside = distance < 9, distance > 19
    p = torch.where(inside, 0.95, torch.where(outside, 0.05, 0.5))
    logit = torch.logit(p)
    with torch.no_grad():
        found = crf(image, torch.stack([-logit, logit])[None])
    refined = found[0, 1] > found[0, 0]
    band = ~inside & ~outside
    assert (
        (refined[band] == truth[band]).float().mean()
        > 0.97
        > ((distance < 14)[band] == truth[band]).float().mean()
    )


def test_the_name_of_the_papers_code_is_installed_once(monkeypatch):
    monkeypatch.delitem(sys.modules, "CRF", raising=False)
    try:
        CRF.install()
        CRF.install()
        import CRF as theirs

        assert theirs is CRF
        monkeypatch.setitem(sys.modules, "CRF", torch)
        with pytest.raises(RuntimeError, match="before the first import"):
            CRF.install()
    finally:
        sys.modules.pop("CRF", None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layer(solver="admm"), ValueError, r"DenseCRF\(solver='admm'\)"),
        (lambda: layer(solver="sgd"), ValueError, "'mf', 'fw'"),
        (lambda: layer(init="zeros"), ValueError, "'potts-random'"),
        (lambda: layer(ergodic=True), ValueError, "expected False"),
        (lambda: layer(CRF.ADMMParams(), solver="fw"), TypeError, "FrankWolfeParams"),
        (lambda: CRF.FrankWolfeParams(scheme="adaptive"), ValueError, "'linesearch'"),
        (lambda: CRF.FrankWolfeParams(regularizer="l1"), ValueError, "'negentropy'"),
        (lambda: layer()(inputs()[0][0], inputs()[1]), ValueError, "batch, channels"),
        (lambda: layer()(inputs()[0], inputs()[1][:, :3]), ValueError, "classes=4"),
    ],
)
def test_what_is_not_implemented_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


PAGE = Path(__file__).parent.parent / "docs" / "from-official-code.md"
COLOURED = ("astronaut", "chelsea", "coffee", "rocket")
BANDS = {"alpha": 80.0, "beta": 13 / 255, "gamma": 3.0, "spatial_weight": 1.0, "bilateral_weight": 1.0}


def two_figures(pattern):
    """The two numbers of the page in the place of each ``#`` of the pattern."""
    (found,) = re.findall(pattern.replace("#", r"([\d.]+)").replace(" ", r"\s+"), PAGE.read_text())
    return float(found[0]), float(found[1])


def native_layer(of_the_paper, init="potts"):
    """The layer of the page's table, with and without the two settings of the paper's code."""
    settings = {"normalization": "after"} if of_the_paper else {}
    kernels = [fwcrf.kernels.Spatial(3, **settings), fwcrf.kernels.Bilateral(80, 13 / 255, **settings)]
    return fwcrf.DenseCRF(
        21, kernels, solver="l2fw", num_steps=10, self_edges=of_the_paper, init=init, compatibility=1.0
    )


@pytest.fixture(scope="module")
def photographs():
    examples = pytest.importorskip("fwcrf.examples")
    pytest.importorskip("skimage")
    found = {}
    for name in COLOURED:
        image, logits, _ = examples.load(name)
        tensors = torch.from_numpy(image).float().div(255), torch.from_numpy(logits)
        found[name] = [t.permute(2, 0, 1)[None].contiguous() for t in tensors]
    return found


def test_the_page_says_how_many_labels_the_two_settings_change(photographs):
    params = CRF.FrankWolfeParams(scheme="fixed", stepsize=1.0, regularizer="l2", lambda_=1.0)
    official = CRF.DenseGaussianCRF(
        classes=21, **BANDS, compatibility=1.0, init="potts", solver="fw", iterations=10, params=params
    )
    shares = []
    for image, logits in photographs.values():
        with torch.no_grad():
            theirs = official(image, logits).argmax(1)
        same = native_layer(True).solve(image, logits).labels == theirs
        assert same.float().mean() >= 0.99999  # measured: all
        band = within(borders(theirs), 5)
        shares.append(float((native_layer(False).solve(image, logits).labels == theirs)[band].float().mean()))
    low, high = two_figures("without the two settings # to # %")
    assert 100 * min(shares) == pytest.approx(low, abs=0.3)
    assert 100 * max(shares) == pytest.approx(high, abs=0.3)


def test_the_page_says_how_long_potts_takes(photographs, num_threads):
    num_threads(1)
    low, high = two_figures("Potts takes # to # of the processor time")
    for image, logits in (photographs["chelsea"], photographs["astronaut"]):
        taken = {}
        for init in ("potts", "negative-identity"):
            crf, times = native_layer(True, init), []
            for _ in range(3):
                start = process_time()
                labels = crf.solve(image, logits).labels
                times.append(process_time() - start)
            taken[init] = min(times), labels
        (potts, one), (identity, other) = taken["potts"], taken["negative-identity"]
        assert (one == other).float().mean() >= 0.99999
        assert 0.6 * low <= potts / identity <= 1.5 * high  # other programs disturb the processor's clock

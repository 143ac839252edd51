"""What there is under pydensecrf's names, and how its results behave in numpy's hands."""

import copy
import inspect
import pickle
import subprocess
import sys

import dropin_cases as cases
import numpy as np
import pytest
import torch

import fwcrf
from fwcrf import _core
from fwcrf.pydensecrf import densecrf as dcrf
from fwcrf.pydensecrf import eigen, utils

SURFACE = {
    dcrf: """CONST_KERNEL ConstUnary DIAG_KERNEL DenseCRF DenseCRF2D FULL_KERNEL KernelType LogisticUnary
        NORMALIZE_AFTER NORMALIZE_BEFORE NORMALIZE_SYMMETRIC NO_NORMALIZATION NormalizationType Unary""",
    dcrf.DenseCRF: """addPairwiseEnergy inference klDivergence setUnary setUnaryEnergy startInference
        stepInference""",
    dcrf.DenseCRF2D: """addPairwiseBilateral addPairwiseEnergy addPairwiseGaussian inference klDivergence
        setUnary setUnaryEnergy startInference stepInference""",
    eigen: "MatrixXf VectorXf matrixXf vectorXf",
    utils: """compute_unary create_pairwise_bilateral create_pairwise_gaussian softmax_to_unary
        unary_from_labels unary_from_softmax""",
}


def model(kind=dcrf.DenseCRF2D):
    """A small problem with two kernels."""
    crf = kind(8, 6, 3)
    crf.setUnaryEnergy(utils.unary_from_softmax(cases.scores(6, 8, 3)))
    crf.addPairwiseGaussian(sxy=2, compat=2)
    crf.addPairwiseBilateral(sxy=5, srgb=30, rgbim=cases.picture(6, 8), compat=3)
    return crf


@pytest.mark.parametrize("where", SURFACE, ids=lambda where: where.__name__)
def test_every_name_is_there(where):
    missing = [name for name in SURFACE[where].split() if not hasattr(where, name)]
    assert not missing


@pytest.mark.parametrize("name", ["densecrf", "eigen", "utils"])
def test_no_name_of_the_installed_one_is_missing(name):
    theirs = pytest.importorskip(f"pydensecrf.{name}", reason="make .venv/.peers installs it")
    ours = sys.modules[f"fwcrf.pydensecrf.{name}"]
    own = [n for n, v in vars(theirs).items() if not n.startswith("__") and not inspect.ismodule(v)]
    imported = {"Number", "np", "warning"}
    assert {n for n in own if n not in imported} <= set(dir(ours))
    for n in own:
        if inspect.isclass(getattr(theirs, n)) and n not in imported:
            methods = {m for m in vars(getattr(theirs, n)) if not m.startswith("_")}
            assert methods <= set(dir(getattr(ours, n))), n


def test_constants_are_integers_of_the_same_value():
    values = [dcrf.CONST_KERNEL, dcrf.DIAG_KERNEL, dcrf.FULL_KERNEL]
    assert values == [0, 1, 2] == list(dcrf.KernelType)
    values = [getattr(dcrf, name) for name in cases.NORMALIZATIONS]
    assert values == [0, 1, 2, 3] == list(dcrf.NormalizationType)
    assert dcrf.NormalizationType.NORMALIZE_AFTER is dcrf.NORMALIZE_AFTER


def test_the_answer_is_a_matrix_for_numpy():
    Q = model().inference(3)
    values = np.array(Q)
    assert isinstance(Q, eigen.MatrixXf) and not isinstance(Q, np.ndarray)
    assert values.shape == (3, 48) and values.dtype == np.float32 and values.flags.f_contiguous
    np.testing.assert_array_equal(np.argmax(Q, axis=0), values.argmax(0))
    assert type(np.argmax(Q, axis=0)) is np.ndarray
    np.testing.assert_array_equal(np.ones((3, 48)) + Q, np.ones((3, 48)) + values)
    np.testing.assert_array_equal(np.reshape(Q, (3, 6, 8)), values.reshape(3, 6, 8))
    assert np.array(Q, dtype=np.float64).dtype == np.float64
    assert np.sum(Q) == pytest.approx(48)
    assert Q == Q and hash(Q) and "(3, 48)" in repr(Q)


def test_the_buffer_of_an_answer_is_its_memory_column_by_column():
    Q = model().inference(1)
    view = memoryview(Q)
    assert (view.shape, view.strides, view.format, view.readonly) == ((3, 48), (4, 12), "f", False)
    np.testing.assert_array_equal(np.asarray(view), np.array(Q))
    expected = np.array(Q)
    del Q
    np.testing.assert_array_equal(np.asarray(view), expected)  # the memory outlives the matrix
    assert memoryview(eigen.vectorXf(np.zeros(3, np.float32))).shape == (3,)
    assert memoryview(eigen.MatrixXf()).shape == (0, 0)


def test_an_object_without_values_has_no_buffer():
    with pytest.raises(BufferError, match="no values"):
        memoryview(_core.Exporter())


def test_sizes_and_steps_may_be_arrays_without_axes():
    crf = dcrf.DenseCRF2D(np.array(8), torch.tensor(6), np.array(3.9))
    assert np.array(crf.inference(np.array(2))).shape == (3, 48)


@pytest.mark.parametrize("sxy", [np.inf, -np.inf, (3, np.inf)])
def test_an_infinite_bandwidth_is_that_of_a_feature_without_influence(sxy):
    crf, same = (dcrf.DenseCRF2D(8, 6, 3) for _ in range(2))
    x = np.tile(np.arange(8, dtype=np.float32) / (3 if isinstance(sxy, tuple) else np.inf), 6)
    for one in (crf, same):
        one.setUnaryEnergy(utils.unary_from_softmax(cases.scores(6, 8, 3)))
    crf.addPairwiseGaussian(sxy, 3)
    same.addPairwiseEnergy(np.stack([x, np.zeros_like(x)]), 3)
    np.testing.assert_array_equal(np.array(crf.inference(3)), np.array(same.inference(3)))


def test_tensors_are_labels_probabilities_and_images_as_well():
    labels = np.array([[0, 1, 2], [2, 1, 0]])
    for tensor in (torch.from_numpy(labels), torch.from_numpy(labels.astype(np.uint8))):
        for unsure in (True, False):
            np.testing.assert_array_equal(
                utils.unary_from_labels(tensor, 3, 0.7, zero_unsure=unsure),
                utils.unary_from_labels(labels, 3, 0.7, zero_unsure=unsure),
            )
    p, image = cases.scores(4, 5, 3), cases.picture(4, 5)
    np.testing.assert_array_equal(utils.unary_from_softmax(torch.from_numpy(p)), utils.unary_from_softmax(p))
    found = utils.create_pairwise_bilateral((2, 3), 5, torch.from_numpy(image), chdim=2)
    np.testing.assert_array_equal(found, utils.create_pairwise_bilateral((2, 3), 5, image, chdim=2))


def test_the_array_of_an_answer_shares_its_memory_and_outlives_it():
    crf = model()
    Q = crf.inference(1)
    view = np.asarray(Q)
    view[:, 0] = (0, 1, 0)
    np.testing.assert_array_equal(np.array(Q)[:, 0], (0, 1, 0))
    before = view.copy()
    del Q, crf
    np.testing.assert_array_equal(view, before)


def test_two_answers_do_not_share_memory():
    crf = model()
    first = crf.inference(2)
    before = np.array(first)
    second = crf.inference(2)
    np.asarray(second)[:] = 0
    np.testing.assert_array_equal(np.array(first), before)
    np.testing.assert_array_equal(np.array(crf.inference(2)), before)


def test_steps_are_inference_in_pieces():
    crf = model()
    Q, first, second = crf.startInference()
    np.testing.assert_array_equal(np.array(Q), np.array(crf.inference(0)))
    view = np.asarray(Q)
    for k in range(1, 4):
        assert crf.stepInference(Q, first, second) is None
        np.testing.assert_allclose(view, np.array(crf.inference(k)), rtol=0, atol=1e-6)
    assert np.array(first).shape == (0, 0)


@pytest.mark.parametrize("labels, other", [(2, 0), (3, 0), (21, 0), (40, 0), (2, 2), (3, 1), (21, 2)])
@pytest.mark.parametrize("solver", ["mf", "l2fw", "fw"])
def test_steps_taken_at_once_end_where_single_ones_do(labels, other, solver):
    """With a number alone, and with a vector or a matrix beside it."""
    crf = dcrf.DenseCRF2D(31, 23, labels)
    random = np.random.default_rng(0)
    crf.setUnaryEnergy(random.gumbel(size=(labels, 23 * 31)).astype(np.float32))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    image = random.integers(0, 256, (23, 31, 3), dtype=np.uint8)
    crf.addPairwiseBilateral(sxy=10, srgb=40, rgbim=image, compat=-2, normalization=dcrf.NORMALIZE_BEFORE)
    if other:
        values = random.normal(size=(labels,) * other).astype(np.float32)
        crf.addPairwiseEnergy(cases.random_points(0, 23 * 31, 2, 2)[1], compat=values + values.T)
    E = crf.energy()
    assert fwcrf.minimize(E, solver, num_steps=4).engine.startswith("native")
    single = fwcrf.minimize(E, solver, num_steps=4, callback=lambda k, x: None).probabilities
    np.testing.assert_allclose(np.array(crf.inference(4, solver=solver)), single.T, rtol=0, atol=1e-5)


def test_a_step_starts_where_its_matrix_is():
    crf = model()
    start = eigen.matrixXf(np.ascontiguousarray(np.array(crf.inference(2))))
    crf.stepInference(start, eigen.MatrixXf(), eigen.MatrixXf())
    np.testing.assert_array_equal(np.array(start), np.array(crf.inference(3)))


def test_fewer_steps_than_none_are_none():
    crf = model()
    np.testing.assert_array_equal(np.array(crf.inference(-3)), np.array(crf.inference(0)))
    np.testing.assert_array_equal(np.array(crf.inference(2.9)), np.array(crf.inference(2)))


def test_a_model_without_energies_is_uniform_and_one_without_kernels_its_own_answer():
    crf = dcrf.DenseCRF(5, 4)
    np.testing.assert_array_equal(np.array(crf.inference(3)), np.full((4, 5), 0.25, np.float32))
    energies = np.random.default_rng(0).random((4, 5)).astype(np.float32)
    crf.setUnaryEnergy(energies)
    expected = np.exp(-energies) / np.exp(-energies).sum(0)
    np.testing.assert_allclose(np.array(crf.inference(3)), expected, rtol=1e-5)


def test_energies_are_copied_and_the_last_ones_count():
    energies = np.random.default_rng(0).random((3, 48)).astype(np.float32)
    crf = model()
    crf.setUnaryEnergy(energies)
    before = np.array(crf.inference(2))
    energies[:] = 0
    np.testing.assert_array_equal(np.array(crf.inference(2)), before)
    crf.setUnaryEnergy(energies)
    assert np.abs(np.array(crf.inference(2)) - before).max() > 0.01


def test_read_only_arrays_will_do():
    image, energies = cases.picture(6, 8), np.zeros((2, 48), np.float32)
    image.setflags(write=False)
    energies.setflags(write=False)
    crf = dcrf.DenseCRF2D(8, 6, 2)
    crf.setUnaryEnergy(energies)
    crf.addPairwiseBilateral(sxy=5, srgb=30, rgbim=image, compat=3)


def test_a_logistic_unary_is_linear_in_its_features():
    rng = np.random.default_rng(0)
    weights, features = (rng.normal(size=s).astype(np.float32) for s in ((3, 5), (5, 48)))
    crf, same, plain = (dcrf.DenseCRF(48, 3) for _ in range(3))
    crf.setUnary(dcrf.LogisticUnary(weights, features))
    same.setUnaryEnergy(weights, features)
    plain.setUnaryEnergy(weights @ features)
    np.testing.assert_array_equal(np.array(crf.inference(0)), np.array(plain.inference(0)))
    np.testing.assert_array_equal(np.array(same.inference(0)), np.array(plain.inference(0)))


def test_forbidden_labels_stay_forbidden():
    energies = np.random.default_rng(0).random((3, 48)).astype(np.float32)
    energies[1, ::2] = np.inf
    crf = model()
    crf.setUnaryEnergy(energies)
    Q = crf.inference(3)
    assert (np.array(Q)[1, ::2] == 0).all() and (np.array(Q)[1, 1::2] > 0).all()
    assert np.isfinite(crf.klDivergence(Q))


def test_the_divergence_counts_pairs_twice():
    crf = model()
    Q = crf.inference(3)
    x, E = torch.from_numpy(np.array(Q).T), crf.energy()
    entropy = -float((x * x.log()).sum())
    assert crf.klDivergence(Q) == pytest.approx(2 * float(E.value(x)) - float((x * E.unary).sum()) - entropy)


def test_the_energy_is_the_model():
    crf = dcrf.DenseCRF(4, 2)
    crf.addPairwiseEnergy(cases.random_points(0, 4, 2, 2)[1], compat=2.0)
    crf.addPairwiseEnergy(cases.random_points(1, 4, 2, 2)[1], compat=0.5)
    P = crf.energy().pairwise
    x = torch.rand(4, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(P(x).flatten(), P.to_dense() @ x.flatten())
    torch.testing.assert_close(P.absolute_row_sums(2).flatten(), P.to_dense().abs().sum(-1))


@pytest.mark.parametrize(
    "solver", ["mf", "fw", "l2fw", "efw", "anneal-fw", "convex-fw", "cmf2", "pgm", "admm"]
)
def test_any_solver_will_do(solver):
    crf = model()
    x = np.array(crf.inference(4, solver=solver))
    np.testing.assert_allclose(x.sum(0), 1, rtol=1e-4)
    expected = fwcrf.minimize(crf.energy(), solver, num_steps=4).probabilities
    np.testing.assert_array_equal(x, expected.numpy().T)


def test_mean_field_is_the_default_solver():
    crf = model()
    np.testing.assert_array_equal(np.array(crf.inference(4)), np.array(crf.inference(4, solver="mf")))
    tuned = crf.inference(4, solver=fwcrf.solvers.get("efw", weight=0.2))
    assert np.abs(np.array(tuned) - np.array(crf.inference(4))).max() > 0.01


def test_any_solver_will_do_without_kernels():
    crf = dcrf.DenseCRF(5, 4)
    crf.setUnaryEnergy(np.random.default_rng(0).random((4, 5)).astype(np.float32))
    for solver in ("fw", "convex-fw", "cmf1"):
        assert np.array(crf.inference(3, solver=solver)).shape == (4, 5)


def test_nothing_heavy_is_loaded_to_get_going():
    """torch's compiler and its computer algebra take longer to load than an image to refine."""
    code = """
import sys, numpy as np, fwcrf.pydensecrf.densecrf as dcrf
crf = dcrf.DenseCRF2D(4, 3, 2)
crf.setUnaryEnergy(np.zeros((2, 12), np.float32))
crf.addPairwiseGaussian(3, 3)
crf.addPairwiseGaussian(3, np.ones(2, np.float32))
crf.klDivergence(crf.inference(2))
assert not {"torch._dynamo", "sympy"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_threads_do_not_change_the_answer(num_threads):
    answers = []
    for count in (1, 2):
        num_threads(count)
        crf = dcrf.DenseCRF2D(120, 90, 3)
        crf.setUnaryEnergy(utils.unary_from_softmax(cases.scores(90, 120, 3)))
        crf.addPairwiseBilateral(sxy=20, srgb=13, rgbim=cases.picture(90, 120), compat=5)
        answers.append(np.array(crf.inference(3)))
    np.testing.assert_allclose(*answers, atol=1e-5)


def test_models_and_answers_can_be_copied_and_pickled():
    crf = model()
    Q = crf.inference(2)
    for twin in (pickle.loads(pickle.dumps(crf)), copy.deepcopy(crf)):
        np.testing.assert_array_equal(np.array(twin.inference(2)), np.array(Q))
    twin = copy.copy(crf)
    twin.addPairwiseGaussian(sxy=1, compat=5)
    twin.addPairwiseGaussian(sxy=1, compat=np.eye(twin._nlabels, dtype=np.float32))
    twin.inference(2)
    fresh = pickle.loads(pickle.dumps(crf))  # without what is kept from the first inference
    np.testing.assert_array_equal(np.array(fresh.inference(2)), np.array(Q))
    twin = pickle.loads(pickle.dumps(Q))
    np.testing.assert_array_equal(np.array(twin), np.array(Q))
    crf.stepInference(twin, eigen.MatrixXf(), eigen.MatrixXf())
    np.testing.assert_array_equal(np.array(twin), np.array(crf.inference(3)))


def test_a_subclass_need_not_call_its_base():
    class Named(dcrf.DenseCRF2D):
        def __init__(self, width, height, labels, name):
            self.name = name

    class Proper(dcrf.DenseCRF2D):
        def __init__(self, width, height, labels):
            super().__init__(width, height, labels)

    assert np.array(Named(3, 2, 2, "a").inference(1)).shape == (2, 6)
    np.testing.assert_array_equal(np.array(model(Proper).inference(2)), np.array(model().inference(2)))


def test_sizes_may_be_named_and_what_follows_is_ignored():
    assert np.array(dcrf.DenseCRF(nvar=4, nlabels=2).inference(0)).shape == (2, 4)
    assert np.array(dcrf.DenseCRF2D(w=3, h=2, nlabels=2).inference(0)).shape == (2, 6)
    assert np.array(dcrf.DenseCRF2D(3, 2, 2, "more", and_more=1).inference(0)).shape == (2, 6)


def test_vectors_and_matrices_are_copies():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    matrix, vector = eigen.matrixXf(values), eigen.vectorXf(values[0])
    expected = values.copy()
    values[:] = -1
    np.testing.assert_array_equal(np.array(matrix), expected)
    np.testing.assert_array_equal(np.array(vector), expected[0])
    assert np.array(eigen.MatrixXf(2, 3)).shape == (0, 0) and np.array(eigen.VectorXf()).shape == (0,)

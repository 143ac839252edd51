"""Arguments that cannot be meant, at every door: the exception has the argument, its value and a remedy."""

import numpy as np
import pytest
import torch
from refine.refine_scenes import photograph, probabilities

import fwcrf
from fwcrf.inputs.numbers import shown
from fwcrf.kernels import Bilateral, Exact, Gaussian, Spatial

IMAGE, P = photograph(6, 8), probabilities(6, 8)
TENSOR, LOGITS = torch.from_numpy(IMAGE).movedim(-1, 0).float(), torch.randn(3, 6, 8)
PLACES, SCORES = np.random.default_rng(0).random((30, 2)) * 9, probabilities(30)
FEATURES = torch.rand(9, 2)
ENERGY = fwcrf.Energy(fwcrf.pairwise.dense([Exact(torch.rand(5, 2))], 3), torch.rand(5, 3))
GRAPH = fwcrf.SparseMRF(torch.rand(5, 3), torch.tensor([[0, 1], [1, 2]]), 0.5)

NOT_NUMBERS = [None, "3", 1j, [], np.zeros(0), object()]
NOT_FINITE = [float("inf"), float("nan")]
NOT_WHOLE = [*NOT_NUMBERS, *NOT_FINITE, True, -5, 2.5, 10**30, np.array(0.5)]
NOT_POSITIVE = [*NOT_NUMBERS, *NOT_FINITE, True, -5, 0, np.array(0.0)]
NOT_REAL = [None, "3", 1j, object(), True, *NOT_FINITE, 10**400]
NOT_A_FUNCTION = [True, "print", 3, [], np.zeros(())]
NOT_KERNELS = ["bilateral", 3, True, [], [3], np.zeros(()), object()]

DOORS = {
    "refine num_steps": (lambda v: fwcrf.refine(IMAGE, P, num_steps=v), NOT_WHOLE),
    "points num_steps": (lambda v: fwcrf.refine_points(PLACES, None, SCORES, num_steps=v), NOT_WHOLE),
    "layer num_steps": (lambda v: fwcrf.DenseCRF(3, num_steps=v), NOT_WHOLE),
    "solve num_steps": (lambda v: fwcrf.DenseCRF(3).solve(TENSOR, LOGITS, num_steps=v), NOT_WHOLE[1:]),
    "minimize num_steps": (lambda v: fwcrf.minimize(ENERGY, "l2fw", num_steps=v), NOT_WHOLE),
    "graph num_steps": (lambda v: GRAPH.solve(num_steps=v), NOT_WHOLE[1:]),
    "graph restarts": (lambda v: GRAPH.solve(num_steps=1, restarts=v), NOT_WHOLE[1:]),
    "layer num_labels": (lambda v: fwcrf.DenseCRF(v), NOT_WHOLE),
    "layer spatial_dims": (lambda v: fwcrf.DenseCRF(3, spatial_dims=v), NOT_WHOLE),
    "refine num_labels": (lambda v: fwcrf.refine(IMAGE, P, num_labels=v), NOT_WHOLE[1:]),
    "refine spatial_dims": (lambda v: fwcrf.refine(IMAGE, P, spatial_dims=v), NOT_WHOLE[1:]),
    "refine channel_axis": (lambda v: fwcrf.refine(IMAGE, P, channel_axis=v), NOT_WHOLE[1:]),
    "refine tile": (lambda v: fwcrf.refine(IMAGE, P, tile=v, overlap=1), [*NOT_WHOLE[1:10], 0]),
    "refine overlap": (lambda v: fwcrf.refine(IMAGE, P, tile=4, overlap=v), NOT_WHOLE[1:10]),
    "refine memory": (lambda v: fwcrf.refine(IMAGE, P, memory=v), NOT_POSITIVE[1:]),
    "refine spacing": (lambda v: fwcrf.refine(IMAGE, P, spacing=v), NOT_POSITIVE[1:]),
    "refine from_labels": (lambda v: fwcrf.refine(IMAGE, P.argmax(-1), from_labels=v), [*NOT_NUMBERS[1:], 7]),
    "refine progress": (lambda v: fwcrf.refine(IMAGE, P, progress=v), NOT_A_FUNCTION),
    "minimize callback": (lambda v: fwcrf.minimize(ENERGY, "fw", num_steps=1, callback=v), NOT_A_FUNCTION),
    "minimize tol": (lambda v: fwcrf.minimize(ENERGY, "fw", num_steps=1, tol=v), NOT_POSITIVE[1:9]),
    "layer skip": (lambda v: fwcrf.DenseCRF(3, skip=v), NOT_POSITIVE[:9]),
    "layer noise": (lambda v: fwcrf.DenseCRF(3, noise=v), NOT_POSITIVE[:9]),
    "layer epsilon": (lambda v: fwcrf.DenseCRF(3, epsilon=v), NOT_POSITIVE),
    "refine weight": (lambda v: fwcrf.refine(IMAGE, P, kernels=[Spatial(3, weight=v)]), NOT_REAL),
    "layer weight": (lambda v: fwcrf.DenseCRF(3, [Spatial(3, weight=v)])(TENSOR, LOGITS), NOT_REAL),
    "refine compatibility": (lambda v: fwcrf.refine(IMAGE, P, compatibility=v), NOT_REAL),
    "layer compatibility": (lambda v: fwcrf.DenseCRF(3, compatibility=v), NOT_REAL),
    "refine xy": (lambda v: fwcrf.refine(IMAGE, P, kernels=[Spatial(v)]), NOT_POSITIVE),
    "refine color": (lambda v: fwcrf.refine(IMAGE, P, kernels=[Bilateral(5, v)]), NOT_POSITIVE),
    "operator xy": (lambda v: Bilateral(v, 13).operator(TENSOR), NOT_POSITIVE),
    "operator precision": (
        lambda v: Gaussian(precision=v).operator(torch.rand(9, 2)),
        [*NOT_REAL[1:], -1, 0],
    ),
    "refine kernels": (lambda v: fwcrf.refine(IMAGE, P, kernels=v), NOT_KERNELS),
    "layer kernels": (lambda v: fwcrf.DenseCRF(3, kernels=v), NOT_KERNELS),
    "loss kernels": (lambda v: fwcrf.losses.energy(TENSOR, LOGITS.softmax(0), kernels=v), NOT_KERNELS),
    "solver weight": (lambda v: fwcrf.solvers.get("l2fw", weight=v), NOT_POSITIVE),
    "solver step": (lambda v: fwcrf.solvers.get("l2fw", step=v), [None, 1j, True, -5, 2.5, *NOT_FINITE]),
    "solver rho": (lambda v: fwcrf.solvers.get("admm", rho=v), NOT_POSITIVE),
    "spatial xy": (lambda v: Spatial(v), [*NOT_NUMBERS[:3], *NOT_POSITIVE[5:]]),
    "bilateral xy": (lambda v: Bilateral(v, 3), [*NOT_NUMBERS[:3], *NOT_POSITIVE[5:]]),
    "bilateral color": (lambda v: Bilateral(3, v), [*NOT_NUMBERS[:3], *NOT_POSITIVE[5:]]),
    "bilateral weight": (lambda v: Bilateral(3, 3, weight=v), [None, "3", 1j, object(), True]),
    "gaussian weight": (lambda v: Gaussian(weight=v), [None, "3", 1j, object(), torch.tensor([1j, 1, 2])]),
    "layer learnable": (lambda v: fwcrf.DenseCRF(3, learnable=v), [None, 3, True, object()]),
    "layer gradient": (lambda v: fwcrf.DenseCRF(3, gradient=v), [None, 3, True, object()]),
}
# These take several numbers: too few of them are a wrong value.
SEVERAL = (
    "refine tile",
    "refine overlap",
    "refine spacing",
    "refine xy",
    "refine color",
    "operator xy",
    "solver rho",
)
# These are read as arrays, in which a truth value or an integer of 400 digits is of a wrong type.
ARRAYS = ("weight", "compatibility", "precision", "rho")


def refusal(door, value):
    """The one exception that is raised: TypeError unless the value is a number, or numbers."""
    name = door.split()[1]
    if name in ("progress", "callback", "learnable", "gradient"):
        return TypeError
    if name == "kernels":
        return ValueError if isinstance(value, list) and not value else TypeError
    is_huge = isinstance(value, int) and value == 10**400
    if door != "solver weight" and name in ARRAYS and (value is True or is_huge):
        return TypeError
    if np.size(value) == 0:
        return ValueError if door in SEVERAL else TypeError
    return ValueError if isinstance(value, int | float | np.ndarray) else TypeError


CASES = [(door, i) for door, (_, values) in DOORS.items() for i in range(len(values))]


@pytest.mark.parametrize(("door", "number"), CASES)
def test_a_bad_value_is_refused_by_name(door, number):
    call, values = DOORS[door]
    value, name = values[number], door.split()[1]
    with pytest.raises((TypeError, ValueError)) as caught:
        call(value)
    assert caught.type is refusal(door, value), caught.value
    message = str(caught.value)
    assert name in message and "expected" in message, message
    known = {
        shown(value),
        repr(value.item()) if isinstance(value, np.ndarray) and value.size else shown(value),
    }
    known |= {"shape (0,)", "has 0 entries"} if np.size(value) == 0 else set()
    assert any(text in message for text in known), message


def test_whole_floats_and_numbers_of_arrays_are_numbers():
    expected = fwcrf.refine(IMAGE, P, num_steps=4)
    for steps in (4.0, np.float32(4), np.uint64(4), torch.tensor(4), np.array(4)):
        assert np.array_equal(fwcrf.refine(IMAGE, P, num_steps=steps), expected)
    crf = fwcrf.DenseCRF(3.0, num_steps=4.0)
    assert torch.equal(crf(TENSOR, LOGITS), fwcrf.DenseCRF(3, num_steps=4)(TENSOR, LOGITS))


def test_one_kernel_needs_no_list():
    kernel = Bilateral(5, 30)
    assert np.array_equal(fwcrf.refine(IMAGE, P, kernels=kernel), fwcrf.refine(IMAGE, P, kernels=[kernel]))
    assert fwcrf.DenseCRF(3, kernels=kernel).kernels == (kernel,)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_labels_of_any_whole_dtype(dtype):
    labels = P.argmax(-1)
    expected = fwcrf.refine(IMAGE, labels, from_labels=True)
    assert np.array_equal(fwcrf.refine(IMAGE, labels.astype(dtype), from_labels=True), expected)
    tensor = torch.from_numpy(labels.astype(dtype))
    found = fwcrf.refine(torch.from_numpy(IMAGE).movedim(-1, 0), tensor, from_labels=True)
    assert np.array_equal(found.numpy(), expected)


def large(labels, dtype=np.uint64):
    """The labels, with 2^63 + 5 at the first pixel."""
    found = labels.astype(dtype)
    found.flat[0] = 2**63 + 5
    return found


def test_labels_from_2_to_the_63_on_are_refused():
    """int64 would make them negative: no label."""
    labels = P.argmax(-1)
    message = r"the label map has labels from 2\^63 on; expected.*"
    with pytest.raises(ValueError, match=message + r"labels\.astype\(int\)\.clip\(-1\)"):
        fwcrf.refine(IMAGE, large(labels), from_labels=True)
    tensor = torch.from_numpy(large(labels))
    with pytest.raises(ValueError, match=message + r"labels\.long\(\)\.clamp\(min=-1\)"):
        fwcrf.refine(torch.from_numpy(IMAGE).movedim(-1, 0), tensor, from_labels=True, num_labels=4)
    with pytest.raises(ValueError, match=r"scribbles has labels from 2\^63 on; expected 0 to 2"):
        fwcrf.refine(IMAGE, P, scribbles=large(labels))
    with pytest.raises(ValueError, match=r"labels from 2\^63 on; expected"):
        fwcrf.changes(large(labels), labels)
    with pytest.raises(IndexError):
        fwcrf.pydensecrf.utils.unary_from_labels(np.array([0, 2**64 - 1], np.uint64), 3, 0.7)
    for dtype in (torch.uint64, torch.uint16):
        E = fwcrf.Energy(fwcrf.pairwise.dense([Exact(torch.rand(3, 2))], 3), torch.rand(3, 3))
        assert E.of_labels(torch.tensor([0, 1, 2]).to(dtype)) == E.of_labels(torch.tensor([0, 1, 2]))
        mrf = fwcrf.graphs.SparseMRF(torch.rand(3, 3), torch.tensor([[0, 1], [1, 2]]).to(dtype), 1.0)
        assert mrf.value(torch.tensor([0, 1, 2]).to(dtype)) == mrf.value(torch.tensor([0, 1, 2]))
    for call in (E.of_labels, mrf.value):
        with pytest.raises(ValueError, match=f"labels run from 0 to {2**63 - 1}; expected 0 to 2"):
            call(torch.from_numpy(large(np.arange(3)[::-1])))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint64, np.int64])
def test_labels_of_ignored_pixels_may_be_too_large(dtype):
    labels, most = P.argmax(-1), {np.uint16: 65535, np.uint64: 2**64 - 1, np.int64: 2**40}[dtype]
    ignore = np.zeros(labels.shape, bool)
    ignore[:2, 3:] = True
    without = np.where(ignore, -1, labels)
    expected = fwcrf.refine(IMAGE, without, from_labels=True, ignore=ignore, return_probabilities=True)
    void = labels.astype(dtype)
    void[ignore] = most
    for settings in ({}, {"num_labels": 3}, {"tile": 4, "overlap": 40}):
        found = fwcrf.refine(
            IMAGE, void, from_labels=True, ignore=ignore, return_probabilities=True, **settings
        )
        assert np.array_equal(found[0], expected[0]) and np.allclose(found[1], expected[1], atol=1e-5)
    several = np.stack([void, labels.astype(dtype)])
    assert np.array_equal(fwcrf.refine(IMAGE, several, from_labels=True, ignore=ignore)[0], expected[0])
    place = np.arange(labels.size)[:, None]
    kernel = Spatial(2)
    points = [
        fwcrf.refine_points(place, None, one.ravel(), from_labels=True, ignore=ignore.ravel(), kernels=kernel)
        for one in (void, without)
    ]
    assert np.array_equal(*points)
    with pytest.raises(ValueError, match=r"the label map has .*expected"):
        fwcrf.refine(IMAGE, void, from_labels=True, ignore=~ignore)


def test_an_ignored_pixel_keeps_a_label_that_occurs_nowhere_else():
    labels = np.minimum(P.argmax(-1), 1)
    labels[1, 1] = 7
    found = fwcrf.refine(IMAGE, labels, from_labels=True, ignore=labels == 7)
    assert found[1, 1] == 7 and (np.delete(found.ravel(), found.shape[1] + 1) < 2).all()


def test_changes_between_maps_of_large_labels():
    before, after = np.array([0, 2**40, -1, 3]), np.array([0, 0, 0, 0])
    found = fwcrf.changes(before, after)
    assert found.lost == (3, 2**40) and found.took_over == 0 and found.share == 0.75

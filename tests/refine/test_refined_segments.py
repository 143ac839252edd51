"""``segments=``: robust P^n terms of maps, against the same energy made by hand."""

import numpy as np
import pytest
import torch
from refine_scenes import photograph, probabilities

import fwcrf
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.kernel import Domain
from fwcrf.pairwise import dense
from fwcrf.segments import Agreement, with_segments

H, W = 12, 20
KERNELS = (Spatial(2), Bilateral(6, 30))
MAP = np.arange(H)[:, None] // 4 * 5 + np.arange(W) // 4
# Most pixels of a segment have one label in the scores.
IMAGE, P = photograph(H, W), probabilities(H, W) * np.exp(np.eye(3, dtype=np.float32)[MAP % 3])
P = P / P.sum(-1, keepdims=True)
MAP[:4, :4] = -1


def by_hand(ids, *terms, image=IMAGE, p=P):
    values = torch.from_numpy(image.reshape(-1, 3).copy()).float()
    K = [kernel.on(Domain(values, image.shape[:2])) for kernel in KERNELS]
    E = Energy(dense(K, 3), -torch.from_numpy(np.log(p)).float().reshape(-1, 3))
    for weight, tolerance in terms:
        E = with_segments(E, ids.reshape(-1), weight, tolerance=tolerance)
    return fwcrf.minimize(E, "l2fw", num_steps=10).labels.view(image.shape[:2]).numpy()


@pytest.mark.parametrize("terms", [[(2.0, 0.6)], [(2.0, 0.6), (0.5, 0.4)]])
def test_labels_are_those_of_the_energy(terms):
    given = [Agreement(MAP, *term) for term in terms]
    found = fwcrf.refine(IMAGE, P, kernels=KERNELS, segments=given if len(given) > 1 else given[0])
    np.testing.assert_array_equal(found, by_hand(MAP, *terms))
    assert (found != fwcrf.refine(IMAGE, P, kernels=KERNELS)).mean() > 0.02
    inside = [found[k == MAP] for k in range(1, 15)]
    assert sum(len(np.unique(labels)) == 1 for labels in inside) >= 10


def test_a_map_alone_has_the_default_settings():
    one = fwcrf.refine(IMAGE, P, segments=MAP)
    np.testing.assert_array_equal(one, fwcrf.refine(IMAGE, P, segments=Agreement(MAP)))
    np.testing.assert_array_equal(one, fwcrf.refine(IMAGE, P, segments=[MAP.astype(np.int16)]))
    assert (one != fwcrf.refine(IMAGE, P)).any()


def test_batches_and_tensors():
    images, scores = np.stack([IMAGE, IMAGE[::-1]]), np.stack([P, P[:, ::-1]])
    maps = np.stack([MAP, MAP[::-1]])
    settings = {"kernels": KERNELS}
    both = fwcrf.refine(images, scores, segments=Agreement(maps, 2.0, 0.6), **settings)
    common = fwcrf.refine(images, scores, segments=Agreement(MAP, 2.0, 0.6), **settings)
    for k in range(2):
        one = fwcrf.refine(images[k], scores[k], segments=Agreement(maps[k], 2.0, 0.6), **settings)
        np.testing.assert_array_equal(both[k], one)
        one = fwcrf.refine(images[k], scores[k], segments=Agreement(MAP, 2.0, 0.6), **settings)
        np.testing.assert_array_equal(common[k], one)
    tensors = [torch.from_numpy(a.copy()).movedim(-1, 1) for a in (images, scores)]
    given = Agreement(torch.from_numpy(maps.copy()), 2.0, 0.6)
    np.testing.assert_array_equal(fwcrf.refine(*tensors, segments=given, **settings).numpy(), both)


def test_ignored_pixels_are_in_no_segment():
    ignore = np.zeros((H, W), dtype=bool)
    ignore[:, 10:] = True
    cut = np.where(ignore, -1, MAP)
    given, same = Agreement(MAP, 2.0, 0.6), Agreement(cut, 2.0, 0.6)
    found = fwcrf.refine(IMAGE, P, segments=given, ignore=ignore)
    np.testing.assert_array_equal(found, fwcrf.refine(IMAGE, P, segments=same, ignore=ignore))
    np.testing.assert_array_equal(found[ignore], P.argmax(-1)[ignore])


def test_a_tile_sees_the_segments_of_its_window():
    settings = {"kernels": KERNELS, "tile": (H, 10), "overlap": 0}
    found = fwcrf.refine(IMAGE, P, segments=Agreement(MAP, 2.0, 0.6), **settings)
    for part in (np.s_[:, :10], np.s_[:, 10:]):
        image, p = np.ascontiguousarray(IMAGE[part]), np.ascontiguousarray(P[part])
        np.testing.assert_array_equal(found[part], by_hand(MAP[part], (2.0, 0.6), image=image, p=p))


def test_points():
    places = np.stack(np.mgrid[:H, :W], -1).reshape(-1, 2).astype(float)
    settings = {"kernels": [Spatial(2, method="exact")], "segments": Agreement(MAP.ravel(), 2.0, 0.6)}
    found = fwcrf.refine_points(places, None, P.reshape(-1, 3), **settings)
    plain = fwcrf.refine_points(places, None, P.reshape(-1, 3), kernels=settings["kernels"])
    assert len(np.unique(found[MAP.ravel() == 6])) == 1 < len(np.unique(plain[MAP.ravel() == 6]))


def test_refusals():
    with pytest.raises(TypeError, match="rounding='bcd' with terms over segments"):
        fwcrf.refine(IMAGE, P, segments=MAP, rounding="bcd")
    with pytest.raises(TypeError, match="segments has dtype float64; expected whole numbers"):
        fwcrf.refine(IMAGE, P, segments=MAP / 2)
    with pytest.raises(ValueError, match=r"segments has shape \(12, 19\); expected one entry per pixel"):
        fwcrf.refine(IMAGE, P, segments=MAP[:, 1:])
    with pytest.raises(ValueError, match=r"weight=-1\.0; expected 0 or more"):
        Agreement(MAP, torch.tensor(-1.0))
    with pytest.raises(ValueError, match="tolerance=2"):
        Agreement(MAP, tolerance=2)

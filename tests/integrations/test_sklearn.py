"""The estimator of scikit-learn: its conventions, grid searches, and the search of fit."""

import numpy as np
import pytest
from scenes import scene

import fwcrf
from fwcrf.apps.batch.local import attempt

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from fwcrf.integrations.sklearn import CRFRefiner


@pytest.fixture(scope="module")
def data():
    scenes = [scene(seed) for seed in range(12)]
    return [(image, p) for image, p, _ in scenes], [truth for *_, truth in scenes]


def test_conventions(data):
    X, _ = data
    crf = CRFRefiner(bilateral_weight=1.5, num_steps=3)
    assert crf.get_params()["bilateral_weight"] == 1.5
    again = clone(crf).set_params(num_steps=2)
    assert again.get_params() == {**crf.get_params(), "num_steps": 2}
    with pytest.raises(NotFittedError):
        crf.predict(X)
    assert crf.fit(X) is crf and "bilateral_weight=1.5" in repr(crf)
    labels = crf.predict(X[:2])
    arguments = crf.settings_.arguments()
    assert arguments["num_steps"] == 3 and arguments["kernels"][1].weight == 1.5
    for (image, p), one, likely in zip(X, labels, crf.predict_proba(X[:2]), strict=False):
        assert np.array_equal(one, fwcrf.refine(image, p, **arguments))
        assert np.array_equal(one, likely.argmax(-1))


def test_the_score_is_the_mean_iou_of_all_images_together(data):
    X, y = data
    found = CRFRefiner().fit(X).predict(X)
    ious = [
        sum(((a == k) & (b == k)).sum() for a, b in zip(found, y, strict=True))
        / sum(((a == k) | (b == k)).sum() for a, b in zip(found, y, strict=True))
        for k in range(3)
    ]
    assert CRFRefiner().fit(X).score(X, y) == pytest.approx(np.mean(ious))
    masked = [np.where(np.indices(t.shape)[0] < 20, 9, t) for t in y]
    assert CRFRefiner(void=9).fit(X).score(X, masked) != pytest.approx(np.mean(ious))


def test_a_grid_search_over_lists_of_pairs(data):
    X, y = data
    grid = {"bilateral_weight": [0.01, 2.0], "num_steps": [1, 5]}
    search = GridSearchCV(CRFRefiner(spatial_weight=0.01), grid, cv=3).fit(X, y)
    assert search.best_params_ == {"bilateral_weight": 2.0, "num_steps": 5}
    assert search.best_score_ > search.cv_results_["mean_test_score"].min() + 0.02
    assert search.predict(X[:1])[0].shape == y[0].shape
    assert len(cross_val_score(CRFRefiner(), X, y, cv=2)) == 2


def test_fit_searches_if_asked_to(data, monkeypatch):
    X, y = data

    def run(self, tasks):
        return ((index, attempt(self.job, task)) for index, task in enumerate(tasks))

    monkeypatch.setattr("fwcrf.apps.batch.local.Pool.run", run)
    start = CRFRefiner(bilateral_weight=0.05, spatial_weight=0.05, num_steps=2)
    crf = clone(start).set_params(num_trials=12).fit(X, y)
    assert len(crf.tuned_.trials) == 12 and crf.settings_ == crf.tuned_.settings
    assert crf.score(X, y) > start.fit(X).score(X, y) + 0.02
    with pytest.raises(ValueError, match="asks for a search, and y is None"):
        crf.fit(X)


def test_a_number_that_the_preset_lacks_is_named(data):
    with pytest.raises(ValueError, match=r"balance=0.2, and preset 'paper' has no such number"):
        CRFRefiner("paper", balance=0.2).fit(data[0])


def test_what_is_no_list_of_pairs_is_named(data):
    X, y = data
    crf = CRFRefiner().fit(X)
    with pytest.raises(ValueError, match=r"X\[0\] is an array of shape .*; expected a list of pairs"):
        crf.predict(X[0])
    with pytest.raises(ValueError, match=r"X\[0\] is str; expected a list of pairs"):
        crf.predict(["image.png"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        crf.score(X, y[:-1])

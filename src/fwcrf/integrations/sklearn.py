"""The refinement as an estimator of scikit-learn: for grid searches, cross-validation and pipelines of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import fwcrf
from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning import Tuned, tune
from fwcrf.apps.tuning.parameters import parameters, with_parameters
from fwcrf.optional import needed
from fwcrf.presets import get

if TYPE_CHECKING:  # scikit-learn has no types

    class BaseEstimator:
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

        def set_params(self, **params: Any) -> BaseEstimator: ...

else:
    BaseEstimator = needed("sklearn.base", "sklearn").BaseEstimator

__all__ = ["CRFRefiner"]

# Parameters of the estimator that replace a number of the preset, and their names among the tuned ones.
_NUMBERS = {
    "lambda_": "lambda",
    "num_steps": "steps",
    "balance": "balance",
    "spatial_xy": "spatial.xy",
    "spatial_weight": "spatial.weight",
    "bilateral_xy": "bilateral.xy",
    "bilateral_color": "bilateral.color",
    "bilateral_weight": "bilateral.weight",
}


class CRFRefiner(BaseEstimator):
    """Refines label maps: X is a list of pairs (image, scores), y a list of true label maps.

    An image is ``(H, W, 3)``, its scores are probabilities ``(H, W, L)``, the truth is ``(H, W)``. Numbers
    that are None are those of the preset. With ``num_trials=0``, the default, ``fit`` learns nothing, and
    the numbers are for ``GridSearchCV``. Otherwise ``fit`` searches them itself, with cross-validation:
    ``fwcrf.apps.tuning.tune``.

    Attributes:
        settings_: the settings of the refinement.
        tuned_: the result of the search of ``fit``, None without one.
    """

    def __init__(
        self,
        preset: str = "default",
        *,
        lambda_: float | None = None,
        num_steps: int | None = None,
        balance: float | None = None,
        spatial_xy: float | None = None,
        spatial_weight: float | None = None,
        bilateral_xy: float | None = None,
        bilateral_color: float | None = None,
        bilateral_weight: float | None = None,
        from_logits: bool = False,
        resize: Any = None,
        align: Any = "centers",
        void: int = 255,
        num_trials: int = 0,
        num_workers: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.preset = preset
        self.lambda_ = lambda_
        self.num_steps = num_steps
        self.balance = balance
        self.spatial_xy = spatial_xy
        self.spatial_weight = spatial_weight
        self.bilateral_xy = bilateral_xy
        self.bilateral_color = bilateral_color
        self.bilateral_weight = bilateral_weight
        self.from_logits = from_logits
        self.resize = resize
        self.align = align
        self.void = void
        self.num_trials = num_trials
        self.num_workers = num_workers
        self.random_state = random_state

    def fit(self, X: Sequence[Any], y: Sequence[Any] | None = None) -> CRFRefiner:
        """The estimator itself, with settings: those of its parameters, or the best of ``num_trials``."""
        settings = Settings.of_preset(get(self.preset))
        there = parameters(settings)
        given = {name: getattr(self, name) for name in _NUMBERS if getattr(self, name) is not None}
        for name in given:
            if _NUMBERS[name] not in there:
                raise ValueError(f"{name}={given[name]}, and preset {self.preset!r} has no such number.")
        self.settings_: Settings = with_parameters(settings, {_NUMBERS[name]: given[name] for name in given})
        self.tuned_: Tuned | None = None
        if self.num_trials:
            if y is None:
                raise ValueError("num_trials= asks for a search, and y is None; expected true label maps.")
            needed("sklearn.utils", "sklearn").check_consistent_length(X, y)
            with TemporaryDirectory(prefix="fwcrf-") as folder:
                items = list(self._written(Path(folder), X, y))
                reading = Reading(
                    kind="logits" if self.from_logits else "probabilities",
                    void=self.void, resize=self.resize, align=self.align,
                )  # fmt: skip
                self.tuned_ = tune(
                    items, self.settings_, reading, num_trials=self.num_trials, seed=self.random_state,
                    num_workers=self.num_workers,
                )  # fmt: skip
            self.settings_ = self.tuned_.settings
        return self

    def predict(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Label maps, one for each pair of image and scores."""
        return [self._refined(image, scores) for image, scores in _pairs(X)]

    def predict_proba(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Probabilities ``(H, W, L)``, one array for each pair of image and scores."""
        return [self._refined(image, scores, return_probabilities=True)[1] for image, scores in _pairs(X)]

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """The mean IoU of all images together, from 0 to 1; ``void`` pixels do not count."""
        needed("sklearn.utils", "sklearn").check_consistent_length(X, y)
        found = self.predict(X)
        most = max(np.asarray(scores).shape[-1] for _, scores in X)
        confusion = Confusion(max(2, most), ignore_index=-1)
        for labels, truth in zip(found, y, strict=True):
            true = np.asarray(truth).astype(np.int64)  # -1 is no number of uint8
            true[true == self.void] = -1
            confusion.update(torch.from_numpy(np.asarray(labels)), torch.from_numpy(true))
        return float(confusion.mean_iou())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "settings_")

    def _refined(self, image: Any, scores: Any, **more: Any) -> Any:
        needed("sklearn.utils.validation", "sklearn").check_is_fitted(self)
        return fwcrf.refine(
            image, np.asarray(scores), from_logits=self.from_logits, resize=self.resize, align=self.align,
            **self.settings_.arguments(), **more,
        )  # fmt: skip

    def _written(self, folder: Path, X: Sequence[Any], y: Sequence[Any]) -> Any:
        """Items of files, as the search reads them."""
        for index, ((image, scores), truth) in enumerate(zip(_pairs(X), y, strict=True)):
            paths = [folder / f"{name}-{index}.npy" for name in ("image", "scores", "truth")]
            for path, values in zip(paths, (image, scores, truth), strict=True):
                np.save(path, np.asarray(values))
            yield Item(str(paths[0]), str(paths[1]), f"{index}.png", str(paths[2]))


def _pairs(X: Sequence[Any]) -> list[Any]:
    """The pairs of X. Raises ValueError if an item is none, as of one pair that is not in a list."""
    for index, pair in enumerate(X):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            shape = getattr(pair, "shape", None)
            given = type(pair).__name__ if shape is None else f"an array of shape {tuple(shape)}"
            raise ValueError(f"X[{index}] is {given}; expected a list of pairs, (image, scores) each.")
    return [*X]

"""Accuracy of label maps: mean IoU over a data set, per class and near borders; test-time augmentation."""

from fwcrf.apps.evaluation.boundary import BoundaryF, trimap
from fwcrf.apps.evaluation.confusion import Confusion
from fwcrf.apps.evaluation.evaluate import Measures, Scores, evaluate, predict
from fwcrf.apps.evaluation.tta import Views, probabilities

__all__ = [
    "BoundaryF",
    "Confusion",
    "Measures",
    "Scores",
    "Views",
    "evaluate",
    "predict",
    "probabilities",
    "trimap",
]

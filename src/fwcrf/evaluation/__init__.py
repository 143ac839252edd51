"""How good label maps are: mean IoU over a data set, per class, near borders; with test-time augmentation."""

from fwcrf.evaluation.boundary import BoundaryF, trimap
from fwcrf.evaluation.confusion import Confusion
from fwcrf.evaluation.evaluate import Measures, Scores, evaluate, predict
from fwcrf.evaluation.tta import Views, probabilities

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

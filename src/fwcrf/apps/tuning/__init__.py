"""Search of lambda, steps, kernel weights and bandwidths on labelled images, with cross-validation."""

from fwcrf.apps.tuning.choice import Choice
from fwcrf.apps.tuning.trials import Trial, Tuned, tune

__all__ = ["Choice", "Trial", "Tuned", "tune"]

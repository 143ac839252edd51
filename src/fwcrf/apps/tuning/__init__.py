"""Search of lambda, kernel weights and bandwidths on a few labelled images."""

from fwcrf.apps.tuning.trials import Trial, Tuned, tune

__all__ = ["Trial", "Tuned", "tune"]

"""Settings for one's own data: lambda, kernel weights and bandwidths, by trial on a few labelled images."""

from fwcrf.apps.tuning.trials import Trial, Tuned, tune

__all__ = ["Trial", "Tuned", "tune"]

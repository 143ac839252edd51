"""Kernel parameters and compatibility by gradients through the layer, without a network; cross-validated."""

from fwcrf.apps.fitting.descent import GROUPS, Options
from fwcrf.apps.fitting.fit import Fitted, fit

__all__ = ["GROUPS", "Fitted", "Options", "fit"]

"""The paper's experiments, on images at hand: ``run(["energy"], Setup(data, output))``.

::

    setup, images, potts     what is looked at, and with which model
    runs, measure, kept      a solver on an image, once and for all
    learning                 a network and a CRF trained together
    curves, tables, figures  what is shown of it
    outcome, report          with whether the paper's statements hold

What is measured is kept per image and per training run: after an interruption, the same call goes on.
"""

from fwcrf.apps.experiments.listed import EXPERIMENTS
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.perform import run
from fwcrf.apps.experiments.setup import Setup

__all__ = ["EXPERIMENTS", "Finding", "Outcome", "Setup", "run"]

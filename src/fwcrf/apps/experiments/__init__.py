"""The paper's experiments on local images: ``run(["energy"], Setup(data, output))``.

::

    setup, images, potts     options, images and the Potts model
    runs, measure, kept      runs of a solver on an image, and their stored results
    learning                 a network and a CRF trained together
    curves, tables, figures  output formats
    claims, verdict          the paper's claims, and verdicts by intervals over images
    outcome, report          results, a line per claim, a page

Results are stored per image and per training run. After an interruption, the same call resumes.
"""

from fwcrf.apps.experiments.listed import EXPERIMENTS
from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.perform import run
from fwcrf.apps.experiments.setup import Setup

__all__ = ["EXPERIMENTS", "Finding", "Outcome", "Setup", "run"]

"""Train a network, the CRF after it, or both together: ``train(read_config("joint-voc"), "out")``.

::

    config     all settings, from a YAML file
    build      data sets and model of a config
    order      images of each step
    loop       training steps, checkpoints, log
"""

from fwcrf.apps.training.config import Config, read_config
from fwcrf.apps.training.loop import Diverged, Stopped, Trained, train

__all__ = ["Config", "Diverged", "Stopped", "Trained", "read_config", "train"]

"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable

from fwcrf.apps.experiments import (
    energy,
    fw_fails,
    joint,
    lambda_,
    lambdas,
    long,
    per_class,
    potts_miou,
    trainable,
    tune,
)
from fwcrf.apps.experiments.outcome import Outcome
from fwcrf.apps.experiments.setup import Setup

EXPERIMENTS: dict[str, Callable[[Setup], Outcome]] = {
    "energy": energy.run,
    "lambda": lambda_.run,
    "lambdas": lambdas.run,
    "long": long.run,
    "tune": tune.run,
    "potts-miou": potts_miou.run,
    "fw-fails": fw_fails.run,
    "joint": joint.on_camvid,
    "joint-voc": joint.on_voc,
    "per-class": per_class.run,
    "trainable": trainable.run,
}

# Files in the data folder that an experiment needs besides voc2012.
NEEDS = {"joint": ("camvid/test.txt", "weights/espnet_p2q8_camvid.safetensors")}

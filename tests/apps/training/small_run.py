"""A run that takes a moment: a tiny network and a CRF on images of 24 x 32 pixels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import layouts
from torch import nn

from fwcrf.apps.training import Config, Trained
from fwcrf.apps.training import train as train_config


def network(num_classes: int, dropout: float = 0.1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Conv2d(8, num_classes, 1),
    )


def config(folder: Path, **changes: Any) -> Config:
    """Three epochs of three steps of two images."""
    root = folder / "data"
    if not root.exists():
        layouts.splits(root, count=6, size=(24, 32))
    values: dict[str, Any] = {
        "data": {"name": "splits", "root": str(root), "crop": [25, 25]},
        "model": {"name": "own"},
        "crf": {
            "noise": 0.01,
            "num_steps": 2,
            "learnable": ["weights", "compatibility"],
            "weights": "full",
        },
        "optimizer": {"name": "sgd", "cnn_lr": 0.01},
        "epochs": 3,
        "batch_size": 2,
        "run": {"workers": 0, "checkpoint_every": 2},
    }
    for name, value in changes.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) and values.get(name) else value
    return Config.of(values)


def train(folder: Path, output: str, progress=lambda *_, **__: None, **changes: Any) -> Trained:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "training left the CRF at its start")  # nine steps move little
        return train_config(config(folder, **changes), folder / output, progress, network=network)

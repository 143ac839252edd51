"""Data sets and model of a config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fwcrf import solvers
from fwcrf.apps.data import VOC, CamVid, Cityscapes, Classes, Folder, Segmentation, Splits
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.models import (
    CNNCRF,
    DeepLabv3MobileNetV2,
    DeepLabv3PlusXception65,
    DeepLabv3ResNet101,
    ESPNet,
    load,
    mobilenetv2,
    read_state,
)
from fwcrf.apps.training.config import CRF, Config, Data, Model, read_config
from fwcrf.apps.training.optimizers import frozen
from fwcrf.kernels import Bilateral, Kernel, Spatial
from fwcrf.layer import DenseCRF

NETWORKS: dict[str, Any] = {
    "mobilenetv2": DeepLabv3MobileNetV2,
    "espnet": ESPNet,
    "resnet101": DeepLabv3ResNet101,
    "xception65": DeepLabv3PlusXception65,
}
DATA_SETS: dict[str, Any] = {"voc": VOC, "cityscapes": Cityscapes, "camvid": CamVid, "splits": Splits}


def dataset(data: Data, split: str) -> Segmentation:
    """A split of the data. For "folder" it is ``root/split/images`` and ``root/split/masks``."""
    if data.name == "folder":
        folder = Path(data.root) / split
        return Folder(folder / "images", folder / "masks", data.classes)
    return DATA_SETS[data.name](data.root, split)


Network = Callable[..., nn.Module]


def network(model: Model, num_classes: int, own: Network | None = None) -> nn.Module:
    """The network with its initial weights and frozen modules.

    ``own(num_classes, **settings)`` makes the network if ``model.name`` is "own".
    """
    if (model.name == "own") != (own is not None):
        raise ValueError(
            f"model.name is {model.name!r} and a network of your own is {'not ' * (own is None)}given; "
            "expected the name 'own' with a network, or the name of a packaged network without one."
        )
    net = (own or NETWORKS[model.name])(num_classes, **model.settings)
    if model.weights is not None:
        state = read_state(model.weights)
        if model.name == "mobilenetv2" and "logits/semantic.weight" in state:
            state = mobilenetv2.translate(state)
        # A file of a whole CNNCRF: keep the network's weights.
        if any(name.startswith("cnn.") for name in state):
            state = {n.removeprefix("cnn."): v for n, v in state.items() if n.startswith("cnn.")}
        load(net, state, leave=model.leave)
    frozen(net, model.frozen)
    return net


def crf(settings: CRF, num_classes: int) -> DenseCRF:
    """The CRF layer. ``skip=None`` means 0.5, or 0 for mean field."""
    skip = settings.skip
    if skip is None:
        skip = 0.0 if settings.solver == "mf" else 0.5
    return DenseCRF(
        num_classes,
        kernels=_kernels(settings),
        compatibility=settings.compatibility,
        balance=settings.balance,
        temperature=settings.temperature,
        bias=settings.bias,
        solver=solvers.get(settings.solver, **settings.settings),
        num_steps=settings.num_steps,
        learnable=settings.learnable,
        skip=skip,
        noise=settings.noise,
        weights=settings.weights if "weights" in settings.learnable else "scalar",
        gradient=settings.gradient,
    )


def _kernels(settings: CRF) -> tuple[Kernel, ...]:
    if settings.kernels:
        return Settings.of({"kernels": list(settings.kernels)}, "crf").arguments()["kernels"]
    return Spatial(settings.spatial), Bilateral(*settings.bilateral)


def restored(
    folder: Path | str, name: str = "model.pt", config: Config | None = None, own: Network | None = None
) -> CNNCRF:
    """The model trained in a folder, with weights from its file ``name``. Default: the folder's config."""
    if config is None:
        config = read_config(Path(folder) / "config.yaml")
    state = read_state(Path(folder) / name)
    classes = dataset(config.data, config.data.val or config.data.train).classes
    # The file of the initial weights may no longer exist.
    fresh = replace(config, model=replace(config.model, weights=None))
    found = model(fresh, classes, own)
    load(found, state)
    return found.eval()


def model(config: Config, classes: Classes, own: Network | None = None) -> CNNCRF:
    """The network of a config, followed by its CRF if it has one."""
    layer = crf(config.crf, len(classes)) if config.crf is not None else None
    return CNNCRF(network(config.model, len(classes), own), layer)

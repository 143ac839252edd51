"""A small folder laid out as the shared data is: images, labels, a network's logits, and weights for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from fwcrf.apps.models import DeepLabv3MobileNetV2, ESPNet

SIZE = (60, 80)
COUNT = 8


def data(root: Path) -> Path:
    """Three classes, each of a colour, in large patches; the logits are wrong here and there."""
    voc = root / "voc2012"
    for kind in ("images", "labels", "logits_deeplabv3"):
        (voc / "val" / kind).mkdir(parents=True)
    (voc / "classes.json").write_text(json.dumps({"names": ["sky", "road", "car"], "ignore_index": 255}))
    random = np.random.default_rng(0)
    colours = np.array([[90, 140, 200], [120, 120, 120], [200, 60, 50]])
    names = [f"image{number}" for number in range(COUNT)]
    for name in names:
        labels = random.integers(0, 3, (3, 4)).repeat(20, 0).repeat(20, 1)
        image = np.clip(colours[labels] + random.normal(0, 15, (*SIZE, 3)), 0, 255).astype(np.uint8)
        grid = np.eye(3)[labels[::8, ::8]]
        height, width = (-(-(size - 1) // 8) + 1 for size in SIZE)
        grid = np.pad(grid, ((0, height - len(grid)), (0, width - grid.shape[1]), (0, 0)), "edge")
        logits = 1.5 * grid + random.normal(0, 1.0, grid.shape)
        labels[0] = 255
        Image.fromarray(image).save(voc / "val" / "images" / f"{name}.jpg", quality=95)
        Image.fromarray(labels.astype(np.uint8)).save(voc / "val" / "labels" / f"{name}.png")
        np.savez(
            voc / "val" / "logits_deeplabv3" / f"{name}.npz",
            logits=logits.transpose(2, 0, 1).astype(np.float16),
        )
    (voc / "val.txt").write_text("\n".join(names) + "\n")
    return root


def camvid(root: Path) -> Path:
    """Splits of a few small images of three classes, and label 3 to ignore."""
    folder = root / "camvid"
    random = np.random.default_rng(1)
    colours = np.array([[90, 140, 200], [120, 120, 120], [200, 60, 50]])
    for split, count in (("train", 5), ("val", 3), ("test", 4)):
        for kind in ("images", "labels"):
            (folder / split / kind).mkdir(parents=True)
        names = [f"{split}{number}" for number in range(count)]
        for name in names:
            labels = random.integers(0, 3, (3, 4)).repeat(12, 0).repeat(12, 1)
            image = np.clip(colours[labels] + random.normal(0, 15, (36, 48, 3)), 0, 255).astype(np.uint8)
            labels[0] = 3
            Image.fromarray(image).save(folder / split / "images" / f"{name}.jpg", quality=95)
            Image.fromarray(labels.astype(np.uint8)).save(folder / split / "labels" / f"{name}.png")
        (folder / f"{split}.txt").write_text("\n".join(names) + "\n")
    (folder / "classes.json").write_text(json.dumps({"names": ["sky", "road", "car"], "ignore_index": 3}))
    return root


def weights(root: Path) -> Path:
    """Of networks for the three classes that have learned nothing, and are sure of nothing."""
    (root / "weights").mkdir()
    torch.manual_seed(1)
    # ESPNet divides its channels by five; channels beyond the three classes are left out.
    save_file(ESPNet(6).state_dict(), root / "weights" / "espnet_p2q8_camvid.safetensors")
    torch.manual_seed(0)
    state = DeepLabv3MobileNetV2(3).state_dict()
    state["logits.weight"] *= 1e-3
    state["logits.bias"] *= 0
    save_file(state, root / "weights" / "deeplabv3_mnv2_dm05_voc_trainaug.safetensors")
    return root

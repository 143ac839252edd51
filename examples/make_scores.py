"""Make the stored scores of fwcrf.examples: a network's logits for photographs of scikit-image.

The network is DeepLabv3-MobileNetV2. Its weights are not part of the repository: --data is the folder with
weights/deeplabv3_mnv2_dm05_voc_trainaug.safetensors, by default FWCRF_DATA.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

from fwcrf.apps.models import DeepLabv3MobileNetV2, mobilenetv2
from fwcrf.examples.photographs import FOLDER, NAMES, photograph

WEIGHTS = Path("weights", "deeplabv3_mnv2_dm05_voc_trainaug.safetensors")
# The network was trained with images of this many pixels per side, smaller ones padded.
CANVAS = 513


def scores(net: DeepLabv3MobileNetV2, image: np.ndarray) -> np.ndarray:
    """Logits ``(21, h, w)`` of float16 at every eighth pixel, rounded to 1/16 so that they compress well."""
    rgb = np.repeat(image[..., None], 3, -1) if image.ndim == 2 else image
    mean, std = (torch.tensor(part)[:, None, None] for part in net.normalization)
    x = (torch.from_numpy(rgb).permute(2, 0, 1) - mean) / std
    with torch.no_grad():
        logits = net.scores(x[None])[0].numpy()
    return (np.round(16 * logits) / 16).astype(np.float16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("FWCRF_DATA"), help="the folder that has weights/"
    )
    parser.add_argument("--only", choices=NAMES, help="one photograph instead of all")
    parser.add_argument("-o", "--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    if args.data is None:
        parser.error(
            "the weights are not in the repository: --data or FWCRF_DATA is the folder that has them"
        )
    net = mobilenetv2.published(args.data / WEIGHTS, canvas=CANVAS).eval()
    for name in [args.only] if args.only else NAMES:
        image = photograph(name)
        path = args.folder / f"{name}.npz"
        np.savez_compressed(path, logits=scores(net, image), image_hw=np.array(image.shape[:2]))
        print(f"{path}: {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()

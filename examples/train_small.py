"""Train a small network with and without a CRF, and compare their mean IoU during training.

The task is to label the colour region of every pixel in scikit-image's photographs. Regions are clusters of
smoothed colour, so their borders follow image edges. The network works at a quarter of the resolution; its
upsampled scores have blurred borders. The CRF uses the photograph at full resolution. Both networks start
from the same weights and train on the same crops. The right third of each photograph is held out.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from scipy import ndimage
from skimage import data
from torch import Tensor, nn

from fwcrf import DenseCRF
from fwcrf.kernels import Bilateral, Spatial

PHOTOGRAPHS = ["astronaut", "chelsea", "coffee", "rocket"]
REGIONS, CROP, STRIDE = 5, 64, 4


def photographs() -> list[np.ndarray]:
    """Every second pixel of each photograph, values 0 to 255; the sides are multiples of the stride."""
    halved = [getattr(data, name)()[::2, ::2] for name in PHOTOGRAPHS]
    return [image[: len(image) // STRIDE * STRIDE, : image.shape[1] // STRIDE * STRIDE] for image in halved]


def regions(images: list[np.ndarray]) -> list[np.ndarray]:
    """Clusters of smoothed colour, numbered from dark to light."""
    smooth = [ndimage.median_filter(image, (5, 5, 1)).astype(np.float64) for image in images]
    colours = np.concatenate([s.reshape(-1, 3)[::50] for s in smooth])
    order = np.argsort(colours.sum(-1))
    centres = colours[order[np.linspace(0, len(order) - 1, REGIONS).astype(int)]]
    for _ in range(20):
        nearest = ((colours[:, None] - centres) ** 2).sum(-1).argmin(-1)
        centres = np.stack([colours[nearest == k].mean(0) for k in range(REGIONS)])
    return [((s[..., None, :] - centres) ** 2).sum(-1).argmin(-1) for s in smooth]


class Coarse(nn.Module):
    """A network that computes scores at a quarter of the resolution, and upsamples them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(STRIDE),
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, REGIONS, 1),
            nn.Upsample(scale_factor=STRIDE, mode="bilinear"),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image / 128 - 1)


class WithCRF(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.crf = DenseCRF(
            REGIONS,
            kernels=[Spatial(xy=1.5), Bilateral(xy=12, color=16)],
            num_steps=5,
            learnable=("weights", "compatibility", "lambda", "skip", "bandwidths"),
            skip=0.5,
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.crf(image, self.network(image))


def crops(images: list[Tensor], labels: list[Tensor], count: int, rng: np.random.Generator):
    """Random square crops of the left two thirds: images and labels, stacked."""
    chosen = []
    for _ in range(count):
        i = rng.integers(len(images))
        height, width = labels[i].shape
        top, left = rng.integers(height - CROP + 1), rng.integers(width * 2 // 3 - CROP + 1)
        window = (..., slice(top, top + CROP), slice(left, left + CROP))
        chosen.append((images[i][window], labels[i][window]))
    return tuple(torch.stack(t) for t in zip(*chosen, strict=True))


@torch.no_grad()
def mean_iou(model: nn.Module, images: list[Tensor], labels: list[Tensor]) -> float:
    """Mean IoU over the right thirds, from one confusion matrix of all photographs."""
    confusion = torch.zeros(REGIONS, REGIONS, dtype=torch.int64)
    for image, truth in zip(images, labels, strict=True):
        left = -(-truth.shape[1] * 2 // 3 // STRIDE) * STRIDE
        answer = model(image[None, :, :, left:]).argmax(1)[0]
        pairs = truth[:, left:].flatten() * REGIONS + answer.flatten()
        confusion += torch.bincount(pairs, minlength=REGIONS**2).view(REGIONS, REGIONS)
    shared = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - shared
    return float((shared / union.clamp(min=1)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="iterations between evaluations")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate of network and CRF")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    pictures = photographs()
    labels = [torch.from_numpy(r) for r in regions(pictures)]
    images = [torch.from_numpy(p).permute(2, 0, 1).float() for p in pictures]

    models: dict[str, nn.Module] = {}
    torch.manual_seed(args.seed)
    models["alone"] = Coarse()
    torch.manual_seed(args.seed)
    models["with CRF"] = WithCRF(Coarse())
    optimizers = {name: torch.optim.Adam(m.parameters(), lr=args.rate) for name, m in models.items()}

    print("             mean loss                held-out mean IoU")
    print("iteration    alone     with CRF       alone     with CRF")
    start, rng = time.perf_counter(), np.random.default_rng(args.seed)
    losses: dict[str, list[float]] = {name: [] for name in models}
    for k in range(args.iterations + 1):
        if k % args.every == 0 or k == args.iterations:
            mean = [float(np.mean(losses[name][-args.every :] or [np.nan])) for name in models]
            score = [mean_iou(m, images, labels) for m in models.values()]
            print(f"{k:9d} {mean[0]:8.3f} {mean[1]:12.3f} {score[0]:11.3f} {score[1]:12.3f}", flush=True)
        image, truth = crops(images, labels, args.batch, rng)
        for name, model in models.items():
            loss = nn.functional.cross_entropy(model(image), truth)
            optimizers[name].zero_grad()
            loss.backward()
            optimizers[name].step()
            losses[name].append(loss.item())

    crf = models["with CRF"].crf
    assert isinstance(crf, DenseCRF)
    weights = [round(w, 2) for w in crf.weights.tolist()]
    print(f"\n{time.perf_counter() - start:.0f} s. Learned: lambda {crf.lambda_.item():.2f}, ", end="")
    print(f"skip {torch.as_tensor(crf.skip).item():.2f}, weights {weights}")
    for name, value in crf.bandwidths.items():
        print(f"bandwidth {name}: {[round(v, 2) for v in value.flatten().tolist()]}")


if __name__ == "__main__":
    main()

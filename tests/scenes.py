"""Small images with noisy scores and true labels, in files."""

import numpy as np
from PIL import Image

COLOURS = np.array([[30, 60, 90], [200, 80, 40], [60, 180, 70]])


def scene(seed, shape=(40, 50)):
    """An image ``(H, W, 3)`` of two objects, probabilities ``(H, W, 3)`` of a bad network, and the truth."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    truth = ((x - 12 - seed % 5) ** 2 + (y - 20) ** 2 < 81).astype(np.uint8) + 2 * ((x > 35) & (y > 15))
    image = (COLOURS[truth] + rng.normal(0, 6, (*shape, 3))).clip(0, 255).astype(np.uint8)
    logits = rng.normal(0, 1.2, (*shape, 3)) + 1.5 * np.eye(3)[truth]
    p = np.exp(logits)
    return image, (p / p.sum(-1, keepdims=True)).astype(np.float32), truth.astype(np.uint8)


def write_scenes(folder, count):
    """``images/0.png``, ``scores/0.npy``, ``truth/0.png`` and so on."""
    for name in ("images", "scores", "truth"):
        (folder / name).mkdir(parents=True)
    for i in range(count):
        image, p, truth = scene(i)
        Image.fromarray(image).save(folder / "images" / f"{i}.png")
        np.save(folder / "scores" / f"{i}.npy", p)
        Image.fromarray(truth).save(folder / "truth" / f"{i}.png")
    return folder

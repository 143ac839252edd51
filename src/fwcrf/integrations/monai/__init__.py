"""MONAI: transforms for its pipelines, and a network block with the arguments of its own.

>>> import torch
>>> from monai.transforms import Compose
>>> after = Compose([DenseCRFd("pred", image_key="image", argmax=True, units="voxels")])
>>> case = {"image": torch.rand(1, 8, 9, 7) * 255, "pred": torch.rand(2, 8, 9, 7).softmax(0)}
>>> after(case)["pred"].shape
torch.Size([1, 8, 9, 7])
"""

from fwcrf.integrations.monai.block import CRF
from fwcrf.integrations.monai.transforms import DenseCRF, DenseCRFd

__all__ = ["CRF", "DenseCRF", "DenseCRFd"]

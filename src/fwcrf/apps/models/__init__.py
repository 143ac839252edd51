"""Segmentation networks in plain torch, and ``CNNCRF``: a network followed by a CRF.

============================  =====================================================================
DeepLabv3MobileNetV2          loads Google's depth 0.5 checkpoint; 0.7 million parameters
ESPNet                        loads published weights for CamVid; 0.4 million parameters
DeepLabv3ResNet101            parameter names of torchvision's ``deeplabv3_resnet101``
DeepLabv3PlusXception65       backbone of timm's ``xception65``; ``from_google`` for full checkpoints
CNNCRF                        any module that returns logits, followed by a ``DenseCRF``
============================  =====================================================================
"""

from fwcrf.apps.models.cnn_crf import CNNCRF
from fwcrf.apps.models.deeplabv3 import DeepLabv3ResNet101
from fwcrf.apps.models.deeplabv3plus import DeepLabv3PlusXception65
from fwcrf.apps.models.espnet import ESPNet
from fwcrf.apps.models.mobilenetv2 import DeepLabv3MobileNetV2
from fwcrf.apps.models.normalization import IMAGENET, UNIT, Normalization
from fwcrf.apps.models.weights import load, read_state

__all__ = [
    "CNNCRF",
    "IMAGENET",
    "UNIT",
    "DeepLabv3MobileNetV2",
    "DeepLabv3PlusXception65",
    "DeepLabv3ResNet101",
    "ESPNet",
    "Normalization",
    "load",
    "read_state",
]

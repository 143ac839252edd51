"""Torch data sets of images and label maps: PASCAL VOC, Cityscapes, CamVid and plain folders.

============  ==============================================================================
VOC           train, val, trainval and, with the masks of SBD, trainaug
Cityscapes    fine or coarse labels, 19 classes
CamVid        11 classes
Folder        a folder of images and one of masks
Splits        train/images, train/labels, train.txt, ... and classes.json
Augmented     a data set, flipped, scaled and cropped at random
scores        a data set, with stored logits
============  ==============================================================================
"""

from fwcrf.apps.data.augment import Augmentation, Augmented
from fwcrf.apps.data.camvid import CamVid
from fwcrf.apps.data.cityscapes import Cityscapes
from fwcrf.apps.data.classes import Classes
from fwcrf.apps.data.folder import Folder, Splits
from fwcrf.apps.data.scores import Scored
from fwcrf.apps.data.segmentation import Pair, Segmentation
from fwcrf.apps.data.voc import VOC

__all__ = [
    "VOC",
    "Augmentation",
    "Augmented",
    "CamVid",
    "Cityscapes",
    "Classes",
    "Folder",
    "Pair",
    "Scored",
    "Segmentation",
    "Splits",
]

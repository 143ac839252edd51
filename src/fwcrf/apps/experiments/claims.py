"""The paper's claims that the experiments test, each by one statement."""

from __future__ import annotations

from enum import Enum

_RIVALS = "MF, PGD, PGM and ADMM"


class Claim(Enum):
    """The experiment that tests a claim, and its statement."""

    BELOW_AFTER_5 = "energy", f"after 5 steps FW, eFW and l2FW have lower energies than {_RIVALS}"
    BELOW_AFTER_10 = "energy", f"after 10 steps FW, eFW and l2FW have lower energies than {_RIVALS}"
    UNIT_STEPS = "energy", "after 5 steps, steps of 1 have lower energies than decreasing steps"
    MEAN_FIELD = "energy", "MF is eFW with lambda 1"
    FIRST_STEP = "energy", "after one step MF, FW, eFW and l2FW have the same labels"
    RANGE_EFW = "lambda", f"eFW has lower energies than {_RIVALS} for at least half of the lambdas"
    RANGE_L2FW = "lambda", f"l2FW has lower energies than {_RIVALS} for at least half of the lambdas"
    ORDER_EFW = "lambdas", "five lambdas of eFW have the paper's order of energies after 20 steps"
    ORDER_L2FW = "lambdas", "five lambdas of l2FW have the paper's order of energies after 20 steps"
    CONVERGED = "long", "steps 21 to 100 of FW and l2FW change the decrease in energy by less than 1 %"
    OVERTAKEN = "long", "after 100 steps PGM has lower energies than l2FW and FW"
    TUNED_EFW = "tune", "lambda of eFW from ten random images costs less than 1 % of the decrease in energy"
    TUNED_L2FW = "tune", "lambda of l2FW from ten random images costs less than 1 % of the decrease in energy"
    PAPER_ABOVE_CNN_9 = (
        "potts-miou",
        "with the paper's Potts weight, every solver has a higher mIoU9 than the CNN",
    )
    PAPER_ABOVE_CNN_18 = (
        "potts-miou",
        "with the paper's Potts weight, every solver has a higher mIoU18 than the CNN",
    )
    TUNED_ABOVE_CNN_9 = (
        "potts-miou",
        "with a Potts model tuned on the first half, every solver has a higher mIoU9 than the CNN",
    )
    TUNED_ABOVE_CNN_18 = (
        "potts-miou",
        "with a Potts model tuned on the first half, every solver has a higher mIoU18 than the CNN",
    )
    BEST_IN_POTTS = "potts-miou", "no solver has an mIoU9 above that of l2FW by 0.05 or more"
    VANILLA_STANDS = "fw-fails", "vanilla Frank-Wolfe changes no weight, with SGD or Adam"
    SOLVERS_MOVE = "fw-fails", "MF, PGD, PGM, ADMM and l2FW change weights"
    SOLVERS_LEARN = (
        "fw-fails",
        "after training, MF, PGD, PGM, ADMM and l2FW have a higher mIoU9 than vanilla Frank-Wolfe",
    )
    CAMVID_POTTS_ABOVE_CNN = (
        "joint",
        "on CamVid, a Potts CRF tuned on val has a higher mean IoU than the CNN",
    )
    CAMVID_PAPER_ABOVE_POTTS = (
        "joint",
        "on CamVid, trained by the paper's recipe, l2FW has a higher mean IoU than the tuned Potts CRF",
    )
    CAMVID_ADAM_ABOVE_POTTS = (
        "joint",
        "on CamVid, trained by Adam, l2FW has a higher mean IoU than the tuned Potts CRF",
    )
    CAMVID_PAPER_PAYS = (
        "joint",
        "on CamVid, trained by the paper's recipe, l2FW has a higher mean IoU than head, then Potts",
    )
    CAMVID_ADAM_PAYS = (
        "joint",
        "on CamVid, trained by Adam, l2FW has a higher mean IoU than head, then Potts",
    )
    CAMVID_PAPER_ABOVE_MF = (
        "joint",
        "on CamVid, trained by the paper's recipe, l2FW and eFW have a higher mean IoU than MF",
    )
    CAMVID_ADAM_ABOVE_MF = (
        "joint",
        "on CamVid, trained by Adam, l2FW and eFW have a higher mean IoU than MF",
    )
    CAMVID_PAPER_BEST = (
        "joint",
        "on CamVid, trained by the paper's recipe, no solver has a higher mean IoU than l2FW",
    )
    VOC_POTTS_ABOVE_CNN = "joint-voc", "on VOC, a Potts CRF tuned on val has a higher mean IoU than the CNN"
    VOC_PAPER_ABOVE_POTTS = (
        "joint-voc",
        "on VOC, trained by the paper's recipe, l2FW has a higher mean IoU than the tuned Potts CRF",
    )
    VOC_ADAM_ABOVE_POTTS = (
        "joint-voc",
        "on VOC, trained by Adam, l2FW has a higher mean IoU than the tuned Potts CRF",
    )
    VOC_PAPER_PAYS = (
        "joint-voc",
        "on VOC, trained by the paper's recipe, l2FW has a higher mean IoU than head, then Potts",
    )
    VOC_ADAM_PAYS = (
        "joint-voc",
        "on VOC, trained by Adam, l2FW has a higher mean IoU than head, then Potts",
    )
    VOC_PAPER_ABOVE_MF = (
        "joint-voc",
        "on VOC, trained by the paper's recipe, l2FW and eFW have a higher mean IoU than MF",
    )
    VOC_ADAM_ABOVE_MF = (
        "joint-voc",
        "on VOC, trained by Adam, l2FW and eFW have a higher mean IoU than MF",
    )
    VOC_PAPER_BEST = (
        "joint-voc",
        "on VOC, trained by the paper's recipe, no solver has a higher mean IoU than l2FW",
    )
    MOST_CLASSES = "per-class", "trained l2FW has a higher IoU than the CNN on most classes"
    MORE_STEPS = "per-class", "10 or 25 steps instead of 5 change mIoU9 of trained l2FW by less than 0.5"
    LEARNED_L2FW = (
        "trainable",
        "learned and fixed steps and lambda of l2FW differ by less than 0.5 in mIoU9, the best of each",
    )
    LEARNED_EFW = (
        "trainable",
        "learned and fixed steps and lambda of eFW differ by less than 0.5 in mIoU9, the best of each",
    )

    @property
    def experiment(self) -> str:
        return self.value[0]

    @property
    def statement(self) -> str:
        return self.value[1]

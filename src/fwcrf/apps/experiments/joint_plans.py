"""The models of ``joint``: a network's head, a temperature and a CRF, and how each is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from fwcrf import solvers
from fwcrf.apps.experiments.divided import Divided
from fwcrf.apps.experiments.feature_files import Sample
from fwcrf.apps.experiments.runs import SHOWN
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.layer import DenseCRF

NUM_STEPS = 5
SOLVERS: dict[str, dict[str, Any]] = {"l2fw": {}, "efw": {"weight": 0.7}, "mf": {}, "pgd": {}}


@dataclass(frozen=True)
class Weights:
    """A Potts model: kernel weights and bandwidths of a CRF with compatibility 1."""

    spatial: float = 1.0
    bilateral: float = 1.0
    xy: float = 80.0
    color: float = 13.0

    def kernels(self) -> list[Spatial | Bilateral]:
        return [Spatial(3.0, self.spatial), Bilateral(self.xy, self.color, self.bilateral)]

    def __str__(self) -> str:
        return (
            f"spatial {self.spatial:g}, bilateral {self.bilateral:g} with {self.xy:g} px and "
            f"{self.color:g} levels"
        )


PAPER = Weights()
# Candidates of tuning; the paper's is the first.
CANDIDATES = [
    Weights(spatial, bilateral, xy, color)
    for (xy, color), spatial, bilateral in product(
        ((80.0, 13.0), (80.0, 6.0), (30.0, 5.0)), (1.0, 0.3), (1.0, 2.0, 4.0)
    )
]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. Rates decrease as in the paper, by a polynomial of power 0.9."""

    name: str
    optimizer: str  # "sgd" with momentum 0.9, or "adam"
    head_rate: float
    crf_rates: dict[str, float]  # by solver
    epochs: int
    batch_size: int = 2
    crop: tuple[int, int] = (184, 240)  # largest height and width of a training crop: a quarter of CamVid's


# The paper's rates: of the two for the CRF that it keeps, the better one for each solver. It has 20 epochs;
# these are 3, so that three seeds take half an hour of two cores.
BY_PAPER = Recipe("paper", "sgd", 1e-4, {"l2fw": 0.01, "pgd": 0.01, "efw": 0.1, "mf": 0.1}, 3)
BY_ADAM = Recipe("Adam", "adam", 3e-5, dict.fromkeys(SOLVERS, 0.02), 2)
RECIPES = (BY_PAPER, BY_ADAM)
# Of the recipe by Adam on VOC, which has a quarter of CamVid's training images.
EPOCHS_ON_VOC = 4


def recipes_for(title: str) -> tuple[Recipe, Recipe]:
    """The two recipes, with the number of epochs for the benchmark of this title."""
    return (BY_PAPER, replace(BY_ADAM, epochs=EPOCHS_ON_VOC)) if title == "VOC" else RECIPES


@dataclass(frozen=True)
class Plan:
    """A model before its training.

    Without ``solver`` there is no CRF. By the paper's recipe the CRF has 3 x L^2 parameters, which start at
    ``potts`` with noise. By the other it has a temperature and two weights, which start at ``potts``.
    Without ``recipe`` nothing is trained.
    """

    label: str
    solver: str | None = None
    potts: Weights = field(default_factory=Weights)
    recipe: Recipe | None = None

    @property
    def has_matrices(self) -> bool:
        return self.recipe is not None and self.recipe.name == BY_PAPER.name

    def crf(self, num_classes: int) -> DenseCRF | None:
        """The CRF. Its output is averaged with its input where it is trained, except with mean field."""
        if self.solver is None:
            return None
        learnable = ("weights", "compatibility") if self.has_matrices else ("weights",)
        return DenseCRF(
            num_classes,
            kernels=self.potts.kernels(),
            solver=solvers.get(self.solver, **SOLVERS[self.solver]),
            num_steps=NUM_STEPS,
            learnable=learnable if self.recipe else (),
            skip=0.5 if self.recipe and self.solver != "mf" else 0.0,
            noise=0.01 if self.has_matrices else 0.0,
            weights="full" if self.has_matrices else "scalar",
        )

    def identity(self) -> dict[str, Any]:
        """All settings, as plain values."""
        return asdict(self) | {"settings": SOLVERS.get(self.solver or ""), "num_steps": NUM_STEPS}


def head_alone(recipe: Recipe) -> Plan:
    """The network trained on without a CRF."""
    return Plan(f"CNN, trained on ({recipe.name})", recipe=recipe)


def potts(weights: Weights, label: str) -> Plan:
    """A Potts CRF that is not trained."""
    return Plan(label, "l2fw", weights)


def together(solver: str, recipe: Recipe, tuned: Weights) -> Plan:
    """Network and CRF trained together, the CRF from the paper's Potts model or from the tuned one."""
    weight = SOLVERS[solver].get("weight")
    shown = SHOWN[solver] + ("" if weight is None else f" {weight:g}")
    start = PAPER if recipe.name == BY_PAPER.name else tuned
    return Plan(f"{shown}, joint ({recipe.name})", solver, start, recipe)


class Joint(nn.Module):
    """Log-probabilities ``(1, L, H, W)`` of a sample: the network's head, a temperature, a CRF."""

    def __init__(self, network: Divided, crf: DenseCRF | None, *, has_temperature: bool) -> None:
        super().__init__()
        self.network = network
        self.net: nn.Module = network.net
        self.crf = crf
        self.log_temperature: nn.Parameter | None = nn.Parameter(torch.zeros(())) if has_temperature else None

    def forward(self, sample: Sample) -> Tensor:
        return self.refine(sample.image, self.logits(sample))

    def logits(self, sample: Sample) -> Tensor:
        """The network's logits of the window of a sample."""
        return self.network.head(sample.features, sample.size, sample.window)

    def refine(self, image: Tensor, logits: Tensor) -> Tensor:
        if self.log_temperature is not None:
            logits = logits / self.log_temperature.exp()
        return logits.log_softmax(1) if self.crf is None else self.crf(image, logits)

    def of_head(self) -> dict[str, nn.Parameter]:
        """Trained parameters of the network, by name."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}

    def of_crf(self) -> dict[str, nn.Parameter]:
        """Trained parameters of the CRF and the temperature, by name."""
        found = {} if self.crf is None else dict(self.crf.named_parameters())
        return found if self.log_temperature is None else found | {"temperature": self.log_temperature}


def model(plan: Plan, network: Divided, num_classes: int, seed: int) -> Joint:
    """The model of a plan before its training."""
    torch.manual_seed(seed)
    learns_temperature = plan.solver is not None and plan.recipe is not None and not plan.has_matrices
    return Joint(network, plan.crf(num_classes), has_temperature=learns_temperature)

"""Training of a ``joint`` model, resumed from its last checkpoint after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fwcrf.apps.experiments.divided import ALIGNED, Window
from fwcrf.apps.experiments.feature_files import Sample
from fwcrf.apps.experiments.joint_plans import Joint, Plan, Recipe
from fwcrf.apps.files.atomic import writing
from fwcrf.apps.models import read_state
from fwcrf.apps.training.order import Order
from fwcrf.apps.training.schedule import poly

CHECKPOINT_EVERY = 25  # steps; a checkpoint takes milliseconds, a step half a second
CHECKPOINT, FINISHED = "checkpoint.pt", "finished.pt"


def train(
    model: Joint, plan: Plan, samples: Callable[[int, int], Sample], order: Order, folder: Path, ignore: int
) -> dict[str, float]:
    """Train ``model`` in place; return the largest absolute change of the head and of each CRF parameter.

    ``samples(epoch, index)`` is a training crop. The folder gets the trained parameters. If they are there
    already, they are loaded.
    """
    recipe = plan.recipe
    assert recipe is not None
    start = {name: value.detach().clone() for name, value in _parameters(model).items()}
    if (folder / FINISHED).exists():
        _load(model, read_state(folder / FINISHED))
        return _changes(start, model)
    optimizer = _optimizer(model, plan)
    num_steps = recipe.epochs * order.steps_per_epoch
    step = _resume(model, optimizer, folder)
    while step < num_steps:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * poly(step, num_steps)
        optimizer.zero_grad()
        backward(model, [samples(*key) for key in order.batch(step)], ignore)
        optimizer.step()
        step += 1
        if step % CHECKPOINT_EVERY == 0 or step == num_steps:
            state = {name: value.detach() for name, value in _parameters(model).items()}
            _write(
                folder / CHECKPOINT,
                {"step": step, "parameters": state, "optimizer": optimizer.state_dict()},
            )
    _write(folder / FINISHED, {name: value.detach() for name, value in _parameters(model).items()})
    return _changes(start, model)


def backward(model: Joint, batch: list[Sample], ignore: int) -> None:
    """Add the gradients of the mean of -log p(label) over the labelled pixels of a batch."""
    counted = sum(int((sample.truth != ignore).sum()) for sample in batch)
    for sample in batch:
        loss = F.nll_loss(model(sample), sample.truth, ignore_index=ignore, reduction="sum")
        if not loss.isfinite():
            raise ValueError(f"the loss is {loss.item()}; expected a finite one. Lower the learning rates.")
        (loss / max(1, counted)).backward()


def crop(size: tuple[int, int], most: tuple[int, int], rng: np.random.Generator) -> Window:
    """A random window of at most ``most`` pixels along each axis. It begins at a multiple of ``ALIGNED``."""
    first = [
        ALIGNED * int(rng.integers(-(-max(0, length - part) // ALIGNED) + 1))
        for length, part in zip(size, most, strict=True)
    ]
    rows, columns = (slice(a, min(a + m, n)) for a, m, n in zip(first, most, size, strict=True))
    return rows, columns


def _optimizer(model: Joint, plan: Plan) -> torch.optim.Optimizer:
    recipe: Recipe | None = plan.recipe
    assert recipe is not None
    crf_rate = 0.0 if plan.solver is None else recipe.crf_rates[plan.solver]
    groups = [
        {"params": list(each.values()), "lr": rate, "initial_lr": rate}
        for each, rate in ((model.of_head(), recipe.head_rate), (model.of_crf(), crf_rate))
        if each
    ]
    if recipe.optimizer == "adam":
        return torch.optim.Adam(groups)
    return torch.optim.SGD(groups, momentum=0.9)


def _parameters(model: Joint) -> dict[str, Tensor]:
    parts = {"head": model.of_head(), "crf": model.of_crf()}
    return {f"{part}.{name}": value for part, each in parts.items() for name, value in each.items()}


def _resume(model: Joint, optimizer: torch.optim.Optimizer, folder: Path) -> int:
    """Load the checkpoint, if any; return the number of steps taken."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    stored = torch.load(path, map_location="cpu", weights_only=True)
    _load(model, stored["parameters"])
    optimizer.load_state_dict(stored["optimizer"])
    return stored["step"]


def _load(model: Joint, state: dict[str, Tensor]) -> None:
    own = _parameters(model)
    if own.keys() != state.keys():
        raise ValueError(f"a stored run has parameters {sorted(state)}; expected {sorted(own)}.")
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        torch.save(content, file)


def _changes(start: dict[str, Tensor], model: Joint) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in _parameters(model).items():
        key = "network" if name.startswith("head.") else name.removeprefix("crf.")
        found[key] = max(found.get(key, 0.0), float((value.detach() - start[name]).abs().max()))
    return found

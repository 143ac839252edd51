"""Labels from scores and settings, then the energies of three solvers, step by step.

The computation is that of ``fwcrf.refine``, split so that operators are cached between requests, labels are
sent before energies, and an obsolete request stops within a step.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf import examples, pairwise, solvers
from fwcrf.apps.demo import presets
from fwcrf.apps.demo.colours import colour_scores
from fwcrf.apps.demo.pictures import BUNDLED
from fwcrf.apps.demo.request import Request
from fwcrf.apps.demo.scribbles import Stroke, drawn
from fwcrf.apps.demo.sessions import Given, Picture, Result, Session
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.inputs.arrays import check_label_axis
from fwcrf.inputs.masks import Known
from fwcrf.inputs.resample import Align, aligned
from fwcrf.inputs.scores import rarity, read_scores
from fwcrf.inputs.tiles import sample
from fwcrf.kernels import Bilateral, Operator, Spatial
from fwcrf.rounding import nearest

Event = dict[str, Any]


class Stale(Exception):
    """A newer request has replaced this one."""


def answer(session: Session, request: Request, stale: Callable[[], bool]) -> Iterator[Event]:
    """Yield events: ``labels`` once, then ``energy`` for every step of every solver, then ``end``."""
    picture = session.picture
    if picture is None:
        raise ValueError("there is no picture yet; expected one to be chosen first.")
    given = {"network": session.network, "file": session.uploaded}.get(request.scores)

    def check() -> None:
        if stale():
            raise Stale

    started = time.perf_counter()
    with session.lock, torch.no_grad():
        check()
        logits, scribbles = _scores(session, request, picture, given)
        operators, weights = _operators(session, request, picture)
        unary = unary_from_logits(Known(None, None, scribbles).constrain(logits))
        model = presets.arguments(request.preset)
        if request.balance:
            grid = picture.values.shape[:2]
            some = logits.unflatten(0, grid)[sample(slice(0, size) for size in grid)]
            unary -= request.balance * (rarity(some.flatten(0, 1)) if given is None else given.rarity)
        potts = {"compat": model["compatibility"], "self_edges": model["self_edges"]}

        def energy_of(unary: Tensor) -> Energy:
            return Energy(pairwise.dense(operators, unary.shape[-1], weights=weights, **potts), unary)

        f = energy_of(unary)
        prepared = time.perf_counter()
        path, seconds = _path(f, request, request.solver, check)
    shape = picture.values.shape[:2]
    alone = logits.argmax(-1).to(torch.uint8)
    labels = path[-1].view(shape).numpy()
    session.result = Result(request, picture, given, labels)
    yield {
        "event": "labels",
        "width": shape[1],
        "height": shape[0],
        "num_labels": logits.shape[-1],
        "scores": _packed(alone),
        "labels": _packed(path[-1]),
        "changed": float((alone != path[-1]).float().mean()),
        "milliseconds": {"prepare": 1e3 * (prepared - started), "solve": 1e3 * seconds},
    }
    for name in dict.fromkeys((request.solver, *request.compare)):
        if name != request.solver:
            with torch.no_grad():
                path, _ = _path(f, request, name, check)
        # A Potts energy does not depend on labels that occur nowhere, and most of 21 labels do not.
        used, numbers = torch.unique(torch.stack(path), return_inverse=True)
        g = energy_of(unary[:, used.long()])
        for k, found in enumerate(numbers):
            check()
            with torch.no_grad():
                energy = float(g.of_labels(found))
            yield {"event": "energy", "solver": name, "k": k, "energy": energy}
    yield {"event": "end"}


def warm_up() -> None:
    """Solve a small problem, so that lazy imports do not delay the first visitor."""
    values = np.zeros((16, 16, 3), np.uint8)
    values[:, 8:] = 200
    strokes = Stroke(0, 2.0, [(2.0, 8.0)]), Stroke(1, 2.0, [(13.0, 8.0)])
    session = Session(Picture(values, "warm-up", bundled=False))
    list(answer(session, replace(Request.of({}), strokes=strokes), lambda: False))
    network_scores(next(iter(BUNDLED)), (16, 16))


def read_logits(
    values: np.ndarray, kind: str, shape: tuple[int, int], align: Align = "centers"
) -> tuple[Tensor, Tensor]:
    """Logits ``(n, L)`` at the size of a picture, from the values of a file, and the rarity of the labels."""
    scores = read_scores(values, 2, from_logits=kind == "logits", from_labels=kind == "labels")
    check_label_axis(shape, scores.located)
    alignment = aligned(shape, scores.located.grid, align, scores.located.name)
    return scores.logits(slice(None), tuple(slice(0, size) for size in shape), alignment), scores.rarity()


def network_scores(name: str, shape: tuple[int, int]) -> Given | None:
    """Logits of a network at the size of a photograph; None if ``fwcrf.examples`` does not have it."""
    if name not in examples.NAMES:
        return None
    example = examples.load(name)
    return Given(*read_logits(example.logits, "logits", shape), name, "network", names=example.names)


def _scores(
    session: Session, request: Request, picture: Picture, given: Given | None
) -> tuple[Tensor, Tensor | None]:
    """Logits ``(n, L)`` and scribbles ``(n,)``. Scribbles are None without strokes."""
    shape = picture.values.shape[:2]
    scribbles = drawn(request.strokes, shape) if request.strokes else None  # type: ignore[arg-type]
    if request.scores != "scribbles":
        if given is None:
            missing = {"file": "expected a file of them", "network": "the network has seen examples only"}
            raise ValueError(f"there are no scores yet; {missing[request.scores]}.")
        logits = given.logits
        if scribbles is not None and scribbles.max() >= logits.shape[-1]:
            raise ValueError(
                f"there are strokes of label {scribbles.max()}, and the scores have {logits.shape[-1]} "
                "labels, from 0; clear these strokes."
            )
    elif scribbles is None:
        raise ValueError("draw strokes for at least two labels.")
    else:
        key = (picture, request.strokes_key, request.num_labels, request.trust)
        logits = session.remember(
            "colours",
            key,
            lambda: torch.from_numpy(
                colour_scores(picture.values, scribbles, request.num_labels, trust=request.trust)
            ).flatten(0, 1),
        )
    return logits, None if scribbles is None else torch.from_numpy(scribbles).flatten()


def _operators(session: Session, request: Request, picture: Picture) -> tuple[list[Operator], list[float]]:
    """Operators and weights of the kernels, in the order of ``kernels_of``."""
    kernels = kernels_of(request)
    image = torch.from_numpy(picture.values.astype(np.float32)).permute(2, 0, 1)
    operators = [
        session.remember(
            type(kernel).__name__,
            (picture, replace(kernel, weight=1.0)),
            lambda kernel=kernel: kernel.operator(image),
        )
        for kernel in kernels
    ]
    return operators, [float(kernel.weight) for kernel in kernels]  # type: ignore[arg-type]


def kernels_of(request: Request) -> list[Spatial | Bilateral]:
    """Kernels of a request whose weight is not 0. Method and normalization are the preset's."""
    every = [
        replace(kernel, **getattr(request, kind)) for kind, kernel in presets.kernels(request.preset).items()
    ]
    return [kernel for kernel in every if kernel.weight]


def _path(f: Energy, request: Request, name: str, check: Callable[[], None]) -> tuple[list[Tensor], float]:
    """Labels of each iterate, start included, in uint8; and the seconds of the steps without rounding."""
    path: list[Tensor] = []
    rounding_seconds = 0.0

    def keep(k: int, x: Tensor) -> None:
        nonlocal rounding_seconds
        check()
        begun = time.perf_counter()
        path.append(nearest(x).to(torch.uint8))
        rounding_seconds += time.perf_counter() - begun

    started = time.perf_counter()
    solver = solvers.get(name, **request.settings(name))
    solvers.minimize(f, solver, num_steps=request.num_steps, callback=keep)
    return path, time.perf_counter() - started - rounding_seconds


def _packed(labels: Tensor) -> str:
    return base64.b64encode(labels.numpy().tobytes()).decode()

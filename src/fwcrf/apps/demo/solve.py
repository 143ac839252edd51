"""Labels from scores and settings, then the energies of three solvers, step by step.

The computation is that of ``fwcrf.refine``, split so that operators are cached between requests, labels are
sent before energies, and an obsolete request stops within a step.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf import pairwise, solvers
from fwcrf.apps.demo.colours import colour_scores
from fwcrf.apps.demo.request import Request
from fwcrf.apps.demo.scribbles import Stroke, drawn
from fwcrf.apps.demo.sessions import Picture, Result, Session, Uploaded
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.inputs.masks import Known
from fwcrf.inputs.scores import read_scores
from fwcrf.kernels import Bilateral, Operator, Spatial
from fwcrf.rounding import nearest

Event = dict[str, Any]


class Stale(Exception):
    """A newer request has replaced this one."""


def answer(session: Session, request: Request, stale: Callable[[], bool]) -> Iterator[Event]:
    """Yield events: ``labels`` once, then ``energy`` for every step of every solver, then ``end``."""
    picture, uploaded = session.picture, session.uploaded
    if picture is None:
        raise ValueError("there is no picture yet; expected one to be chosen first.")

    def check() -> None:
        if stale():
            raise Stale

    started = time.perf_counter()
    with session.lock, torch.no_grad():
        check()
        logits, scribbles = _scores(session, request, picture, uploaded)
        operators, weights = _operators(session, request, picture)
        unary = unary_from_logits(Known(None, None, scribbles).constrain(logits))
        f = Energy(pairwise.dense(operators, logits.shape[-1], weights=weights), unary)
        prepared = time.perf_counter()
        path, seconds = _path(f, request, request.solver, check)
    shape = picture.values.shape[:2]
    alone = logits.argmax(-1).to(torch.uint8)
    labels = path[-1].view(shape).numpy()
    session.result = Result(request, picture, uploaded if request.scores == "file" else None, labels)
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
        for k, found in enumerate(path):
            check()
            with torch.no_grad():
                energy = float(f.of_labels(found.long()))
            yield {"event": "energy", "solver": name, "k": k, "energy": energy}
    yield {"event": "end"}


def warm_up() -> None:
    """Solve a small problem, so that lazy imports do not delay the first visitor."""
    values = np.zeros((16, 16, 3), np.uint8)
    values[:, 8:] = 200
    strokes = Stroke(0, 2.0, [(2.0, 8.0)]), Stroke(1, 2.0, [(13.0, 8.0)])
    session = Session(Picture(values, "warm-up", bundled=False))
    list(answer(session, Request(strokes=strokes), lambda: False))


def read_logits(values: np.ndarray, kind: str, shape: tuple[int, int]) -> Tensor:
    """Logits ``(n, L)`` at the size of a picture, from the values of a file."""
    scores = read_scores(values, 2, from_logits=kind == "logits", from_labels=kind == "labels")
    return scores.logits(slice(None), tuple(slice(0, size) for size in shape), shape)


def _scores(
    session: Session, request: Request, picture: Picture, uploaded: Uploaded | None
) -> tuple[Tensor, Tensor | None]:
    """Logits ``(n, L)`` and scribbles ``(n,)``. Scribbles are None without strokes."""
    shape = picture.values.shape[:2]
    scribbles = drawn(request.strokes, shape) if request.strokes else None  # type: ignore[arg-type]
    if request.scores == "file":
        if uploaded is None:
            raise ValueError("there are no scores yet; expected a file of them.")
        logits = uploaded.logits
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
            (picture, *kernel.bandwidths().items()),
            lambda kernel=kernel: kernel.operator(image),
        )
        for kernel in kernels
    ]
    return operators, [float(kernel.weight) for kernel in kernels]  # type: ignore[arg-type]


def kernels_of(request: Request) -> list[Spatial | Bilateral]:
    """Kernels of a request whose weight is not 0."""
    near, alike = request.spatial, request.bilateral
    every = (
        Spatial(xy=near["xy"], weight=near["weight"]),
        Bilateral(xy=alike["xy"], color=alike["color"], weight=alike["weight"]),
    )
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

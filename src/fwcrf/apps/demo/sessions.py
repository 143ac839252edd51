"""Sessions: each visitor's picture, scores and operators, with a common memory limit."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from torch import Tensor

from fwcrf.apps.demo.request import Request
from fwcrf.kernels import Operator

MOST_SESSIONS = 32
MOST_BYTES = 1 << 30
# Seconds after which an unused session is deleted.
LONGEST_REST = 3600.0


@dataclass(frozen=True, eq=False)
class Picture:
    """Picture ``(H, W, 3)`` of uint8, and the name of its photograph or file."""

    values: np.ndarray
    name: str
    bundled: bool


@dataclass(frozen=True, eq=False)
class Uploaded:
    """Scores from a file: logits ``(n, L)`` at the size of the picture, and the options of the reader."""

    logits: Tensor
    name: str
    kind: str
    label_axis: int


@dataclass(frozen=True, eq=False)
class Result:
    """Last labels ``(H, W)`` of uint8, and their inputs."""

    request: Request
    picture: Picture
    uploaded: Uploaded | None
    labels: np.ndarray


@dataclass(eq=False)
class Session:
    """Data of one visitor's page."""

    picture: Picture | None = None
    uploaded: Uploaded | None = None
    result: Result | None = None
    # Cache: the last result of each kind, with the key of its inputs.
    kept: dict[str, tuple[Hashable, Any]] = field(default_factory=dict)
    turn: int = 0  # number of requests; the computation for an older request stops
    used: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def remember(self, kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Result of ``make()``, or the cached result if the key is unchanged."""
        found = self.kept.get(kind)
        if found is None or found[0] != key:
            found = self.kept[kind] = (key, make())
        return found[1]

    @property
    def bytes(self) -> int:
        """Approximate memory of the session."""
        total = 0 if self.picture is None else self.picture.values.nbytes
        total += 0 if self.uploaded is None else self.uploaded.logits.nbytes
        total += 0 if self.result is None else self.result.labels.nbytes
        return total + sum(_bytes(value) for _, value in list(self.kept.values()))


class Sessions:
    """All sessions. The least recently used are deleted above a number or an amount of memory."""

    def __init__(
        self, most: int = MOST_SESSIONS, most_bytes: int = MOST_BYTES, longest_rest: float = LONGEST_REST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._all: OrderedDict[str, Session] = OrderedDict()
        self._most, self._most_bytes, self._longest_rest, self._clock = most, most_bytes, longest_rest, clock
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self) -> str:
        """Name of a new session, which cannot be guessed."""
        name = secrets.token_urlsafe(24)
        with self._lock:
            self._all[name] = Session(used=self._clock())
        self.tidy()
        return name

    def get(self, name: str) -> Session | None:
        """Session by its name. None if it does not exist or was deleted."""
        self.tidy()
        with self._lock:
            session = self._all.get(name)
            if session is not None:
                self._all.move_to_end(name)
                session.used = self._clock()
            return session

    def tidy(self) -> None:
        """Delete expired sessions, and the oldest beyond the limits; the memory limit keeps at least one."""
        with self._lock:
            now = self._clock()
            total = sum(session.bytes for session in self._all.values())
            while self._all:
                oldest = next(iter(self._all.values()))
                many = len(self._all) > self._most or (total > self._most_bytes and len(self._all) > 1)
                if not many and now - oldest.used <= self._longest_rest:
                    break
                oldest.turn += 1
                total -= oldest.bytes
                self._all.popitem(last=False)


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, Operator):
        return sum(_bytes(part) for part in vars(value).values())
    return sum(map(_bytes, value)) if isinstance(value, tuple | list) else 0

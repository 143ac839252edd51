"""What each visitor has: a picture, scores, operators; apart from all others, and bounded together."""

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
# Seconds after which a session that nobody uses is forgotten.
LONGEST_REST = 3600.0


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture ``(H, W, 3)`` of uint8, and where it is from: a photograph's name, or a file's."""

    values: np.ndarray
    name: str
    bundled: bool


@dataclass(frozen=True, eq=False)
class Uploaded:
    """Scores from a file: logits ``(n, L)`` at the size of the picture, and how the file was read."""

    logits: Tensor
    name: str
    kind: str
    label_axis: int


@dataclass(frozen=True, eq=False)
class Result:
    """The last labels ``(H, W)`` of uint8, and what they are of."""

    request: Request
    picture: Picture
    uploaded: Uploaded | None
    labels: np.ndarray


@dataclass(eq=False)
class Session:
    """One visitor's page."""

    picture: Picture | None = None
    uploaded: Uploaded | None = None
    result: Result | None = None
    # The last of each kind, by what they were made from.
    kept: dict[str, tuple[Hashable, Any]] = field(default_factory=dict)
    turn: int = 0  # how many answers were asked for; an answer that is not to the last is given up
    used: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def remember(self, kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, or gave the last time if the key is the same."""
        found = self.kept.get(kind)
        if found is None or found[0] != key:
            found = self.kept[kind] = (key, make())
        return found[1]

    @property
    def bytes(self) -> int:
        """About what it takes in memory."""
        total = 0 if self.picture is None else self.picture.values.nbytes
        total += 0 if self.uploaded is None else self.uploaded.logits.nbytes
        total += 0 if self.result is None else self.result.labels.nbytes
        return total + sum(_bytes(value) for _, value in list(self.kept.values()))


class Sessions:
    """All visitors; those that were away longest are forgotten when there are too many, or too much."""

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
        """A new session; its name cannot be guessed."""
        name = secrets.token_urlsafe(24)
        with self._lock:
            self._all[name] = Session(used=self._clock())
        self.tidy()
        return name

    def get(self, name: str) -> Session | None:
        """A session by its name, None if there is none or no longer."""
        self.tidy()
        with self._lock:
            session = self._all.get(name)
            if session is not None:
                self._all.move_to_end(name)
                session.used = self._clock()
            return session

    def tidy(self) -> None:
        """Forget what is too old, too much or too many; never the one that was used last."""
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

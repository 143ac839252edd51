"""Sessions: each visitor's picture, scores and operators, with a common memory limit."""

from __future__ import annotations

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from torch import Tensor

from fwcrf.apps.demo.request import Request
from fwcrf.inputs.resample import Align
from fwcrf.kernels import Operator
from fwcrf.torch_ops.printed import in_one_line

MOST_SESSIONS = 32
MOST_OF_ONE = 16  # of one visitor
MOST_BYTES = 1 << 30
# Seconds after which an unused session is deleted.
LONGEST_REST = 3600.0


@dataclass(frozen=True, eq=False)
class Picture:
    """Picture ``(H, W, 3)`` of uint8, and the name of its photograph or file."""

    values: np.ndarray
    name: str
    bundled: bool

    __repr__ = in_one_line


@dataclass(frozen=True, eq=False)
class Given:
    """Scores from a file or a network: logits ``(n, L)`` at the size of the picture, and their source."""

    logits: Tensor
    rarity: Tensor  # (1, L), as in ``fwcrf.inputs.scores``
    name: str
    kind: str
    label_axis: int = -1
    align: Align = "centers"
    names: tuple[str, ...] = ()  # of the labels, if known

    __repr__ = in_one_line


@dataclass(frozen=True, eq=False)
class Result:
    """Last labels ``(H, W)`` of uint8, and their inputs."""

    request: Request
    picture: Picture
    given: Given | None  # None if the scores come from scribbles
    labels: np.ndarray

    __repr__ = in_one_line


@dataclass(eq=False)
class Session:
    """Data of one visitor's page."""

    picture: Picture | None = None
    network: Given | None = None
    uploaded: Given | None = None
    result: Result | None = None
    # Cache: the last result of each kind, with the key of its inputs.
    kept: dict[str, tuple[Hashable, Any]] = field(default_factory=dict)
    turn: int = 0  # number of requests; the computation for an older request stops
    used: float = 0.0
    visitor: str = ""  # network address
    lock: Lock = field(default_factory=Lock)

    __repr__ = in_one_line

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
        total += sum(given.logits.nbytes for given in (self.network, self.uploaded) if given is not None)
        total += 0 if self.result is None else self.result.labels.nbytes
        return total + sum(_bytes(value) for _, value in list(self.kept.values()))


class Sessions:
    """All sessions, bounded in number, per visitor too, and in memory.

    Above a bound, the least recently used session of the visitor with most sessions, or most memory, is
    deleted: a visitor who opens many pages loses their own, and no one else's.
    """

    def __init__(
        self, most: int = MOST_SESSIONS, most_bytes: int = MOST_BYTES, longest_rest: float = LONGEST_REST,
        clock: Callable[[], float] = time.monotonic, most_of_one: int = MOST_OF_ONE,
    ) -> None:  # fmt: skip
        self._all: OrderedDict[str, Session] = OrderedDict()
        self._most, self._most_bytes, self._longest_rest, self._clock = most, most_bytes, longest_rest, clock
        self._most_of_one = most_of_one
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, visitor: str = "") -> str:
        """Name of a new session, which cannot be guessed. ``visitor`` is a network address."""
        name = secrets.token_urlsafe(24)
        with self._lock:
            self._all[name] = Session(used=self._clock(), visitor=visitor)
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
        """Delete expired sessions, and sessions beyond the bounds; the memory bound keeps at least one."""
        with self._lock:
            expired = self._clock() - self._longest_rest
            for name in [name for name, session in self._all.items() if session.used < expired]:
                self._delete(name)
            while (visitor := self._above_bounds()) is not None:
                # Sessions are in the order of their last use.
                self._delete(next(name for name, one in self._all.items() if one.visitor == visitor))

    def _above_bounds(self) -> str | None:
        """Visitor who has too much. None if all bounds are kept."""
        number: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for session in self._all.values():
            number[session.visitor] += 1
            size[session.visitor] += session.bytes
        visitor, most = max(number.items(), key=lambda each: each[1], default=("", 0))
        if most > self._most_of_one or len(self._all) > self._most:
            return visitor
        if size.total() > self._most_bytes and len(self._all) > 1:
            return max(size, key=lambda visitor: size[visitor])
        return None

    def _delete(self, name: str) -> None:
        self._all.pop(name).turn += 1  # its computation stops


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, Operator):
        return sum(_bytes(part) for part in vars(value).values())
    return sum(map(_bytes, value)) if isinstance(value, tuple | list) else 0

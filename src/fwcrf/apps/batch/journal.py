"""What a batch has done, line by line in a file beside its outputs.

A line is written when an output is finished and before it is put in its place, with the hash of its bytes and
a key that stands for everything it was made from. So a file whose hash is on a line is whole; with the key of
today, it is what would be made again. Lines that a power failure or another program has spoilt count for
nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import IO, Any, Literal

from fwcrf.storage.errors import FileError

NAME = "fwcrf-batch.jsonl"

State = Literal["missing", "done", "stale", "foreign"]


class Journal:
    """The journal of a folder; closed at the end of a ``with`` block."""

    def __init__(self, folder: Path | str) -> None:
        self.path: Path = Path(folder) / NAME
        self.keys: dict[tuple[str, str], set[str]] = defaultdict(set)
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                self._take(line)
        self.file: IO[bytes] = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        if self.file.tell() and not self.path.read_bytes().endswith(b"\n"):
            self.file.write(b"\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def state(self, output: str, key: str) -> State:
        """What is to be thought of an output: "foreign" if it is not, or no longer, what was written."""
        path = self.path.parent / output
        if not path.exists():
            return "missing"
        keys = self.keys.get((output, _hash(path)))
        if not keys:
            return "foreign"
        return "done" if key in keys else "stale"

    def add(self, output: str, key: str, sha256: str) -> None:
        self.note({"output": output, "key": key, "sha256": sha256})
        self.keys[output, sha256].add(key)

    def note(self, line: dict[str, Any]) -> None:
        # In one call: a process that is killed leaves a whole line or none.
        data = json.dumps(line).encode() + b"\n"
        try:
            whole = self.file.write(data) == len(data)
        except OSError as error:
            raise FileError(f"{self.path} cannot be written: {error.strerror or error}.") from error
        if not whole:
            raise FileError(f"{self.path} cannot be written: {os.strerror(errno.ENOSPC)}.")

    def _take(self, line: bytes) -> None:
        try:
            read = json.loads(line)
            self.keys[read["output"], read["sha256"]].add(read["key"])
        except (ValueError, KeyError, TypeError):
            pass


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()

"""Journal of a batch: a file of lines beside its outputs.

A line is written when an output is finished, before it is renamed into place. It has the hash of the output's
bytes and a key, the hash of its inputs and settings. A file whose hash is in the journal is complete; if the
key is also unchanged, it is up to date. A key without hashes of the inputs' content, as earlier versions
wrote it, equals no key of this version: its output is made again. Damaged lines are ignored.
"""

from __future__ import annotations

import errno
import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal

from fwcrf.apps.files.digest import sha256
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.safe_json import load_json

NAME = "fwcrf-batch.jsonl"

State = Literal["missing", "done", "stale", "foreign"]


class Journal:
    """The journal of a folder, a context manager."""

    def __init__(self, folder: Path | str) -> None:
        self.path: Path = Path(folder) / NAME
        self.keys: dict[tuple[str, str], set[str]] = defaultdict(set)
        if self.path.is_symlink():
            raise FileError(
                f"{self.path} is a symbolic link; expected a journal in the folder. Remove the link."
            )
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                self._parse(line)
        self.file: IO[bytes] = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        if self.file.tell() and not self.path.read_bytes().endswith(b"\n"):
            self.file.write(b"\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def state(self, output: str, key: Callable[[], str]) -> State:
        """State of an output. "foreign": the journal does not know its bytes; "stale": its key changed.

        ``key`` hashes the inputs, so it is called only for an output that is complete.
        """
        path = self.path.parent / output
        # A link may lead out of the folder, or to another output.
        if path.is_symlink():
            return "foreign"
        if not path.exists():
            return "missing"
        keys = self.keys.get((output, sha256(path)))
        if not keys:
            return "foreign"
        return "done" if key() in keys else "stale"

    def add(self, output: str, key: str, sha256: str) -> None:
        self.note({"output": output, "key": key, "sha256": sha256})
        self.keys[output, sha256].add(key)

    def note(self, line: dict[str, Any]) -> None:
        # One write call: a killed process leaves a complete line or none.
        data = json.dumps(line).encode() + b"\n"
        try:
            whole = self.file.write(data) == len(data)
        except OSError as error:
            raise FileError(f"{self.path} cannot be written: {error.strerror or error}.") from error
        if not whole:
            raise FileError(f"{self.path} cannot be written: {os.strerror(errno.ENOSPC)}.")

    def _parse(self, line: bytes) -> None:
        try:
            read = load_json(line, NAME)
            self.keys[read["output"], read["sha256"]].add(read["key"])
        except (ValueError, KeyError, TypeError):
            pass

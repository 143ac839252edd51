"""Hashes of files: equal hashes mean equal content, whatever name, size and modification time say."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE = 1 << 20


def sha256(path: Path | str) -> str:
    """SHA-256 of a file's content in hexadecimal digits, read in pieces of bounded memory."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def content_identity(path: Path | str) -> list[str]:
    """Name and SHA-256 of a regular file; the name alone if it cannot be read."""
    path = Path(path)
    try:
        # A pipe or a device would block, or never end; readers refuse both.
        return [path.name, sha256(path)] if path.is_file() else [path.name]
    except OSError:
        return [path.name]

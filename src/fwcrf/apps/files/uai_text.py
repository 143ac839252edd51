"""Parser for the numbers of a UAI file. Errors name line and token."""

from __future__ import annotations

import gzip
import itertools
import re
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.limits import in_words
from fwcrf.torch_ops.printed import in_one_line

_NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Numbers:
    """All tokens of a file after the leading words, as float64."""

    path: Path
    text: bytes
    skipped: int  # leading words
    values: np.ndarray
    logarithms: bool = False  # tables have logarithms

    __repr__ = in_one_line

    def take(self, at: int, count: int, name: str) -> np.ndarray:
        """``count`` numbers from index ``at`` on. Raises if the file ends before."""
        if count > len(self.values) - at:
            line = self.text.count(b"\n") + 1
            raise FileError(
                f"{self.path} is truncated: it ends at line {line}, after {len(self.values) - at} of {count} "
                f"numbers expected for {name}."
            )
        return self.values[at : at + count]

    def integers(self, at: int, count: int, name: str, low: int, high: int) -> np.ndarray:
        """``take`` as int64. Raises unless all are whole numbers from ``low`` to ``high``."""
        found = self.take(at, count, name)
        wrong = ~((found >= low) & (found <= high) & (found == np.floor(found)))
        if wrong.any():
            self.refuse(at + int(wrong.argmax()), f"{name}, a whole number from {low} to {high}")
        return found.astype(np.int64)

    def refuse(self, at: int, expected: str) -> None:
        """Raise FileError for the token at index ``at``, with its line and the expectation."""
        line, token = place(self.text, self.skipped + at)
        raise FileError(f"{self.path}, line {line}: {token!r}; expected {expected}.")


def read_numbers(path: Path | str, words: tuple[str, ...], limit: int) -> tuple[str, Numbers]:
    """The leading word, one of ``words`` ("" if ``words`` is empty), and the numbers after it."""
    path = Path(path)
    text = _text(path, limit)
    word, skipped, rest = "", 0, text
    if words:
        first = re.match(rb"\s*(\S+)", text)
        if first is None:
            raise FileError(f"{path} is empty; expected {' or '.join(words)}. Was it written completely?")
        word, skipped, rest = first[1].decode("latin-1").upper(), 1, text[first.end() :]
        if word not in words:
            line, token = place(text, 0)
            raise FileError(f"{path}, line {line}: {token!r}; expected {' or '.join(words)}.")
    with warnings.catch_warnings():
        # numpy warns or raises for bad tokens, depending on its version; _check_all_read reports them.
        warnings.simplefilter("ignore")
        try:
            values = np.fromstring(rest, sep=" ") if rest.strip() else np.empty(0)
        except ValueError:
            values = _first_good(rest)
    numbers = Numbers(path, text, skipped, values)
    _check_all_read(numbers, rest)
    return word, numbers


def place(text: bytes, index: int) -> tuple[int, str]:
    """Line number (from 1) and text of a token.

    >>> place(b"MARKOV\\n3\\n2 2 x", 4)
    (3, 'x')
    """
    found = next(itertools.islice(re.finditer(rb"\S+", text), index, None))
    return text.count(b"\n", 0, found.start()) + 1, found[0][:40].decode("latin-1")


def _check_all_read(numbers: Numbers, rest: bytes) -> None:
    """Raise for the first token that is no number: numpy stops there, or within "3x", without an error."""
    values = numbers.values
    if len(values) and np.isnan(values).any():
        numbers.refuse(int(np.isnan(values).argmax()), "a number")
    tokens = len(rest.split()) if len(rest) < 1 << 20 else _count_tokens(rest)
    if tokens != len(values):
        for index, found in enumerate(re.finditer(rb"\S+", rest)):
            if not _NUMBER.fullmatch(found[0]):
                numbers.refuse(index, "a number")
        raise FileError(f"{numbers.path} cannot be read: numpy understood {len(values)} of {tokens} numbers.")


def _count_tokens(text: bytes) -> int:
    space = np.frombuffer(text, np.uint8) <= 32
    return int((~space[1:] & space[:-1]).sum()) + int(not space[0])


def _first_good(text: bytes) -> np.ndarray:
    good = []
    for token in text.split():
        try:
            good.append(float(token))
        except ValueError:
            break
    return np.array(good)


def _text(path: Path, limit: int) -> bytes:
    if path.is_dir():
        raise FileError(f"{path} is a folder; expected a file.")
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            text = (gzip.GzipFile(fileobj=file) if packed else file).read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(text) > limit:
        raise FileError(
            f"{path} has more than {in_words(limit)} of text. If you trust the file, raise the limit "
            "(limit=)."
        )
    return text

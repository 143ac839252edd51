"""Partial results in files written atomically, so that an interrupted experiment can resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.safe_json import load_json


class Kept:
    """Results by key in a JSON file. A different ``about`` (their inputs) invalidates all of them."""

    def __init__(self, path: Path, about: Any) -> None:
        self.path = path
        self.about: Any = json.loads(json.dumps(about))
        self.results: dict[str, Any] = {}
        if path.exists():
            try:
                stored = load_json(path.read_bytes(), str(path))
                if stored["about"] == self.about:
                    self.results = stored["results"]
            except (ValueError, KeyError, TypeError) as error:
                raise FileError(
                    f"{path} does not contain results ({error}); remove it to measure again."
                ) from error

    def __contains__(self, key: str) -> bool:
        return key in self.results

    def __getitem__(self, key: str) -> Any:
        return self.results[key]

    def get(self, key: str, default: Any) -> Any:
        return self.results.get(key, default)

    def __setitem__(self, key: str, result: Any) -> None:
        self.results[key] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self.path) as file:
            file.write(json.dumps({"about": self.about, "results": self.results}).encode())

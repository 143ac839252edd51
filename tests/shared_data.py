"""Data sets that are not part of the repository: in ``FWCRF_DATA``, or in shared/data beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
ROOT = Path(os.environ.get("FWCRF_DATA", BESIDE))


def needs(*parts: str) -> pytest.MarkDecorator:
    """Skip a test where that part of the data is absent."""
    missing = [part for part in parts if not (ROOT / part).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"{missing} not found in {ROOT}: set FWCRF_DATA")

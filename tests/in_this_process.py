"""Pools of workers replaced by work in this process, counted."""

from __future__ import annotations

from typing import Any

import pytest

from fwcrf.apps.batch.local import attempt


def counted_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The items on which pools work from now on, a list that grows; all work is done in this process."""
    count: list[Any] = []

    def run(self, items):
        for i, item in enumerate(items):
            count.append(item)
            yield i, attempt(self.job, item)

    monkeypatch.setattr("fwcrf.apps.batch.local.Pool.run", run)
    return count

"""Jobs on Ray Data: the processors of this machine, or of a cluster.

A cluster needs fwcrf on every machine, and a file system that all machines share. If a worker dies, Ray
starts another one and retries its item. An item fails after three workers died.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from fwcrf.apps.batch.local import Failure, attempt, processors
from fwcrf.optional import needed

_TRIES = 3
# Up to this number of items a block is one item; above it, several.
_MOST_BLOCKS = 10_000


def run(
    job: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    num_workers: int | None = None,
    address: str | None = None,
) -> Iterator[tuple[int, Any]]:
    """Results as from ``fwcrf.apps.batch.local.run``, on the cluster at ``address``, or on one started here.

    ``num_workers`` items are processed at a time, by default one per processor.
    """
    if not items:
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read by the import of ray
    ray = needed("ray", "ray")
    own = not ray.is_initialized()
    if own:
        ray.init(
            # Else Ray joins a cluster that happens to run on this machine, and refuses num_cpus.
            address=address or "local",
            num_cpus=None if address else num_workers or processors(),
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield from _map(job, items, num_workers or int(ray.cluster_resources().get("CPU", 1)))
    finally:
        if own:
            ray.shutdown()


class _Tries:
    """Number of attempts per item. When a worker dies, Ray retries its item without a limit."""

    def __init__(self) -> None:
        self.count: Counter[int] = Counter()

    def begin(self, index: int) -> int:
        self.count[index] += 1
        return self.count[index]


def _map(job: Callable[[Any], Any], items: Sequence[Any], num_workers: int) -> Iterator[tuple[int, Any]]:
    ray, data = needed("ray", "ray"), needed("ray.data", "ray")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False
    tries = ray.remote(num_cpus=0)(_Tries).remote()
    rows = [{"index": i, "item": pickle.dumps(item)} for i, item in enumerate(items)]
    answers = data.from_items(rows, override_num_blocks=min(len(rows), _MOST_BLOCKS)).map(
        partial(_answer, job, tries), num_cpus=1, concurrency=num_workers
    )
    for row in answers.iter_rows():
        yield row["index"], pickle.loads(row["answer"])


def _answer(job: Callable[[Any], Any], tries: Any, row: dict[str, Any]) -> dict[str, Any]:
    ray = needed("ray", "ray")
    if ray.get(tries.begin.remote(row["index"])) > _TRIES:
        answer = Failure(f"it ended {_TRIES} worker processes; was there too little memory?")
    else:
        answer = attempt(job, pickle.loads(row["item"]))
    return {"index": row["index"], "answer": pickle.dumps(answer)}

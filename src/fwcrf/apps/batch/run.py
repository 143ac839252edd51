"""A batch from beginning to end: what is left to do, done by an engine, put in place and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fwcrf.apps.batch import lock
from fwcrf.apps.batch.job import RefineJob, Staged
from fwcrf.apps.batch.journal import Journal
from fwcrf.apps.batch.local import Failure
from fwcrf.apps.batch.local import run as run_locally
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.labels import check_labels_name
from fwcrf.storage.atomic import put_in_place, remove_leftovers
from fwcrf.storage.errors import FileError


class Engine(Protocol):
    """Runs a job over items in any order, past failures: see ``fwcrf.apps.batch.local.run``."""

    def __call__(
        self, job: Callable[[Any], Any], items: Sequence[Any], *, num_workers: int | None
    ) -> Iterator[tuple[int, Any]]: ...


@dataclass(frozen=True)
class Plan:
    """What a batch finds when it starts."""

    todo: list[Item]
    done: int  # finished before, with the same settings
    stale: int  # finished before with other settings; among those to do


@dataclass(frozen=True)
class Outcome:
    """What became of an item: ``error`` is None if its output is in place."""

    item: Item
    error: str | None = None
    warnings: tuple[str, ...] = ()


def run(
    items: Sequence[Item],
    job: RefineJob,
    *,
    num_workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    planned: Callable[[Plan], None] = lambda plan: None,
) -> Iterator[Outcome]:
    """Do what is not done yet, and say of each item what became of it.

    Outputs that are there already, made with the same settings from the same files, are left as they are.
    A file in the way that no batch has written is not touched unless ``overwrite``.

    However it is stopped, each output is whole or absent, and the same call goes on from there.
    """
    folder = Path(job.folder)
    _check_outputs(folder, items)
    with lock.exclusive(folder), Journal(folder) as journal:
        places = {(folder / item.output).parent for item in items}
        for place in places:
            remove_leftovers(place)
        keys = {item: job.key(item) for item in items}
        plan = _plan(journal, items, keys, overwrite)
        planned(plan)
        journal.note({"settings": job.settings.mapping(), "items": len(items), "todo": len(plan.todo)})
        engine = engine or partial(run_locally, prepare=partial(lock.share, job.folder))
        try:
            for index, result in engine(job, plan.todo, num_workers=num_workers):
                item = plan.todo[index]
                if isinstance(result, Staged):
                    result = _settle(journal, folder, item, keys[item], result)
                if isinstance(result, Failure):
                    journal.note({"output": item.output, "error": result.message})
                    yield Outcome(item, result.message)
                else:
                    yield Outcome(item, warnings=result.warnings)
        finally:
            for place in places:
                remove_leftovers(place)


def _check_outputs(folder: Path, items: Sequence[Item]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for item in items:
            check_labels_name(item.output)
            (folder / item.output).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror or error}.") from error


def _plan(journal: Journal, items: Sequence[Item], keys: dict[Item, str], overwrite: bool) -> Plan:
    states = {item: journal.state(item.output, keys[item]) for item in items}
    foreign = [item for item in items if states[item] == "foreign"]
    if foreign and not overwrite:
        raise FileError(
            f"{journal.path.parent / foreign[0].output} is there already and is not what a batch has written"
            f"{f', and {len(foreign) - 1} more like it' if len(foreign) > 1 else ''}; choose another "
            "folder, or allow it to be replaced (overwrite=True, or --overwrite)."
        )
    count = list(states.values()).count
    return Plan([item for item in items if states[item] != "done"], count("done"), count("stale"))


def _settle(journal: Journal, folder: Path, item: Item, key: str, staged: Staged) -> Staged | Failure:
    try:
        journal.add(item.output, key, staged.sha256)
        put_in_place(Path(staged.temporary), folder / item.output)
    except FileNotFoundError:
        return Failure(
            f"what a worker wrote to {staged.temporary} is not to be seen from here; the folder of the "
            "outputs must be one that all machines share"
        )
    except FileError as error:
        return Failure(str(error))
    except OSError as error:
        return Failure(f"{folder / item.output} cannot be written: {error.strerror or error}")
    return staged

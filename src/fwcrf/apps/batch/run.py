"""Run a batch: plan the unfinished items, run them on an engine, rename outputs, write the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from fwcrf.apps.batch import lock
from fwcrf.apps.batch.job import Beside, RefineJob, Staged
from fwcrf.apps.batch.journal import Journal, State
from fwcrf.apps.batch.local import Failure
from fwcrf.apps.batch.local import run as run_locally
from fwcrf.apps.batch.manifest import Item, check_inside
from fwcrf.apps.files.atomic import put_in_place, remove_leftovers
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.labels import check_labels_name

# Of the states of an item's files, the first decides: what is missing or changed is made again.
_URGENCY: tuple[State, ...] = ("foreign", "stale", "missing", "done")


class Engine(Protocol):
    """Function that runs a job over items, in any order: see ``fwcrf.apps.batch.local.run``."""

    def __call__(
        self, job: Callable[[Any], Any], items: Sequence[Any], *, num_workers: int | None
    ) -> Iterator[tuple[int, Any]]: ...


@dataclass(frozen=True)
class Plan:
    """Items to do, and counts of outputs that exist at the start of a batch."""

    todo: list[Item]
    done: int  # finished before, with the same settings and inputs
    stale: int  # finished before with other settings or inputs; also in todo


@dataclass(frozen=True)
class Outcome:
    """Result of an item. ``error`` is None if its output was written."""

    item: Item
    error: str | None = None
    warnings: tuple[str, ...] = ()
    share: float | None = None  # of the pixels that the refinement changed, estimated


def run(
    items: Sequence[Item],
    job: RefineJob,
    *,
    num_workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    planned: Callable[[Plan], None] = lambda plan: None,
) -> Iterator[Outcome]:
    """Yield the outcome of each unfinished item.

    Existing outputs with the same settings and inputs are kept. An existing file that no batch has written
    raises FileError, unless ``overwrite``.

    After an interruption each output is complete or absent, and the same call resumes.
    """
    folder = Path(job.folder)
    _check_outputs(folder, items, job)
    with lock.exclusive(folder), Journal(folder) as journal:
        places = {(folder / item.output).parent for item in items}
        for place in places:
            remove_leftovers(place)
        plan = _plan(journal, items, job, overwrite)
        planned(plan)
        journal.note({"settings": job.settings.mapping(), "items": len(items), "todo": len(plan.todo)})
        engine = engine or partial(run_locally, prepare=partial(lock.share, job.folder))
        try:
            for index, result in engine(job, plan.todo, num_workers=num_workers):
                item = plan.todo[index]
                if isinstance(result, Staged):
                    result = _finish(journal, folder, item, result)
                if isinstance(result, Failure):
                    journal.note({"output": item.output, "error": result.message})
                    yield Outcome(item, result.message)
                else:
                    yield Outcome(item, warnings=result.warnings, share=result.share)
        finally:
            for place in places:
                remove_leftovers(place)


def _check_outputs(folder: Path, items: Sequence[Item], job: RefineJob) -> None:
    owners: dict[str, Item] = {}
    for item in items:
        check_inside(item.output)
        check_labels_name(item.output)
        for name in (item.output, *job.beside(item)):
            other = owners.setdefault(str(PurePosixPath(name)), item)
            if other != item:
                raise FileError(
                    f"{other.image} and {item.image} would both write {name}; use a list with the column "
                    "'output' to name them."
                )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for parent in {PurePosixPath(item.output).parent for item in items}:
            for part in (*reversed(parent.parents), parent):
                # The folder itself may be a link: its user chose it. A link inside leads elsewhere.
                if part.name and (folder / part).is_symlink():
                    raise FileError(
                        f"{folder / part} is a symbolic link, and outputs stay inside {folder}; remove it, "
                        "or choose another folder."
                    )
            (folder / parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror or error}.") from error


def _plan(journal: Journal, items: Sequence[Item], job: RefineJob, overwrite: bool) -> Plan:
    states, foreign = {}, []
    for item in items:
        key = cache(partial(job.key, item))
        each = {name: journal.state(name, key) for name in (item.output, *job.beside(item))}
        foreign += [name for name, state in each.items() if state == "foreign"]
        states[item] = min(each.values(), key=_URGENCY.index)
    if foreign and not overwrite:
        raise FileError(
            f"{journal.path.parent / foreign[0]} exists already and was not written by a batch"
            f"{f', and {len(foreign) - 1} more like it' if len(foreign) > 1 else ''}; choose another "
            "folder, or replace files (overwrite=True, or --overwrite)."
        )
    count = list(states.values()).count
    return Plan([item for item in items if states[item] != "done"], count("done"), count("stale"))


def _finish(journal: Journal, folder: Path, item: Item, staged: Staged) -> Staged | Failure:
    files = (*staged.beside, Beside(item.output, staged.temporary, staged.sha256))
    name = item.output
    try:
        for one in files:
            name = one.output
            journal.add(name, staged.key, one.sha256)
            put_in_place(Path(one.temporary), folder / name, follow=False)
    except FileNotFoundError:
        return Failure(
            f"a worker wrote {staged.temporary}, which does not exist on this machine; the output folder "
            "must be one that all machines share"
        )
    except FileError as error:
        return Failure(str(error))
    except OSError as error:
        return Failure(f"{folder / name} cannot be written: {error.strerror or error}")
    return staged

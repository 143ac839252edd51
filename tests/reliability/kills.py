"""Work that is killed by SIGKILL at random moments, and begun again.

``python kills.py KIND FOLDER KILLS SEED``, with a kind of ``KINDS``.

Children are forked from a process that has loaded everything, so that each starts at once; it never starts a
thread, for those would not survive. The last line is a JSON record.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "training")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from scenes import write_scenes  # noqa: E402

import fwcrf  # noqa: E402
from fwcrf import graphs  # noqa: E402
from fwcrf.apps.batch.job import RefineJob  # noqa: E402
from fwcrf.apps.batch.local import attempt  # noqa: E402
from fwcrf.apps.batch.manifest import read_manifest  # noqa: E402
from fwcrf.apps.batch.run import run as run_batch  # noqa: E402
from fwcrf.apps.files import read_labels, write_labels  # noqa: E402
from fwcrf.apps.files.settings import Settings, read_settings, write_settings  # noqa: E402
from fwcrf.apps.training import checkpoint  # noqa: E402
from fwcrf.apps.training.checkpoint import Checkpoint  # noqa: E402
from fwcrf.apps.tuning import tune  # noqa: E402


def child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    return pid


def killed(work: Callable[[], None], after: float) -> bool:
    """Whether it was killed before it came to its end."""
    pid = child(work)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"status {status}"
    return os.WIFSIGNALED(status)


def whole(work: Callable[[], None]) -> float:
    start = time.monotonic()
    assert os.waitpid(child(work), 0)[1] == 0
    return time.monotonic() - start


def outputs(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.suffix == ".png"
    }


def inline(job: Any, items: Any, *, num_workers: int | None) -> Any:
    return ((number, attempt(job, item)) for number, item in enumerate(items))


# --- one file after another ------------------------------------------------------------------------


def writers(folder: Path, kills: int, chance: random.Random) -> int:
    """Every kind of file that is written, old or new, but never anything between."""
    labels = [np.full((40, 50), v, np.uint8) for v in (1, 2)]
    volumes = [np.full((8, 9, 7), v, np.uint8) for v in (1, 2)]
    states = [{"w": torch.full((200, 200), float(v))} for v in (1, 2)]
    settings = [Settings(num_steps=v) for v in (1, 2)]
    edge = torch.tensor([[0, 1]])
    models = [fwcrf.SparseMRF(torch.full((300, 4), float(v)), edge, graphs.Potts()) for v in (1, 2)]

    def write(v: int) -> None:
        for name in ("a.png", "a.npy", "a.npz", "a.tif"):
            write_labels(folder / name, labels[v])
        write_labels(folder / "a.nii.gz", volumes[v])
        write_settings(folder / "a.yaml", settings[v], f"the {v}th")
        checkpoint.save(folder / "a.pt", Checkpoint(v + 1, {}, states[v], {}))
        fwcrf.write_uai(folder / "a.uai", models[v])

    def work() -> None:
        while True:
            write(0)
            write(1)

    write(0)
    count = 0
    while count < kills:
        count += killed(work, chance.uniform(0, 0.1))
        for name in ("a.png", "a.npy", "a.npz", "a.tif", "a.nii.gz"):
            found = read_labels(folder / name)
            assert found.min() == found.max() and found.flat[0] in (1, 2), name
        assert read_settings(folder / "a.yaml").num_steps in (1, 2)
        found = checkpoint.read(folder / "a.pt")
        assert (found.model["w"] == found.step).all()
        assert fwcrf.read_uai(folder / "a.uai").unary.unique().numel() == 1
    return count


# --- runs that go on ---------------------------------------------------------------------------------


def batch(folder: Path, kills: int, chance: random.Random) -> int:
    scenes = write_scenes(folder / "scenes", 10)
    items = read_manifest(scenes / "images", scenes / "scores")

    def into(name: str) -> Callable[[], None]:
        def work() -> None:
            done = list(run_batch(items, RefineJob(str(folder / name)), engine=inline))
            assert not any(outcome.error for outcome in done)

        return work

    whole(into("warm"))
    duration = whole(into("whole"))
    expected = outputs(folder / "whole")
    assert len(expected) == 10
    count = number = 0
    while count < kills:
        target = f"out-{number}"
        number += 1
        before: dict[str, bytes] = {}
        # Killed again and again until it is done.
        while count < kills and killed(into(target), chance.uniform(0, duration)):
            count += 1
            now = outputs(folder / target)
            assert now.items() <= expected.items(), "half-written, or other bytes"
            assert before.items() <= now.items(), "lost"
            before = now
        whole(into(target))
        assert outputs(folder / target) == expected
        assert not [p for p in (folder / target).iterdir() if "part" in p.name]
    return count


def train(folder: Path, kills: int, chance: random.Random) -> int:
    import small_run

    small_run.config(folder)

    def into(name: str) -> Callable[[], None]:
        return lambda: small_run.train(folder, name) and None

    whole(into("warm"))
    duration = whole(into("whole"))
    names = ("model.pt", "best.pt")

    def weights(name: str) -> list[Any]:
        return [torch.load(folder / name / file, weights_only=True) for file in names]

    expected = weights("whole")
    tables = [(folder / "whole" / name).read_text() for name in ("train.csv", "validation.csv")]
    count = number = 0
    while count < kills:
        target = f"run-{number}"
        number += 1
        while count < kills and killed(into(target), chance.uniform(0, duration)):
            count += 1
            if (folder / target / "checkpoint.pt").exists():
                checkpoint.read(folder / target / "checkpoint.pt")
        whole(into(target))
        for one, other in zip(weights(target), expected, strict=True):
            assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one), (
                "other weights"
            )
        assert [(folder / target / name).read_text() for name in ("train.csv", "validation.csv")] == tables
    return count


def tuning(folder: Path, kills: int, chance: random.Random) -> int:
    from fwcrf.apps.batch import local

    scenes = write_scenes(folder / "scenes", 2)
    items = read_manifest(scenes / "images", scenes / "scores", truth=scenes / "truth")
    local.Pool.run = lambda self, tasks: ((i, attempt(self.job, task)) for i, task in enumerate(tasks))  # type: ignore

    def into(name: str) -> Callable[[], None]:
        def work() -> None:
            tuned = tune(items, Settings(num_steps=1), num_trials=6, journal=folder / f"{name}.jsonl")
            write_settings(folder / f"{name}.yaml", tuned.settings, repr(tuned.trials))

        return work

    whole(into("warm"))
    duration = whole(into("whole"))
    expected = (folder / "whole.yaml").read_bytes()
    count = number = 0
    while count < kills:
        target = f"tuned-{number}"
        number += 1
        while count < kills and killed(into(target), chance.uniform(0, duration)):
            count += 1
        whole(into(target))
        assert (folder / f"{target}.yaml").read_bytes() == expected
    return count


KINDS = {"writers": writers, "batch": batch, "train": train, "tune": tuning}


def main() -> None:
    kind, folder, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    start = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    count = KINDS[kind](folder, kills, random.Random(seed))
    print(
        json.dumps({"target": f"kills-{kind}", "kills": count, "seconds": round(time.monotonic() - start, 1)})
    )


if __name__ == "__main__":
    main()

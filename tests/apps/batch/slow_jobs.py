"""Jobs for tests of the engines; in a module of their own, where worker processes find them."""

import hashlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fwcrf.apps.batch.job import RefineJob, Staged
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.batch.run import run
from fwcrf.apps.files.atomic import staging
from fwcrf.apps.files.settings import Settings


def act(item):
    """A number squared, or a mishap by name."""
    if item == "raise":
        raise ValueError("a sentence")
    if item == "bug":
        raise KeyError("bug")
    if item == "memory":
        raise MemoryError
    if item == "exit":
        os._exit(3)
    if item == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return item**2


@dataclass(frozen=True)
class CopyJob(RefineJob):
    """Writes what it reads, several times over, slowly and in two parts."""

    seconds: float = 0.0

    def __call__(self, item):
        output, key = Path(self.folder) / item.output, self.key(item)
        content = Path(item.image).read_bytes() * self.settings.num_steps
        with staging(output.parent) as (file, temporary):
            file.write(content[:10])
            file.flush()
            time.sleep(self.seconds)
            file.write(content[10:])
        return Staged(str(temporary), hashlib.sha256(content).hexdigest(), key, ("beware",))


def items_of(folder):
    return [Item(str(path), str(path), f"{path.stem}.npy") for path in sorted(Path(folder).iterdir())]


if __name__ == "__main__":
    source, target, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    job = CopyJob(target, Settings(), seconds=seconds)
    for outcome in run(items_of(source), job, num_workers=2):
        print(outcome.item.output, outcome.error, flush=True)

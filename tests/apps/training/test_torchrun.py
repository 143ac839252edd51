"""Two processes give what one gives with all the images."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_run
import torch
from torch import distributed

from fwcrf.apps.models import read_state

HERE = Path(__file__).parent

# Fixed statistics, dropout, a whole batch in two parts each; then statistics over both processes.
RUNS = {
    "fixed": {"batch_size": 4, "micro_batch": 1, "epochs": 2},
    "shared": {"batch_size": 4, "epochs": 2, "model": {"batch_norm": "trained", "settings": {"dropout": 0}}},
}
SCRIPT = """
import sys
sys.path[:0] = sys.argv[2:4]
from pathlib import Path
import torch
import small_run
from fwcrf.apps.training import train
from fwcrf.apps.training.distributed import joined
from test_torchrun import RUNS

torch.set_num_threads(1)
folder = Path(sys.argv[1])
with joined() as group:
    assert group.size == 2
    for name, changes in RUNS.items():
        config = small_run.config(folder, **changes)
        train(config, folder / f"{name}-2", group=group, network=small_run.network)
"""


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="torch without gloo")
def test_two_processes_are_one_with_the_doubled_batch(tmp_path, num_threads):
    num_threads(1)
    small_run.config(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    paths = [str(HERE), str(HERE.parents[1])]
    run = subprocess.Popen(
        [*command, str(tmp_path / "script.py"), str(tmp_path), *paths],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    for name, changes in RUNS.items():
        small_run.train(tmp_path, f"{name}-1", **changes)
    said, _ = run.communicate(timeout=250)
    assert run.returncode == 0, said
    for name in RUNS:
        one, two = (read_state(tmp_path / f"{name}-{size}" / "model.pt") for size in (1, 2))
        for key, value in one.items():
            torch.testing.assert_close(
                two[key], value, rtol=2e-4, atol=2e-5, msg=lambda m, k=key: f"{k}: {m}"
            )
        for table in ("train.csv", "validation.csv"):
            ours, theirs = (
                list(csv.reader((tmp_path / f"{name}-{size}" / table).read_text().splitlines()))
                for size in (1, 2)
            )
            assert ours[0] == theirs[0] and len(ours) == len(theirs)
            for a, b in zip(ours[1:], theirs[1:], strict=True):
                assert [float(v) for v in a] == pytest.approx([float(v) for v in b], rel=2e-3, abs=1e-5)
        changed = [key for key in one if "running_mean" in key and name == "shared"]
        assert all(one[key].abs().max() > 0 for key in changed)

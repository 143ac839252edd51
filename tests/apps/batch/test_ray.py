"""The engine on Ray: real clusters on this machine, with two workers, some of them killed on the way."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from scenes import write_scenes

from fwcrf.apps.batch.local import attempt

pytest.importorskip("ray.data", reason="needs ray: pip install 'fwcrf[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# A cluster until the standard input is closed.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print("at", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
# The items are numbers; some of them make something happen to the worker that gets them.
ENGINE = """
import json, os, signal, sys, time
from pathlib import Path
from ray.cluster_utils import Cluster
from fwcrf.apps.batch.on_ray import run

def job(item):
    marks, number, mishap = Path(item[0]), item[1], item[2]
    count = len(list(marks.glob(f"{number}-*")))
    (marks / f"{number}-{count}").write_text(str(os.getpid()))
    time.sleep(0.2)
    if mishap == "always" or mishap == "once" and count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if mishap == "raise":
        raise ValueError("a sentence")
    return number ** 2

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
mishaps = {2: "once", 5: "raise", 7: "always"}
items = [(sys.argv[1], i, mishaps.get(i)) for i in range(10)]
found = dict(run(job, items, address=cluster.address))
cluster.shutdown()
print(json.dumps({i: getattr(result, "message", result) for i, result in found.items()}))
"""


@pytest.fixture(scope="module")
def ray_environment(tmp_path_factory):
    """Ray leaves a token in the home folder; logs and sockets in another, which must have a short name."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
        home = str(tmp_path_factory.mktemp("home"))
        # Ray lowers the priority of its workers, and ends one that takes a minute to start: on a busy machine
        # they would import torch for longer.
        patient = {"RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "300"}
        yield {**os.environ, **patient, "HOME": home, "RAY_TMPDIR": short, "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def address(ray_environment):
    """The address of a cluster that several runs use: one takes seconds to start."""
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], env=ray_environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as cluster:  # fmt: skip
        assert cluster.stdin is not None and cluster.stdout is not None
        yield next(line.split()[1] for line in cluster.stdout if line.startswith("at "))
        cluster.stdin.close()
        cluster.wait(60)


@pytest.mark.posix
def test_a_cluster_of_two_nodes_with_workers_that_die(tmp_path, ray_environment):
    done = subprocess.run(
        [sys.executable, "-c", ENGINE, str(tmp_path)], capture_output=True, text=True, env=ray_environment
    )
    assert done.returncode == 0, done.stderr
    found = {int(i): value for i, value in json.loads(done.stdout.splitlines()[-1]).items()}
    failures = {5: "a sentence", 7: "it ended 3 worker processes; was there too little memory?"}
    assert found == {i: failures.get(i, i**2) for i in range(10)}
    tries = {i: len(list(tmp_path.glob(f"{i}-*"))) for i in range(10)}
    assert tries == {i: {2: 2, 7: 3}.get(i, 1) for i in range(10)}
    assert len({path.read_text() for path in tmp_path.iterdir()}) >= 2


@pytest.mark.posix
def test_the_same_bytes_as_alone_after_a_kill(tmp_path, ray_environment, address, fwcrf_command):
    """The whole program, killed on a Ray of its own when some outputs are there, and resumed on a cluster."""
    scenes = write_scenes(tmp_path / "scenes", 6)
    alone = tmp_path / "alone"
    alone.mkdir()
    for i in range(6):
        given = ("-s", scenes / f"scores/{i}.npy", "-o", alone / f"{i}.png")
        assert fwcrf_command("refine", scenes / f"images/{i}.png", *given)[0] == 0

    command = ["batch", scenes / "images", "-s", scenes / "scores", "-j", 2, "--engine", "ray"]
    out = killed_and_resumed(command, tmp_path / "out", ray_environment, (), ("--address", address))
    assert contents(out) == contents(alone)


@pytest.mark.posix
def test_pseudo_labels_after_a_kill(tmp_path, ray_environment, address, fwcrf_command, monkeypatch):
    monkeypatch.setattr(
        "fwcrf.apps.batch.run.run_locally",
        lambda job, items, **_: ((i, attempt(job, item)) for i, item in enumerate(items)),
    )
    scenes = write_scenes(tmp_path / "scenes", 6)
    command = ["pseudo-labels", scenes / "images", "--maps", scenes / "scores", "--power", "16,4", "-j", 2]
    assert fwcrf_command(*command, "-o", tmp_path / "alone")[0] == 0

    command += ["--engine", "ray", "--address", address]
    out = killed_and_resumed(command, tmp_path / "out", ray_environment, (), ())
    assert contents(out) == contents(tmp_path / "alone")


def killed_and_resumed(command, out, environment, first, then):
    """The output folder of a command with six items, killed when two of them are done, and run again."""
    program = [sys.executable, "-m", "fwcrf", *map(str, command), "-o", str(out)]
    with subprocess.Popen(
        [*program, *first], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        while running.poll() is None and len(list(out.glob("*.png"))) < 2:
            time.sleep(0.02)
        running.kill()
    assert running.returncode == -signal.SIGKILL
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.png")}
    done = subprocess.run([*program, *then], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{6 - len(before)} refined, {len(before)} done before, 0 failed" in done.stderr
    assert before.items() <= {p.name: p.stat().st_mtime_ns for p in out.glob("*.png")}.items()
    return out


def contents(folder):
    return {p.name: p.read_bytes() for p in Path(folder).glob("*.png")}

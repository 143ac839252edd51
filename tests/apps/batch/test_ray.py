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

pytest.importorskip("ray.data", reason="needs ray: pip install 'fwcrf[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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


@pytest.fixture
def ray_environment(tmp_path_factory):
    """Ray leaves a token in the home folder; logs and sockets in another, which must have a short name."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
        home = str(tmp_path_factory.mktemp("home"))
        yield {**os.environ, "HOME": home, "RAY_TMPDIR": short, "PYTHONWARNINGS": "ignore"}


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


def test_the_same_bytes_as_alone_after_a_kill(tmp_path, ray_environment, fwcrf_command):
    """The whole program on Ray, killed when some of its outputs are there, and resumed."""
    scenes = write_scenes(tmp_path / "scenes", 6)
    alone, out = tmp_path / "alone", tmp_path / "out"
    alone.mkdir()
    for i in range(6):
        given = ("-s", scenes / f"scores/{i}.npy", "-o", alone / f"{i}.png")
        assert fwcrf_command("refine", scenes / f"images/{i}.png", *given)[0] == 0

    given = (scenes / "images", "-s", scenes / "scores", "-j", 2, "-o", out, "--engine", "ray")
    ray = [sys.executable, "-m", "fwcrf", "batch", *map(str, given)]
    with subprocess.Popen(
        ray, env=ray_environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as batch:
        while batch.poll() is None and len(list(out.glob("*.png"))) < 2:
            time.sleep(0.02)
        batch.kill()
    assert batch.returncode == -signal.SIGKILL
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.png")}
    done = subprocess.run(ray, env=ray_environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{6 - len(before)} refined, {len(before)} done before, 0 failed" in done.stderr
    assert before.items() <= {p.name: p.stat().st_mtime_ns for p in out.glob("*.png")}.items()
    assert contents(out) == contents(alone)


def contents(folder):
    return {p.name: p.read_bytes() for p in Path(folder).glob("*.png")}

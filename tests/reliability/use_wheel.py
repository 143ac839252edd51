"""Use the installed package as a stranger would: `fwcrf refine`, `fwcrf demo`, one OpenMP runtime.

Run with the Python of an environment that holds the wheel, from a folder without sources. It fails where a
C++ compiler is in PATH: the wheel must do without.
"""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

import numpy as np

FWCRF = str(Path(sysconfig.get_path("scripts")) / "fwcrf")
# It has to be asked in a new process, whose first import is either torch or the package.
RUNTIMES = """
import re
{imports}
import numpy as np, torch, fwcrf
torch.set_num_threads(2)
torch.rand(600, 600) @ torch.rand(600, 600)
fwcrf.refine(np.zeros((200, 300, 3), np.uint8), np.full((200, 300, 4), 0.25, np.float32))
assert fwcrf._core.openmp(), "built without OpenMP"
lines = open("/proc/self/maps").read()
print(*sorted({{*re.findall(r"/\\S*lib(?:g|i|)omp\\S*", lines)}}))
"""


def no_compiler():
    found = [
        name for name in ("cc", "c++", "gcc", "g++", "clang", "clang++", "cl", "nvcc") if shutil.which(name)
    ]
    assert not found, f"compilers in PATH: {found}; run with a PATH that has none"


def one_openmp_runtime():
    for imports in ("import torch", "import fwcrf; fwcrf.refine"):
        done = subprocess.run(
            [sys.executable, "-c", RUNTIMES.format(imports=imports)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        runtimes = done.stdout.split()
        assert len(runtimes) == 1, f"after {imports!r}: {runtimes}"
        print(f"after {imports!r} one OpenMP runtime: {runtimes[0]}")


def refine(folder):
    from PIL import Image

    rng = np.random.default_rng(0)
    truth = np.zeros((120, 160), int)
    truth[30:90, 40:120] = 1
    image = np.where(truth[..., None] == 1, (200, 60, 40), (40, 90, 160)) + rng.normal(0, 5, (120, 160, 3))
    Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / "image.png")
    scores = 0.6 * np.eye(2)[truth] + rng.random((120, 160, 2))
    np.save(folder / "scores.npy", scores.astype(np.float32))
    command = [FWCRF, "refine", "image.png", "-s", "scores.npy", "--from", "logits", "-o", "labels.png"]
    subprocess.run(command, check=True, cwd=folder, timeout=300)
    before, after = scores.argmax(-1) != truth, np.asarray(Image.open(folder / "labels.png")) != truth
    assert after.mean() < before.mean() / 4, (before.mean(), after.mean())
    print(f"fwcrf refine: {before.mean():.1%} of pixels wrong before, {after.mean():.1%} after")


def demo():
    command = [FWCRF, "demo", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://\S+", server.stderr.readline())[0]
            page = asked(address).decode()
            assert "<title>" in page, page[:200]
            changed = refined_by_the_page(address)
            server.send_signal(signal.SIGINT)
            rest = server.communicate(timeout=60)[1]
        finally:
            server.kill()
    assert "Traceback" not in rest and server.returncode in (0, 130), (server.returncode, rest)
    print(
        f"fwcrf demo: served {len(page)} characters at {address}, refined a photograph ({changed:.1%} of its "
        f"labels changed), and ended with status {server.returncode}"
    )


def asked(address, headers=None, body=None):
    """The body of the answer to GET, or to POST where there is something to send."""
    with urllib.request.urlopen(urllib.request.Request(address, body, headers or {}), timeout=120) as answer:
        assert answer.status == 200
        return answer.read()


def refined_by_the_page(address):
    """The part of a bundled photograph's labels that a refinement changes, asked for as the page does."""
    from PIL import Image

    import fwcrf

    begun = json.loads(asked(f"{address}api/session", {"X-Fwcrf": "1"}, b""))
    headers = {"X-Fwcrf": "1", "X-Session": begun["session"]}
    name = begun["pictures"][0]["name"]
    shown = json.loads(asked(f"{address}api/picture?bundled={name}", headers, b""))
    wanted = {"scores": "network", "num_labels": 21, "compare": []}
    lines = asked(f"{address}api/solve", headers, json.dumps(wanted).encode()).splitlines()
    assert json.loads(lines[-1]) == {"event": "end"}, lines[-1]
    mask = np.asarray(Image.open(io.BytesIO(asked(f"{address}api/mask", headers))))
    assert mask.shape == (shown["height"], shown["width"])
    logits = fwcrf.examples.load(name)[1]
    given = np.asarray(Image.fromarray(logits.argmax(-1).astype(np.uint8)).resize(mask.shape[::-1], 0))
    changed = float((mask != given).mean())
    assert 0 < changed < 0.5, f"{changed:.1%} of the labels changed"
    return changed


if __name__ == "__main__":
    no_compiler()
    refine(Path.cwd())
    demo()
    one_openmp_runtime()

"""All fuzz targets, a million cases in all: ``python fuzz_all.py [SHARE]``.

Each target runs in a process of its own; where atheris is installed, the readers of files also run guided by
coverage. Records go to ``reliability-results/fuzz.jsonl``. SHARE is a factor on the numbers of cases.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = Path("reliability-results") / "fuzz.jsonl"

# Cases at random. A case of the public interface takes a hundred times as long as one of a reader.
CASES = {
    "image": 120_000,
    "scores": 80_000,
    "labels": 80_000,
    "settings": 40_000,
    "config": 40_000,
    "manifest": 60_000,
    "weights": 40_000,
    "safetensors": 100_000,
    "checkpoint_file": 40_000,
    "uai": 100_000,
    "native_simplex": 120_000,
    "native_lattice": 60_000,
    "native_grid": 80_000,
    "native_pruning": 60_000,
    "native_model": 6_000,
    "native_graph": 20_000,
    "native_arguments": 100_000,
    "native_memory": 60_000,
    "refine": 4_000,
    "refine_points": 6_000,
    "layer": 3_000,
    "meta": 3_000,
    "energy": 3_000,
    "operators": 10_000,
    "dropin": 10_000,
}
GUIDED = {"image": 40_000, "scores": 20_000, "settings": 10_000, "manifest": 20_000, "uai": 40_000}


def main() -> int:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    only = sys.argv[2:]
    RESULTS.parent.mkdir(exist_ok=True)

    total = failed = 0
    runs = [(name, cases, ()) for name, cases in CASES.items()]
    if importlib.util.find_spec("atheris"):
        runs += [(name, cases, ("--atheris",)) for name, cases in GUIDED.items()]
    for name, cases, more in runs:
        if only and name not in only:
            continue
        command = [sys.executable, HERE / "fuzz.py", name, "--cases", str(int(cases * share)), *more]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            failed += 1
            print(f"{name}: status {done.returncode}\n{done.stderr[-3000:]}", flush=True)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                total += json.loads(line)["cases"]
                print(line, flush=True)
                with open(RESULTS, "a") as file:
                    file.write(line + "\n")
    print(f"{total} cases, {failed} targets with a find")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""The long versions of the reliability tests: ``python long_runs.py [NAME...]``.

Records go to ``reliability-results/long.jsonl``, one JSON line each.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
RESULTS = Path("reliability-results") / "long.jsonl"

import numpy as np  # noqa: E402
import torch  # noqa: E402


def threads() -> dict[str, Any]:
    """Eight threads for a minute."""
    from threads import compare

    torch.set_num_threads(1)
    return {"threads": 8, "seconds": 60, "answers": compare(8, seconds=60, rounds=1)}


def memory(times: int = 10_000) -> dict[str, Any]:
    """Ten thousand refinements; growth against the end of the warm-up."""
    import work

    torch.set_num_threads(1)
    for seed in range(200):
        work.refine(seed % 10)
    gc.collect()
    start = most = work.resident()
    for seed in range(times):
        work.refine(seed % 10)
        if seed % 500 == 499:
            gc.collect()
            most = max(most, work.resident())
    growth = most / start - 1
    assert growth < 0.02, f"{100 * growth:.1f} % more memory"
    return {"refinements": times, "start_mb": round(start / 1e6, 1), "growth_percent": round(100 * growth, 2)}


def kills(count: int = 50) -> dict[str, Any]:
    """Every kind of work, killed fifty times."""
    found = {}
    for kind in ("writers", "batch", "train", "tune"):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, HERE / "kills.py", kind, folder, str(count), "1"],
                stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        found[kind] = json.loads(done.stdout)["kills"]
    return found


def bits() -> dict[str, Any]:
    """Differences between numbers of threads and instruction sets, on larger images."""
    from helpers import environment, in_process
    from test_bits import with_threads

    expected, isa = with_threads(1)
    found = {}

    def compared(answer: list[np.ndarray]) -> dict[str, float]:
        labels, x, solved, p, energy, *gradients = answer
        labels_0, x_0, solved_0, p_0, energy_0, *gradients_0 = expected
        return {
            "probabilities": float(max(np.abs(x - x_0).max(), np.abs(p - p_0).max())),
            "labels_changed": int((labels != labels_0).sum() + (solved != solved_0).sum()),
            "labels": labels.size + solved.size,
            "energy_relative": float((np.abs(energy - energy_0) / np.abs(energy_0)).max()),
            "gradients_relative": float(
                max(
                    np.abs(a - b).max() / np.abs(b).max() for a, b in zip(gradients, gradients_0, strict=True)
                )
            ),
        }

    for count in (1, 2, 4):
        found[f"{count} threads"] = compared(with_threads(count)[0])
    for name in ("generic", "avx2", "avx512"):
        with environment(FWCRF_ISA=name):
            answer, used = in_process(with_threads, 1, timeout=300)
        if used == name:
            found[name] = compared(answer)
    return {"against": f"1 thread, {isa}", **found}


RUNS = {run.__name__: run for run in (threads, memory, kills, bits)}


def main() -> int:
    RESULTS.parent.mkdir(exist_ok=True)
    for name in sys.argv[1:] or RUNS:
        start = time.monotonic()
        record = {"run": name, **RUNS[name](), "took": round(time.monotonic() - start, 1)}
        print(json.dumps(record), flush=True)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

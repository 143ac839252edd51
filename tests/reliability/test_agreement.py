"""Independent paths to the same result agree: half a minute of ``make agree``, with a new seed each time."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import agree
import agreement_cases
import agreement_solvers
import pytest
import torch

from fwcrf.engine.model import Model

SECONDS, LEAST = 0.8, 3


def need_peer(kind):
    """The drop-in has a second path only where pydensecrf is installed."""
    if kind == "dropin":
        pytest.importorskip("pydensecrf.densecrf", reason="make .venv/.peers installs it")


@pytest.mark.parametrize("kind", agree.kinds())
def test_independent_paths_agree(kind, num_threads):
    need_peer(kind)
    num_threads(1)
    run = agree.Run(None, None)
    until, done = time.monotonic() + SECONDS, 0
    try:
        while done < LEAST or time.monotonic() < until:
            run.case(kind)
            done += 1
    finally:
        agreement_solvers.close_workers()
    lines = "\n".join(f"{found['said']}\n  {found['replay']}" for found in run.state["found"])
    assert not run.state["found"], f"seed {run.seed}:\n{lines}"
    assert sum(run.counts(kind).values()) == done


@pytest.mark.parametrize("kind", [kind for kind in agree.kinds() if kind != "isa"])
def test_most_cases_are_compared(kind, num_threads):
    """A case that ends as a tie or without a second path tests nothing."""
    need_peer(kind)
    num_threads(1)
    run = agree.Run(None, 5)
    for _ in range(4):
        run.case(kind)
    assert run.counts(kind)["agreed"] >= 2, run.counts(kind)


def test_a_wrong_result_is_found(monkeypatch, capsys):
    """The engine's result, off by a hundred thousandth in one entry."""
    right = Model.run

    def wrong(self, x, unary, updates):
        found = right(self, x, unary, updates).clone()
        found[..., 0, 0] += 1e-5
        return found

    monkeypatch.setattr(Model, "run", wrong)
    run = agree.Run(None, 3)
    for _ in range(30):
        run.case("engine")
    assert run.counts("engine")["disagreed"] > 3
    said = run.state["found"][0]["replay"]
    assert said.startswith("python tests/reliability/agree.py engine --seed 3 --case ")
    assert said in capsys.readouterr().err


def test_a_jump_within_rounding_is_a_tie():
    found, tolerance, rounding = [torch.tensor([1.0])], 1e-6, 1e-7
    jumps = lambda noise, seed: [torch.tensor([float(noise > 0 and seed == 3)])]  # noqa: E731
    with pytest.raises(agreement_cases.Tie):
        agreement_cases.agree(found, jumps, tolerance, rounding)
    with pytest.raises(AssertionError, match="1 apart, tolerance 1e-06"):
        agreement_cases.agree(found, lambda noise, seed: [torch.zeros(1)], tolerance, rounding)


def test_cases_are_functions_of_seed_kind_and_number(monkeypatch):
    def kind(choices):
        seen.append([choices.integer(0, 10**6) for _ in range(3)])

    monkeypatch.setattr(agree, "kinds", lambda: {"one": kind, "other": kind})
    seen = []
    for case in (("one", 1, 0), ("one", 1, 0), ("one", 1, 1), ("one", 2, 0), ("other", 1, 0)):
        assert agree.outcome(*case) == ("agreed", "")
    assert seen[0] == seen[1] and len({tuple(s) for s in seen}) == 4


def interrupted(process, state):
    """What a run that has written its state prints on Ctrl-C."""
    try:
        until = time.monotonic() + 60
        while not state.exists() and time.monotonic() < until:
            time.sleep(0.1)
        for _ in range(4):
            # Python loses a KeyboardInterrupt that is raised in a callback of its import system or collector.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=20)[1]
        raise AssertionError("The run goes on after four interrupts in 80 s.")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.posix
def test_an_interrupted_run_continues(tmp_path):
    """Ctrl-C leaves a whole file, and the next run goes on with its seed and its numbers."""
    state = tmp_path / "agree.json"
    command = [sys.executable, Path(agree.__file__), "lattice", "--state", state]
    process = subprocess.Popen([*command, "--seed", "11"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = interrupted(process, state)
    assert process.returncode == 0 and b"the same command continues" in said
    before = json.loads(state.read_text())
    done = sum(before["counts"]["lattice"].values())
    assert before["seed"] == 11 and done > 0 and os.listdir(tmp_path) == ["agree.json"]
    subprocess.run([*command, "--cases", str(done + 5)], check=True, capture_output=True)
    after = json.loads(state.read_text())
    assert after["seed"] == 11 and sum(after["counts"]["lattice"].values()) == done + 5

"""``fwcrf bench --device``: the report, of the CPU, of a device that is wrong, and of none."""

import pytest
import torch

from fwcrf.apps.bench import __main__ as bench
from fwcrf.apps.bench import device


def test_the_report_of_the_cpu(capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(["--device", "cpu", "--quick", "--rounds", "1"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    for part in ("# fwcrf on cpu", "native code", "bilateral kernel", "mf, gradient", "l2fw, forward"):
        assert part in out
    assert "NO" not in out and "The device agrees with the CPU." in out


def test_a_device_that_disagrees_ends_with_status_1(monkeypatch, capsys):
    wrong = [device.Check("bilateral kernel", float("nan"), 1e-4)]
    monkeypatch.setattr(device, "measure", lambda *arguments: (wrong, [("mf, forward", 1.0, 2.0)]))
    with pytest.raises(SystemExit) as end:
        bench.main(["--device", "cpu", "--quick"])
    assert end.value.code == 1 and "does NOT agree" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_absent_is_named():
    with pytest.raises(SystemExit, match=r"--device cuda: torch cannot use it .*expected cpu, cuda, mps"):
        bench.main(["--device", "cuda"])


def test_names_and_a_device_are_bad_usage():
    with pytest.raises(SystemExit) as end:
        bench.main(["speed", "--device", "cpu"])
    assert end.value.code == 2

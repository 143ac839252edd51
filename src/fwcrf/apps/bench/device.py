"""A device checked against the CPU, and timed: a report to post. ``fwcrf bench --device``."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from time import perf_counter

import torch
from torch import Tensor

from fwcrf import DenseCRF
from fwcrf.apps.bench import report
from fwcrf.kernels import Bilateral
from fwcrf.torch_ops import triton_engine

SOLVERS = ("l2fw", "mf")
# Largest differences that count as agreement; of gradients and kernels, relative to the largest entry.
# Atomic additions in any order and another order of sums stay far below; a wrong kernel does not.
TOLERANCE = {"probabilities": 1e-3, "gradient": 1e-2, "kernel": 1e-4}


@dataclass(frozen=True)
class Check:
    what: str
    difference: float
    allowed: float

    @property
    def passed(self) -> bool:
        return self.difference <= self.allowed  # False for NaN


def main(name: str, rounds: int, quick: bool) -> bool:
    """Print the report; True if the device agrees with the CPU."""
    device = _device(name)
    grid, labels = ((48, 64), 5) if quick else ((513, 513), 21)
    print(f"# fwcrf on {name}\n")
    print(report.table(["", ""], [[key, value] for key, value in describe(device).items()]))
    checks, times = measure(device, grid, labels, rounds)
    size = "x".join(map(str, (*grid, labels)))
    print(f"\n## Against the CPU, {size}\n")
    rows = [[c.what, f"{c.difference:.1e}", f"{c.allowed:.0e}", "yes" if c.passed else "NO"] for c in checks]
    print(report.table(["largest difference", "found", "allowed", "agrees"], rows))
    print(f"\n## Milliseconds, median of {rounds} after a first run that compiles; five steps\n")
    lines = [[what, f"{1e3 * on:.1f}", f"{1e3 * cpu:.1f}", f"{cpu / on:.2f}"] for what, on, cpu in times]
    print(report.table(["", name, "CPU", "CPU / device"], lines))
    passed = all(check.passed for check in checks)
    print("\nThe device agrees with the CPU." if passed else "\nThe device does NOT agree with the CPU.")
    print("Reports of GPUs are welcome: please post this one as an issue, also if all is well.")
    return passed


def describe(device: torch.device) -> dict[str, str]:
    """The device, the machine, and the engine that serves the device."""
    module = getattr(torch, device.type, None)
    found = {"device": str(device)}
    if device.type in ("cuda", "xpu"):
        properties = module.get_device_properties(device)  # type: ignore[union-attr]
        found |= {"name": properties.name, "memory": f"{properties.total_memory / 2**30:.1f} GiB"}
        if device.type == "cuda" and not torch.version.hip:
            found["compute capability"] = f"{properties.major}.{properties.minor}"
    found |= {"CUDA of torch": str(torch.version.cuda), "ROCm of torch": str(torch.version.hip)}
    found["engine"] = (
        "native code"
        if device.type == "cpu"
        else f"Triton {metadata.version('triton')}"
        if device.type == "cuda" and triton_engine.works(device)
        else "plain torch"
    )
    return found | report.machine()


def measure(
    device: torch.device, grid: tuple[int, int], labels: int, rounds: int
) -> tuple[list[Check], list[tuple[str, float, float]]]:
    """Checks, and seconds on the device and on the CPU by what was timed."""
    generator = torch.Generator("cpu").manual_seed(0)
    ramp = torch.linspace(0, 255, grid[1]).expand(1, 3, *grid)
    image = (ramp + 20 * torch.randn(1, 3, *grid, generator=generator)).clamp(0, 255)
    logits = 2 * torch.randn(1, labels, *grid, generator=generator)
    weights = torch.randn(1, labels, *grid, generator=generator)
    checks, times = [], []

    K = [Bilateral().operator(image[0].to(where)) for where in (device, "cpu")]
    x = logits.flatten(2).mT[0]
    checks.append(_check("bilateral kernel", "kernel", K[0](x.to(device)), K[1](x)))
    for solver in SOLVERS:
        crf = DenseCRF(labels, solver=solver)
        results = [_both(crf, image.to(d), logits.to(d), weights.to(d)) for d in (device, "cpu")]
        checks.append(_check(f"{solver}, probabilities", "probabilities", *(p for p, _ in results)))
        checks.append(_check(f"{solver}, gradient in the logits", "gradient", *(g for _, g in results)))

        def forward(where: torch.device, crf: DenseCRF = crf) -> Callable[[], object]:
            given = image.to(where), logits.to(where)
            return lambda: crf(*given)

        with torch.no_grad():
            seconds = [_timed(forward(d), d, rounds) for d in (device, torch.device("cpu"))]
        times.append((f"{solver}, forward", *seconds))
    return checks, times


def _check(what: str, kind: str, on: Tensor, cpu: Tensor) -> Check:
    scale = 1.0 if kind == "probabilities" else float(cpu.abs().max())
    return Check(what, float((on.cpu() - cpu).abs().max()) / scale, TOLERANCE[kind])


def _both(crf: DenseCRF, image: Tensor, logits: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities, and the gradient of a weighted sum of them in the logits."""
    logits = logits.clone().requires_grad_()
    p = crf(image, logits).exp()
    (gradient,) = torch.autograd.grad((p * weights).sum(), logits)
    return p.detach(), gradient


def _timed(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    work()
    seconds = []
    for _ in range(rounds):
        _wait_for(device)
        start = perf_counter()
        work()
        _wait_for(device)
        seconds.append(perf_counter() - start)
    return statistics.median(seconds)


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    # torch raises errors of several kinds for a device that is unknown, not compiled in or not there.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        sys.exit(
            f"--device {name}: torch cannot use it ({reason}); expected cpu, cuda, mps, xpu or another "
            "device of this build of torch. docs/install.md says how to install torch for a GPU."
        )
    return device

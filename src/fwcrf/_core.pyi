from typing import Any

def isa() -> str: ...
def openmp() -> bool: ...
def feature_bounds(features: Any) -> tuple[bool, list[float], list[float]]: ...
def build_lattice(
    features: Any, scale: Any, low: Any, high: Any, index: Any, weight: Any, order: Any, threads: int
) -> Any: ...
def filter(
    x: Any,
    index: Any,
    splat: Any,
    slice: Any,
    neighbors: Any,
    shift: Any,
    tap: float,
    identity: float,
    order: int,
    out: Any,
    threads: int,
) -> bool: ...
def diagonal(
    index: Any, weight: Any, order: Any, neighbors: Any, tap: float, identity: float, out: Any, threads: int
) -> None: ...
def filter_axis(x: Any, taps: Any, out: Any, threads: int) -> None: ...

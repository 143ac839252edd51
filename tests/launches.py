"""Counts of the work that a GPU would get: launches, bytes moved, and waits of the host.

Tensors are fake: they claim a device and have no values. ``Launches`` watches every operation of torch on
them as the dispatcher sees it, after composite operations are taken apart:

- an operation on the device that is no view and no allocation is one launch. Some are several in truth: a
  sort, a scan and an ``embedding_bag`` take two to ten kernels;
- its bytes are the storage of its distinct inputs and outputs, each once, views by their entries;
- a read of a number (``item``), a blocking copy between host and device, and an operation whose result has a
  size that depends on values (``nonzero``, ``unique``, ``masked_select``) make the host wait once;
- custom operators are taken apart: their portable code runs under the same watch;
- a Triton kernel is one launch, with the bytes of its tensors: ``recorded_triton`` puts a recorder in place
  of Triton, so that it need not be installed.

Numbers that the host reads have no values either: ``numbers`` returns them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fwcrf import torch_ops
from fwcrf.kernels import calibration, separable
from fwcrf.torch_ops import native, triton_engine

# Allocations and questions about a tensor.
FREE = {
    "aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided",
    "aten::detach", "aten::lift_fresh", "aten::_unsafe_view", "aten::resize_", "prim::device", "aten::alias",
    "aten::sym_size", "aten::is_same_size", "aten::_has_compatible_shallow_copy_type", "aten::set_",
}  # fmt: skip
# Sizes of results that depend on values.
SIZED_BY_VALUES = {
    "aten::nonzero", "aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
    "aten::masked_select", "aten::equal", "aten::is_nonzero",
}  # fmt: skip
COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from"}


def _bytes(tensors: list[Tensor]) -> int:
    return sum({id(t): t.numel() * t.element_size() for t in tensors}.values())


class Launches(TorchDispatchMode):
    """The counts of everything that runs inside, in ``launches``, ``moved``, ``waits`` and ``by_name``."""

    def __init__(self, numbers: Callable[[Tensor], Any] | None = None) -> None:
        super().__init__()
        self.numbers = numbers
        self.launches = self.moved = self.waits = 0
        self.by_name: Counter[str] = Counter()
        self.bytes_of: Counter[str] = Counter()
        self.waited_for: list[str] = []
        self.float_scans = 0  # running sums of floats, which CUDA adds in any order
        self.dtypes: set[torch.dtype] = set()  # of tensors on the device

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore
        kwargs = kwargs or {}
        name = function._schema.name
        if name.startswith("fwcrf::"):
            with _WithoutGuards(), self:
                return OPDEFS[name]._init_fn(*args, **kwargs)
        if name in ("aten::to", "aten::item"):
            # Below autograd, as in a custom operator, composite operations arrive whole.
            with self:
                return function.decompose(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        on_device = any(t.device.type != "cpu" for t in given)
        if name == "aten::_local_scalar_dense":
            if on_device:
                self._wait(name)
            return self._number(args[0])
        sized = name in SIZED_BY_VALUES and on_device
        if sized:
            self._wait(name)
        result = self.sized(name, *args, **kwargs) if sized else function(*args, **kwargs)
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        on_device = on_device or any(t.device.type != "cpu" for t in made)
        aliased = (function.is_view or name == "aten::reshape") and torch._C._is_alias_of(given[0], made[0])  # type: ignore[attr-defined]
        if not on_device or name in FREE or aliased:
            return result
        self.dtypes |= {t.dtype for t in (*given, *made) if t.device.type != "cpu"}
        if name in COPIES:
            ends = {t.device.type for t in (*given[:2], *made)}
            blocking = not kwargs.get(
                "non_blocking", args[2] if name == "aten::copy_" and len(args) > 2 else False
            )
            self.by_name["copies"] += len(ends) > 1
            if len(ends) > 1 and blocking:
                self._wait(name)
        self.float_scans += name in ("aten::cumsum", "aten::cumprod") and made[0].is_floating_point()
        self.record(name.removeprefix("aten::"), [t for t in (*given, *made) if t.device.type != "cpu"])
        return result

    def record(self, name: str, tensors: list[Tensor]) -> None:
        self.launches += 1
        self.by_name[name] += 1
        moved = _bytes(tensors)
        self.moved += moved
        self.bytes_of[name] += moved

    def _wait(self, name: str) -> None:
        frame = sys._getframe()
        while frame is not None and "/fwcrf/" not in frame.f_code.co_filename:
            frame = frame.f_back
        place = f"{frame.f_code.co_filename.split('/fwcrf/')[-1]}:{frame.f_lineno}" if frame else "?"
        self.waits += 1
        self.waited_for.append(f"{place} {name}")

    def sized(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """The result of an operation whose size depends on values."""
        raise AssertionError(f"{name}: the host waits for a size")

    def _number(self, tensor: Tensor) -> Any:
        assert self.numbers is not None, "a number was read"
        return self.numbers(tensor)


class _WithoutGuards(TorchFunctionMode):
    """The calls that ask the build of torch for the device before a dispatch mode sees them."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore
        kwargs = kwargs or {}
        if function is Tensor.contiguous and isinstance(args[0], Tensor):
            x = args[0]
            return x if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        if function is Tensor.new_tensor:
            x, value = args
            return torch.tensor(
                value, dtype=kwargs.get("dtype", x.dtype), device=kwargs.get("device", x.device)
            )
        if function is torch.conv1d or function is torch.nn.functional.conv1d:
            x, weight = args[:2]
            length = x.shape[-1] + 2 * kwargs.get("padding", 0) - weight.shape[-1] + 1
            return _conv1d(x, length)
        if function is Tensor.copy_:
            return torch.ops.aten.copy_.default(*args, **kwargs)
        if function in _READS:
            return _READS[function](args[0].item())
        if function is Tensor.__getitem__:
            return _taken(*args)
        if function is Tensor.__setitem__:
            return _put(*args)
        return function(*args, **kwargs)


_READS = {Tensor.__int__: int, Tensor.__float__: float, Tensor.__bool__: bool}


def _parts(x: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """The view that numbers, slices and None select, and the tensors that index its axes."""
    places = list(index) if isinstance(index, tuple) else [index]
    if (dots := next((i for i, p in enumerate(places) if p is Ellipsis), None)) is not None:
        used = sum(p is not None for p in places) - 1
        places[dots : dots + 1] = [slice(None)] * (x.dim() - used)
    tensors: list[Tensor | None] = []
    for place in places:
        axis = len(tensors)
        if place is None:
            x = x.unsqueeze(axis)
        elif isinstance(place, int):
            x = x.select(axis, place)
            continue
        elif isinstance(place, slice):
            x = torch.ops.aten.slice(x, axis, place.start, place.stop, place.step or 1)
        tensors.append(place if isinstance(place, Tensor) else None)
    return x, tensors


def _taken(x: Tensor, index: Any) -> Tensor:
    view, tensors = _parts(x, index)
    return torch.ops.aten.index(view, tensors) if any(t is not None for t in tensors) else view


def _put(x: Tensor, index: Any, value: Any) -> None:
    view, tensors = _parts(x, index)
    if any(t is not None for t in tensors):
        value = value if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype, device=x.device)
        torch.ops.aten.index_put_(view, tensors, value)
    elif isinstance(value, Tensor):
        torch.ops.aten.copy_.default(view, value)
    else:
        view.fill_(value)


def _conv1d(x: Tensor, length: int) -> Tensor:
    # One operation that reads x and writes a result of the right shape, for one channel.
    return torch.ops.aten.constant_pad_nd(x, [0, length - x.shape[-1]])


class _Recorder:
    """A Triton kernel that is not run: its launches are recorded."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            if _WATCHES:
                _WATCHES[-1].record(
                    self.name, [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
                )

        return launch


_WATCHES: list[Launches] = []


def _recording_triton() -> dict[str, ModuleType]:
    triton, language = ModuleType("triton"), ModuleType("triton.language")

    def jit(function: Any = None, **settings: Any) -> Any:
        return jit if function is None else _Recorder(function)

    triton.jit = jit  # type: ignore[attr-defined]
    triton.cdiv = lambda a, b: -(-a // b)  # type: ignore[attr-defined]
    triton.next_power_of_2 = lambda n: 1 << max(0, n - 1).bit_length()  # type: ignore[attr-defined]
    language.constexpr = lambda value: value  # type: ignore[attr-defined]
    triton.language = language  # type: ignore[attr-defined]
    return {"triton": triton, "triton.language": language}


@contextmanager
def recorded_triton() -> Iterator[None]:
    """Inside, Triton seems to work on every GPU, and its kernels are recorded, not run."""

    def taken(*prefixes: str) -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith(prefixes)}

    kernels = [f"fwcrf.torch_ops.{path.stem}" for path in Path(torch_ops.__file__).parent.glob("*_triton.py")]
    before = taken(*kernels)
    # Only while the kernels are imported: torch looks for Triton too.
    theirs = taken("triton")
    sys.modules.update(_recording_triton())
    for name in kernels:
        import_module(name)
    taken("triton")
    sys.modules.update(theirs)
    works, triton_engine.works = triton_engine.works, lambda device: device.type == "cuda"
    try:
        yield
    finally:
        triton_engine.works = works
        taken(*kernels)
        sys.modules.update(before)
        for name in kernels:
            # ``from fwcrf.torch_ops import`` takes a module from its package.
            attribute = name.split(".")[-1]
            if name in before:
                setattr(torch_ops, attribute, before[name])
            else:
                delattr(torch_ops, attribute)


@contextmanager
def fake_device(device: str = "cuda", numbers: Callable[[Tensor], Any] | None = None) -> Iterator[Launches]:
    """Inside, new tensors may claim the device; the counts of all operations on them."""
    counts = Launches(numbers)
    _WATCHES.append(counts)
    kept = calibration._copied, separable.plain_separable_on
    # The library asks a fake tensor for no number; the host would have to wait for a real one.
    asks = native.has_values
    asked = [m for m in sys.modules.values() if getattr(m, "__dict__", {}).get("has_values") is asks]
    try:
        for module in asked:
            module.has_values = lambda x: not x.is_meta  # type: ignore[attr-defined]
        with FakeTensorMode(allow_non_fake_inputs=True), _WithoutGuards(), counts:
            yield counts
    finally:
        for module in asked:
            module.has_values = asks  # type: ignore[attr-defined]
        for cache in kept:
            cache.cache_clear()  # it holds fake tensors
        _WATCHES.pop()

"""Fuzz targets of everything that is read from files: right values, or a ``FileError``, and nothing else.

A target takes the bytes of a file. ``SEEDS`` has small files of each kind to start from.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from api_targets import Refused

from fwcrf.apps.batch.manifest import read_manifest
from fwcrf.apps.files import FileError, read_image, read_labels, read_scores
from fwcrf.apps.files.settings import read_settings
from fwcrf.apps.models.weights import read_state
from fwcrf.apps.training import checkpoint
from fwcrf.apps.training.config import read_config

# No small file may ask for more than this; the readers say so before they decode anything.
LIMIT = 1 << 22


@cache
def folder() -> Path:
    """In memory where there is such a place: a case writes a file and reads it."""
    return Path(tempfile.mkdtemp(prefix="fwcrf-fuzz", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))


def written(data: bytes, name: str) -> Path:
    path = folder() / f"{os.getpid()}-{name}"
    path.write_bytes(data)
    return path


def _read(reader: Callable[..., Any], path: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return reader(path, **options)
        except FileError as error:
            said = str(error)
            assert said and "\0" not in said, f"not a sentence: {said!r}"
            raise Refused(said) from error


def _check_numbers(values: np.ndarray) -> None:
    assert values.dtype.kind in "buif" and values.dtype.isnative, values.dtype
    # Up to eight bytes per value, where three or one were announced.
    assert values.nbytes <= 8 * LIMIT, "more memory than was allowed"


def image(data: bytes) -> None:
    _check_numbers(_read(read_image, written(data, "image"), limit=LIMIT).values)


def scores(data: bytes) -> None:
    _check_numbers(_read(read_scores, written(data, "scores"), limit=LIMIT).values)


def labels(data: bytes) -> None:
    values = _read(read_labels, written(data, "labels"), limit=LIMIT)
    _check_numbers(values)
    assert values.dtype.kind in "bui"


def settings(data: bytes) -> None:
    found = _read(read_settings, written(data, "settings.yaml"))
    json.dumps(found.mapping(), allow_nan=False)
    assert type(found).of(found.mapping()).fingerprint() == found.fingerprint()


def config(data: bytes) -> None:
    json.dumps(_read(read_config, written(data, "config.yaml")).mapping())


def manifest(data: bytes) -> None:
    path = written(data, "list.csv" if data[:1] != b"{" else "list.jsonl")
    outputs = [item.output for item in _read(read_manifest, path)]
    assert len({*outputs}) == len(outputs), "two outputs of the same name"
    assert not any(Path(name).is_absolute() or ".." in Path(name).parts for name in outputs), (
        "outside the folder"
    )


def weights(data: bytes) -> None:
    _tensors(_read(read_state, written(data, "weights.pt")))


def safetensors(data: bytes) -> None:
    _tensors(_read(read_state, written(data, "weights.safetensors")))


def _tensors(state: Any) -> None:
    assert isinstance(state, dict) and all(isinstance(name, str) for name in state)


def checkpoint_file(data: bytes) -> None:
    assert isinstance(_read(checkpoint.read, written(data, "checkpoint.pt")).step, int)


def uai(data: bytes) -> None:
    import fwcrf

    mrf = _read(fwcrf.read_uai, written(data, "model.uai"), limit=LIMIT)
    assert not torch.isnan(mrf.unary).any() and not (mrf.unary == -torch.inf).any()
    assert torch.isfinite(mrf.unary).any(-1).all(), "a node without labels"


# --- files to start from -------------------------------------------------------------------------


def _npy(values: np.ndarray, version: Any = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, version=version, allow_pickle=True)
    return file.getvalue()


def _npz(compressed: bool = True, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def _pictures() -> list[bytes]:
    from PIL import Image

    random = np.random.default_rng(0)
    rgb = Image.fromarray(random.integers(0, 256, (7, 9, 3), dtype=np.uint8))
    grey = rgb.convert("L")
    wide = Image.fromarray(random.integers(0, 65536, (5, 4)).astype(np.uint16))
    indexed = rgb.quantize(8)
    found = []
    for picture, form, options in (
        (rgb, "PNG", {}),
        (grey, "PNG", {}),
        (indexed, "PNG", {}),
        (wide, "PNG", {}),
        (rgb.convert("RGBA"), "PNG", {}),
        (grey.convert("1"), "PNG", {}),
        (rgb, "JPEG", {}),
        (grey, "JPEG", {"progressive": True}),
        (rgb.convert("CMYK"), "JPEG", {}),
        (rgb, "TIFF", {}),
        (grey, "TIFF", {"compression": "tiff_lzw"}),
        (wide, "TIFF", {"compression": "tiff_adobe_deflate"}),
        (indexed, "TIFF", {}),
        (grey.convert("F"), "TIFF", {}),
        (grey.convert("1"), "TIFF", {"compression": "group4"}),
        (grey, "TIFF", {"save_all": True, "append_images": [grey, grey]}),
    ):
        file = io.BytesIO()
        picture.save(file, form, **options)
        found.append(file.getvalue())
    import tifffile

    for values, options in (
        (random.integers(0, 65536, (4, 5, 3)).astype(np.uint16), {"photometric": "rgb"}),
        (random.normal(size=(2, 4, 5)).astype(np.float32), {}),
        (random.integers(0, 255, (16, 16), dtype=np.uint8), {"tile": (16, 16), "compression": "zlib"}),
    ):
        file = io.BytesIO()
        tifffile.imwrite(file, values, **options)
        found.append(file.getvalue())
    return found


def _volumes() -> list[bytes]:
    import nibabel

    found = []
    for kind, values in (
        (nibabel.Nifti1Image, np.arange(24, dtype=np.int16).reshape(2, 3, 4)),
        (nibabel.Nifti2Image, np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
        (nibabel.Nifti1Image, np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)),
    ):
        data = kind(values, np.eye(4)).to_bytes()
        found += [data, gzip.compress(data, 1)]
    return found


@cache
def _arrays() -> tuple[bytes, ...]:
    p = np.random.default_rng(1).dirichlet(np.ones(3), (4, 5)).astype(np.float32)
    return (
        *(
            _npy(values)
            for values in (p, p.argmax(-1), p.astype(">f8"), np.asfortranarray(p), p > 0.5, p[:0])
        ),
        _npy(p, (2, 0)),
        _npy(p, (3, 0)),
        _npy(np.array(["a", None], object)),
        _npy(np.zeros(3, "S5")),
        _npz(probabilities=p),
        _npz(False, logits=np.log(p), labels=p.argmax(-1)),
        _npz(image=p, other=p),
    )


@cache
def _images() -> tuple[bytes, ...]:
    return (*_pictures(), *_volumes(), *_arrays())


@cache
def _states() -> tuple[bytes, ...]:
    found = []
    tensors = {"a.weight": torch.ones(2, 3), "module.b": torch.arange(3)}
    for state in (tensors, {"state_dict": tensors, "epoch": 3}, {"model": tensors}, [1, 2], torch.ones(2)):
        for zipped in (True, False):
            file = io.BytesIO()
            torch.save(state, file, _use_new_zipfile_serialization=zipped)
            found.append(file.getvalue())
    return tuple(found)


@cache
def _checkpoints() -> tuple[bytes, ...]:
    file = io.BytesIO()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    state = {"format": 1, "step": 3, "config": {"epochs": 1}, "model": model.state_dict(),
             "optimizer": optimizer.state_dict(), "best": 0.5, "report": {"mean_iou": 0.5}}  # fmt: skip
    torch.save(state, file)
    return (file.getvalue(), *_states())


@cache
def _safetensors() -> tuple[bytes, ...]:
    from safetensors.torch import save

    return (
        save({"a": torch.ones(2, 3), "b": torch.arange(3)}),
        save({}),
        save({"h": torch.ones(1, dtype=torch.float16)}),
    )


_SETTINGS = (
    b"solver: {name: l2fw, weight: 1.0}\nnum_steps: 10\nkernels:\n  - {kind: spatial, xy: 3, weight: 1}\n"
    b"  - {kind: bilateral, xy: [80, 3], color: 13}\ncompatibility: [[0, 1], [1, 0]]\nrounding: bcd\n",
    b'{"solver": "mf", "num_steps": 5}',
    b"a: &x [1, *x]\n",
    b"num_steps: !!python/object/apply:os.system ['true']\n",
    b"a: &a [1,1]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n",
    b"solver: 2026-01-01\nnum_steps: 0x1f\nkernels: ~\ncompatibility: 1e400\n",
)
_CONFIGS = (
    b"data: {name: splits, root: somewhere, crop: [25, 25]}\nmodel: {name: own}\nepochs: 3\nbatch_size: 2\n"
    b"crf: {num_steps: 2}\noptimizer: {cnn_lr: 0.01}\nrun: {workers: 0}\n",
    b"data: {name: voc, root: r}\nmodel: {name: mobilenetv2, settings: {a: 1}}\n",
    b"epochs: .inf\nseed: yes\n",
)
_LISTS = (
    b"image,scores,output\na.png,a.npy,b/a.png\nc.png,c.npy,c.npz\n",
    b"image,scores\na.png,a.npy\n../b.png,b.npy\n",
    b'{"image": "a.png", "scores": "a.npy"}\n{"image": "b.png", "scores": "b.npy", "truth": "t.png"}\n',
    b'image,scores,output\na.png,a.npy,"../../x.png"\n',
)
_MODELS = (
    b"MARKOV\n3\n2 2 3\n4\n1 0\n2 0 1\n2 1 2\n1 2\n\n2\n 0.4 0.6\n\n4\n 1 0.5\n 0.5 1\n\n6\n"
    b" 1 2 3 4 5 6\n\n3\n1 1 1\n",
    b"MARKOV\n2\n2 2\n3\n1 0\n1 1\n2 0 1\n2\n1 2\n2\n3 0\n4\n1 0 0 1\n",
    b"MARKOV\n1\n2\n1\n1 0\n2\n0.1 1e-300\n",
    b"BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n.3 .7\n4\n.1 .9 .2 .8\n",
)

SEEDS: dict[str, Callable[[], tuple[bytes, ...]]] = {
    "image": _images,
    "scores": _images,
    "labels": _images,
    "settings": lambda: _SETTINGS,
    "config": lambda: _CONFIGS,
    "manifest": lambda: _LISTS,
    "weights": _states,
    "safetensors": _safetensors,
    "checkpoint_file": _checkpoints,
    "uai": lambda: _MODELS,
}
TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        image, scores, labels, settings, config, manifest, weights, safetensors, checkpoint_file, uai,
    )
}  # fmt: skip


# --- other files from these ----------------------------------------------------------------------

_NUMBERS = tuple(
    value.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for value in (0, 1, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1)
    for order in ("little", "big")
)
_WORDS = (
    b"nan",
    b"-1",
    b"1e999",
    b"99999999999",
    b"0x",
    b"\xff\xfe",
    b"[" * 50,
    b"{a: ",
    b"&a *a",
    b"\n",
    b" ",
    b",",
)


def mutated(random: np.random.Generator, seeds: tuple[bytes, ...]) -> bytes:
    """One of the files with something done to it, a few times."""
    data = bytearray(seeds[random.integers(len(seeds))])
    for _ in range(int(random.geometric(0.4)) - 1):
        at = int(random.integers(len(data) + 1))
        kind = random.integers(7)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << int(random.integers(8))
        elif kind == 1 and data:
            data[at % len(data)] = int(random.integers(256))
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + int(random.geometric(0.2))]
        elif kind == 4:
            number = _NUMBERS[random.integers(len(_NUMBERS))]
            data[at : at + len(number)] = number
        elif kind == 5:
            data[at:at] = _WORDS[random.integers(len(_WORDS))]
        else:
            other = seeds[random.integers(len(seeds))]
            place = int(random.integers(len(other) + 1))
            data[at:] = other[place:]
    return bytes(data)

"""What the fuzz targets found, once each."""

import base64
import io
import itertools
import struct
import time
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch
from file_targets import SEEDS

import fwcrf
from fwcrf import _core
from fwcrf.apps.files import FileError, read_image, read_labels
from fwcrf.apps.files.settings import read_settings
from fwcrf.apps.models import read_state
from fwcrf.apps.training import checkpoint
from fwcrf.apps.training.config import read_config
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.pydensecrf import utils

# Each list holds the one before it eight times: a few hundred bytes, and 8^12 values.
BOMB = "compatibility:\n- &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"- &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in itertools.pairwise("abcdefghijkl")
)


@pytest.mark.parametrize("read", [read_settings, read_config])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\x99num_steps: 1", "is not YAML"),
        (b"num_steps: 2026-99-99", "is not YAML: month must be in 1..12"),
        (b"num_steps: !!int ''", "is not YAML"),
        (b"compatibility: &a [*a]", "has the alias \\*a"),
        (BOMB.encode(), "has the alias \\*a; expected values written out"),
        (b"[" * 100_000, "nested more than 32 deep"),
    ],
    ids=["encoding", "date", "integer", "a list in itself", "bomb", "depth"],
)
def test_settings_that_are_none(read, text, said, tmp_path):
    (tmp_path / "a.yaml").write_bytes(text)
    start = time.process_time()
    with pytest.raises(FileError, match=said):
        read(tmp_path / "a.yaml")
    assert time.process_time() - start < 10


def test_pictures_that_are_no_label_maps(tmp_path):
    import tifffile

    for values, layout, said in (
        (np.zeros((4, 5, 5), np.uint16), "contig", "expected one value, or RGB, per pixel"),
        (np.full((2, 4, 5), 0.5, np.float32), None, "expected a label map, whole numbers"),
        (np.zeros((2, 4, 5), np.complex64), None, "has dtype complex64; expected whole or floating-point"),
    ):
        tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", planarconfig=layout)
        with pytest.raises(FileError, match=said):
            read_labels(tmp_path / "a.tif")


@pytest.mark.parametrize("value", [torch.ones(2), [1, 2], 3], ids=str)
def test_weights_that_are_no_state_dict(value, tmp_path):
    torch.save(value, tmp_path / "a.pt")
    with pytest.raises(FileError, match=f"holds a {type(value).__name__}; expected a state dict"):
        read_state(tmp_path / "a.pt")


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
@pytest.mark.parametrize(
    "data", [b"", b"nothing", struct.pack("<Q", 1 << 60) + b"{}", SEEDS["weights"]()[0][:200]], ids=len
)
def test_damaged_weights(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FileError, match="cannot be read as tensors"):
        read_state(tmp_path / name)
    with pytest.raises(FileError, match="is not a checkpoint of fwcrf, or it is damaged"):
        checkpoint.read(tmp_path / name)


def test_text_in_a_damaged_checkpoint(tmp_path):
    """Bytes that are no UTF-8 where the older format has a name."""
    file = io.BytesIO()
    torch.save({"format": 1}, file, _use_new_zipfile_serialization=False)
    (tmp_path / "a.pt").write_bytes(file.getvalue().replace(b"little_endian", b"little_\xe9ndian"))
    with pytest.raises(FileError, match="is not a checkpoint"):
        checkpoint.read(tmp_path / "a.pt")


def test_the_layer_on_the_meta_device():
    crf = fwcrf.DenseCRF(3, [Spatial(2.0)]).to("meta")
    answer = crf(torch.empty(3, 5, 6, device="meta"), torch.empty(3, 5, 6, device="meta"))
    assert answer.is_meta and answer.shape == (3, 5, 6)


@pytest.mark.filterwarnings("ignore:all .* points lie in lattice cells of their own")
@pytest.mark.parametrize("color", [0.001, 0.03, 0.1, 0.3])
def test_points_far_apart_without_normalization(color):
    """Row sums of 1e-30 say nothing of the kernel's scale, and are not divided by."""
    for seed in range(20):
        image = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(seed))
        K = Bilateral(0.5, color, normalization="none").operator(image).without_self_edges()
        dense = K.to_dense()
        assert torch.isfinite(dense).all() and dense.abs().max() < 100


def test_derivatives_where_no_pixel_sees_another():
    crf = fwcrf.DenseCRF(
        3, [Spatial(0.08, method="lattice", normalization="none")], learnable=("bandwidths",), self_edges=True
    )
    with pytest.warns(UserWarning, match="lattice cells of their own"):
        crf(torch.zeros(1, 7, 4), torch.randn(3, 7, 4)).mean().backward()
    assert torch.isfinite(crf.log_bandwidths["0_xy"].grad).all()


def test_one_label_is_no_choice():
    with pytest.raises(ValueError, match="n_labels=1; expected at least 2"):
        utils.unary_from_labels(np.zeros((2, 2), int), 1, 0.7)


@pytest.mark.parametrize("length", [3, 12, 40])
def test_rows_of_large_numbers_times_a_scale(length):
    """A product rounded in one place is rounded in all; builds that inline little mixed two files up."""
    v = np.random.default_rng(0).normal(0, 1e7, (24, length)).astype(np.float32)
    p = np.empty_like(v)
    _core.project(v, 7.28354, p, 1)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)


# A TIFF of 515 bytes that atheris made.
CIRCLE = (
    "eNrz9NRi4GBgYOBnYGBkYWAEslgZQIARymMBYiZGZjBbAYiZoWwQZkNi8zEyMYgClXt6ah1CEhIB0iC+KJJSKUZWMP0MiKWh7HdA"
    "rIGkxhColwdIfwNiJ6hTBIDYGYntAmMDCVcom5tRHOz8aqXijMSCVCUrhWhDMx0FQ7PYWgZ0wIiGSzLT0tIyc1L1CirRVFbMYWRg"
    "/P+vK9hs+XW78IIvAiKqs1XD3l44or7h0/NYTrHI0vO8B5N3Pf72UndVv9uc6XNz6m99cmST4sl8U3lCdrtSZ6bfJnZxZp8/MWLr"
    "hDgO7lK0Ur2l5tzU2Sjw1PDojTcFX6Y6Bx5/yb+Nc33tjgnx11JfrJ0nKDA91Gl2wdKHG5XD3xi/sDjCq55ry95/z/C637dputLK"
    "fDlv+6xnfzho8MnZse7FaZflJXdtoiasMHm6PeqR7qRvZvqTL1rkc8jIG194KMe83eNYEtd5D2Zf3zOOGtxT45z23wJ5SxAcaDYA"
    "z7515Q=="
)


@pytest.mark.timeout(60)
def test_pages_of_a_tiff_that_follow_each_other_in_a_circle(tmp_path):
    path = tmp_path / "circle.tif"
    path.write_bytes(zlib.decompress(base64.b64decode(CIRCLE)))
    with suppress(FileError):  # of tifffile before 2024
        assert read_image(path).values.size == 0

"""Images and label maps by Pillow and tifffile."""

import os
import struct
import zlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tifffile
from PIL import Image

from fwcrf.apps.files import FileError, read_image, read_labels, write_labels
from fwcrf.apps.files.palette import voc

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
GREY = COLOURS[..., 0]
LABELS = RNG.integers(0, 21, (6, 5))
LABELS[0, 0] = 255


def png(width, height, depth=8, kind=2, data=b""):
    """A PNG of any stated size, with as much data as given."""

    def chunk(name, content):
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (Image.fromarray(COLOURS), COLOURS),
        (Image.fromarray(COLOURS).convert("RGBA"), COLOURS),
        (Image.fromarray(GREY), GREY[..., None]),
        (Image.fromarray(GREY).convert("LA"), GREY[..., None]),
        (Image.fromarray(GREY > 99), 255 * (GREY > 99)[..., None]),
        (Image.fromarray(GREY.astype(np.uint16) * 257), (GREY.astype(np.uint16) * 257)[..., None]),
    ],
    ids=["RGB", "RGBA", "L", "LA", "1", "I;16"],
)
def test_values_of_every_kind_of_pixel(tmp_path, name, picture, expected):
    picture.save(tmp_path / name)
    image = read_image(tmp_path / name)
    np.testing.assert_array_equal(image.values, expected)
    assert image.values.dtype.isnative
    assert image.values.dtype == (np.uint16 if picture.mode == "I;16" else np.uint8)


def test_jpeg_and_other_spaces(tmp_path):
    flat = Image.new("RGB", (16, 16), (200, 100, 50))
    for name, picture in (
        ("rgb.jpg", flat),
        ("cmyk.jpg", flat.convert("CMYK")),
        ("grey.jpg", flat.convert("L")),
    ):
        picture.save(tmp_path / name, quality=95)
        values = read_image(tmp_path / name).values
        assert values.shape == (16, 16, 1 if "grey" in name else 3)
        np.testing.assert_allclose(
            values[8, 8], picture.convert("RGB").getpixel((8, 8))[: values.shape[-1]], atol=6
        )


def test_a_palette_is_looked_up_in_an_image_and_not_in_labels(tmp_path):
    write_labels(tmp_path / "a.png", LABELS)
    np.testing.assert_array_equal(read_labels(tmp_path / "a.png"), LABELS)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png").values, voc()[LABELS])


@pytest.mark.parametrize("shape", [(6, 5, 8), (6, 5, 3), (4, 6, 5)])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_tiff_that_pillow_cannot_read_in_full(tmp_path, shape, planar):
    values = RNG.integers(0, 1 << 16, shape, dtype=np.uint16)
    pages = shape[0] == 4
    if pages:
        tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack")
        values = values[..., None]
    else:
        stored = np.moveaxis(values, -1, 0) if planar == "separate" else values
        tifffile.imwrite(tmp_path / "a.tif", stored, photometric="rgb" if shape[-1] == 3 else "minisblack",
                         planarconfig=planar, compression="zlib")  # fmt: skip
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").values, values)


def test_labels_of_every_kind(tmp_path):
    voc_colours = voc()[LABELS]
    wide = LABELS.astype(np.uint16) * 100
    for name, array, expected in (
        ("grey.png", LABELS.astype(np.uint8), LABELS),
        ("wide.png", wide, wide),
        ("colour.png", voc_colours, LABELS),
        ("mask.png", LABELS > 9, LABELS > 9),
        ("grey.tif", LABELS.astype(np.uint8), LABELS),
    ):
        Image.fromarray(array).save(tmp_path / name)
        np.testing.assert_array_equal(read_labels(tmp_path / name), expected)


def test_colours_that_are_no_labels(tmp_path):
    colours = voc()[LABELS]
    colours[2, 3] = (1, 2, 3)
    Image.fromarray(colours).save(tmp_path / "a.png")
    with pytest.raises(FileError, match=r"\(1, 2, 3\) at row 2, column 3 is not one of the VOC colour map"):
        read_labels(tmp_path / "a.png")
    Image.fromarray(COLOURS).save(tmp_path / "a.jpg")
    with pytest.raises(FileError, match="JPEG, which does not preserve labels"):
        read_labels(tmp_path / "a.jpg")
    Image.fromarray(GREY.astype(np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(FileError, match="pixels of kind 'F'"):
        read_labels(tmp_path / "a.tif")


def test_the_size_is_settled_before_decoding(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("decoded"))
    (tmp_path / "a.png").write_bytes(png(60000, 60000))
    with pytest.raises(FileError, match=r"shape \(60000, 60000\) would take 10\.8 GB of memory"):
        read_image(tmp_path / "a.png")
    Image.fromarray(COLOURS).save(tmp_path / "a.jpg")
    with pytest.raises(FileError, match="expected at most 80 bytes"):
        read_image(tmp_path / "a.jpg", limit=80)
    monkeypatch.setattr("tifffile.TiffPageSeries.asarray", lambda *_: pytest.fail("decoded"))
    tifffile.imwrite(tmp_path / "a.tif", COLOURS.astype(np.uint16), photometric="rgb")
    with pytest.raises(FileError, match="expected at most 170 bytes"):
        read_image(tmp_path / "a.tif", limit=170)


def test_large_images_within_the_limit_are_read(tmp_path):
    """Larger than what Pillow by itself calls a bomb."""
    path = tmp_path / "large.png"
    path.write_bytes(png(14000, 13000, depth=1, kind=0, data=bytes(13000 * (1 + 14000 // 8))))
    assert read_image(path).values.shape == (13000, 14000, 1)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "b.tif"])
@hypothesis.given(st.data())
def test_a_damaged_file_is_answered_with_a_sentence(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp("damaged") / name
    if name == "b.tif":
        tifffile.imwrite(path, np.arange(600, dtype=np.uint16).reshape(10, 10, 6), photometric="minisblack",
                         planarconfig="contig")  # fmt: skip
    else:
        Image.fromarray(np.arange(600, dtype=np.uint8).reshape(10, 20, 3)).save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 8))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        image = read_image(path, limit=10**6)
    except FileError as error:
        assert str(path) in str(error)
    else:
        assert image.values.nbytes <= 10**6


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif"])
def test_half_a_file_is_refused(tmp_path, name):
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match="truncated"):
        read_image(tmp_path / name)


def test_what_is_no_image(tmp_path):
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    for path, said in (
        (tmp_path / "missing.png", "cannot be read: No such file"),
        (tmp_path / "empty.png", "is empty"),
        (tmp_path / "text.png", "has an unknown format; expected PNG"),
        (tmp_path, "is a folder"),
        (os.devnull, "not a regular file"),
    ):
        with pytest.raises(FileError, match=said):
            read_image(path)

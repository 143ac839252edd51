"""GeoTIFFs made by rasterio: results lie where the image lies, and equal those of ``fwcrf.refine``."""

import re
import subprocess
import sys

import numpy as np
import pytest

import fwcrf
from fwcrf.apps.files import FileError
from fwcrf.kernels import Bilateral, Spatial

rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed: pip install 'fwcrf[geo]'")
from rasterio.transform import Affine  # noqa: E402

from fwcrf.integrations.geotiff import refine_geotiff  # noqa: E402

H, W = 90, 110
UTM = Affine(10.0, 0, 600000, 0, -10.0, 5200000)
COARSE = Affine(50.0, 0, 600000, 0, -50.0, 5200000)
KERNELS = (Spatial(2.0), Bilateral(12.0, 300.0, weight=3.0))


def write(path, values, transform=UTM, crs="EPSG:32633", tags=None, **profile):
    """A GeoTIFF of values (rows, columns, bands)."""
    values = values if values.ndim == 3 else values[..., None]
    profile = {"dtype": values.dtype, "driver": "GTiff", "crs": crs, **profile}
    if transform is not None:
        profile["transform"] = transform
    rows, columns, bands = values.shape
    with rasterio.open(path, "w", height=rows, width=columns, count=bands, **profile) as file:
        file.write(np.moveaxis(values, -1, 0))
        file.update_tags(**(tags or {}))
    return path


@pytest.fixture
def fields():
    """Four bands of 16 bits, probabilities of three labels, and the true labels."""
    random = np.random.default_rng(0)
    y, x = np.indices((H, W))
    truth = np.where(x < 40, 0, np.where(y < 50, 1, 2))
    means = np.array([[900, 700, 500, 3000], [1500, 1400, 1300, 1800], [400, 500, 300, 200]])
    image = (means[truth] + random.normal(0, 60, (H, W, 4))).astype(np.uint16)
    p = 0.25 + 0.25 * np.eye(3)[truth] + random.uniform(0, 0.6, (H, W, 3))
    return image, (p / p.sum(-1, keepdims=True)).astype(np.float32), truth


def read(path):
    with rasterio.open(path) as file:
        return file.read(), file.profile, file.tags()


def test_labels_and_probabilities_are_those_of_refine_at_the_place_of_the_image(tmp_path, fields):
    image, p, truth = fields
    tags = {"TIFFTAG_DATETIME": "2026:05:01 10:00:00", "SATELLITE": "S2B", "AREA_OR_POINT": "Area"}
    write(tmp_path / "image.tif", image, tags=tags)
    write(tmp_path / "p.tif", p)
    with rasterio.open(tmp_path / "image.tif", "r+") as file:
        file.update_tags(ns="ACQUISITION", ORBIT="79")
    refine_geotiff(
        tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", probabilities=tmp_path / "q.tif",
        kernels=KERNELS,
    )  # fmt: skip
    labels, q = fwcrf.refine(image, p, kernels=KERNELS, return_probabilities=True)
    found, profile, kept = read(tmp_path / "out.tif")
    np.testing.assert_array_equal(found[0], labels)
    assert (labels == truth).mean() > 0.98 > (p.argmax(-1) == truth).mean()
    assert profile["crs"].to_epsg() == 32633 and profile["transform"] == UTM
    assert (profile["dtype"], profile["nodata"], profile["compress"]) == ("uint8", 255, "deflate")
    assert tags.items() <= kept.items()
    with rasterio.open(tmp_path / "out.tif") as file:
        assert file.tags(ns="ACQUISITION") == {"ORBIT": "79"}
    found, profile, _ = read(tmp_path / "q.tif")
    np.testing.assert_allclose(np.moveaxis(found, 0, -1), q, atol=1e-6)
    assert profile["dtype"] == "float32" and np.isnan(profile["nodata"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tif", "out.tif", "p.tif", "q.tif"]


def test_pixels_without_data_take_no_part(tmp_path, fields):
    image, p, _ = fields
    image[:30, :30] = 0  # outside the scene
    image[60, 60:70, 2] = 0  # one band is missing
    p[80:, 100:] = -9999
    write(tmp_path / "image.tif", image, nodata=0)
    write(tmp_path / "p.tif", p, nodata=-9999)
    refine_geotiff(tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", kernels=KERNELS)
    (found,), *_ = read(tmp_path / "out.tif")
    outside = np.zeros((H, W), bool)
    outside[:30, :30] = outside[80:, 100:] = True
    np.testing.assert_array_equal(found == 255, outside)
    ignore = outside | (image == 0).any(-1)
    expected = fwcrf.refine(image, np.where(p < 0, 1 / 3, p), kernels=KERNELS, ignore=ignore)
    np.testing.assert_array_equal(found[~outside], expected[~outside])
    np.testing.assert_array_equal(found[60, 60:70], p[60, 60:70].argmax(-1))


def test_an_alpha_band_and_nan_are_no_data(tmp_path, fields):
    image, p, _ = fields
    rgba = np.dstack([image[..., :3] // 8, np.full((H, W), 255)]).astype(np.uint8)
    rgba[:, 100:, 3] = 0
    p[:10] = np.nan
    write(tmp_path / "image.tif", rgba, photometric="RGB", alpha="YES")
    write(tmp_path / "p.tif", p)
    refine_geotiff(tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif")
    (found,), *_ = read(tmp_path / "out.tif")
    ignore = (np.indices((H, W))[1] >= 100) | np.isnan(p).any(-1)
    np.testing.assert_array_equal(found == 255, ignore)
    expected = fwcrf.refine(rgba[..., :3], np.nan_to_num(p, nan=1 / 3), ignore=ignore)
    np.testing.assert_array_equal(found[~ignore], expected[~ignore])


def test_tiles_of_files_are_tiles_of_arrays(tmp_path, fields):
    image, p, _ = fields
    image[40:50, 70:80] = 0
    write(tmp_path / "image.tif", image, nodata=0, tiled=True, blockxsize=32, blockysize=32)
    write(tmp_path / "p.tif", p)
    done = []
    settings = {"tile": 40, "overlap": 12, "balance": 0.3}
    refine_geotiff(
        tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", **settings,
        progress=lambda k, n: done.append((k, n)), kernels=KERNELS, bands=(4, 1),
    )  # fmt: skip
    (found,), *_ = read(tmp_path / "out.tif")
    ignore = (image[..., [3, 0]] == 0).any(-1)
    expected = fwcrf.refine(image[..., [3, 0]], p, ignore=ignore, kernels=KERNELS, **settings)
    np.testing.assert_array_equal(found[~ignore], expected[~ignore])
    assert done[-1] == (9, 9) and (found[40:50, 70:80] == 255).all()


@pytest.mark.parametrize("form", ["labels", "mask", "logits", "array"])
def test_kinds_of_scores(tmp_path, fields, form):
    image, p, _ = fields
    write(tmp_path / "image.tif", image)
    best = p.argmax(-1).astype(np.uint8)
    if form == "labels":
        scores, values, options = best.copy(), best.astype(int), {"from_labels": 0.8}
        scores[5:9, 5:9], values[5:9, 5:9] = 7, -1
        given = {"void": 7, "confidence": 0.8}
    elif form == "mask":
        scores, values, given = best * 50, (best > 0).astype(int), {"kind": "mask"}
        options = {"from_labels": True}
    else:
        scores = values = np.log(p) if form == "logits" else p
        given, options = ({"kind": "logits"}, {"from_logits": True}) if form == "logits" else ({}, {})
    path = scores if form == "array" else write(tmp_path / "scores.tif", scores)
    refine_geotiff(tmp_path / "image.tif", path, tmp_path / "out.tif", kernels=KERNELS, **given)
    (found,), *_ = read(tmp_path / "out.tif")
    np.testing.assert_array_equal(found, fwcrf.refine(image, values, kernels=KERNELS, **options))


def test_a_label_map_keeps_its_nodata_and_colours(tmp_path, fields):
    image, p, _ = fields
    labels = p.argmax(-1).astype(np.uint8) + 1
    labels[:20] = 0
    write(tmp_path / "image.tif", image)
    write(tmp_path / "labels.tif", labels, nodata=0)
    colours = {1: (255, 0, 0, 255), 2: (0, 255, 0, 255), 3: (0, 0, 255, 255)}
    with rasterio.open(tmp_path / "labels.tif", "r+") as file:
        file.write_colormap(1, colours)
    refine_geotiff(tmp_path / "image.tif", tmp_path / "labels.tif", tmp_path / "out.tif", kernels=KERNELS)
    with rasterio.open(tmp_path / "out.tif") as file:
        assert file.nodata == 0 and colours.items() <= file.colormap(1).items()
        found = file.read(1)
    assert (found[:20] == 0).all() and found[20:].min() == 1


@pytest.mark.parametrize("resize", ["scores", "image"])
def test_scores_of_another_resolution_are_placed_by_their_coordinates(tmp_path, fields, resize):
    image, p, _ = fields
    coarse = p[2::5, 2::5]
    write(tmp_path / "image.tif", image)
    write(tmp_path / "p.tif", coarse, COARSE)
    refine_geotiff(
        tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", resize=resize, kernels=KERNELS
    )
    (found,), profile, _ = read(tmp_path / "out.tif")
    expected = fwcrf.refine(image, coarse, resize=resize, align=(5.0, 2.0), kernels=KERNELS)
    np.testing.assert_array_equal(found, expected)
    assert profile["transform"] == (UTM if resize == "scores" else COARSE)


def test_nodata_of_coarse_scores_is_that_of_the_nearest_sample(tmp_path, fields):
    image, p, _ = fields
    coarse = p[2::5, 2::5].copy()
    coarse[4, 6] = np.nan
    write(tmp_path / "image.tif", image)
    write(tmp_path / "p.tif", coarse, COARSE)
    refine_geotiff(
        tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", resize="scores", kernels=KERNELS
    )
    (found,), *_ = read(tmp_path / "out.tif")
    outside = np.zeros((H, W), bool)
    outside[20:25, 30:35] = True
    np.testing.assert_array_equal(found == 255, outside)


def test_bandwidths_in_metres(tmp_path, fields):
    image, p, _ = fields
    oblong = Affine(10.0, 0, 600000, 0, -20.0, 5200000)
    write(tmp_path / "image.tif", image, oblong)
    write(tmp_path / "p.tif", p, oblong)
    metres = (Spatial(20.0), Bilateral(120.0, 300.0, weight=3.0))
    refine_geotiff(
        tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", units="crs", kernels=metres
    )
    (found,), *_ = read(tmp_path / "out.tif")
    np.testing.assert_array_equal(found, fwcrf.refine(image, p, spacing=(20.0, 10.0), kernels=metres))
    degrees = Affine(1e-4, 0, 15, 0, -1e-4, 47)
    write(tmp_path / "image.tif", image, degrees, "EPSG:4326")
    write(tmp_path / "p.tif", p, degrees, "EPSG:4326")
    with pytest.raises(FileError, match="degrees, of another length"):
        refine_geotiff(tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", units="crs")


@pytest.mark.parametrize(
    ("transform", "crs", "message"),
    [
        (UTM, "EPSG:32634", "expected the same coordinate system: gdalwarp -t_srs EPSG:32633"),
        (
            Affine(10.0, 0, 600300, 0, -10.0, 5200000),
            "EPSG:32633",
            "covers x 600300 to .* expected the same area",
        ),
        (Affine(10.0, 0, 600005, 0, -10.0, 5200000), "EPSG:32633", "expected the same grid, or resize="),
        (Affine(10.0, 0, 600000, 0, 10.0, 5199100), "EPSG:32633", "turned or flipped"),
        (Affine(10.0, 0.2, 600000, 0.2, -10.0, 5200000), "EPSG:32633", "turned or flipped"),
    ],
)
def test_scores_of_another_place_are_refused(tmp_path, fields, transform, crs, message):
    image, p, _ = fields
    write(tmp_path / "image.tif", image)
    write(tmp_path / "p.tif", p, transform, crs)
    with pytest.raises(FileError, match=message):
        refine_geotiff(tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", kernels=KERNELS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tif", "p.tif"]


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_scores_without_a_place_are_taken_with_a_warning(tmp_path, fields):
    image, p, _ = fields
    write(tmp_path / "image.tif", image)
    write(tmp_path / "p.tif", p, None, None)
    with pytest.warns(UserWarning, match="has no coordinates, and is taken to lie on"):
        refine_geotiff(tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", kernels=KERNELS)


def test_an_interrupted_run_leaves_the_old_file(tmp_path, fields):
    image, p, _ = fields
    write(tmp_path / "image.tif", image)
    write(tmp_path / "p.tif", p)
    (tmp_path / "out.tif").write_bytes(b"before")

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refine_geotiff(
            tmp_path / "image.tif", tmp_path / "p.tif", tmp_path / "out.tif", kernels=KERNELS, progress=stop
        )
    assert (tmp_path / "out.tif").read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tif", "out.tif", "p.tif"]


@pytest.mark.parametrize("rows", [-1, 1])
@pytest.mark.parametrize("resize", ["scores", "image"])
def test_scores_may_have_a_row_less_or_more(tmp_path, fields, rows, resize):
    """Of the same resolution: no sample moves."""
    image, p, _ = fields
    scores = p[:rows] if rows < 0 else np.concatenate([p, p[-rows:]])
    write(tmp_path / "image.tif", image)
    write(tmp_path / "p.tif", scores)
    where = [tmp_path / name for name in ("image.tif", "p.tif", "out.tif")]
    with pytest.raises(FileError, match=rf"has {90 + rows} x 110 samples.* which has 90 x 110; expected"):
        refine_geotiff(*where, kernels=KERNELS)
    refine_geotiff(*where, resize=resize, kernels=KERNELS)
    (found,), *_ = read(where[2])
    expected = fwcrf.refine(image, scores, resize=resize, align=(1.0, 0.0), kernels=KERNELS)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("end", "taken"), [(2, True), (3, False)])
def test_coarse_scores_may_end_half_a_sample_before_the_image(tmp_path, fields, end, taken):
    image, p, _ = fields
    coarse = p[: p.shape[0] // 4 * 4 : 4, : p.shape[1] // 4 * 4 : 4]
    rows = 4 * len(coarse) + end
    more = np.concatenate([image, image[::-1]])[:rows, : 4 * coarse.shape[1]]
    write(tmp_path / "image.tif", more)
    write(tmp_path / "p.tif", coarse, Affine(40.0, 0, 600000, 0, -40.0, 5200000))
    where = [tmp_path / name for name in ("image.tif", "p.tif", "out.tif")]
    if taken:
        refine_geotiff(*where, resize="scores", kernels=KERNELS)
        with rasterio.open(where[2]) as file:
            assert file.shape == more.shape[:2]
    else:
        with pytest.raises(FileError, match="expected the same area, up to half a pixel of each"):
            refine_geotiff(*where, resize="scores", kernels=KERNELS)


def test_wrong_use_is_answered_with_a_sentence(tmp_path, fields):
    image, p, _ = fields
    where = write(tmp_path / "image.tif", image), write(tmp_path / "p.tif", p)
    for output, options, message in [
        (tmp_path / "out.png", {}, "is written as .tif"),
        (where[0], {}, "expected different files"),
        (tmp_path / "out.tif", {"bands": (1, 9)}, "has bands 1 to 4"),
        (tmp_path / "out.tif", {"kind": "labels"}, "expected a label map, one band"),
        (tmp_path / "out.tif", {"units": "m"}, "expected 'pixels' or 'crs'"),
    ]:
        with pytest.raises(ValueError, match=message):
            refine_geotiff(*where, output, **options)
    logits = write(tmp_path / "logits.tif", np.log(p))
    with pytest.raises(ValueError, match='If these are logits, pass kind="logits"'):
        refine_geotiff(where[0], logits, tmp_path / "out.tif", kernels=KERNELS)
    mask = write(tmp_path / "mask.tif", np.where(p[..., :1] > 0.5, 255, 0).astype(np.uint8))
    with pytest.raises(ValueError, match=r'without a label, pass void=255\..* pass kind="mask"'):
        refine_geotiff(where[0], mask, tmp_path / "out.tif", kernels=KERNELS)
    whole = write(tmp_path / "whole.tif", (255 * p).astype(np.uint8))
    with pytest.raises(FileError, match=r"bands of uint8; expected .*, or probabilities, floating-point"):
        refine_geotiff(where[0], whole, tmp_path / "out.tif")
    with pytest.raises(TypeError, match="return_probabilities= is no argument of refine_geotiff"):
        refine_geotiff(*where, tmp_path / "out.tif", return_probabilities=True)
    with rasterio.open(where[1]) as file, pytest.raises(TypeError, match=r"p\.tif is an open dataset"):
        refine_geotiff(where[0], file, tmp_path / "out.tif")
    (tmp_path / "cut.tif").write_bytes(where[0].read_bytes()[:-20000])
    with pytest.raises(FileError, match=r"truncated|Failed to read"):
        refine_geotiff(tmp_path / "cut.tif", where[1], tmp_path / "out.tif", kernels=KERNELS)
    with pytest.raises(FileError, match="cannot be read as a raster"):
        refine_geotiff(tmp_path / "none.tif", where[1], tmp_path / "out.tif")


@pytest.mark.parametrize("command", ["refine", "batch"])
def test_commands_take_and_write_them(tmp_path, fields, fwcrf_command, command):
    image, p, _ = fields
    image[:20] = 0
    for name in ("images", "scores", "out"):
        (tmp_path / name).mkdir()
    where = write(tmp_path / "images/a.tif", image, nodata=0), write(tmp_path / "scores/a.tif", p)
    model = "--bilateral", 40, 300, 3, "--spatial", 20, 1, "--units", "file"
    model = *model, "--memory", "1MB", "--bands", "4,1"
    out = tmp_path / "out/a.tif"
    if command == "refine":
        more = "-o", out, "--probabilities", tmp_path / "q.tif"
        status, _, err = fwcrf_command("refine", where[0], "--scores", where[1], *more, *model)
    else:
        more = "-o", out.parent, "--ending", ".tif", "--workers", 1, "--probabilities"
        status, _, err = fwcrf_command("batch", where[0].parent, "--scores", where[1].parent, *more, *model)
    assert status == 0, err
    parts = []
    refine_geotiff(
        *where, tmp_path / "e.tif", probabilities=tmp_path / "f.tif", bands=(4, 1), memory=1_000_000,
        kernels=[Bilateral(4.0, color=300.0, weight=3.0), Spatial(2.0)],
        progress=lambda k, n: parts.append(n),
    )  # fmt: skip
    assert len(parts) > 1
    assert out.read_bytes() == (tmp_path / "e.tif").read_bytes()
    q = tmp_path / "q.tif" if command == "refine" else out.parent / "a-probabilities.tif"
    assert q.read_bytes() == (tmp_path / "f.tif").read_bytes()
    if command == "batch":
        assert re.search(r"1 refined, .*; [\d.]+ % of the pixels changed", err)


@pytest.mark.filterwarnings("always:.*has coordinates or nodata")
def test_the_command_takes_arrays_of_scores_and_says_when_a_format_loses_the_place(
    tmp_path, fields, fwcrf_command
):
    image, p, _ = fields
    write(tmp_path / "image.tif", image)
    np.save(tmp_path / "p.npy", p)
    given = "refine", tmp_path / "image.tif", "--scores", tmp_path / "p.npy", "--bilateral", 12, 300, 3
    status, _, err = fwcrf_command(*given, "-o", tmp_path / "a.tif")
    assert status == 0, err
    status, _, err = fwcrf_command(*given, "-o", tmp_path / "a.npy")
    assert status == 0 and "image.tif has coordinates or nodata, which a.npy cannot hold" in err
    (found,), profile, _ = read(tmp_path / "a.tif")
    np.testing.assert_array_equal(found, np.load(tmp_path / "a.npy"))
    assert profile["transform"] == UTM
    status, _, err = fwcrf_command(*given, "-o", tmp_path / "a.tif", "--overlay")
    assert status == 2 and "a GeoTIFF is not drawn" in err


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_scores_in_a_tiff_without_a_place(tmp_path, fields, fwcrf_command):
    image, p, _ = fields
    write(tmp_path / "image.tif", image, None, None)
    for interleave in ("pixel", "band"):
        write(tmp_path / "p.tif", p, None, None, interleave=interleave)
        given = "refine", tmp_path / "image.tif", "--scores", tmp_path / "p.tif", "--bilateral", 12, 300, 3
        more = "-o", tmp_path / "a.tif", "--probabilities", tmp_path / "q.tif"
        status, _, err = fwcrf_command(*given, *more)
        assert status == 0, err
        labels, q = fwcrf.refine(image, p, kernels=[Bilateral(12, 300, 3)], return_probabilities=True)
        np.testing.assert_array_equal(read(tmp_path / "a.tif")[0][0], labels)
        np.testing.assert_allclose(np.moveaxis(read(tmp_path / "q.tif")[0], 0, -1), q, atol=1e-6)


# Prints the peak of the process beyond its start, in bytes, for a square image of a side.
PEAK = """
import sys, numpy as np, rasterio
from fwcrf.integrations.geotiff import refine_geotiff
from fwcrf.kernels import Spatial
side, folder = int(sys.argv[1]), sys.argv[2]
block = np.random.default_rng(0).integers(0, 4000, (256, side), dtype=np.uint16)
profile = dict(driver="GTiff", height=side, width=side, crs="EPSG:32633", tiled=True)
profile["transform"] = rasterio.Affine(10, 0, 0, 0, -10, 0)
for name, count, dtype in (("image", 3, "uint16"), ("p", 2, "float32")):
    with rasterio.open(f"{folder}/{name}.tif", "w", count=count, dtype=dtype, **profile) as file:
        for top in range(0, side, 256):
            for band in range(1, count + 1):
                part = block if name == "image" else 0.2 + 0.6 * ((block > 2000) == band - 1)
                file.write(part.astype(dtype), band, window=((top, top + 256), (0, side)))
def status(name):
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
refine_geotiff(f"{folder}/image.tif", f"{folder}/p.tif", f"{folder}/out.tif", memory=32 << 20,
               kernels=[Spatial(3)], num_steps=1)
print(status("VmHWM") - before)
"""


@pytest.mark.linux
def test_memory_is_that_of_a_window_and_not_of_the_image(tmp_path):
    command = [sys.executable, "-c", PEAK, "2304", str(tmp_path)]
    # The cache of GDAL, which is 5 % of the memory otherwise.
    done = subprocess.run(command, capture_output=True, text=True, env={"GDAL_CACHEMAX": "32"}, timeout=250)
    assert done.returncode == 0, done.stderr
    # 32 MiB each for the work and for the cache. Image, scores and labels alone would take 80 MB more, and
    # their work in float32 more than 600 MB.
    assert int(done.stdout) < (32 + 32 + 48) << 20

"""PNG, JPEG and TIFF, read by Pillow. TIFF with wide colours or several pages is read by tifffile."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.limits import check_size
from fwcrf.apps.files.palette import voc
from fwcrf.optional import needed

# Pillow's mode of a file: the mode to convert it to, and the bytes per pixel.
_COLOURS = {
    "1": ("L", 1),
    "L": ("L", 1),
    "LA": ("L", 1),
    "P": ("RGB", 3),
    "PA": ("RGB", 3),
    "RGB": ("RGB", 3),
    "RGBA": ("RGB", 3),
    "CMYK": ("RGB", 3),
    "YCbCr": ("RGB", 3),
    "I;16": ("I;16", 2),
    "I;16B": ("I;16B", 2),
    "I": ("I", 4),
    "F": ("F", 4),
}
_LABELS = {mode: _COLOURS[mode] for mode in ("L", "RGB", "RGBA", "I;16", "I;16B", "I")}
# Of GeoTIFF: pixel scale, tie points, transformation, keys; and the nodata of GDAL.
_GEO_TAGS = (33550, 33922, 34264, 34735, 42113)
_LABELS |= {"1": ("1", 1), "P": ("P", 1)}


def read_colours(path: Path, form: str, limit: int) -> np.ndarray:
    """Image ``(H, W, channels)``, grey or RGB. Transparency is dropped, a palette becomes RGB."""
    return _read(path, form, limit, _COLOURS)


def read_indices(path: Path, form: str, limit: int) -> np.ndarray:
    """Label map ``(H, W)``, from palette indices, grey values, or colours of the VOC colour map."""
    values = _read(path, form, limit, _LABELS)
    return values[..., 0] if values.shape[-1] == 1 else _labels_of_colours(path, values)


def write_indices(file: IO[bytes], labels: np.ndarray) -> None:
    """Write a label map ``(H, W)`` of uint8 as a PNG with the VOC palette."""
    Image = needed("PIL.Image", "images")
    picture = Image.frombytes("P", labels.shape[::-1], np.ascontiguousarray(labels, np.uint8).tobytes())
    picture.putpalette(voc().tobytes())
    picture.save(file, "PNG")


def write_colours(file: IO[bytes], image: np.ndarray, form: str = "PNG") -> None:
    """Write an image ``(H, W, 3)`` of uint8 as a PNG, or in another format of Pillow."""
    needed("PIL.Image", "images").fromarray(image).save(file, form)


def is_float_tiff(path: Path) -> bool:
    """True for a TIFF of floating-point numbers: scores, and not a label map."""
    return any(kind == 3 for kind in _tiff_tags(path, 339))


def is_geotiff(path: Path | str) -> bool:
    """True for a TIFF with a place on Earth or with nodata, as its tags say."""
    return bool(_tiff_tags(Path(path), *_GEO_TAGS))


def _tiff_tags(path: Path, *codes: int) -> list[Any]:
    """Values of tags of the first page; of sample formats, one for each sample."""
    tifffile = needed("tifffile", "images")
    try:
        with tifffile.TiffFile(path) as tiff:
            tags = tiff.pages[0].tags
            found = [tags[code].value for code in codes if code in tags]
    # A damaged file can make a decoder raise any exception.
    except Exception as error:
        raise FileError(f"{path} cannot be decoded as TIFF: {error}. Is it truncated or damaged?") from error
    return [one for value in found for one in (value if isinstance(value, tuple) else (value,))]


def write_float_tiff(file: IO[bytes], values: np.ndarray) -> None:
    """Write scores ``(H, W, labels)`` or ``(H, W)`` as a TIFF, a plane for each label."""
    planes = values if values.ndim == 2 else np.moveaxis(values, -1, 0)
    config = {} if values.ndim == 2 or len(planes) == 1 else {"planarconfig": "separate"}
    buffer = io.BytesIO()  # tifffile writes to a descriptor where there is one
    needed("tifffile", "images").imwrite(
        buffer, np.ascontiguousarray(planes), photometric="minisblack", metadata=None, **config
    )
    file.write(buffer.getbuffer())


def write_grey_tiff(file: IO[bytes], labels: np.ndarray) -> None:
    """Write a label map ``(H, W)`` of uint8 or uint16 as a TIFF."""
    needed("PIL.Image", "images").fromarray(labels).save(file, "TIFF", compression="tiff_adobe_deflate")


def _read(path: Path, form: str, limit: int, modes: dict[str, tuple[str, int]]) -> np.ndarray:
    try:
        # Opened here, because Pillow does not close a file that it cannot decode.
        with open(path, "rb") as file:
            picture = _opened(file, form)
            if picture is None:
                return _read_tiff(path, limit)
            if picture.mode not in modes:
                raise FileError(f"{path} has pixels of kind {picture.mode!r}; expected {', '.join(modes)}.")
            kind, size = modes[picture.mode]
            check_size(path, (picture.height, picture.width), size, limit)
            values = np.asarray(picture if kind == picture.mode else picture.convert(kind))
    except FileError:
        raise
    # A damaged file can make a decoder raise any exception.
    except Exception as error:
        raise FileError(
            f"{path} cannot be decoded as {form.upper()}: {error}. Is it truncated or damaged?"
        ) from error
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return values if values.ndim == 3 else values[..., None]


def _opened(file: IO[bytes], form: str) -> Any:
    """Pillow image, header read, pixels not yet decoded. None for a TIFF that needs tifffile."""
    needed("PIL.Image", "images")
    # The plugin classes, because Image.open applies Pillow's global size limit.
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile
    from PIL.TiffImagePlugin import TiffImageFile

    if form != "tiff":
        return {"png": PngImageFile, "jpeg": JpegImageFile}[form](file)
    try:
        picture = TiffImageFile(file)
    except SyntaxError:
        return None
    bits = picture.tag_v2.get(258, (1,))
    # Pillow drops the lower bits of wide colours and reads only one page at a time.
    if getattr(picture, "n_frames", 1) == 1 and (len(bits) == 1 or max(bits) <= 8):
        return picture
    return None


def _read_tiff(path: Path, limit: int) -> np.ndarray:
    """Values of a TIFF, ``(H, W, channels)``, or ``(pages, H, W, channels)`` if it has several pages."""
    tifffile = needed("tifffile", "images")
    with tifffile.TiffFile(path) as tiff:
        len(tiff.pages)  # stops at a cycle of pages, in which tiff.series would loop forever
        series = tiff.series[0]
        if series.dtype is None or series.dtype.kind not in "buif":
            raise FileError(f"{path} has dtype {series.dtype}; expected whole or floating-point numbers.")
        check_size(path, series.shape, series.dtype.itemsize, limit)
        values, axes = series.asarray(), series.axes
    if "S" in axes:
        values = np.moveaxis(values, axes.index("S"), -1)
    return values if "S" in axes else values[..., None]


def _labels_of_colours(path: Path, colours: np.ndarray) -> np.ndarray:
    if colours.ndim != 3 or colours.shape[-1] not in (3, 4):
        raise FileError(f"{path} has shape {colours.shape}; expected one value, or RGB, per pixel.")
    colours = colours[..., :3]
    packed = colours.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    known = voc().astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    order = np.argsort(known)
    place = order[np.searchsorted(known[order], packed).clip(max=255)]
    wrong = known[place] != packed
    if wrong.any():
        y, x = np.argwhere(wrong)[0]
        raise FileError(
            f"{path} is in colour, and {tuple(map(int, colours[y, x]))} at row {y}, column {x} is not one of "
            "the VOC colour map; expected a palette or grey image whose values are the labels."
        )
    return place.astype(np.uint8)

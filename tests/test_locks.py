"""The locks: one version per package, that of constraints.txt, with hashes, for all that is installed."""

import re
import sys
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = {"python_version": "3.11", "python_full_version": "3.11.0"}
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
# Its builds differ between indexes, and so do their hashes; constraints.txt has its exact version.
WITHOUT_HASHES = {"torch"}
# Extras that `make test` does without.
APART = ("gpu", "napari", "integrations")


def pins():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {
        canonicalize_name(one.name): str(one.specifier)
        for one in found
        if one.marker is None or one.marker.evaluate(ENVIRONMENT)
    }


def locked(path):
    """Versions by name, as "==1.0"; every line but comments is a part of an entry with hashes."""
    text = "".join(line for line in path.read_text().splitlines(True) if not line.startswith("#"))
    entries = re.findall(r"^([a-z0-9-]+)(==\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", text, re.M)
    assert "".join(f"{name}{version}{hashes}\n" for name, version, hashes in entries) == text
    assert len({name for name, *_ in entries}) == len(entries)
    return {name: version for name, version, _ in entries}


def everything():
    return {name: version for path in LOCKS for name, version in locked(path).items()}


def extras():
    """Requirements of the package and of all of its extras, without the package itself."""
    project = PROJECT["project"]
    listed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return [one for one in map(Requirement, listed) if one.name != "fwcrf"]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_versions_are_those_of_the_constraints(path):
    assert locked(path).items() <= pins().items()


def test_every_pin_is_locked_once():
    found = [name for path in LOCKS for name in locked(path)]
    assert sorted(found) == sorted(pins().keys() - WITHOUT_HASHES)


def test_every_extra_is_locked():
    develop, build = (locked(ROOT / "locks" / f"{name}.txt") for name in ("develop", "build"))
    optional = PROJECT["project"]["optional-dependencies"]
    apart = [Requirement(each) for extra in APART for each in optional[extra]]
    for one in extras():
        name = canonicalize_name(one.name)
        assert name in WITHOUT_HASHES or name in everything(), name
        assert one in apart or name in WITHOUT_HASHES or name in develop | build, name
        assert one.specifier.contains(pins()[name].removeprefix("=="))


def test_tools_of_the_build_are_locked_and_bounded():
    build = locked(ROOT / "locks" / "build.txt")
    assert {"cmake", "ninja"} <= build.keys()
    for one in map(Requirement, PROJECT["build-system"]["requires"]):
        assert {each.operator for each in one.specifier} == {">=", "<"}
        assert one.specifier.contains(build[one.name].removeprefix("=="))


def test_locks_name_no_index():
    for path in LOCKS:
        assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host", path.read_text())


def test_everything_that_the_makefile_installs_alone_has_a_lock():
    makefile = (ROOT / "Makefile").read_text()
    for names in re.findall(r"^(?:TESTED|TIMED)_PEERS := (.*)", makefile, re.M):
        for name in names.split():
            assert (ROOT / "locks" / f"{name}.txt") in LOCKS


# --- CUDA ----------------------------------------------------------------------------------------

OF_CUDA = re.compile(r"nvidia|cuda|cupy|cudnn|.*-cu\d\d")


def test_no_pin_is_a_part_of_cuda():
    assert not [name for name in pins() if OF_CUDA.match(name)]


def needs(requirement, seen):
    """The installed packages that a requirement brings, torch and its own left out."""
    name = canonicalize_name(requirement.name)
    if name in WITHOUT_HASHES:
        # A second torch is not asked for: the pinned one will do.
        assert requirement.specifier.contains(pins()["torch"].removeprefix("==")), requirement
        return seen
    chosen = {(name, extra) for extra in (*requirement.extras, "")} - seen
    try:
        listed = [Requirement(one) for one in metadata.requires(name) or [] if chosen]
    except metadata.PackageNotFoundError:
        return seen | chosen
    seen = seen | chosen
    for extra in sorted(extra for _, extra in chosen):
        for one in listed:
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                seen = needs(one, seen)
    return seen


def test_no_extra_but_gpu_brings_cuda_or_another_torch():
    """By what packages ask for themselves, as pip does without the locks."""
    optional = PROJECT["project"]["optional-dependencies"]
    listed = [Requirement(one) for extra in optional if extra != "gpu" for one in optional[extra]]
    seen = set()
    for one in listed:
        if one.name != "fwcrf":
            seen = needs(one, seen)
    names = {name for name, _ in seen}
    assert {"monai", "transformers", "rasterio", "scikit-learn"} <= names and len(names) > 60
    assert not [name for name in names if OF_CUDA.match(name) or name == "triton"]

"""What the package index shows, and the one place of each fact: version, address, bounds."""

import re
import sys
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import fwcrf

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
NAME = REPOSITORY.removeprefix("https://github.com/")


def requirements():
    """Requirements of the package and of its extras, without the package itself."""
    listed = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    return [one for one in map(Requirement, listed) if one.name != "fwcrf"]


# --- one place -----------------------------------------------------------------------------------


def test_the_version_is_in_one_place():
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    source = PYPROJECT["tool"]["scikit-build"]["metadata"]["version"]
    assert source["provider"] == "scikit_build_core.metadata.regex"
    written = re.findall(r'^__version__ = "(.*)"$', (ROOT / source["input"]).read_text(), re.M)
    assert written == [fwcrf.__version__] == [str(Version(fwcrf.__version__))]
    for path in ("CITATION.cff", "recipe/recipe.yaml", "CMakeLists.txt", "mkdocs.yml"):
        assert fwcrf.__version__ not in (ROOT / path).read_text(), path


def test_scikit_build_core_finds_the_version():
    from scikit_build_core.metadata.regex import dynamic_metadata

    settings = {**PYPROJECT["tool"]["scikit-build"]["metadata"]["version"]}
    del settings["provider"]
    settings["input"] = str(ROOT / settings["input"])
    assert dynamic_metadata("version", settings) == fwcrf.__version__


def test_the_second_distribution_has_the_version_and_the_pythons_of_the_first():
    folder = ROOT / "packaging" / "pydensecrf-fwcrf"
    found = tomllib.loads((folder / "pyproject.toml").read_text())
    (needed,) = map(Requirement, found["project"]["dependencies"])
    assert needed.name == "fwcrf" and needed.specifier.contains(fwcrf.__version__, prereleases=True)
    assert found["project"]["requires-python"] == PROJECT["requires-python"]
    source = found["tool"]["scikit-build"]["metadata"]["version"]["input"]
    assert (folder / source).resolve() == ROOT / "src" / "fwcrf" / "__init__.py"


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "CITATION.cff",
        "SECURITY.md",
        "RELEASING.md",
        "recipe/recipe.yaml",
        ".github/ISSUE_TEMPLATE/config.yml",
        "packaging/pydensecrf-fwcrf/pyproject.toml",
        "packaging/pydensecrf-fwcrf/README.md",
    ],
)
def test_the_address_is_the_same_everywhere(path):
    text = (ROOT / path).read_text()
    ours = re.findall(r"https://(?:github\.com|raw\.githubusercontent\.com)/([\w.-]+/fwcrf)\b", text)
    assert ours and {*ours} == {NAME}


def test_urls_belong_to_one_repository():
    owner, name = NAME.split("/")
    for label, url in PROJECT["urls"].items():
        assert url.startswith((REPOSITORY, f"https://{owner}.github.io/{name}/")), label


# --- the package index ---------------------------------------------------------------------------


def test_links_of_the_readme_are_absolute_and_lead_to_files():
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    inside = [
        re.fullmatch(rf"https://[\w.]+/{NAME}/(?:blob/)?main/([^#]+)(?:#.*)?", each) for each in targets
    ]
    assert all(each.startswith("https://") for each in targets)
    paths = [match[1] for match in inside if match]
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).is_file()]


def test_classifiers_name_the_pythons_that_are_built_and_tested():
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    built = [f"3.{each[3:-2]}" for each in PYPROJECT["tool"]["cibuildwheel"]["build"]]
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert listed == built == workflow["jobs"]["linux"]["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={listed[0]}"


def test_classifiers_name_the_system_on_which_tests_have_run():
    """Workflows build wheels for more systems: each is listed here when its tests have passed."""
    listed = re.findall(r"Operating System :: (?:\w+ :: )?(\w+)", "\n".join(PROJECT["classifiers"]))
    assert listed == ["Linux"]
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())
    runners = [each["os"] for each in workflow["jobs"]["wheels"]["strategy"]["matrix"]["include"]]
    assert [each.partition("-")[0] for each in runners] == ["ubuntu", "ubuntu", "macos", "windows"]


def test_the_page_of_the_installation_lists_the_extras():
    page = (ROOT / "docs" / "install.md").read_text().partition("## Extras")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z]+)` \|", page, re.M)
    ours = {"docs", "test", "integrations", "dev"}  # for the project itself
    assert sorted(listed) == sorted(PROJECT["optional-dependencies"].keys() - ours)


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", requirements(), ids=str)
def test_every_requirement_has_a_lower_bound(one):
    operators = [each.operator for each in one.specifier]
    assert operators.count(">=") == 1 and {*operators} <= {">=", "<"}


def test_a_package_has_one_bound():
    bounds = {}
    for one in requirements():
        assert bounds.setdefault(one.name, one.specifier) == one.specifier, one.name
    assert bounds["numpy"].contains("1.26.0") and not bounds["mkdocs"].contains("2.0")


def test_the_conda_recipe_has_the_same_bounds():
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text())["requirements"]
    bounds = {
        one.name: str(one.specifier)
        for one in [*requirements(), *map(Requirement, PYPROJECT["build-system"]["requires"])]
    }
    bounds = {"pytorch": bounds.pop("torch"), **bounds}
    compared = 0
    for line in [*recipe["host"], *recipe["run"]]:
        name, _, bound = line.partition(" ") if isinstance(line, str) else ("", "", "")
        if bound:
            assert {*bound.split(",")} == {*bounds[name].split(",")}, line
            compared += 1
    assert compared >= 10
    extras = PROJECT["optional-dependencies"]
    needed = {Requirement(each).name for name in ("images", "cli", "demo") for each in extras[name]} - {
        "fwcrf"
    }
    assert needed <= {line.partition(" ")[0] for line in recipe["run"]}


# --- releases ------------------------------------------------------------------------------------


def test_a_release_with_another_tag_or_address_is_refused(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    from release_check import differences

    found = list(differences("v99.0", "https://github.com/someone/else"))
    assert "the tag is v99.0" in found[0] and "the repository is https://github.com/someone/else" in found[1]
    said = " ".join(differences(f"v{fwcrf.__version__}", REPOSITORY))
    assert "the tag" not in said and "the repository" not in said

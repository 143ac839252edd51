"""Workflows, forms and configurations follow their schemas, and call targets and versions that exist."""

import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

check_jsonschema = pytest.importorskip(
    "check_jsonschema", reason="needs check-jsonschema: pip install 'fwcrf[test]'"
)

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    GITHUB / "dependabot.yml": "dependabot",
    GITHUB / "ISSUE_TEMPLATE" / "bug.yml": "github-issue-forms",
    GITHUB / "ISSUE_TEMPLATE" / "feature.yml": "github-issue-forms",
    GITHUB / "ISSUE_TEMPLATE" / "config.yml": "github-issue-config",
    ROOT / "CITATION.cff": "citation-file-format",
}


def status(path, schema):
    """The exit status of check-jsonschema with a schema that comes with it: no network is used."""
    arguments = ["--builtin-schema", f"vendor.{schema}", str(path)]
    with pytest.raises(SystemExit) as ended:
        check_jsonschema.main(arguments)
    return ended.value.code


def jobs(name):
    return yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text())["jobs"]


def steps():
    for path in WORKFLOWS:
        for job in jobs(path.stem).values():
            yield from job["steps"]


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_files_follow_their_schemas(path):
    assert status(path, SCHEMAS[path]) == 0


def test_every_file_has_a_schema():
    assert {*GITHUB.rglob("*.yml")} == {path for path in SCHEMAS if GITHUB in path.parents}


def test_an_error_in_a_workflow_is_found(tmp_path):
    broken = (GITHUB / "workflows" / "docs.yml").read_text().replace("runs-on:", "runs_on:")
    (tmp_path / "broken.yml").write_text(broken)
    assert status(tmp_path / "broken.yml", "github-workflows") == 1


def test_workflows_call_targets_of_the_makefile():
    targets = {*re.findall(r"^([a-z-]+): .*## ", (ROOT / "Makefile").read_text(), re.M)}
    called = {name for step in steps() for name in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    nightly = {each["run"] for each in jobs("nightly")["long"]["strategy"]["matrix"]["include"]}
    assert {"test", "check", "docs", "test-lowest"} <= called <= targets
    assert (
        {"sanitize", "fuzz", "agree", "mutants", "triton", "integrations", "wheel-test"} <= nightly <= targets
    )


@pytest.mark.parametrize("name", ["arm", "compilers"])
def test_the_nightly_run_installs_the_compilers_that_a_target_needs(name):
    """The target installs them for root only, which a workflow is not."""
    script = (ROOT / "tests" / "reliability" / f"{name}_test.sh").read_text()
    needed = {
        package
        for line in script.splitlines()
        if "need.sh" in line
        for package in re.fullmatch(r".*need\.sh (?:\"[^\"]*\"|\S+) \"?([^\"]*)\"?", line)[1].split()
    }
    steps = [step for step in jobs("nightly")["long"]["steps"] if f"'test-{name}'" in str(step.get("if"))]
    (step,) = steps
    assert needed and needed <= {*step["run"].split()}


def test_wine_has_its_folder_outside_of_the_repository():
    """The folder has a link to the file system's root, and scikit-build-core follows links below build/."""
    script = (ROOT / "tests" / "reliability" / "compilers_test.sh").read_text()
    assert re.findall(r"\bWINEPREFIX=(\S+ -d)", script) == ['"$(mktemp -d']
    assert "wine" in script and len(re.findall(r"\bWINEPREFIX=", script)) == 1


def test_workflows_read_unless_a_job_says_more():
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}, path.name
        more = {name for name, job in jobs(path.stem).items() if "permissions" in job}
        assert more <= {"publish", "deploy"}


def test_actions_have_a_version_and_jobs_a_known_system():
    for step in steps():
        assert re.fullmatch(r"(actions|pypa)/[\w-]+@(v\d+|release/v1)", step.get("uses", "actions/x@v1"))
    for path in WORKFLOWS:
        assert "-latest" not in path.read_text()


def test_publishing_is_trusted_and_waits_for_wheels_and_source():
    publish = jobs("wheels")["publish"]
    assert publish["needs"] == ["wheels", "sdist"]
    assert publish["permissions"]["id-token"] == "write" and publish["environment"]["name"] == "pypi"
    assert "refs/tags/v" in publish["if"]
    assert "secrets." not in (GITHUB / "workflows" / "wheels.yml").read_text()


def test_both_distributions_are_published():
    built = [step.get("run", "") for step in jobs("wheels")["sdist"]["steps"]]
    assert "python -m pip wheel --no-deps --wheel-dir dist packaging/pydensecrf-fwcrf" in built
    assert (ROOT / "packaging" / "pydensecrf-fwcrf" / "pyproject.toml").exists()


def test_wheels_bring_no_openmp_runtime():
    pyproject = (ROOT / "pyproject.toml").read_text()
    script = (ROOT / "tests" / "reliability" / "wheel_test.sh").read_text()
    repair = "auditwheel repair --exclude libgomp.so.1 -w"
    assert repair in pyproject and repair in script
    assert "--exclude libomp.dylib" in pyproject


def test_tests_of_wheels_are_there():
    listed = (ROOT / "tests" / "reliability" / "wheel_tests.txt").read_text().split()
    assert len(listed) > 10
    for line in listed:
        assert (ROOT / line.removeprefix("--deselect=").partition("::")[0]).exists(), line


def test_hooks_have_the_versions_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert len(hooks) == 4
    for hook in hooks:
        (tool,) = hook["additional_dependencies"]
        assert tool in lines
        assert hook["entry"].startswith(Requirement(tool).name)

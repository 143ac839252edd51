"""Every block of the README and the documentation runs and answers as printed; pages and links are there."""

import doctest
import inspect
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

import fwcrf

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {page: re.findall(r"```(python|console)\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}


def name(page):
    return page.relative_to(ROOT).as_posix()


LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]], ids=name)
def test_blocks_run_from_top_to_bottom(page, tmp_path, monkeypatch, fwcrf_command):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    for language, block in BLOCKS[page]:
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
            continue
        for command, answer in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            status, printed = carry_out(command, fwcrf_command)
            expected = re.search(r"# exit status (\d)", command)
            assert status == (int(expected[1]) if expected else 0), printed
            assert doctest.OutputChecker().check_output(answer, printed, LOOSELY), printed


def carry_out(command, fwcrf_command):
    """The exit status and what is printed; our own commands without a process of their own, for speed."""
    if command.startswith("fwcrf "):
        status, out, err = fwcrf_command(*shlex.split(command, comments=True)[1:])
        return status, err + out
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.returncode, done.stderr + done.stdout


def test_there_are_blocks_to_run():
    assert sum(map(len, BLOCKS.values())) >= 3


# --- the site ------------------------------------------------------------------------------------


def listed_pages(entries):
    for entry in entries:
        for value in entry.values():
            yield from [f"docs/{value}"] if isinstance(value, str) else listed_pages(value)


def test_every_page_is_listed_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(listed_pages(nav)) == sorted(name(page) for page in PAGES if page.parent != ROOT)


def headings(page):
    """The anchors of a page, as the table of contents makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?:", target):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.is_file(), target
            assert not anchor or anchor in headings(there), target


def test_what_is_linked_is_not_forgotten():
    assert headings(ROOT / "docs" / "solvers.md") >= {"how-to-choose", "annealing", "add-a-solver"}


def test_every_public_name_is_in_the_reference():
    """By itself, or as a member of a module that is shown whole."""
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    for name in fwcrf.__all__:
        value = getattr(fwcrf, name)
        module = value.__name__ if inspect.ismodule(value) else value.__module__
        assert {f"fwcrf.{name}", module} & shown or any(s.startswith(module + ".") for s in shown), name


def test_the_index_of_the_reference_has_every_public_name():
    listed = re.findall(r"\[`(\w+)`\]", (ROOT / "docs" / "api" / "index.md").read_text())
    assert sorted(listed) == sorted(fwcrf.__all__)


def test_nothing_is_left_to_be_filled_in():
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
        assert not re.search(r"\b(?:TODO|FIXME|XXX|TABLE|SEAMS|MEMORY|COSTTABLE)\b", text), page.name

"""The pages of the documentation show their mathematics, and load nothing from the network."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
KATEX = DOCS / "assets" / "katex"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
CODE = re.compile(
    r"^```.*?^```$|^ {4}.*?$|(`+)(?:(?!\1).)+\1|<!--.*?-->|<https?://\S+>", re.DOTALL | re.MULTILINE
)
FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$", re.DOTALL)
TAG = re.compile(r"</?[A-Za-z!?][^>\n]*>?")


def load(name):
    """The module ``docs/name.py``."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def formulas(page):
    """Formulas of a page: pairs of LaTeX and whether it is displayed on lines of its own."""
    return [
        (found["display"] or found["inline"], found["display"] is not None)
        for found in FORMULA.finditer(CODE.sub("", page.read_text()))
    ]


def name(page):
    return page.relative_to(ROOT).as_posix()


# --- tags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_markdown_has_no_tags(page):
    """Browsers do not show ``<x, P x>``: mathematics stands between dollar signs, code between backticks."""
    assert TAG.findall(FORMULA.sub("", CODE.sub("", page.read_text()))) == []


def test_the_search_finds_the_bracket_of_an_energy():
    text = "minimise E(x) = 1/2 <x, P x> + <u, x> over\n\n    p = <c, x>\n\n`<a, b>` and $a <b, c> d$"
    assert TAG.findall(FORMULA.sub("", CODE.sub("", text))) == ["<x, P x>", "<u, x>"]


def test_docstrings_keep_their_brackets():
    pytest.importorskip("griffe", reason="mkdocs is not installed: pip install 'fwcrf[docs]'")
    plain = load("plain_docstrings").plain
    assert plain("E(x) = <x, P x> / 2, ``<u, x>``::\n\n    p = <c, x>") == (
        "E(x) = &lt;x, P x> / 2, ``<u, x>``:\n\n    p = <c, x>"
    )
    assert plain("Values.\n\n::\n\n    <c, x>\n\n>>> x < y\nTrue") == (
        "Values.\n\n    <c, x>\n\n```pycon\n>>> x < y\nTrue\n```"
    )
    brackets = 0
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                brackets += len(TAG.findall(CODE.sub("", text)))
                assert TAG.findall(CODE.sub("", plain(text))) == [], path
    assert brackets > 20  # of inner products: else this test has nothing to look at


def test_built_pages_are_checked(tmp_path, capsys):
    check = load("check_site")
    (tmp_path / "good.css").write_text("")
    page = tmp_path / "index.html"
    page.write_text('<html><link rel="stylesheet" href="good.css"><p>1 &lt; 2</p></html>')
    assert check.main(tmp_path) == 0
    page.write_text('<p>1/2 <x, P x></p><script src="https://cdn.example/a.js"></script><img src="none.png">')
    assert check.main(tmp_path) == 1
    printed = capsys.readouterr().err
    for fault in ("unknown tag <x,>", "a.js is loaded from the network", "none.png does not exist"):
        assert fault in printed
    page.write_text("<p>" + "long " * check.LARGEST_PAGE)
    assert check.main(tmp_path) == 1
    assert "split the page" in capsys.readouterr().err
    assert check.main(tmp_path / "empty") == 1


# --- formulas ------------------------------------------------------------------------------------


def test_katex_is_here_with_its_licence_and_fonts():
    style = (KATEX / "katex.min.css").read_text()
    addresses = re.findall(r"url\(([^)]+)\)", style)
    assert sorted(addresses) == sorted(f"fonts/{font.name}" for font in (KATEX / "fonts").iterdir())
    assert "MIT" in (KATEX / "LICENSE").read_text()
    version = re.search(r"KaTeX (\S+),", (KATEX / "ORIGIN.txt").read_text())[1]
    assert f'"{version}"' in (KATEX / "katex.min.js").read_text()
    assert version in style


def test_mkdocs_loads_files_of_the_repository_alone():
    yaml = pytest.importorskip("yaml")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    loaded = settings["extra_css"] + settings["extra_javascript"]
    assert {"assets/katex/katex.min.js", "assets/katex/katex.min.css", "assets/mathematics.js"} <= set(loaded)
    assert all((DOCS / path).is_file() for path in loaded)
    assert settings["theme"]["font"] is False  # else from a server of Google


def test_mkdocs_stays_below_version_2():
    """Version 2 has no plugins, and so no API reference: CONTRIBUTING.md has the way from it."""
    assert re.search(r'^docs = \["mkdocs[^"]*<2"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_the_energy_is_a_formula():
    assert any(r"\tfrac12 \langle x, P x\rangle" in text for text, _ in formulas(DOCS / "solvers.md"))


def test_formulas_in_tables_have_no_bars():
    r"""A bar ends the cell: ``\lvert`` and ``\lVert``."""
    for page in PAGES:
        rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
        assert not [
            row for row in rows for found in FORMULA.finditer(CODE.sub("", row)) if "|" in found[0]
        ], name(page)


def test_formulas_are_latex_that_katex_understands():
    sync_api = pytest.importorskip("playwright.sync_api")
    sys.path.insert(0, str(ROOT / "tests" / "apps" / "demo"))
    try:
        from browsers import MISSING, find_browser
    finally:
        sys.path.pop(0)
    if (browser := find_browser()) is None:
        pytest.skip(MISSING)
    with sync_api.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = chromium.new_page()
        tab.add_script_tag(path=KATEX / "katex.min.js")
        render = """all => all.map(([page, text, displayMode]) => {
            try { katex.renderToString(text, {displayMode, strict: "error"}); return null; }
            catch (error) { return `${page}: ${error}`; }
        }).filter(Boolean)"""
        (fault,) = tab.evaluate(render, [["a page", r"\langle x, P x\rangl", False]])
        assert fault.startswith("a page: ParseError")
        assert (
            tab.evaluate(render, [[name(page), *formula] for page in PAGES for formula in formulas(page)])
            == []
        )
        chromium.close()

"""Systems other than Linux: tests that they cannot run are marked, and text has one encoding everywhere.

Read from the code, since these systems are not at hand.
"""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "fwcrf"
# Uses that need a mark. /dev/null has a portable name, os.devnull.
NEEDS = {
    "linux": re.compile(r"/proc/|/dev/(?!fd)|\bRLIMIT_AS\b|[\"']u?mount[\"']"),
    "posix": re.compile(
        r"\bos\.(fork|mkfifo|kill|killpg|setsid)\(|\.send_signal\(|\bSIGKILL\b|[\"']fork[\"']|\.symlink_to\("
        r"|\bresource\.|\bstart_new_session\b"
    ),
}
ABSENT = {"resource", "fcntl", "pwd", "grp", "termios", "tty", "pty"}
ONLY_THERE = {"lock_posix.py", "fake_msvcrt.py", "kills.py"}


def marks_and_needs(text):
    """Each test of a module: its name, its marks, and the marks that it needs.

    A test uses what the functions, fixtures, constants and programs of its module use that it names.
    """
    code, uses, names, marks = ast.parse(text), {}, {}, {}
    for part in code.body:
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            defined = [part.name]
        elif isinstance(part, ast.Assign):
            defined = [n.id for target in part.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        else:
            continue
        segment = ast.get_source_segment(text, part) or ""
        decorators = " ".join(ast.unparse(each) for each in getattr(part, "decorator_list", ()))
        inside = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
        inside |= {n.arg for n in ast.walk(part) if isinstance(n, ast.arg)}
        for name in defined:
            uses[name] = {mark for mark, pattern in NEEDS.items() if pattern.search(segment)}
            names[name], marks[name] = inside - {name}, {*re.findall(r"pytest\.mark\.(\w+)", decorators)}
    for test in (name for name in uses if name.startswith("test_")):
        needed, reached, left = set(), {test}, [test]
        while left:
            name = left.pop()
            # A fixture with a mark of its own, or on one of its parameters, passes it on.
            needed |= uses[name] - (marks[name] if name != test else set())
            left += [each for each in names[name] & uses.keys() if each not in reached]
            reached |= names[name]
        yield test, marks[test], needed


def unmarked(text):
    """The tests of a module that need a mark and have none."""
    for name, marks, needed in marks_and_needs(text):
        if "linux" in needed and "linux" not in marks:
            yield name, "linux"
        elif "posix" in needed and not marks & {"posix", "linux"}:
            yield name, "posix"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def test_a():\n    os.fork()", [("test_a", "posix")]),
        ("def child():\n    os.kill(1, 9)\ndef test_a():\n    child()", [("test_a", "posix")]),
        ("P = 'open(\"/proc/self\")'\n@pytest.mark.posix\ndef test_a(x):\n    run(P)", [("test_a", "linux")]),
        (
            "@pytest.fixture\ndef link(p):\n    p.symlink_to('b')\ndef test_a(link):\n    pass",
            [("test_a", "posix")],
        ),
        ("@pytest.mark.linux\ndef test_a():\n    os.fork()", []),
        ("def test_a():\n    open(os.devnull)", []),
    ],
)
def test_the_search_finds_tests_without_a_mark(text, found):
    assert list(unmarked(text)) == found


def test_tests_that_need_a_system_are_marked():
    paths = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    assert len(paths) > 150
    missing = {path.name: found for path in paths if (found := list(unmarked(path.read_text("utf-8"))))}
    assert not missing
    text = "".join(path.read_text("utf-8") for path in paths)
    assert text.count("@pytest.mark.posix") > 20 and text.count("pytest.mark.linux") > 10


def imported(code):
    """Modules that are imported with a module."""
    for part in code.body:
        if isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            yield part.module


def test_no_module_is_imported_that_windows_lacks():
    for path in (path for folder in (SOURCE, TESTS) for path in folder.rglob("*.py")):
        if path.name not in ONLY_THERE:
            assert not ABSENT & {*imported(ast.parse(path.read_text("utf-8")))}, path


def without_encoding(text):
    """Lines that read or write text in the encoding of the system, which is not UTF-8 on Windows."""
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        of = call.func
        name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
        if name not in ("open", "fdopen", "read_text", "write_text", "NamedTemporaryFile"):
            continue
        # Modules and archives have functions of their own: Image.open, os.open, archive.open.
        library = isinstance(of, ast.Attribute) and name == "open" and not is_path(of.value)
        constants = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
        binary = any(re.fullmatch(r"[rwxa]\+?b\+?", each) for each in constants if isinstance(each, str))
        encoding = any(keyword.arg in ("encoding", None) for keyword in call.keywords)
        if not library and not binary and not encoding:
            yield call.lineno


def is_path(node):
    """Whether an expression looks like a path: one of its names says so, or it joins parts."""
    return isinstance(node, ast.BinOp) or bool(re.search(r"path|Path|partial|file\b", ast.unparse(node)))


def test_text_is_utf_8_on_every_system():
    assert list(without_encoding("open(a)\nopen(a, 'rb')\np.read_text()\nImage.open(a)\npath.open()")) == [
        1,
        3,
        5,
    ]
    found = {
        f"{path.relative_to(SOURCE).as_posix()}:{line}"
        for path in SOURCE.rglob("*.py")
        for line in without_encoding(path.read_text("utf-8"))
    }
    assert not found

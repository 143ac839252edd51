"""Words that send a reader back to look for a noun: their rate in docstrings and comments is limited."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = ("what", "those", "others")
WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")

# Uses per 1,000 words; to be lowered whenever the text gets plainer, and never raised.
LIMITS = {
    "src/fwcrf": {"what": 0.2, "those": 0.2, "others": 0.2},
    "csrc": {"what": 0.5, "those": 0.5, "others": 0.5},
}


def python_prose(source: str) -> str:
    """The docstrings and comments of a Python file, one after the other."""
    comments = [
        token.string.lstrip("#")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, documented))
    return "\n".join([*comments, *(ast.get_docstring(node) or "" for node in nodes)])


def cpp_prose(source: str) -> str:
    """The comments of a C++ file, one after the other."""
    # String and character literals come first, so that // inside one starts no comment.
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//([^\n]*)|/\*(.*?)\*/'
    found = re.finditer(pattern, source, re.DOTALL)
    return "\n".join(match[1] or match[2] or "" for match in found)


def prose(folder: str) -> dict[Path, str]:
    """Docstrings and comments by file."""
    read = {".py": python_prose, ".pyi": python_prose, ".cpp": cpp_prose, ".hpp": cpp_prose}
    paths = [p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in read]
    return {path: read[path.suffix](path.read_text()) for path in paths}


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


@pytest.mark.parametrize("folder", LIMITS)
def test_words_without_a_noun_are_rare(folder):
    by_file = {path: words(text) for path, text in prose(folder).items()}
    total = sum(map(len, by_file.values()))
    assert total > 5000  # the texts are found at all
    too_many = []
    for word in WORDS:
        counts = {path: found.count(word) for path, found in by_file.items()}
        rate = 1000 * sum(counts.values()) / total
        if rate > LIMITS[folder][word]:
            most = sorted(counts, key=counts.__getitem__, reverse=True)[:5]
            where = ", ".join(f"{path.relative_to(ROOT)} {counts[path]}" for path in most)
            too_many.append(f"{word!r}: {rate:.2f} per 1,000 words, at most {LIMITS[folder][word]} ({where})")
    assert not too_many, "\n".join(too_many)


def test_docstrings_and_comments_of_python_are_read():
    source = '''"""One."""\nx = "two"  # three\ndef f():\n    """Four."""\n    "five"\n'''
    assert words(python_prose(source)) == ["three", "one", "four"]


def test_comments_of_cpp_are_read():
    source = 'int a = 1;  // one\nauto b = "// two";\nchar c = \'"\';  /* three\n four */ int what;'
    assert words(cpp_prose(source)) == ["one", "three", "four"]


def test_words_are_whole_and_of_any_case():
    assert words("What? whatever; otherS, another's") == ["what", "whatever", "others", "another's"]

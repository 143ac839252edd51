"""Refuse a release whose tag or repository differs from the metadata: release_check.py v1.2.3 https://github.com/OWNER/NAME"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def differences(tag, repository):
    """A sentence for each difference: of tag and version, repository and address, or a changelog without."""
    version = re.search(r'^__version__ = "(.*)"$', (ROOT / "src/fwcrf/__init__.py").read_text(), re.M)[1]
    listed = re.search(r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    if tag != f"v{version}":
        yield f"the tag is {tag}, and src/fwcrf/__init__.py has {version}: tag v{version}, or change it there"
    if repository.lower() != listed.lower():
        yield f"the repository is {repository}, and pyproject.toml names {listed}: see RELEASING.md"
    if not re.search(rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(), re.M):
        yield f"CHANGELOG.md has no section [{version}]: rename Unreleased"


if __name__ == "__main__":
    sys.exit("\n".join(differences(*sys.argv[1:])) or None)

"""The browser for the tests of the demo page: found, or installed where nobody has to be asked.

``python tests/apps/demo/browsers.py`` looks for Chromium and, as root on a system with apt-get, installs its
package. Elsewhere it prints how to get one, and fails with ``--required``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUICKLY = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30")
MISSING = """\
No Chromium: tests/apps/demo/test_browser.py is skipped; the page is not tested in a browser, only its server.
To get one, install the system's package chromium, run `make browser`, or set FWCRF_CHROMIUM to its path."""


def find_browser() -> str | None:
    """The path of a Chromium of the system, of FWCRF_CHROMIUM, or of playwright's own."""
    found = [os.environ.get("FWCRF_CHROMIUM"), *map(shutil.which, NAMES)]
    return next((path for path in found if path and Path(path).exists()), None) or _of_playwright()


def _of_playwright() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as running:
        path = running.chromium.executable_path
    return path if Path(path).exists() else None


def install() -> str | None:
    """The path of a browser, installed by apt-get if there was none; None if that is not possible here."""
    if (path := find_browser()) is not None:
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing the package chromium for the tests of the demo page", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", "chromium"]):
            done = subprocess.run(
                ["apt-get", *QUICKLY, *command], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            if done.returncode:
                print(f"apt-get {command[0]} failed:", *done.stdout.splitlines()[-3:], sep="\n  ")
                return None
    return find_browser()


if __name__ == "__main__":
    path = install()
    print(f"browser for the tests: {path}" if path else MISSING)
    sys.exit(path is None and "--required" in sys.argv)

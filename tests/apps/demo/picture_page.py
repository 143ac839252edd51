"""Write docs/assets/demo.jpg anew: ``python tests/apps/demo/picture_page.py``, after a change of the page."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from browsers import find_browser
from demo_pages import served
from PIL import Image
from playwright.sync_api import sync_playwright

from fwcrf.apps.demo.solve import warm_up

PICTURE = Path(__file__).parents[3] / "docs" / "assets" / "demo.jpg"
# The first answer has ended: labels, and the energies of all solvers.
ANSWERED = "() => document.body.dataset.answers > 0 && !document.body.classList.contains('busy')"


def main() -> None:
    path = find_browser()
    if path is None:
        sys.exit("no Chromium found; `make browser` installs one, or set FWCRF_CHROMIUM to its path")
    warm_up()  # else the times on the page are of imports
    with served() as address, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        page.goto(address)
        page.wait_for_function(ANSWERED, timeout=120_000)
        shot = page.screenshot(full_page=True)
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").save(PICTURE, quality=82, optimize=True)
    print(f"written: {PICTURE}")


if __name__ == "__main__":
    main()

"""``python docs/check_site.py site`` checks the built pages, for a browser without a network.

Refused are tags that HTML does not have (``<x, P x>`` in Markdown is one, and is not shown), files that are
loaded from elsewhere or are missing, and pages that are too long.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

TAGS = frozenset(
    """
    a abbr article aside b blockquote body br button circle code dd del details div dl dt em figcaption
    figure footer form g h1 h2 h3 h4 h5 h6 head header hr html i img input ins kbd label li link main
    mark meta nav ol p path pre script section small span strong style sub summary sup svg table tbody
    td th thead time title tr ul
    """.split()  # noqa: SIM905
)
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
LARGEST_PAGE = 250_000  # bytes


class Page(HTMLParser):
    """Unknown tags with their lines, and addresses of all files that a browser loads with the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.unknown: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.unknown.append(f"<{tag}> in line {self.getpos()[0]}")
        values = dict(attrs)
        address = values.get(LOADED.get(tag, ""))
        if address and (tag != "link" or values.get("rel") in ("stylesheet", "icon")):
            self.loaded.append(address)


def faults(path: Path, site: Path) -> list[str]:
    """Faults of one built page, each a sentence."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    found = [
        f"unknown tag {tag}: put mathematics between dollar signs, code in backticks" for tag in page.unknown
    ]
    for address in page.loaded:
        parts = urlsplit(address)
        if parts.scheme == "data":
            continue
        folder = site if parts.path.startswith("/") else path.parent
        if parts.scheme or parts.netloc:
            found.append(f"{address} is loaded from the network: copy the file to docs/assets")
        elif not (folder / unquote(parts.path).lstrip("/")).exists():
            found.append(f"{address} does not exist")
    if len(text.encode()) > LARGEST_PAGE:
        found.append(f"{len(text.encode()):,} bytes, of at most {LARGEST_PAGE:,}: split the page")
    return found


def main(site: Path) -> int:
    """The exit status: 1 if a page has a fault, and all faults are printed."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        print(f"{site} has no pages: run mkdocs build first", file=sys.stderr)
        return 1
    lines = [f"{page.relative_to(site)}: {fault}" for page in pages for fault in faults(page, site)]
    print(*lines, sep="\n", file=sys.stderr, end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "site")))

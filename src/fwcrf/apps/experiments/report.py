"""One self-contained HTML page of all outcomes."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from fwcrf.apps.experiments.outcome import Finding, Outcome
from fwcrf.apps.experiments.tables import as_html
from fwcrf.apps.experiments.verdict import Verdict
from fwcrf.apps.files.atomic import writing

_STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
td, th { border-bottom: 1px solid #ddd; padding: 2px 10px; text-align: right }
td:first-child, th:first-child { text-align: left }
.holds { color: #17692a } .fails { color: #a31515 } .unknown { color: #666 }
img { max-width: 100% }
""".strip()


def write_report(path: Path, outcomes: Sequence[Outcome], notes: Sequence[str] = ()) -> None:
    """Write an HTML file with embedded figures. ``notes`` are sentences for its head."""
    head = [_counted(outcomes), *notes]
    body = "".join(f"<p>{html.escape(note)}</p>\n" for note in head)
    body += _overview(outcomes) + "".join(map(_section, outcomes))
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>fwcrf: experiments</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>Experiments</h1>\n{body}</body></html>\n"
    )
    with writing(path) as file:
        file.write(page.encode())


def _counted(outcomes: Sequence[Outcome]) -> str:
    found = [finding.verdict for outcome in outcomes for finding in outcome.findings if finding.verdict]
    count = {verdict: found.count(verdict) for verdict in Verdict}
    return (
        f"Of {len(found)} claims of the paper {count[Verdict.HOLDS]} hold on these images, "
        f"{count[Verdict.FAILS]} do not, and for {count[Verdict.UNKNOWN]} the images cannot tell."
    )


def _overview(outcomes: Sequence[Outcome]) -> str:
    """A list of the paper's claims with our numbers: first claims that do not hold, last undecided ones."""
    found = [(f, o.name) for o in outcomes for f in o.findings if f.verdict is not None]
    order = [Verdict.FAILS, Verdict.HOLDS, Verdict.UNKNOWN]
    found.sort(key=lambda pair: order.index(pair[0].verdict))  # type: ignore[arg-type]
    items = "".join(_item(finding, f' (<a href="#{name}">{name}</a>)') for finding, name in found)
    return f'<h2 id="statements">Claims of the paper</h2>\n<ul>\n{items}</ul>\n'


def _item(finding: Finding, more: str = "") -> str:
    kind = finding.verdict.name.lower() if finding.verdict else ""
    return f'<li class="{kind}">{html.escape(str(finding))}{more}</li>\n'


def _section(outcome: Outcome) -> str:
    picture = base64.b64encode(outcome.figure).decode()
    found = "".join(map(_item, outcome.findings))
    return (
        f'<h2 id="{outcome.name}">{html.escape(outcome.title)}</h2>\n<p>{html.escape(outcome.setting)}</p>\n'
        f'<img alt="{html.escape(outcome.title)}" src="data:image/svg+xml;base64,{picture}">\n'
        f"<ul>\n{found}</ul>\n{as_html(outcome.verdicts) if outcome.verdicts else ''}"
        f"{as_html(outcome.summary)}"
    )

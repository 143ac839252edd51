"""The page of results lists every claim that the experiments test."""

from __future__ import annotations

import re
from pathlib import Path

from fwcrf.apps.experiments import EXPERIMENTS
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.verdict import Verdict

PAGE = Path(__file__).parents[3] / "docs" / "experiments.md"


def table() -> list[list[str]]:
    """The rows of the table of claims: experiment, claim, figures, interval, images, verdict."""
    _, _, rest = PAGE.read_text().partition("| experiment | claim of the paper |")
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_claim_has_a_row_and_every_row_a_claim():
    rows = [(row[0].strip("`"), row[1]) for row in table()]
    assert rows == [(claim.experiment, claim.statement) for claim in Claim]


def test_every_row_has_figures_and_a_verdict():
    for row in table():
        _, claim, figures, interval, images, verdict = row
        assert verdict in {each.value for each in Verdict}, claim
        assert re.search(r"\d", figures) and int(images) > 1, claim
        ends = re.fullmatch(r"(-?[\d.]+) to (-?[\d.]+)", interval)
        assert ends or interval == "exact", claim


def test_no_verdict_on_the_page_is_without_a_claim():
    """A line of the program that is quoted below the table names a claim of the table."""
    statements = [claim.statement for claim in Claim]
    for verdict in Verdict:
        for line in re.findall(rf"^\* {verdict.value}: (.*)", PAGE.read_text(), re.MULTILINE):
            assert any(line.startswith(f"{statement}. Here: ") for statement in statements), line


def test_claims_are_of_experiments_and_differ():
    assert {claim.experiment for claim in Claim} == set(EXPERIMENTS)
    # Members with equal values would be one.
    assert len({claim.statement for claim in Claim}) == len(Claim.__members__) > 20

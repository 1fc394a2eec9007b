"""A new user's first hour: from a CSV of one's own to a page, a JUnit file, a check and a comment."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from loopback import Loopback, says

if TYPE_CHECKING:
    from loopback import Answer, Asked
    from outcome import Outcome, Run, Use

pytestmark = pytest.mark.usefixtures("no_servers")
ROWS = 300
LABELS = 80
COLUMNS = "--map text=agent_reply --map description=customer_wrote --id ticket_no"
JUDGE = f"judge --data tickets.csv {COLUMNS} --rubric answer-quality --depth quick"
LABELLED = "--labels labels.csv --map label=ok --id ticket_no"
FILES = "--also junit=junit.xml --also markdown=comment.md"
COMMANDS = (
    f"{JUDGE} --estimate",
    f"{JUDGE} --no-engine --out results.csv",
    f"report results.csv {LABELLED} --html page.html",
    "report results.csv --worst 3",
    f"report results.csv --min-accept 0.9 {FILES} --format github",
)


def is_bad(number: int) -> bool:
    return number % 4 == 0


def answer(asked: Asked) -> Answer:
    """Judge a reply by its words, which stand nowhere else in the prompt."""
    bad = re.search(r"I do not know, \d+", asked.text) is not None
    points = 1 if bad else 5
    reasons = "It answers nothing." if bad else "It says what to do."
    values = dict.fromkeys(("correct", "complete", "direct"), points)
    return says(json.dumps({"reasoning": reasons, "scores": values, "findings": []}))


@pytest.fixture
def files(project: Path) -> None:
    """Write a file with columns of unusual names, and labels for some of its rows."""
    with Path("tickets.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ticket_no", "customer_wrote", "agent_reply", "team"])
        for number in range(ROWS):
            reply = f"I do not know, {number}." if is_bad(number) else f"Press the knob {number}."
            writer.writerow([f"T{number}", f"How do I start it, {number}?", reply, "a"])
    with Path("labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ticket_no", "ok"])
        for number in range(LABELS):
            writer.writerow([f"T{number}", "fail" if is_bad(number) else "pass"])


@pytest.fixture
def hour(judgekit: Run, use: Use, files: None) -> list[Outcome]:
    """Run the commands of the hour, one after the other."""
    with Loopback(answer) as server:
        use(server)
        return [judgekit(*command.split()) for command in COMMANDS]


def test_the_first_hour_ends_with_what_a_team_needs(hour: list[Outcome]) -> None:
    estimate, judged, labelled, worst, checked = hour
    assert "tickets.csv: 300 rows to judge" in estimate.out
    assert "300 rows in results.csv: 225 accept, 75 reject" in judged.err
    assert "of 80 labels" in labelled.out
    assert worst.out.count("It answers nothing.") == 3
    assert "accept >= 0.9 isn't met: 0.750 of 300 rows" in checked.err
    assert [done.code for done in hour] == [0, 0, 0, 0, 1]


@pytest.mark.usefixtures("hour")
def test_the_first_hour_leaves_a_page_a_report_and_a_comment() -> None:
    assert "It answers nothing." in Path("page.html").read_text()
    suite = ET.fromstring(Path("junit.xml").read_text())
    assert (suite.get("tests"), suite.get("failures")) == (str(ROWS + 1), "76")
    comment = Path("comment.md").read_text()
    assert comment.startswith("<!-- judgekit report results.csv -->\n### judgekit: 225 of 300")
    assert "isn't met" in comment


def test_the_hour_has_few_commands() -> None:
    assert len(COMMANDS) <= 8

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from drawn import SVG, texts
from drawn import charts as charts_of
from ledger_lines import NOW, label, round_of, verdict
from ledger_lines import content as of_its_own

from judgekit.evaluation import charts
from judgekit.ledger import Fault, ModeChange, OverrideLine, PushRecord, Skip, export, kpi, labels
from judgekit.ledger.labels import triage
from judgekit.ledger.records import SCHEMAS
from judgekit.ledger.records import line as record_line

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from judgekit.ledger import Record


def override(**changes: object) -> OverrideLine:
    fields = {
        "task_id": verdict().task_id,
        "decision": "accept",
        "why": "known",
        "who": "ann",
        "terminal": True,
    }
    return OverrideLine.model_validate(fields | {"timestamp": NOW} | changes)


def test_what_needs_a_person() -> None:
    found = triage(
        [
            verdict("accept", path="fine.md"),
            verdict("reject", path="bad.md"),
            verdict("improve", path="poor.md", days=1),
            verdict("escalate", path="odd.md"),
            verdict("undetermined", path="gone.md"),
            Skip(variable="JUDGEKIT_SKIP", who="ann", terminal=True),
            Fault(problem="config.yaml:3: unknown key"),
            ModeChange(mode="advisory"),
        ]
    )
    assert [verdict_line.subjects[0].path for verdict_line in found.nogo] == ["bad.md", "poor.md"]
    assert [verdict_line.subjects[0].path for verdict_line in found.unclear] == ["gone.md", "odd.md"]
    assert (len(found.skips), len(found.changes), found.settled) == (1, 1, 0)
    assert found.faults == {"config.yaml:3: unknown key": 1}
    assert found.failures == {("timeout", "small", "no reply in 45 s"): 2}


def test_what_was_mended_or_overridden_is_settled_and_what_is_one_thing() -> None:
    mended = [verdict("reject", days=2), verdict("accept", days=1, task_id="a.md@" + "1" * 12)]
    again = [verdict("accept", path="b.md", days=2), verdict("reject", path="b.md", days=1)]
    decided: list[Record] = [verdict("escalate", path="c.md"), override(task_id=verdict(path="c.md").task_id)]
    found = triage([*mended, *again, *decided])
    assert [verdict_line.subjects[0].path for verdict_line in found.nogo] == ["b.md"]
    assert (found.unclear, found.settled, len(found.overrides)) == ([], 2, 1)
    assert len(triage([verdict("reject", project="one"), verdict(name="x", project="two")]).nogo) == 1
    assert len(triage([verdict("reject"), override(terminal=False)]).nogo) == 1
    lines = [verdict("undetermined", path=f"{number}.md") for number in range(5)]
    other = verdict("undetermined", path="x.md", rounds=[round_of(None, model="big")])
    assert [count for _, count in triage([*lines, other]).failures.most_common()] == [5, 1]


def queue(*records: Record) -> list[str]:
    return [line.id for line in labels.waiting(records, "ann")]


def test_the_queue_asks_this_person_about_each_content_once_by_the_verdict_that_is_measured() -> None:
    one, two, three = (verdict(name=name, **of_its_own(name)) for name in "abc")
    withdrawn = label(three, "withdrawn", after=2)
    said = [label(one, "go"), label(two, "go", "bob"), label(three, "go"), withdrawn]
    assert {*queue(one, two, three, *said)} == {"b", "c"}
    first, again = verdict(name="a", days=2), verdict(name="b", days=1)
    assert queue(first, again, verdict("undetermined"), verdict("escalate")) == ["b"]
    assert queue(first, again, label(first, "go")) == []
    cached = verdict("accept", name="c", gate=PushRecord(cached=True))
    assert queue(first, cached) == ["a"]
    assert queue(cached) == ["c"]
    assert queue(first, cached, label(cached, "go")) == []


def test_the_queue_is_the_same_the_next_time_and_mixes_both_kinds() -> None:
    lines = [verdict("accept", name=f"g{n}", **of_its_own(f"g{n}")) for n in range(40)]
    lines += [verdict("reject", name=f"n{n}", **of_its_own(f"n{n}")) for n in range(10)]
    order = labels.waiting(lines, "ann")
    assert labels.waiting(list(reversed(lines)), "ann") == order
    assert sorted(verdict_line.id for verdict_line in order) == sorted(line.id for line in lines)
    early = [verdict_line.word for verdict_line in order[:16]]
    assert 4 <= early.count("NO-GO") <= 10
    assert [line.id for line in order if line.word == "GO"] != [line.id for line in lines[:40]]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
    done = subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()


def about(data: bytes, path: str = "docs/a.md", commit: str | None = None) -> dict[str, object]:
    return {"subjects": [{"path": path, "sha256": hashlib.sha256(data).hexdigest()}], "commit": commit}


def test_the_content_comes_from_the_commit_or_from_the_folder(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_bytes(b"pushed \x1b[31m\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "docs" / "a.md").write_bytes(b"changed\n")
    pushed = verdict(**about(b"pushed \x1b[31m\n", commit=commit))  # type: ignore[arg-type]  # fields of a verdict
    assert labels.texts(pushed, tmp_path / "docs") == {"docs/a.md": "pushed [31m\n"}
    present = verdict(**about(b"changed\n"))  # type: ignore[arg-type]  # the same
    assert labels.texts(present, tmp_path) == {"docs/a.md": "changed\n"}
    for commit_ in (None, "0" * 40, "--help"):
        gone = verdict(**about(b"gone\n", commit=commit_))  # type: ignore[arg-type]  # the same
        assert labels.texts(gone, tmp_path) == {"docs/a.md": None}


def test_who_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.email", "ann@example.invalid")
    assert labels.who(tmp_path) == "ann@example.invalid"
    assert "@" in labels.who(tmp_path.parent)
    assert not labels.at_terminal()
    monkeypatch.setattr(sys, "stdin", None)
    assert not labels.at_terminal()


def test_who_said_something_is_who_brought_it() -> None:
    """Whatever a line claims: labels, overrides, bypasses, changes of mode, and what stands in a verdict."""
    decided = {"decision": "accept", "why": "fine", "who": "ann", "at": NOW}
    lines: list[Record] = [
        label(verdict(), "go", "ann"),
        override(who="ann"),
        Skip(variable="JUDGEKIT_SKIP", who="ann", terminal=True),
        ModeChange(mode="blocking", who="ann"),
        verdict(human_override=decided),
        verdict(),
        Fault(problem="x"),
    ]
    assert {line.schema_ for line in lines} == {*SCHEMAS.values()}
    signed = [labels.signed(line, "mal") for line in lines]
    for before, after in zip(lines, signed, strict=True):
        assert b"ann" not in record_line(after)
        assert before.id == after.id
    assert [record_line(each).count(b'"mal"') for each in signed] == [1, 1, 1, 1, 1, 0, 0]


def test_verdicts_as_a_table() -> None:
    line = verdict(
        "reject", path="=cmd.md", author={"name": "+ann"}, degraded='a "quoted", text\nof two lines'
    )
    given = override(task_id=line.task_id, subjects=[line.subjects[0].sha256])
    rows = list(
        csv.DictReader("\n".join(export.rows([line, label(line, "go"), given])).splitlines(keepends=True))
    )
    assert len(rows) == 1
    assert (rows[0]["verdict"], rows[0]["gate"], rows[0]["label"], rows[0]["override"]) == (
        *("reject", "NO-GO", "go", "accept"),
    )
    assert rows[0]["task_id"].startswith("'=cmd.md")
    assert rows[0]["author"] == "'+ann"
    assert rows[0]["degraded"] == 'a "quoted", text\nof two lines'


def test_the_picture_has_a_panel_a_kpi_and_a_point_a_day() -> None:
    lines = [
        verdict("accept" if n % 4 else "reject", days=n / 2, name=f"v{n}", **of_its_own(str(n)))
        for n in range(20)
    ]
    evidence = kpi.evidence([*lines, *(label(line, "go") for line in lines[:8])])
    root = ET.fromstring(charts.kpi_svg(evidence))  # ours
    shown = texts(root)
    assert {kpi.LIMITS[each.name].title for each in kpi.measure(evidence)} <= set(shown)
    assert [each for each in shown if each in ("70%", "90%")] == ["70%", "90%"]
    points = charts.kpi_points(evidence)
    assert len(points) == 10
    measured = sum(each.value is not None for point in points for each in point.kpis)
    dots = [element for element in root.iter(f"{SVG}use") if "opacity" not in element.attrib["style"]]
    assert len(dots) == measured
    assert (root.findtext(f"{SVG}desc") or "").count("; ") == 5
    assert "false-positive rate " in (root.findtext(f"{SVG}desc") or "")
    page = charts.kpi_page(evidence)
    assert page.startswith("<!doctype html>")
    assert texts(charts_of(page)[0]) == shown
    for little in ([], [verdict()]):
        assert "nothing measured" in charts.kpi_svg(kpi.evidence(little))

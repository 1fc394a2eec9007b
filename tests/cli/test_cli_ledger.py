from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest
from ledger_lines import content, given, label

from judgekit.config import settings
from judgekit.ledger import Ledger, OverrideLine, Skip
from judgekit.ledger import labels as person

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run


PUSH = {
    "commit": "abc1234",
    "timestamp": "2026-02-10T10:00:00Z",
    "author": "Ann",
    "judge_model": "some-model",
    "files_evaluated": ["docs/a.md"],
    "scores": {"semantic": 4},
    "verdict": "GO",
    "findings": [],
    "revision_suggestions": [],
}


# export, import, purge


def test_lines_come_out_as_they_are(judgekit: Run, ledger: Ledger) -> None:
    ledger.add(given(days=9), given(days=1), Skip(variable="JUDGEKIT_SKIP", who="ann", terminal=True))
    done = judgekit("ledger", "export", "--since", "2d")
    schemas = [json.loads(line)["schema"] for line in done.out.splitlines()]
    assert (done.code, schemas) == (0, ["judgekit/verdict@1", "judgekit/skip@1"])
    paths = sorted(ledger.folder.glob("*.jsonl"))
    assert judgekit("ledger", "export").out.encode() == b"".join(path.read_bytes() for path in paths)
    paths[0].write_bytes(b'{"torn\n' + paths[0].read_bytes())
    done = judgekit("ledger", "export", "--format", "csv")
    why = "not JSON (cut off when the writer was killed, or edited)"
    assert done.err == f"judgekit: {paths[0]}:1: {why}; this line is skipped\n"
    assert len(done.out.splitlines()) == 3


def test_projects_are_told_apart(judgekit: Run, ledger: Ledger, tmp_path: Path) -> None:
    ledger.add(given(path="here.md"))
    Ledger.of(tmp_path.parent).add(given(path="there.md", **content("there", "there.md")))
    assert len(judgekit("ledger", "export").out.splitlines()) == 2
    assert "here.md" in judgekit("ledger", "export", "--project", ledger.name).out
    assert "there.md" not in judgekit("ledger", "export", "--project", ledger.name).out
    assert judgekit("kpi", "--json").json["all"]["verdicts"] == 1
    assert judgekit("kpi", "--json", "--project", "all").json["all"]["verdicts"] == 2


@pytest.mark.parametrize("command", ["kpi", "triage", "ledger export", "ledger purge --all --yes"])
def test_a_project_without_a_ledger_is_wrong_usage(judgekit: Run, ledger: Ledger, command: str) -> None:
    told = "judgekit: --project nosuch: no ledger of that name in "
    done = judgekit(*command.split(), "--project", "nosuch")
    assert (done.code, done.out) == (64, "")
    assert done.err.startswith(told)
    assert done.err.endswith("; there is none yet\n")
    ledger.add(given())
    done = judgekit(*command.split(), "--project", "nosuch")
    assert (done.code, done.err.endswith(f"; there are {ledger.name}\n")) == (64, True)
    assert judgekit(*command.split(), "--project", ledger.name[:-13]).code == 0


def test_older_lines_are_brought_in_once(judgekit: Run, project: Path) -> None:
    source = project / "older.jsonl"
    source.write_text(json.dumps(PUSH) + '\n{"torn\n')
    done = judgekit("ledger", "import", str(source))
    assert (done.code, done.out.split()[0]) == (65, "1")
    assert done.err == f"judgekit: {source}:2: not JSON; this line is skipped\n"
    again = judgekit("ledger", "import", str(source))
    assert again.out.startswith("0 lines added")
    assert again.out.endswith("1 were already there\n")
    assert json.loads(judgekit("ledger", "export").out)["imported"] == {}


def test_what_is_no_ledger_is_told_shortly(judgekit: Run, project: Path) -> None:
    (project / "empty").mkdir()
    (project / "page.md").write_text("words\n" * 500)
    done = judgekit("ledger", "import", "empty")
    assert (done.code, done.out) == (65, "")
    assert done.err == "judgekit: empty: no *.jsonl file there; name one or its folder\n"
    *told, last = judgekit("ledger", "import", "page.md").err.splitlines()
    assert len(told) == 10
    assert last == "judgekit: and 490 more lines that cannot be read; are these ledgers?"
    for words in ("ledger import", "triage --ledger", "kpi --ledger"):
        done = judgekit(*words.split(), "gone.jsonl")
        assert (done.code, done.out) == (65, "")
        assert "gone.jsonl: no such file or folder" in done.err
    for words in ("kpi --since", "triage --since", "ledger purge --before"):
        done = judgekit(*words.split(), "tomorrow")
        assert (done.code, "is not a time" in done.err) == (64, True)


def test_purging_asks_first(judgekit: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    old = given(days=100)
    ledger.add(old, given(), label(old, "go"))
    done = judgekit("ledger", "purge", "--before", "90d")
    assert (done.code, done.out) == (64, f"{ledger.name}: 1 label, 1 verdict\n")
    assert "--yes" in done.err
    monkeypatch.setattr(person, "at_terminal", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert judgekit("ledger", "purge", "--before", "90d").code == 130
    assert len(list(ledger.records())) == 3
    done = judgekit("ledger", "purge", "--before", "90d", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 2 lines")
    assert len(list(ledger.records())) == 1
    assert judgekit("ledger", "purge", "--before", "90d").out.startswith("nothing is older")


def test_purging_all_takes_today_and_days_to_come(judgekit: Run, ledger: Ledger) -> None:
    ledger.add(given(days=100), given(days=0), given(days=-3), Skip(variable="X", who="ann", terminal=True))
    assert judgekit("ledger", "purge").code == 64
    assert judgekit("ledger", "purge", "--all", "--before", "1d").code == 64
    assert judgekit("ledger", "purge", "--all").code == 64  # nobody is there to be asked
    assert len(list(ledger.records())) == 4
    done = judgekit("ledger", "purge", "--all", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 4 lines")
    assert list(ledger.folder.glob("*.jsonl")) == []
    assert judgekit("ledger", "purge", "--all").out == "the ledger is empty\n"


def test_a_ledger_that_cannot_be_written_is_said_in_one_line(
    judgekit: Run, ledger: Ledger, isolated: Path
) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "state").write_text("a file in the way")
    done = judgekit("override", "a.md@3f2c3f2c3f2c3f2c", "accept", "--why", "known")
    assert done.code == 78
    assert "the ledger cannot be written" in done.err
    assert done.err.count("\n") == 1


# override


def test_an_override_by_path_holds_for_what_was_judged(judgekit: Run, ledger: Ledger) -> None:
    line = given("reject", path="docs/a.md")
    ledger.add(given("accept", path="docs/a.md", days=3, task_id="docs/a.md@" + "9" * 12), line)
    done = judgekit("override", "docs/a.md", "accept", "--why", "the port is right")
    assert done.code == 0
    assert done.out.startswith(f"{line.task_id}: accept by ")
    assert "given without a terminal: it does not count unless" in done.err
    hashes = [line.subjects[0].sha256]
    assert ledger.override_for(line.task_id, hashes) is None
    override_line = ledger.override_for(line.task_id, hashes, without_terminal=True)
    assert override_line is not None
    assert (override_line.why, override_line.terminal) == ("the port is right", False)


def test_a_path_is_meant_from_where_one_stands(
    judgekit: Run, ledger: Ledger, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, outer = given("reject", path="docs/a.md"), given("reject", path="a.md")
    other = given("reject", path="b.md")
    ledger.add(inner, outer, other)
    (repository / "docs").mkdir()
    monkeypatch.chdir(repository / "docs")
    for task, meant in (
        ("a.md", inner),
        ("./a.md", inner),
        ("../a.md", outer),
        ("../docs/a.md", inner),
        ("docs/a.md", inner),  # as the gate prints it
        ("b.md", other),
        (outer.task_id, outer),
        (f"./{inner.task_id.removeprefix('docs/')}", inner),
    ):
        done = judgekit("override", task, "accept", "--why", "x")
        assert (done.code, done.out.split(": ")[0]) == (0, meant.task_id)
    assert judgekit("override", "../../a.md", "accept", "--why", "x").code == 64


def test_an_override_counts_at_a_terminal_or_where_the_user_says_so(
    judgekit: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = "a.md@3f2c3f2c3f2c3f2c"
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text("gate: {override_without_terminal: true}\n")
    assert judgekit("override", task, "accept", "--why", "x").err.count("terminal") == 0
    assert ledger.override_for(task) is None
    monkeypatch.setattr(person, "at_terminal", lambda: True)
    done = judgekit("override", task, "reject", "--why", "no")
    assert (done.code, "yet; the override applies to the next one" in done.err) == (0, True)
    assert ledger.override_for(task) is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.md", "accept", "--why", "x"), "no verdict on it"),
        (("a.md@3f2c", "accept", "--why", "x"), "no verdict on it"),
        (("a.md@3f2c3f2c", "maybe", "--why", "x"), "maybe"),
        (("a.md@3f2c3f2c", "accept", "--why", " "), "--why is empty"),
        (("a.md@3f2c3f2c", "accept"), "--why"),
    ],
)
def test_an_override_needs_a_known_task_a_word_and_a_reason(
    judgekit: Run, ledger: Ledger, arguments: tuple[str, ...], said: str
) -> None:
    done = judgekit("override", *arguments)
    assert (done.code, said in done.err) == (64, True)
    assert list(ledger.records()) == []


# triage


def test_what_needs_a_person_over_many_ledgers(judgekit: Run, project: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        Ledger(tmp_path / name, f"{name}-0123456789ab").add(
            given(
                "reject", path=f"{name}.md", commit="c0ffee" * 6, findings=[{"issue": "wrong\x1b[31m port"}]
            ),
            given("reject", path="long-ago.md", days=9, name=f"{name}-long-ago"),
            given("undetermined", path=f"{name}.md", days=2),
            OverrideLine(task_id="b.md@3f2c3f2c", decision="accept", why="known", who="ann", terminal=False),
        )
    places = ("--ledger", str(tmp_path / "one"), "--ledger", str(tmp_path / "two"))
    done = judgekit("triage", *places)
    assert done.code == 0
    assert "NO-GO (2)\n" in done.out
    assert "one.md@3f2c000000000000 in c0ffeec0ffee: reject semantic 1: wrong[31m port" in done.out
    assert "Overrides (2)" in done.out
    assert "WITHOUT A TERMINAL: known" in done.out
    assert "2 times timeout, small: no reply in 45 s" in done.out
    assert "long-ago" not in done.out
    assert len(judgekit("triage", *places, "--since", "2w", "--json").json["nogo"]) == 4
    assert judgekit("triage").out == "nothing needs a person\n"

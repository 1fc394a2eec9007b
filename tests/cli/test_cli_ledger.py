from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import select
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from ledger_lines import content, label, verdict

from judgekit.config import settings
from judgekit.ledger import Label, Ledger, LineFilter, ModeChange, OverrideLine, Skip
from judgekit.ledger import labels as person

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Run

    from judgekit.judging.verdict import VerdictWord
    from judgekit.ledger import VerdictLine

NOW = datetime.now(UTC)
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


@pytest.fixture
def ledger(project: Path) -> Ledger:
    """The ledger of the project that is the current folder."""
    return Ledger.of(project)


@pytest.fixture
def repository(project: Path) -> Path:
    """The project, under git."""
    subprocess.run(["git", "init", "-q"], cwd=project, check=True, timeout=60)
    return project


def given(
    word: VerdictWord = "accept", *, days: float = 1, path: str = "a.md", **changes: object
) -> VerdictLine:
    fields: dict[str, Any] = {"name": f"{word}-{path}-{days}", "path": path} | changes
    return verdict(word, timestamp=NOW - timedelta(days=days), **fields)


def labels(ledger: Ledger) -> list[tuple[str, str]]:
    return [
        (record.of, record.label)
        for record in ledger.records(LineFilter(kinds=[Label]))
        if isinstance(record, Label)
    ]


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
    why = "not JSON (cut off when its writer was killed, or edited)"
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
    assert again.out.endswith("1 were there already\n")
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
        assert (done.code, "is no point in time" in done.err) == (64, True)


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
    assert (done.code, "yet; it holds for the next one" in done.err) == (0, True)
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


# kpi and promote


def measured(ledger: Ledger) -> None:
    """Fill the ledger with what a gate needs to be promoted."""
    accumulate(ledger, 0, go=170, nogo=40)


def accumulate(ledger: Ledger, missed: int, *, go: int = 400, nogo: int = 80, labelled: int = 9999) -> None:
    """Fill the ledger with labelled verdicts: all right, but for `missed` bad ones among the GO."""
    right, wrong = several("accept", go, 20), several("reject", nogo, 3)
    said = [label(each, "no-go" if n < missed else "go") for n, each in enumerate(right[:labelled])]
    ledger.add(*right, *wrong, *said, *(label(each, "no-go") for each in wrong))


def several(word: VerdictWord, count: int, days: float) -> list[VerdictLine]:
    """Return verdicts on contents that differ."""
    return [
        given(word, days=days + n / 100, name=f"{word}{n}", **content(f"{word}{n}", f"{n}.md"))
        for n in range(count)
    ]


def test_the_figures(judgekit: Run, ledger: Ledger) -> None:
    measured(ledger)
    ledger.add(given("accept", path="x.md", model="big"))
    done = judgekit("kpi", "--since", "30d")
    assert done.code == 0
    assert done.out.splitlines()[0] == "all: 211 verdicts, 210 of them labelled"
    assert (
        "wrong GO 0.0 % of 170 labelled verdicts, 95 % interval 0.0 % to 2.2 % (wanted below 5.0 %)"
        in done.out
    )
    assert (
        "ok      false-negative rate 0.0 % from 210 labelled verdicts, 95 % interval 0.0 % to 8." in done.out
    )
    assert "\nbig: 1 verdicts" in done.out
    found = judgekit("kpi", "--since", "30d", "--json").json
    assert found["all"]["kpis"]["wrong_go"]["state"] == "holds"
    rate = found["all"]["kpis"]["false_negative_rate"]
    assert (rate["estimate"], rate["low"], rate["labels"], rate["state"]) == (0, 0, 210, "holds")
    assert 0.08 < rate["high"] <= 0.10 == 2 * rate["limit"]
    assert list(found["rubrics"]) == ["kls@1.0.0"]
    assert set(found["models"]) == {"small", "big"}
    assert judgekit("kpi", "--json").json["all"]["verdicts"] == 41


def test_the_figures_are_drawn(judgekit: Run, ledger: Ledger) -> None:
    measured(ledger)
    for name in ("kpi.svg", "kpi.html"):
        done = judgekit("kpi", "--plot", name)
        assert (done.code, done.err) == (0, f"judgekit: drawn: {name}\n")
        assert "<svg" in Path(name).read_text()
    assert judgekit("kpi", "--plot", "kpi.png").code == 64
    assert judgekit("kpi", "--plot", "gone/kpi.svg").code == 65


@pytest.mark.usefixtures("no_matplotlib")
def test_without_the_extra_a_picture_is_refused_in_one_line(judgekit: Run, ledger: Ledger) -> None:
    measured(ledger)
    done = judgekit("kpi", "--plot", "kpi.svg")
    assert (done.code, done.out, done.err.count("\n")) == (64, "", 1)
    assert "pip install" in done.err
    assert "[report]" in done.err
    assert "judgekit[report]" not in done.err
    assert judgekit("kpi").code == 0


def test_promotion_needs_a_repository(judgekit: Run, ledger: Ledger, project: Path) -> None:
    done = judgekit("promote", "--force")
    assert (done.code, "promote needs a git repository" in done.err) == (64, True)
    assert not (project / ".judgekit").exists()
    assert list(ledger.records()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
@pytest.mark.parametrize("link", [".judgekit", ".judgekit/config.yaml"])
def test_a_linked_configuration_is_not_promoted(
    judgekit: Run, ledger: Ledger, repository: Path, link: str
) -> None:
    outside = repository / "outside"
    outside.mkdir()
    (outside / "config.yaml").write_text("gate: {mode: advisory}\n")
    (repository / link).parent.mkdir(exist_ok=True)
    (repository / link).symlink_to(outside if link == ".judgekit" else outside / "config.yaml")
    done = judgekit("promote", "--force")
    assert (done.code, "a link, which the gate does not follow" in done.err) == (78, True)
    assert (outside / "config.yaml").read_text() == "gate: {mode: advisory}\n"
    assert list(ledger.records()) == []


def test_a_promotion_in_a_subfolder_is_the_repositorys_and_one_that_fails_leaves_no_trace(
    judgekit: Run, ledger: Ledger, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".judgekit").mkdir()
    (repository / ".judgekit" / "config.yaml").write_text("judge: {mode: strict}\n...\n")
    assert judgekit("promote", "--force").code == 78
    assert list(ledger.records()) == []
    (repository / ".judgekit" / "config.yaml").unlink()
    (repository / "docs" / ".judgekit").mkdir(parents=True)
    monkeypatch.chdir(repository / "docs")
    assert judgekit("promote", "--force").code == 0
    assert settings.load(repository).gate.mode == "blocking"
    (change,) = ledger.records(LineFilter(kinds=[ModeChange]))
    assert isinstance(change, ModeChange)
    assert (change.forced, len(change.why)) == (True, 8)


def test_promotion_is_refused_until_all_holds(judgekit: Run, ledger: Ledger, repository: Path) -> None:
    ledger.add(given())
    done = judgekit("promote")
    assert done.code == 1
    assert "missing: time: verdicts reach back 1 days; 14 are needed" in done.err
    assert "false-positive rate: nothing measured yet" in done.err
    assert not (repository / ".judgekit").exists()
    measured(ledger)
    (repository / ".judgekit").mkdir()
    path = repository / ".judgekit" / "config.yaml"
    rules = "judge: {{independence: require}}\ngate:  # ours\n  mode: {}  # for now\n"
    path.write_text(rules.format("advisory"))
    done = judgekit("promote")
    assert (done.code, done.err) == (0, "")
    assert path.read_text() == rules.format("blocking")
    (change,) = ledger.records(LineFilter(kinds=[ModeChange]))
    assert isinstance(change, ModeChange)
    assert (change.mode, change.forced, change.why) == ("blocking", False, [])


@pytest.mark.parametrize(
    ("missed", "promoted"),
    [(0, True), (2, True), (3, False), (8, False)],  # 8 of 88 are 9.1 %; of 3 of 83 the interval ends at 11 %
)
def test_a_gate_that_lets_bad_content_through_is_not_promoted(
    judgekit: Run,
    ledger: Ledger,
    repository: Path,
    missed: int,
    promoted: bool,  # noqa: FBT001 - a case
) -> None:
    accumulate(ledger, missed)
    figures = judgekit("kpi", "--since", "30d", "--json").json["all"]["kpis"]
    assert figures["false_negative_rate"]["estimate"] == pytest.approx(missed / (80 + missed))
    assert figures["wrong_go"]["value"] == missed / 400
    done = judgekit("promote", "--accept-dependence")
    assert done.code == (0 if promoted else 1), done.err
    assert (repository / ".judgekit").exists() == promoted
    if not promoted:
        (line,) = [each for each in done.err.splitlines() if "missing" in each]
        assert line.startswith("judgekit: missing: false-negative rate ")
        assert "false-negative" not in done.out  # it is said once


def test_promotion_says_which_labels_settle_it_and_label_asks_for_those(
    judgekit: Run, ledger: Ledger, repository: Path, press: Callable[[str], None]
) -> None:
    accumulate(ledger, 0, labelled=50)
    done = judgekit("promote", "--accept-dependence")
    (line,) = [each for each in done.err.splitlines() if "missing" in each]
    found = re.search(r"label (\d+) more GO verdicts \(", line)
    assert found is not None, line
    wanted = int(found[1])
    assert 50 < wanted < 200
    press("g" * wanted)
    outcome = judgekit("label", "-n", str(wanted))
    assert outcome.out.splitlines()[-1] == f"{wanted} labelled, 0 left"
    said = {record.of for record in ledger.records(LineFilter(kinds=[Label])) if isinstance(record, Label)}
    assert sum(each.startswith("accept") for each in said) == 50 + wanted
    assert judgekit("promote", "--accept-dependence").code == 0
    assert (repository / ".judgekit" / "config.yaml").exists()


def test_promotion_wants_independence_or_its_lack_on_record(
    judgekit: Run, ledger: Ledger, repository: Path
) -> None:
    measured(ledger)
    done = judgekit("promote")
    assert done.code == 1
    assert "missing: independence: " in done.err
    assert "--accept-dependence" in done.err
    assert not (repository / ".judgekit").exists()
    assert judgekit("promote", "--accept-dependence").code == 0
    (change,) = ledger.records(LineFilter(kinds=[ModeChange]))
    assert isinstance(change, ModeChange)
    assert (change.forced, change.dependent, change.why) == (False, True, [])
    assert "blocking (dependence accepted)" in judgekit("triage").out


def test_a_content_counts_once_the_last_time_it_was_judged(judgekit: Run, ledger: Ledger) -> None:
    """However often, under whatever paths and rubrics; what people said of it stays."""
    newer = {"id": "kls", "version": "2.0.0", "sha256": "a" * 64}
    first = given("reject", name="a", days=9, **content("x"))
    copies = [given("reject", name=f"c{n}", days=8, **content("x", f"{n}.md")) for n in range(30)]
    last = given("accept", name="z", days=2, rubric=newer, **content("x", "b.md"))
    unanswered = given("undetermined", name="u", days=1, **content("x"))
    ledger.add(first, *copies, last, unanswered, label(first, "no-go"))
    found = judgekit("kpi", "--json").json
    assert (found["all"]["verdicts"], found["all"]["labelled"]) == (1, 1)
    assert list(found["rubrics"]) == ["kls@2.0.0"]
    assert (found["all"]["kpis"]["wrong_go"]["value"], found["all"]["kpis"]["wrong_go"]["total"]) == (1, 1)


def test_an_override_is_a_label_if_a_person_typed_it(
    judgekit: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = several("reject", 3, 1)
    ledger.add(*lines)
    judgekit("override", lines[0].task_id, "accept", "--why", "a program says so")
    assert judgekit("kpi", "--json").json["all"]["labelled"] == 0
    monkeypatch.setattr(person, "at_terminal", lambda: True)
    judgekit("override", lines[0].task_id, "accept", "--why", "the port is right")
    judgekit("override", lines[1].task_id, "reject", "--why", "it is not")
    found = judgekit("kpi", "--json").json["all"]
    assert found["labelled"] == 2
    assert (found["kpis"]["wrong_nogo"]["value"], found["kpis"]["wrong_nogo"]["total"]) == (0.5, 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"label": 4}, "label: expected 'go', 'no-go', 'unsure' or 'withdrawn'"),
        ({"of": ["x"]}, "of: expected a text, got a list of 1"),
        ({"timestamp": "soon"}, "timestamp: expected a time such as 2026-02-17T14:30:00Z, got a text"),
        ({"id": None}, "id: expected a text, got null"),
    ],
)
def test_a_wrong_line_is_told_of_in_the_words_of_its_file(
    judgekit: Run, ledger: Ledger, project: Path, change: dict[str, object], told: str
) -> None:
    line = {"schema": "judgekit/label@1", "of": "x", "label": "go", "who": "ann", **change}
    (project / "brought.jsonl").write_text(json.dumps(line) + "\n")
    done = judgekit("ledger", "import", "brought.jsonl")
    assert (done.code, done.err) == (65, f"judgekit: brought.jsonl:1: {told}; this line is skipped\n")
    for command in ("triage", "kpi"):
        assert f"brought.jsonl:1: {told}; " in judgekit(command, "--ledger", "brought.jsonl").err


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


# label


def test_labels_come_from_a_file(judgekit: Run, ledger: Ledger, project: Path) -> None:
    ledger.add(given(name="aa11"), given(name="ab22", path="b.md"), given(name="ab", path="c.md"))
    (project / "labels.csv").write_text("aa, go\nab,no-go,bob\nab2,unsure\n\nzz,go\naa11,maybe\na,go\n")
    done = judgekit("label", "--from", "labels.csv")
    assert (done.code, done.out) == (65, "3 labelled\n")
    assert [line.split(":")[2] for line in done.err.splitlines()] == ["5", "6", "7"]
    assert labels(ledger) == [("aa11", "go"), ("ab", "no-go"), ("ab22", "unsure")]


def test_a_heading_is_no_label_and_a_huge_field_no_fault(
    judgekit: Run, ledger: Ledger, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(given(name="aa11"), given(name="bb22", path="b.md"))
    (project / "labels.csv").write_text(f"id,label,who\naa11,go\n{'x' * 200_000},go\nbb22,no-go\nid,label\n")
    done = judgekit("label", "--from", "labels.csv")
    assert (done.code, done.out) == (65, "2 labelled\n")
    assert [line.split(":")[2] for line in done.err.splitlines()] == ["3", "5"]
    assert len(done.err) < 600
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"aa11,go\n")))
    assert judgekit("label", "--from", "-").code == 0
    assert judgekit("label", "--from", "gone.csv").code == 65
    done = judgekit("label")
    assert (done.code, done.out, "needs a terminal" in done.err) == (64, "", True)


def test_a_file_may_say_what_a_judge_would(judgekit: Run, ledger: Ledger, project: Path) -> None:
    ledger.add(*several("accept", 4, 1))
    words = ("accept", "improve", "reject", "unsure")
    (project / "labels.csv").write_text("".join(f"accept{n},{word}\n" for n, word in enumerate(words)))
    assert judgekit("label", "--from", "labels.csv").code == 0
    assert [word for _, word in labels(ledger)] == ["go", "no-go", "no-go", "unsure"]
    (project / "wrong.csv").write_text("accept1,4\naccept1,\naccept1\nnone,accept\naccept,reject\n")
    done = judgekit("label", "--from", "wrong.csv")
    assert (done.code, done.out) == (65, "0 labelled\n")
    assert done.err.splitlines() == [
        "judgekit: wrong.csv:1: label must be accept, improve or reject; got 4",
        "judgekit: wrong.csv:2: label must be accept, improve or reject; got nothing",
        "judgekit: wrong.csv:3: expected ID,LABEL, got 'accept1'",
        "judgekit: wrong.csv:4: id must be that of one verdict; got 'none', and no verdict has it",
        (
            "judgekit: wrong.csv:5: id must be that of one verdict; got 'accept', "
            "and 4 verdicts have one that begins so"
        ),
    ]


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a person at a terminal press keys, one after the other; at their end there is no input any more."""
    monkeypatch.setattr(person, "at_terminal", lambda: True)

    def keys(text: str) -> None:
        left = iter(text)

        def getchar() -> str:
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("typer.getchar", getchar)

    return keys


def test_one_key_a_verdict(judgekit: Run, ledger: Ledger, press: Callable[[str], None]) -> None:
    ledger.add(*several("accept", 3, 1), *several("reject", 3, 1))
    press("gxNu")
    done = judgekit("label")
    assert done.out.splitlines()[-1] == "3 labelled, 3 left"
    assert [word for _, word in labels(ledger)] == ["go", "no-go", "unsure"]
    press("sgq")
    assert judgekit("label").out.splitlines()[-1] == "1 labelled, 2 left"
    assert len({of for of, _ in labels(ledger)}) == 4
    press("")
    assert judgekit("label", "-n", "1").out.splitlines()[-1] == "0 labelled, 1 left"


def test_the_last_answer_is_taken_back(judgekit: Run, ledger: Ledger, press: Callable[[str], None]) -> None:
    ledger.add(*several("accept", 2, 1))
    press("bgbngsbb")
    done = judgekit("label")
    first, second = (of for of, _ in labels(ledger)[:1] + labels(ledger)[3:4])
    assert labels(ledger)[:3] == [(first, "go"), (first, "withdrawn"), (first, "no-go")]
    assert labels(ledger)[3] == (second, "go")
    assert done.code == 0


def test_blind_shows_the_text_and_not_the_verdict(
    judgekit: Run, ledger: Ledger, project: Path, press: Callable[[str], None]
) -> None:
    text = "".join(f"line {n}\n" for n in range(60))
    (project / "doc.md").write_text(text)
    subject = {"path": "doc.md", "sha256": hashlib.sha256(text.encode()).hexdigest()}
    line = given("reject", path="doc.md", subjects=[subject], findings=[{"issue": "wrong port"}])
    ledger.add(line)
    press("aq")
    blind = judgekit("label", "--blind").out
    assert "line 39\n" in blind
    assert "20 more lines (a shows them)" in blind
    assert "line 59\n" in blind
    assert "REJECT" not in blind
    assert "wrong port" not in blind
    press("g")
    seen = judgekit("label").out
    assert "REJECT" in seen
    assert "wrong port" in seen
    assert [
        record.blind for record in ledger.records(LineFilter(kinds=[Label])) if isinstance(record, Label)
    ] == [False]


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, typer.Abort])
def test_an_interruption_says_what_was_kept(
    judgekit: Run,
    ledger: Ledger,
    press: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    stopped: type[BaseException],
) -> None:
    ledger.add(*several("accept", 4, 1))
    press("gg")
    keys = typer.getchar

    def getchar() -> str:
        try:
            return keys()
        except EOFError:
            raise stopped from None

    monkeypatch.setattr("typer.getchar", getchar)
    done = judgekit("label")
    assert (done.code, done.err) == (
        130,
        "judgekit: interrupted; 2 labels are kept; judgekit label goes on from there\n",
    )
    assert len(labels(ledger)) == 2

    def interrupts(*_: object) -> None:
        raise stopped

    monkeypatch.setattr("judgekit.ledger.store.records", interrupts)
    for command in ("kpi", "triage"):
        done = judgekit(command)
        assert (done.code, done.err) == (130, "judgekit: interrupted; the ledger is as it was\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX terminal")
def test_labelling_at_a_real_terminal(ledger: Ledger, project: Path) -> None:
    pty = pytest.importorskip("pty")
    ledger.add(*several("accept", 1, 1), *several("reject", 1, 1))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "judgekit", "label", "--blind"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=project,
    )
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 60
    try:
        while time.monotonic() < deadline and process.poll() is None:
            seen += _read(ours)
            if b"q quit" in seen:
                # Asked for one key, a terminal forgets what was typed before: so a person types again.
                with contextlib.suppress(OSError):  # it has just gone
                    os.write(ours, b"g")
        seen += _read(ours)
        assert process.wait(1) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert [word for _, word in labels(ledger)] == ["go", "go"]
    assert b"2 labelled, 0 left" in seen


def _read(descriptor: int) -> bytes:
    """Return what a terminal shows within half a second."""
    if not select.select([descriptor], [], [], 0.5)[0]:
        return b""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what Linux says when the other side is closed
        return b""

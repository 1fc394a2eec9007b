"""`judgekit ledger`, `kpi`, `promote`, `triage`, `label`, `override`: reading the log and adding to it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
import typer
from git_repo import GitRepo
from hooking import by_user
from ledger_lines import content, given, label, override_for, several
from loopback import Loopback, fails
from loopback import says as reply
from outcome import by_project
from scripted import scores

from judgekit.config import settings
from judgekit.ledger import (
    Label,
    Ledger,
    LineFilter,
    ModeChange,
    OverrideLine,
    Skip,
    importing,
    records,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Run, Use

    Press = Callable[..., None]

PUSH: dict[str, object] = {
    "commit": "abc1234",
    "timestamp": "2026-02-10T10:00:00Z",
    "author": "Ann",
    "judge_model": "m",
}
PUSH |= {"files_evaluated": ["docs/a.md"], "scores": {"semantic": 4}, "verdict": "GO"}
TASK = "a.md@3f2c3f2c3f2c3f2c"


def labels(ledger: Ledger) -> list[tuple[str, str]]:
    found = ledger.read_records(LineFilter(kinds=[Label]))
    return [(record.of, record.label) for record in found if isinstance(record, Label)]


def change_of(ledger: Ledger) -> ModeChange:
    (change,) = ledger.read_records(LineFilter(kinds=[ModeChange]))
    assert isinstance(change, ModeChange)
    return change


def accumulate(
    ledger: Ledger, missed: int, *, go: int = 400, nogo: int = 80, labelled: int = 9999
) -> None:
    """Fill the ledger with labelled verdicts: all right, but for `missed` bad ones among the GO."""
    right, wrong = several("accept", go, 20), several("reject", nogo, 3)
    said = [label(each, "no-go" if n < missed else "go") for n, each in enumerate(right[:labelled])]
    ledger.add(*right, *wrong, *said, *(label(each, "no-go") for each in wrong))


def measured(ledger: Ledger) -> None:
    accumulate(ledger, 0, go=170, nogo=40)


# kpi


def test_a_model_that_failed_and_answered_is_one_model(
    judgekit: Run, project: Path, use: Use
) -> None:
    repository = GitRepo(project)
    repository("init", "--quiet", "--initial-branch=main")
    repository.commit("base", readme_txt="x\n")
    repository("branch", "base")
    good = reply(scores(4, 5, 4), model="vendor-x-2026-08-07")
    for number, answer in enumerate((good, fails(401), fails(401))):
        with Loopback(answer) as server:
            use(server, "our-judge")
            repository.commit("change", guide_md=f"# Guide\n\nIt says how, {number}.\n")
            assert judgekit("gate", "--base", "base").code == 0
    assert {
        name: each["verdicts"] for name, each in judgekit("kpi", "--json").json["models"].items()
    } == {"custom/our-judge": 3}


def test_the_figures(judgekit: Run, ledger: Ledger) -> None:
    measured(ledger)
    ledger.add(given("accept", path="x.md", model="big"))
    done = judgekit("kpi", "--since", "30d")
    assert done.code == 0
    assert done.out.splitlines()[0] == "all: 211 verdicts, 210 of them labelled"
    span = "95 % interval 0.0 % to"
    assert f"wrong GO 0.0 % of 170 labelled verdicts, {span} 2.2 % (wanted below 5.0 %)" in done.out
    assert f"holds   false-negative rate 0.0 % from 210 labelled verdicts, {span} 8." in done.out
    assert "\nbig: 1 verdict," in done.out
    found = judgekit("kpi", "--since", "30d", "--json").json
    assert found["all"]["kpis"]["wrong_go"]["state"] == "holds"
    rate = found["all"]["kpis"]["false_negative_rate"]
    assert (rate["estimate"], rate["low"], rate["labels"], rate["state"]) == (0, 0, 210, "holds")
    assert 0.08 < rate["high"] <= 0.10 == 2 * rate["limit"]
    assert (list(found["rubrics"]), set(found["models"])) == (["kls@1.0.0"], {"small", "big"})
    assert judgekit("kpi", "--json").json["all"]["verdicts"] == 41
    done = judgekit("kpi", "--html", "kpi.html")
    assert (done.code, done.err) == (0, "judgekit: Wrote kpi.html\n")
    assert "<svg" in Path("kpi.html").read_text()
    assert judgekit("kpi", "--html", "gone/kpi.html").code == 65
    for options in (("--plot", "kpi.svg"), ("--html", "other.html", "--plot", "kpi.svg")):
        done = judgekit("kpi", *options)
        assert (done.code, "--html FILE.html writes a page that has the charts" in done.err) == (
            64,
            True,
        )
    assert not Path("other.html").exists()
    assert not Path("kpi.svg").exists()


def test_typed_overrides_are_labels(
    judgekit: Run, ledger: Ledger, at_terminal: Callable[[], None]
) -> None:
    lines = several("reject", 3, 1)
    ledger.add(*lines)
    judgekit("override", lines[0].task_id, "accept", "--why", "a program says so")
    assert judgekit("kpi", "--json").json["all"]["labelled"] == 0
    at_terminal()
    judgekit("override", lines[0].task_id, "accept", "--why", "the port is right")
    judgekit("override", lines[1].task_id, "reject", "--why", "it is not")
    found = judgekit("kpi", "--json").json["all"]
    wrong = found["kpis"]["wrong_nogo"]
    assert (found["labelled"], wrong["value"], wrong["total"]) == (2, 0.5, 2)


# promote


def test_promotion_is_refused_until_all_holds(judgekit: Run, ledger: Ledger, project: Path) -> None:
    done = judgekit("promote", "--force")
    assert (done.code, "promote needs a git repository" in done.err) == (64, True)
    assert list(ledger.read_records()) == []
    subprocess.run(["git", "init", "-q"], cwd=project, check=True, timeout=60)
    ledger.add(given())
    done = judgekit("promote")
    assert done.code == 1
    assert "missing: time: verdicts cover 1 day; 14 are needed" in done.err
    assert "false-positive rate: nothing measured yet" in done.err
    assert not (project / ".judgekit").exists()
    measured(ledger)
    rules = "judge: {{independence: require}}\ngate:  # ours\n  mode: {}  # for now\n"
    path = by_project(rules.format("advisory"))
    done = judgekit("promote")
    assert (done.code, done.err, path.read_text()) == (0, "", rules.format("blocking"))
    change = change_of(ledger)
    assert (change.mode, change.forced, change.why) == ("blocking", False, [])


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
@pytest.mark.parametrize("link", [".judgekit", ".judgekit/config.yaml"])
def test_linked_rules_are_not_promoted(
    judgekit: Run, ledger: Ledger, repository: Path, link: str
) -> None:
    outside = repository / "outside"
    outside.mkdir()
    (outside / "config.yaml").write_text("gate: {mode: advisory}\n")
    (repository / link).parent.mkdir(exist_ok=True)
    (repository / link).symlink_to(outside if link == ".judgekit" else outside / "config.yaml")
    done = judgekit("promote", "--force")
    assert done.code == 78
    assert "a link, and the gate follows no links; replace it with the file" in done.err
    assert (outside / "config.yaml").read_text() == "gate: {mode: advisory}\n"
    assert list(ledger.read_records()) == []


def test_a_promotion_in_a_subfolder_is_the_repositorys_and_one_that_fails_leaves_no_trace(
    judgekit: Run, ledger: Ledger, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = by_project("judge: {mode: strict}\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", Mock(side_effect=OSError(28, "No space left on device")))
        assert judgekit("promote", "--force").code == 78
    assert list(ledger.read_records()) == []
    path.unlink()
    (repository / "docs" / ".judgekit").mkdir(parents=True)
    monkeypatch.chdir(repository / "docs")
    assert judgekit("promote", "--force").code == 0
    assert settings.load(repository).gate.mode == "blocking"
    assert (change_of(ledger).forced, len(change_of(ledger).why)) == (True, 8)


@pytest.mark.parametrize("missed", [0, 2, 3, 8])
def test_a_gate_that_lets_bad_content_through_is_not_promoted(
    judgekit: Run, ledger: Ledger, repository: Path, missed: int
) -> None:
    promoted = missed < 3  # 8 of 88 are 9.1 %; of 3 of 83 the interval ends at 11 %
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


def test_promotion_wants_independence_or_its_lack_on_record(
    judgekit: Run, ledger: Ledger, repository: Path
) -> None:
    measured(ledger)
    done = judgekit("promote")
    assert (done.code, (repository / ".judgekit").exists()) == (1, False)
    assert "missing: independence: " in done.err
    assert "--accept-dependence" in done.err
    assert judgekit("promote", "--accept-dependence").code == 0
    change = change_of(ledger)
    assert (change.forced, change.dependent, change.why) == (False, True, [])
    assert "blocking (dependence accepted)" in judgekit("triage").out


# label


def test_labels_come_from_a_file(
    judgekit: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(given(name="aa11"), given(name="ab22", path="b.md"), given(name="ab", path="c.md"))
    ledger.add(*several("accept", 4, 1))
    sound = "id,label,who\naa, go\nab,no-go,bob\nab2,unsure\n\n"
    as_judges = "accept0,accept\naccept1,improve\naccept2,reject\n"
    wrong = f"{'x' * 200_000},go\nid,label\naccept1,4\naccept1,\naccept1\naccept,reject\n"
    Path("labels.csv").write_text(sound + as_judges + wrong)
    done = judgekit("label", "--from", "labels.csv")
    assert (done.code, done.out, len(done.err) < 1000) == (65, "6 labelled\n", True)
    huge, *told = [line.removeprefix("judgekit: labels.csv:") for line in done.err.splitlines()]
    assert huge.startswith("9: ")
    assert "got 'xxx" in huge
    assert told == [
        "10: id must be that of one verdict; got 'id', and no verdict has it",
        "11: label must be accept, improve or reject; got 4",
        "12: label must be accept, improve or reject; got nothing",
        "13: expected ID,LABEL, got 'accept1'",
        "14: id must be that of one verdict; got 'accept', and 4 verdicts have an id that starts so",
    ]
    assert labels(ledger)[:3] == [("aa11", "go"), ("ab", "no-go"), ("ab22", "unsure")]
    assert [word for _, word in labels(ledger)[3:]] == ["go", "no-go", "no-go"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"aa11,go\n")))
    assert judgekit("label", "--from", "-").code == 0
    assert judgekit("label", "--from", "gone.csv").code == 65
    done = judgekit("label")
    assert (done.code, done.out, "needs a terminal" in done.err) == (64, "", True)


def test_one_key_a_verdict(judgekit: Run, ledger: Ledger, press: Press) -> None:
    ledger.add(*several("accept", 3, 1), *several("reject", 3, 1))
    press("gxNu")
    assert judgekit("label").out.splitlines()[-1] == "3 labelled, 3 left"
    assert [word for _, word in labels(ledger)] == ["go", "no-go", "unsure"]
    press("sgq")
    assert judgekit("label").out.splitlines()[-1] == "1 labelled, 2 left"
    assert len(dict(labels(ledger))) == 4
    press("")
    assert judgekit("label", "-n", "1").out.splitlines()[-1] == "0 labelled, 1 left"
    judgekit("ledger", "purge", "--all", "--yes")
    ledger.add(*several("accept", 2, 1))
    press("bgbngsbb")  # the last answer is taken back
    assert judgekit("label").code == 0
    (first, _), *_, (second, _) = said = labels(ledger)[:4]
    assert said == [(first, "go"), (first, "withdrawn"), (first, "no-go"), (second, "go")]


def test_label_says_a_damaged_line_once(judgekit: Run, ledger: Ledger, press: Press) -> None:
    ledger.add(*several("accept", 1, 1))
    (file,) = ledger.folder.glob("*.jsonl")
    with file.open("a") as lines:
        lines.write("{broken\n")
    press("q")
    done = judgekit("label")
    assert (done.code, done.err.count(f"{file}:2: ")) == (0, 1)


def test_blind_shows_the_text_and_not_the_verdict(
    judgekit: Run, ledger: Ledger, press: Press
) -> None:
    text = "".join(f"line {n}\n" for n in range(60))
    Path("doc.md").write_text(text)
    subject = {"path": "doc.md", "sha256": hashlib.sha256(text.encode()).hexdigest()}
    ledger.add(
        given("reject", path="doc.md", subjects=[subject], findings=[{"issue": "wrong port"}])
    )
    press("aq")
    blind = judgekit("label", "--blind").out
    for shown in ("line 39\n", "20 more lines (a shows them)", "line 59\n"):
        assert shown in blind
    press("g")
    seen = judgekit("label").out
    for verdict in ("REJECT", "wrong port"):
        assert (verdict in blind, verdict in seen) == (False, True)
    (record,) = ledger.read_records(LineFilter(kinds=[Label]))
    assert isinstance(record, Label)
    assert not record.blind


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, typer.Abort])
def test_an_interruption_says_what_was_kept(
    judgekit: Run,
    ledger: Ledger,
    press: Press,
    monkeypatch: pytest.MonkeyPatch,
    stopped: type[BaseException],
) -> None:
    def interrupts(*_: object) -> None:
        raise stopped

    ledger.add(*several("accept", 4, 1))
    press("gg", end=stopped)
    done = judgekit("label")
    kept = "2 labels are saved; judgekit label continues there"
    assert (done.code, done.err) == (130, f"judgekit: interrupted; {kept}\n")
    assert len(labels(ledger)) == 2
    monkeypatch.setattr("judgekit.ledger.store.read_entries", interrupts)
    for command in ("kpi", "triage"):
        done = judgekit(command)
        assert (done.code, done.err) == (130, "judgekit: interrupted; the ledger is unchanged\n")


# ledger


def test_lines_come_out_as_they_are(judgekit: Run, ledger: Ledger) -> None:
    ledger.add(
        given(days=9), given(days=1), Skip(variable="JUDGEKIT_SKIP", who="ann", terminal=True)
    )
    done = judgekit("ledger", "export", "--since", "2d")
    schemas = [json.loads(line)["schema"] for line in done.out.splitlines()]
    assert (done.code, schemas) == (0, ["judgekit/verdict@1", "judgekit/skip@1"])
    paths = sorted(ledger.folder.glob("*.jsonl"))
    assert judgekit("ledger", "export").out.encode() == b"".join(
        path.read_bytes() for path in paths
    )
    paths[0].write_bytes(b'{"torn\n' + paths[0].read_bytes())
    done = judgekit("ledger", "export", "--format", "csv")
    why = "not JSON (cut off when the writer was killed, or edited)"
    assert done.err == f"judgekit: {paths[0]}:1: {why}; this line is skipped\n"
    assert len(done.out.splitlines()) == 3


def test_projects_are_told_apart(judgekit: Run, ledger: Ledger, tmp_path: Path) -> None:
    commands = [
        words.split() for words in ("kpi", "triage", "ledger export", "ledger purge --all --yes")
    ]
    for command in commands:
        done = judgekit(*command, "--project", "nosuch")
        assert (done.code, done.out) == (64, "")
        assert done.err.startswith("judgekit: --project nosuch: no ledger of that name in ")
        assert done.err.endswith("; there is none yet\n")
    ledger.add(given(path="here.md"))
    for command in commands:
        done = judgekit(*command, "--project", "nosuch")
        assert (done.code, done.err.endswith(f"; there are {ledger.name}\n")) == (64, True)
        assert judgekit(*command, "--project", ledger.name[:-13]).code == 0
    ledger.add(given(path="here.md"))
    Ledger.of(tmp_path.parent).add(given(path="there.md", **content("there", "there.md")))
    assert len(judgekit("ledger", "export").out.splitlines()) == 2
    out = judgekit("ledger", "export", "--project", ledger.name).out
    assert ("here.md" in out, "there.md" in out) == (True, False)
    assert judgekit("kpi", "--json").json["all"]["verdicts"] == 1
    assert judgekit("kpi", "--json", "--project", "all").json["all"]["verdicts"] == 2


def test_older_lines_are_brought_in_once_and_strange_ones_told_shortly(
    judgekit: Run, project: Path
) -> None:
    source = project / "older.jsonl"
    source.write_text(json.dumps(PUSH) + '\n{"torn\n')
    done = judgekit("ledger", "import", str(source))
    assert (done.code, done.out.split()[0]) == (65, "1")
    assert done.err == f"judgekit: {source}:2: not JSON; this line is skipped\n"
    again = judgekit("ledger", "import", str(source))
    assert again.out.startswith("0 lines added")
    assert again.out.endswith("1 was already there\n")
    assert judgekit("ledger", "export").json["imported"] == {}
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


def test_purge(
    judgekit: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, at_terminal: Callable[[], None]
) -> None:
    old = given(days=100)
    ledger.add(old, given(), label(old, "go"))
    done = judgekit("ledger", "purge", "--before", "90d")
    assert (done.code, done.out) == (64, f"{ledger.name}: 1 label, 1 verdict\n")
    assert "--yes" in done.err
    for words in ((), ("--all", "--before", "1d"), ("--all",)):  # there is no person to ask
        assert judgekit("ledger", "purge", *words).code == 64
    at_terminal()
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert judgekit("ledger", "purge", "--before", "90d").code == 130
    assert len(list(ledger.read_records())) == 3
    done = judgekit("ledger", "purge", "--before", "90d", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 2 lines")
    assert len(list(ledger.read_records())) == 1
    assert judgekit("ledger", "purge", "--before", "90d").out.startswith("nothing is older")
    ledger.add(given(days=100), given(days=-3), Skip(variable="X", who="ann", terminal=True))
    done = judgekit("ledger", "purge", "--all", "--yes")  # today's too, and those of days to come
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 4 lines")
    assert list(ledger.folder.glob("*.jsonl")) == []
    assert judgekit("ledger", "purge", "--all").out == "the ledger is empty\n"


# override


def test_relative_paths(
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


def test_an_override_needs_a_known_task_a_word_and_a_reason_and_counts_at_a_terminal_or_by_the_users_word(
    judgekit: Run, ledger: Ledger, at_terminal: Callable[[], None]
) -> None:
    for arguments, said in (
        (("a.md", "accept", "--why", "x"), "no verdict on it"),
        (("a.md@3f2c", "accept", "--why", "x"), "no verdict on it"),
        (("a.md@3f2c3f2c", "maybe", "--why", "x"), "maybe"),
        (("a.md@3f2c3f2c", "accept", "--why", " "), "--why is empty"),
        (("a.md@3f2c3f2c", "accept"), "--why"),
    ):
        done = judgekit("override", *arguments)
        assert (done.code, said in done.err, list(ledger.read_records())) == (64, True, [])
    by_user("gate: {override_without_terminal: true}\n")
    assert judgekit("override", TASK, "accept", "--why", "x").err.count("terminal") == 0
    assert override_for(ledger, TASK) is None
    at_terminal()
    done = judgekit("override", TASK, "reject", "--why", "no")
    assert (done.code, "yet; the override applies to the next one" in done.err) == (0, True)
    assert override_for(ledger, TASK) is not None


def test_a_ledger_that_cannot_be_written_is_said_in_one_line(judgekit: Run, isolated: Path) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "state").write_text("a file in the way")
    done = judgekit("override", TASK, "accept", "--why", "known")
    assert (done.code, done.err.count("\n"), "the ledger cannot be written" in done.err) == (
        78,
        1,
        True,
    )


# triage


def test_what_needs_a_person_over_many_ledgers(
    judgekit: Run, project: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        finding = {"issue": "wrong\x1b[31m port"}
        Ledger(tmp_path / name, f"{name}-0123456789ab").add(
            given("reject", path=f"{name}.md", commit="c0ffee" * 6, findings=[finding]),
            given("reject", path="long-ago.md", days=9, name=f"{name}-long-ago"),
            given("undetermined", path=f"{name}.md", days=2),
            OverrideLine(
                task_id="b.md@3f2c3f2c", decision="accept", why="known", who="ann", terminal=False
            ),
        )
    places = ("--ledger", str(tmp_path / "one"), "--ledger", str(tmp_path / "two"))
    done = judgekit("triage", *places)
    assert done.code == 0
    for text in (
        "NO-GO (2)\n",
        "one.md@3f2c000000000000 in c0ffeec0ffee: reject semantic 1: wrong[31m port",
        "Overrides (2)",
        "WITHOUT A TERMINAL: known",
        "2 times timeout, small: no reply in 45 s",
    ):
        assert text in done.out
    assert "long-ago" not in done.out
    assert len(judgekit("triage", *places, "--since", "2w", "--json").json["nogo"]) == 4
    assert judgekit("triage").out == "nothing needs a person\n"


SSH = """#!{python}
import os, pathlib, subprocess, sys, time
words = sys.argv[1:]
pathlib.Path("{folder}", "asked").write_text("\\0".join(words))
host = words.index("box.example")
{more}
done = subprocess.run([sys.executable, "-m", "judgekit", *words[host + 2:]], env=os.environ | {{
    "JUDGEKIT_HOME": "{folder}/remote"
}})
sys.exit(done.returncode)
"""


@pytest.fixture
def box(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Let ssh reach a host that runs our own command with a ledger of its own, or does `more` first."""
    folder = tmp_path_factory.mktemp("box")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    lines = [
        given("reject", path="far.md", days=1),
        given("reject", path="old.md", days=9, name="old"),
    ]
    Ledger(folder / "remote" / "state" / "ledger" / "far-0123456789ab", "far-0123456789ab").add(
        *lines
    )

    def reached(more: str = "") -> Path:
        program = folder / "ssh"
        program.write_text(SSH.format(python=sys.executable, folder=folder, more=more))
        program.chmod(0o755)
        return folder

    return reached


def test_the_ledger_of_a_host(judgekit: Run, project: Path, box: Callable[..., Path]) -> None:
    folder = box()
    done = judgekit("triage", "--host", "box.example")
    assert (done.code, done.out.count("far.md"), "old.md" in done.out, done.err) == (
        0,
        1,
        False,
        "",
    )
    asked = (folder / "asked").read_text().split("\0")
    assert asked[:-1] == [
        *("-oBatchMode=yes", "-oConnectTimeout=10", "-oLogLevel=ERROR", "box.example"),
        *("judgekit", "ledger", "export", "--jsonl", "--since"),
    ]
    assert (
        len(judgekit("triage", "--host", "box.example", "--since", "2w", "--json").json["nogo"])
        == 2
    )
    assert not list(folder.rglob("*.lock"))[1:]  # only our own files are there


def test_what_a_host_sends_is_not_trusted(
    judgekit: Run, project: Path, box: Callable[..., Path]
) -> None:
    line = records.serialise_record(
        given("reject", path="a\x1b]0;x\x07.md", project="p\u202e\x9b31m")
    ).decode()
    sent = [line, "{", "\x1b[2J", '{"schema": "judgekit/verdict@1"}', "[" * 100_000, "x" * 200_000]
    box(f"print({chr(10).join(sent)!r}); print('slow disk \\x1b[1m', file=sys.stderr); sys.exit(0)")
    done = judgekit("triage", "--host", "box.example")
    assert (done.code, done.out.count("a]0;x.md")) == (0, 1)
    assert not set(done.out + done.err) & set("\x1b\x07\x9b\u202e")
    first, second = done.err.splitlines()
    assert first.startswith(
        "judgekit: box.example: 5 lines cannot be read; the first, line 3: not JSON"
    )
    assert second == "judgekit: box.example: slow disk [1m"


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (
            "sys.exit('Host key\\x1b[m verification failed.')",
            65,
            "ssh: Host key[m verification failed.",
        ),
        ("sys.exit(255)", 65, "ssh: exit code 255"),
        ("time.sleep(60)", 65, "did not send its ledger within 1 s or 1 MB; name a later --since"),
        (
            "print('x' * 9_000_000); time.sleep(60)",
            65,
            "did not send its ledger within 1 s or 1 MB",
        ),
    ],
)
def test_a_host_that_cannot_be_read(
    judgekit: Run,
    project: Path,
    box: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    more: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(importing, "FETCH_SECONDS", 1.0)
    monkeypatch.setattr(importing, "MAX_FETCHED_BYTES", 1_000_000)
    box(more)
    done = judgekit("triage", "--host", "box.example")
    assert (done.code, done.out) == (code, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host=-oProxyCommand=touch x",), "expected the name of a host"),
        (("--host", ""), "expected the name of a host"),
        (("--host", "box.example", "--team"), "cannot be combined"),
        (("--host", "box.example", "--ledger", "."), "cannot be combined"),
        (("--host", "box.example", "good.md"), "cannot be combined"),
    ],
)
def test_no_host(
    judgekit: Run, project: Path, box: Callable[..., Path], words: tuple[str, ...], said: str
) -> None:
    folder = box()
    done = judgekit("triage", *words)
    assert (done.code, said in done.err, (folder / "asked").exists()) == (64, True, False), done.err


def test_files_of_days_copied_from_elsewhere(judgekit: Run, project: Path, tmp_path: Path) -> None:
    old = records.serialise_record(given("reject", path="old.md", days=400)).decode()
    for name in ("2025-10-01.jsonl", "2025-10-02.jsonl"):
        (tmp_path / name).write_text(old + ("" if name.startswith("2025-10-01") else "{\n"))
    done = judgekit("triage", "2025-10-01.jsonl", "2025-10-02.jsonl")
    assert (done.code, done.out.count("old.md")) == (0, 1)  # a line that is in both counts once
    assert "2025-10-02.jsonl:2: not JSON" in done.err
    assert judgekit("triage", "2025-10-01.jsonl", "--since", "7d").out == "nothing needs a person\n"
    assert judgekit("triage", "none.jsonl").code == 65

"""The boundary of a task at the command line: one verdict, the ledger, a person's word, an issue."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from fake_gh import ADDRESS, FakeGh
from git_repo import GitRepo
from hooking import by_user
from ledger_lines import verdict as ledger_verdict
from loopback import SILENT, Answer, Asked, Loopback, fails
from loopback import says as reply
from scripted import scores

from judgekit.cli.schema import build_json_schema
from judgekit.gate import github
from judgekit.ledger import Ledger, OverrideLine, VerdictLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome, Run, Use

    Tiers = Callable[..., tuple[Outcome, list[Asked]]]

GOOD, BAD, MIDDLING = scores(4, 4, 4), scores(1, 1, 1), scores(3, 3, 2)
FILES = ("good.md", "bad.md")
TASK = ("judge", "--task-id", "T-42", "--format", "json", *FILES)
DIVIDED = {"quick": GOOD, "deep": BAD, "tiebreaker": MIDDLING}


@pytest.fixture
def tiers(judgekit: Run, project: Path, use: Use) -> Tiers:
    """Run a command with models that are named as their tiers are, each with a reply of its own."""

    def call(*words: str, silent: bool = False, **replies: str) -> tuple[Outcome, list[Asked]]:
        def answer(asked: Asked) -> Answer:
            model = str(asked.body["model"]).rpartition("/")[2]
            return reply(replies[model], model=model) if replies[model] else fails(400)

        with Loopback(SILENT if silent else answer) as server:
            use(server, quick="quick", deep="deep", tiebreaker="tiebreaker")
            return judgekit(*words), server.requests

    return call


def lines(project: Path) -> list[VerdictLine]:
    return [
        record for record in Ledger.of(project).read_records() if isinstance(record, VerdictLine)
    ]


def only(done: Outcome) -> dict[str, Any]:
    (found,) = done.json
    jsonschema.Draft202012Validator(build_json_schema("verdict")).validate(found)
    return dict(found)


def test_a_task_is_called_by_its_whole_id(tiers: Tiers) -> None:
    done, _ = tiers("judge", "--task-id", "me@home", *FILES, quick=BAD)
    assert "REJECT        me@home" in done.out


@pytest.mark.parametrize(
    ("replies", "word", "code"),
    [
        ({"quick": GOOD, "deep": GOOD}, "accept", 0),
        ({"quick": BAD}, "reject", 1),
        ({"quick": MIDDLING, "deep": MIDDLING}, "improve", 2),
        ({"quick": GOOD, "deep": BAD, "tiebreaker": GOOD}, "accept", 0),
        ({"quick": GOOD, "deep": BAD, "tiebreaker": BAD}, "reject", 1),
        (DIVIDED, "escalate", 2),
        ({"quick": GOOD, "deep": "", "tiebreaker": ""}, "undetermined", 2),
    ],
)
def test_tiers_and_codes(
    tiers: Tiers, project: Path, replies: dict[str, str], word: str, code: int
) -> None:
    done, asked = tiers(
        *TASK, "--description", "A guide", "--acceptance", "Covers rollback", **replies
    )
    found = only(done)
    assert (found["verdict"], done.code) == (word, code)
    assert (found["task_id"], found["mode"]) == ("T-42", "strict")
    assert [each["tier"] for each in found["rounds"]] == list(replies)
    (line,) = lines(project)
    assert (line.id, line.task_id, line.verdict, line.of_task) == (found["id"], "T-42", word, True)
    assert ([each.tier for each in line.rounds], line.reasoning) == (list(replies), "")
    sent = asked[0].text  # files and criteria are judged together
    for text in ("A guide", "Covers rollback", "A sound document.", "# Bad\n\nTODO"):
        assert text in sent
    assert sent.index("A sound document.") < sent.index("# Bad")
    expected = [(name, hashlib.sha256((project / name).read_bytes()).hexdigest()) for name in FILES]
    assert [(each["path"], each["sha256"]) for each in found["subjects"]] == expected


@pytest.mark.parametrize(("decision", "code"), [("accept", 0), ("reject", 1)])
def test_overrides_until_content_changes(
    tiers: Tiers, project: Path, decision: str, code: int
) -> None:
    middling = {"quick": MIDDLING, "deep": MIDDLING}
    tiers(*TASK, **middling)
    (line,) = lines(project)
    word: dict[str, Any] = {
        "task_id": "T-42",
        "decision": decision,
        "why": "checked by hand",
        "who": "ann",
    }
    subjects = [subject.sha256 for subject in line.subjects]
    Ledger.of(project).add(OverrideLine(**word, terminal=True, subjects=subjects))
    done, asked = tiers(*TASK)
    found = only(done)
    assert (done.code, found["verdict"], found["rounds"], asked) == (code, decision, [], [])
    assert (found["human_override"]["who"], found["human_override"]["why"]) == (
        "ann",
        "checked by hand",
    )
    assert f"T-42: {decision}ed by ann: checked by hand" in done.err
    done, asked = tiers("judge", "--task-id", "T-42", *reversed(FILES))
    assert (done.code, asked, len(lines(project))) == (
        code,
        [],
        1,
    )  # the same content; no model's verdict
    assert tiers("judge", "--task-id", "T-43", *FILES, **middling)[0].code == 2  # another task
    (project / "bad.md").write_text("# Bad\n\nChanged.\n")
    assert only(tiers(*TASK, **middling)[0])["human_override"] is None


def test_what_is_noted_and_what_is_not(judgekit: Run, tiers: Tiers, project: Path) -> None:
    done = judgekit(*TASK)  # no model
    assert (done.code, only(done)["verdict"], "not judged" in done.err) == (2, "undetermined", True)
    done, asked = tiers("judge", "--task-id", "T-42", "good.md", "missing.md", quick=BAD)
    assert (done.code, asked) == (65, [])
    tiers("judge", *FILES, quick=BAD)  # no task
    assert lines(project) == []
    assert tiers(*TASK, "--deadline", "1", silent=True)[0].code == 2
    assert [line.verdict for line in lines(project)] == ["undetermined"]


def test_a_ledger_that_cannot_be_written_costs_a_line(tiers: Tiers, project: Path) -> None:
    folder = Ledger.of(project).folder
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    done, _ = tiers(*TASK, quick=BAD)
    assert (done.code, "the ledger cannot be written" in done.err) == (1, True)


@pytest.fixture
def gh(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> FakeGh:
    made = FakeGh.make(tmp_path_factory.mktemp("gh") / "bin")
    monkeypatch.setenv("PATH", made.path)
    repository = GitRepo(project)
    repository("init", "--quiet")
    repository("remote", "add", "origin", ADDRESS)
    return made


def test_disagreement_opens_an_issue_where_the_user_wants_it(
    judgekit: Run, tiers: Tiers, gh: FakeGh
) -> None:
    tiers(*TASK, **DIVIDED)
    assert gh.calls == []
    by_user('escalate: {issues: "on"}\n')
    done, _ = tiers(*TASK, **DIVIDED)
    assert (done.code, only(done)["verdict"]) == (2, "escalate")  # stdout is the verdict's alone
    assert "issue opened: https://github.com/acme/docs/issues/1 (T-42)" in done.err
    assert gh.issues[0]["title"] == "[JUDGE-DISAGREEMENT] Review needed: T-42"
    gh.tell(
        list=[["HTTP 403: API rate limit exceeded", 1]]
    )  # a failing gh does not change the exit code
    done, _ = tiers(*TASK, **DIVIDED)
    assert (done.code, done.err.count("no issue was opened for 1: ")) == (2, 1)


def test_the_command_opens_what_is_open(judgekit: Run, tiers: Tiers, gh: FakeGh) -> None:
    assert judgekit("escalate").out == "nothing needs a person\n"
    tiers(*TASK, **DIVIDED)
    shown = judgekit("escalate", "--dry-run")
    assert (shown.code, gh.calls) == (0, [])
    assert shown.out.startswith(
        "[JUDGE-DISAGREEMENT] Review needed: T-42\n\n<!-- judgekit judgekit-task-"
    )
    gh.tell(create=[["boom", 1]])
    done = judgekit("escalate")
    assert (done.code, done.out) == (2, "")
    assert "no issue was opened for 1: gh issue create: boom" in done.err
    gh.tell()
    done = judgekit("escalate")
    assert (done.code, done.out) == (
        0,
        "issue opened: https://github.com/acme/docs/issues/1 (T-42)\n",
    )
    assert judgekit("escalate", "T-42").out.startswith("issue stands: ")
    assert len(gh.issues) == 1


def test_named_tasks_that_are_not_accepted(
    judgekit: Run, tiers: Tiers, project: Path, gh: FakeGh
) -> None:
    tiers(*TASK, quick=MIDDLING, deep=MIDDLING)
    assert judgekit("escalate").out == "nothing needs a person\n"
    assert judgekit("escalate", "T-42").code == 0
    assert gh.issues[0]["title"] == "Review needed: T-42"  # no model disagrees
    assert judgekit("escalate", "T-1").code == 64
    (project / "bad.md").write_text("# Better\n\nDone.\n")
    tiers(*TASK, quick=GOOD, deep=GOOD)
    assert judgekit("escalate", "T-42").code == 64


@pytest.fixture
def told(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Let the user be told by a program; it stores its input, and runs further commands that a test gives."""
    folder = tmp_path_factory.mktemp("told")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")

    def start(more: str = "", issues: str = "off") -> Path:
        program = folder / "tell.sh"
        program.write_text(
            f'#!/bin/sh\nenv >{folder}/env\necho noise\n{more}\ncat >>"{folder}/$1"\n'
        )
        program.chmod(0o755)
        command = json.dumps([str(program), "a b; $HOME"])
        by_user(f"escalate: {{issues: '{issues}', notify: {{command: {command}}}}}\n")
        return folder / "a b; $HOME"

    return start


def test_a_program_is_told_once_of_each_content_on_which_models_disagree(
    tiers: Tiers, project: Path, told: Callable[..., Path], isolated: Path
) -> None:
    file = told()
    tiers(*TASK, quick=BAD)
    assert not file.exists()
    for _ in range(2):
        done, _ = tiers(*TASK, **DIVIDED)
        assert (done.code, done.err) == (2, "")
        record = only(done)  # stdout is the verdict's alone
    (line,) = file.read_text().split("\n")[:-1]
    assert json.loads(line)["subjects"] == record["subjects"]
    jsonschema.validate(json.loads(line), build_json_schema("verdict"))
    assert "sk-of-the-user" not in (file.parent / "env").read_text()
    (project / "bad.md").write_text("# Bad\n\nChanged.\n")
    tiers(*TASK, **DIVIDED)
    assert len(file.read_text().split("\n")) == 3
    (state,) = isolated.rglob("notified")
    assert (state.stat().st_mode & 0o777, len(state.read_text().split())) == (0o600, 2)
    state.write_text("\n".join(f"{number:016x}" for number in range(5000)))
    tiers(*TASK, **DIVIDED)
    assert (len(state.read_text().split()), len(file.read_text().split("\n"))) == (1000, 4)


def test_the_gate_tells_it_too_beside_an_issue(
    tiers: Tiers, project: Path, gh: FakeGh, told: Callable[..., Path]
) -> None:
    repository = GitRepo(project)
    repository.commit("base", readme_txt="x\n")
    repository("branch", "base")
    repository.commit("change", guide_md="# Guide\n\nIt says how.\n")
    file = told(issues="on")
    done, _ = tiers("gate", "--base", "base", quick=BAD, deep=GOOD, tiebreaker=MIDDLING)
    assert (done.code, "UNDETERMINED" in done.out, "issue opened: " in done.err) == (0, True, True)
    assert json.loads(file.read_text())["task_id"].startswith("guide.md@")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("printf 'no \\033[31mbus\\nhere' >&2; exit 3", "tell.sh: no [31mbus here\n"),
        ("exec sleep 60", "tell.sh: not done after 0.5 s\n"),
        ("sleep 60 & exit 0", "tell.sh: not done after 0.5 s\n"),
        (None, "tell.sh: not found; name a program on PATH, or its absolute path\n"),
    ],
)
def test_a_program_that_fails_costs_a_line(
    tiers: Tiers,
    told: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    more: str | None,
    said: str,
) -> None:
    monkeypatch.setattr(github, "MAX_TOTAL_SECONDS", 0.5)
    file = told(more or "")
    if more is None:
        (file.parent / "tell.sh").unlink()
    done, _ = tiers(*TASK, **DIVIDED)
    assert (done.code, only(done)["verdict"], done.err.count("\n")) == (2, "escalate", 1)
    assert done.err.startswith("judgekit: escalate.notify: ")
    assert done.err.endswith(said)
    file = told()  # failed notifications are sent later
    tiers(*TASK, **DIVIDED)
    assert file.exists()


def test_who_is_told_something_else_meanwhile_does_not_wait(
    told: Callable[..., Path], isolated: Path
) -> None:
    file = told()
    slow = file.parent / "slow.sh"
    slow.write_text(
        f"#!/bin/sh\ntouch {file.parent}/begun\nwhile [ ! -e {file.parent}/go ]; do sleep 0.05; done\n"
    )
    slow.chmod(0o755)
    one, other = ledger_verdict("escalate", path="a.md"), ledger_verdict("escalate", path="b.md")
    quick = [str(file.parent / "tell.sh"), file.name]
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(github.notify, [one], [str(slow)], "docs")
        while not (file.parent / "begun").exists():
            assert not waiting.done()
        assert github.notify([one], quick, "docs") == []  # which somebody is told now
        assert not file.exists()
        assert github.notify([other], quick, "docs") == []
        assert not waiting.done()
        (file.parent / "go").touch()
        assert waiting.result() == []
    assert file.read_text().count("b.md@") == 1
    github.notify([one, other], quick, "docs")
    assert file.read_text().count("\n") == 1


def test_no_project_and_no_variable_names_a_program(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = project / ".judgekit" / "config.yaml"
    own.parent.mkdir(exist_ok=True)
    own.write_text('escalate:\n  notify: {command: ["touch", "x"]}\n')
    done = judgekit(*TASK)
    assert (done.code, "only the user's configuration may start a program" in done.err) == (
        78,
        True,
    )
    own.unlink()
    monkeypatch.setenv("JUDGEKIT_ESCALATE_NOTIFY", "touch")
    done = judgekit(*TASK)
    assert (done.code, "no variable may start a program" in done.err) == (78, True)

"""The boundary of a task at the command line: one verdict, the ledger, a person's word, an issue."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from fake_gh import ADDRESS, FakeGh
from git_repo import GitRepo
from loopback import SILENT, Answer, Asked, Loopback, fails
from loopback import says as reply
from scripted import scores

from judgekit.cli.schema import json_schema
from judgekit.config import settings
from judgekit.ledger import Ledger, OverrideLine, VerdictLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from outcome import Outcome, Run

GOOD, BAD, MIDDLING = scores(4, 4, 4), scores(1, 1, 1), scores(3, 3, 2)
TASK = ("judge", "--task-id", "T-42", "--format", "json")
FILES = ("good.md", "bad.md")


def each_tier(monkeypatch: pytest.MonkeyPatch, server: Loopback) -> None:
    """Make every tier a model of its own, named as the tier is."""
    monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
    for tier in ("quick", "deep", "tiebreaker"):
        monkeypatch.setenv(f"JUDGEKIT_{tier}_MODEL".upper(), tier)


def by_tier(**replies: str) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        model = str(asked.body["model"]).rpartition("/")[2]
        return reply(replies[model], model=model) if replies[model] else fails(400)

    return answer


def lines(project: Path) -> list[VerdictLine]:
    return [record for record in Ledger.of(project).records() if isinstance(record, VerdictLine)]


def only(done: Outcome) -> dict[str, Any]:
    (found,) = json.loads(done.out)
    jsonschema.Draft202012Validator(json_schema("verdict")).validate(found)
    return dict(found)


@pytest.mark.parametrize(
    ("replies", "word", "code", "tiers"),
    [
        ({"quick": GOOD, "deep": GOOD}, "accept", 0, ["quick", "deep"]),
        ({"quick": BAD}, "reject", 1, ["quick"]),
        ({"quick": MIDDLING, "deep": MIDDLING}, "improve", 2, ["quick", "deep"]),
        ({"quick": GOOD, "deep": BAD, "tiebreaker": GOOD}, "accept", 0, ["quick", "deep", "tiebreaker"]),
        ({"quick": GOOD, "deep": BAD, "tiebreaker": BAD}, "reject", 1, ["quick", "deep", "tiebreaker"]),
        (
            {"quick": GOOD, "deep": BAD, "tiebreaker": MIDDLING},
            "escalate",
            2,
            ["quick", "deep", "tiebreaker"],
        ),
        ({"quick": GOOD, "deep": "", "tiebreaker": ""}, "undetermined", 2, ["quick", "deep", "tiebreaker"]),
    ],
)
def test_all_tiers_and_exit_codes_in_strict_mode(
    judgekit: Run,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    replies: dict[str, str],
    word: str,
    code: int,
    tiers: list[str],
) -> None:
    with Loopback(by_tier(**replies)) as server:
        each_tier(monkeypatch, server)
        done = judgekit(*TASK, *FILES)
    found = only(done)
    assert (found["verdict"], done.code) == (word, code)
    assert (found["task_id"], found["mode"]) == ("T-42", "strict")
    assert [each["tier"] for each in found["rounds"]] == tiers
    (line,) = lines(project)
    assert (line.id, line.task_id, line.verdict, line.of_task) == (found["id"], "T-42", word, True)
    assert [each.tier for each in line.rounds] == tiers
    assert line.reasoning == ""


def test_files_and_criteria_are_judged_together(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(by_tier(quick=BAD)) as server:
        each_tier(monkeypatch, server)
        done = judgekit(*TASK, "--description", "A guide", "--acceptance", "Covers rollback", *FILES)
    (asked,) = server.requests
    for text in ("A guide", "Covers rollback", "A sound document.", "# Bad\n\nTODO"):
        assert text in asked.text
    assert asked.text.index("A sound document.") < asked.text.index("# Bad")
    expected = [(name, hashlib.sha256((project / name).read_bytes()).hexdigest()) for name in FILES]
    assert [(each["path"], each["sha256"]) for each in only(done)["subjects"]] == expected


def override(project: Path, decision: str) -> None:
    (line,) = lines(project)
    Ledger.of(project).add(
        OverrideLine(
            task_id="T-42",
            decision=decision,
            why="checked by hand",
            who="ann",
            terminal=True,
            subjects=[subject.sha256 for subject in line.subjects],
        )
    )


@pytest.mark.parametrize(("decision", "code"), [("accept", 0), ("reject", 1)])
def test_a_persons_word_holds_until_the_content_changes(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch, decision: str, code: int
) -> None:
    with Loopback(by_tier(quick=MIDDLING, deep=MIDDLING)) as server:
        each_tier(monkeypatch, server)
        judgekit(*TASK, *FILES)
        override(project, decision)
        asked = len(server.requests)
        done = judgekit(*TASK, *FILES)
        found = only(done)
        assert (done.code, found["verdict"], found["rounds"]) == (code, decision, [])
        assert (found["human_override"]["who"], found["human_override"]["why"]) == ("ann", "checked by hand")
        assert f"T-42: {decision}ed by ann: checked by hand" in done.err
        assert judgekit(*TASK, *reversed(FILES)).code == code  # the same content
        assert len(server.requests) == asked
        assert len(lines(project)) == 1  # no model's verdict
        assert judgekit("judge", "--task-id", "T-43", *FILES).code == 2  # another task
        (project / "bad.md").write_text("# Bad\n\nChanged.\n")
        assert only(judgekit(*TASK, *FILES))["human_override"] is None


def test_an_override_without_a_terminal_counts_only_where_the_user_says_so(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(by_tier(quick=BAD)) as server:
        each_tier(monkeypatch, server)
        judgekit(*TASK, *FILES)
        assert judgekit("override", "T-42", "accept", "--why", "fine").code == 0
        assert judgekit(*TASK, *FILES).code == 1
        by_user("gate: {override_without_terminal: true}\n")
        assert judgekit(*TASK, *FILES).code == 0


def test_what_is_noted_and_what_is_not(judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = judgekit(*TASK, *FILES)  # no model
    assert (done.code, only(done)["verdict"]) == (2, "undetermined")
    assert "not judged" in done.err
    with Loopback(by_tier(quick=BAD)) as server:
        each_tier(monkeypatch, server)
        assert judgekit(*TASK, "good.md", "missing.md").code == 65
        assert server.requests == []
        judgekit("judge", *FILES)  # no task
    assert lines(project) == []
    with Loopback(SILENT) as server:
        each_tier(monkeypatch, server)
        assert judgekit(*TASK, "--deadline", "1", *FILES).code == 2
    assert [line.verdict for line in lines(project)] == ["undetermined"]


def test_a_ledger_that_cannot_be_written_costs_a_line(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Ledger.of(project).folder
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    with Loopback(by_tier(quick=BAD)) as server:
        each_tier(monkeypatch, server)
        done = judgekit(*TASK, *FILES)
    assert (done.code, "the ledger cannot be written" in done.err) == (1, True)


# Issues


def by_user(text: str) -> None:
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text)


@pytest.fixture
def gh(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> FakeGh:
    """Put the project on GitHub, and a gh on PATH."""
    made = FakeGh.make(tmp_path_factory.mktemp("gh") / "bin")
    monkeypatch.setenv("PATH", made.path)
    repository = GitRepo(project)
    repository("init", "--quiet")
    repository("remote", "add", "origin", ADDRESS)
    return made


def disagree(judgekit: Run, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    with Loopback(by_tier(quick=GOOD, deep=BAD, tiebreaker=MIDDLING)) as server:
        each_tier(monkeypatch, server)
        return judgekit(*TASK, *FILES)


def test_disagreement_opens_an_issue_where_the_user_wants_it(
    judgekit: Run, project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    disagree(judgekit, monkeypatch)
    assert gh.calls == []
    by_user('escalate: {issues: "on"}\n')
    done = disagree(judgekit, monkeypatch)
    assert done.code == 2
    assert "issue opened: https://github.com/acme/docs/issues/1 (T-42)" in done.err
    assert gh.issues[0]["title"] == "[JUDGE-DISAGREEMENT] Review needed: T-42"
    assert only(done)["verdict"] == "escalate"  # stdout is the verdict's alone


def test_a_failing_gh_does_not_change_the_exit_code(
    judgekit: Run, project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user('escalate: {issues: "on"}\n')
    gh.tell(list=[["HTTP 403: API rate limit exceeded", 1]])
    done = disagree(judgekit, monkeypatch)
    assert (done.code, done.err.count("no issue was opened for 1: ")) == (2, 1)
    gh.tell(create=[["boom", 1]])
    done = judgekit("escalate")
    assert (done.code, done.out) == (2, "")
    assert "no issue was opened for 1: gh issue create: boom" in done.err


def test_the_command_opens_what_is_open(
    judgekit: Run, project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judgekit("escalate").out == "nothing needs a person\n"
    disagree(judgekit, monkeypatch)
    shown = judgekit("escalate", "--dry-run")
    assert shown.code == 0
    assert shown.out.startswith("[JUDGE-DISAGREEMENT] Review needed: T-42\n\n<!-- judgekit judgekit-task-")
    assert gh.calls == []
    done = judgekit("escalate")
    assert (done.code, done.out) == (0, "issue opened: https://github.com/acme/docs/issues/1 (T-42)\n")
    assert judgekit("escalate", "T-42").out.startswith("issue stands: ")
    assert len(gh.issues) == 1


def test_a_task_that_is_named_is_escalated_whatever_it_came_to_but_accepted(
    judgekit: Run, project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(by_tier(quick=MIDDLING, deep=MIDDLING)) as server:
        each_tier(monkeypatch, server)
        judgekit(*TASK, *FILES)
    assert judgekit("escalate").out == "nothing needs a person\n"
    assert judgekit("escalate", "T-42").code == 0
    assert gh.issues[0]["title"] == "[JUDGE-DISAGREEMENT] Review needed: T-42"
    assert judgekit("escalate", "T-1").code == 64
    (project / "bad.md").write_text("# Better\n\nDone.\n")
    with Loopback(by_tier(quick=GOOD, deep=GOOD)) as server:
        each_tier(monkeypatch, server)
        judgekit(*TASK, *FILES)
    assert judgekit("escalate", "T-42").code == 64

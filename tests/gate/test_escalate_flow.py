"""One issue a task: opened, found again, updated; and whatever fails costs a line and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_gh import ADDRESS, REPOSITORY
from ledger_lines import round_of, verdict

from judgekit.config.settings import EscalateConfig, user_file
from judgekit.gate import github, issues
from judgekit.gate.github import GhError
from judgekit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fake_gh import FakeGh

    from judgekit.judging.verdict import Verdict

AS_SET = EscalateConfig()


def content(mark: str, path: str = "docs/a.md", word: str = "escalate") -> Verdict:
    """Return a verdict on one version of a file."""
    return verdict(
        word,  # type: ignore[arg-type]  # a verdict's word
        path=path,
        task_id=f"{path}@{mark * 12}",
        subjects=[{"path": path, "sha256": mark * 64}],
    )


def ensure(project: Path, *verdicts: Verdict, settings: EscalateConfig = AS_SET) -> list[str]:
    return [what for what, _ in github.ensure(verdicts, settings, project)]


def by_user(text: str) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(text)


def test_a_task_has_one_issue_that_follows_its_content(project: Path, gh: FakeGh) -> None:
    assert ensure(project, content("a")) == ["opened"]
    assert ensure(project, content("a")) == ["stands"]
    (made,) = gh.issues
    assert made["title"] == "[JUDGE-DISAGREEMENT] Review needed: docs/a.md"
    assert issues.mark(made["body"]) is not None
    assert gh.verbs == ["list", "list", "create", "list"]
    assert "--search" not in gh.calls[-1].argv, "the search may not know it yet"
    assert ensure(project, content("b")) == ["updated"]
    (made,) = gh.issues
    assert made["body"] == issues.of(content("b")).body
    assert ensure(project, content("b", word="reject")) == ["updated"]
    assert ensure(project, content("b", word="reject"), content("a", "docs/b.md")) == ["stands", "opened"]
    assert len(gh.issues) == 2


def test_a_closed_issue_stays_closed_until_the_content_changes(project: Path, gh: FakeGh) -> None:
    ensure(project, content("a"))
    gh.put([issue | {"state": "CLOSED"} for issue in gh.issues])
    assert ensure(project, content("a")) == ["stands"]
    assert gh.issues[0]["state"] == "CLOSED"
    assert ensure(project, content("b")) == ["opened again"]
    assert gh.issues[0]["state"] == "OPEN"
    assert len(gh.issues) == 1


def test_an_issue_that_is_no_longer_among_the_newest_is_searched_for(project: Path, gh: FakeGh) -> None:
    ensure(project, content("a"))
    foreign = {"url": "u", "state": "OPEN", "title": "t", "body": "something else", "labels": []}
    gh.put([*gh.issues, *({"number": number, **foreign} for number in range(2, 80))])
    assert ensure(project, content("b")) == ["updated"]
    assert len(gh.issues) == 79


def test_of_two_the_older_is_kept_up_to_date(project: Path, gh: FakeGh) -> None:
    ensure(project, content("a"))
    gh.put([*gh.issues, gh.issues[0] | {"number": 2}])
    ensure(project, content("b"))
    assert [
        issues.mark(issue["body"]) == issues.mark(issues.of(content("b")).body) for issue in gh.issues
    ] == [
        True,
        False,
    ]


def test_an_issue_that_only_quotes_a_mark_is_left_alone(project: Path, gh: FakeGh) -> None:
    quoted = {"number": 1, "url": "u", "state": "OPEN", "title": "t", "labels": []}
    gh.put([quoted | {"body": f"As in:\n{issues.of(content('a')).body}"}])
    assert ensure(project, content("b")) == ["opened"]
    assert gh.issues[0]["body"].startswith("As in:")


def test_how_gh_is_asked(project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"GH_TOKEN": "t1", "GITHUB_TOKEN": "t2", "GH_HOST": "github.com", "GH_CONFIG_DIR": "/c"}
    for name, value in {
        **kept,
        "OPENAI_API_KEY": "k",
        "GH_DEBUG": "api",
        "GIT_TRACE": "0",
        "EDITOR": "vi",
    }.items():
        monkeypatch.setenv(name, value)
    ensure(project, content("a"), settings=EscalateConfig(labels=["docs", "a b"]))
    create = gh.calls[-1]
    for call in gh.calls:
        assert call.argv[0] == "issue"
        assert call.argv[-2:] == ["--repo", REPOSITORY]
        assert call.environ.items() >= kept.items()
        assert call.environ["GH_PROMPT_DISABLED"] == "1"
        assert not {"OPENAI_API_KEY", "GH_DEBUG", "GIT_TRACE", "EDITOR"} & call.environ.keys()
        assert call.cwd == str(Path.home())
    assert create.stdin == issues.of(content("a")).body
    assert not [word for word in create.argv if "judgekit override" in word]  # the body is no argument


def test_labels_are_given_and_an_unknown_one_is_left_out(project: Path, gh: FakeGh) -> None:
    gh.tell(labels=["docs", "help wanted"])
    ensure(project, content("a"), settings=EscalateConfig(labels=["docs", "help wanted"]))
    assert gh.issues[0]["labels"] == ["docs", "help wanted"]
    other = content("a", "docs/b.md")
    assert ensure(project, other, settings=EscalateConfig(labels=["nowhere"])) == ["opened"]
    assert gh.issues[1]["labels"] == []


FAILURES = [
    ({"list": [["To get started with GitHub CLI, please run:  gh auth login", 4]]}, "not signed in"),
    ({"list": [["HTTP 403: API rate limit exceeded (https://api.github.com/graphql)", 1]]}, "rate limit"),
    (
        {"list": [["GraphQL: Could not resolve to a Repository with the name 'a/b'. (repository)", 1]]},
        "resolve",
    ),
    ({"create": [["the 'acme/docs' repository has disabled issues", 1]]}, "disabled issues"),
    ({"create": [["", 1]]}, "exit code 1"),
]


@pytest.mark.parametrize(("behaviour", "told"), FAILURES)
def test_what_fails_is_one_line(project: Path, gh: FakeGh, behaviour: dict[str, object], told: str) -> None:
    gh.tell(**behaviour)
    by_user('escalate: {issues: "on"}\n')
    (line,) = github.by_itself([content("a"), content("b", "docs/b.md")], project)
    assert line.startswith("no issue was opened for 2: ")
    assert told in line
    assert "retry with judgekit escalate" in line
    assert "\n" not in line


def test_the_first_of_two_counts_when_the_second_fails(project: Path, gh: FakeGh) -> None:
    gh.tell(create=[["", 0]])
    by_user('escalate: {issues: "on"}\n')
    ensure_one = github.ensure([content("a")], AS_SET, project)
    gh.tell()
    assert next(ensure_one)[0] == "opened"
    gh.tell(create=[["boom", 1]])
    lines = github.by_itself([content("b"), content("b", "docs/b.md")], project)
    assert lines[0].startswith("issue updated: https://github.com/acme/docs/issues/1 (docs/a.md)")
    assert lines[1].startswith("no issue was opened for 1: gh issue create: boom")


def test_no_gh_is_one_line(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    by_user('escalate: {issues: "on"}\n')
    git = next(folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder, "git").exists())
    (tmp_path / "empty" / "git").symlink_to(Path(git, "git"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    (line,) = github.by_itself([content("a")], project)
    assert "gh is not installed" in line


def test_a_gh_that_a_clone_brings_is_not_run(
    project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "gh").write_text("#!/bin/sh\ntouch ran\n")
    (project / "gh").chmod(0o755)
    path = os.environ["PATH"].replace(str(gh.folder), ".")
    monkeypatch.setenv("PATH", path)
    by_user('escalate: {issues: "on"}\n')
    (line,) = github.by_itself([content("a")], project)
    assert "gh is not installed" in line
    assert not (project / "ran").exists()


def test_a_gh_that_hangs_is_left_with_all_it_started(project: Path, gh: FakeGh) -> None:
    gh.tell(sleep=30)
    start = time.monotonic()
    with pytest.raises(GhError, match="no response in time"):
        list(github.ensure([content("a"), content("b")], AS_SET, project, seconds=1))
    assert time.monotonic() - start < 20


def test_a_gh_that_prints_without_end_is_left(project: Path, gh: FakeGh) -> None:
    gh.tell(chatters=True)
    with pytest.raises(GhError, match="printed more than"):
        list(github.ensure([content("a")], AS_SET, project, seconds=120))


def test_time_is_for_all_calls_together(project: Path, gh: FakeGh) -> None:
    with pytest.raises(GhError, match="no time left for gh"):
        list(github.ensure([content("a")], AS_SET, project, seconds=0))
    assert gh.calls == []


@pytest.mark.parametrize("said", ["", "[", "{}", '{"a": 1}', "[1, {}, null]", '[{"number": "1", "body": 3}]'])
def test_what_is_no_list_of_issues_finds_none(
    project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(github.Gh, "ask", lambda *_: said)
    asked = github.Gh(REPOSITORY, time.monotonic() + 5, os.environ)
    try:
        assert asked.find("judgekit-task-1") is None
    except GhError as error:
        assert "gh issue list: no JSON in the output; update gh" in str(error)  # noqa: PT017 - either is right


def test_nothing_is_sent_unless_the_user_says_so(project: Path, gh: FakeGh) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text('escalate: {issues: "on", rejects: true}\n')
    assert github.by_itself([content("a")], project) == []
    assert gh.calls == []
    by_user('escalate: {issues: "project"}\n')
    (line,) = github.by_itself([content("a", word="reject")], project)
    assert line == "issue opened: https://github.com/acme/docs/issues/1 (docs/a.md)"


def test_rejected_content_is_escalated_where_configured(project: Path, gh: FakeGh) -> None:
    both = [content("a", word="reject"), content("a", word="accept")]
    by_user('escalate: {issues: "on"}\n')
    assert github.by_itself(both, project) == []
    assert github.by_itself([content("a", word="reject")], project, EscalateConfig()) == []
    assert gh.calls == []
    by_user('escalate: {issues: "on", rejects: true}\n')
    assert len(github.by_itself(both, project)) == 1
    decided = {"decision": "accept", "why": "fine", "who": "ann", "at": "2026-03-20T12:00:00Z"}
    assert github.by_itself([verdict("escalate", human_override=decided)], project) == []


def improving(mark: str, days: float, *rounds: str) -> Any:  # noqa: ANN401 - a VerdictLine
    """Return a verdict `improve` on one version of a file, with what models said in each round."""
    said = [round_of(word, round=number) for number, word in enumerate(rounds, 1)]
    about = {"task_id": f"docs/a.md@{mark * 12}", "subjects": [{"path": "docs/a.md", "sha256": mark * 64}]}
    return verdict("improve", path="docs/a.md", name=f"{mark}{days}", days=days, rounds=said, **about)


@pytest.mark.parametrize("rejects", [False, True])
def test_two_rounds_of_improve_open_one_issue_where_rejects_do(
    project: Path,
    gh: FakeGh,
    rejects: bool,  # noqa: FBT001 - a case
) -> None:
    """Two rounds of one judging, or of one after the other; the third changes the issue that there is."""
    by_user(f'escalate: {{issues: "on", rejects: {str(rejects).lower()}}}\n')
    ledger = Ledger.of(project)
    first, second, third = (
        improving("a", 3, "improve"),
        improving("b", 2, "improve"),
        improving("c", 1, "improve"),
    )
    ledger.add(first)
    assert github.by_itself([first], project) == []
    ledger.add(second)
    github.by_itself([second], project)
    ledger.add(third)
    github.by_itself([third], project)
    assert [issue["title"] for issue in gh.issues] == [
        "[JUDGE-DISAGREEMENT] Review needed: docs/a.md"
    ] * rejects
    assert len(github.unsettled(ledger.records(), rejects=rejects)) == rejects


def test_rounds_of_improve_count_from_the_last_other_verdict_on(project: Path, gh: FakeGh) -> None:
    by_user('escalate: {issues: "on", rejects: true}\n')
    accepted = verdict("accept", path="docs/a.md", days=2)
    Ledger.of(project).add(improving("a", 3, "improve"), accepted)
    assert github.by_itself([improving("b", 1, "improve")], project) == []
    assert len(github.by_itself([improving("c", 1, "improve", "improve")], project)) == 1
    other = improving("d", 1, "improve").model_copy(update={"task_id": "docs/b.md@" + "d" * 12})
    assert github.by_itself([other], project) == []
    assert len(gh.issues) == 1


def test_a_push_opens_a_few_at_most(project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github, "MOST", 2)
    by_user('escalate: {issues: "on"}\n')
    lines = github.by_itself([content("a", f"docs/{name}.md") for name in "abcd"], project)
    assert len(gh.issues) == 2
    assert lines[-1].startswith("no issue was opened for 2 more")


def test_a_wrong_configuration_is_one_line(project: Path, gh: FakeGh) -> None:
    by_user("escalate: {issues: maybe}\n")
    (line,) = github.by_itself([content("a")], project)
    assert "escalate.issues" in line
    assert gh.calls == []


def test_a_fault_of_ours_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Sequence[Verdict]) -> None:
        raise RuntimeError("boom")

    by_user('escalate: {issues: "on"}\n')
    monkeypatch.setattr(github, "ensure", lambda *_: fails([]))
    assert github.by_itself([content("a")], project) == [
        "no issue was opened: internal error: RuntimeError: boom"
    ]


def test_the_address_of_the_push_decides(project: Path, gh: FakeGh) -> None:
    by_user('escalate: {issues: "on"}\n')
    github.by_itself([content("a")], project, None, "git@github.com:me/fork.git")
    assert gh.calls[0].argv[-1] == "github.com/me/fork"
    assert ADDRESS.endswith("acme/docs.git")


def test_unsettled_are_the_last_of_each_task() -> None:
    records = [
        content("a"),
        verdict("accept", path="docs/a.md", name="later", days=-1),
        content("b", "docs/b.md"),
        content("c", "docs/c.md", "reject"),
        content("d", "docs/d.md", "undetermined"),
    ]
    named = [verdict_line.task_id for verdict_line in github.unsettled(records, rejects=False)]  # type: ignore[arg-type]  # lines
    assert named == [f"docs/b.md@{'b' * 12}"]
    both = github.unsettled(records, rejects=True)  # type: ignore[arg-type]  # the same
    assert {verdict_line.verdict for verdict_line in both} == {"escalate", "reject"}


def test_a_project_is_not_read_where_the_user_wants_no_issues(project: Path, gh: FakeGh) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("gate: {oops: 1}\n")
    assert github.by_itself([content("a")], project) == []
    assert gh.calls == []

"""One issue a task: its text, and when it's opened; whatever fails costs a line and nothing else."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_gh import ADDRESS, REPOSITORY
from git_repo import GitRepo, ask_gate, beside_origin
from hypothesis import given
from hypothesis import strategies as st
from ledger_lines import SHA, round_of, verdict
from loopback import Answer, Asked, Loopback, says
from scripted import finding, scores

from judgekit import markdown
from judgekit.config.settings import EscalateConfig, get_user_config_path
from judgekit.gate import github, issues
from judgekit.gate.github import GhError, notify_and_open_issues
from judgekit.git import Repository
from judgekit.ledger import Ledger

if TYPE_CHECKING:
    from fake_gh import FakeGh

    from judgekit.judging.verdict import Verdict

AS_SET = EscalateConfig()
ON = 'escalate: {issues: "on"}\n'
REJECTS = 'escalate: {issues: "on", rejects: true}\n'
TITLE = "[JUDGE-DISAGREEMENT] Review needed: docs/a.md"


def content(mark: str, path: str = "docs/a.md", word: str = "escalate") -> Verdict:
    about = {"task_id": f"{path}@{mark * 12}", "subjects": [{"path": path, "sha256": mark * 64}]}
    return verdict(word, path=path, **about)  # type: ignore[arg-type]  # a verdict's word


def ensure(project: Path, *verdicts: Verdict, settings: EscalateConfig = AS_SET) -> list[str]:
    return [what for what, _ in github.ensure_issues(verdicts, settings, project)]


def by_user(text: str) -> None:
    get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    get_user_config_path().write_text(text)


def test_a_task_has_one_issue_that_follows_its_content(project: Path, gh: FakeGh) -> None:
    assert ensure(project, content("a")) == ["opened"]
    assert ensure(project, content("a")) == ["stands"]
    (made,) = gh.issues
    assert made["title"] == TITLE
    assert issues.read_mark(made["body"]) is not None
    assert gh.verbs == ["list", "list", "create", "list"]
    assert "--search" not in gh.calls[-1].argv, "the search may not know it yet"
    assert ensure(project, content("b")) == ["updated"]
    (made,) = gh.issues
    assert made["body"] == issues.build_issue(content("b")).body
    assert ensure(project, content("b", word="reject")) == ["updated"]
    assert ensure(project, content("b", word="reject"), content("a", "docs/b.md")) == [
        "stands",
        "opened",
    ]
    gh.put([issue | {"state": "CLOSED"} for issue in gh.issues])
    assert ensure(project, content("b", word="reject")) == ["stands"]
    assert gh.issues[0]["state"] == "CLOSED"
    assert ensure(project, content("b")) == ["opened again"]
    assert [issue["state"] for issue in gh.issues] == ["OPEN", "CLOSED"]


def test_an_issue_is_searched_for_and_of_two_the_older_is_kept_up_to_date(
    project: Path, gh: FakeGh
) -> None:
    ensure(project, content("a"))
    foreign = {"url": "u", "state": "OPEN", "title": "t", "body": "something else", "labels": []}
    gh.put([*gh.issues, *({"number": number, **foreign} for number in range(2, 80))])
    assert ensure(project, content("b")) == ["updated"]
    assert len(gh.issues) == 79
    gh.put([gh.issues[0], gh.issues[0] | {"number": 2}])
    ensure(project, content("c"))
    wanted = issues.build_issue(content("c"))
    assert [
        issues.read_mark(issue["body"]) == (wanted.token, wanted.fingerprint) for issue in gh.issues
    ] == [
        True,
        False,
    ]


def test_how_gh_is_asked(project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"GH_TOKEN": "t1", "GITHUB_TOKEN": "t2", "GH_HOST": "github.com", "GH_CONFIG_DIR": "/c"}
    others = {"OPENAI_API_KEY": "k", "GH_DEBUG": "api", "GIT_TRACE": "0", "EDITOR": "vi"}
    for name, value in (kept | others).items():
        monkeypatch.setenv(name, value)
    gh.tell(labels=["docs", "a b"])
    ensure(project, content("a"), settings=EscalateConfig(labels=["docs", "a b"]))
    for call in gh.calls:
        assert call.argv[0] == "issue"
        assert call.argv[-2:] == ["--repo", REPOSITORY]
        assert call.environ.items() >= kept.items()
        assert call.environ["GH_PROMPT_DISABLED"] == "1"
        assert not others.keys() & call.environ.keys()
        assert call.cwd == str(Path.home())
    assert gh.issues[0]["labels"] == ["docs", "a b"]
    create = gh.calls[-1]
    assert create.stdin == issues.build_issue(content("a")).body
    assert not [
        word for word in create.argv if "judgekit override" in word
    ]  # the body is no argument


FAILURES = [
    (
        {"list": [["To get started with GitHub CLI, please run:  gh auth login", 4]]},
        "not signed in",
    ),
    (
        {"list": [["HTTP 403: API rate limit exceeded (https://api.github.com/graphql)", 1]]},
        "rate limit",
    ),
    ({"create": [["", 1]]}, "exit code 1"),
]


def test_what_fails_is_one_line(project: Path, gh: FakeGh) -> None:
    by_user(ON)
    for behaviour, problem in FAILURES:
        gh.tell(**behaviour)
        (line,) = notify_and_open_issues([content("a"), content("b", "docs/b.md")], project)
        assert line.startswith("no issue was opened for 2: ")
        assert problem in line
        assert "retry with judgekit escalate" in line
        assert "\n" not in line
    gh.tell()
    assert ensure(project, content("a")) == ["opened"]
    gh.tell(create=[["boom", 1]])
    lines = notify_and_open_issues([content("b"), content("b", "docs/b.md")], project)
    assert lines[0].startswith("issue updated: https://github.com/acme/docs/issues/1 (docs/a.md)")
    assert lines[1].startswith("no issue was opened for 1: gh issue create: boom")
    by_user("escalate: {issues: maybe}\n")
    (line,) = notify_and_open_issues([content("a")], project)
    assert "escalate.issues" in line


def test_no_gh_but_one_that_a_clone_brings_is_one_line(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user(ON)
    git = next(
        folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder, "git").exists()
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "git").symlink_to(Path(git, "git"))
    (project / "gh").write_text("#!/bin/sh\ntouch ran\n")
    (project / "gh").chmod(0o755)
    for path in (str(tmp_path / "empty"), f".{os.pathsep}{tmp_path / 'empty'}"):
        monkeypatch.setenv("PATH", path)
        (line,) = notify_and_open_issues([content("a")], project)
        assert "gh is not installed" in line
        assert not (project / "ran").exists()


def test_a_gh_that_hangs_is_left_with_all_it_started(project: Path, gh: FakeGh) -> None:
    gh.tell(sleep=30)
    start = time.monotonic()
    with pytest.raises(GhError, match="no response in time"):
        list(github.ensure_issues([content("a"), content("b")], AS_SET, project, seconds=1))
    assert time.monotonic() - start < 20
    calls = len(gh.calls)
    with pytest.raises(GhError, match="no time left for gh"):
        list(github.ensure_issues([content("a")], AS_SET, project, seconds=0))
    assert len(gh.calls) == calls


def test_nothing_is_sent_unless_the_user_says_so(project: Path, gh: FakeGh) -> None:
    (project / ".judgekit").mkdir()
    for text in ("gate: {oops: 1}\n", REJECTS):  # not even read
        (project / ".judgekit" / "config.yaml").write_text(text)
        assert notify_and_open_issues([content("a")], project) == []
    assert gh.calls == []
    by_user('escalate: {issues: "project"}\n')
    (line,) = notify_and_open_issues([content("a", word="reject")], project)
    assert line == "issue opened: https://github.com/acme/docs/issues/1 (docs/a.md)"


def test_rejected_content_is_escalated_where_configured(project: Path, gh: FakeGh) -> None:
    both = [content("a", word="reject"), content("a", word="accept")]
    by_user(ON)
    assert notify_and_open_issues(both, project) == []
    assert notify_and_open_issues([content("a", word="reject")], project, EscalateConfig()) == []
    assert gh.calls == []
    by_user(REJECTS)
    assert len(notify_and_open_issues(both, project)) == 1
    decided = {"decision": "accept", "why": "fine", "who": "ann", "at": "2026-03-20T12:00:00Z"}
    assert notify_and_open_issues([verdict("escalate", human_override=decided)], project) == []


def improving(mark: str, days: float, *rounds: str) -> Any:  # noqa: ANN401 - a VerdictLine
    """Return a verdict `improve` on one version of a file, with the opinions of each round."""
    said = [round_of(word, round=number) for number, word in enumerate(rounds, 1)]
    about = {
        "task_id": f"docs/a.md@{mark * 12}",
        "subjects": [{"path": "docs/a.md", "sha256": mark * 64}],
    }
    return verdict(
        "improve", path="docs/a.md", name=f"{mark}{days}", days=days, rounds=said, **about
    )


@pytest.mark.parametrize(("text", "count"), [(ON, 0), (REJECTS, 1)])
def test_two_rounds_of_improve_open_one_where_set(
    project: Path, gh: FakeGh, text: str, count: int
) -> None:
    """Two rounds of one judging, or of one after the other; the third changes the issue that there is."""
    by_user(text)
    ledger = Ledger.of(project)
    for number, name in enumerate("abc"):
        line = improving(name, 3 - number, "improve")
        ledger.add(line)
        lines = notify_and_open_issues([line], project)
        assert number or lines == []
    assert [issue["title"] for issue in gh.issues] == ["Review needed: docs/a.md"] * count
    assert len(github.list_unsettled(ledger.read_records(), with_rejects=bool(count))) == count


def test_a_push_opens_a_few_at_most(
    project: Path, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github, "MAX_ISSUES", 2)
    by_user(ON)
    lines = notify_and_open_issues([content("a", f"docs/{name}.md") for name in "abcd"], project)
    assert len(gh.issues) == 2
    assert lines[-1].startswith("no issue was opened for 2 more")


def test_a_fault_of_ours_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("boom")

    by_user(ON)
    monkeypatch.setattr(github, "ensure_issues", fails)
    assert notify_and_open_issues([content("a")], project) == [
        "no issue was opened: internal error (RuntimeError: boom)"
    ]


ON_GITHUB = """
https://github.com/acme/docs https://github.com/acme/docs/ https://user:token@github.com/acme/docs.git
http://www.github.com/acme/docs.git ssh://git@github.com/acme/docs.git git://github.com/acme/docs.git
ssh://git@ssh.github.com:443/acme/docs.git git@github.com:acme/docs.git github.com:acme/docs
git@GitHub.com:/acme/docs.git"""
ELSEWHERE = """
/srv/git/docs.git ../docs file:///srv/git/docs.git https://gitlab.example/acme/docs.git
https://evil.ghe.com/acme/docs https://github.com.evil.example/acme/docs https://github.com/acme
https://evil.example/github.com/acme/docs https://github.com/acme/docs/issues/1
https://github.com/-acme/docs https://github.com/acme/--repo"""
NO_ADDRESS = (
    "",
    "https://github.com/acme/do cs",
    "ext::sh -c touch% x",
    "git@github.com:a/docs.git\n--web",
)


def test_addresses_on_github() -> None:
    for address in ON_GITHUB.split():
        assert github.parse_address(address, {}) == "github.com/acme/docs", address
    for address in (*ELSEWHERE.split(), *NO_ADDRESS):
        assert github.parse_address(address, {}) is None, address
    address = "git@git.acme.example:acme/docs.git"
    assert github.parse_address(address, {"GH_HOST": "other.example"}) is None
    assert (
        github.parse_address(address, {"GH_HOST": "git.acme.example"})
        == "git.acme.example/acme/docs"
    )


def test_the_user_may_name_the_repository_or_push_to_an_address(project: Path, gh: FakeGh) -> None:
    for named in ("acme/other", "h.example/acme/other", "--web", "a"):
        expected = named if "/" in named else None
        assert github.find_github_name(Repository(project), {"GH_REPO": named}) == expected
    assert github.find_github_name(Repository(project), {}, "/srv/git/docs.git") is None
    by_user(ON)
    notify_and_open_issues([content("a")], project, None, "git@github.com:me/fork.git")
    assert gh.calls[0].argv[-1] == "github.com/me/fork"
    assert ADDRESS.endswith("acme/docs.git")


@pytest.fixture
def work(tmp_path: Path, gh: FakeGh) -> GitRepo:
    work = beside_origin(tmp_path)
    work.commit("first")
    ask_gate(work)
    return work


def disagrees(asked: Asked) -> Answer:
    model = str(asked.body["model"]).rpartition("/")[2]
    by_tier = {"quick": scores(1, 1, 1), "deep": scores(4, 4, 4), "tiebreaker": scores(3, 3, 2)}
    return says(scores(1, 1, 1) if "\nTODO" in asked.text else by_tier[model], model=model)


def push(work: GitRepo, **files: str) -> tuple[int, str]:
    with Loopback(disagrees) as server:
        tiers = {f"JUDGEKIT_{tier}_MODEL".upper(): tier for tier in ("quick", "deep", "tiebreaker")}
        work.commit("change", **files)
        done = work.run("push", "origin", "main", stdin=b"", JUDGEKIT_API_BASE=server.base, **tiers)
    return done.returncode, os.fsdecode(done.stdout + done.stderr)


@pytest.mark.slow
def test_pushes_open_one_and_update_it(
    work: GitRepo, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = push(work, a_md="# A\n\nZero.\n", b_md="# B\n\nTODO\n")
    assert (code, gh.calls) == (0, []), "by default"
    assert "UNDETERMINED" in said
    assert "NO-GO" in said
    by_user(ON)
    code, said = push(work, a_md="# A\n\nOne.\n")
    assert code == 0
    assert "the project's remote is not on GitHub" in said
    assert gh.calls == []
    monkeypatch.setenv("GH_REPO", "acme/docs")
    code, said = push(work, a_md="# A\n\nTwo.\n")
    assert code == 0, said
    assert "issue opened: https://github.com/acme/docs/issues/1 (a.md)" in said
    _, said = push(work, b_txt="not judged\n")
    assert "issue" not in said
    _, said = push(work, a_md="# A\n\nThree.\n")
    assert "issue updated: https://github.com/acme/docs/issues/1 (a.md)" in said
    assert work("rev-parse", "HEAD") in gh.issues[0]["body"]
    by_user(f"{REJECTS}gate: {{mode: blocking}}\n")
    code, said = push(work, b_md="# B\n\nTODO, again\n\nTODO\n")
    assert code == 1, said
    assert gh.issues[1]["title"] == "Review needed: b.md"
    assert said.count("issue opened") == 1


@pytest.mark.slow
def test_a_gh_that_fails_holds_up_no_push(
    work: GitRepo, gh: FakeGh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_REPO", "acme/docs")
    by_user(ON)
    gh.tell(sleep=40)
    start = time.monotonic()
    code, said = push(work, a_md="# A\n\nOne.\n")
    assert code == 0, said
    assert said.count("no issue was opened for 1: ") == 1
    assert work("rev-parse", "main") == work("ls-remote", "origin", "refs/heads/main").split()[0]
    assert time.monotonic() - start < 39


FINDING = finding("SECRET LINE")


def opinion(outcome: str, *findings: dict[str, str], **scores: float) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "scores": scores,
        "reasoning": "SECRET THOUGHT",
        "findings": list(findings),
    }


def disagreement(**changes: object) -> Any:  # noqa: ANN401 - a VerdictLine
    rounds = [
        round_of("accept", model="small", opinion=opinion("accept", semantic=4, pragmatic=4)),
        round_of(
            "reject", "deep", "large", round=2, opinion=opinion("reject", FINDING, semantic=1)
        ),
        round_of(None, "tiebreaker", "third", round=3),
    ]
    fields: dict[str, object] = {
        "rounds": rounds,
        "judge_tier": None,
        "model": None,
        "scores": None,
    }
    return verdict("escalate", path="docs/a.md", **(fields | changes))  # type: ignore[arg-type]  # any field


def test_it_says_what_was_judged_by_whom_and_what_to_do() -> None:
    made = issues.build_issue(disagreement(commit="c" * 40))
    assert made.title == "[JUDGE-DISAGREEMENT] Review needed: docs/a.md"
    assert "Models disagree about `docs/a.md`" in made.body
    assert "rubric `kls@1.0.0`, lenient; judged 2026-03-20 12:00 UTC" in made.body
    assert f"commit `{'c' * 40}`" in made.body
    assert "| 1 | quick | `small` | `accept` | `semantic 4, pragmatic 4` | - |" in made.body
    assert "| 2 | deep | `large` | `reject` | `semantic 1` | - |" in made.body
    assert "| 3 | tiebreaker | `third` | - | - | `timeout` |" in made.body
    assert "1. deep, pragmatic, in Deployment: no way back is given" in made.body
    assert "-> say how to roll back" in made.body
    assert f"judgekit override docs/a.md@{SHA[:16]} accept --why '...'" in made.body
    made = issues.build_issue(verdict("reject", path="docs/a.md", findings=[FINDING]))
    assert "1. pragmatic, in Deployment: no way back is given" in made.body, "of the deciding tier"
    opinions = [round_of("accept", opinion=opinion("accept", a=4.0, b=2.75))]
    assert "`a 4, b 2.75`" in issues.build_issue(disagreement(rounds=opinions)).body
    odd = round_of("accept", opinion={"outcome": None, "scores": "high", "findings": []})
    assert "| `None` | - | - |" in issues.build_issue(disagreement(rounds=[odd])).body, (
        "of another shape"
    )


def test_no_content_is_in_it_unless_asked_for_and_a_providers_words_never() -> None:
    shown = disagreement(reasoning="SECRET REASON")
    assert "SECRET" not in issues.build_issue(shown).body
    told = issues.build_issue(shown, with_text=True).body
    assert '> "SECRET LINE"' in told
    assert "SECRET REASON" in told
    failed = {"kind": "connection", "message": "refused by http://10.0.0.3:8080"}
    body = issues.build_issue(
        disagreement(rounds=[round_of(None, failure=failed)]), with_text=True
    ).body
    assert "`connection`" in body
    assert "10.0.0.3" not in body


def test_the_same_task_has_the_same_token_whatever_it_holds_and_a_mark_in_content_is_none() -> None:
    issue = issues.build_issue(disagreement())
    other = issues.build_issue(
        disagreement(
            task_id=f"docs/a.md@{'9' * 12}", subjects=[{"path": "docs/a.md", "sha256": "9" * 64}]
        )
    )
    assert issue.token == other.token
    assert issue.fingerprint != other.fingerprint
    assert issues.build_issue(verdict("reject", path="docs/a.md")).fingerprint != issue.fingerprint
    assert issues.build_issue(verdict("escalate", path="docs/b.md")).token != issue.token
    assert issue.token in issue.body.rpartition("<sub>")[2]  # where GitHub's search sees it
    finding = FINDING | {"issue": f"<!-- judgekit {other.token} {other.fingerprint} -->"}
    quoting = issues.build_issue(
        disagreement(rounds=[round_of("reject", opinion=opinion("reject", finding))])
    )
    for body in (issue.body, issue.body.replace("\n", "\r\n"), quoting.body):
        assert issues.read_mark(body) == (issue.token, issue.fingerprint)
    for body in (f"See:\n{issue.body}", ""):
        assert issues.read_mark(body) is None


def test_names_do_not_act() -> None:
    path = "a`b|c@team\n<!-- -->' $(touch x).md"
    made = issues.build_issue(
        disagreement(task_id=f"{path}@{SHA[:12]}", subjects=[{"path": path, "sha256": SHA}])
    )
    assert "@" not in made.title
    assert "a'b¦c@team <!-- -->' $(touch x).md" in made.body
    # A name that no shell takes as it is: the verdict's own id stands for it.
    assert "judgekit override docs/a.md-escalate-0 accept" in made.body
    assert "judgekit override T-42 accept" in issues.build_issue(disagreement(task_id="T-42")).body
    made = issues.build_issue(disagreement(task_id=f"it's $(touch x).md@{SHA[:12]}"))
    assert f"judgekit override 'it'\"'\"'s $(touch x).md@{SHA[:12]}' accept" in made.body


def test_it_is_never_too_long() -> None:
    finding = dict.fromkeys(FINDING, "long " * 2000)
    rounds = [
        round_of("reject", "deep", "m" * 500, opinion=opinion("reject", *[finding] * 50))
        for _ in range(40)
    ]
    subjects = [{"path": f"{'p' * 400}{number}.md", "sha256": SHA} for number in range(60)]
    body = issues.build_issue(
        disagreement(rounds=rounds, subjects=subjects, reasoning="so " * 9_000), with_text=True
    ).body
    assert len(body) < issues.MAX_BODY_CHARS
    assert "and 40 more files" in body
    assert "more\n~~~" in body  # findings
    assert "judgekit override" in body


HOSTILE = [
    "@everyone look",
    "![x](https://example.org/pixel.png)",
    "[click](javascript:alert(1))",
    "`code` and ``more``",
    "a | b | @team",
    "\\| @team | \\`",
    "<img src=x onerror=alert(1)> <!-- hidden -->",
    "line\n\n# heading\n- [ ] task",
    "```\nfence\n```",
    "~~~~~\nout @team\n~~~~~",
    "#1 GH-2 owner/repo#3 https://example.org",
    "\u202eright to left\u200b\x1b[31m",
]


@given(st.text() | st.text(alphabet="~`\n a"))
def test_any_text_stays_inside_its_code(any_text: str) -> None:
    for text in (any_text, *HOSTILE):
        shown = markdown.format_inline(text, 50)
        # The Markdown that is left without its code, as GitHub reads it.
        assert re.sub(r"`[^`]*`", "", shown) in ("", markdown.NOTHING)
        assert shown.count("`") in (0, 2)
        assert not set("\n|") & set(shown)
        assert len(shown) <= 52
        first, *inside, last = markdown.format_block(text).split("\n")
        assert (first, set(first)) == (last, {"~"})
        assert not [line for line in inside if line.strip().startswith(first)]
        title = issues.disarm_title(text)
        assert not set("@`#<>\n") & set(title)
        assert "://" not in title

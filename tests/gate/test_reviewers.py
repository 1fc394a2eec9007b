"""Overrides in CI: only those in the shared judge count, by reviewers whom the default branch names."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import ledger_lines
import pytest
from git_repo import GitRepo
from loopback import Loopback
from pushing import bad
from scripted import by_content
from serving import Serving

from judgekit.cli.app import run
from judgekit.judging.shared import Shared
from judgekit.ledger import Ledger, OverrideLine, labels, store
from judgekit.ledger.records import serialise_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.ledger.records import Decided

pytestmark = pytest.mark.slow

CONFIG = ".judgekit/config.yaml"
TEXT = bad("a")
TASK = f"a.md@{hashlib.sha256(TEXT.encode()).hexdigest()[:16]}"
AUTHOR = ("Cy", "cy@example.org")


@pytest.fixture(scope="module")
def model() -> Iterator[Loopback]:
    with Loopback(by_content) as found:
        yield found


@pytest.fixture(scope="module")
def serving(model: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = str(tmp_path_factory.mktemp("team"))
    found = Serving(JUDGEKIT_HOME=home, JUDGEKIT_API_BASE=model.base, JUDGEKIT_MODEL="stand-in")
    yield found
    found.end()


@dataclass
class Team:
    """A pull request (branch `topic`, by Cy) against `main`, and the shared judge."""

    serving: Serving
    work: GitRepo
    tokens: dict[str, str]

    def configure(self, gate: str) -> None:
        """Change the rules on the default branch."""
        self.work.write(CONFIG, f"gate: {{mode: blocking, {gate}}}\n")
        self.work.commit("rules")
        self.work("push", "--quiet", "--no-verify", "origin", "main")

    def propose(self, **files: str) -> None:
        self.work("switch", "--quiet", "--create", "topic")
        self.work.commit("change", AUTHOR, **(files or {"a_md": TEXT}))
        self.work("push", "--quiet", "--no-verify", "origin", "topic")

    def decide(self, who: str, decision: Decided = "accept", *, terminal: bool = True) -> None:
        """Send an override as a token's holder."""
        record = OverrideLine(
            task_id=TASK,
            decision=decision,
            why="I read it",
            who="whoever",
            terminal=terminal,
            project=Ledger.of(self.work.folder).name,
        )
        token = self.tokens[who]
        assert Shared(self.serving.url, token).send([serialise_record(record).rstrip()]) is None

    def check_in_ci(
        self, base: str = "origin/main", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        clone = self.work.folder.parent / "ci"
        if not clone.exists():
            origin = self.work("remote", "get-url", "origin")
            self.work("clone", "--quiet", origin, str(clone))
            GitRepo(clone)("switch", "--quiet", "topic")
        given = {
            "JUDGEKIT_HOME": str(clone.parent / "ci-home"),
            "JUDGEKIT_SERVER_URL": self.serving.url,
            "JUDGEKIT_SERVER_TOKEN": self.tokens["ci"],
            "CI": "true",
        }
        return subprocess.run(
            [sys.executable, "-m", "judgekit", "gate", "--base", base],
            cwd=clone,
            env={**os.environ, **given, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def team(serving: Serving, tmp_path: Path) -> Team:
    origin = GitRepo(tmp_path / "origin.git", "--bare")
    work = GitRepo(tmp_path / "work")
    work("remote", "add", "origin", str(origin.folder))
    tokens = {}
    for who in ("ada", "cy", "eve", "ci"):
        subprocess.run(
            [sys.executable, "-m", "judgekit", "serve", "token", "revoke", who],
            env={**os.environ, "JUDGEKIT_HOME": str(serving.home)},
            capture_output=True,
            check=False,
        )
        tokens[who] = serving.another(who)
    return Team(serving, work, tokens)


def test_a_reviewers_override_lets_a_pull_request_pass(team: Team) -> None:
    team.configure("reviewers: [ada]")
    team.propose()
    team.decide("ada")
    done = team.check_in_ci()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("gate", "who", "reason"),
    [
        ("paths: ['*.md']", "ada", "doesn't name this token"),
        ("reviewers: [ada]", "eve", "doesn't name this token"),
        ("reviewers: [cy]", "cy", "authors don't clear their own files"),
        ("reviewers: ['eve <cy@example.org>']", "eve", "authors don't clear their own files"),
        ("reviewers: ['eve <CY@Example.org>']", "eve", "authors don't clear their own files"),
        (
            "reviewers: ['eve <eve@example.org>', 'eve <cy@example.org>']",
            "eve",
            "authors don't clear their own files",
        ),
    ],
)
def test_any_other_override_is_shown_and_does_not_count(
    team: Team, gate: str, who: str, reason: str
) -> None:
    team.configure(gate)
    team.propose()
    team.decide(who)
    done = team.check_in_ci()
    assert done.returncode == 1
    assert f"accept by {who} (I read it) doesn't count here: " in done.stderr
    assert reason in done.stderr


def test_an_override_without_a_terminal_does_not_count(team: Team) -> None:
    team.configure("reviewers: [ada]")
    team.propose()
    team.decide("ada", terminal=False)
    assert "without a terminal" in team.check_in_ci().stderr


def test_reviewers_are_those_of_the_default_branch_alone(team: Team) -> None:
    """Neither the branch, nor a base that somebody chooses, nor a variable makes anybody a reviewer."""
    team.configure("reviewers: []")
    team.work("switch", "--quiet", "--create", "lax")
    team.work.write(CONFIG, "gate: {mode: blocking, reviewers: [eve]}\n")
    team.work.commit("lax")
    team.work("push", "--quiet", "--no-verify", "origin", "lax")
    team.propose()
    team.decide("eve")
    done = team.check_in_ci(base="origin/lax", JUDGEKIT_GATE_REVIEWERS="eve")
    assert done.returncode == 1


def test_a_later_reject_of_a_reviewer_counts(team: Team) -> None:
    team.configure("reviewers: [ada]")
    team.propose(a_md=TEXT)
    team.decide("ada")
    team.decide("ada", "reject")
    assert team.check_in_ci().returncode == 1


def test_a_ledger_in_ci_says_nothing_of_overrides(team: Team) -> None:
    team.configure("reviewers: [ada]")
    team.propose()
    team.check_in_ci()  # makes the clone
    home = team.work.folder.parent / "ci-home"
    environ = {**os.environ, "JUDGEKIT_HOME": str(home)}
    code = f"""
from pathlib import Path
from judgekit.ledger import Ledger, OverrideLine
about = dict(task_id={TASK!r}, decision="accept", why="x", who="ada", terminal=True)
Ledger.of(Path.cwd()).add(OverrideLine(**about))
"""
    folder = team.work.folder.parent / "ci"
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environ, check=True)
    assert team.check_in_ci().returncode == 1


@pytest.mark.parametrize(
    ("gate", "advice"),
    [
        ("reviewers: [ada]", "or have a reviewer accept it who did not write it (ada)"),
        ("reviewers: []", "name reviewers in gate.reviewers of the default branch's"),
    ],
)
def test_ci_is_told_what_helps_there(team: Team, gate: str, advice: str) -> None:
    team.configure(gate)
    team.propose()
    assert advice in team.check_in_ci().stderr


def test_ci_is_not_told_to_skip_a_push(team: Team) -> None:
    team.configure("reviewers: [ada]")
    team.propose()
    assert "JUDGEKIT_SKIP" not in team.check_in_ci().stderr


def test_an_unknown_default_branch_is_said(team: Team) -> None:
    team.configure("reviewers: [ada]")
    team.propose()
    team.decide("ada")
    team.check_in_ci()
    clone = GitRepo(team.work.folder.parent / "ci")
    clone("update-ref", "refs/base", "origin/main")
    clone("remote", "set-head", "origin", "--delete")
    clone("update-ref", "-d", "refs/remotes/origin/main")
    done = team.check_in_ci(base="refs/base")
    assert done.returncode == 1
    assert "the default branch of origin is not in this clone" in done.stderr


def test_what_a_person_decides_is_sent_at_once(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    team.configure("reviewers: [ada]")
    team.propose()
    monkeypatch.chdir(team.work.folder)
    monkeypatch.setenv("JUDGEKIT_SERVER_URL", team.serving.url)
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", team.tokens["ada"])
    monkeypatch.setattr(labels, "is_at_terminal", lambda: True)
    assert run(["override", TASK, "accept", "--why", "I read it"]) == 0
    assert team.check_in_ci().returncode == 0


# The ledger of a repository


def test_a_checkout_that_moved_keeps_its_ledger(team: Team, tmp_path: Path) -> None:
    name = Ledger.of(team.work.folder).name
    team.work.folder.rename(tmp_path / "elsewhere")
    assert Ledger.of(tmp_path / "elsewhere").name == name


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/acme/docs.git",
        "https://ann:secret@github.com/acme/docs",
        "git@github.com:acme/docs.git",
        "ssh://git@GitHub.com:22/acme/docs.git/",
    ],
)
def test_all_addresses_of_a_repository_are_one_ledger(tmp_path: Path, address: str) -> None:
    one, other = GitRepo(tmp_path / "one"), GitRepo(tmp_path / "other")
    one("remote", "add", "origin", "https://github.com/acme/docs")
    other("remote", "add", "origin", address)
    assert Ledger.of(one.folder).name == Ledger.of(other.folder).name


def test_what_an_earlier_version_kept_under_the_path_is_kept(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for number, folder in enumerate(folders):
        work = GitRepo(folder)
        override = OverrideLine(
            task_id=f"{number}.md@{'0' * 16}", decision="accept", why="x", who="a", terminal=True
        )
        Ledger.of(folder).add(override)  # without a remote it is known by its path
        work("remote", "add", "origin", "https://github.com/acme/docs")
    for folder in folders:
        ledger = Ledger.of(folder)
    tasks = {
        record.task_id[0] for record in ledger.read_records() if isinstance(record, OverrideLine)
    }
    assert tasks == {"0", "1"}
    assert [folder.name for folder in store.get_ledgers_folder().iterdir()] == [ledger.name]


# Pushes that the shared judge didn't judge, and hears of


def push_without_gate(team: Team, monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    """Run git's hook as a push would; returns its output."""
    monkeypatch.chdir(team.work.folder)
    monkeypatch.setenv("JUDGEKIT_SERVER_URL", team.serving.url)
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", team.tokens["cy"])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    oid = team.work("rev-parse", "HEAD")
    before = team.work("rev-parse", "main")
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", "gate", "--pre-push", "origin", "url"],
        input=f"refs/heads/topic {oid} refs/heads/topic {before}\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stderr


def test_a_skipped_push_is_in_the_teams_ledger_at_once(
    team: Team, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    team.configure("reviewers: []")
    team.propose()
    push_without_gate(team, monkeypatch, JUDGEKIT_SKIP="1")
    assert run(["triage", "--team"]) == 0
    assert f"{Ledger.of(team.work.folder).name}: JUDGEKIT_SKIP by cy" in capfd.readouterr().out


def test_a_skip_that_could_not_be_sent_is_sent_with_the_next(
    team: Team, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    team.configure("reviewers: []")
    team.propose()
    with monkeypatch.context() as patch:
        patch.setattr(team.serving, "url", "http://127.0.0.1:9")
        said = push_without_gate(team, patch, JUDGEKIT_SKIP="1")
    assert "recorded in the ledger; the shared judge at http://127.0.0.1:9: " in said
    push_without_gate(team, monkeypatch, JUDGEKIT_SKIP="1")
    name = Ledger.of(team.work.folder).name
    assert run(["triage", "--team"]) == 0
    assert capfd.readouterr().out.count(f"{name}: JUDGEKIT_SKIP by cy") == 2


@pytest.fixture
def unjudged(team: Team, monkeypatch: pytest.MonkeyPatch) -> str:
    """Push while the server is down; returns the commit."""
    team.configure("reviewers: []")
    team.propose()
    team.work("push", "--quiet", "--no-verify", "origin", "--delete", "topic")
    with monkeypatch.context() as patch:
        patch.setattr(team.serving, "url", "http://127.0.0.1:9")
        push_without_gate(team, patch)
    monkeypatch.chdir(team.work.folder)
    return team.work("rev-parse", "HEAD")


def test_what_was_pushed_while_the_server_was_down_is_listed(
    unjudged: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["triage"]) == 0
    assert f"judgekit gate --base {unjudged[:12]}^" in capfd.readouterr().out


def test_the_command_that_is_listed_judges_it(
    team: Team,
    unjudged: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JUDGEKIT_SERVER_URL", team.serving.url)
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", team.tokens["cy"])
    assert run(["gate", "--base", f"{unjudged[:12]}^"]) == 1
    capfd.readouterr()
    assert run(["triage"]) == 0
    assert "while no judge answered" not in capfd.readouterr().out


def test_promote_reads_the_teams_ledger(
    team: Team, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    team.configure("reviewers: []")
    monkeypatch.chdir(team.work.folder)
    monkeypatch.setenv("JUDGEKIT_SERVER_URL", team.serving.url)
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", team.tokens["ada"])
    verdict = ledger_lines.verdict(
        name="of-another-machine",
        timestamp=datetime.now(UTC) - timedelta(days=5),
        project=Ledger.of(Path.cwd()).name,
    )
    Shared(team.serving.url, team.tokens["cy"]).send([serialise_record(verdict).rstrip()])
    assert run(["promote", "--team"]) == 1
    assert "verdicts cover 5 days" in capfd.readouterr().err


# A fork


@pytest.mark.parametrize(("upstream", "judged"), [(True, 0), (False, 1)])
def test_commits_of_upstream_are_not_blamed_on_who_syncs_a_fork(
    team: Team,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    upstream: bool,  # noqa: FBT001 - a parameter
    judged: int,
) -> None:
    source = GitRepo(tmp_path / "upstream.git", "--bare")
    address = "https://github.com/acme/docs.git"
    team.configure(f"upstream: ['{address}']" if upstream else "reviewers: []")
    team.propose()
    team.work("push", "--quiet", "--no-verify", str(source.folder), "topic")
    team.work("push", "--quiet", "--no-verify", "origin", "--delete", "topic")
    team.work("remote", "add", "theirs", "git@github.com:acme/docs")
    team.work("fetch", "--quiet", str(source.folder), "topic:refs/remotes/theirs/topic")
    said = push_without_gate(team, monkeypatch)
    assert f"{judged} judged" in said

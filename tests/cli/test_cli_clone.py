"""What a clone's files may not do: outrank the user's word, lead elsewhere, have their content repeated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback
from scripted import by_content

from judgekit.config import settings
from judgekit.judging import calibration
from judgekit.providers import servers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Run, Served

SECRET = "hunter2-AKIAIOSFODNN7EXAMPLE"
THEIRS = "judge: {tiers: {quick: openai/gpt-6-luna, deep: [openai/gpt-6-sol]}}\n"


def by_user(home: Path, text: str) -> None:
    (home / "judgekit").mkdir(exist_ok=True)
    (home / "judgekit" / "config.yaml").write_text(text, encoding="utf-8")


def by_project(project: Path, text: str) -> None:
    (project / ".judgekit").mkdir(exist_ok=True)
    (project / ".judgekit" / "config.yaml").write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "models", lambda base, seconds=0.3: None)


@pytest.mark.parametrize("named", ["config", "one tier", "JUDGEKIT_MODEL", "JUDGEKIT_DEEP_MODEL"])
@pytest.mark.parametrize("theirs", ["config", "memory"])
def test_a_clones_models_do_not_count_where_the_user_named_some(
    judgekit: Run, project: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch, named: str, theirs: str
) -> None:
    if theirs == "config":
        by_project(project, THEIRS)
    else:
        own = project / ".claude" / "memory" / "memory-config.json"
        own.write_text('{"retrieval": {"judge": {"model": "openai/gpt-6-luna"}}}')
    with Loopback(by_content) as elsewhere, Loopback(by_content) as on_premises:
        monkeypatch.setenv("OPENAI_API_KEY", "jk-test-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", elsewhere.base)
        monkeypatch.setenv("JUDGEKIT_API_BASE", on_premises.base)
        if named.startswith("JUDGEKIT"):
            monkeypatch.setenv(named, "ours")
        elif named == "config":
            by_user(isolated, "judge: {tiers: {quick: custom/ours, deep: custom/ours}}\n")
        else:
            by_user(isolated, "judge: {tiers: {tiebreaker: custom/ours}}\n")
        assert judgekit("judge", "good.md", "bad.md").code == 1
        assert judgekit("compare", "good.md", "bad.md", "--prompt", "x").code in (0, 2)
        judgekit("search", "token", "--judge")
        assert elsewhere.requests == []
        assert {request.body["model"] for request in on_premises.requests} == {"ours"}


@pytest.mark.parametrize(
    ("own", "theirs", "section", "key", "holds"),
    [
        (
            "judge: {independence: require}",
            "judge: {independence: prefer}",
            "judge",
            "independence",
            "require",
        ),
        ("judge: {deadline: 20}", "judge: {deadline: 900}", "judge", "deadline", 20),
        ("", "judge: {deadline: 900}", "judge", "deadline", 180),
        ("judge: {max_cost_usd: 1}", "judge: {max_cost_usd: 9}", "judge", "max_cost_usd", 1),
        ("judge: {max_cost_usd: 1}", "judge: {max_cost_usd: null}", "judge", "max_cost_usd", 1),
        ("", "judge: {samples: 8}", "judge", "samples", 1),
        ("", "judge: {criteria: each}", "judge", "criteria", "together"),
        ("judge: {margin: 1}", "judge: {margin: 0}", "judge", "margin", 1),
        ("judge: {author_family: xai}", "judge: {author_family: none}", "judge", "author_family", "xai"),
        ("gate: {mode: blocking}", "gate: {mode: advisory}", "gate", "mode", "blocking"),
        ("", "gate: {budget: 3600}", "gate", "budget", 60),
        ("", "retrieval: {judge: 'on'}", "retrieval", "judge", "off"),
        ("", "retrieval: {pool: 30}", "retrieval", "pool", 15),
        ("", "retrieval: {deadline: 3000}", "retrieval", "deadline", 8),
        ("", "retrieval: {timeout: 3000}", "retrieval", "timeout", 3),
        ("", "retrieval: {context_turns: 20}", "retrieval", "context_turns", 5),
        ("", "retrieval: {tiers: [quick, deep, tiebreaker]}", "retrieval", "tiers", ["quick"]),
        ("retrieval: {max_inject: 1}", "retrieval: {max_inject: 20}", "retrieval", "max_inject", 1),
        ("", "escalate: {issues: 'on', rejects: true}", "escalate", "issues", "off"),
        ("", "escalate: {issues: 'on', rejects: true}", "escalate", "rejects", False),
        ("", "stop: {judge: 'on'}", "stop", "judge", "off"),
        ("", "stop: {blocks: 20}", "stop", "blocks", 3),
        ("", "stop: {max_files: 100}", "stop", "max_files", 10),
        ("", "stop: {deadline: 60}", "stop", "deadline", 45),
    ],
)
def test_a_clone_raises_no_limit_and_lowers_no_guard(
    project: Path, isolated: Path, own: str, theirs: str, section: str, key: str, holds: object
) -> None:
    by_user(isolated, f"{own}\n")
    by_project(project, f"{theirs}\n")
    assert getattr(getattr(settings.load(project), section), key) == holds


@pytest.mark.parametrize(
    "theirs",
    [
        "judge: {redact: false}",
        "providers: {allow: null}",
        "providers: {order: [openai]}",
        "server: {url: 'https://evil.example'}",
        "server: {token_file: ~/.ssh/id_rsa}",
        "engine: {idle_minutes: 1440}",
        "ledger: {text: true}",
        "retrieval: {log: true}",
        "gate: {override_without_terminal: true}",
        "escalate: {text: true}",
        "judge: {tiers: {quick: evil/model}}",
        "judge: {rubric: ../theirs.yaml}",
        "retrieval: {roots: [/etc]}",
        "retrieval: {roots: ['~']}",
    ],
)
def test_what_is_not_a_clones_to_say_is_refused_in_a_line(judgekit: Run, project: Path, theirs: str) -> None:
    by_project(project, f"{theirs}\n")
    done = judgekit("judge", "good.md")
    assert (done.code, done.err.count("\n")) == (78, 1)
    assert f"{project / '.judgekit' / 'config.yaml'}:1: " in done.err
    assert not any(value in done.err for value in ("evil", "id_rsa", "theirs.yaml", "/etc", "1440"))


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, target: path.symlink_to(target),
    "pipe": lambda path, _: os.mkfifo(path),
    "device": lambda path, _: path.symlink_to("/dev/zero"),
    "folder": lambda path, _: path.mkdir(),
}


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of the user's that no clone may read."""
    path = tmp_path_factory.mktemp("private") / "credentials.yaml"
    path.write_text(f"judge: {{mode: {SECRET}}}\n{SECRET}: x\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("place", "command"),
    [
        (".judgekit/config.yaml", "judge good.md"),
        (".judgekit/config.yaml", "search token"),
        (".judgekit/config.yaml", "gate --base HEAD"),
        (".judgekit/rubrics/kls@9.0.0.yaml", "judge good.md"),
        (".judgekit/rubrics/own@1.0.0.yaml", "rubric show own"),
        (".judgekit/rubrics/own@1.0.0.yaml", "judge good.md --rubric own"),
        (".judgekit/retrieval/claude-memory.yaml", "search token"),
        (".claude/memory/memory-config.json", "judge good.md"),
    ],
)
def test_a_clones_file_that_is_none_of_its_own_is_refused_in_a_line(
    judgekit: Run, project: Path, secret: Path, place: str, command: str
) -> None:
    path = project / place
    path.parent.mkdir(parents=True, exist_ok=True)
    for make in KINDS.values():
        path.unlink(missing_ok=True)
        make(path, secret)
        done = judgekit(*command.split())
        assert SECRET not in done.err + done.out
        if not command.startswith("gate"):  # which reads the rules of the remote, if any
            assert (done.code, done.err.count("\n")) == (78, 1), done.err
            assert done.err.startswith(f"judgekit: {path}: ")
            assert "a link" in done.err or "not a regular file" in done.err
    path.rmdir()


@pytest.mark.parametrize("name", ["config.yaml", "rubrics/kls@9.0.0.yaml"])
def test_a_folder_on_the_way_is_no_link_either(
    judgekit: Run, project: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / name).parent.mkdir(exist_ok=True)
    (elsewhere / name).write_text(f"judge: {{mode: {SECRET}}}\n")
    (project / ".judgekit").symlink_to(elsewhere)
    done = judgekit("judge", "good.md")
    assert (done.code, done.err.count("\n")) == (78, 1)
    assert f"{project / '.judgekit'}: a link" in done.err
    assert SECRET not in done.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibration_and_an_ignore_file_that_are_none_hold_up_nothing(
    judgekit: Run, project: Path, secret: Path, served: Served, kind: str
) -> None:
    folder = project / ".judgekit" / calibration.FOLDER
    folder.mkdir(parents=True)
    KINDS[kind](folder / "kls-strict-0123456789ab.json", secret)
    KINDS[kind](project / ".claude" / "memory" / ".judgekitignore", secret)
    done, _ = served(by_content, "judge", "good.md")
    assert done.code == 0, done.err
    assert "calibration not used" in done.out
    assert SECRET not in done.out + done.err
    assert judgekit("search", "token").code == 0


@pytest.mark.parametrize(
    "text",
    [
        f"judge: {{mode: {SECRET}}}",
        f"judge: {{rubric: '{SECRET}'}}",
        f"judge: {{rubric: '{SECRET}.yaml'}}",
        f"judge: {{deadline: {SECRET}}}",
        f"judge: {{tiers: {{quick: {SECRET}}}}}",
        f"judge: {{samples: [{SECRET}]}}",
        f"judge: {{independence: {SECRET}}}",
        f"judge: {SECRET}",
        f"{SECRET}",
        f"- {SECRET}",
        f"judge: {{mode: strict, mode: {SECRET}}}",
        f"judge: *{SECRET}",
        f"judge: !{SECRET} x",
        f"judge: !!timestamp {SECRET}",
        f"judge: !!int {SECRET}",
        f"judge: 'no end {SECRET}",
        f'judge: "\\q {SECRET}"',
        f"judge: {{deadline: 1}}}} {SECRET}",
        f"judge:\n\t{SECRET}: x",
        f"%YAML 9.9 {SECRET}\n---\njudge: 1",
        f"retrieval: {{roots: ['/{SECRET}']}}",
        f"retrieval: {{pin: {SECRET}}}",
        f"gate: {{paths: ['[{SECRET}']}}",
        f"gate: {{mode: {SECRET}}}",
    ],
)
def test_an_error_says_where_and_what_was_expected_and_not_what_stands_there(
    judgekit: Run, project: Path, text: str
) -> None:
    by_project(project, f"{text}\n")
    for command in (("judge", "good.md"), ("search", "token"), ("doctor",)):
        done = judgekit(*command)
        assert SECRET not in done.err + done.out, done.err + done.out
    done = judgekit("judge", "good.md")
    if "paths" not in text:  # a set that never ends means itself
        assert done.code == 78, done.err
        assert f"{project / '.judgekit' / 'config.yaml'}" in done.err


@pytest.mark.parametrize(
    ("place", "text", "command"),
    [
        (".judgekit/rubrics/own@1.0.0.yaml", f"rubric: own\nversion: {SECRET}\n", ("rubric", "show", "own")),
        (".judgekit/rubrics/own@1.0.0.yaml", f"rubric: own\ntask: {SECRET}\n", ("rubric", "show", "own")),
        (
            ".judgekit/retrieval/markdown.yaml",
            f"retrieval: markdown\nversion: {SECRET}\n",
            ("search", "token"),
        ),
        (
            ".claude/memory/memory-config.json",
            f'{{"retrieval": {{"max_inject": "{SECRET}"}}}}',
            ("judge", "good.md"),
        ),
        (".claude/memory/memory-config.json", f'{{"retrieval": "{SECRET}"}}', ("judge", "good.md")),
        (".claude/memory/memory-config.json", f'{{"retrieval": {SECRET}}}', ("judge", "good.md")),
    ],
)
def test_no_other_file_of_a_clone_is_repeated_in_an_error(
    judgekit: Run, project: Path, place: str, text: str, command: tuple[str, ...]
) -> None:
    path = project / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    done = judgekit(*command)
    assert (done.code, SECRET in done.err + done.out) == (78, False), done.err
    assert str(path) in done.err

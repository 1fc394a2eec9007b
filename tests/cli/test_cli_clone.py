"""A clone's files may not outrank the user's word, lead elsewhere, or have their content repeated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hooking import by_user
from loopback import Loopback
from outcome import by_project
from scripted import by_content

from judgekit import environment
from judgekit.config import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Run, Served

SECRET = "hunter2-AKIAIOSFODNN7EXAMPLE"
pytestmark = pytest.mark.usefixtures("project", "no_servers")
THEIRS = "judge: {tiers: {quick: openai/gpt-6-luna, deep: [openai/gpt-6-sol]}}\n"
OURS = {
    "config": "judge: {tiers: {quick: custom/ours, deep: custom/ours}}\n",
    "one tier": "judge: {tiers: {tiebreaker: custom/ours}}\n",
}


@pytest.mark.parametrize("named", [*OURS, "JUDGEKIT_MODEL", "JUDGEKIT_DEEP_MODEL"])
@pytest.mark.parametrize("theirs", ["config", "memory"])
def test_a_clones_models_do_not_count_where_the_user_named_some(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch, named: str, theirs: str
) -> None:
    if theirs == "config":
        by_project(THEIRS)
    else:
        own = project / ".claude" / "memory" / "memory-config.json"
        own.write_text('{"retrieval": {"judge": {"model": "openai/gpt-6-luna"}}}')
    with Loopback(by_content) as elsewhere, Loopback(by_content) as on_premises:
        monkeypatch.setenv("OPENAI_API_KEY", "jk-test-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", elsewhere.base)
        monkeypatch.setenv("JUDGEKIT_API_BASE", on_premises.base)
        if named in OURS:
            by_user(OURS[named])
        else:
            monkeypatch.setenv(named, "ours")
        assert judgekit("judge", "good.md", "bad.md").code == 1
        assert judgekit("compare", "good.md", "bad.md", "--prompt", "x").code in (0, 2)
        judgekit("search", "token", "--judge")
        assert elsewhere.requests == []
        assert {request.body["model"] for request in on_premises.requests} == {"ours"}


ALONE = "only the user's configuration may"
OUTSIDE = "outside the project; only the user's configuration may name such a path"


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ("judge: {redact: false}", f"{ALONE} decide whether secrets are sent"),
        ("providers: {}", f"{ALONE} choose providers"),
        ("providers: {allow: null}", f"{ALONE} choose providers"),
        ("providers: {order: [openai]}", f"{ALONE} choose providers"),
        ("server: {url: 'https://evil.example'}", f"{ALONE} choose a shared judge"),
        ("server: {token_file: ~/.ssh/id_rsa}", f"{ALONE} choose a shared judge"),
        ("engine: {idle_minutes: 1440}", f"{ALONE} configure the engine"),
        ("ledger: {text: true}", f"{ALONE} decide what the ledger keeps"),
        ("retrieval: {log: true}", f"{ALONE} log prompts"),
        ("retrieval: {disabled_in: [/]}", f"{ALONE} switch the hook off in projects"),
        ("gate: {paths: [a], override_without_terminal: true}", f"{ALONE} accept overrides"),
        ("escalate: {text: true}", f"{ALONE} put quotes into issues"),
        ("judge: {tiers: {quick: evil/model}}", "no provider profile lists this model"),
        *(
            (f"judge: {{rubric: {rubric}}}", f"judge.rubric: {OUTSIDE}")
            for rubric in ("../theirs.yaml", "/etc/theirs.yaml")
        ),
        *(
            (f'retrieval: {{roots: [notes, "{root}"]}}', f"retrieval.roots: {OUTSIDE}")
            for root in ("../other", "/etc", "~/notes", "claude:auto", "a\\0b", "linked")
        ),
    ],
)
def test_what_is_not_a_clones_to_say_is_refused_in_a_line(
    judgekit: Run, project: Path, tmp_path_factory: pytest.TempPathFactory, theirs: str, told: str
) -> None:
    (project / "linked").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    path = by_project(f"{theirs}\n")
    done = judgekit("judge", "good.md")
    assert (done.code, done.err.count("\n")) == (78, 1)
    assert (f"{path}:1: " in done.err, told in done.err) == (True, True), done.err
    hidden = ("evil", "id_rsa", "theirs.yaml", "/etc", "1440", str(settings.get_user_config_path()))
    assert not any(value in done.err for value in hidden)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, target: path.symlink_to(target),
    "pipe": lambda path, _: os.mkfifo(path),
    "device": lambda path, _: path.symlink_to("/dev/zero"),
    "folder": lambda path, _: path.mkdir(),
}


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("private") / "config.yaml"
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
    judgekit: Run, project: Path, secret: Path, name: str
) -> None:
    (secret.parent / name).parent.mkdir(exist_ok=True)
    (secret.parent / name).write_text(secret.read_text())
    (project / ".judgekit").symlink_to(secret.parent)
    done = judgekit("judge", "good.md")
    assert (done.code, done.err.count("\n"), SECRET in done.err) == (78, 1, False)
    assert f"{project / '.judgekit'}: a link" in done.err


@pytest.mark.parametrize("kind", KINDS)
def test_odd_files_harm_nobody(
    judgekit: Run, project: Path, secret: Path, served: Served, kind: str
) -> None:
    folder = project / ".judgekit" / environment.CALIBRATIONS.name
    folder.mkdir(parents=True)
    KINDS[kind](folder / "kls-strict-0123456789ab.json", secret)
    KINDS[kind](project / ".claude" / "memory" / ".judgekitignore", secret)
    done, _ = served(by_content, "judge", "good.md")
    assert (done.code, SECRET in done.out + done.err) == (0, False), done.err
    assert "calibration not used" in done.out
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
    judgekit: Run, text: str
) -> None:
    path = by_project(f"{text}\n")
    for command in ("search token", "doctor", "judge good.md"):
        done = judgekit(*command.split())
        assert SECRET not in done.err + done.out, done.err + done.out
    if "paths" not in text:  # a set that never ends means itself
        assert (done.code, str(path) in done.err) == (78, True), done.err


def test_no_other_file_of_a_clone_is_repeated_in_an_error(judgekit: Run, project: Path) -> None:
    memory, own = ".claude/memory/memory-config.json", ".judgekit/rubrics/own@1.0.0.yaml"
    profile = f"retrieval: markdown\nversion: {SECRET}\n"
    for place, text, command in (
        (".judgekit/retrieval/markdown.yaml", profile, "search token"),
        (own, f"rubric: own\nversion: {SECRET}\n", "rubric show own"),
        (own, f"rubric: own\ntask: {SECRET}\n", "rubric show own"),
        (memory, f'{{"retrieval": {{"max_inject": "{SECRET}"}}}}', "judge good.md"),
        (memory, f'{{"retrieval": "{SECRET}"}}', "judge good.md"),
        (memory, f'{{"retrieval": {SECRET}}}', "judge good.md"),
    ):
        path = project / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        done = judgekit(*command.split())
        assert (done.code, SECRET in done.err + done.out, str(path) in done.err) == (
            78,
            False,
            True,
        ), done.err

"""`judgekit install` and `judgekit uninstall`, and doctor's report on them, for every client."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from outcome import by_project

from judgekit import environment
from judgekit.hooks import entries, git_hook, install, pre_commit
from judgekit.hooks.clients import CODEX, GEMINI

if TYPE_CHECKING:
    from outcome import Run

    from judgekit.hooks.clients import Client

SETTINGS = b'{\n\t"model": "opus"\n}'
SKILL_OFFER = (
    "to let the agent search by itself, add the skill: "
    "judgekit install claude-code --scope user --skill"
)
IN, OUT = ("install", "claude-code"), ("uninstall", "claude-code")


@pytest.fixture
def user_file(project: Path, isolated: Path) -> Path:
    path = isolated / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_bytes(SETTINGS)
    return path


def test_in_and_out_of_the_users_settings_twice(
    judgekit: Run, project: Path, user_file: Path
) -> None:
    done = judgekit(*IN)
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            f"Wrote {user_file}: Claude Code runs judgekit on every prompt in all your projects",
            f"it reads {project / '.claude' / 'memory'} (.claude/memory): 5 memories",
            SKILL_OFFER,
            'try: judgekit hook --explain "…"; undo: judgekit uninstall claude-code --scope user',
        ],
    )
    assert set(json.loads(user_file.read_bytes())) == {"model", "hooks"}
    content, time = user_file.read_bytes(), user_file.stat().st_mtime_ns
    assert judgekit(*IN).out.startswith(f"nothing to change in {user_file}")
    assert (user_file.read_bytes(), user_file.stat().st_mtime_ns) == (content, time)
    done = judgekit(*OUT)
    assert (done.code, done.out) == (0, f"removed the hook from {user_file}\n")
    assert user_file.read_bytes() == SETTINGS
    done = judgekit(*OUT)
    assert (done.code, done.out) == (0, f"nothing to change: the hook is not in {user_file}\n")


def test_print_changes_nothing(judgekit: Run, user_file: Path, isolated: Path) -> None:
    for command in ("install", "uninstall"):
        before = user_file.read_bytes()
        shown = judgekit(command, "claude-code", "--print")
        assert (shown.code, user_file.read_bytes()) == (0, before)
        assert shown.err.splitlines()[0] == f"judgekit: would write {user_file}"
        judgekit(command, "claude-code")
        assert shown.out.encode() == user_file.read_bytes() != before
        shown = judgekit(command, "claude-code", "--print")
        assert shown.out.encode() == user_file.read_bytes()
        assert "would stay as it is" in shown.err
    shutil.rmtree(user_file.parent)
    before_that = sorted(isolated.rglob("*"))
    assert "UserPromptSubmit" in judgekit(*IN, "--print").json["hooks"]
    done = judgekit(*OUT, "--print")
    assert (done.code, done.out, sorted(isolated.rglob("*"))) == (
        0,
        "",
        before_that,
    )  # no folder is made
    judgekit(*IN)
    done = judgekit(*OUT, "--print")
    assert (done.out, "would remove" in done.err) == ("", True)


def test_settings_beyond_editing_stay(judgekit: Run, user_file: Path) -> None:
    for content, said in (
        (b'{\n  "model": "opus",}', ":2: not valid JSON"),
        (b'{\n// why\n"model": "opus"}', ":2: not valid JSON"),
        (b'{\n"hooks": []}', ": hooks: expected an object of events"),
        (b"[]", ": expected an object of settings"),
        (b'{"a": 1} {}', ":1: not valid JSON"),
        (b"[" * 100_000, ": not valid JSON"),
        (b'{"hooks": {"PostToolUse": null}}', ": hooks.PostToolUse: expected an array"),
        (
            b'{"hooks": {"UserPromptSubmit": ["x"]}}',
            ": hooks.UserPromptSubmit.0: expected an object with",
        ),
        (b'{"hooks": {"Stop": [{"hooks": [3]}]}}', ": hooks.Stop.0: expected an object with"),
        (b'{"a": "\xff"}', ":1: not UTF-8"),
    ):
        user_file.write_bytes(content)
        done = judgekit(*IN)
        assert (done.code, done.out, done.err.count("\n")) == (78, "", 1)
        assert done.err.startswith(f"judgekit: {user_file}{said}")
        assert user_file.read_bytes() == content


def test_wrong_usage_read_only_settings_and_hooks_that_are_off(
    judgekit: Run, user_file: Path
) -> None:
    for arguments in (
        "claude-code --scope team",
        "claude-code --scope",
        "claude-code extra",
        "emacs",
    ):
        assert judgekit("install", *arguments.split()).code == 64
    user_file.chmod(0o444)
    done = judgekit(*IN)
    assert (done.code, done.out, user_file.read_bytes()) == (65, "", SETTINGS)
    assert "read-only; make it writable" in done.err
    user_file.unlink()
    user_file.mkdir()
    done = judgekit(*IN)
    assert (done.code, "cannot be read (Is a directory)" in done.err) == (65, True)
    user_file.rmdir()
    user_file.write_text('{"disableAllHooks": true}')
    done = judgekit(*IN)
    assert done.code == 0
    assert f"judgekit: {user_file} sets disableAllHooks" in done.err


def test_doctor_says_which_hook_is_wrong_and_what_to_run(judgekit: Run, user_file: Path) -> None:
    judgekit(*IN)
    judgekit(*IN, "--scope", "project")
    done = judgekit("doctor")
    assert (done.code, "each prompt is answered 2 times" in done.out) == (0, True)
    hook = {"type": "command", "command": "/no/such/python3", "args": ["-m", "judgekit", "hook"]}
    user_file.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    done = judgekit("doctor")
    again = "run judgekit install claude-code --scope user again"
    told = f"its program /no/such/python3 no longer exists; {again}"
    assert (done.code, told in done.out) == (78, True)
    user_file.write_text('{"hooks": {},\n "model": }\n')
    done = judgekit("doctor")
    told = f"wrong  prompt hook: {user_file}:2: not valid JSON, column 11: Expecting value; fix the file\n"
    assert (done.code, told in done.out, "not set up" in done.out) == (78, True, False)


def test_the_skill_goes_in_and_out_with_the_hook(
    judgekit: Run, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = user_file.parent / "skills" / "memory-search" / "SKILL.md"
    offer = SKILL_OFFER
    assert offer in judgekit(*IN).out
    assert not skill.exists()
    assert f"Wrote {skill}: the agent knows how to search" in judgekit(*IN, "--skill").out
    assert "Bash(judgekit search --no-judge --json:*)" in skill.read_text()
    assert offer not in judgekit(*IN).out
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    judgekit(*IN, "--skill")
    program = Path(sys.executable).with_name("judgekit")
    assert f"Bash({program} search --no-judge --json:*)" in skill.read_text()
    assert f"\n{program} search --no-judge --json -n 10" in skill.read_text()
    assert f"removed {skill}" in judgekit("uninstall", "claude-code").out
    assert not skill.parent.exists()
    skill.parent.mkdir(parents=True)
    skill.write_text("mine")
    done = judgekit(*IN, "--skill")
    assert (done.code, f"{skill} is there already, and judgekit did not write it" in done.err) == (
        64,
        True,
    )
    judgekit("uninstall", "claude-code")
    assert skill.read_text() == "mine"


def test_doctor_tries_what_an_agent_would_run(judgekit: Run, isolated: Path) -> None:
    assert "an agent's search" not in judgekit("doctor").out
    judgekit(*IN)
    found = "a login shell finds judgekit"
    lost = "a login shell does not find judgekit"
    said = judgekit("doctor").out
    assert (found in said) != (lost in said)
    programs = isolated / "programs"
    programs.mkdir()
    (isolated / ".profile").write_text(f"PATH={programs}\n")
    beside = Path(sys.executable).with_name("judgekit")
    assert f"{lost}, so hints to an agent may name {beside}" in judgekit("doctor").out
    (programs / "judgekit").symlink_to(beside)
    assert found in judgekit("doctor").out


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = GitRepo(tmp_path / "work")
    monkeypatch.chdir(work.folder)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return work.folder / ".git" / "hooks" / "pre-push"


def test_in_twice_and_out_twice(judgekit: Run, hook: Path) -> None:
    file = hook.parents[2] / pre_commit.CONFIG_FILE
    of_git = [f"Wrote {hook}: git runs the gate before a push", "undo: judgekit uninstall git"]
    of_file = [f"Wrote {file}", "run once in each clone: pre-commit install --hook-type pre-push"]
    for command, path, what, text, lines in (
        ("git", hook, "judgekit's hook", git_hook.render_hook().decode(), of_git),
        ("pre-commit", file, "the gate", "id: judgekit-gate", of_file),
    ):
        shown = judgekit("install", command, "--print")
        assert (shown.code, text in shown.out, path.exists()) == (0, True, False)
        done = judgekit("install", command)
        assert (done.code, done.err, done.out.splitlines()) == (0, "", lines)
        assert judgekit("install", command).out.startswith(f"nothing to change in {path}")
        assert judgekit("uninstall", command).out == f"removed {path}\n"
        shown = judgekit("uninstall", command, "--print")
        assert (shown.code, text in shown.out, path.exists()) == (0, False, False)
        assert judgekit("uninstall", command).out == f"nothing to change: {what} is not in {path}\n"


def test_doctor_and_no_repository_at_all(
    judgekit: Run, hook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"git hook: no {hook}; install it with judgekit install git" in judgekit("doctor").out
    judgekit("install", "git")
    assert f"ok     git hook: git runs {hook}" in judgekit("doctor").out
    hook.chmod(0o644)
    done = judgekit("doctor")
    assert (done.code, f"wrong  git hook: {hook} is not executable" in done.out) == (78, True)
    done = judgekit("install", "git", "--scope", "project")
    assert (done.code, "judgekit install pre-commit" in done.err) == (64, True)
    monkeypatch.chdir(hook.parents[3])
    done = judgekit("install", "git")
    assert (done.code, "no git repository" in done.err) == (64, True)


both = pytest.mark.parametrize("client", [CODEX, GEMINI], ids=lambda client: client.command)
OTHER = {
    "matcher": "x",
    "hooks": [{"type": "command", "command": "notify-send", "timeout": 3, "odd": []}],
}


def hooks_file(client: Client, home: Path) -> Path:
    path = home / client.user[1].lstrip("~/") / client.user[2]
    path.parent.mkdir(exist_ok=True)
    return path


def obstacles(judgekit: Run, client: Client) -> str:
    """Install the hook of a client and return its stderr; the doctor says the same."""
    done = judgekit("install", client.command)
    assert f"{client.title} doesn't run it yet, see below" in done.out
    doctor = judgekit("doctor").out
    for line in done.err.splitlines():
        assert line.removeprefix("judgekit: ") in doctor
    return done.err


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"hooks": {}, "version": 1}', "has another key than hooks (version): Codex ignores"),
        ('{"$schema": "x", "hooks": {}}', "has another key than hooks ($schema): Codex ignores"),
        ('\ufeff{"hooks": {}}', "begins with a byte order mark: Codex ignores"),
        ('{"hooks": {"PreToolUse": {"hooks": []}}}', "hooks.PreToolUse is no list of hooks"),
        (
            '{"hooks": {"PreToolUse": [{"hooks": [{"command": "x"}]}]}}',
            "hooks.PreToolUse is no list",
        ),
    ],
)
def test_a_file_that_codex_does_not_read_is_said(
    judgekit: Run, isolated: Path, content: str, said: str
) -> None:
    hooks_file(CODEX, isolated).write_text(content, encoding="utf-8")
    assert said in obstacles(judgekit, CODEX)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[features]\nhooks = false\n", "features.hooks = false: Codex runs no hooks"),
        ("[features]\ncodex_hooks = false\n", "features.codex_hooks = false: Codex runs no"),
        (
            "[hooks.state.'{file}:user_prompt_submit:0:0']\nenabled = false\n",
            "switches the hook of",
        ),
        ("[hooks.state.'{file}:stop:0:0']\nenabled = false\n", ""),
        ("", "not trusted yet"),
    ],
)
def test_what_codex_was_told_of_hooks_is_said(
    judgekit: Run, project: Path, isolated: Path, config: str, said: str
) -> None:
    path = hooks_file(CODEX, isolated)
    path.with_name("config.toml").write_text(config.format(file=path))
    judgekit("install", "codex")
    found = "\n".join(install.list_obstacles(project, CODEX))
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"hooksConfig": {"disabled": ["judgekit"]}}, "lists judgekit in hooksConfig.disabled"),
        ({"hooks": {"disabled": ["x", "judgekit"]}}, "lists judgekit in hooks.disabled"),
        ({"hooksConfig": {"enabled": False}}, "sets hooksConfig.enabled = false"),
    ],
)
@pytest.mark.parametrize("of_machine", [False, True])
def test_hooks_that_gemini_skips_are_said(
    judgekit: Run,
    isolated: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    content: dict[str, object],
    said: str,
    of_machine: bool,
) -> None:
    path = hooks_file(GEMINI, isolated)
    if of_machine:
        path = isolated / "system.json"
        monkeypatch.setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", str(path))
    path.write_text(json.dumps(content))
    assert f"{path} {said}" in obstacles(judgekit, GEMINI)


@pytest.mark.usefixtures("project")
@both
def test_in_twice_and_out_twice_leaves_every_byte(
    judgekit: Run, client: Client, isolated: Path
) -> None:
    path, name = hooks_file(client, isolated), client.command
    kept = json.dumps(
        {"description": "mine", "hooks": {"SessionEnd": [OTHER], client.prompt_event: [OTHER]}},
        indent=3,
    )
    for before in (None, b'{"hooks":{ }}', kept.encode() + b"\n\n"):
        if before is not None:
            path.write_bytes(before)
        shown = judgekit("install", name, "--print").out.encode()
        assert path.exists() is (before is not None)
        done = judgekit("install", name)
        effect = "runs judgekit on every prompt in all your"
        if client is CODEX:  # which asks a person first
            effect = "doesn't run it yet, see below"
        assert done.out.startswith(f"Wrote {path}: {client.title} {effect}")
        assert f"undo: judgekit uninstall {name} --scope user" in done.out
        assert (client.trust in done.out + done.err, path.read_bytes()) == (True, shown)
        assert judgekit("install", name).out.startswith(f"nothing to change in {path}")
        assert path.read_bytes() == shown
        assert judgekit("uninstall", name).out.startswith("removed ")
        assert (path.read_bytes() if path.exists() else None) == before
        assert judgekit("uninstall", name).out == f"nothing to change: the hook is not in {path}\n"
    path.write_bytes(shown.replace(b"notify-send", b"say"))
    judgekit("uninstall", name)
    assert json.loads(path.read_text()) == json.loads(kept.replace("notify-send", "say"))


@pytest.mark.usefixtures("project")
@both
def test_what_is_written(judgekit: Run, client: Client, project: Path, isolated: Path) -> None:
    judgekit("install", client.command)
    judgekit("install", client.command, "--scope", "project")
    own = json.loads(hooks_file(client, isolated).read_text())["hooks"]
    shared = json.loads((project / client.shared["project"]).read_text())["hooks"]
    for event, matcher in client.events.items():
        (group,) = own[event]
        (hook,) = group["hooks"]
        assert ("args" in hook, entries.get_argument_vector(hook)) == (
            False,
            entries.build_command(),
        )
        seconds = entries.TIMEOUT_SECONDS_BY_EVENT.get(event, entries.DEFAULT_TIMEOUT_SECONDS)
        assert (group.get("matcher"), hook["timeout"]) == (
            matcher,
            seconds * (1000 if client is GEMINI else 1),
        )
        assert shared[event] == [group | {"hooks": [hook | {"command": entries.PORTABLE_COMMAND}]}]


@pytest.mark.usefixtures("project")
@both
def test_doctor_asks_the_hook_and_says_what_it_lacks(
    judgekit: Run, client: Client, isolated: Path
) -> None:
    judgekit("install", client.command)
    path = hooks_file(client, isolated)
    out = judgekit("doctor").out
    assert f"prompt hook, user of {client.title}: {path}: the fastest form, " in out
    assert ("it answers" in out, "answered" in out, "runs no hooks" in out) == (True, False, False)
    assert (f"{path}: not trusted yet; {CODEX.trust}" in out) is (client is CODEX)
    config = path.with_name("config.toml")
    if client is CODEX:
        trusted = f'[hooks.state."{path}:user_prompt_submit:0:0"]\ntrusted_hash = "sha256:0"\n'
        for text in ("features = 3", "[hooks]\nstate = [1]", "[", trusted):
            config.write_text(text)
            assert ("not trusted yet" in judgekit("doctor").out) is (text is not trusted)
        config.write_text("[features]\nhooks = false\n")
    else:
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"hooksConfig": {"enabled": False}})
        )
    assert f"{client.title} runs no hooks until you remove it" in judgekit("doctor").out
    done = judgekit("install", client.command, "--scope", "project")
    where = "the user settings and in the project settings"
    assert f"each prompt is answered 2 times: the hook is in {where}; keep one" in done.err
    path.write_text(
        '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "judgekit hook"}]}]}}'
    )
    again = f"run judgekit install {client.command} --scope user again"
    (line,) = [each for each in judgekit("doctor").out.splitlines() if "not called on" in each]
    assert (f"not called on {client.prompt_event}, " in line, line.endswith(again)) == (True, True)


@pytest.mark.usefixtures("project")
@both
def test_wrong_usage_and_a_file_that_is_elsewhere(
    judgekit: Run, client: Client, isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judgekit("install", client.command, "--scope", "local").code == 64
    path = hooks_file(client, isolated)
    path.write_text('{\n// why\n"hooks": {}}')
    done = judgekit("install", client.command)
    assert (done.code, done.err.startswith(f"judgekit: {path}:2: not valid JSON")) == (78, True)
    monkeypatch.setenv(client.user[0], str(tmp_path / "else"))
    assert judgekit("install", client.command).out.startswith(
        f"Wrote {tmp_path / 'else' / client.user[2]}: "
    )
    judgekit("uninstall", client.command)
    assert not (tmp_path / "else").exists()


@pytest.fixture
def repository_here(project: Path) -> None:
    GitRepo(project)("init", "--quiet")


@pytest.fixture
def used(judgekit: Run, project: Path) -> Path:
    """Return the index of a hook that was installed and has answered a prompt."""
    judgekit("install", "claude-code")
    judgekit("search", "refresh the JWT")
    (index,) = Path(environment.cache_home(), "index").iterdir()
    return index


UNINSTALL = [("git",), ("pre-commit",), ("claude-code",), ("codex",), ("gemini",)]


@pytest.mark.usefixtures("repository_here")
@pytest.mark.parametrize("words", UNINSTALL, ids=" ".join)
def test_uninstalling_names_what_stays_and_its_size(
    judgekit: Run, used: Path, words: tuple[str, ...]
) -> None:
    done = judgekit("uninstall", *words)
    line = f"stays: {used.parent}: search indexes, one folder for each store, "
    assert line in done.err
    assert " kB" in done.err.partition(line)[2].partition("\n")[0]
    assert f"judgekit uninstall {words[0]} --purge deletes" in done.err
    assert used.exists()


@pytest.mark.usefixtures("repository_here")
@pytest.mark.parametrize("words", UNINSTALL, ids=" ".join)
def test_a_purge_leaves_nothing_that_can_be_made_again(
    judgekit: Run, used: Path, words: tuple[str, ...]
) -> None:
    log = Path(environment.INJECTIONS.path())
    for path in (log, log.with_name(f"{log.name}.1"), Path(environment.SESSIONS.make("a"), "b")):
        path.write_text("a prompt")
    planned = judgekit("uninstall", *words, "--purge", "--print")
    assert f"would delete {used.parent}: " in planned.err
    assert used.exists()
    done = judgekit("uninstall", *words, "--purge")
    assert f"deleted {used.parent}: " in done.out
    assert not Path(environment.cache_home()).exists()
    assert not [*log.parent.glob("injections*")]
    assert not Path(environment.SESSIONS.path()).exists()


@pytest.mark.usefixtures("used")
def test_a_purge_keeps_what_cannot_be_made_again_and_names_it(judgekit: Run) -> None:
    ledger = Path(environment.LEDGER.make(), "2026-01-01.jsonl")
    ledger.write_text("{}\n")
    settings = Path(environment.SETTINGS.path())
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("retrieval: {}\n")
    done = judgekit("uninstall", "claude-code", "--purge")
    assert f"stays, because it can't be made again: {ledger.parent}: the ledger" in done.err
    assert f"stays, because it can't be made again: {settings}: your settings" in done.err
    assert ledger.exists()
    assert settings.exists()


@pytest.mark.usefixtures("project")
def test_a_hook_in_another_scope_is_named(judgekit: Run) -> None:
    judgekit("install", "claude-code")
    judgekit("install", "claude-code", "--scope", "project")
    done = judgekit("uninstall", "claude-code")
    assert "judgekit uninstall claude-code --scope project removes it" in done.err


@pytest.mark.usefixtures("project")
def test_a_skill_that_was_edited_stays_and_is_named(judgekit: Run, isolated: Path) -> None:
    judgekit("install", "claude-code", "--skill")
    (skill,) = isolated.rglob("SKILL.md")
    skill.write_text(skill.read_text() + "mine\n")
    done = judgekit("uninstall", "claude-code")
    assert f"{skill} stays" in done.err


def test_a_hook_manager_that_still_runs_the_gate_is_named(judgekit: Run, project: Path) -> None:
    GitRepo(project)("init", "--quiet")
    (project / "lefthook.toml").write_text('[pre-push.jobs.gate]\nrun = "judgekit gate"\n')
    done = judgekit("uninstall", "git")
    assert f"{project / 'lefthook.toml'} still runs the gate" in done.err


CLIENT_NAMES = ("claude-code", "codex", "gemini")


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_installing_says_what_is_read_and_how_much_that_is(
    judgekit: Run, project: Path, name: str
) -> None:
    notes = project / "notes"
    notes.mkdir()
    for number in range(3):
        (notes / f"{number}.md").write_text("# A note\n")
    by_project("retrieval: {roots: [notes, gone]}\n")
    done = judgekit("install", name)
    assert f"it reads {notes} (notes): 3 memories\n" in done.out
    assert f"it reads {project / 'gone'} (gone): no such folder yet\n" in done.out
    assert "no memories yet" not in done.out


@pytest.mark.parametrize("name", CLIENT_NAMES)
@pytest.mark.parametrize("is_there", [True, False])
def test_without_memories_the_line_to_add_is_named(
    judgekit: Run, project: Path, name: str, *, is_there: bool
) -> None:
    shutil.rmtree(project / ".claude" / "memory")
    if is_there:
        (project / ".claude" / "memory").mkdir()
    done = judgekit("install", name)
    assert "retrieval: {roots: [.claude/memory, ~/notes]}\n" in done.out
    assert environment.SETTINGS.path() in done.out


def test_the_line_to_add_is_understood(judgekit: Run, project: Path, isolated: Path) -> None:
    shutil.rmtree(project / ".claude" / "memory")
    notes = isolated / "notes"
    notes.mkdir()
    (notes / "walrus.md").write_text("# Walruses\n")
    line = judgekit("install", "claude-code").out.partition("config.yaml: ")[2].partition("\n")[0]
    settings = Path(environment.SETTINGS.path())
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"{line}\n")
    assert f"it reads {notes} (~/notes): 1 memory\n" in judgekit("install", "claude-code").out
    assert "Walruses" in judgekit("search", "walruses").out

"""A hook that was there before judgekit's works on: under its own name, with its neighbours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo, beside_origin

from judgekit.errors import UsageError
from judgekit.hooks import files, git_hook
from judgekit.hooks.git_hook import EARLIER_HOOK, HOOK, LINKS_FOLDER_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = beside_origin(tmp_path)
    work.commit()
    shutil.rmtree(hooks_of(work))
    hooks_of(work).mkdir()
    return work


def hooks_of(work: GitRepo) -> Path:
    return work.folder / ".git" / "hooks"


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def install(folder: Path) -> None:
    change = git_hook.plan_install(git_hook.choose_hooks("local", folder))
    files.install(change, is_program=True)


def uninstall(folder: Path) -> None:
    for change in git_hook.plan_uninstalls("local", folder):
        git_hook.uninstall(change)


def push(work: GitRepo) -> tuple[int, str]:
    done = work.run("push", "origin", "main:main", "--force")
    return done.returncode, done.stderr.decode()


EARLIER = {
    "its name": ('[ "$(basename "$0")" = pre-push ] && echo checked >&2',),
    "its name behind a link": (
        '[ "$(basename "$(readlink -f "$0")")" = pre-push ] && echo checked >&2',
    ),
    "a folder beside it": ('for each in "$0.d"/*; do "$each" "$@" || exit; done',),
    "a program beside it": ('"$(dirname "$0")/check" "$@"',),
    "a sourced file beside it": ('. "$(dirname "$0")/lib.sh"',),
    "a hidden file beside it": ('. "${0%/*}/.lib"',),
    "a file above it": ('. "$(dirname "$0")/../../tools/lib.sh"',),
    "the folder itself": ('cd "$(dirname "$0")" && ./check',),
    "its files by pattern": ('for each in "$0"-*; do "$each" || exit; done',),
    "what is read from stdin": ("read line && echo checked >&2",),
    "the remote's name": ('[ "$1" = origin ] && echo checked >&2',),
}


@pytest.mark.parametrize("lines", EARLIER.values(), ids=EARLIER)
def test_an_earlier_hook_finds_its_name_and_its_neighbours(
    work: GitRepo, lines: tuple[str, ...]
) -> None:
    hooks = hooks_of(work)
    write(hooks / HOOK, *lines)
    write(hooks / "check", "echo checked >&2")
    write(hooks / "pre-push-check", "echo checked >&2")
    write(hooks / "pre-push.d" / "10", "echo checked >&2")
    for library in (hooks / "lib.sh", hooks / ".lib", work.folder / "tools" / "lib.sh"):
        write(library, "echo checked >&2")
    assert "checked" in push(work)[1], "without judgekit"
    install(work.folder)
    work.commit()
    code, told = push(work)
    assert told.count("checked") == 1
    assert code == 0


@pytest.mark.parametrize("target", ["_dispatch", "../../tools/dispatch"])
def test_a_linked_dispatcher_is_called_by_the_hooks_name(work: GitRepo, target: str) -> None:
    dispatcher = hooks_of(work) / target
    write(dispatcher, '[ "${0##*/}" = pre-push ] || exit 64', "echo checked >&2")
    (hooks_of(work) / HOOK).symlink_to(target)
    install(work.folder)
    code, told = push(work)
    assert "checked" in told
    assert code == 0


def test_an_earlier_check_still_stops_a_push(work: GitRepo) -> None:
    write(hooks_of(work) / HOOK, 'for each in "$0.d"/*; do "$each" || exit 7; done')
    write(hooks_of(work) / "pre-push.d" / "10", "exit 1")
    install(work.folder)
    assert push(work)[0] == 1


def test_what_changes_beside_an_earlier_hook_counts_in_the_next_push(work: GitRepo) -> None:
    write(hooks_of(work) / HOOK, 'for each in "${0%/*}"/check-*; do "$each" || exit; done')
    write(hooks_of(work) / "check-one", "echo one >&2")
    install(work.folder)
    assert "one" in push(work)[1]
    (hooks_of(work) / "check-one").unlink()
    write(hooks_of(work) / "check-two", "echo two >&2")
    write(hooks_of(work) / EARLIER_HOOK, 'echo anew >&2; "${0%/*}/check-two"')
    told = push(work)[1]
    assert "anew" in told
    assert "two" in told


def test_where_no_folder_can_be_made_an_earlier_hook_finds_its_neighbours_too(
    work: GitRepo,
) -> None:
    hooks = hooks_of(work)
    write(hooks / HOOK, '[ "${0##*/}" = pre-push ] && "${0%/*}/check"')
    write(hooks / "check", "echo checked >&2")
    hooks.with_name(hooks.name + LINKS_FOLDER_SUFFIX).write_text("a file in its place")
    install(work.folder)
    assert "checked" in push(work)[1]


def test_hooks_in_the_project_leave_nothing_to_commit(work: GitRepo) -> None:
    write(work.folder / "tools" / "hooks" / HOOK, '"${0%/*}/check"')
    write(work.folder / "tools" / "hooks" / "check", "echo checked >&2")
    work.commit()
    work("config", "core.hooksPath", "tools/hooks")
    install(work.folder)
    assert "checked" in push(work)[1]
    uninstall(work.folder)
    assert work("status", "--porcelain") == ""


def test_a_path_of_hooks_may_end_with_slashes(work: GitRepo, tmp_path: Path) -> None:
    write(work.folder / "hooks" / HOOK, '"${0%/*}/check"')
    write(work.folder / "hooks" / "check", "echo checked >&2")
    work("config", "core.hooksPath", "hooks//")
    install(work.folder)
    assert "checked" in push(work)[1]
    assert (work.folder / f"hooks{LINKS_FOLDER_SUFFIX}").is_dir()
    uninstall(work.folder)
    assert not (work.folder / f"hooks{LINKS_FOLDER_SUFFIX}").exists()


def test_uninstalling_removes_the_links_and_nothing_else(work: GitRepo) -> None:
    hooks = hooks_of(work)
    write(hooks / HOOK, "echo checked >&2")
    before = (hooks / HOOK).read_bytes()
    install(work.folder)
    push(work)
    assert hooks.with_name(hooks.name + LINKS_FOLDER_SUFFIX).is_dir()
    uninstall(work.folder)
    assert not hooks.with_name(hooks.name + LINKS_FOLDER_SUFFIX).exists()
    assert (hooks / HOOK).read_bytes() == before
    assert [path.name for path in hooks.iterdir()] == [HOOK]


@pytest.mark.parametrize("name", [HOOK, "pre-push.legacy", "pre-push.old"])
def test_our_hook_is_found_by_any_name_that_a_program_gave_it(work: GitRepo, name: str) -> None:
    """pre-commit and lefthook keep a hook that they replace."""
    hooks = hooks_of(work)
    install(work.folder)
    (hooks / HOOK).rename(hooks / name)
    if name != HOOK:
        write(hooks / HOOK, "echo theirs")
    uninstall(work.folder)
    assert not (hooks / name).exists()
    assert (hooks / HOOK).exists() == (name != HOOK)


@pytest.mark.parametrize("path", ["tools/hooks", "/dev/null", "", "{shared}"])
def test_our_hook_is_found_if_another_folder_was_set_since(
    work: GitRepo, tmp_path: Path, path: str
) -> None:
    install(work.folder)
    work("config", "core.hooksPath", path.format(shared=tmp_path / "shared"))
    uninstall(work.folder)
    assert not (hooks_of(work) / HOOK).exists()


def test_a_shared_hook_is_named_and_stays(work: GitRepo, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    work("config", "core.hooksPath", str(shared))
    change = git_hook.plan_install(git_hook.choose_hooks("user", work.folder))
    files.install(change, is_program=True)
    with pytest.raises(UsageError, match="--scope user"):
        git_hook.plan_uninstalls("local", work.folder)
    assert (shared / HOOK).exists()


@pytest.mark.parametrize("path", ["", "/dev/null"])
def test_hooks_that_are_switched_off_are_said(work: GitRepo, path: str) -> None:
    work("config", "core.hooksPath", path)
    with pytest.raises(UsageError, match="git runs no hooks here; unset it"):
        git_hook.choose_hooks("local", work.folder)
    (finding,) = git_hook.check_git_hook(work.folder)
    assert "git runs no hooks here" in finding[2]
    assert not (work.folder / HOOK).exists()


LEFTHOOK = (
    "lefthook.yml",
    ".lefthook.yaml",
    "lefthook.toml",
    ".lefthook.json",
    ".config/lefthook.jsonc",
)


@pytest.mark.parametrize("name", [*LEFTHOOK, "lefthook-local.toml"])
def test_any_configuration_of_lefthook_is_known(work: GitRepo, name: str) -> None:
    work.write(name, "# nothing about judgekit\n")
    notes = list(git_hook.list_notes(git_hook.find_hooks(work.folder)))
    assert any(f"add the gate to {work.folder / name}" in note for note in notes)
    work.write(name, "run: judgekit gate --pre-push\n")
    assert not list(git_hook.list_notes(git_hook.find_hooks(work.folder)))


@pytest.mark.parametrize(
    ("head", "name", "lists"),
    [
        (
            "# File generated by pre-commit: https://pre-commit.com",
            ".pre-commit-config.yaml",
            "- id: {}",
        ),
        ("# File generated by prek", ".pre-commit-config.yml", "- id: {}"),
        ("# File generated by prek", "prek.toml", 'id = "{}"'),
        ("call_lefthook run", "lefthook.toml", 'run = "judgekit gate" # {}'),
    ],
)
def test_doctor_says_that_a_manager_runs_the_gate_only_if_it_lists_it(
    work: GitRepo, head: str, name: str, lists: str
) -> None:
    write(hooks_of(work) / HOOK, head)
    line = lists.format("judgekit-gate")
    states = []
    for content in (line, f"# {line}", ""):
        work.write(name, f"{content}\n")
        findings = list(git_hook.check_git_hook(work.folder))
        states.append(any("and runs the gate" in text for _, _, text in findings))
    assert states == [True, False, False]

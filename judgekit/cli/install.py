"""`judgekit install` and `judgekit uninstall`: judgekit in other programs' settings, and out again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from judgekit import environment
from judgekit.cli.output import say, warn
from judgekit.hooks.entries import Scope

if TYPE_CHECKING:
    from judgekit.hooks.files import FileChange

_ClientScope = Annotated[
    Scope,
    Option(
        help=(
            "Which settings file: user (all your projects), project (shared), or local (yours, this project)."
        )
    ),
]
_GitScope = Annotated[
    Scope,
    Option(help="local: this repository; user: the hooks folder shared by all your repositories."),
]
_Print = Annotated[bool, Option("--print", help="Print the result; change nothing.")]

installing = typer.Typer(no_args_is_help=True, help="Install judgekit in other programs.")
uninstalling = typer.Typer(no_args_is_help=True, help="Remove judgekit from other programs.")


@installing.command("git")
def install_git(scope: _GitScope = "local", print_: _Print = False) -> int:
    """Install the gate as git's pre-push hook in this repository."""
    from judgekit.hooks import git_hook

    place = git_hook.of_scope(scope, Path.cwd())
    change = git_hook.planned_change(place, installs=True)
    then = ": git runs the gate before a push"
    if not _installed(change, then, print_=print_, program=True):
        return 0
    kept = change.path.with_name(git_hook.KEPT)
    if kept.exists():
        runs = os.access(kept, os.X_OK)
        what = "runs first" if runs else "does not run, as before: it is not executable"
        say(f"the earlier hook {what}: {kept}")
    say(f"mode: {_mode()}; undo: judgekit uninstall git{' --scope user' if scope == 'user' else ''}")
    for note in git_hook.notes(place):
        warn(note)
    return 0


@uninstalling.command("git")
def uninstall_git(scope: _GitScope = "local", print_: _Print = False) -> int:
    """Remove the gate from git's hooks; an earlier hook is restored."""
    from judgekit.hooks import git_hook

    change = git_hook.planned_change(git_hook.of_scope(scope, Path.cwd()), installs=False)
    removed = f"{'put back' if change.aside else 'removed'} {change.path}"
    return _uninstalled(change, removed, "judgekit's hook", print_=print_)


@installing.command("pre-commit")
def install_pre_commit(print_: _Print = False) -> int:
    """Add the gate to this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    change = pre_commit.planned_change(_project(), installs=True)
    if _installed(change, print_=print_):
        say("run once in each clone: pre-commit install --hook-type pre-push")
    return 0


@uninstalling.command("pre-commit")
def uninstall_pre_commit(print_: _Print = False) -> int:
    """Remove the gate from this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    change = pre_commit.planned_change(_project(), installs=False)
    removed = f"removed {'the gate from ' if change.after else ''}{change.path}"
    return _uninstalled(change, removed, "the gate", print_=print_)


@installing.command("claude-code")
def install_claude_code(scope: _ClientScope = "user", print_: _Print = False) -> int:
    """Install the prompt hook in Claude Code."""
    from judgekit.hooks import install

    project = _project()
    change = install.planned_change(scope, project, installs=True)
    _say_project(scope, project)
    reach = {
        "user": "in all your projects",
        "project": f"of everyone in {project} with judgekit installed",
        "local": f"of yours in {project}",
    }[scope]
    then = f": Claude Code runs judgekit on every prompt {reach}"
    if not _installed(change, then, print_=print_):
        return 0
    say(_stores(project))
    say(f'try: judgekit hook --explain "…"; undo: judgekit uninstall claude-code --scope {scope}')
    for note in install.notes(scope, project):
        warn(note)
    return 0


@uninstalling.command("claude-code")
def uninstall_claude_code(scope: _ClientScope = "user", print_: _Print = False) -> int:
    """Remove the prompt hook from Claude Code's settings; everything else stays."""
    from judgekit.hooks import install

    project = _project()
    change = install.planned_change(scope, project, installs=False)
    _say_project(scope, project)
    removed = f"removed the hook from {change.path}"
    if change.after is None:
        removed = f"removed {change.path}, which held nothing else"
    return _uninstalled(change, removed, "the hook", print_=print_)


def _project() -> Path:
    return Path(environment.project_root())


def _installed(change: FileChange, then: str = "", *, print_: bool, program: bool = False) -> bool:
    """Make a change and say so; return False where it is printed only."""
    from judgekit.hooks import files

    if print_:
        return _show(change)
    files.install(change, program=program)
    say(f"{'wrote' if change.changes else 'nothing to change in'} {change.path}{then}")
    return True


def _uninstalled(change: FileChange, removed: str, what: str, *, print_: bool) -> int:
    from judgekit.hooks import files

    if print_:
        return _show(change)
    files.uninstall(change)
    say(removed if change.changes else f"nothing to change: {what} is not in {change.path}")
    return 0


def _show(change: FileChange) -> Literal[False]:
    """Print the file as it would be, and on stderr what would be done."""
    if change.changes:
        warn(f"would {'remove' if change.after is None else 'write'} {change.path}")
    else:
        warn(f"no {change.path}" if change.before is None else f"{change.path} would stay as it is")
    if change.after is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(change.after)
        sys.stdout.flush()
    return False


def _mode() -> str:
    from judgekit.config import settings
    from judgekit.errors import JudgekitError
    from judgekit.gate import policy
    from judgekit.git import Repository

    repository = Repository(Path.cwd())
    try:
        # The rules of the remote hold, not those of the working tree.
        commit = next(iter(policy.commits_of(repository, (), "origin")), None)
        with policy.rules(repository, commit) as folder:
            gate = settings.load(folder if commit else _project()).gate
    except JudgekitError as error:
        return f"unknown, {error}"
    return f"{gate.mode}, for {', '.join(gate.paths)}{' (the rules on origin)' if commit else ''}"


def _say_project(scope: Scope, project: Path) -> None:
    """Say which folder is taken as the project where nothing marks one."""
    if scope != "user" and not any((project / mark).exists() for mark in (".git", ".judgekit", ".claude")):
        warn(f"no project here (no .git, .judgekit or .claude/memory above): taking {project} as one")


def _stores(project: Path) -> str:
    from judgekit.config import settings
    from judgekit.errors import JudgekitError
    from judgekit.retrieval import search

    try:
        roots = [Path(search.resolve(root, str(project))) for root in settings.load(project).retrieval.roots]
    except JudgekitError as error:
        return f"memories: unknown, {error}"
    if stores := [str(root) for root in roots if root.is_dir()]:
        return f"memories: {', '.join(stores)}"
    wanted = ", ".join(map(str, roots))
    return f"memories: none in this project yet, so the hook adds nothing (it looks in {wanted})"

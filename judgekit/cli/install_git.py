"""`judgekit install git` and `pre-commit`, and out again: the gate where a push leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli import planned
from judgekit.cli.output import complain, say
from judgekit.install.scopes import Scope

_Scope = Annotated[
    Scope,
    typer.Option(help="local: this repository; user: the folder of hooks that all your repositories share."),
]
_Print = Annotated[bool, typer.Option("--print", help="Print what would be written; change nothing.")]


def install_git(scope: _Scope = "local", print_: _Print = False) -> int:
    """Let git ask the gate before every push from this repository."""
    from judgekit.install import git_hook, git_place, git_status

    place = git_place.of_scope(scope, Path.cwd())
    git_place.refuse_managed(place)
    change = git_hook.planned_install(place.hooks)
    if print_:
        return planned.show(change)
    git_hook.install(change)
    what = "wrote" if change.changes else "nothing to change in"
    say(f"{what} {change.path}: git asks the gate before a push")
    if change.kept.exists():
        runs = os.access(change.kept, os.X_OK)
        what = "runs first" if runs else "is not run, as it was not before: it lacks its run bit"
        say(f"the hook that was there {what}: {change.kept}")
    say(f"mode: {_mode()}; undo: judgekit uninstall git{' --scope user' if scope == 'user' else ''}")
    for note in git_status.notes(place):
        complain(note)
    return 0


def uninstall_git(scope: _Scope = "local", print_: _Print = False) -> int:
    """Take the gate out of git's hooks; a hook that was there before comes back as it was."""
    from judgekit.install import git_hook, git_place

    change = git_hook.planned_uninstall(git_place.of_scope(scope, Path.cwd()).hooks)
    if print_:
        return planned.show(change)
    git_hook.uninstall(change)
    if not change.changes:
        say(f"nothing to change: judgekit's hook is not in {change.path}")
    else:
        say(f"put back {change.path}" if change.moves else f"removed {change.path}")
    return 0


def install_pre_commit(print_: _Print = False) -> int:
    """Add the gate to this project's .pre-commit-config.yaml."""
    from judgekit.install import claude_code, pre_commit

    change = pre_commit.planned_install(claude_code.project_folder())
    if print_:
        return planned.show(change)
    pre_commit.write(change)
    say(f"{'wrote' if change.changes else 'nothing to change in'} {change.path}")
    say("each clone needs, once: pre-commit install --hook-type pre-push")
    return 0


def uninstall_pre_commit(print_: _Print = False) -> int:
    """Take the gate out of this project's .pre-commit-config.yaml."""
    from judgekit.install import claude_code, pre_commit

    change = pre_commit.planned_uninstall(claude_code.project_folder())
    if print_:
        return planned.show(change)
    pre_commit.write(change)
    if not change.changes:
        say(f"nothing to change: the gate is not in {change.path}")
    else:
        say(f"took the gate out of {change.path}" if change.after else f"removed {change.path}")
    return 0


def _mode() -> str:
    from judgekit import config
    from judgekit.errors import JudgekitError
    from judgekit.gate import policy
    from judgekit.gate.rules_commit import commits_of
    from judgekit.git import Repository
    from judgekit.install import claude_code

    repository = Repository(Path.cwd())
    try:
        # What the remote has holds, and not the working tree.
        commit = next(iter(commits_of(repository, (), "origin")), None)
        with policy.rules(repository, commit) as folder:
            gate = config.load(folder if commit else claude_code.project_folder()).gate
    except JudgekitError as error:
        return f"unknown, {error}"
    return f"{gate.mode}, for {', '.join(gate.paths)}{' (the rules on origin)' if commit else ''}"

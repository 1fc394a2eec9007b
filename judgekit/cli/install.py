"""`judgekit install` and `judgekit uninstall`: judgekit in other programs' settings, and out again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Option

from judgekit.cli.output import note, project_path, say
from judgekit.hooks import files, install
from judgekit.hooks.clients import CLIENTS, Client
from judgekit.hooks.entries import Scope
from judgekit.hooks.files import FileChange

_OF = Option(
    help="Settings of: user (all projects), project (shared), local (yours, this project)."
)
_ClientScope = Annotated[Scope, _OF]
_OF_TWO = Option(help="Settings of: user (all projects) or project (shared).")
_SharedScope = Annotated[Literal["user", "project"], _OF_TWO]
_GitScope = Annotated[
    Scope, Option(help="local: this repository; user: the hooks folder of all yours.")
]
_Print = Annotated[bool, Option("--print", help="Print the result; change nothing.")]

_Skill = Annotated[
    bool, Option("--skill", help="Add the skill by which the agent searches memories.")
]

installing = typer.Typer(no_args_is_help=True, help="Install judgekit in other programs.")
uninstalling = typer.Typer(no_args_is_help=True, help="Remove judgekit from other programs.")


@installing.command("git")
def install_git(scope: _GitScope = "local", print_: _Print = False) -> None:
    """Install the gate as git's pre-push hook in this repository."""
    from judgekit.hooks import git_hook

    place = git_hook.choose_hooks(scope, Path.cwd())
    change = git_hook.plan_install(place)
    if not _installed(change, ": git runs the gate before a push", print_=print_, program=True):
        return
    kept = change.path.with_name(git_hook.KEPT)
    if kept.exists():
        if os.access(kept, os.X_OK):
            what = "runs first"
        else:
            what = "does not run, as before: it is not executable"
        say(f"the earlier hook {what}: {kept}")
    say(f"undo: judgekit uninstall git{' --scope user' if scope == 'user' else ''}")
    note(*git_hook.list_notes(place))


@uninstalling.command("git")
def uninstall_git(scope: _GitScope = "local", print_: _Print = False) -> None:
    """Remove the gate from git's hooks; an earlier hook is restored."""
    from judgekit.hooks import git_hook

    change = git_hook.plan_uninstall(git_hook.choose_hooks(scope, Path.cwd()))
    removed = f"{'put back' if change.backup else 'removed'} {change.path}"
    _uninstall(change, removed, "judgekit's hook", print_=print_)


@installing.command("pre-commit")
def install_pre_commit(print_: _Print = False) -> None:
    """Add the gate to this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    change = pre_commit.plan_install(project_path())
    _installed(
        change, "\nrun once in each clone: pre-commit install --hook-type pre-push", print_=print_
    )


@uninstalling.command("pre-commit")
def uninstall_pre_commit(print_: _Print = False) -> None:
    """Remove the gate from this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    change = pre_commit.plan_uninstall(project_path())
    removed = f"removed {'the gate from ' if change.after else ''}{change.path}"
    _uninstall(change, removed, "the gate", print_=print_)


def _add(client: Client, scopes: Any) -> None:  # noqa: ANN401 - an annotation
    def add(scope: Any = "user", print_: _Print = False, skill: _Skill = False) -> None:  # noqa: ANN401 - `scopes`
        from judgekit.hooks import skill as skills

        project = project_path()
        change = install.plan_install(scope, project, client)
        reach = {"user": "in all your projects", "local": f"of yours in {project}"}
        of_all = f"of everyone in {project} with judgekit installed"
        effect = f": {client.title} runs judgekit on every prompt {reach.get(scope, of_all)}"
        if not _installed(change, effect, print_=print_):
            return
        if skill:
            _installed(
                skills.plan_install(scope, project, client),
                ": the agent knows how to search",
                print_=False,
            )
        elif not skills.place_of(scope, project, client).exists():
            add_it = f"judgekit install {client.command} --scope {scope} --skill"
            say(f"to let the agent search by itself, add the skill: {add_it}")
        notes = list(install.list_notes(project, client))
        if client.trust and not any(client.trust in line for line in notes):
            say(client.trust)
        say(
            f'try: judgekit hook --explain "…"; undo: judgekit uninstall {client.command} --scope {scope}'
        )
        note(*notes)

    def remove(scope: Any = "user", print_: _Print = False) -> None:  # noqa: ANN401 - `scopes`
        from judgekit.hooks import skill as skills

        change = install.plan_uninstall(scope, project_path(), client)
        removed = f"removed the hook from {change.path}"
        if change.after is None:
            removed = f"removed {change.path}, which held nothing else"
        _uninstall(change, removed, "the hook", print_=print_)
        of_skill = skills.plan_uninstall(scope, project_path(), client)
        if of_skill is not None:
            _uninstall(of_skill, f"removed {of_skill.path}", "the skill", print_=print_)

    add.__annotations__["scope"] = remove.__annotations__["scope"] = scopes
    installing.command(client.command, help=f"Install the prompt hook in {client.title}.")(add)
    help_ = f"Remove the prompt hook from {client.title}'s settings; everything else stays."
    uninstalling.command(client.command, help=help_)(remove)


for _client in CLIENTS:
    _add(_client, _ClientScope if "local" in _client.shared else _SharedScope)


def _installed(change: FileChange, effect: str, *, print_: bool, program: bool = False) -> bool:
    """Install as planned, and say so with the `effect`; or show the file, and return False."""
    if print_:
        _show(change)
    else:
        files.install(change, program=program)
        say(f"{'Wrote' if change.changes else 'nothing to change in'} {change.path}{effect}")
    return not print_


def _uninstall(change: FileChange, removed: str, what: str, *, print_: bool) -> None:
    if print_:
        _show(change)
    else:
        files.uninstall(change)
        say(removed if change.changes else f"nothing to change: {what} is not in {change.path}")


def _show(change: FileChange) -> None:
    """Print the file as it would be, and on stderr what would be done."""
    if change.changes:
        note(f"would {'remove' if change.after is None else 'write'} {change.path}")
    else:
        note(f"no {change.path}" if change.before is None else f"{change.path} would stay as it is")
    if change.after is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(change.after)
        sys.stdout.flush()

"""`judgekit install` and `judgekit uninstall`: adds judgekit to other programs' settings, and removes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from judgekit.cli.output import get_project_path, note, say
from judgekit.hooks import files, install
from judgekit.hooks.clients import CLIENTS, Client
from judgekit.hooks.entries import Scope
from judgekit.hooks.files import FileChange

if TYPE_CHECKING:
    from collections.abc import Callable

_OF = Option(
    help="Settings of: user (all projects), project (shared), local (yours, this project)."
)
_ClientScope = Annotated[Scope, _OF]
_OF_TWO = Option(help="Settings of: user (all projects) or project (shared).")
_SharedScope = Annotated[Literal["user", "project"], _OF_TWO]
_GitScope = Annotated[
    Scope, Option(help="local: this repository; user: the hooks folder of all yours.")
]
_Purge = Annotated[
    bool,
    Option("--purge", help="Also delete indexes, caches and the hook's logs, of all projects."),
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

    hooks_folder = git_hook.choose_hooks(scope, Path.cwd())
    change = git_hook.plan_install(hooks_folder)
    if print_:
        _print_plan(change)
        return

    _install(change, ": git runs the gate before a push", is_program=True)
    earlier_hook = change.path.with_name(git_hook.KEPT)
    if earlier_hook.exists():
        if os.access(earlier_hook, os.X_OK):
            effect = "runs first"
        else:
            effect = "does not run, as before: it is not executable"
        say(f"the earlier hook {effect}: {earlier_hook}")

    say(f"undo: judgekit uninstall git{' --scope user' if scope == 'user' else ''}")
    note(*git_hook.list_notes(hooks_folder))


@uninstalling.command("git")
def uninstall_git(
    scope: _GitScope = "local", print_: _Print = False, purge: _Purge = False
) -> None:
    """Remove the gate from git's hooks; an earlier hook is restored."""
    from judgekit.hooks import git_hook

    for change in git_hook.plan_uninstalls(scope, Path.cwd()):
        outcome = f"removed {change.path}"
        if change.backup:  # the hook that ours replaced is restored
            outcome = f"put back {change.path}"
        _uninstall(change, outcome, "judgekit's hook", print_=print_, carry_out=git_hook.uninstall)
    note(*git_hook.list_other_callers(Path.cwd()))
    _report_remains("git", purge=purge, print_=print_)


@installing.command("pre-commit")
def install_pre_commit(print_: _Print = False) -> None:
    """Add the gate to this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    project = get_project_path()
    if print_ and pre_commit.is_for_prek(project):
        say(pre_commit.PREK_ITEM)
        return

    change = pre_commit.plan_install(project)
    if print_:
        _print_plan(change)
        return

    _install(change, "\nrun once in each clone: pre-commit install --hook-type pre-push")
    toml = project / pre_commit.PREK_FILE
    if toml.exists() and toml != change.path:
        note(f"prek reads {toml} instead; add to it:\n{pre_commit.PREK_ITEM}")


@uninstalling.command("pre-commit")
def uninstall_pre_commit(print_: _Print = False, purge: _Purge = False) -> None:
    """Remove the gate from this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    change = pre_commit.plan_uninstall(get_project_path())
    removed = f"removed {change.path}"
    if change.after:  # the file contains other hooks
        removed = f"removed the gate from {change.path}"
    _uninstall(change, removed, "the gate", print_=print_)
    _report_remains("pre-commit", purge=purge, print_=print_)


def _add_commands(client: Client, scopes: Any) -> None:  # noqa: ANN401 - an annotation
    """Add the commands that install and remove a client's prompt hook. `scopes` annotates their option."""

    def install_hook(scope: Any = "user", print_: _Print = False, skill: _Skill = False) -> None:  # noqa: ANN401 - `scopes`
        _install_client(client, scope, print_=print_, with_skill=skill)

    def remove_hook(scope: Any = "user", print_: _Print = False, purge: _Purge = False) -> None:  # noqa: ANN401 - `scopes`
        _uninstall_client(client, scope, print_=print_)
        _report_remains(client.command, purge=purge, print_=print_)

    # typer takes an option's choices from the annotation.
    install_hook.__annotations__["scope"] = scopes
    remove_hook.__annotations__["scope"] = scopes
    installing.command(client.command, help=f"Install the prompt hook in {client.title}.")(
        install_hook
    )
    help_ = f"Remove the prompt hook from {client.title}'s settings; everything else stays."
    uninstalling.command(client.command, help=help_)(remove_hook)


def _install_client(client: Client, scope: Scope, *, print_: bool, with_skill: bool) -> None:
    """Install the prompt hook in a client's settings and describe the effect, or only print the plan."""
    from judgekit.hooks import skill as skills
    from judgekit.hooks import stores

    project = get_project_path()
    change = install.plan_install(scope, project, client)
    if print_:
        _print_plan(change)
        return

    files.install(change)
    effect = f"{client.title} runs judgekit on every prompt {_describe_reach(scope, project)}"
    if any(install.list_obstacles(project, client)):
        effect = f"{client.title} doesn't run it yet, see below"
    say(f"{_describe_writing(change)}: {effect}")

    for store_line in stores.describe_stores(str(project)):
        say(store_line)

    if with_skill:
        skill_change = skills.plan_install(scope, project, client)
        _install(skill_change, ": the agent knows how to search")
    elif not skills.get_skill_path(scope, project, client).exists():
        command = f"judgekit install {client.command} --scope {scope} --skill"
        say(f"to let the agent search by itself, add the skill: {command}")

    notes = list(install.list_notes(project, client))
    if client.trust and not any(client.trust in store_line for store_line in notes):
        say(client.trust)

    # Say how to go on.
    undo = f"judgekit uninstall {client.command} --scope {scope}"
    say(f'try: judgekit hook --explain "…"; undo: {undo}')
    note(*notes)


def _describe_reach(scope: Scope, project: Path) -> str:
    """Describe whose prompts a hook in this scope's settings receives."""
    if scope == "user":
        return "in all your projects"
    if scope == "local":
        return f"of yours in {project}"
    return f"of everyone in {project} with judgekit installed"


def _uninstall_client(client: Client, scope: Scope, *, print_: bool) -> None:
    """Remove the prompt hook and skill from a client's settings, or only print the plan."""
    from judgekit.hooks import skill as skills

    project = get_project_path()
    change = install.plan_uninstall(scope, project, client)
    removed = f"removed the hook from {change.path}"
    if change.after is None:
        removed = f"removed {change.path}, which held nothing else"
    _uninstall(change, removed, "the hook", print_=print_)

    # Only a skill that wasn't edited is removed.
    skill_path = skills.get_skill_path(scope, project, client)
    skill_change = skills.plan_uninstall(scope, project, client)
    if skill_change is not None:
        _uninstall(skill_change, f"removed {skill_change.path}", "the skill", print_=print_)
    elif skill_path.exists():
        note(f"{skill_path} stays: judgekit did not write it so")

    if not print_:
        note(*install.list_left_hooks(project, client))


for _client in CLIENTS:
    _add_commands(_client, _ClientScope if "local" in _client.shared else _SharedScope)


def _install(change: FileChange, effect: str, *, is_program: bool = False) -> None:
    """Carry out a planned installation, and print its `effect`."""
    files.install(change, is_program=is_program)
    say(f"{_describe_writing(change)}{effect}")


def _describe_writing(change: FileChange) -> str:
    """Describe that a file was written, or that nothing had to change."""
    if change.changes:
        return f"Wrote {change.path}"
    return f"nothing to change in {change.path}"


def _uninstall(
    change: FileChange,
    removed: str,
    what: str,
    *,
    print_: bool,
    carry_out: Callable[[FileChange], None] = files.uninstall,
) -> None:
    """Carry out a planned removal, or only print the plan.

    `removed` is printed afterwards. `what` names the thing, in case it wasn't there.
    """
    if print_:
        _print_plan(change)
        return
    carry_out(change)
    say(removed if change.changes else f"nothing to change: {what} is not in {change.path}")


def _report_remains(command: str, *, purge: bool, print_: bool) -> None:
    """List the data that judgekit keeps on this machine, and if `purge`, delete it.

    `command` is the client in the suggested uninstall command.
    """
    from judgekit.engine import process
    from judgekit.hooks import remains

    all_remains = remains.find_remains()
    if purge and not print_:
        # Running engines would write some of the files again.
        for engine in process.running():
            process.stop(engine, at_once=False)
        remains.purge(all_remains)

    for remain in all_remains:
        if not purge:
            note(f"stays: {remain.describe()}")
        elif not remain.is_purged:
            note(f"stays, because it can't be made again: {remain.describe()}")
        elif print_:
            note(f"would delete {remain.describe()}")
        else:
            say(f"deleted {remain.describe()}")

    if not purge and any(remain.is_purged for remain in all_remains):
        note(f"judgekit uninstall {command} --purge deletes what can be made again, and logs")


def _print_plan(change: FileChange) -> None:
    """Print the file's planned content to stdout, and the action to stderr."""
    if change.changes:
        verb = "remove" if change.after is None else "write"
        note(f"would {verb} {change.path}")
    elif change.before is None:
        note(f"no {change.path}")
    else:
        note(f"{change.path} would stay as it is")

    if change.after is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(change.after)
        sys.stdout.flush()

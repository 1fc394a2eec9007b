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
    from collections.abc import Callable, Sequence

    from judgekit.hooks.remains import Remain

_CLIENT_SCOPE_OPTION = Option(
    help="Settings of: user (all projects), project (shared), local (yours, this project)."
)
_ClientScope = Annotated[Scope, _CLIENT_SCOPE_OPTION]
_SHARED_SCOPE_OPTION = Option(help="Settings of: user (all projects) or project (shared).")
_SharedScope = Annotated[Literal["user", "project"], _SHARED_SCOPE_OPTION]
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
    earlier_hook = change.path.with_name(git_hook.EARLIER_HOOK)
    if earlier_hook.exists():
        _say_earlier_hook(earlier_hook)
    scope_option = " --scope user" if scope == "user" else ""
    say(f"undo: judgekit uninstall git{scope_option}")
    note(*git_hook.list_notes(hooks_folder))


def _say_earlier_hook(earlier_hook: Path) -> None:
    """Print whether the hook that ours replaced still runs."""
    is_executable = os.access(earlier_hook, os.X_OK)
    effect = "runs first" if is_executable else "does not run, as before: it is not executable"
    say(f"the earlier hook {effect}: {earlier_hook}")


@uninstalling.command("git")
def uninstall_git(
    scope: _GitScope = "local", print_: _Print = False, purge: _Purge = False
) -> None:
    """Remove the gate from git's hooks; an earlier hook is restored."""
    from judgekit.hooks import git_hook

    for change in git_hook.plan_uninstalls(scope, Path.cwd()):
        restores_earlier_hook = change.backup_path is not None
        outcome = f"put back {change.path}" if restores_earlier_hook else f"removed {change.path}"
        _uninstall(change, outcome, "judgekit's hook", print_=print_, carry_out=git_hook.uninstall)

    # Other programs, such as husky or pre-commit, can still run the gate. This doesn't change their files.
    note(*git_hook.list_other_callers(Path.cwd()))
    _report_remains("git", purge=purge, print_=print_)


@installing.command("pre-commit")
def install_pre_commit(print_: _Print = False) -> None:
    """Add the gate to this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    project = get_project_path()
    if print_:
        _print_pre_commit_plan(project)
        return

    change = pre_commit.plan_install(project)
    _install(change, "\nrun once in each clone: pre-commit install --hook-type pre-push")
    prek_file = project / pre_commit.PREK_FILE
    is_other_file = prek_file != change.path
    if is_other_file and prek_file.exists():
        note(f"prek reads {prek_file} instead; add to it:\n{pre_commit.PREK_ITEM}")


def _print_pre_commit_plan(project: Path) -> None:
    """Print the planned configuration file, or for prek, the lines to add to its own file.

    prek is another program that runs pre-commit's hooks. judgekit doesn't edit its file.
    """
    from judgekit.hooks import pre_commit

    if pre_commit.is_for_prek(project):
        say(pre_commit.PREK_ITEM)
    else:
        _print_plan(pre_commit.plan_install(project))


@uninstalling.command("pre-commit")
def uninstall_pre_commit(print_: _Print = False, purge: _Purge = False) -> None:
    """Remove the gate from this project's .pre-commit-config.yaml."""
    from judgekit.hooks import pre_commit

    change = pre_commit.plan_uninstall(get_project_path())
    has_other_hooks = bool(change.after)
    outcome = (
        f"removed the gate from {change.path}" if has_other_hooks else f"removed {change.path}"
    )
    _uninstall(change, outcome, "the gate", print_=print_)
    _report_remains("pre-commit", purge=purge, print_=print_)


def _add_commands(client: Client, scopes: Any) -> None:  # noqa: ANN401 - any annotation is allowed
    """Add the commands that install and remove a client's prompt hook.

    `scopes` is a type annotation that lists the scopes of this client, for the --scope option.
    """

    # `Any` is replaced by `scopes` below.
    def install_hook(scope: Any = "user", print_: _Print = False, skill: _Skill = False) -> None:  # noqa: ANN401
        _install_client(client, scope, print_=print_, with_skill=skill)

    def remove_hook(scope: Any = "user", print_: _Print = False, purge: _Purge = False) -> None:  # noqa: ANN401
        _uninstall_client(client, scope, print_=print_)
        _report_remains(client.command, purge=purge, print_=print_)

    # typer reads an option's choices from its annotation.
    install_hook.__annotations__["scope"] = scopes
    remove_hook.__annotations__["scope"] = scopes

    install_help = f"Install the prompt hook in {client.title}."
    add_install = installing.command(client.command, help=install_help)
    add_install(install_hook)
    remove_help = f"Remove the prompt hook from {client.title}'s settings; everything else stays."
    add_remove = uninstalling.command(client.command, help=remove_help)
    add_remove(remove_hook)


def _install_client(client: Client, scope: Scope, *, print_: bool, with_skill: bool) -> None:
    """Install the prompt hook in a client's settings and print the effect, or only print the plan."""
    from judgekit.hooks import stores

    project = get_project_path()
    change = install.plan_install(scope, project, client)
    if print_:
        _print_plan(change)
        return

    files.install(change)
    say(f"{_describe_writing(change)}: {_describe_effect(client, scope, project)}")
    # The stores are the folders of memories that the hook reads.
    for store_line in stores.describe_stores(str(project)):
        say(store_line)
    _install_or_offer_skill(client, scope, project, with_skill=with_skill)

    # The notes may already say how to trust the hook.
    notes = list(install.list_notes(project, client))
    _say_trust(client, notes)
    undo = f"judgekit uninstall {client.command} --scope {scope}"
    say(f'try: judgekit hook --explain "…"; undo: {undo}')
    note(*notes)


def _describe_effect(client: Client, scope: Scope, project: Path) -> str:
    """Describe whose prompts are answered from now on, or that a setting prevents it."""
    if any(install.list_obstacles(project, client)):
        return f"{client.title} doesn't run it yet, see below"
    return f"{client.title} runs judgekit on every prompt {_describe_reach(scope, project)}"


def _describe_reach(scope: Scope, project: Path) -> str:
    """Describe whose prompts a hook in this scope receives, as words to follow "every prompt"."""
    if scope == "user":
        return "in all your projects"
    if scope == "local":
        return f"of yours in {project}"
    return f"of everyone in {project} with judgekit installed"


def _install_or_offer_skill(
    client: Client, scope: Scope, project: Path, *, with_skill: bool
) -> None:
    """Install the skill for searching. If it's neither wanted nor there, print the command for it."""
    from judgekit.hooks import skill as skills

    if with_skill:
        change = skills.plan_install(scope, project, client)
        # The text is appended to the line about what was installed.
        _install(change, ": the agent knows how to search")
        return

    has_skill = skills.get_skill_path(scope, project, client).exists()
    if not has_skill:
        command = f"judgekit install {client.command} --scope {scope} --skill"
        say(f"to let the agent search by itself, add the skill: {command}")


def _say_trust(client: Client, notes: Sequence[str]) -> None:
    """Print what a person must do before the client runs a new hook, unless the notes say it."""
    if not client.trust:  # then a person needn't do anything
        return
    is_in_notes = any(client.trust in line for line in notes)
    if not is_in_notes:
        say(client.trust)


def _uninstall_client(client: Client, scope: Scope, *, print_: bool) -> None:
    """Remove the prompt hook and skill from a client's settings, or only print the plan."""
    project = get_project_path()
    change = install.plan_uninstall(scope, project, client)
    outcome = f"removed the hook from {change.path}"
    if change.after is None:  # the file is deleted
        outcome = f"removed {change.path}, which held nothing else"
    _uninstall(change, outcome, "the hook", print_=print_)

    _uninstall_skill(client, scope, project, print_=print_)
    if not print_:
        note(*install.list_left_hooks(project, client))


def _uninstall_skill(client: Client, scope: Scope, project: Path, *, print_: bool) -> None:
    """Remove a client's skill, or only print the plan. A skill that was edited stays."""
    from judgekit.hooks import skill as skills

    path = skills.get_skill_path(scope, project, client)
    change = skills.plan_uninstall(scope, project, client)
    if change is not None:
        _uninstall(change, f"removed {change.path}", "the skill", print_=print_)
    elif path.exists():
        note(f"{path} stays: judgekit did not write it so")


for _client in CLIENTS:
    _add_commands(_client, _ClientScope if "local" in _client.shared else _SharedScope)


def _install(change: FileChange, effect: str, *, is_program: bool = False) -> None:
    """Carry out a planned installation, and print its `effect`."""
    files.install(change, is_program=is_program)
    say(f"{_describe_writing(change)}{effect}")


def _describe_writing(change: FileChange) -> str:
    """Describe that a file was written, or that nothing had to change."""
    if change.has_changes:
        return f"Wrote {change.path}"
    return f"nothing to change in {change.path}"


def _uninstall(
    change: FileChange,
    outcome: str,
    what: str,
    *,
    print_: bool,
    carry_out: Callable[[FileChange], None] = files.uninstall,
) -> None:
    """Carry out a planned removal, or only print the plan.

    `outcome` is printed afterwards. `what` names the thing, in case it wasn't there.
    """
    if print_:
        _print_plan(change)
        return

    carry_out(change)
    if change.has_changes:
        say(outcome)
    else:
        say(f"nothing to change: {what} is not in {change.path}")


def _report_remains(command: str, *, purge: bool, print_: bool) -> None:
    """Print what judgekit keeps on this machine. With `purge`, delete logs and what can be made again.

    With `print_`, nothing is deleted. `command` is the client's name on the command line.
    """
    from judgekit.hooks import remains

    all_remains = remains.find_remains()
    if not purge:
        _note_remains(all_remains, command)
        return

    if not print_:
        _delete_remains(all_remains)
    for remain in all_remains:
        _report_purge(remain, print_=print_)


def _note_remains(all_remains: Sequence[Remain], command: str) -> None:
    """Print what stays, and the command that would delete it."""
    for remain in all_remains:
        note(f"stays: {remain.describe()}")
    if any(remain.is_purged for remain in all_remains):
        note(f"judgekit uninstall {command} --purge deletes what can be made again, and logs")


def _delete_remains(all_remains: list[Remain]) -> None:
    """Stop the engines, then delete those remains that are logs or can be made again."""
    from judgekit.engine import process
    from judgekit.hooks import remains

    # Running engines would write some of the files again.
    for engine in process.list_running_engines():
        process.stop(engine, at_once=False)
    remains.purge(all_remains)  # skips the others


def _report_purge(remain: Remain, *, print_: bool) -> None:
    """Print that something was deleted, that it stays, or with `print_`, that it would be deleted."""
    if not remain.is_purged:  # --purge never deletes it
        note(f"stays, because it can't be made again: {remain.describe()}")
    elif print_:
        note(f"would delete {remain.describe()}")
    else:
        say(f"deleted {remain.describe()}")


def _print_plan(change: FileChange) -> None:
    """Print the file's planned content to stdout, and the action to stderr."""
    note(_describe_action(change))
    if change.after is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(change.after)
        sys.stdout.flush()


def _describe_action(change: FileChange) -> str:
    """Describe what a change would do to its file."""
    exists_before = change.before is not None
    exists_after = change.after is not None
    if change.has_changes:
        return f"would write {change.path}" if exists_after else f"would remove {change.path}"
    if exists_before:
        return f"{change.path} would stay as it is"
    return f"no {change.path}"

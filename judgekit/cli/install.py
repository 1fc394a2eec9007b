"""`judgekit install` and `judgekit uninstall`: judgekit in other programs' settings, and out again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli import install_git, planned
from judgekit.cli.output import complain, say
from judgekit.install.scopes import Scope

installing = typer.Typer(no_args_is_help=True, help="Set judgekit up in other programs.")
uninstalling = typer.Typer(no_args_is_help=True, help="Take judgekit out of other programs again.")
installing.command("git")(install_git.install_git)
installing.command("pre-commit")(install_git.install_pre_commit)
uninstalling.command("git")(install_git.uninstall_git)
uninstalling.command("pre-commit")(install_git.uninstall_pre_commit)

_Scope = Annotated[
    Scope,
    typer.Option(help="Whose settings: yours, the project's shared ones, or yours for this project."),
]
_Print = Annotated[bool, typer.Option("--print", help="Print what would be written; change nothing.")]


@installing.command("claude-code")
def install_claude_code(scope: _Scope = "user", print_: _Print = False) -> int:
    """Let Claude Code ask the prompt hook on every prompt."""
    from judgekit.install import claude_code, surroundings

    project = claude_code.project_folder()
    change = claude_code.planned_install(scope, project)
    _say_project(scope, project)
    if print_:
        return planned.show(change)
    claude_code.install(change)
    what = "wrote" if change.changes else "nothing to change in"
    say(f"{what} {change.path}: Claude Code asks judgekit on every prompt {_reach(scope, project)}")
    say(_store(project))
    say(f'try: judgekit hook --explain "…"; undo: judgekit uninstall claude-code --scope {scope}')
    for note in surroundings.notes(scope, project):
        complain(note)
    return 0


@uninstalling.command("claude-code")
def uninstall_claude_code(scope: _Scope = "user", print_: _Print = False) -> int:
    """Take the prompt hook out of Claude Code's settings; all else in them stays as it is."""
    from judgekit.install import claude_code

    project = claude_code.project_folder()
    change = claude_code.planned_uninstall(scope, project)
    _say_project(scope, project)
    if print_:
        return planned.show(change)
    claude_code.uninstall(change)
    if not change.changes:
        say(f"nothing to change: the hook is not in {change.path}")
    elif change.after is None:
        say(f"removed {change.path}, which held nothing else")
    else:
        say(f"took the hook out of {change.path}")
    return 0


def _reach(scope: Scope, project: Path) -> str:
    return {
        "user": "in all your projects",
        "project": f"of everyone who works in {project} and has judgekit",
        "local": f"of yours in {project}",
    }[scope]


def _say_project(scope: Scope, project: Path) -> None:
    """Say which folder is taken as the project where nothing marks one."""
    if scope != "user" and not any((project / mark).exists() for mark in (".git", ".judgekit", ".claude")):
        complain(f"no project here (no .git, .judgekit or .claude/memory above): taking {project} as one")


def _store(project: Path) -> str:
    from judgekit import config
    from judgekit.errors import JudgekitError
    from judgekit.retrieval import api

    try:
        roots = [Path(api.resolve(root, str(project))) for root in config.load(project).retrieval.roots]
    except JudgekitError as error:
        return f"memories: unknown, {error}"
    found = [str(root) for root in roots if root.is_dir()]
    if not found:
        wanted = ", ".join(map(str, roots))
        return f"memories: none in this project yet, the hook stays silent here (it looks in {wanted})"
    return f"memories: {', '.join(found)}"

"""`judgekit rubric new`: begin a rubric of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from judgekit import paths
from judgekit.cli.output import complain, say
from judgekit.errors import UsageError


def new(
    name: Annotated[
        str, typer.Argument(metavar="ID[@VERSION]", help="Its name; version 1.0.0, if none is given.")
    ],
    like: Annotated[
        str | None,
        typer.Option("--from", metavar="ID[@VERSION]|FILE", help="Copy this rubric and its cases."),
    ] = None,
    task: Annotated[
        Literal["score", "select", "compare"] | None,
        typer.Option(
            help="Rate documents (score, the default), choose memories (select), or compare two texts."
        ),
    ] = None,
    user: Annotated[
        bool, typer.Option("--user", help="Into your own folder instead of the project's .judgekit/rubrics.")
    ] = False,
) -> int:
    """Write a commented rubric to be changed, and labelled cases beside it; overwrites nothing."""
    from judgekit import library
    from judgekit.workshop.starter import begin

    if like is not None and task is not None:
        raise UsageError("--from copies a rubric with its task; leave --task out")
    project = Path(paths.project_root(str(Path.cwd())))
    folder = Path(paths.config_home()) / "rubrics" if user else project / ".judgekit" / "rubrics"
    source = library.find_rubric(like, project) if like is not None else None
    begun = begin(name, folder, task=task or "score", like=source)
    for path in begun:
        say(str(path))
    complain(f"change both, then: judgekit rubric check {begun.rubric.stem}")
    return 0

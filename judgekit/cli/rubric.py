"""`judgekit rubric`: list, show and find rubrics; check, compare and begin them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import paths
from judgekit.cli import rubric_check, rubric_diff, rubric_new
from judgekit.cli.judge import Mode
from judgekit.cli.output import complain, say
from judgekit.errors import ConfigError, Exit

if TYPE_CHECKING:
    from judgekit.library import LoadedRubric
    from judgekit.shelf import Head, Origin

app = typer.Typer(no_args_is_help=True, help="The rubrics: what good means, as versioned data.")
Reference = Annotated[str, typer.Argument(metavar="ID[@VERSION]|FILE", help="Which rubric.")]


@app.command("list")
def list_() -> int:
    """Print every rubric that can be used here, and where it comes from."""
    from judgekit import shelf

    code = Exit.ACCEPTED
    for origin, path in shelf.rubric_files(_project()):
        try:
            head = shelf.head(path) or _head(path, origin)
        except ConfigError as error:
            complain(str(error))
            code = Exit.BAD_CONFIG
        else:
            say(f"{head.ref:<28} {head.task:<7} {origin:<8} {head.title}")
    return code


def _head(path: Path, origin: Origin) -> Head:
    """Return the head of a rubric of one's own, which is read whole to see whether it is sound."""
    from judgekit.library import load_rubric
    from judgekit.shelf import Head

    rubric = load_rubric(path, origin).rubric
    return Head(rubric.ref, rubric.task, rubric.title)


@app.command()
def show(
    reference: Reference,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Only the text that a judge follows, for one mode.")
    ] = False,
    mode: Annotated[Mode, typer.Option(help="The mode of --prompt.")] = "strict",
) -> int:
    """Print a rubric."""
    found = _find(reference)
    if prompt:
        from judgekit.prompt import rubric_text

        say(rubric_text(found.rubric, mode))
    else:
        say(found.path.read_text(encoding="utf-8").rstrip())
    return 0


@app.command()
def path(reference: Reference) -> int:
    """Print the file that a reference leads to."""
    say(str(_find(reference).path))
    return 0


app.command("check")(rubric_check.check)
app.command("diff")(rubric_diff.diff)
app.command("new")(rubric_new.new)


def _find(reference: str) -> LoadedRubric:
    from judgekit import library

    return library.find_rubric(reference, _project())


def _project() -> Path:
    return Path(paths.project_root(str(Path.cwd())))

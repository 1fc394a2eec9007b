"""`judgekit ledger`: take lines out of the ledger, bring lines in, remove old ones."""

from __future__ import annotations

import enum
import os
import tempfile
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.output import emit, kept, say, warn
from judgekit.errors import Exit, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.judging.shared import Shared
    from judgekit.ledger import Damage, Ledger

_NAMED = 5  # ledgers, where a name is wrong

_MOST_SAID = 10  # lines of a file that is perhaps none of a ledger

app = typer.Typer(no_args_is_help=True, help="The ledger: every verdict, and what people said about it.")

Project = Annotated[
    str | None, typer.Option(metavar="NAME", help="A project's ledger, by name; `all` for all of them.")
]
Since = Annotated[str | None, typer.Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")]
Team = Annotated[bool, typer.Option("--team", help="Read the ledger of the shared judge instead.")]
Ledgers = Annotated[
    list[Path] | None,
    typer.Option("--ledger", metavar="DIR", help="Read this folder or file instead; repeat for several."),
]


class LineFormat(enum.StrEnum):
    """How lines are written."""

    JSONL = "jsonl"
    CSV = "csv"


@app.command()
def export(
    since: Since = None,
    project: Project = "all",
    format_: Annotated[
        LineFormat, typer.Option("--format", help="Lines as they are, or a table.")
    ] = LineFormat.JSONL,
    ledger: Ledgers = None,
) -> int:
    """Print the lines of the ledger, oldest day first; as CSV the verdicts with their labels."""
    from judgekit.ledger import LineFilter, store
    from judgekit.ledger.export import rows
    from judgekit.ledger.store import point

    wanted = LineFilter(since=point(since) if since else None, project=named(project))
    read_lines = store.entries(places(ledger, project or "all"), wanted, damaged)
    if format_ is LineFormat.JSONL:
        for read_line in read_lines:
            emit(read_line.raw.decode())
    else:
        for row in rows(line.record for line in read_lines):
            emit(row)
    return 0


@app.command("import")
def import_(
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR...", help="JSON lines, or folders of *.jsonl files.")
    ],
) -> int:
    """Add the lines of other ledgers, and verdicts of older judges, that are not here yet.

    Exit code 65 when a line cannot be read; the others are added.
    """
    from judgekit.config import settings
    from judgekit.ledger import importing, store

    for source in sources:
        if not store.exists(source):
            raise InputError(f"{source}: no such file or folder")
    if not store.files(sources):
        store.files(sources, damaged)
        raise InputError(f"{', '.join(map(str, sources))}: no *.jsonl file there; name one or its folder")
    with kept(lambda: "lines that were added stay; import them again for the rest"):
        done = importing.bring(here(), sources, text=settings.load(None).ledger.text)
    for line in done.damaged[:_MOST_SAID]:
        warn(str(line))
    if unsaid := done.damaged[_MOST_SAID:]:
        warn(f"and {len(unsaid)} more lines that cannot be read; are these ledgers?")
    known = f", {done.known} were there already" if done.known else ""
    say(f"{done.added} lines added to {here().folder}{known}")
    return Exit.BAD_INPUT if done.damaged else 0


@app.command()
def purge(
    before: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Remove what is older: 90d, or a date.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Remove every line, today's too.")] = False,
    project: Project = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Remove the lines of all earlier days, and later labels of the verdicts among them; or every line."""
    from judgekit.ledger import labels, store
    from judgekit.ledger import store as projects

    day = _day(before, everything=all_)
    if project not in (None, "all"):
        check(project)
    wanted = here().name if project is None else named(project)
    home = projects.home()
    folders = sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    chosen = [folder for folder in folders if wanted is None or projects.same_project(folder.name, wanted)]
    counts = {path: store.old_lines(path, day) for path in chosen}
    full = {folder: count for folder, count in counts.items() if count}
    for folder, count in full.items():
        say(f"{folder.name}: {', '.join(f'{number} {kind}' for kind, number in sorted(count.items()))}")
    if not full:
        say("the ledger is empty" if all_ else f"nothing is older than {day}")
        return 0
    if not yes:
        if not labels.at_terminal():
            raise UsageError("nobody is here to be asked; add --yes to remove these lines")
        of = "" if all_ else f" of days before {day}"
        typer.confirm(f"Remove these lines{of}?", abort=True, err=True)
    for folder in full:
        store.purge(folder, day)
    say(f"removed {sum(sum(count.values()) for count in full.values())} lines")
    return 0


@app.command()
def forward() -> int:
    """Send the shared judge the lines of this project's ledger that it does not have yet."""
    from judgekit.ledger.export import forward

    done = forward(here(), team().send)
    for remark in done.remarks:
        warn(remark)
    say(f"{done.lines} lines sent")
    return 0


def _day(before: str | None, *, everything: bool) -> date:
    """Return the day before which all is removed; raises `UsageError` unless one thing is asked for."""
    from judgekit.ledger.store import point

    if (before is None) != everything:
        raise UsageError("say what to remove: --before WHEN, or --all")
    return date.max if before is None else point(before).date()


def here() -> Ledger:
    """Return the ledger of the project around the current folder."""
    from judgekit.ledger import Ledger

    return Ledger.of(Path.cwd())


def team() -> Shared:
    """Return the shared judge of the user's configuration; raises `UsageError` when it names none."""
    from judgekit.config import settings
    from judgekit.judging import shared

    found = shared.configured(settings.load(None))
    if found is None:
        raise UsageError("no shared judge is set up; server.url in your own configuration names it")
    return found


@contextmanager
def read_from(
    ledgers: list[Path] | None, project: str | None, since: str, *, of_team: bool
) -> Iterator[list[Path]]:
    """Yield the files and folders to read, as `places` does; with `of_team` the team's lines `since` then."""
    if not of_team:
        yield places(ledgers, project)
        return
    if ledgers:
        raise UsageError("--team and --ledger exclude each other")
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        fetched = Path(folder) / "team.jsonl"
        team().fetch(since, "all" if project is None else project, fetched)
        yield [fetched]


def named(project: str | None) -> str | None:
    """Return a project's name as a filter: `all` is none."""
    return None if project == "all" else project


def places(ledgers: list[Path] | None, project: str | None = "all") -> list[Path]:
    """Return the files and folders to read: those given, else one project's or all that this user has.

    Raises `InputError` for one that is not there, `UsageError` for a project without a ledger.
    """
    from judgekit.ledger import store
    from judgekit.ledger import store as projects

    for ledger in ledgers or ():
        if not store.exists(ledger):
            raise InputError(f"{ledger}: no such file or folder")
    if ledgers:
        return ledgers
    if project is None:
        own = here().folder
        return [own] if store.exists(own) else []
    if project != "all":
        check(project)
    return [projects.home()] if store.exists(projects.home()) else []


def check(project: str) -> None:
    """Raise `UsageError` when no ledger of this user is that project's."""
    from judgekit.ledger import store as projects

    home = projects.home()
    known = sorted(os.listdir(home)) if home.is_dir() else []  # noqa: PTH208 - names alone
    if not any(projects.same_project(each, project) for each in known):
        names = ", ".join([*known[:_NAMED], *(["…"] if known[_NAMED:] else [])])
        told = f"there are {names}" if known else "there is none yet"
        raise UsageError(f"--project {project}: no ledger of that name in {home}; {told}")


def damaged(damage: Damage) -> None:
    """Say that a line, a file or a folder was skipped."""
    warn(str(damage))

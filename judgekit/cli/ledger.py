"""`judgekit ledger`: export, import, purge and forward its lines; which ledgers other commands read."""

from __future__ import annotations

import os
import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from judgekit.cli.output import emit, keeps, say, warn
from judgekit.errors import Exit, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from judgekit.judging.shared import Shared
    from judgekit.ledger import Damage, Ledger
    from judgekit.ledger.store import ReadLine

_NAMED = 5  # ledgers, where a name is wrong
_MOST_SAID = 10  # lines of a file that is perhaps none of a ledger

app = typer.Typer(no_args_is_help=True, help="The ledger: verdicts, labels and overrides.")

WHEN = Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")
Since = Annotated[str | None, WHEN]
Project = Annotated[str | None, Option(metavar="NAME", help="Ledger of this project; `all` for all ledgers.")]
Team = Annotated[bool, Option("--team", help="Read the ledger of the shared judge.")]
Ledgers = Annotated[
    list[Path] | None, Option("--ledger", metavar="DIR", help="Read this folder or file (repeatable).")
]


@app.command()
def export(
    since: Since = None,
    project: Project = "all",
    format_: Annotated[
        Literal["jsonl", "csv"], Option("--format", help="Ledger lines (jsonl) or a table (csv).")
    ] = "jsonl",
    ledger: Ledgers = None,
) -> int:
    """Print the ledger, oldest day first; as CSV, the verdicts with their labels."""
    from judgekit.ledger.export import rows

    found = lines(ledger, project or "all", since)
    as_csv = format_ == "csv"
    for line in rows(each.record for each in found) if as_csv else (each.raw.decode() for each in found):
        emit(line)
    return 0


@app.command("import")
def import_(
    sources: Annotated[
        list[Path], Argument(metavar="FILE|DIR...", help="JSON lines, or folders of *.jsonl files.")
    ],
) -> int:
    """Import lines of other ledgers and verdicts of older judges; known lines are skipped.

    Exit code 65 when a line cannot be read; the others are imported.
    """
    from judgekit.config import settings
    from judgekit.ledger import importing, store

    if not store.files(places(sources)):
        store.files(sources, damaged)
        raise InputError(f"{', '.join(map(str, sources))}: no *.jsonl file there; name one or its folder")
    keeps("the added lines stay; run the import again for the rest", ";")
    done = importing.bring(here(), sources, text=settings.load(None).ledger.text)
    for line in done.damaged[:_MOST_SAID]:
        warn(str(line))
    if unsaid := done.damaged[_MOST_SAID:]:
        warn(f"and {len(unsaid)} more lines that cannot be read; are these ledgers?")
    known = f", {done.known} were already there" if done.known else ""
    say(f"{done.added} lines added to {here().folder}{known}")
    return Exit.BAD_INPUT if done.damaged else 0


@app.command()
def purge(
    before: Annotated[
        str | None, Option(metavar="WHEN", help="Remove lines older than this: 90d, or a date.")
    ] = None,
    all_: Annotated[bool, Option("--all", help="Remove all lines, including today's.")] = False,
    project: Project = None,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
) -> int:
    """Remove lines of earlier days with the labels of their verdicts, or all lines."""
    from judgekit.ledger import labels, store

    if (before is None) != all_:
        raise UsageError("say what to remove: --before WHEN, or --all")
    day = date.max if before is None else store.point(before).date()
    if project not in (None, "all"):
        check(project)
    wanted = here().name if project is None else project
    home = store.home()
    folders = sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    chosen = [each for each in folders if project == "all" or store.same_project(each.name, wanted)]
    counts = {folder: count for folder in chosen if (count := store.old_lines(folder, day))}
    for folder, count in counts.items():
        say(f"{folder.name}: {', '.join(f'{number} {kind}' for kind, number in sorted(count.items()))}")
    if not counts:
        say("the ledger is empty" if all_ else f"nothing is older than {day}")
        return 0
    if not yes:
        if not labels.at_terminal():
            raise UsageError("no terminal to ask for confirmation; add --yes to remove these lines")
        of = "" if all_ else f" of days before {day}"
        typer.confirm(f"Remove these lines{of}?", abort=True, err=True)
    for folder in counts:
        store.purge(folder, day)
    say(f"removed {sum(sum(count.values()) for count in counts.values())} lines")
    return 0


@app.command()
def forward() -> int:
    """Send new lines of this project's ledger to the shared judge."""
    from judgekit.ledger.export import forward

    done = forward(here(), team().send)
    for remark in done.remarks:
        warn(remark)
    say(f"{done.lines} lines sent")
    return 0


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


def lines(
    ledgers: list[Path] | None,
    project: str | None,
    since: str | None,
    until: datetime | None = None,
    *,
    of_team: bool = False,
) -> Iterator[ReadLine]:
    """Yield the lines of some `places`, or with `of_team` of the shared judge; say which cannot be read."""
    from judgekit.ledger import LineFilter, store

    name = None if project == "all" else project
    wanted = LineFilter(since=store.point(since) if since else None, until=until, project=name)
    if not of_team:
        yield from store.entries(places(ledgers, project), wanted, damaged)
        return
    if ledgers:
        raise UsageError("--team and --ledger cannot be combined")
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        fetched = Path(folder) / "team.jsonl"
        team().fetch(since or "", project or "all", fetched)
        yield from store.entries([fetched], wanted, damaged)


def places(ledgers: list[Path] | None, project: str | None = "all") -> list[Path]:
    """Return the files and folders to read: those given, else one project's or all that this user has.

    Raises `InputError` for one that is not there, `UsageError` for a project without a ledger.
    """
    from judgekit.ledger import store

    for ledger in ledgers or ():
        if not store.exists(ledger):
            raise InputError(f"{ledger}: no such file or folder")
    if ledgers:
        return ledgers
    if project not in (None, "all"):
        check(project)
    place = here().folder if project is None else store.home()
    return [place] if store.exists(place) else []


def check(project: str) -> None:
    """Raise `UsageError` when no ledger of this user is that project's."""
    from judgekit.ledger import store

    home = store.home()
    known = sorted(os.listdir(home)) if home.is_dir() else []  # noqa: PTH208 - names alone
    if not any(store.same_project(name, project) for name in known):
        names = ", ".join([*known[:_NAMED], *(["…"] if known[_NAMED:] else [])])
        there = f"there are {names}" if known else "there is none yet"
        raise UsageError(f"--project {project}: no ledger of that name in {home}; {there}")


def damaged(damage: Damage) -> None:
    """Say that a line, a file or a folder was skipped."""
    warn(str(damage))

"""`judgekit ledger`: takes lines out and in; `kpi`, `promote`, `triage`: what its lines say of the gate."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from judgekit.cli.interruption import keeps
from judgekit.cli.options import AsJson, OutOption
from judgekit.cli.output import emit, say, warn
from judgekit.cli.output_files import write_file
from judgekit.errors import ConfigError, Exit, InputError, UsageError
from judgekit.text import counted, short_line

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    Purge = Callable[..., Counter[str]]

    from judgekit.judging.shared import Shared
    from judgekit.ledger import (
        Damage,
        Ledger,
        LineFilter,
        ModeChange,
        OverrideLine,
        Record,
        VerdictLine,
    )
    from judgekit.ledger.database import Database
    from judgekit.ledger.kpi import Evidence, Readiness
    from judgekit.ledger.labels import Triage
    from judgekit.ledger.store import OnDamage, ReadLine

_MOST_SAID = 10  # lines of a file that is perhaps none of a ledger
_MARKS = {"holds": "ok", "missed": "MISSED"}
_DEPENDENT = (
    "independence: an author's own model family may accept alone; set judge.independence: require, "
    "or promote with --accept-dependence"
)
_EVER = "0001-01-01"
_CHARS = 160  # of a verdict's reason

app = typer.Typer(no_args_is_help=True, help="The ledger: verdicts, labels and overrides.")
damaged = warn  # of each line that cannot be read

WHEN = Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")
_FORMAT = Option("--format", help="Ledger lines (jsonl) or a table (csv).")
_HTML = Option("--html", metavar="FILE.html", help="Also write a page, with charts over time.")
_PLOT = Option("--plot", hidden=True)
_FILES = Argument(metavar="FILE...", help="Daily files of any ledger, as 2026-11-21.jsonl.")
_SINCE = Option(
    metavar="WHEN", help="14d, 36h, 2w, a date or a time.", show_default="7d; of FILE: all"
)
Since = Annotated[str | None, WHEN]
Project = Annotated[
    str | None, Option(metavar="NAME", help="Ledger of this project; `all` for all ledgers.")
]
Team = Annotated[bool, Option("--team", help="Read the ledger of the shared judge.")]
_LEDGER = Option("--ledger", metavar="DIR", help="Read this folder or file (repeatable).")
Ledgers = Annotated[list[Path] | None, _LEDGER]


@app.command()
def export(
    since: Since = None,
    project: Project = "all",
    format_: Annotated[Literal["jsonl", "csv"], _FORMAT] = "jsonl",
    ledger: Ledgers = None,
    team: Team = False,
    jsonl: Annotated[bool, Option("--jsonl", help="The same as --format jsonl.")] = False,
    _out: OutOption = None,
) -> None:
    """Print the ledger, oldest day first; as CSV, the verdicts with their labels."""
    from judgekit.ledger.export import rows

    found = lines(ledger, project or "all", since, of_team=team)
    if format_ == "csv" and not jsonl:
        emit(rows(line.record for line in found))
        return
    for line in found:
        emit(line.raw.decode())


@app.command("import")
def import_(
    sources: Annotated[
        list[Path], Argument(metavar="FILE|DIR...", help="Of JSON lines (*.jsonl).")
    ],
) -> int:
    """Import lines of other ledgers and verdicts of older judges; known lines are skipped.

    Exit code 65 when a line cannot be read; the others are imported.
    """
    from judgekit.config import settings
    from judgekit.ledger import importing, store

    if not store.files(places(sources)):
        store.files(sources, damaged)
        raise InputError(
            f"{', '.join(map(str, sources))}: no *.jsonl file there; name one or its folder"
        )
    keeps("ledger", "the added lines stay; run the import again for the rest")
    done = importing.bring(here(), sources, text=settings.load(None).ledger.text)
    warn(*done.damaged[:_MOST_SAID])
    if unsaid := done.damaged[_MOST_SAID:]:
        more = counted(len(unsaid), "more line", "more lines")
        warn(f"and {more} that cannot be read; are these ledgers?")
    known = f", {counted(done.known, 'was', 'were')} already there" if done.known else ""
    say(f"{counted(done.added, 'line', 'lines')} added to {here().folder}{known}")
    return Exit.BAD_INPUT if done.damaged else 0


@app.command()
def purge(
    before: Annotated[
        str | None, Option(metavar="WHEN", help="Remove older lines: 90d, a date.")
    ] = None,
    all_: Annotated[bool, Option("--all", help="Remove all lines, including today's.")] = False,
    project: Project = None,
    team: Team = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove lines of earlier days with the labels of their verdicts, or all lines."""
    from judgekit.ledger import labels, store

    if (before is None) != all_:
        raise UsageError("say what to remove: --before WHEN, or --all")
    if before is None:
        day = date.max
    else:
        day = store.point(before).date()
    if team:
        purges = _purges_of_team(day, project)
    else:
        check(project)
        wanted = here().name if project is None else project
        purges = {}
        for folder in _all():
            if project == "all" or store.same_project(folder.name, wanted):
                purges[folder.name] = partial(store.purge, folder, day)
    counts = {}
    for name, purge in purges.items():
        count = purge(preview=True)
        if count:
            counts[name] = count
    for name, count in counts.items():
        kinds = [f"{number} {kind}" for kind, number in sorted(count.items())]
        say(f"{name}: {', '.join(kinds)}")
    if not counts:
        say("the ledger is empty" if all_ else f"nothing is older than {day}")
        return
    if not yes:
        if not labels.at_terminal():
            raise UsageError("no terminal to ask for confirmation; add --yes to remove these lines")
        of = "" if all_ else f" of days before {day}"
        typer.confirm(f"Remove these lines{of}?", abort=True, err=True)
    for name in counts:
        purges[name](preview=False)
    removed = sum(sum(count.values()) for count in counts.values())
    say(f"removed {counted(removed, 'line', 'lines')}")


def _purges_of_team(day: date, project: str | None) -> dict[str, Purge]:
    """Return what removes the lines from before a day, by the name of their ledger."""
    from judgekit.ledger.database import Database

    if project is None:
        raise UsageError("--team: name a --project or `all`")
    database = team()
    if not isinstance(database, Database):
        raise UsageError("--team: set server.store: only its owner removes lines")
    before = None if day == date.max else datetime.combine(day, time.min, UTC)
    name = None if project == "all" else project
    return {"the team's ledger": partial(database.purge, before, name)}


@app.command()
def forward(
    all_: Annotated[bool, Option("--all", help="Send the ledgers of all projects.")] = False,
) -> None:
    """Send new lines of this project's ledger to the shared judge."""
    from judgekit.ledger import Ledger
    from judgekit.ledger.export import forward

    if all_:
        ledgers = [Ledger(each, each.name) for each in _all()]
    else:
        ledgers = [here()]
    total = 0
    for ledger in ledgers:
        count, remarks = forward(ledger, team().send)
        total += count
        warn(*remarks)
    say(f"{counted(total, 'line', 'lines')} sent")


def here() -> Ledger:
    from judgekit.ledger import Ledger

    return Ledger.of(Path.cwd())


def team() -> Shared | Database:
    """Return the user's shared judge, or the store behind it; raises `UsageError` without either."""
    from judgekit.config import settings
    from judgekit.judging import shared

    configured = settings.load(None)
    place = configured.server.store
    if place is not None:
        from judgekit.ledger.database import Database

        return Database(place)
    found = shared.configured(configured)
    if found is None:
        raise UsageError("no shared judge is set up; server.url in your own configuration names it")
    return found


class TeamLedger:
    folder = "the team's ledger"

    def records(self, wanted: LineFilter, on_damage: OnDamage) -> Iterator[Record]:
        yield from (each.record for each in _fetched(wanted, on_damage))

    def add(self, *records: Record) -> None:
        """Keep records, which name the ledger they belong to; raises `UsageError` for what is refused."""
        from judgekit.ledger.records import line

        if records and (refused := team().send([line(each).rstrip() for each in records])):
            raise UsageError(refused)


def _fetched(
    wanted: LineFilter, on_damage: OnDamage, host: str | None = None
) -> Iterator[ReadLine]:
    """Yield the lines of the shared judge, or those of a `host`; what is wrong there is said at the end."""
    from judgekit.ledger import importing, store

    unread: list[Damage] = []
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        fetched = Path(folder) / "fetched.jsonl"
        said = ""
        if host is None:
            if wanted.since is None:
                since = _EVER
            else:
                since = wanted.since.isoformat()
            team().fetch(since, wanted.project or "all", fetched)
        else:
            said = importing.fetch(host, wanted.since, fetched)
        yield from store.entries([fetched], wanted, on_damage if host is None else unread.append)
    if unread:
        count = counted(len(unread), "line", "lines")
        warn(f"{host}: {count} cannot be read; the first, line {unread[0].line}: {unread[0].why}")
    if said:
        warn(f"{host}: {said}")


def lines(
    ledgers: list[Path] | None,
    project: str | None,
    since: str | None,
    until: datetime | None = None,
    *,
    of_team: bool = False,
    host: str | None = None,
) -> Iterator[ReadLine]:
    """Yield the lines of some `places`, of the shared judge or of a `host`; say which cannot be read."""
    from judgekit.ledger import LineFilter, store

    name = None if project == "all" else project
    wanted = LineFilter(since=store.point(since) if since else None, until=until, project=name)
    if not of_team and host is None:
        yield from store.entries(places(ledgers, project), wanted, damaged)
        return
    if ledgers or (of_team and host is not None):
        raise UsageError("--team, --host and --ledger or FILE cannot be combined")
    yield from _fetched(wanted, damaged, host)


def places(ledgers: list[Path] | None, project: str | None = "all") -> list[Path]:
    """Return the ledgers to read: those given, else a project's or all; raises `InputError`, `UsageError`."""
    from judgekit.ledger import store

    for ledger in ledgers or ():
        if not os.path.lexists(ledger):
            raise InputError(f"{ledger}: no such file or folder")
    if ledgers:
        return ledgers
    check(project)
    return [here().folder if project is None else store.home()]


def check(project: str | None) -> None:
    """Raise `UsageError` when no ledger of this user is that project's; None and `all` are none."""
    from judgekit.ledger import store

    if project not in (None, "all") and not any(
        store.same_project(each.name, project) for each in _all()
    ):
        if _all():
            there = f"there are {', '.join(each.name for each in _all())}"
        else:
            there = "there is none yet"
        raise UsageError(f"--project {project}: no ledger of that name in {store.home()}; {there}")


def _all() -> list[Path]:
    from judgekit.ledger import store

    if store.home().is_dir():
        return sorted(store.home().iterdir())
    return []


def kpi(
    since: Annotated[str, WHEN] = "14d",
    project: Project = None,
    as_json: AsJson = False,
    html: Annotated[Path | None, _HTML] = None,
    plot: Annotated[str | None, _PLOT] = None,
    ledger: Ledgers = None,
    team: Team = False,
    _out: OutOption = None,
) -> None:
    """Measure the gate: six KPIs with 95 % intervals, over all and by rubric version and model."""
    from judgekit.ledger import kpi

    if plot is not None:
        raise UsageError(
            "--plot: no such option any more; --html FILE.html writes a page that has the charts"
        )
    found = lines(ledger, project, since, datetime.now(UTC), of_team=team)
    evidence = kpi.evidence(line.record for line in found)
    if html is not None:
        from judgekit.evaluation import pages

        write_file(html, pages.kpi_page(evidence))
    rubrics, models = kpi.by_rubric_and_model(evidence)
    if as_json:
        groups = {
            "all": _group(evidence),
            "rubrics": {name: _group(part) for name, part in rubrics.items()},
            "models": {name: _group(part) for name, part in models.items()},
        }
        emit(json.dumps(groups, indent=2, ensure_ascii=False))
        return
    _say_kpis("all", evidence)
    for group in (rubrics, models):
        if len(group) > 1:
            for name, part in group.items():
                _say_kpis(f"\n{name}", part)


def _say_kpis(name: str, evidence: Evidence) -> None:
    from judgekit.ledger.kpi import measure, reliance

    count = counted(len(evidence.verdicts), "verdict", "verdicts")
    say(f"{name}: {count}, {sum(map(evidence.sure, evidence.verdicts))} of them labelled")
    for kpi in measure(evidence):
        say(f"  {_MARKS.get(kpi.state, kpi.state):<7} {kpi}")
    for kpi in reliance(evidence):
        say(f"  {'':<7} {kpi}")


def _group(evidence: Evidence) -> dict[str, Any]:
    from judgekit.ledger.kpi import measure, reliance

    kpis: dict[str, Any] = {}
    for kpi in [*measure(evidence), *reliance(evidence)]:
        limit = kpi.limit
        bounds = kpi.interval.bounds if kpi.interval else None
        if limit.rate:
            low, high = bounds or (None, None)
            figures: dict[str, Any] = {
                "estimate": kpi.value,
                "low": low,
                "high": high,
                "labels": kpi.total,
            }
            figures["limit"] = limit.high
        else:
            figures = {"value": kpi.value, "interval": bounds, "total": kpi.total}
            figures |= {"low": limit.low, "high": limit.high}
        kpis[kpi.name] = figures | {"state": kpi.state}
    labelled = sum(map(evidence.sure, evidence.verdicts))
    return {"verdicts": len(evidence.verdicts), "labelled": labelled, "kpis": kpis}


def promote(
    force: Annotated[
        bool, Option("--force", help="Promote without conditions; this is recorded.")
    ] = False,
    accept_dependence: Annotated[
        bool,
        Option(
            "--accept-dependence", help="Promote without judge.independence: require; recorded."
        ),
    ] = False,
    ledger: Ledgers = None,
) -> int:
    """Make the gate block pushes once all KPIs hold over at least 14 days; exit code 1 when they do not.

    Writes `gate.mode: blocking` into the project's .judgekit/config.yaml, for the team to commit.
    """
    from judgekit.config import settings, yaml_text
    from judgekit.git import GitError, Repository
    from judgekit.ledger import ModeChange, kpi, labels

    try:  # the gate reads the rules of the repository's top folder
        top = Repository(Path.cwd()).ask("rev-parse", "--show-toplevel").removesuffix(b"\n")
    except GitError as error:
        why = "promote needs a git repository, whose pushes the gate can block"
        raise UsageError(f"{why} ({error})") from None
    project = Path(os.fsdecode(top))
    path = settings.project_file(project)
    for link in (path.parent, path):
        if link.is_symlink():  # which git would commit as a link
            raise ConfigError(
                "a link, and the gate follows no links; replace it with the file", path=link
            )
    dependent = settings.load(project).judge.independence != "require"
    found, rubric = readiness(project, ledger)
    say(f"{rubric}, verdicts of the last {kpi.WINDOW.days} days:")
    for measure in found.kpis:
        if measure.state == "holds":
            say(f"  ok       {measure}")
    missing = [*found.missing]
    if dependent and not accept_dependence:
        missing.append(_DEPENDENT)
    warn(*(f"missing: {lack}" for lack in missing))
    if missing and not force:
        warn("not promoted; see judgekit kpi for the figures, or use --force")
        return Exit.REJECTED
    yaml_text.put(path, "gate", "mode", "blocking")
    say(f"{path}: gate.mode is now blocking; commit the file to apply it to the team")
    by = labels.who(project)
    forced = bool(missing)
    # Last: the ledger must not hold a promotion that failed.
    here().add(ModeChange(mode="blocking", who=by, forced=forced, why=missing, dependent=dependent))
    return 0


def readiness(
    project: Path, ledger: list[Path] | None = None, on_damage: OnDamage = damaged
) -> tuple[Readiness, str]:
    """Return what a promotion of a project's gate lacks, and the rubric's version that this is about."""
    from judgekit.config import settings
    from judgekit.ledger import kpi, store
    from judgekit.rubric import loader

    name = settings.load(project).gate.rubric
    rubric = loader.configured_rubric("gate", name, project).rubric.ref
    lines = store.entries(places(ledger, None), kpi.window(), on_damage)
    return kpi.readiness((line.record for line in lines), rubric), rubric


def triage(
    files: Annotated[list[Path] | None, _FILES] = None,
    since: Annotated[str | None, _SINCE] = None,
    project: Project = "all",
    as_json: AsJson = False,
    ledger: Ledgers = None,
    team: Team = False,
    host: Annotated[
        str | None, Option(metavar="NAME", help="Read the ledger of a host, by ssh.")
    ] = None,
    _out: OutOption = None,
) -> None:
    """List what needs a person: NO-GO and unclear verdicts, overrides, bypasses, failures."""
    from judgekit.ledger.labels import triage

    named = [*(files or []), *(ledger or [])]
    since = since or (None if files else "7d")
    found = triage(
        line.record for line in lines(named, project or "all", since, of_team=team, host=host)
    )
    if as_json:
        emit(json.dumps(_triage_json(found), indent=2, ensure_ascii=False))
        return
    output: list[str] = []
    for title, group in _groups(found).items():
        if group:
            output.append(f"{title} ({len(group)})")
        for line in group:
            output.append(f"  {short_line(line, 4 * _CHARS)}")
    if found.settled:
        output.append(f"{found.settled} more are settled: fixed or overridden since")
    say("\n".join(output) or "nothing needs a person")


def _triage_json(found: Triage) -> dict[str, Any]:
    listed: dict[str, Any] = {}
    for name in ("nogo", "unclear", "overrides", "skips", "changes"):
        records = getattr(found, name)
        listed[name] = [record.model_dump(mode="json", by_alias=True) for record in records]
    listed["faults"] = []
    for problem, count in found.faults.most_common():
        listed["faults"].append({"problem": problem, "count": count})
    listed["failures"] = []
    for (kind, model, message), count in found.failures.most_common():
        failure = {"kind": kind, "model": model, "message": message, "count": count}
        listed["failures"].append(failure)
    listed["settled"] = found.settled
    return listed


def _groups(found: Triage) -> dict[str, list[str]]:
    """Return the lines to print, by their heading."""
    return {
        "NO-GO": [_verdict(verdict) for verdict in found.nogo],
        "UNDETERMINED: review it yourself": [_verdict(verdict) for verdict in found.unclear],
        "Overrides": [_override(override) for override in found.overrides],
        "Skipped the gate": [
            f"{skip.project}: {skip.variable} by {skip.who}" for skip in found.skips
        ],
        "Changes of mode": [_change(change) for change in found.changes],
        "Not judged": [
            f"{_times(count)}: {problem}" for problem, count in found.faults.most_common()
        ],
        "Models that did not answer": [
            f"{_times(count)} {kind}, {model}: {message}"
            for (kind, model, message), count in found.failures.most_common()
        ],
    }


def _times(count: int) -> str:
    return counted(count, "time", "times")


def _override(override: OverrideLine) -> str:
    where = "" if override.terminal else " WITHOUT A TERMINAL"
    return f"{override.task_id}: {override.decision} by {override.who}{where}: {override.why}"


def _change(change: ModeChange) -> str:
    words = [f"{change.project}: {change.mode}"]
    if change.forced:
        words.append("(forced)")
    if change.dependent:
        words.append("(dependence accepted)")
    return f"{' '.join(words)} {'; '.join(change.why)}"


def _verdict(verdict: VerdictLine) -> str:
    words = [f"{verdict.project}: {verdict.task_id}"]
    if verdict.commit:
        words.append(f"in {verdict.commit[:12]}")
    scores = [f"{name} {value:g}" for name, value in (verdict.scores or {}).items()]
    what = f"{' '.join(words)}: {' '.join([verdict.verdict, *scores])}"
    issues = [finding.issue or finding.suggestion for finding in verdict.findings]
    why = short_line("; ".join([*issues[:2], verdict.degraded or ""]).strip("; "), _CHARS)
    if why:
        what = f"{what}: {why}"
    return f"{verdict.timestamp.date()} {what}"

"""`judgekit ledger`: exports and imports lines; `kpi`, `promote`, `triage`: evaluate the gate from them."""

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

from judgekit.cli.interruption import set_kept
from judgekit.cli.options import AsJson, OutOption
from judgekit.cli.output import confirm, emit, say, warn
from judgekit.cli.output_files import write_file
from judgekit.cli.page_foot import build_foot
from judgekit.errors import ConfigError, Exit, InputError, UsageError
from judgekit.text import escape_ci_commands, format_count, shorten_to_line

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Purge = Callable[..., Counter[str]]

    from judgekit.judging.shared import Shared
    from judgekit.ledger import (
        Damage,
        Ledger,
        LineFilter,
        ModeChange,
        OverrideLine,
        Record,
        Skip,
        VerdictLine,
    )
    from judgekit.ledger.database import Database
    from judgekit.ledger.kpi import Evidence, Kpi, Readiness
    from judgekit.ledger.labels import Triage
    from judgekit.ledger.store import OnDamage, ReadLine

_MAX_DAMAGED = 10  # lines printed: a file with more of them probably isn't a ledger's
_MARK_BY_KPI_STATE = {"missed": "MISSED"}
_DEPENDENCE_MESSAGE = (
    "independence: an author's own model family may accept alone; set judge.independence: require, "
    "or promote with --accept-dependence"
)
_EARLIEST_DATE = "0001-01-01"
_MAX_REASON_CHARS = 160  # of a verdict's reason

app = typer.Typer(no_args_is_help=True, help="The ledger: verdicts, labels and overrides.")
warn_damaged = warn  # called for each unreadable line

WHEN = Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")
_FORMAT_OPTION = Option("--format", help="Ledger lines (jsonl) or a table (csv).")
_HTML_OPTION = Option(
    "--html", metavar="FILE.html", help="Also write a page, with charts over time."
)
_PLOT_OPTION = Option("--plot", hidden=True)
_FILES_ARGUMENT = Argument(
    metavar="FILE...", help="Daily files of any ledger, as 2026-11-21.jsonl."
)
_SINCE_OPTION = Option(
    metavar="WHEN", help="14d, 36h, 2w, a date or a time.", show_default="7d; of FILE: all"
)
Since = Annotated[str | None, WHEN]
Project = Annotated[
    str | None, Option(metavar="NAME", help="Ledger of this project; `all` for all ledgers.")
]
Team = Annotated[bool, Option("--team", help="Read the ledger of the shared judge.")]
_LEDGER_OPTION = Option("--ledger", metavar="DIR", help="Read this folder or file (repeatable).")
Ledgers = Annotated[list[Path] | None, _LEDGER_OPTION]


@app.command()
def export(
    since: Since = None,
    project: Project = "all",
    format_: Annotated[Literal["jsonl", "csv"], _FORMAT_OPTION] = "jsonl",
    ledger: Ledgers = None,
    team: Team = False,
    jsonl: Annotated[bool, Option("--jsonl", help="The same as --format jsonl.")] = False,
    _out: OutOption = None,
) -> None:
    """Print the ledger, oldest day first; as CSV, the verdicts with their labels."""
    from judgekit.ledger.export import make_csv

    ledger_lines = read_lines(ledger, project or "all", since, of_team=team)
    chosen_format = "jsonl" if jsonl else format_
    if chosen_format == "csv":
        table = make_csv(line.record for line in ledger_lines)
        emit(table, escape=escape_ci_commands)
        return

    for line in ledger_lines:
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
    from judgekit.ledger import importing

    _require_files(sources)
    # This is printed if the user interrupts the import.
    set_kept("ledger", "the added lines stay; run the import again for the rest")
    ledger = find_ledger()
    # If the user's `ledger.text` is on, the reasoning in an older judge's lines is kept, too.
    imported = importing.import_lines(ledger, sources, text=settings.load(None).ledger.text)
    _warn_unreadable(imported.damaged)

    known_note = ""
    if imported.known_count:
        known_note = f", {format_count(imported.known_count, 'was', 'were')} already there"
    say(
        f"{format_count(imported.added_count, 'line', 'lines')} added to {ledger.folder}{known_note}"
    )
    return Exit.BAD_INPUT if imported.damaged else 0


def _require_files(sources: list[Path]) -> None:
    """Raise `InputError` if the sources contain no *.jsonl file.

    Before that, print which folders, links and devices in them can't be read.
    """
    from judgekit.ledger import store

    has_files = bool(store.list_files(choose_places(sources)))
    if has_files:
        return
    # The import prints such problems itself, so list the files again only if it has nothing to read.
    store.list_files(sources, on_damage=warn_damaged)
    names = ", ".join(map(str, sources))
    raise InputError(f"{names}: no *.jsonl file there; name one or its folder")


def _warn_unreadable(problems: Sequence[Damage]) -> None:
    """Print the problems of the first unreadable lines, and count any others."""
    warn(*problems[:_MAX_DAMAGED])
    left_out = len(problems) - _MAX_DAMAGED
    if left_out > 0:
        more = format_count(left_out, "more line", "more lines")
        warn(f"and {more} that cannot be read; are these ledgers?")


@app.command("purge")
def remove_lines(
    before: Annotated[
        str | None, Option(metavar="WHEN", help="Remove older lines: 90d, a date.")
    ] = None,
    all_: Annotated[bool, Option("--all", help="Remove all lines, including today's.")] = False,
    project: Project = None,
    team: Team = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove lines of earlier days with the labels of their verdicts, or all lines."""
    from judgekit.ledger import store

    has_day = before is not None
    if has_day == all_:  # neither or both are given
        raise UsageError("say what to remove: --before WHEN, or --all")

    # With --all, no line is too recent.
    day = date.max if before is None else store.parse_time(before).date()
    purges = _prepare_team_purge(day, project) if team else _prepare_purges(day, project)
    counts = _count_removable_lines(purges)
    if not counts:
        say("the ledger is empty" if all_ else f"nothing is older than {day}")
        return

    _say_removable_lines(counts)
    if not yes:
        of_days = "" if all_ else f" of days before {day}"
        confirm(f"Remove these lines{of_days}?", "remove these lines")
    for name in counts:
        purges[name](preview=False)
    removed = sum(count_by_kind.total() for count_by_kind in counts.values())
    say(f"removed {format_count(removed, 'line', 'lines')}")


def _count_removable_lines(purges: Mapping[str, Purge]) -> dict[str, Counter[str]]:
    """Count the lines that would be removed, by ledger and kind. Ledgers without any are left out."""
    counts = {}
    for name, purge in purges.items():
        count_by_kind = purge(preview=True)
        if count_by_kind:
            counts[name] = count_by_kind
    return counts


def _say_removable_lines(counts: Mapping[str, Counter[str]]) -> None:
    """Print the counts of lines by kind, a line for each ledger."""
    for name, count_by_kind in counts.items():
        kinds = [f"{count} {kind}" for kind, count in sorted(count_by_kind.items())]
        say(f"{name}: {', '.join(kinds)}")


def _prepare_purges(day: date, project: str | None) -> dict[str, Purge]:
    """Return a function for each ledger that removes its lines from before `day`, by ledger name.

    `project` is a ledger's name, "all", or None for the current project.
    """
    from judgekit.ledger import store

    check_project(project)
    purges: dict[str, Purge] = {}
    for folder in _choose_folders(project):
        purges[folder.name] = partial(store.purge, folder, day)
    return purges


def _choose_folders(project: str | None) -> list[Path]:
    """List the ledger folders of one project, or with "all", of every project.

    None is the current project.
    """
    from judgekit.ledger import store

    if project == "all":
        return _list_folders()
    name = find_ledger().name if project is None else project
    # `shop` stands for every folder `shop-HASH`, so there can be several.
    return [folder for folder in _list_folders() if store.is_same_project(folder.name, name)]


def _prepare_team_purge(day: date, project: str | None) -> dict[str, Purge]:
    """Return a function that deletes the team ledger's lines from before `day`, by the ledger's name.

    If `day` is `date.max`, it deletes all lines. Raises `UsageError` if no `project` is given, or if the
    user has no access to the database.
    """
    from judgekit.ledger.database import Database

    if project is None:
        raise UsageError("--team: name a --project or `all`")
    database = connect_team()
    # Without `server.store`, this is a connection to the shared judge.
    if not isinstance(database, Database):
        raise UsageError("--team: set server.store: only its owner removes lines")

    deletes_all = day == date.max
    before = None if deletes_all else datetime.combine(day, time.min, UTC)
    name = None if project == "all" else project
    delete_lines = partial(database.purge, before, name)
    return {"the team's ledger": delete_lines}


@app.command("forward")
def send_lines(
    all_: Annotated[bool, Option("--all", help="Send the ledgers of all projects.")] = False,
) -> None:
    """Send new lines of this project's ledger to the shared judge."""
    from judgekit.ledger import Ledger
    from judgekit.ledger.export import send_unsent

    if all_:
        ledgers = [Ledger(folder, folder.name) for folder in _list_folders()]
    else:
        ledgers = [find_ledger()]

    total = 0
    for ledger in ledgers:
        count, remarks = send_unsent(ledger, connect_team().send)
        total += count
        warn(*remarks)
    say(f"{format_count(total, 'line', 'lines')} sent")


def find_ledger() -> Ledger:
    """Find the ledger of the project in the current folder."""
    from judgekit.ledger import Ledger

    return Ledger.of(Path.cwd())


def connect_team() -> Shared | Database:
    """Connect to the user's shared judge or its store; raises `UsageError` if neither is configured."""
    from judgekit.config import settings
    from judgekit.judging import shared

    configured = settings.load(None)
    store_address = configured.server.store
    if store_address is not None:
        from judgekit.ledger.database import Database

        return Database(store_address)
    server = shared.find_shared_judge(configured)
    if server is None:
        raise UsageError("no shared judge is set up; server.url in your own configuration names it")
    return server


class TeamLedger:
    """The shared judge's ledger, for commands that read and add records."""

    folder = "the team's ledger"

    def read_records(self, wanted: LineFilter, on_damage: OnDamage) -> Iterator[Record]:
        for line in _fetch_from_team(wanted, on_damage):
            yield line.record

    def add(self, *records: Record) -> None:
        """Add records to the ledgers that they name; raises `UsageError` if any is refused."""
        from judgekit.ledger.records import serialise_record

        if not records:
            return
        team = connect_team()
        lines = [serialise_record(record).rstrip() for record in records]  # without the line break
        refusal = team.send(lines)
        if refusal:
            raise UsageError(refusal)


def add_to_ledger(ledger: Ledger | TeamLedger, record: Record) -> None:
    """Add a record that a person made, such as a label, and send it to the shared judge, if any."""
    from judgekit.config import settings
    from judgekit.ledger.export import send_to_team

    ledger.add(record)
    if isinstance(ledger, TeamLedger):  # `add` has already sent it
        return
    # Any lines that couldn't be sent before are sent with the record.
    problems = send_to_team(settings.load(None), ledger)
    warn(*problems)


def _fetch_from_team(line_filter: LineFilter, on_damage: OnDamage) -> Iterator[ReadLine]:
    """Yield the shared judge's lines."""
    from judgekit.ledger import store

    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        file = Path(folder) / "fetched.jsonl"
        since = _EARLIEST_DATE if line_filter.since is None else line_filter.since.isoformat()
        connect_team().fetch(since, line_filter.project or "all", file)
        yield from store.read_entries([file], line_filter, on_damage)


def _fetch_from_host(line_filter: LineFilter, host: str) -> Iterator[ReadLine]:
    """Yield a host's ledger lines, then warn about unreadable lines and the host's last error."""
    from judgekit.ledger import importing, store

    damages: list[Damage] = []
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        file = Path(folder) / "fetched.jsonl"
        complaint = importing.fetch_lines(host, line_filter.since, file)
        yield from store.read_entries([file], line_filter, damages.append)

    if damages:
        count = format_count(len(damages), "line", "lines")
        first_damage = damages[0]
        warn(
            f"{host}: {count} cannot be read; the first, line {first_damage.line_number}: {first_damage.why}"
        )

    if complaint:
        warn(f"{host}: {complaint}")


def read_lines(
    ledgers: list[Path] | None,
    project: str | None,
    since: str | None,
    until: datetime | None = None,
    *,
    of_team: bool = False,
    host: str | None = None,
) -> Iterator[ReadLine]:
    """Yield lines from ledgers, the shared judge or a host, with warnings about unreadable lines.

    `project` is a name, "all", or None: the current project's ledger if no other source is named, or else
    all lines of that source.
    """
    from judgekit.ledger import LineFilter, store

    filtered_project = None if project == "all" else project
    since_time = store.parse_time(since) if since else None
    line_filter = LineFilter(since=since_time, until=until, project=filtered_project)

    # Only one source can be read.
    named_sources = [bool(ledgers), of_team, host is not None]
    if named_sources.count(True) > 1:
        raise UsageError("--team, --host and --ledger or FILE cannot be combined")

    if of_team:
        yield from _fetch_from_team(line_filter, warn_damaged)
    elif host is not None:
        yield from _fetch_from_host(line_filter, host)
    else:
        yield from store.read_entries(choose_places(ledgers, project), line_filter, warn_damaged)


def choose_places(ledgers: list[Path] | None, project: str | None = "all") -> list[Path]:
    """Choose the ledgers to read: the given ones, or else the current project's or all projects'.

    `project` matters only if no `ledgers` are given; None is the current project. Raises `InputError` for
    a missing ledger, and `UsageError` for an unknown project.
    """
    from judgekit.ledger import store

    for ledger in ledgers or ():
        if not os.path.lexists(ledger):
            raise InputError(f"{ledger}: no such file or folder")

    if ledgers:
        return ledgers

    check_project(project)
    if project is None:
        return [find_ledger().folder]
    # This is for a project's name, too: the caller filters the lines.
    return [store.get_ledgers_folder()]


def check_project(project: str | None) -> None:
    """Raise `UsageError` if the user has no ledger of this name. None and "all" are allowed."""
    from judgekit.ledger import store

    if project is None or project == "all":
        return
    names = [folder.name for folder in _list_folders()]
    if any(store.is_same_project(name, project) for name in names):
        return
    there = f"there are {', '.join(names)}" if names else "there is none yet"
    raise UsageError(
        f"--project {project}: no ledger of that name in {store.get_ledgers_folder()}; {there}"
    )


def _list_folders() -> list[Path]:
    """List the folders of the user's ledgers, sorted by name."""
    from judgekit.ledger import store

    if store.get_ledgers_folder().is_dir():
        return sorted(store.get_ledgers_folder().iterdir())
    return []


def print_kpis(
    since: Annotated[str, WHEN] = "14d",
    project: Project = None,
    as_json: AsJson = False,
    html: Annotated[Path | None, _HTML_OPTION] = None,
    plot: Annotated[str | None, _PLOT_OPTION] = None,
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

    ledger_lines = read_lines(ledger, project, since, datetime.now(UTC), of_team=team)
    evidence = kpi.collect_evidence(line.record for line in ledger_lines)
    if html is not None:
        from judgekit.evaluation import pages

        write_file(html, pages.render_kpi_page(evidence, build_foot()))
    if as_json:
        _emit_kpis(evidence)
    else:
        _say_all_kpis(evidence)


def _emit_kpis(evidence: Evidence) -> None:
    """Print the KPIs as JSON: over all, by rubric version, and by model."""
    from judgekit.ledger import kpi

    rubrics, models = kpi.split_by_rubric_and_model(evidence)
    record = {
        "all": _build_kpi_record(evidence),
        "rubrics": {name: _build_kpi_record(part) for name, part in rubrics.items()},
        "models": {name: _build_kpi_record(part) for name, part in models.items()},
    }
    emit(json.dumps(record, indent=2, ensure_ascii=False))


def _say_all_kpis(evidence: Evidence) -> None:
    """Print the KPIs for people: over all, by rubric version, and by model."""
    from judgekit.ledger import kpi

    _say_kpis("all", evidence)
    for parts in kpi.split_by_rubric_and_model(evidence):
        if len(parts) <= 1:  # a single part is the same as all
            continue
        for name, part in parts.items():
            _say_kpis(f"\n{name}", part)


def _say_kpis(name: str, evidence: Evidence) -> None:
    """Print the KPIs for a part of the ledger, after the part's name."""
    from judgekit.ledger.kpi import measure_kpis, measure_reliance, sum_up_cost

    count = format_count(len(evidence.verdicts), "verdict", "verdicts")
    labelled_count = sum(map(evidence.has_clear_label, evidence.verdicts))
    say(f"{name}: {count}, {labelled_count} of them labelled")
    for kpi in measure_kpis(evidence):
        mark = _MARK_BY_KPI_STATE.get(kpi.state, kpi.state)
        say(f"  {mark:<7} {kpi}")

    # Reliance and cost have no limits, so they get blanks instead of a mark.
    no_mark = " " * 7
    for kpi in measure_reliance(evidence):
        say(f"  {no_mark} {kpi}")
    say(f"  {no_mark} {sum_up_cost(evidence.verdicts)}")


def _build_kpi_record(evidence: Evidence) -> dict[str, Any]:
    """Build the JSON record for a part of the ledger: its verdicts, KPIs and cost."""
    from judgekit.ledger.kpi import measure_kpis, measure_reliance, sum_up_cost

    kpis: dict[str, Any] = {}
    for kpi in [*measure_kpis(evidence), *measure_reliance(evidence)]:
        # Only a rate is about a word and a quality, such as NO-GO for good texts.
        kpis[kpi.name] = (
            _build_rate_record(kpi) if kpi.limit.word_and_quality else _build_amount_record(kpi)
        )
    labelled_count = sum(map(evidence.has_clear_label, evidence.verdicts))
    cost = sum_up_cost(evidence.verdicts)
    return {
        "verdicts": len(evidence.verdicts),
        "labelled": labelled_count,
        "kpis": kpis,
        "cost": cost.record(),
    }


def _build_rate_record(kpi: Kpi) -> dict[str, Any]:
    """Build the record of a rate.

    Its `low` and `high` are the interval's bounds. In the record of any other KPI, they're the limits.
    """
    bounds = kpi.interval.bounds if kpi.interval else None
    lower_bound, upper_bound = bounds or (None, None)
    return {
        "estimate": kpi.value,
        "low": lower_bound,
        "high": upper_bound,
        "labels": kpi.sample_size,
        "limit": kpi.limit.high,
        "state": kpi.state,
    }


def _build_amount_record(kpi: Kpi) -> dict[str, Any]:
    """Build the record of a KPI that isn't a rate, such as a duration."""
    return {
        "value": kpi.value,
        "interval": kpi.interval.bounds if kpi.interval else None,
        "total": kpi.sample_size,
        "low": kpi.limit.low,  # a limit, while a rate's `low` and `high` are its interval's bounds
        "high": kpi.limit.high,
        "state": kpi.state,
    }


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
    team: Team = False,
) -> int:
    """Make the gate block pushes once all KPIs hold over at least 14 days; exit code 1 when they do not.

    Writes `gate.mode: blocking` into the project's .judgekit/config.yaml, for the team to commit.
    """
    from judgekit.config import settings

    top_folder = _find_top_folder()
    config_path = settings.get_project_config_path(top_folder)
    _refuse_links(config_path)
    # Unless independence is required, models of the author's own family may accept a text alone.
    is_dependent = settings.load(top_folder).judge.independence != "require"

    readiness, rubric = measure_readiness(top_folder, ledger, of_team=team)
    _say_held_kpis(readiness, rubric)
    missing = list(readiness.unmet_needs)
    needs_independence = not accept_dependence
    if is_dependent and needs_independence:
        missing.append(_DEPENDENCE_MESSAGE)
    warn(*(f"missing: {reason}" for reason in missing))

    may_promote = force or not missing
    if not may_promote:
        warn("not promoted; see judgekit kpi for the figures, or use --force")
        return Exit.REJECTED
    _make_blocking(top_folder, config_path, missing, is_dependent=is_dependent)
    return 0


def _say_held_kpis(readiness: Readiness, rubric: str) -> None:
    """Print the KPIs that hold. The caller prints the others as missing conditions."""
    from judgekit.ledger import kpi

    say(f"{rubric}, verdicts of the last {kpi.WINDOW.days} days:")
    for measured_kpi in readiness.kpis:
        if measured_kpi.state == "holds":
            say(f"  {measured_kpi.state:<7} {measured_kpi}")


def _make_blocking(project: Path, path: Path, missing: list[str], *, is_dependent: bool) -> None:
    """Set the gate's mode in a configuration file, and record the promotion in the ledger.

    `missing` are the conditions that don't hold, if the promotion is forced.
    """
    from judgekit.config import yaml_text
    from judgekit.ledger import ModeChange, labels

    yaml_text.put_value(path, "gate", "mode", "blocking")
    say(f"{path}: gate.mode is now blocking; commit the file to apply it to the team")
    promotion = ModeChange(
        mode="blocking",
        who=labels.identify_user(project),
        forced=bool(missing),
        why=missing,
        dependent=is_dependent,
    )
    # Do this last, so that the ledger never contains a failed promotion.
    add_to_ledger(find_ledger(), promotion)


def _refuse_links(path: Path) -> None:
    """Raise `ConfigError` if a project's configuration file or its folder is a link."""
    for checked_path in (path.parent, path):
        if checked_path.is_symlink():  # git would commit the link instead of the file
            raise ConfigError(
                "a link, and the gate follows no links; replace it with the file",
                path=checked_path,
            )


def _find_top_folder() -> Path:
    """Find the repository's top folder; raises `UsageError` outside a repository."""
    from judgekit.git import GitError, Repository

    try:
        raw = Repository(Path.cwd()).ask("rev-parse", "--show-toplevel")
    except GitError as error:
        why = "promote needs a git repository, whose pushes the gate can block"
        raise UsageError(f"{why} ({error})") from None
    return Path(os.fsdecode(raw.removesuffix(b"\n")))


def measure_readiness(
    project: Path,
    ledger: list[Path] | None = None,
    on_damage: OnDamage = warn_damaged,
    *,
    of_team: bool = False,
) -> tuple[Readiness, str]:
    """Measure whether a project's gate is ready to block pushes. Also returns the rubric, as NAME@VERSION.

    Raises `UsageError` if both `ledger` and `of_team` are given.
    """
    from judgekit.config import settings
    from judgekit.ledger import kpi
    from judgekit.rubric import loader

    configured_name = settings.load(project).gate.rubric
    loaded = loader.load_configured_rubric("gate", configured_name, project)
    rubric = loaded.rubric.ref
    ledger_lines = _read_kpi_window(ledger, on_damage, of_team=of_team)
    readiness = kpi.assess_readiness((line.record for line in ledger_lines), rubric)
    return readiness, rubric


def _read_kpi_window(
    ledger: list[Path] | None, on_damage: OnDamage, *, of_team: bool
) -> Iterator[ReadLine]:
    """Read the current project's lines that are recent enough for the KPIs.

    If `of_team`, read them from the shared judge. Raises `UsageError` if `ledger` is given too.
    """
    from judgekit.ledger import kpi, store

    line_filter = kpi.make_window_filter()
    if not of_team:
        return store.read_entries(choose_places(ledger, None), line_filter, on_damage)
    if ledger:
        raise UsageError("--team and --ledger cannot be combined")
    # The shared judge has lines of all projects.
    project_filter = line_filter._replace(project=find_ledger().name)
    return _fetch_from_team(project_filter, on_damage)


def print_triage(
    files: Annotated[list[Path] | None, _FILES_ARGUMENT] = None,
    since: Annotated[str | None, _SINCE_OPTION] = None,
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
    from judgekit.ledger.labels import triage_records

    reads_whole_files = bool(files)
    if not since and not reads_whole_files:
        since = "7d"
    paths = [*(files or []), *(ledger or [])]
    ledger_lines = read_lines(paths, project or "all", since, of_team=team, host=host)
    report = triage_records(line.record for line in ledger_lines)
    if as_json:
        emit(json.dumps(_build_triage_record(report), indent=2, ensure_ascii=False))
    else:
        say("\n".join(_render_triage(report)) or "nothing needs a person")


def _render_triage(report: Triage) -> list[str]:
    """Render a triage as lines: the groups under their titles, the settled ones, and the cost."""
    from judgekit.ledger.kpi import sum_up_cost

    lines = []
    for title, group in _group_triage(report).items():
        if group:
            lines.append(f"{title} ({len(group)})")
        for text in group:
            # Allow more than a reason's length, since the line also has the place and scores.
            lines.append(f"  {shorten_to_line(text, 4 * _MAX_REASON_CHARS)}")
    if report.settled_count:
        lines.append(f"{report.settled_count} more are settled: fixed or overridden since")
    if report.verdicts:
        count = format_count(len(report.verdicts), "verdict", "verdicts")
        lines.append(f"{sum_up_cost(report.verdicts)} for {count}")
    return lines


def _build_triage_record(report: Triage) -> dict[str, Any]:
    """Build the JSON record of everything that needs a person."""
    from judgekit.ledger.kpi import sum_up_cost

    return {
        "nogo": _dump_records(report.nogo_verdicts),
        "unclear": _dump_records(report.unclear_verdicts),
        "overrides": _dump_records(report.overrides),
        "skips": _dump_records(report.skips),
        "changes": _dump_records(report.mode_changes),
        "faults": _list_faults(report),
        "failures": _list_failures(report),
        "settled": report.settled_count,
        "unjudged": [_build_unjudged_record(verdict) for verdict in report.unjudged_verdicts],
        "cost": sum_up_cost(report.verdicts).record(),
    }


def _dump_records(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Convert records of the ledger to JSON."""
    return [record.model_dump(mode="json", by_alias=True) for record in records]


def _list_faults(report: Triage) -> list[dict[str, Any]]:
    """List the problems that kept whole pushes from being judged, the most common first."""
    return [{"problem": problem, "count": count} for problem, count in report.faults.most_common()]


def _list_failures(report: Triage) -> list[dict[str, Any]]:
    """List the models that didn't answer, the most common failure first."""
    failures = []
    for (kind, model, message), count in report.failures.most_common():
        failures.append({"kind": kind, "model": model, "message": message, "count": count})
    return failures


def _build_unjudged_record(verdict: VerdictLine) -> dict[str, Any]:
    """Build the record of a file that was pushed when no model answered, with the command to judge it."""
    return {
        "id": verdict.id,
        "project": verdict.project,
        "task_id": verdict.task_id,
        "command": _build_judge_command(verdict),
    }


def _group_triage(report: Triage) -> dict[str, list[str]]:
    """Describe everything that needs a person, as lines by heading. Some headings can be empty."""
    return {
        "NO-GO": list(map(_describe_verdict, report.nogo_verdicts)),
        "UNDETERMINED: review it yourself": list(
            map(_describe_verdict, _list_judged_unclear(report))
        ),
        "Pushed while no judge answered: judge it now": list(
            map(_describe_unjudged, report.unjudged_verdicts)
        ),
        "Overrides": list(map(_describe_override, report.overrides)),
        "Skipped the gate": list(map(_describe_skip, report.skips)),
        "Changes of mode": list(map(_describe_change, report.mode_changes)),
        "Not judged": _describe_faults(report),
        "Models that did not answer": _describe_failures(report),
    }


def _list_judged_unclear(report: Triage) -> list[VerdictLine]:
    """List the unclear verdicts that a judge gave; the others have a heading of their own."""
    unjudged_ids = {verdict.id for verdict in report.unjudged_verdicts}
    return [verdict for verdict in report.unclear_verdicts if verdict.id not in unjudged_ids]


def _describe_unjudged(verdict: VerdictLine) -> str:
    return f"{_build_judge_command(verdict)}  ({verdict.project}: {verdict.task_id})"


def _build_judge_command(verdict: VerdictLine) -> str:
    """Build the command that judges the files in a commit."""
    commit = verdict.commit or "HEAD"
    parent = f"{commit[:12]}^"
    return f"judgekit gate --base {parent}"


def _describe_override(override: OverrideLine) -> str:
    """Describe an override. Without a terminal, an agent may have given it, so mention that."""
    warning = "" if override.terminal else " WITHOUT A TERMINAL"
    return f"{override.task_id}: {override.decision} by {override.who}{warning}: {override.why}"


def _describe_skip(skip: Skip) -> str:
    """Describe a push that skipped the gate."""
    return f"{skip.project}: {skip.variable} by {skip.who}"


def _describe_change(change: ModeChange) -> str:
    """Describe a change of the gate's mode, with its reasons."""
    words = [f"{change.project}: {change.mode}"]
    if change.forced:
        words.append("(forced)")
    if change.dependent:
        words.append("(dependence accepted)")
    return f"{' '.join(words)} {'; '.join(change.why)}"


def _describe_faults(report: Triage) -> list[str]:
    """Describe the problems that kept whole pushes from being judged, the most common first."""
    fault_lines = []
    for problem, count in report.faults.most_common():
        times = format_count(count, "time", "times")
        fault_lines.append(f"{times}: {problem}")
    return fault_lines


def _describe_failures(report: Triage) -> list[str]:
    """Describe the models that didn't answer, the most common failure first."""
    failure_lines = []
    for (kind, model, message), count in report.failures.most_common():
        times = format_count(count, "time", "times")
        failure_lines.append(f"{times} {kind}, {model}: {message}")
    return failure_lines


def _describe_verdict(verdict: VerdictLine) -> str:
    """Describe a verdict: its time, place, outcome and first reasons."""
    place = f"{verdict.project}: {verdict.task_id}"
    if verdict.commit:
        place = f"{place} in {verdict.commit[:12]}"
    outcome = _describe_outcome(verdict)
    headline = f"{verdict.timestamp.date()} {place}: {outcome}"
    reasons = _join_first_reasons(verdict)
    return f"{headline}: {reasons}" if reasons else headline


def _describe_outcome(verdict: VerdictLine) -> str:
    """Describe a verdict's outcome with any scores: `reject clarity 2 accuracy 4.5`."""
    words: list[str] = [verdict.verdict]
    for name, value in (verdict.scores or {}).items():
        words.append(f"{name} {value:g}")
    return " ".join(words)


def _join_first_reasons(verdict: VerdictLine) -> str:
    """Join a verdict's first two findings and why it's degraded; "" if there are none."""
    reasons = [finding.issue or finding.suggestion for finding in verdict.findings[:2]]
    if verdict.degraded:
        reasons.append(verdict.degraded)
    # A finding without text leaves a separator at the start or the end.
    joined = "; ".join(reasons).strip("; ")
    return shorten_to_line(joined, _MAX_REASON_CHARS)

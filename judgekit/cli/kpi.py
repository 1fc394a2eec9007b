"""`judgekit kpi`, `promote` and `triage`: how well the gate judges, and what needs a person.

`promote` makes the gate block, if the figures allow it.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgekit.cli.ledger import Ledgers, Project, Team, damaged, here, named, places, read_from
from judgekit.cli.output import AsJson, emit, say, warn
from judgekit.errors import ConfigError, Exit, InputError, UsageError
from judgekit.text import one_line

if TYPE_CHECKING:
    from judgekit.ledger import ModeChange, VerdictLine
    from judgekit.ledger.kpi import Evidence, Kpi, Readiness
    from judgekit.ledger.triage import Triage


_MARKS = {"holds": "ok", "missed": "MISSED", "open": "open"}
_DEPENDENT = (
    "independence: an author's own model family may accept alone; set judge.independence: require, "
    "or promote with --accept-dependence"
)


def kpi(
    since: Annotated[str, typer.Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")] = "14d",
    project: Project = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|FILE.html", help="Draw the KPIs over time (.svg or .html)."),
    ] = None,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """Measure the gate: six KPIs with 95 % intervals, over all and by rubric version and model."""
    from judgekit.ledger import LineFilter, kpi, store

    wanted = LineFilter(since=store.point(since), until=datetime.now(UTC), project=named(project))
    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise UsageError(f"{plot}: name a file that ends in .svg or .html")
    with read_from(ledger, project, since, of_team=team) as where:
        evidence = kpi.evidence(store.records(where, wanted, damaged))
    if plot is not None:
        _draw(plot, evidence)
    rubrics, models = kpi.by_rubric(evidence), kpi.by_model(evidence)
    if as_json:
        found = {
            "all": _group(evidence),
            "rubrics": {name: _group(each) for name, each in rubrics.items()},
            "models": {name: _group(each) for name, each in models.items()},
        }
        emit(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    _table("all", evidence)
    for group in (rubrics, models):
        for name, each in group.items() if len(group) > 1 else ():
            say()
            _table(name, each)
    return 0


def _table(name: str, evidence: Evidence) -> None:
    from judgekit.ledger.kpi import measure, reliance

    say(f"{name}: {len(evidence.verdicts)} verdicts, {_labelled(evidence)} of them labelled")
    for kpi in measure(evidence):
        say(f"  {_MARKS[kpi.state]:<7} {kpi}")
    for kpi in reliance(evidence):
        say(f"  {'':<7} {kpi}")


def _labelled(evidence: Evidence) -> int:
    return sum(map(evidence.sure, evidence.verdicts))


def _group(evidence: Evidence) -> dict[str, Any]:
    from judgekit.ledger.kpi import measure, reliance

    kpis = {kpi.name: _figures(kpi) for kpi in [*measure(evidence), *reliance(evidence)]}
    return {"verdicts": len(evidence.verdicts), "labelled": _labelled(evidence), "kpis": kpis}


def _figures(kpi: Kpi) -> dict[str, Any]:
    limit, state = kpi.limit, {"state": kpi.state}
    if limit.rate:
        low, high = kpi.interval or (None, None)
        return {
            "estimate": kpi.value,
            "low": low,
            "high": high,
            "labels": kpi.total,
            "limit": limit.high,
        } | state
    interval = list(kpi.interval) if kpi.interval else None
    measured = {"value": kpi.value, "interval": interval, "total": kpi.total}
    return {**measured, "low": limit.low, "high": limit.high, **state}


def _draw(path: Path, evidence: Evidence) -> None:
    from judgekit.evaluation import charts

    draw = charts.kpi_svg if path.suffix == ".svg" else charts.kpi_page
    try:
        path.write_text(draw(evidence), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    warn(f"drawn: {path}")


def promote(
    force: Annotated[
        bool,
        typer.Option("--force", help="Promote although conditions are not met; the ledger records it."),
    ] = False,
    accept_dependence: Annotated[
        bool,
        typer.Option(
            "--accept-dependence",
            help="Promote without judge.independence: require; the ledger records it.",
        ),
    ] = False,
    ledger: Ledgers = None,
) -> int:
    """Make the gate block pushes once all KPIs hold over at least 14 days; exit code 1 when they do not.

    Writes `gate.mode: blocking` into the project's .judgekit/config.yaml, for the team to commit.
    """
    from judgekit.config import settings, yaml_text
    from judgekit.ledger import ModeChange, kpi, labels

    project = _repository()
    path = settings.project_file(project)
    for link in (path.parent, path):
        if link.is_symlink():  # which git would commit as a link
            raise ConfigError("a link, and the gate follows no links; replace it with the file", path=link)
    dependent = settings.load(project).judge.independence != "require"
    found, rubric = readiness(project, ledger)
    say(f"{rubric}, verdicts of the last {kpi.WINDOW.days} days:")
    for each in found.kpis:
        if each.state == "holds":
            say(f"  ok       {each}")
    missing = [*found.missing, *([_DEPENDENT] if dependent and not accept_dependence else [])]
    for lack in missing:
        warn(f"missing: {lack}")
    if missing and not force:
        warn("not promoted; see judgekit kpi for the figures, or use --force")
        return Exit.REJECTED
    yaml_text.put(path, "gate", "mode", "blocking")
    say(f"{path}: gate.mode is now blocking; commit the file to apply it to the team")
    change = ModeChange(
        mode="blocking", who=labels.who(project), forced=bool(missing), why=missing, dependent=dependent
    )
    here().add(change)  # last: the ledger must not tell of a promotion that failed
    return 0


def readiness(project: Path, ledger: list[Path] | None = None) -> tuple[Readiness, str]:
    """Return what a promotion of a project's gate lacks, and the rubric's version that this is about."""
    from judgekit.config import settings
    from judgekit.ledger import kpi, store
    from judgekit.rubric import loader

    rubric = loader.configured_rubric("gate", settings.load(project).gate.rubric, project).rubric.ref
    records = store.records(places(ledger, None), kpi.window(), damaged)
    return kpi.readiness(records, rubric), rubric


def _repository() -> Path:
    """Return the folder that the gate reads the rules of; raises `UsageError` where there is none."""
    from judgekit.git import GitError, Repository

    try:
        top = Repository(Path.cwd()).ask("rev-parse", "--show-toplevel").removesuffix(b"\n")
    except GitError as error:
        needed = "promote needs a git repository, whose pushes the gate can block"
        raise UsageError(f"{needed} ({error})") from None
    return Path(os.fsdecode(top))


_CHARS = 160


def triage(
    since: Annotated[str, typer.Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")] = "7d",
    project: Project = "all",
    as_json: AsJson = False,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """List what needs a person: NO-GO and unclear verdicts, overrides, bypasses, failures."""
    from judgekit.ledger import LineFilter, store
    from judgekit.ledger.triage import triage

    wanted = LineFilter(since=store.point(since), project=named(project))
    with read_from(ledger, project or "all", since, of_team=team) as where:
        found = triage(store.records(where, wanted, damaged))
    if as_json:
        emit(json.dumps(_triage_object(found), indent=2, ensure_ascii=False))
        return 0
    lines: list[str] = []
    for title, group in _groups(found).items():
        lines += [f"{title} ({len(group)})"] if group else []
        lines += [f"  {one_line(line, 4 * _CHARS)}" for line in group]
    if found.settled:
        lines.append(f"{found.settled} more are settled: fixed or overridden since")
    say("\n".join(lines) or "nothing needs a person")
    return 0


def _groups(found: Triage) -> dict[str, list[str]]:
    return {
        "NO-GO": [_verdict(verdict) for verdict in found.nogo],
        "UNDETERMINED: review it yourself": [_verdict(verdict) for verdict in found.unclear],
        "Overrides": [
            f"{override.task_id}: {override.decision} by {override.who}"
            f"{'' if override.terminal else ' WITHOUT A TERMINAL'}: {override.why}"
            for override in found.overrides
        ],
        "Skipped the gate": [f"{skip.project}: {skip.variable} by {skip.who}" for skip in found.skips],
        "Changes of mode": [_change(change) for change in found.changes],
        "Not judged": [f"{n} times: {why}" for why, n in found.faults.most_common()],
        "Models that did not answer": [
            f"{n} times {kind}, {model}: {why}" for (kind, model, why), n in found.failures.most_common()
        ],
    }


def _verdict(verdict: VerdictLine) -> str:
    scores = " ".join(f"{name} {value:g}" for name, value in (verdict.scores or {}).items())
    commit = f" in {verdict.commit[:12]}" if verdict.commit else ""
    issues = [finding.issue or finding.suggestion for finding in verdict.findings]
    why = one_line("; ".join([*issues[:2], verdict.degraded or ""]).strip("; "), _CHARS)
    what = f"{verdict.project}: {verdict.task_id}{commit}: {verdict.verdict} {scores}".rstrip()
    return f"{verdict.timestamp.date()} {what}{': ' if why else ''}{why}"


def _change(change: ModeChange) -> str:
    forced = f"{' (forced)' if change.forced else ''}{' (dependence accepted)' if change.dependent else ''}"
    return f"{change.project}: {change.mode}{forced} {'; '.join(change.why)}"


def _triage_object(found: Triage) -> dict[str, object]:
    groups = ("nogo", "unclear", "overrides", "skips", "changes")
    listed: dict[str, object] = {
        name: [record.model_dump(mode="json", by_alias=True) for record in getattr(found, name)]
        for name in groups
    }
    failures = [
        {"kind": kind, "model": model, "message": why, "count": count}
        for (kind, model, why), count in found.failures.most_common()
    ]
    faults = [{"problem": why, "count": count} for why, count in found.faults.most_common()]
    return {**listed, "faults": faults, "failures": failures, "settled": found.settled}

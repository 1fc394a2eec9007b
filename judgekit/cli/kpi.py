"""`judgekit kpi`, `promote`, `triage`: how well the gate judges, if it may block, what needs a person."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from judgekit.cli.evaluate import write_drawing
from judgekit.cli.ledger import WHEN, Ledgers, Project, Team, damaged, here, lines, places
from judgekit.cli.output import AsJson, emit, say, warn
from judgekit.errors import ConfigError, Exit, UsageError
from judgekit.text import one_line

if TYPE_CHECKING:
    from judgekit.ledger import VerdictLine
    from judgekit.ledger.kpi import Evidence, Readiness
    from judgekit.ledger.labels import Triage


_MARKS = {"holds": "ok", "missed": "MISSED", "open": "open"}
_DEPENDENT = (
    "independence: an author's own model family may accept alone; set judge.independence: require, "
    "or promote with --accept-dependence"
)
_CHARS = 160  # of a verdict's reason


def kpi(
    since: Annotated[str, WHEN] = "14d",
    project: Project = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, Option(metavar="FILE.svg|FILE.html", help="Draw the KPIs over time (.svg or .html).")
    ] = None,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """Measure the gate: six KPIs with 95 % intervals, over all and by rubric version and model."""
    from judgekit.ledger import kpi

    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise UsageError(f"{plot}: name a file that ends in .svg or .html")
    found = lines(ledger, project, since, datetime.now(UTC), of_team=team)
    evidence = kpi.evidence(line.record for line in found)
    if plot is not None:
        from judgekit.evaluation import charts

        write_drawing(plot, (charts.kpi_svg if plot.suffix == ".svg" else charts.kpi_page)(evidence))
    rubrics, models = kpi.by_rubric(evidence), kpi.by_model(evidence)
    if as_json:
        parts = {"rubrics": rubrics, "models": models}
        groups = {part: {name: _group(each) for name, each in found.items()} for part, found in parts.items()}
        emit(json.dumps({"all": _group(evidence), **groups}, indent=2, ensure_ascii=False))
        return 0
    _table("all", evidence)
    for group in (rubrics, models):
        for name, part in group.items() if len(group) > 1 else ():
            say()
            _table(name, part)
    return 0


def _table(name: str, evidence: Evidence) -> None:
    from judgekit.ledger.kpi import measure, reliance

    labelled = sum(map(evidence.sure, evidence.verdicts))
    say(f"{name}: {len(evidence.verdicts)} verdicts, {labelled} of them labelled")
    for kpi in measure(evidence):
        say(f"  {_MARKS[kpi.state]:<7} {kpi}")
    for kpi in reliance(evidence):
        say(f"  {'':<7} {kpi}")


def _group(evidence: Evidence) -> dict[str, Any]:
    from judgekit.ledger.kpi import measure, reliance

    kpis: dict[str, Any] = {}
    for kpi in [*measure(evidence), *reliance(evidence)]:
        limit, (low, high) = kpi.limit, kpi.interval or (None, None)
        figures = {"value": kpi.value, "interval": kpi.interval, "total": kpi.total, "low": limit.low}
        figures |= {"high": limit.high}
        if limit.rate:
            figures = {"estimate": kpi.value, "low": low, "high": high, "labels": kpi.total}
            figures |= {"limit": limit.high}
        kpis[kpi.name] = figures | {"state": kpi.state}
    labelled = sum(map(evidence.sure, evidence.verdicts))
    return {"verdicts": len(evidence.verdicts), "labelled": labelled, "kpis": kpis}


def promote(
    force: Annotated[
        bool, Option("--force", help="Promote although conditions are not met; the ledger records it.")
    ] = False,
    accept_dependence: Annotated[
        bool,
        Option(
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
    from judgekit.git import GitError, Repository
    from judgekit.ledger import ModeChange, kpi, labels

    try:  # the gate reads the rules of the repository's top folder
        top = Repository(Path.cwd()).ask("rev-parse", "--show-toplevel").removesuffix(b"\n")
    except GitError as error:
        needed = "promote needs a git repository, whose pushes the gate can block"
        raise UsageError(f"{needed} ({error})") from None
    project = Path(os.fsdecode(top))
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
    here().add(change)  # last: the ledger must not hold a promotion that failed
    return 0


def readiness(project: Path, ledger: list[Path] | None = None) -> tuple[Readiness, str]:
    """Return what a promotion of a project's gate lacks, and the rubric's version that this is about."""
    from judgekit.config import settings
    from judgekit.ledger import kpi, store
    from judgekit.rubric import loader

    rubric = loader.configured_rubric("gate", settings.load(project).gate.rubric, project).rubric.ref
    records = store.records(places(ledger, None), kpi.window(), damaged)
    return kpi.readiness(records, rubric), rubric


def triage(
    since: Annotated[str, WHEN] = "7d",
    project: Project = "all",
    as_json: AsJson = False,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """List what needs a person: NO-GO and unclear verdicts, overrides, bypasses, failures."""
    from judgekit.ledger.labels import triage

    found = triage(line.record for line in lines(ledger, project or "all", since, of_team=team))
    if as_json:
        groups = ("nogo", "unclear", "overrides", "skips", "changes")
        listed: dict[str, object] = {
            name: [record.model_dump(mode="json", by_alias=True) for record in getattr(found, name)]
            for name in groups
        }
        listed["faults"] = [{"problem": why, "count": count} for why, count in found.faults.most_common()]
        listed["failures"] = [
            {"kind": kind, "model": model, "message": why, "count": count}
            for (kind, model, why), count in found.failures.most_common()
        ]
        emit(json.dumps({**listed, "settled": found.settled}, indent=2, ensure_ascii=False))
        return 0
    shown: list[str] = []
    for title, group in _groups(found).items():
        shown += [f"{title} ({len(group)})"] if group else []
        shown += [f"  {one_line(line, 4 * _CHARS)}" for line in group]
    if found.settled:
        shown.append(f"{found.settled} more are settled: fixed or overridden since")
    say("\n".join(shown) or "nothing needs a person")
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
        "Changes of mode": [
            f"{change.project}: {change.mode}{' (forced)' if change.forced else ''}"
            f"{' (dependence accepted)' if change.dependent else ''} {'; '.join(change.why)}"
            for change in found.changes
        ],
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

"""`judgekit triage`: what a person must look at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.ledger import Ledgers, Project, Team, damaged, named, read_from
from judgekit.cli.output import AsJson, emit, say
from judgekit.text import one_line

if TYPE_CHECKING:
    from judgekit.ledger import ModeChange, VerdictLine
    from judgekit.ledger.triage import Triage

_CHARS = 160


def triage(
    since: Annotated[str, typer.Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")] = "7d",
    project: Project = "all",
    as_json: AsJson = False,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """Show what needs a person: NO-GO and unclear verdicts, overrides, bypasses, failures."""
    from judgekit.ledger import LineFilter, store
    from judgekit.ledger.triage import triage

    wanted = LineFilter(since=store.point(since), project=named(project))
    with read_from(ledger, project or "all", since, of_team=team) as where:
        found = triage(store.records(where, wanted, damaged))
    if as_json:
        emit(json.dumps(_object(found), indent=2, ensure_ascii=False))
        return 0
    lines: list[str] = []
    for title, group in _groups(found).items():
        lines += [f"{title} ({len(group)})"] if group else []
        lines += [f"  {one_line(line, 4 * _CHARS)}" for line in group]
    if found.settled:
        lines.append(f"{found.settled} more are settled: mended or overridden since")
    say("\n".join(lines) or "nothing needs a person")
    return 0


def _groups(found: Triage) -> dict[str, list[str]]:
    return {
        "NO-GO": [_verdict(verdict) for verdict in found.nogo],
        "UNDETERMINED: look at it yourself": [_verdict(verdict) for verdict in found.unclear],
        "Overrides": [
            f"{override.task_id}: {override.decision} by {override.who}"
            f"{'' if override.terminal else ' WITHOUT A TERMINAL'}: {override.why}"
            for override in found.overrides
        ],
        "Past the gate": [f"{skip.project}: {skip.variable} by {skip.who}" for skip in found.skips],
        "Changes of mode": [_change(change) for change in found.changes],
        "Nothing could be judged": [f"{n} times: {why}" for why, n in found.faults.most_common()],
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


def _object(found: Triage) -> dict[str, object]:
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

"""`judgekit triage`: what a person must look at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.ledger import Ledgers, Project, Team, damaged, named, read_from
from judgekit.cli.output import UNCHANGED, emit, kept, say
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.ledger import OverrideLine, VerdictLine
    from judgekit.ledger.triage import Triage

_CHARS = 160


def triage(
    since: Annotated[str, typer.Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")] = "7d",
    project: Project = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """Show what needs a person: NO-GO and unclear verdicts, overrides, bypasses, failures."""
    from judgekit.ledger import LineFilter, store
    from judgekit.ledger.store import point
    from judgekit.ledger.triage import triage as sort_out

    wanted = LineFilter(since=point(since), project=named(project))
    with kept(lambda: UNCHANGED):
        with read_from(ledger, project or "all", since, of_team=team) as where:
            found = sort_out(store.records(where, wanted, damaged))
        if as_json:
            emit(json.dumps(_object(found), indent=2, ensure_ascii=False))
            return 0
        lines = list(_lines(found))
        say("\n".join(lines) if lines else "nothing needs a person")
    return 0


def _lines(found: Triage) -> Iterator[str]:
    yield from _group("NO-GO", [_verdict(verdict_line) for verdict_line in found.nogo])
    yield from _group(
        "UNDETERMINED: look at it yourself", [_verdict(verdict_line) for verdict_line in found.unclear]
    )
    yield from _group("Overrides", [_override(override) for override in found.overrides])
    yield from _group(
        "Past the gate", [f"{skip.project}: {skip.variable} by {skip.who}" for skip in found.skips]
    )
    yield from _group(
        "Changes of mode",
        [
            f"{change.project}: {change.mode}{' (forced)' if change.forced else ''}"
            f"{' (dependence accepted)' if change.dependent else ''} {'; '.join(change.why)}"
            for change in found.changes
        ],
    )
    yield from _group(
        "Nothing could be judged", [f"{n} times: {why}" for why, n in found.faults.most_common()]
    )
    yield from _group(
        "Models that did not answer",
        [f"{n} times {kind}, {model}: {why}" for (kind, model, why), n in found.failures.most_common()],
    )
    if found.settled:
        yield f"{found.settled} more are settled: mended or overridden since"


def _group(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title} ({len(lines)})"
        yield from (f"  {one_line(line, 4 * _CHARS)}" for line in lines)


def _verdict(verdict: VerdictLine) -> str:
    scores = " ".join(f"{name} {value:g}" for name, value in (verdict.scores or {}).items())
    commit = f" in {verdict.commit[:12]}" if verdict.commit else ""
    issues = [finding.issue or finding.suggestion for finding in verdict.findings]
    why = one_line("; ".join([*issues[:2], verdict.degraded or ""]).strip("; "), _CHARS)
    what = f"{verdict.project}: {verdict.task_id}{commit}: {verdict.verdict} {scores}".rstrip()
    return f"{verdict.timestamp.date()} {what}{': ' if why else ''}{why}"


def _override(override: OverrideLine) -> str:
    given = "" if override.terminal else " WITHOUT A TERMINAL"
    return f"{override.task_id}: {override.decision} by {override.who}{given}: {override.why}"


def _object(found: Triage) -> dict[str, object]:
    groups = ("nogo", "unclear", "overrides", "skips", "changes")
    listed: dict[str, object] = {
        name: [each.model_dump(mode="json", by_alias=True) for each in getattr(found, name)]
        for name in groups
    }
    failures = [
        {"kind": kind, "model": model, "message": why, "count": count}
        for (kind, model, why), count in found.failures.most_common()
    ]
    faults = [{"problem": why, "count": count} for why, count in found.faults.most_common()]
    return {**listed, "faults": faults, "failures": failures, "settled": found.settled}

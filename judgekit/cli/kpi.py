"""`judgekit kpi`: how well the gate judges, in six figures."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgekit.cli.ledger import Ledgers, Project, Team, damaged, named, read_from
from judgekit.cli.output import UNCHANGED, emit, kept, say, warn
from judgekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from judgekit.ledger.kpi import Evidence, Kpi

_MARKS = {"holds": "ok", "missed": "MISSED", "open": "open"}


def kpi(
    since: Annotated[str, typer.Option(metavar="WHEN", help="14d, 36h, 2w, a date or a time.")] = "14d",
    project: Project = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg|FILE.html", help="Draw them over time.")
    ] = None,
    ledger: Ledgers = None,
    team: Team = False,
) -> int:
    """Measure the gate: six KPIs with 95 % intervals, over all and by rubric version and model."""
    from judgekit.ledger import LineFilter, store
    from judgekit.ledger import kpi as kpis
    from judgekit.ledger.store import point

    wanted = LineFilter(since=point(since), until=datetime.now(UTC), project=named(project))
    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise UsageError(f"{plot}: name a file that ends in .svg or .html")
    with kept(lambda: UNCHANGED):
        with read_from(ledger, project, since, of_team=team) as where:
            evidence = kpis.evidence(store.records(where, wanted, damaged))
        if plot is not None:
            _write(plot, evidence)
        if as_json:
            emit(json.dumps(_object(evidence), indent=2, ensure_ascii=False))
        else:
            _print(evidence)
    return 0


def _print(evidence: Evidence) -> None:
    from judgekit.ledger import kpi as kpis

    _table("all", evidence)
    for group in (kpis.by_rubric(evidence), kpis.by_model(evidence)):
        for name, each in group.items():
            if len(group) > 1:
                say()
                _table(name, each)


def _table(name: str, evidence: Evidence) -> None:
    from judgekit.ledger.kpi import measure, reliance

    say(f"{name}: {len(evidence.verdicts)} verdicts, {_labelled(evidence)} of them labelled")
    for each in measure(evidence):
        say(f"  {_MARKS[each.state]:<7} {each!s}")
    for each in reliance(evidence):
        say(f"  {'':<7} {each!s}")


def _labelled(evidence: Evidence) -> int:
    return sum(map(evidence.sure, evidence.verdicts))


def _object(evidence: Evidence) -> dict[str, Any]:
    from judgekit.ledger import kpi as kpis

    return {
        "all": _group(evidence),
        "rubrics": {name: _group(each) for name, each in kpis.by_rubric(evidence).items()},
        "models": {name: _group(each) for name, each in kpis.by_model(evidence).items()},
    }


def _group(evidence: Evidence) -> dict[str, Any]:
    from judgekit.ledger.kpi import measure, reliance

    measured = {each.name: _figures(each) for each in [*measure(evidence), *reliance(evidence)]}
    return {"verdicts": len(evidence.verdicts), "labelled": _labelled(evidence), "kpis": measured}


def _figures(each: Kpi) -> dict[str, Any]:
    if each.limit.rate:
        low, high = each.interval or (None, None)
        return {
            "estimate": each.value,
            "low": low,
            "high": high,
            "labels": each.total,
            "limit": each.limit.high,
            "state": each.state,
        }
    return {
        "value": each.value,
        "interval": list(each.interval) if each.interval else None,
        "total": each.total,
        "low": each.limit.low,
        "high": each.limit.high,
        "state": each.state,
    }


def _write(path: Path, evidence: Evidence) -> None:
    from judgekit.evaluation import charts

    draw = charts.kpi_svg if path.suffix == ".svg" else charts.kpi_page
    try:
        path.write_text(draw(evidence), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    warn(f"drawn: {path}")

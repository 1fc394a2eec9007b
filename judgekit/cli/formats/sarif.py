"""Verdicts as a SARIF 2.1.0 log: one result a verdict, and one for each finding.

What a run of the gate skipped or did not examine is told by notifications.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from judgekit.cli.formats.handed_on import (
    clean_gate,
    clean_verdicts,
    judged_text,
    region,
    rule_name,
    summary,
)
from judgekit.environment import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SKIPPED = "skipped"
_NOT_EXAMINED = "not-examined"
_LEVELS = {"accept": "note", "reject": "error"}  # all else is a warning


def render_verdicts(verdicts: Sequence[Record]) -> str:
    return _text_of(_run_of(clean_verdicts(verdicts)))


def render_gate(report: Report) -> str:
    verdicts, run = clean_gate(report)
    log_run = _run_of(verdicts)
    log_run["tool"]["driver"]["notifications"] = [{"id": _SKIPPED}, {"id": _NOT_EXAMINED}]
    log_run["invocations"] = [_invocation(run)]
    return _text_of(log_run)


def _text_of(log_run: Record) -> str:
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [log_run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def _run_of(verdicts: Sequence[Record]) -> dict[str, Any]:
    """Return a run of the tool with the results of these verdicts."""
    results: list[dict[str, Any]] = []
    for verdict in verdicts:
        results += _results(verdict)
    if any("suppressions" in result for result in results):
        for result in results:  # the standard wants it of all or of none
            result.setdefault("suppressions", [])
    names = sorted({rule_name(verdict) for verdict in verdicts})
    rules = [{"id": name} for name in names]
    driver = {"name": "judgekit", "version": __version__, "rules": rules}
    return {
        "tool": {"driver": driver},
        "results": results,
        "columnKind": "unicodeCodePoints",
    }


def _results(verdict: Record) -> list[dict[str, Any]]:
    """Return the results of one verdict: the verdict itself, then its findings."""
    texts = {subject["path"]: judged_text(subject) for subject in verdict["subjects"]}
    # What is said of a whole file has a region, too: GitHub's code scanning shows nothing without one.
    whole = (verdict["subjects"][0]["path"], {"startLine": 1})
    results = [_result(verdict, f"{verdict['verdict']}: {summary(verdict)}", whole)]
    for finding in verdict["findings"]:
        place = _place_of(finding["quote"], texts) or whole
        lines = [finding["issue"]]
        if finding["suggestion"]:
            lines.append(f"Suggestion: {finding['suggestion']}")
        result = _result(verdict, "\n\n".join(lines), place)
        properties = {}
        for name in ("issue", "suggestion", "quote"):
            if finding[name]:
                properties[name] = finding[name]
        result["properties"] = properties
        if dismissed := finding.get("dismissed"):
            reason = f"dismissed by {dismissed['who']}"
            result["suppressions"] = [{"kind": "external", "justification": reason}]
        results.append(result)
    return results


def _place_of(passage: str, texts: Mapping[str, str]) -> tuple[str, dict[str, int]] | None:
    """Return the path and the region of the first text that has a quote; None if none has."""
    for path, text in texts.items():
        place = region(passage, text)
        if place is not None:
            return path, place
    return None


def _result(verdict: Record, message: str, place: tuple[str, dict[str, int]]) -> dict[str, Any]:
    path, at = place
    locations = [{"physicalLocation": {"artifactLocation": {"uri": quote(path)}, "region": at}}]
    return {
        "ruleId": rule_name(verdict),
        "level": _LEVELS.get(verdict["verdict"], "warning"),
        "message": {"text": message},
        "locations": locations,
    }


def _invocation(run: Record) -> dict[str, Any]:
    """Return what a run of the gate skipped, and what it did not examine, as notifications of the tool."""
    notifications: list[dict[str, Any]] = []
    for group in run["skipped"]:
        text = f"{group['count']} skipped: {group['reason']}"
        notifications.append(_notification(_SKIPPED, "note", text))
    level = "error" if run["holds"] else "warning"
    for omission in run["not_examined"]:
        text = f"not examined: {omission['name']}: {omission['reason']}"
        notifications.append(_notification(_NOT_EXAMINED, level, text))
    properties = {name: run[name] for name in ("verdict", "mode", "blocked", "judged", "notes")}
    return {
        # An error of the gate itself is none of what it judges.
        "executionSuccessful": not run["fault"],
        "toolExecutionNotifications": notifications,
        "properties": properties,
    }


def _notification(kind: str, level: str, text: str) -> dict[str, Any]:
    return {"descriptor": {"id": kind}, "level": level, "message": {"text": text}}

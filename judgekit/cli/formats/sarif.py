"""Renders verdicts as a SARIF 2.1.0 log: a result for each verdict, and one for each finding.

Notifications tell about files that the gate skipped or didn't examine, and limits that rows miss. URIs are
relative to the repository. Only rows that weren't accepted have results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.cli.formats.handed_on import (
    Checkout,
    clean_gate,
    clean_verdicts,
    find_places,
    name_rubric,
    summarise_verdict,
)
from judgekit.cli.formats.row_results import NOT_ACCEPTED
from judgekit.environment import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.cli.formats.handed_on import Place
    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_SARIF_SCHEMA_URL = "https://json.schemastore.org/sarif-2.1.0.json"
_SKIPPED_NOTIFICATION_ID = "skipped"
_NOT_EXAMINED_NOTIFICATION_ID = "not-examined"
_LIMIT_NOTIFICATION_ID = "limit"
_LEVEL_BY_VERDICT = {"accept": "note", "reject": "error"}  # anything else is a warning


def render_verdicts(verdicts: Sequence[Record]) -> str:
    checkout = Checkout.of_folder(Path.cwd())
    return _write_log(_build_run(clean_verdicts(verdicts), checkout))


def render_gate(report: Report) -> str:
    """Write the results for the gate's files, and notifications about files without a verdict."""
    verdicts, run = clean_gate(report)
    log_run = _build_run(verdicts, Checkout.of_current_folder())
    log_run["tool"]["driver"]["notifications"] = [
        {"id": _SKIPPED_NOTIFICATION_ID},
        {"id": _NOT_EXAMINED_NOTIFICATION_ID},
    ]
    log_run["invocations"] = [_build_invocation(run)]
    return _write_log(log_run)


def render_rows(results: RowResults) -> str:
    """Write a result for each row that wasn't accepted, and a notification for each missed limit.

    All results are located in the results file.
    """
    not_accepted = [verdict for verdict in results.verdicts() if verdict["verdict"] in NOT_ACCEPTED]
    log_run = _build_run(clean_verdicts(not_accepted), Checkout.of_folder(Path.cwd()))
    if results.missed_limits:
        _add_missed_limits(log_run, results.missed_limits)
    return _write_log(log_run)


def _add_missed_limits(log_run: dict[str, Any], missed: Sequence[str]) -> None:
    """Add a notification for each missed limit to a run."""
    # Declare the id that the notifications refer to.
    log_run["tool"]["driver"]["notifications"] = [{"id": _LIMIT_NOTIFICATION_ID}]
    notifications = [_build_notification(_LIMIT_NOTIFICATION_ID, "error", line) for line in missed]
    # A missed limit isn't an error of the tool itself.
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notifications}
    log_run["invocations"] = [invocation]


render_report = render_rows


def _write_log(log_run: Record) -> str:
    log = {"$schema": _SARIF_SCHEMA_URL, "version": "2.1.0", "runs": [log_run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def _build_run(verdicts: Sequence[Record], checkout: Checkout) -> dict[str, Any]:
    """Build a run of the tool with the results for these verdicts."""
    results: list[dict[str, Any]] = []
    for verdict in verdicts:
        results += _build_results(verdict, checkout)
    if any("suppressions" in result for result in results):
        for result in results:  # the standard requires it for all results or none
            result.setdefault("suppressions", [])

    names = sorted({name_rubric(verdict) for verdict in verdicts})
    rules = [{"id": name} for name in names]
    driver = {"name": "judgekit", "version": __version__, "rules": rules}
    return {
        "tool": {"driver": driver},
        "results": results,
        "columnKind": "unicodeCodePoints",
    }


def _build_results(verdict: Record, checkout: Checkout) -> list[dict[str, Any]]:
    """Build the results for a verdict: one for the verdict itself, and one for each finding."""
    # The whole file's place is line 1, since GitHub's code scanning shows no result without a region.
    whole_file, places = find_places(verdict, checkout)
    message = f"{verdict['verdict']}: {summarise_verdict(verdict)}"
    results = [_build_result(verdict, message, whole_file, checkout)]
    for finding, place in zip(verdict["findings"], places, strict=True):
        results.append(_build_finding_result(verdict, finding, place, checkout))
    return results


def _build_result(
    verdict: Record, message: str, place: Place, checkout: Checkout
) -> dict[str, Any]:
    """Build a result at a place in a file. A row's result also contains the row's name."""
    physical = {"artifactLocation": {"uri": checkout.uri(place.path)}, "region": dict(place.region)}
    location: dict[str, Any] = {"physicalLocation": physical}
    if "row" in verdict:
        location["logicalLocations"] = [{"fullyQualifiedName": verdict["row"]}]
    return {
        "ruleId": name_rubric(verdict),
        "level": _LEVEL_BY_VERDICT.get(verdict["verdict"], "warning"),
        "message": {"text": message},
        "locations": [location],
    }


def _build_finding_result(
    verdict: Record, finding: Record, place: Place, checkout: Checkout
) -> dict[str, Any]:
    """Build the result for a finding, suppressed if a person has dismissed it."""
    message = finding["issue"]
    if finding["suggestion"]:
        message = f"{message}\n\nSuggestion: {finding['suggestion']}"
    result = _build_result(verdict, message, place, checkout)

    properties = {}
    for name in ("issue", "suggestion", "quote"):
        if finding[name]:
            properties[name] = finding[name]
    result["properties"] = properties

    dismissed = finding.get("dismissed")
    if dismissed:
        reason = f"dismissed by {dismissed['who']}"
        result["suppressions"] = [{"kind": "external", "justification": reason}]
    return result


def _build_invocation(run: Record) -> dict[str, Any]:
    """Build a gate run's invocation: whether it succeeded, and the files it skipped or didn't examine."""
    notifications: list[dict[str, Any]] = []
    for group in run["skipped"]:
        text = f"{group['count']} skipped: {group['reason']}"
        notifications.append(_build_notification(_SKIPPED_NOTIFICATION_ID, "note", text))

    # With `holds`, a file that wasn't examined stops the push.
    level = "error" if run["holds"] else "warning"
    for omission in run["not_examined"]:
        text = f"not examined: {omission['name']}: {omission['reason']}"
        notifications.append(_build_notification(_NOT_EXAMINED_NOTIFICATION_ID, level, text))

    properties = {name: run[name] for name in ("verdict", "mode", "blocked", "judged", "notes")}
    return {
        # A gate that rejects files has still run successfully.
        "executionSuccessful": not run["fault"],
        "toolExecutionNotifications": notifications,
        "properties": properties,
    }


def _build_notification(kind: str, level: str, text: str) -> dict[str, Any]:
    return {"descriptor": {"id": kind}, "level": level, "message": {"text": text}}

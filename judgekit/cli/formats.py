"""Verdicts in the formats that other programs read: JSON, JSON lines, SARIF 2.1.0 and JUnit XML."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from judgekit.environment import __version__
from judgekit.judging.redact import without_secrets
from judgekit.task_ids import task_name
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from judgekit.gate import Report

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_BYTES = 64_000_000
# What XML 1.0 cannot hold: control characters, lone surrogates, U+FFFE and U+FFFF.
_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SKIPPED = "skipped"
_NOT_EXAMINED = "not-examined"
_LEVELS = {"accept": "note", "reject": "error"}  # all else is a warning


def render(name: str, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the records of verdicts in the format `name`: json, jsonl, sarif or junit."""
    if name in ("json", "jsonl"):
        return _json(name, verdicts)
    clean = without_secrets(list(verdicts))  # reports are made to be handed on
    return sarif(clean) if name == "sarif" else junit(clean)


def render_gate(name: str, report: Report) -> str:
    """Return a run of the gate in the format `name`: its verdicts, what was skipped, what was not examined.

    JSON has a record about the whole run behind those of verdicts.
    """
    # Its model needs pydantic, which takes longer to import than an engine takes to judge one document.
    from judgekit.gate.record import gate_record

    verdicts = [row["verdict"] for row in report.rows]
    run = gate_record(report)
    if name in ("json", "jsonl"):
        return _json(name, [*verdicts, run])
    clean, clean_run = without_secrets([verdicts, run])
    if name == "sarif":
        return sarif(clean, clean_run)
    return junit(clean, clean_run)


def _json(name: str, records: Sequence[Mapping[str, Any]]) -> str:
    if name == "json":
        return json.dumps(list(records), indent=2, ensure_ascii=False)
    return "\n".join(
        json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records
    )


def sarif(verdicts: Sequence[Mapping[str, Any]], run: Mapping[str, Any] | None = None) -> str:
    """Return a SARIF log: one result a verdict, and one for each finding.

    What a `run` of the gate skipped or did not examine is told by notifications.
    """
    results: list[dict[str, Any]] = []
    for verdict in verdicts:
        results += _results(verdict)
    if any(
        "suppressions" in result for result in results
    ):  # the standard wants it of all or of none
        results = [result | {"suppressions": result.get("suppressions", [])} for result in results]
    rules = [{"id": name} for name in sorted({_rule(verdict) for verdict in verdicts})]
    driver: dict[str, Any] = {"name": "judgekit", "version": __version__, "rules": rules}
    log_run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    if run is not None:
        driver["notifications"] = [{"id": _SKIPPED}, {"id": _NOT_EXAMINED}]
        log_run["invocations"] = [_invocation(run)]
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [log_run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def _results(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results of one verdict: the verdict itself, then its findings."""
    texts = {subject["path"]: _judged_text(subject) for subject in verdict["subjects"]}
    # What is said of a whole file has a region, too: GitHub's code scanning shows nothing without one.
    whole = (verdict["subjects"][0]["path"], {"startLine": 1})
    results = [_result(verdict, f"{verdict['verdict']}: {_summary(verdict)}", whole)]
    for finding in verdict["findings"]:
        places = ((path, region(finding["quote"], text)) for path, text in texts.items())
        place = next(((path, at) for path, at in places if at is not None), whole)
        lines = [finding["issue"]]
        if finding["suggestion"]:
            lines.append(f"Suggestion: {finding['suggestion']}")
        result = _result(verdict, "\n\n".join(lines), place)
        apart = {}
        for name in ("issue", "suggestion", "quote"):
            if finding[name]:
                apart[name] = finding[name]
        result["properties"] = apart
        if dismissed := finding.get("dismissed"):
            why = f"dismissed by {dismissed['who']}"
            result["suppressions"] = [{"kind": "external", "justification": why}]
        results.append(result)
    return results


def _result(
    verdict: Mapping[str, Any], message: str, place: tuple[str, dict[str, int]]
) -> dict[str, Any]:
    path, at = place
    locations = [{"physicalLocation": {"artifactLocation": {"uri": quote(path)}, "region": at}}]
    return {
        "ruleId": _rule(verdict),
        "level": _LEVELS.get(verdict["verdict"], "warning"),
        "message": {"text": message},
        "locations": locations,
    }


def _invocation(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run of the gate skipped, and what it did not examine, as notifications of the tool."""
    notifications: list[dict[str, Any]] = []
    for group in run["skipped"]:
        text = f"{group['count']} skipped: {group['reason']}"
        notifications.append(
            {"descriptor": {"id": _SKIPPED}, "level": "note", "message": {"text": text}}
        )
    level = "error" if run["holds"] else "warning"
    for omission in run["not_examined"]:
        text = f"not examined: {omission['name']}: {omission['reason']}"
        notifications.append(
            {"descriptor": {"id": _NOT_EXAMINED}, "level": level, "message": {"text": text}}
        )
    return {
        # An error of the gate itself is none of what it judges.
        "executionSuccessful": not run["fault"],
        "toolExecutionNotifications": notifications,
        "properties": {
            name: run[name] for name in ("verdict", "mode", "blocked", "judged", "notes")
        },
    }


def junit(verdicts: Sequence[Mapping[str, Any]], run: Mapping[str, Any] | None = None) -> str:
    """Return JUnit XML: accepted passes, rejected and improve fail, the rest counts as skipped.

    A test is named by its path alone, so that it stays the same test when the file changes. What a `run` of
    the gate did not examine is a test that is skipped, or an error where that stops a push.
    """
    from xml.etree import ElementTree as ET

    suite = ET.Element("testsuite", name="judgekit")
    if run is not None:
        _add_properties(suite, run)
    holds = run is not None and run["holds"]
    if run is not None:
        unread = {omission["name"] for omission in run["not_examined"]}
    else:
        unread = set()
    named = set()
    for verdict in verdicts:
        name = task_name(verdict["task_id"])
        named.add(name)
        case = _add_case(suite, name, _rule(verdict))
        case.set("time", f"{verdict['duration_ms'] / 1000:.3f}")
        text = "\n".join([_summary(verdict), *_finding_lines(verdict)])
        if verdict["verdict"] in ("reject", "improve"):
            ET.SubElement(case, "failure", message=verdict["verdict"]).text = _xml(text)
        elif verdict["verdict"] != "accept":
            if name in unread:
                word = "not examined"
            else:
                word = verdict["verdict"]
            _add_undecided(case, f"{word}: {_summary(verdict)}", text, holds=holds)
        elif verdict["findings"]:
            ET.SubElement(case, "system-out").text = _xml(text)
    for omission in run["not_examined"] if run is not None else ():
        if omission["name"] not in named:
            case = _add_case(suite, omission["name"], "gate")
            _add_undecided(
                case, f"not examined: {omission['reason']}", omission["reason"], holds=holds
            )
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("errors", str(len(suite.findall("*/error"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _add_case(suite: Element, name: str, classname: str) -> Element:
    from xml.etree import ElementTree as ET

    return ET.SubElement(suite, "testcase", name=_xml(name), classname=_xml(classname))


def _add_undecided(case: Element, message: str, text: str, *, holds: bool) -> None:
    from xml.etree import ElementTree as ET

    state = ET.SubElement(case, "error" if holds else "skipped", message=_xml(message))
    state.text = _xml(text)


def _add_properties(suite: Element, run: Mapping[str, Any]) -> None:
    """Add what a run of the gate came to, and what it skipped, to a test suite."""
    from xml.etree import ElementTree as ET

    properties = ET.SubElement(suite, "properties")
    values = {"mode": run["mode"], "blocked": str(run["blocked"]).lower()}
    values |= {f"judged {word}": str(count) for word, count in run["judged"].items()}
    values |= {f"skipped: {group['reason']}": str(group["count"]) for group in run["skipped"]}
    values["not examined"] = str(len(run["not_examined"]))
    for name, value in values.items():
        ET.SubElement(properties, "property", name=_xml(name), value=_xml(value))


def _finding_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Return the findings of a verdict, each with its quote and its suggestion on lines of their own."""
    lines: list[str] = []
    for finding in verdict["findings"]:
        where = " in ".join(filter(None, (finding.get("dimension"), finding.get("location"))))
        lines.append(f"- {where}: {finding['issue']}" if where else f"- {finding['issue']}")
        if finding["quote"]:
            lines.append(f'  > "{finding["quote"]}"')
        if finding["suggestion"]:
            lines.append(f"  -> {finding['suggestion']}")
        if dismissed := finding.get("dismissed"):
            lines.append(f"  dismissed by {dismissed['who']}")
    return lines


def _rule(verdict: Mapping[str, Any]) -> str:
    return rubric_name(verdict["rubric"]["id"], verdict["rubric"].get("source"))


def region(passage: str, text: str) -> dict[str, int] | None:
    """Return where a quote stands in a text: lines and columns from 1, the end behind it; None if nowhere."""
    words = passage.split()
    if not words:
        return None
    place = text.find(passage)
    start = place
    end = place + len(passage)
    if start < 0:
        flat = " ".join(text.split())
        loosely = " ".join(words)
        place = flat.find(loosely)
        if place < 0:
            return None
        start = _unflattened(text, flat, place)
        end = _unflattened(text, flat, place + len(loosely) - 1) + 1
    return {
        "startLine": text.count("\n", 0, start) + 1,
        "startColumn": start - text.rfind("\n", 0, start),
        "endLine": text.count("\n", 0, end) + 1,
        "endColumn": end - text.rfind("\n", 0, end),
    }


def _unflattened(text: str, flat: str, place: int) -> int:
    """Return where a character of `flat`, the text with single blanks, stands in the text."""
    before = flat.rfind(" ", 0, place) + 1
    word = next(islice(re.finditer(r"\S+", text), flat.count(" ", 0, before), None))
    return word.start() + place - before


def _judged_text(subject: Mapping[str, Any]) -> str:
    """Return the text of a file if it is still the one that was judged, else nothing."""
    try:
        with Path(subject["path"]).open("rb") as file:
            data = file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return ""
    if hashlib.sha256(data).hexdigest() != subject["sha256"]:
        return ""
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _summary(verdict: Mapping[str, Any]) -> str:
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict["scores"] or {}).items())
    return "; ".join(filter(None, (scores, verdict["reasoning"], verdict["degraded"])))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)

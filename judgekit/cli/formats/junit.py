"""Renders verdicts as JUnit XML: reject and improve fail, undetermined and escalate are skipped, others pass.

A test is named only by its path, so that it stays the same test when the file changes. A file that the gate
didn't examine is a skipped test, or an error if that stops a push.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree as ET

from judgekit.cli.formats.findings import render_finding
from judgekit.cli.formats.handed_on import (
    clean_gate,
    clean_verdicts,
    name_rubric,
    summarise_verdict,
)
from judgekit.cli.formats.row_results import UNDECIDED
from judgekit.redaction.redact import without_secrets
from judgekit.task_ids import task_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

# Characters that XML 1.0 can't hold: control characters, lone surrogates, U+FFFE and U+FFFF.
_NON_XML_CHAR_PATTERN = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_verdicts(verdicts: Sequence[Record]) -> str:
    suite = ET.Element("testsuite", name="judgekit")
    for verdict in clean_verdicts(verdicts):
        _add_verdict(suite, verdict)
    return _write_suite(suite)


def render_gate(report: Report) -> str:
    """Write a test for each file, including unexamined ones, and the run's outcome as properties."""
    verdicts, run = clean_gate(report)
    suite = ET.Element("testsuite", name="judgekit")
    _add_properties(suite, run)
    # A file that was never sent to a model is unexamined, but has an undetermined verdict.
    unexamined_names = {omission["name"] for omission in run["not_examined"]}
    for verdict in verdicts:
        _add_verdict(suite, verdict, unexamined_names, holds=run["holds"])

    names_with_verdict = {task_name(verdict["task_id"]) for verdict in verdicts}
    for omission in run["not_examined"]:
        if omission["name"] in names_with_verdict:  # it has a test already
            continue
        case = _add_case(suite, omission["name"], "gate")
        reason = omission["reason"]
        _add_undecided(case, f"not examined: {reason}", reason, holds=run["holds"])

    return _write_suite(suite)


def render_rows(results: RowResults) -> str:
    """Write a test for each row, and one for all limits if there are any."""
    suite = ET.Element("testsuite", name="judgekit")
    if results.has_limits:
        _add_limits(suite, results.missed_limits)

    for verdict in results.verdicts():
        # Nothing of the rounds is written, so don't search them for secrets.
        used_fields = {name: value for name, value in verdict.items() if name != "rounds"}
        _add_verdict(suite, without_secrets(used_fields))
    return _write_suite(suite)


def _add_limits(suite: ET.Element, missed: Sequence[str]) -> None:
    """Add a test for all limits, which fails if any is missed."""
    case = _add_case(suite, "limits", "judgekit")
    if missed:
        text = "\n".join(without_secrets(list(missed)))
        failure = ET.SubElement(case, "failure", message="limits missed")
        failure.text = _make_xml_safe(text)


render_report = render_rows


def _write_suite(suite: ET.Element) -> str:
    """Count a suite's tests, and render it."""
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("errors", str(len(suite.findall("*/error"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _add_verdict(
    suite: ET.Element, verdict: Record, unexamined: Collection[str] = (), *, holds: bool = False
) -> None:
    """Add a verdict's test. An undecided one is an error if the gate `holds` the push, else it's skipped."""
    name = verdict.get("row") or task_name(verdict["task_id"])
    case = _add_case(suite, name, name_rubric(verdict))
    case.set("time", f"{verdict['duration_ms'] / 1000:.3f}")
    text = "\n".join([summarise_verdict(verdict), *_render_findings(verdict)])

    word = verdict["verdict"]
    if word in ("reject", "improve"):
        ET.SubElement(case, "failure", message=word).text = _make_xml_safe(text)
    elif word in UNDECIDED:
        if name in unexamined:
            word = "not examined"
        _add_undecided(case, f"{word}: {summarise_verdict(verdict)}", text, holds=holds)
    elif verdict["findings"] or verdict["degraded"]:  # accepted, but there's more to say
        ET.SubElement(case, "system-out").text = _make_xml_safe(text)


def _add_case(suite: ET.Element, name: str, classname: str) -> ET.Element:
    """Add a test to a suite and return it."""
    return ET.SubElement(
        suite, "testcase", name=_make_xml_safe(name), classname=_make_xml_safe(classname)
    )


def _add_undecided(case: ET.Element, message: str, text: str, *, holds: bool) -> None:
    """Mark a test as skipped, or as an error if the gate `holds` undecided pushes."""
    tag = "error" if holds else "skipped"
    outcome = ET.SubElement(case, tag, message=_make_xml_safe(message))
    outcome.text = _make_xml_safe(text)


def _add_properties(suite: ET.Element, run: Record) -> None:
    """Add a gate run's outcome and skipped files to a test suite."""
    values = {"mode": run["mode"], "blocked": str(run["blocked"]).lower()}
    for word, count in run["judged"].items():
        values[f"judged {word}"] = str(count)
    for group in run["skipped"]:
        values[f"skipped: {group['reason']}"] = str(group["count"])
    values["not examined"] = str(len(run["not_examined"]))
    properties = ET.SubElement(suite, "properties")
    for name, value in values.items():
        ET.SubElement(
            properties, "property", name=_make_xml_safe(name), value=_make_xml_safe(value)
        )


def _render_findings(verdict: Record) -> list[str]:
    """Render a verdict's findings as lines, with the names of people who dismissed any."""
    text_lines: list[str] = []
    for finding in verdict["findings"]:
        text_lines += render_finding(finding)
        dismissed = finding.get("dismissed")
        if dismissed:
            text_lines.append(f"  dismissed by {dismissed['who']}")
    return text_lines


def _make_xml_safe(text: str) -> str:
    """Replace characters that XML doesn't allow."""
    return _NON_XML_CHAR_PATTERN.sub("\ufffd", text)

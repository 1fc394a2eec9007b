"""Verdicts in the formats that other programs read: JSON, JSON lines, SARIF 2.1.0 and JUnit XML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from judgekit import __version__
from judgekit.redaction import without_secrets
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    "accept": "note",
    "improve": "warning",
    "reject": "error",
    "escalate": "warning",
    "undetermined": "warning",
}


def render(name: str, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the records of verdicts in the format `name`: json, jsonl, sarif or junit."""
    if name == "jsonl":
        return "\n".join(map(line, verdicts))
    if name in ("sarif", "junit"):  # reports are made to be handed on
        verdicts = without_secrets(list(verdicts))
    return {"json": as_json, "sarif": sarif, "junit": junit}[name](verdicts)


def line(verdict: Mapping[str, Any]) -> str:
    """Return one verdict as one line of JSON."""
    return json.dumps(verdict, ensure_ascii=False, separators=(",", ":"))


def as_json(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return an array of verdicts."""
    return json.dumps(list(verdicts), indent=2, ensure_ascii=False)


def sarif(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return a SARIF log: one result a verdict, and one for each finding."""
    rules = {_rule(each) for each in verdicts}
    driver = {
        "name": "judgekit",
        "version": __version__,
        "rules": [{"id": name} for name in sorted(rules)],
    }
    results = [result for each in verdicts for result in _results(each)]
    log = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False)


def junit(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return JUnit XML: accepted passes, rejected and improve fail, the rest counts as skipped."""
    from xml.etree import ElementTree as ET

    suite = ET.Element("testsuite", name="judgekit", tests=str(len(verdicts)))
    failed = skipped = 0
    for each in verdicts:
        case = ET.SubElement(
            suite,
            "testcase",
            name=_xml(each["task_id"]),
            classname=_rule(each),
            time=f"{each['duration_ms'] / 1000:.3f}",
        )
        if each["verdict"] in ("reject", "improve"):
            failed += 1
            ET.SubElement(case, "failure", message=each["verdict"]).text = _xml(_summary(each))
        elif each["verdict"] != "accept":
            skipped += 1
            ET.SubElement(case, "skipped", message=_xml(f"{each['verdict']}: {_summary(each)}"))
    suite.set("failures", str(failed))
    suite.set("skipped", str(skipped))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _results(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    from urllib.parse import quote

    level = _LEVELS[verdict["verdict"]]
    uri = quote(verdict["subjects"][0]["path"])
    texts = [f"{verdict['verdict']}: {_summary(verdict)}"]
    texts += [" ".join(filter(None, (each["issue"], each["suggestion"]))) for each in verdict["findings"]]
    location = {"physicalLocation": {"artifactLocation": {"uri": uri}}}
    return [
        {
            "ruleId": _rule(verdict),
            "level": level,
            "message": {"text": text},
            "locations": [location],
        }
        for text in texts
    ]


def _rule(verdict: Mapping[str, Any]) -> str:
    return rubric_name(verdict["rubric"]["id"], verdict["rubric"].get("source"))


def _summary(verdict: Mapping[str, Any]) -> str:
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict["scores"] or {}).items())
    return "; ".join(filter(None, (scores, verdict["reasoning"], verdict["degraded"])))


def _xml(text: str) -> str:
    """Drop the control characters that XML 1.0 cannot hold."""
    return "".join(
        char for char in text if char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff")
    )

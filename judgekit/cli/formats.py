"""Verdicts in the formats that other programs read: JSON, JSON lines, SARIF 2.1.0 and JUnit XML."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from judgekit.environment import __version__
from judgekit.judging.redact import without_secrets
from judgekit.text import rubric_name

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_BYTES = 64_000_000
_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\U0010ffff]")  # control characters that XML 1.0 cannot hold
_LEVELS = {"accept": "note", "reject": "error"}  # all else is a warning


def render(name: str, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the records of verdicts in the format `name`: json, jsonl, sarif or junit."""
    if name == "jsonl":
        return "\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in verdicts)
    if name == "json":
        return json.dumps(list(verdicts), indent=2, ensure_ascii=False)
    clean = without_secrets(list(verdicts))  # reports are made to be handed on
    return sarif(clean) if name == "sarif" else _junit(clean)


def sarif(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return a SARIF log: one result a verdict, and one for each finding."""
    results: list[dict[str, Any]] = []
    for verdict in verdicts:
        texts = {subject["path"]: _judged_text(subject) for subject in verdict["subjects"]}
        # What is said of a whole file has a region, too: GitHub's code scanning shows nothing without one.
        first = (verdict["subjects"][0]["path"], {"startLine": 1})
        found = [(f"{verdict['verdict']}: {_summary(verdict)}", first, None)]
        for finding in verdict["findings"]:
            message = " ".join(filter(None, (finding["issue"], finding["suggestion"])))
            places = ((path, region(finding["quote"], text)) for path, text in texts.items())
            at = next(((path, at) for path, at in places if at is not None), first)
            found.append((message, at, finding.get("dismissed")))
        for message, (path, place), dismissed in found:
            location = {"artifactLocation": {"uri": quote(path)}, "region": place}
            result = {"ruleId": _rule(verdict), "level": _LEVELS.get(verdict["verdict"], "warning")}
            more = {"message": {"text": message}, "locations": [{"physicalLocation": location}]}
            results.append({**result, **more})
            if dismissed:
                why = f"dismissed by {dismissed['who']}"
                results[-1]["suppressions"] = [{"kind": "external", "justification": why}]
    if any("suppressions" in result for result in results):  # the standard wants it of all or of none
        results = [result | {"suppressions": result.get("suppressions", [])} for result in results]
    rules = [{"id": name} for name in sorted({_rule(verdict) for verdict in verdicts})]
    driver = {"name": "judgekit", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def _junit(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return JUnit XML: accepted passes, rejected and improve fail, the rest counts as skipped."""
    from xml.etree import ElementTree as ET

    suite = ET.Element("testsuite", name="judgekit", tests=str(len(verdicts)))
    for verdict in verdicts:
        case = ET.SubElement(suite, "testcase", name=_xml(verdict["task_id"]), classname=_rule(verdict))
        case.set("time", f"{verdict['duration_ms'] / 1000:.3f}")
        if verdict["verdict"] in ("reject", "improve"):
            ET.SubElement(case, "failure", message=verdict["verdict"]).text = _xml(_summary(verdict))
        elif verdict["verdict"] != "accept":
            ET.SubElement(case, "skipped", message=_xml(f"{verdict['verdict']}: {_summary(verdict)}"))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _rule(verdict: Mapping[str, Any]) -> str:
    return rubric_name(verdict["rubric"]["id"], verdict["rubric"].get("source"))


def region(passage: str, text: str) -> dict[str, int] | None:
    """Return where a quote stands in a text: lines and columns from 1, the end behind it; None if nowhere."""
    if not (words := passage.split()):
        return None
    start, end = (place := text.find(passage)), place + len(passage)
    if start < 0:
        flat, loosely = " ".join(text.split()), " ".join(words)
        if (place := flat.find(loosely)) < 0:
            return None
        start, end = _unflattened(text, flat, place), _unflattened(text, flat, place + len(loosely) - 1) + 1
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
    return _NOT_XML.sub("", text)

"""What reports have in common that are handed on to others: no secrets, names of rules, places of quotes."""

from __future__ import annotations

import hashlib
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.redaction.redact import without_secrets
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_MOST_BYTES = 64_000_000


class GateRecords(NamedTuple):
    """A run of the gate as records: a verdict for each file, and one about the whole run."""

    verdicts: Sequence[Record]
    run: Record


def clean_verdicts(verdicts: Sequence[Record]) -> list[Record]:
    """Return the records of verdicts without the secrets in their texts."""
    clean: list[Record] = without_secrets(list(verdicts))
    return clean


def clean_gate(report: Report) -> GateRecords:
    """Return the records of a run of the gate without the secrets in their texts."""
    # Its model needs pydantic, which takes longer to import than an engine takes to judge one document.
    from judgekit.gate.record import gate_record

    verdicts = [row["verdict"] for row in report.rows]
    verdicts, run = without_secrets([verdicts, gate_record(report)])
    return GateRecords(verdicts, run)


def rule_name(verdict: Record) -> str:
    """Return the name of the rubric that a verdict follows."""
    return rubric_name(verdict["rubric"]["id"], verdict["rubric"].get("source"))


def summarise(verdict: Record) -> str:
    """Return scores, reasoning, and why a verdict is less than it could be; it may have line breaks."""
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict["scores"] or {}).items())
    return "; ".join(filter(None, (scores, verdict["reasoning"], verdict["degraded"])))


def read_judged_text(subject: Record) -> str:
    """Return the text of a file if it is still the one that was judged, else nothing."""
    try:
        with Path(subject["path"]).open("rb") as file:
            data = file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return ""
    if hashlib.sha256(data).hexdigest() != subject["sha256"]:
        return ""
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def find_region(passage: str, text: str) -> dict[str, int] | None:
    """Return where a quote stands in a text: lines and columns from 1, the end behind it; None if nowhere."""
    words = passage.split()
    if not words:
        return None
    start = text.find(passage)
    end = start + len(passage)
    if start < 0:  # the model may have broken its lines elsewhere
        flat_text = " ".join(text.split())
        flat_passage = " ".join(words)
        place = flat_text.find(flat_passage)
        if place < 0:
            return None
        start = _unflatten(text, flat_text, place)
        end = _unflatten(text, flat_text, place + len(flat_passage) - 1) + 1
    start_line, start_column = _position(text, start)
    end_line, end_column = _position(text, end)
    return {
        "startLine": start_line,
        "startColumn": start_column,
        "endLine": end_line,
        "endColumn": end_column,
    }


def _position(text: str, at: int) -> tuple[int, int]:
    """Return the line and the column of a character, both counted from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _unflatten(text: str, flat_text: str, place: int) -> int:
    """Return where a character of `flat_text`, the text with single blanks, stands in the text."""
    word_start = flat_text.rfind(" ", 0, place) + 1
    word_number = flat_text.count(" ", 0, word_start)
    word = next(islice(re.finditer(r"\S+", text), word_number, None))
    return word.start() + place - word_start

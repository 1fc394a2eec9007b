"""Imports lines of other ledgers and verdicts of older judges; a second import adds nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from pydantic import ValidationError

from judgekit.config import TIERS
from judgekit.config.yamlfile import problem
from judgekit.judging.verdict import Consensus, VerdictWord
from judgekit.ledger import records, store
from judgekit.ledger.records import OverrideLine, VerdictLine
from judgekit.ledger.store import Damage
from judgekit.text import encodable, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from judgekit.ledger.records import Record
    from judgekit.ledger.store import Ledger

Fields: TypeAlias = dict[str, Any]

_SHOWN = 60  # characters of a wrong value
_AT_ONCE = 500  # lines that are written under one lock
_NO_PLACE = "expected times inside the years 1 to 9999 and values nested less than 200 deep; correct the line"
_WORDS = {"GO": "accept", "NO-GO": "reject", "UNDETERMINED": "undetermined"}
# The keys of an older line that a verdict has a place for.
_PUSH = {
    *("commit", "timestamp", "author", "judge_model", "files_evaluated", "scores", "verdict", "findings"),
    *("revision_suggestions", "previous_rounds"),
}
_TASK = {
    *("task_id", "model", "mode", "verdict", "scores", "average", "reasoning", "improvements", "timestamp"),
    *("round", "judge_tier", "consensus", "human_override", "previous_rounds"),
}


def verdict(found: Fields, *, text: bool = False) -> VerdictLine:
    """Return the verdict in one older line; what a verdict has no place for stands under `imported`.

    Without `text`, reasoning is left out. The same line always gets the same id. Raises `ValueError` saying
    what is missing or wrong.
    """
    if "files_evaluated" in found or "judge_model" in found:
        fields, known = _of_push(found), _PUSH
    elif "task_id" in found:
        fields, known = _of_task(found, text=text), _TASK
    else:
        raise ValueError("not a verdict: neither files_evaluated nor task_id")
    scores, average = _scores(found.get("scores")), _number(found.get("average"))
    rest = {key: value for key, value in found.items() if key not in known}
    whole = json.dumps(found, sort_keys=True, ensure_ascii=True)
    common: Fields = {
        "id": hashlib.sha256(whole.encode()).hexdigest()[:32],
        "rubric": {"id": "kls", "version": "", "sha256": ""},
        "prompt_sha256": "",
        "timestamp": _time(found.get("timestamp")),
        "scores": scores or None,
        "average": average or (round(fmean(scores.values()), 2) if scores else None),
        "duration_ms": 0,
        "imported": json.loads(encodable(json.dumps(rest, ensure_ascii=False))),
    }
    return VerdictLine.model_validate(common | fields)


def _of_push(found: Fields) -> Fields:
    files = [_text(file) for file in _list(found.get("files_evaluated"))]
    commit, author = _text(found.get("commit")) or None, found.get("author")
    word = _WORDS[_one_of(_WORDS, found, str(found.get("verdict")).upper())]
    findings = found.get("findings")  # as texts, as objects, or as texts by dimension
    if isinstance(findings, dict):
        findings = [{"dimension": name, "issue": issue} for name, issue in findings.items()]
    listed = [
        {
            **{name: _text(each.get(name)) for name in ("dimension", "location", "suggestion")},
            "issue": _text(each.get("issue") or each.get("finding") or each.get("description")),
        }
        if isinstance(each, dict)
        else {"issue": _text(each)}
        for each in _list(findings)
    ]
    return {
        "task_id": "@".join(filter(None, [", ".join(files), commit])) or "a push",
        "subjects": [{"path": file, "sha256": ""} for file in files],
        "mode": "lenient",
        "verdict": word,
        "findings": [*listed, *_suggestions(found.get("revision_suggestions"))],
        "consensus": "none" if word == "undetermined" else "single",
        "model": _text(found.get("judge_model")) or None,
        "author": {"name": _text(author.get("name") if isinstance(author, dict) else author) or None},
        "commit": commit,
    }


def _of_task(found: Fields, *, text: bool) -> Fields:
    consensus = found.get("consensus")
    tier = found.get("judge_tier") or found.get("mode")
    rounds = []
    for number, each in enumerate([*_list(found.get("previous_rounds")), found], 1):
        if isinstance(each, dict):
            asked, scores = each.get("judge_tier") or each.get("mode"), _scores(each.get("scores"))
            opinion = {"outcome": each.get("verdict"), "scores": scores} if scores else None
            asked = asked if asked in TIERS else "quick"
            model = _text(each.get("model"))
            rounds.append({"round": number, "tier": asked, "model": model, "opinion": opinion})
    override = found.get("human_override")  # as a word or as an object
    override = override if isinstance(override, dict) else {"decision": override}
    decision = override.get("decision") or override.get("verdict")
    return {
        "task_id": _text(found["task_id"]),
        "subjects": [],
        "mode": "strict",
        "verdict": _one_of(get_args(VerdictWord), found, found.get("verdict")),
        "reasoning": _text(found.get("reasoning")) if text else "",
        "findings": _suggestions(found.get("improvements")),
        "consensus": consensus if consensus in get_args(Consensus) else "none",
        "judge_tier": tier if tier in TIERS else None,
        "model": _text(found.get("model")) or None,
        "rounds": rounds,
        "human_override": {
            "decision": decision,
            "why": _text(override.get("why") or override.get("reason")),
            "who": _text(override.get("who") or override.get("by")),
            "at": _time(
                override.get("at") or override.get("timestamp") or found.get("timestamp"), "human_override.at"
            ),
        }
        if decision in ("accept", "reject")
        else None,
        "of_task": True,
    }


def _one_of(words: Iterable[str], found: Fields, word: Any) -> str:  # noqa: ANN401 - any JSON
    known = list(words)
    if word not in known:
        got = one_line(repr(found.get("verdict")), _SHOWN)
        raise ValueError(f"verdict: expected one of {', '.join(known)}, got {got}")
    return str(word)


def _time(found: object, key: str = "timestamp") -> datetime:
    try:
        if isinstance(found, str):
            return store.aware(datetime.fromisoformat(found.strip()))
    except ValueError:
        pass
    expected = "expected a time as 2026-02-01T08:00:00Z"
    raise ValueError(f"{key}: {expected}, got {one_line(repr(found), _SHOWN)}; correct the line")


def _scores(found: object) -> dict[str, float]:
    numbers = {str(name): _number(each) for name, each in found.items()} if isinstance(found, dict) else {}
    return {name: number for name, number in numbers.items() if number is not None}


def _number(found: object) -> float | None:
    """Return a number, also one that was written as a text."""
    try:
        number = float(found) if isinstance(found, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and isfinite(number) else None


def _suggestions(found: object) -> list[Fields]:
    return [{"issue": "", "suggestion": _text(each)} for each in _list(found)]


def _list(found: object) -> list[Any]:
    if isinstance(found, list):
        return found
    return [] if found in (None, "") else [found]


def _text(found: object) -> str:
    if isinstance(found, str):
        return encodable(found)
    return "" if found is None else encodable(json.dumps(found))


@dataclass(slots=True)
class Imported:
    """What an import did: lines added, lines that were there already, lines that cannot be read."""

    added: int = 0
    known: int = 0
    damaged: list[Damage] = field(default_factory=list)


def bring(ledger: Ledger, places: Iterable[Path], *, text: bool = False) -> Imported:
    """Add every line in files and folders of `*.jsonl` that the ledger does not have yet.

    Without `text`, the reasoning of older lines is left out. Raises `LedgerError`.
    """
    done = Imported()
    ids = {record.id for record in ledger.records()}
    waiting: list[Record] = []
    for path in store.files(places, done.damaged.append):
        for number, raw in store.raw_lines(path, done.damaged.append):
            record = _read(raw, text=text)
            if isinstance(record, str):
                done.damaged.append(Damage(path, number, record))
            elif record.id in ids:
                done.known += 1
            else:
                ids.add(record.id)
                if isinstance(record, OverrideLine):  # nobody typed it at a terminal of ours
                    record = record.model_copy(update={"terminal": False})
                waiting.append(record)
                done.added += 1
            if len(waiting) == _AT_ONCE:
                ledger.add(*waiting)
                waiting.clear()
    ledger.add(*waiting)
    return done


def _read(raw: bytes, *, text: bool) -> Record | str:
    """Return the record in a line that can be written and read again, else what is wrong with it."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(found, dict):
        return "not an object"
    try:
        record = store.parse(raw) if "schema" in found else verdict(found, text=text)
    except ValidationError as error:
        return str(problem(error.errors(include_url=False), found))
    except ValueError as error:
        return str(error)
    except (OverflowError, RecursionError):
        return _NO_PLACE
    if isinstance(record, str):
        return record
    try:
        record.timestamp.astimezone(UTC)
        return _NO_PLACE if isinstance(store.parse(records.line(record)), str) else record
    except (OverflowError, RecursionError, ValueError):
        return _NO_PLACE

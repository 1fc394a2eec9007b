"""Imports lines of other ledgers and verdicts of older judges, once; fetches the lines of another host."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from judgekit import environment, programs
from judgekit.config import TIERS
from judgekit.config.yamlfile import problem
from judgekit.errors import InputError, UsageError
from judgekit.judging.verdict import Consensus, VerdictWord
from judgekit.ledger import records, store
from judgekit.ledger.records import OverrideLine, Record, VerdictLine
from judgekit.ledger.store import Damage, Ledger
from judgekit.text import encodable, lines_of, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Fields: TypeAlias = dict[str, Any]

SECONDS = 60.0  # for all that a host sends
MOST_BYTES = 64_000_000
_SSH = ("-oBatchMode=yes", "-oConnectTimeout=10", "-oLogLevel=ERROR")
_SAID = 200  # characters of a host's complaint
_SHOWN = 60  # characters of a wrong value
_AT_ONCE = 500  # lines that are written under one lock
_NO_PLACE = "expected times inside the years 1 to 9999 and values nested less than 200 deep; correct the line"
_WORDS = {"GO": "accept", "NO-GO": "reject", "UNDETERMINED": "undetermined"}
# The keys of an older line that a verdict has a place for.
_BOTH = {"timestamp", "scores", "average", "verdict", "previous_rounds"}
_PUSH = _BOTH - {"average"} | {"commit", "author", "judge_model", "files_evaluated", "findings"}
_PUSH |= {"revision_suggestions"}
_TASK = _BOTH | {
    "task_id",
    "model",
    "mode",
    "reasoning",
    "improvements",
    "round",
    "judge_tier",
    "consensus",
}
_TASK |= {"human_override"}


def verdict(found: Fields, *, text: bool = False) -> VerdictLine:
    """Return the verdict in an older line, always with the same id; raises `ValueError`, saying why."""
    if "files_evaluated" in found or "judge_model" in found:
        fields = _of_push(found)
        known = _PUSH
    elif "task_id" in found:
        fields = _of_task(found, text=text)
        known = _TASK
    else:
        raise ValueError("not a verdict: neither files_evaluated nor task_id")
    scores = _scores(found)
    average = _number(found.get("average"))
    rest = {}
    for key, value in found.items():
        if key not in known:
            rest[key] = value
    whole = json.dumps(found, sort_keys=True, ensure_ascii=True)
    imported = json.loads(encodable(json.dumps(rest, ensure_ascii=False)))
    common: Fields = {
        "id": hashlib.sha256(whole.encode()).hexdigest()[:32],
        "rubric": {"id": "kls", "version": "", "sha256": ""},
        "prompt_sha256": "",
        "timestamp": _time(found.get("timestamp")),
        "scores": scores,
        "average": average or (round(fmean(scores.values()), 2) if scores else None),
        "duration_ms": 0,
        "imported": imported,
    }
    return VerdictLine.model_validate(common | fields)


def _of_push(found: Fields) -> Fields:
    paths = [_text(path) for path in _list(found.get("files_evaluated"))]
    commit = _text(found.get("commit")) or None
    author = found.get("author")
    word = _word(_WORDS, found, str(found.get("verdict")).upper())
    keys = ("dimension", "location", "issue", "suggestion")
    listed = []
    for each in _list(found.get("findings")):
        if isinstance(each, dict):
            one = each
        else:
            one = {"issue": each}
        listed.append({key: _text(one.get(key)) for key in keys})
    task_id = "@".join(filter(None, [", ".join(paths), commit])) or "a push"
    findings = [*listed, *_suggestions(found.get("revision_suggestions"))]
    return {
        "task_id": task_id,
        "subjects": [{"path": path, "sha256": ""} for path in paths],
        "mode": "lenient",
        "verdict": word,
        "findings": findings,
        "consensus": "none" if word == "undetermined" else "single",
        "model": _text(found.get("judge_model")) or None,
        "author": {
            "name": _text(author.get("name") if isinstance(author, dict) else author) or None
        },
        "commit": commit,
    }


def _of_task(found: Fields, *, text: bool) -> Fields:
    rounds = []
    for number, each in enumerate([*_list(found.get("previous_rounds")), found], 1):
        if isinstance(each, dict):
            tier = each.get("judge_tier") or each.get("mode")
            scores = _scores(each)
            if scores:
                opinion = {"outcome": each.get("verdict"), "scores": scores}
            else:
                opinion = None
            one = {"round": number, "tier": tier if tier in TIERS else "quick", "opinion": opinion}
            rounds.append({**one, "model": _text(each.get("model"))})
    given = found.get("human_override")
    override = None  # as a word or as an object
    if not isinstance(given, dict):
        given = {"decision": given}
    decision = given.get("decision")
    if decision in ("accept", "reject"):
        at = _time(given.get("at") or found.get("timestamp"), "human_override.at")
        said = {key: _text(given.get(key)) for key in ("why", "who")}
        override = {"decision": decision, "at": at, **said}
    consensus = found.get("consensus")
    tier = found.get("judge_tier") or found.get("mode")
    if text:
        reasoning = _text(found.get("reasoning"))
    else:
        reasoning = ""
    return {
        "task_id": _text(found["task_id"]),
        "subjects": [],
        "mode": "strict",
        "verdict": _word(
            {word: word for word in get_args(VerdictWord)}, found, found.get("verdict")
        ),
        "reasoning": reasoning,
        "findings": _suggestions(found.get("improvements")),
        "consensus": consensus if consensus in get_args(Consensus) else "none",
        "judge_tier": tier if tier in TIERS else None,
        "model": _text(found.get("model")) or None,
        "rounds": rounds,
        "human_override": override,
        "of_task": True,
    }


def _word(words: dict[str, str], found: Fields, word: object) -> str:
    if not isinstance(word, str) or word not in words:
        got = one_line(repr(found.get("verdict")), _SHOWN)
        raise ValueError(f"verdict: expected one of {', '.join(words)}, got {got}")
    return words[word]


def _time(found: object, key: str = "timestamp") -> datetime:
    with suppress(ValueError):
        if isinstance(found, str):
            return store.aware(datetime.fromisoformat(found.strip()))
    expected = "expected a time as 2026-02-01T08:00:00Z"
    raise ValueError(f"{key}: {expected}, got {one_line(repr(found), _SHOWN)}; correct the line")


def _scores(found: Fields) -> dict[str, float] | None:
    scores = found.get("scores")
    if isinstance(scores, dict):
        numbers = {}
        for name, each in scores.items():
            numbers[str(name)] = _number(each)
    else:
        numbers = {}
    return {name: number for name, number in numbers.items() if number is not None} or None


def _number(found: object) -> float | None:
    with suppress(ValueError, OverflowError):
        if isinstance(found, int | float | str) and isfinite(number := float(found)):
            return number
    return None


def _suggestions(found: object) -> list[Fields]:
    return [{"issue": "", "suggestion": _text(each)} for each in _list(found)]


def _list(found: object) -> list[Any]:
    if isinstance(found, list):
        return found
    return [] if found in (None, "") else [found]


def _text(found: object) -> str:
    return encodable(
        found if isinstance(found, str) else "" if found is None else json.dumps(found)
    )


class Imported(NamedTuple):
    added: int
    known: int
    damaged: list[Damage]


def bring(ledger: Ledger, places: Iterable[Path], *, text: bool = False) -> Imported:
    """Add every line of files and folders that the ledger does not have yet; raises `LedgerError`."""
    before = {record.id for record in ledger.records()}
    ids = set(before)
    known = 0
    damaged: list[Damage] = []
    waiting: list[Record] = []
    for path in store.files(places, damaged.append):
        for number, raw in store.raw_lines(path, damaged.append):
            record = _read(raw, text=text)
            if isinstance(record, str):
                damaged.append(Damage(path, number, record))
            elif record.id in ids:
                known += 1
            else:
                ids.add(record.id)
                if isinstance(record, OverrideLine):  # nobody typed it at a terminal of ours
                    record = record.model_copy(update={"terminal": False})
                waiting.append(record)
            if len(waiting) == _AT_ONCE:
                ledger.add(*waiting)
                waiting.clear()
    ledger.add(*waiting)
    return Imported(len(ids) - len(before), known, damaged)


def _read(raw: bytes, *, text: bool) -> Record | str:
    """Return the record in a line that can be written and read again, else what is wrong with it."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(found, dict):
        return "not an object"
    try:
        if "schema" in found:
            record = store.parse(raw)
        else:
            record = verdict(found, text=text)
        if isinstance(record, str):
            return record
        record.timestamp.astimezone(UTC)
        again = store.parse(records.line(record))
    except ValidationError as error:
        return str(problem(error.errors(include_url=False), found))
    except (OverflowError, RecursionError, PydanticSerializationError):
        return _NO_PLACE
    except ValueError as error:
        return str(error)
    return _NO_PLACE if isinstance(again, str) else record


def fetch(host: str, since: datetime | None, to: Path) -> str:
    """Write a host's lines to a file; return its last complaint. Raises `UsageError` and `InputError`."""
    if not host.strip() or host.startswith("-"):
        raise UsageError(f"--host {host}: expected the name of a host, as ssh takes it")
    program = programs.find("ssh", environment.environ())
    if program is None:
        raise UsageError("--host: ssh is not installed")
    words = [
        "judgekit",
        "ledger",
        "export",
        "--jsonl",
        *(["--since", since.isoformat()] if since else []),
    ]
    try:
        argv = [program, *_SSH, host, *words]
        code, lines, errors = programs.run(
            argv, environment.environ(), seconds=SECONDS, most=MOST_BYTES
        )
    except programs.Unfinished:
        limits = f"{SECONDS:g} s or {MOST_BYTES // 1_000_000} MB"
        raise InputError(
            f"{host}: did not send its ledger within {limits}; name a later --since"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{host}: ssh could not be started ({error})") from None
    to.write_bytes(lines)
    last = one_line(next(filter(str.strip, reversed(lines_of(errors))), ""), _SAID)
    if code:
        raise InputError(f"{host}: ssh: {last or f'exit code {code}'}")
    return last

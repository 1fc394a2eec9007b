"""Imports other ledgers' lines and older judges' verdicts, each once, and fetches another host's lines."""

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
from judgekit.config.yamlfile import explain_first_error
from judgekit.errors import InputError, UsageError
from judgekit.judging.verdict import Consensus, VerdictWord
from judgekit.ledger import records, store
from judgekit.ledger.records import OverrideLine, Record, VerdictLine
from judgekit.ledger.store import Damage, Ledger, OnDamage
from judgekit.text import replace_surrogates, shorten_to_line, split_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from judgekit.config import TierName

Fields: TypeAlias = dict[str, Any]

FETCH_SECONDS = 60.0  # for everything that a host sends
MAX_FETCHED_BYTES = 64_000_000
_SSH_OPTIONS = ("-oBatchMode=yes", "-oConnectTimeout=10", "-oLogLevel=ERROR")
_MAX_ERROR_CHARS = 200  # characters of a host's last line on stderr
_MAX_VALUE_CHARS = 60  # characters of a wrong value
_BATCH_LINES = 500  # lines written while the lock is held
_OUT_OF_RANGE = (
    "expected times inside the years 1 to 9999 and values nested less than 200 deep; "
    "correct the line"
)
_VERDICT_BY_GATE_WORD = {"GO": "accept", "NO-GO": "reject", "UNDETERMINED": "undetermined"}
# The keys of an older line that a verdict has fields for: both kinds of lines, then each kind.
_SHARED_KEYS = {"timestamp", "scores", "average", "verdict", "previous_rounds"}
_PUSH_KEYS = {
    *_SHARED_KEYS - {"average"},
    *("commit", "author", "judge_model", "files_evaluated", "findings", "revision_suggestions"),
}
_TASK_KEYS = {
    *_SHARED_KEYS,
    *("task_id", "model", "mode", "reasoning", "improvements", "round", "judge_tier", "consensus"),
    "human_override",
}
_FINDING_KEYS = ("dimension", "location", "issue", "suggestion")


def convert_verdict(older: Fields, *, text: bool = False) -> VerdictLine:
    """Convert a line written by an older judge to a verdict. If `text`, preserve the line's reasoning.

    Raises `ValueError` if the line isn't a verdict or has an invalid value.
    """
    # A line is about a push or about an agent's task. The two kinds have different keys.
    is_push = "files_evaluated" in older or "judge_model" in older
    is_task = "task_id" in older
    if is_push:
        fields = _convert_push(older)
        known_keys = _PUSH_KEYS
    elif is_task:
        fields = _convert_task(older, text=text)
        known_keys = _TASK_KEYS
    else:
        raise ValueError("not a verdict: neither files_evaluated nor task_id")

    scores = _read_scores(older)
    average = _read_average(older, scores)
    fields |= {
        "id": _make_id(older),
        # The older judges all used this rubric, and didn't record its version.
        "rubric": {"id": "kls", "version": "", "sha256": ""},
        "prompt_sha256": "",
        "timestamp": _read_time(older.get("timestamp")),
        "scores": scores,
        "average": average,
        "duration_ms": 0,
        "imported": _keep_other_fields(older, known_keys),
    }
    return VerdictLine.model_validate(fields)


def _read_average(older: Fields, scores: dict[str, float] | None) -> float | None:
    """Read a line's average score. If it's missing or 0, compute it from the scores."""
    average = _read_number(older.get("average"))
    if average:
        return average
    return round(fmean(scores.values()), 2) if scores else None


def _make_id(older: Fields) -> str:
    """Make an id from a hash of the line, so that importing the line again gives the same id."""
    canonical_json = json.dumps(older, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical_json.encode()).hexdigest()[:32]


def _keep_other_fields(older: Fields, known_keys: Collection[str]) -> Fields:
    """Return the other fields of a line written by an older judge, with their strings made encodable."""
    other_fields = {key: value for key, value in older.items() if key not in known_keys}
    # Strings can be nested at any depth, so treat the JSON text as a whole.
    other_json = json.dumps(other_fields, ensure_ascii=False)
    encodable_fields: Fields = json.loads(replace_surrogates(other_json))
    return encodable_fields


def _convert_push(older: Fields) -> Fields:
    """Convert a line about a push, written by an older judge, to the fields of a verdict.

    Raises `ValueError` if the verdict is unknown.
    """
    paths = [_to_text(path) for path in _to_list(older.get("files_evaluated"))]
    commit = _to_text(older.get("commit"))
    verdict = _translate_word(_VERDICT_BY_GATE_WORD, older, str(older.get("verdict")).upper())
    suggestions = _read_suggestions(older.get("revision_suggestions"))

    return {
        "task_id": _make_push_id(paths, commit),
        "subjects": [{"path": path, "sha256": ""} for path in paths],
        "mode": "lenient",
        "verdict": verdict,
        "findings": [*_read_findings(older), *suggestions],
        "consensus": "none" if verdict == "undetermined" else "single",
        "model": _to_text(older.get("judge_model")) or None,
        "author": {"name": _read_author_name(older) or None},
        "commit": commit or None,
    }


def _make_push_id(paths: list[str], commit: str) -> str:
    """Build a push's id from its files and commit: `a.py, b.py@4f2a91c`."""
    parts = [", ".join(paths), commit]
    known_parts = [part for part in parts if part]
    return "@".join(known_parts) or "a push"


def _read_findings(older: Fields) -> list[Fields]:
    """Read the findings of an older line. In the oldest lines, a finding is just its issue."""
    findings = []
    for raw in _to_list(older.get("findings")):
        finding = raw if isinstance(raw, dict) else {"issue": raw}
        findings.append({key: _to_text(finding.get(key)) for key in _FINDING_KEYS})
    return findings


def _read_author_name(older: Fields) -> str:
    """Read the author's name from an older line. The author is either an object or just a name."""
    author = older.get("author")
    if isinstance(author, dict):
        author = author.get("name")
    return _to_text(author)


def _convert_task(older: Fields, *, text: bool) -> Fields:
    """Convert a line about an agent's task, written by an older judge, to the fields of a verdict.

    If `text`, preserve the line's reasoning. Raises `ValueError` if the verdict is unknown.
    """
    # Lines about tasks already use our verdicts, so each is translated to itself.
    translations = {verdict: verdict for verdict in get_args(VerdictWord)}
    return {
        "task_id": _to_text(older["task_id"]),
        "subjects": [],
        "mode": "strict",
        "rounds": _convert_rounds(older),
        "reasoning": _to_text(older.get("reasoning")) if text else "",
        "human_override": _read_override(older),
        "verdict": _translate_word(translations, older, older.get("verdict")),
        "findings": _read_suggestions(older.get("improvements")),
        "consensus": _read_consensus(older),
        "judge_tier": _read_tier(older),
        "model": _to_text(older.get("model")) or None,
        "of_task": True,
    }


def _convert_rounds(older: Fields) -> list[Fields]:
    """Convert the rounds of an older line, except those that aren't objects."""
    # `previous_rounds` lacks the last round, which the line itself describes.
    older_rounds = [*_to_list(older.get("previous_rounds")), older]
    rounds = []
    for number, older_round in enumerate(older_rounds, 1):
        if isinstance(older_round, dict):
            rounds.append(_convert_round(number, older_round))
    return rounds


def _read_consensus(older: Fields) -> object:
    """Return the consensus of an older line; "none" if it isn't one of ours."""
    consensus = older.get("consensus")
    return consensus if consensus in get_args(Consensus) else "none"


def _convert_round(number: int, older: Fields) -> Fields:
    """Convert a round of an older line to our fields."""
    scores = _read_scores(older)
    opinion = None  # without scores, no model has answered
    if scores:
        opinion = {"outcome": older.get("verdict"), "scores": scores}
    tier = _read_tier(older) or "quick"
    return {
        "round": number,
        "tier": tier,
        "opinion": opinion,
        "model": _to_text(older.get("model")),
    }


def _read_tier(older: Fields) -> TierName | None:
    """Return the tier that an older line names; None if it isn't one of ours."""
    name = older.get("judge_tier") or older.get("mode")
    for tier in TIERS:
        if tier == name:
            return tier
    return None


def _read_override(older: Fields) -> Fields | None:
    """Read a person's override from the line of an older judge. Returns None if there's none.

    Raises `ValueError` if the decision's time is invalid.
    """
    override = older.get("human_override")
    # In some lines, the decision is a plain string instead of an object.
    if not isinstance(override, dict):
        override = {"decision": override}
    decision = override.get("decision")
    if decision not in ("accept", "reject"):
        return None

    at = _read_time(override.get("at") or older.get("timestamp"), "human_override.at")
    return {
        "decision": decision,
        "at": at,
        "why": _to_text(override.get("why")),
        "who": _to_text(override.get("who")),
    }


def _translate_word(words: dict[str, str], older: Fields, word: object) -> str:
    """Translate an older line's verdict word; raises `ValueError` if `words` lacks it."""
    if not isinstance(word, str) or word not in words:
        # Quote the verdict from the line, since the caller may have changed `word` to upper case.
        got = shorten_to_line(repr(older.get("verdict")), _MAX_VALUE_CHARS)
        raise ValueError(f"verdict: expected one of {', '.join(words)}, got {got}")
    return words[word]


def _read_time(value: object, key: str = "timestamp") -> datetime:
    """Parse an ISO time (UTC by default). On failure, raise `ValueError` naming the value's `key`."""
    with suppress(ValueError):
        if isinstance(value, str):
            return store.convert_to_utc(datetime.fromisoformat(value.strip()))
    expected = "expected a time as 2026-02-01T08:00:00Z"
    got = shorten_to_line(repr(value), _MAX_VALUE_CHARS)
    raise ValueError(f"{key}: {expected}, got {got}; correct the line")


def _read_scores(older: Fields) -> dict[str, float] | None:
    """Read an older line's numeric scores by dimension; None if it has none."""
    scores = older.get("scores")
    if not isinstance(scores, dict):
        return None
    numbers = {}
    for name, value in scores.items():
        number = _read_number(value)
        if number is not None:
            numbers[str(name)] = number
    return numbers or None


def _read_number(value: object) -> float | None:
    """Convert a number or numeric string to a finite float; None for anything else."""
    if not isinstance(value, int | float | str):
        return None
    with suppress(ValueError, OverflowError):
        number = float(value)
        if isfinite(number):
            return number
    return None


def _read_suggestions(values: object) -> list[Fields]:
    """Convert suggestions to findings without an issue."""
    return [{"issue": "", "suggestion": _to_text(value)} for value in _to_list(values)]


def _to_list(value: object) -> list[Any]:
    """Wrap a value in a list unless it's a list. None and "" become an empty list."""
    if isinstance(value, list):
        return value
    if value in (None, ""):
        return []
    return [value]


def _to_text(value: object) -> str:
    """Convert any value to an encodable string: None to "", non-strings to JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return replace_surrogates(value)
    return replace_surrogates(json.dumps(value))


class Imported(NamedTuple):
    added_count: int
    known_count: int
    damaged: list[Damage]


def import_lines(ledger: Ledger, places: Iterable[Path], *, text: bool = False) -> Imported:
    """Add the lines in the given files and folders to a ledger, except those that it already contains.

    If `text`, preserve the reasoning in an older judge's lines. Returns the number of lines added, the number
    of lines already known, and the damaged lines. Raises `LedgerError` if the ledger can't be written.
    """
    known_ids = {record.id for record in ledger.read_records()}
    added_count = 0
    known_count = 0
    damaged_lines: list[Damage] = []
    batch: list[Record] = []

    for record in _read_records(places, damaged_lines.append, text=text):
        if record.id in known_ids:
            known_count += 1
            continue

        known_ids.add(record.id)
        added_count += 1
        # Write the records in batches, to limit memory use.
        batch.append(record)
        if len(batch) == _BATCH_LINES:
            ledger.add(*batch)
            batch.clear()

    ledger.add(*batch)  # the rest
    return Imported(added_count, known_count, damaged_lines)


def _read_records(places: Iterable[Path], on_damage: OnDamage, *, text: bool) -> Iterator[Record]:
    """Yield the records in the given files and folders; call `on_damage` for each damaged line."""
    for path in store.list_files(places, on_damage):
        for number, raw in store.read_raw_lines(path, on_damage):
            record = _read_record(raw, text=text)
            if isinstance(record, str):  # The line can't be read, and this string is the reason.
                on_damage(Damage(path, number, record))
            else:
                # An override from elsewhere wasn't typed at a terminal of this machine.
                yield _clear_terminal_mark(record)


def _clear_terminal_mark(record: Record) -> Record:
    """Clear the `terminal` mark of an override. Other records are returned unchanged."""
    if isinstance(record, OverrideLine):
        return record.model_copy(update={"terminal": False})
    return record


def _read_record(raw: bytes, *, text: bool) -> Record | str:
    """Parse a line written by judgekit or by an older judge. On failure, returns the problem as a string.

    If `text`, preserve the reasoning in an older judge's line.
    """
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(fields, dict):
        return "not an object"

    try:
        return _convert_line(raw, fields, text=text)
    except ValidationError as error:
        return str(explain_first_error(error.errors(include_url=False), fields))
    except (OverflowError, RecursionError, PydanticSerializationError):
        return _OUT_OF_RANGE
    except ValueError as error:
        return str(error)


def _convert_line(raw: bytes, fields: Fields, *, text: bool) -> Record | str:
    """Convert a line to a record that can be stored. If it can't be, returns the problem as a string."""
    is_own_line = "schema" in fields  # an older judge's lines have no schema
    record = store.parse(raw) if is_own_line else convert_verdict(fields, text=text)
    if isinstance(record, str):  # The line can't be parsed, and this string is the reason.
        return record
    return record if _can_be_stored(record) else _OUT_OF_RANGE


def _can_be_stored(record: Record) -> bool:
    """Whether a record can be written and read again.

    Raises `OverflowError` if its time can't be converted to UTC. Raises pydantic's errors if it can't be
    written.
    """
    # Only try the conversion. It fails near the years 1 and 9999.
    record.timestamp.astimezone(UTC)
    copy_or_problem = store.parse(records.serialise_record(record))
    return not isinstance(copy_or_problem, str)


def fetch_lines(host: str, since: datetime | None, to: Path) -> str:
    """Fetch a host's ledger lines over ssh, and write them to the file `to`.

    Returns the last line that ssh wrote to stderr, such as a warning, or "". Raises `UsageError` if the host
    name is invalid or ssh isn't installed, and `InputError` if ssh fails.
    """
    exit_code, lines, errors = _run_ssh(_make_command(host, since), host)
    to.write_bytes(lines)

    last_stderr_line = _find_last_line(errors)
    if exit_code != 0:
        # The last line explains the failure best.
        reason = last_stderr_line or f"exit code {exit_code}"
        raise InputError(f"{host}: ssh: {reason}")
    return last_stderr_line


def _make_command(host: str, since: datetime | None) -> list[str]:
    """Build the ssh command that exports a host's ledger.

    Raises `UsageError` if the host name is invalid or ssh isn't installed.
    """
    # ssh would take a name such as `-oProxyCommand=…` as an option.
    if not host.strip() or host.startswith("-"):
        raise UsageError(f"--host {host}: expected the name of a host, as ssh takes it")
    program = programs.find("ssh", environment.environ())
    if program is None:
        raise UsageError("--host: ssh is not installed")

    command = [program, *_SSH_OPTIONS, host, "judgekit", "ledger", "export", "--jsonl"]
    if since:
        command += ["--since", since.isoformat()]
    return command


def _run_ssh(command: list[str], host: str) -> tuple[int, bytes, str]:
    """Run ssh and return its exit code, stdout and stderr.

    Raises `InputError` if it can't be started, takes too long or sends too much.
    """
    try:
        return programs.run(
            command, environment.environ(), seconds=FETCH_SECONDS, max_bytes=MAX_FETCHED_BYTES
        )
    except programs.Unfinished:
        limits = f"{FETCH_SECONDS:g} s or {MAX_FETCHED_BYTES // 1_000_000} MB"
        raise InputError(
            f"{host}: did not send its ledger within {limits}; name a later --since"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{host}: ssh could not be started ({error})") from None


def _find_last_line(errors: str) -> str:
    """Return the last line that isn't empty, shortened; "" if there's none."""
    filled_lines = [line for line in split_lines(errors) if line.strip()]
    if not filled_lines:
        return ""
    return shorten_to_line(filled_lines[-1], _MAX_ERROR_CHARS)

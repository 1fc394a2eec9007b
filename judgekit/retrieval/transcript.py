"""A coding agent's conversations, read defensively: a transcript's format is internal."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_HEAD_BYTES = 200_000  # its beginning, which says when it began
_WHOLE_BYTES = 50_000_000  # of a transcript that is read from its beginning
_SESSION_CHARS = (
    36  # of a session's id, with which Claude Code and Codex end the name of a transcript
)
# Types of entries, of Claude Code, Codex, Gemini.
_ANSWERS = (
    "assistant",
    "response_item",
    "gemini",
)
_CALLS = ("tool_use", "function_call", "custom_tool_call", "local_shell_call")
# What clients put into a conversation as if the user had typed it.
_NOT_TYPED = ("# AGENTS.md instructions", "[Request interrupted by user")
# Where Claude Code, Codex and Gemini keep transcripts: in a folder of a variable, or of the home folder.
_HOMES = (
    ("CLAUDE_CONFIG_DIR", "~/.claude", "projects"),
    ("CODEX_HOME", "~/.codex", "sessions"),
    ("GEMINI_CLI_HOME", "~", ".gemini/tmp"),
)


class Exchange(NamedTuple):
    """A prompt, and what the agent wrote and which tools it called (as JSON) until the next prompt."""

    prompt: str
    answer: list[str]
    calls: list[str]


def last_turns(path: str, count: int) -> tuple[str, ...]:
    """Return up to `count` turns, oldest first, as "user: …" or "assistant: …"; fewer where it is odd."""
    # Far more bytes than a few turns need.
    turns = filter(None, map(_turn, _entries(path, -400_000)))
    return tuple(f"{who}: {text[:2_000]}" for who, text in [*islice(turns, max(count, 0))][::-1])


def prompts(project: str, most: int, wanted: Callable[[str], bool]) -> list[str]:
    """Return the latest texts that people (no agents) typed in `project` and that are `wanted`, each once."""
    found: dict[str, float] = {}
    stamps = ((environment.stamp(path), path) for path in _files())
    for changed, path in sorted(
        ((stamp[1] / 1e9, path) for stamp, path in stamps if stamp), reverse=True
    ):
        if len(found) >= most and changed < sorted(found.values())[-most]:
            break
        heres = (_is_here(entry, project) for entry in _entries(path, _HEAD_BYTES))
        if not next((here for here in heres if here is not None), False):
            continue
        for entry in _entries(path, _WHOLE_BYTES):
            role, text = _turn(entry) or ("", "")
            typed = (
                role == "user"
                and not entry.get("isCompactSummary")
                and not text.startswith(_NOT_TYPED)
            )
            if typed and wanted(text):
                moment = _moment(entry)
                found[text] = max(found.get(text, 0.0), changed if moment is None else moment)
    return sorted(found, key=lambda text: found[text], reverse=True)[:most]


def _is_here(entry: dict[str, Any], project: str) -> bool | None:
    """Whether a conversation is one of a person in `project`; None where this entry does not say."""
    about = entry.get("payload", entry)
    if not isinstance(about, dict):
        return None
    if isinstance(about.get("source"), dict) or about.get("kind") == "subagent":  # of Codex, Gemini
        return False
    if isinstance(about.get("cwd"), str):
        return environment.project_root(about["cwd"]) == project
    if "projectHash" in about:
        raw = project.encode("utf-8", "surrogateescape")
        return bool(about["projectHash"] == hashlib.sha256(raw).hexdigest())
    return None


def started(path: str) -> float | None:
    """Return when a conversation began, in seconds since the epoch; None where that is not known."""
    return next(
        (moment for moment in map(_moment, _entries(path, _HEAD_BYTES)) if moment is not None), None
    )


def _moment(entry: dict[str, Any]) -> float | None:
    moment = entry.get("timestamp", entry.get("startTime"))
    try:
        return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else None
    except (ValueError, OverflowError):
        return None


def of_sessions(digests: Collection[str]) -> dict[str, list[Exchange]]:
    """Return the exchanges of the sessions whose ids have these digests, where a transcript is found."""
    found: dict[str, list[Exchange]] = {}
    for path in _files() if digests else ():
        name = Path(path).stem
        session: object = name[-_SESSION_CHARS:]
        if name.startswith("session-"):  # Gemini's, which begins with the id
            session = next(_entries(path, _HEAD_BYTES), {}).get("sessionId")
        digest = environment.digest(str(session))
        if digest not in digests:
            continue
        exchanges: list[Exchange] = []
        for entry in _entries(path, _WHOLE_BYTES):
            turn = _turn(entry)
            if turn and turn[0] == "user":
                exchanges.append(Exchange(turn[1], [], []))
            elif exchanges:
                exchanges[-1].answer.extend(turn[1:] if turn else ())
                exchanges[-1].calls.extend(_calls(entry))
        found.setdefault(digest, []).extend(exchanges)
    return found


def _calls(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the name and the arguments of each tool call in an entry, as JSON."""
    message = entry.get("message", entry.get("payload", entry))
    if (
        not isinstance(message, dict)
        or entry.get("isSidechain")
        or entry.get("type") not in _ANSWERS
    ):
        return
    content = message.get("content")
    of_gemini = message.get("toolCalls")
    blocks = [message, *(content if isinstance(content, list) else ())]
    calls = []
    for each in blocks:
        if isinstance(each, dict) and each.get("type") in _CALLS:
            calls.append(each)
    calls += (
        [each for each in of_gemini if isinstance(each, dict)]
        if isinstance(of_gemini, list)
        else []
    )
    for call in calls:
        parts = [call.get(key) for key in ("name", "input", "arguments", "args", "action")]
        yield json.dumps([part for part in parts if part is not None], ensure_ascii=False)


def _files() -> Iterator[str]:
    for home in _homes():
        for folder, _, names in os.walk(home):
            yield from (
                str(Path(folder, name)) for name in sorted(names) if name.endswith(".jsonl")
            )


def _homes() -> list[Path]:
    environ = environment.environ()
    return [Path(environ.get(name) or home).expanduser() / folder for name, home, folder in _HOMES]


def _entries(path: str, size: int) -> Iterator[dict[str, Any]]:
    """Yield the first entries of a client's own transcript; for a negative size the last ones, last first."""
    try:
        file = Path(path)
        is_inside = any(file.resolve().is_relative_to(home.resolve()) for home in _homes())
        if not (path.endswith(".jsonl") and is_inside and stat.S_ISREG(file.lstat().st_mode)):
            return
        with file.open("rb") as stream:
            if size < 0:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) + size))
            lines = stream.read(abs(size)).split(b"\n")
    except (OSError, ValueError):
        return
    for line in lines if size > 0 else reversed(lines):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = {}
        yield entry if isinstance(entry, dict) else {}


def _turn(entry: dict[str, Any]) -> tuple[str, str] | None:
    """Return who says what in an entry: "user" or "assistant", and the text."""
    message = entry.get("message", entry.get("payload", entry))  # of Claude Code, Codex, Gemini
    if not isinstance(message, dict) or entry.get("isSidechain") or entry.get("isMeta"):
        return None
    if "payload" in entry:
        role = message.get("role")
    else:
        role = entry.get("type")
    role = "assistant" if role == "gemini" else role
    if role not in ("user", "assistant"):
        return None
    # Gemini's user typed only the former.
    content = message.get("displayContent", message.get("content"))
    if isinstance(content, list):
        kinds = ("text", "input_text", "output_text", None)
        blocks = (
            block for block in content if isinstance(block, dict) and block.get("type") in kinds
        )
        content = " ".join(str(block.get("text", "")) for block in blocks)
    if isinstance(content, str):
        text = content.strip()
    else:
        text = ""
    if text and not text.startswith("<"):
        return (role, text)
    return None

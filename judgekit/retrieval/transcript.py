"""A coding agent's conversations, read defensively: a transcript's format is internal."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_HEAD_BYTES = 200_000  # the beginning, which contains its date
_MAX_TRANSCRIPT_BYTES = 50_000_000  # of a transcript that is read from its beginning
_TRANSCRIPT_TAIL_BYTES = 400_000  # far more than a few turns need
_TURN_CHARS = 2_000
# Claude Code and Codex end the name of a transcript with the session's id, of so many characters.
_SESSION_ID_CHARS = 36
# Types of an agent's entries: of Claude Code, of Codex, of Gemini.
_ANSWER_ENTRY_TYPES = ("assistant", "response_item", "gemini")
_TOOL_CALL_TYPES = ("tool_use", "function_call", "custom_tool_call", "local_shell_call")
_TEXT_BLOCK_TYPES = ("text", "input_text", "output_text", None)
# Texts that clients put into a conversation as if the user had typed them.
_CLIENT_TEXT_PREFIXES = ("# AGENTS.md instructions", "[Request interrupted by user")
# The folders in which Claude Code, Codex and Gemini keep transcripts: one that a variable names, or in the
# home folder.
_AGENT_HOME_FOLDERS = (
    ("CLAUDE_CONFIG_DIR", "~/.claude", "projects"),
    ("CODEX_HOME", "~/.codex", "sessions"),
    ("GEMINI_CLI_HOME", "~", ".gemini/tmp"),
)


class Exchange(NamedTuple):
    """A prompt, and the agent's texts and tool calls (as JSON) until the next prompt."""

    prompt: str
    answer: list[str]
    calls: list[str]


def read_last_turns(path: str, count: int) -> tuple[str, ...]:
    """Return the last `count` turns of a conversation, oldest first, as "user: …" or "assistant: …".

    A short conversation has fewer turns. An unreadable transcript has none.
    """
    turns: list[str] = []
    for entry in _read_entries(path, _TRANSCRIPT_TAIL_BYTES, from_end=True):
        if len(turns) >= count:
            break
        turn = _read_turn(entry)
        if turn is not None:
            speaker, text = turn
            turns.append(f"{speaker}: {text[:_TURN_CHARS]}")
    return tuple(reversed(turns))


def list_typed_prompts(project: str, limit: int, wanted: Callable[[str], bool]) -> list[str]:
    """List the latest `limit` different prompts that people typed in `project`, newest first.

    Prompts by agents don't count, nor do those for which `wanted` is false.
    """
    last_typed: dict[str, float] = {}  # the time of each text's latest occurrence
    for changed, path in _list_newest_files():
        if _has_enough_newer(last_typed.values(), limit, changed):
            break  # everything in this file and the rest is older
        if not _was_held_in(project, path):
            continue
        for text, moment in _list_typed_texts(path, changed):
            if wanted(text):
                last_typed[text] = max(last_typed.get(text, 0.0), moment)

    newest_first = sorted(last_typed, key=last_typed.__getitem__, reverse=True)
    return newest_first[:limit]


def _has_enough_newer(times: Collection[float], limit: int, changed: float) -> bool:
    """Whether at least `limit` of the times are later than `changed`."""
    if len(times) < limit:
        return False
    latest_times = sorted(times)[-limit:]
    return changed < latest_times[0]


def _list_typed_texts(path: str, changed: float) -> Iterator[tuple[str, float]]:
    """Yield each text a person typed in a transcript, with its time. An unknown time counts as `changed`."""
    for entry in _read_entries(path, _MAX_TRANSCRIPT_BYTES):
        text = _read_typed_text(entry)
        if text is None:
            continue
        moment = _read_time(entry)
        yield text, changed if moment is None else moment


def _list_newest_files() -> list[tuple[float, str]]:
    """List the transcripts with their modification times in seconds since the epoch, newest first."""
    files = []
    for path in _list_transcripts():
        stamp = environment.get_file_stamp(path)
        if stamp:
            changed_ns = stamp[1]
            files.append((changed_ns / 1e9, path))
    return sorted(files, reverse=True)


def _read_typed_text(entry: dict[str, Any]) -> str | None:
    """Return an entry's text if a person typed it, or None."""
    turn = _read_turn(entry)
    if turn is None:
        return None
    speaker, text = turn
    is_written_by_client = entry.get("isCompactSummary") or text.startswith(_CLIENT_TEXT_PREFIXES)
    if speaker != "user" or is_written_by_client:
        return None
    return text


def _was_held_in(project: str, path: str) -> bool:
    """Whether a person held this conversation in `project`. The first conclusive entry decides."""
    for entry in _read_entries(path, _HEAD_BYTES):
        is_here = _is_here(entry, project)
        if is_here is not None:
            return is_here
    return False


def _is_here(entry: dict[str, Any], project: str) -> bool | None:
    """Whether an entry says that a person held this conversation in `project`; None if it doesn't say.

    In an agent's conversation there's no person.
    """
    facts = entry.get("payload", entry)  # Codex wraps them in a `payload`
    if not isinstance(facts, dict):
        return None

    is_codex_agent = isinstance(facts.get("source"), dict)
    is_gemini_agent = facts.get("kind") == "subagent"
    if is_codex_agent or is_gemini_agent:
        return False

    folder = facts.get("cwd")
    if isinstance(folder, str):
        return environment.find_project_root(folder) == project
    if "projectHash" in facts:  # Gemini gives only a hash of the project's path
        raw_path = project.encode("utf-8", "surrogateescape")
        project_hash = hashlib.sha256(raw_path).hexdigest()
        is_of_project: bool = project_hash == facts["projectHash"]
        return is_of_project
    return None


def read_start_time(path: str) -> float | None:
    """Return a conversation's start time in seconds since the epoch; None if unknown."""
    for entry in _read_entries(path, _HEAD_BYTES):
        moment = _read_time(entry)
        if moment is not None:
            return moment
    return None


def _read_time(entry: dict[str, Any]) -> float | None:
    """Return an entry's time in seconds since the epoch; None if it's missing or invalid."""
    moment = entry.get("timestamp", entry.get("startTime"))
    if not isinstance(moment, str):
        return None
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError):
        return None


def read_sessions(digests: Collection[str]) -> dict[str, list[Exchange]]:
    """Read sessions' exchanges, given the digests of the sessions' ids. The result is by digest.

    Sessions without a transcript are omitted.
    """
    exchanges: dict[str, list[Exchange]] = {}
    if not digests:
        return exchanges

    for path in _list_transcripts():
        digest = environment.digest(_read_session_id(path))
        if digest in digests:
            # Several transcripts can have the same session's id.
            exchanges.setdefault(digest, []).extend(_read_exchanges(path))
    return exchanges


def _read_session_id(path: str) -> str:
    """Return a transcript's session id: the end of its file name or, for Gemini's, in its first entry."""
    name = Path(path).stem
    is_of_gemini = name.startswith("session-")
    if is_of_gemini:
        first_entry = next(_read_entries(path, _HEAD_BYTES), {})
        return str(first_entry.get("sessionId"))  # without an id "None", which no session has
    return name[-_SESSION_ID_CHARS:]


def _read_exchanges(path: str) -> list[Exchange]:
    """Read a transcript's exchanges. Anything the agent did before the first prompt is dropped."""
    exchanges: list[Exchange] = []
    for entry in _read_entries(path, _MAX_TRANSCRIPT_BYTES):
        # An entry without a text may still contain calls.
        speaker, text = _read_turn(entry) or ("", "")
        if speaker == "user":
            exchanges.append(Exchange(prompt=text, answer=[], calls=[]))
            continue

        is_before_first_prompt = not exchanges
        if is_before_first_prompt:
            continue
        current = exchanges[-1]
        if text:
            current.answer.append(text)
        current.calls.extend(_describe_calls(entry))

    return exchanges


def _describe_calls(entry: dict[str, Any]) -> Iterator[str]:
    """Yield each tool call in an answer as JSON: a list of its name and its arguments.

    Other entries yield nothing, nor do those of a subagent.
    """
    message = _get_message(entry)
    is_answer = entry.get("type") in _ANSWER_ENTRY_TYPES
    is_of_subagent = bool(entry.get("isSidechain"))
    if message is None or not is_answer or is_of_subagent:
        return
    for call in _list_calls(message):
        yield json.dumps(_list_name_and_arguments(call), ensure_ascii=False)


def _list_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """List the tool calls in any client's message."""
    # In Claude Code a call is a content block, in Codex it's the message itself.
    blocks = [message, *_list_objects(message.get("content"))]
    calls = [block for block in blocks if block.get("type") in _TOOL_CALL_TYPES]
    calls_of_gemini = _list_objects(message.get("toolCalls"))
    return calls + calls_of_gemini


def _list_name_and_arguments(call: dict[str, Any]) -> list[Any]:
    """List a call's name and its arguments, whose keys differ between clients."""
    values = [call.get(key) for key in ("name", "input", "arguments", "args", "action")]
    return [value for value in values if value is not None]


def _get_message(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return an entry's message: its `message` (Claude Code), its `payload` (Codex), or itself (Gemini).

    Returns None if the message isn't an object.
    """
    message = entry.get("message", entry.get("payload", entry))
    return message if isinstance(message, dict) else None


def _list_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects in a JSON list; an empty list for anything else."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]


def _list_transcripts() -> Iterator[str]:
    """Yield the paths of all Claude Code, Codex and Gemini transcripts."""
    for home in _list_homes():
        for folder, _, names in os.walk(home):
            for name in sorted(names):
                if name.endswith(".jsonl"):
                    yield str(Path(folder, name))


def _list_homes() -> list[Path]:
    """List the folders where the clients keep transcripts, whether or not they exist."""
    environ = environment.environ()
    homes = []
    for variable, default, folder in _AGENT_HOME_FOLDERS:
        home = Path(environ.get(variable) or default).expanduser()
        homes.append(home / folder)
    return homes


def _read_entries(path: str, size: int, *, from_end: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the entries in the first `size` bytes of a transcript.

    With `from_end`, yield the entries in the last `size` bytes, last entry first. A line that's cut off or
    isn't an entry yields an empty entry. A file that isn't a client's transcript yields nothing.
    """
    try:
        if not _is_transcript(path):
            return
        lines = _read_lines(path, size, from_end=from_end)
    except (OSError, ValueError):
        return

    if from_end:
        lines.reverse()
    for line in lines:
        yield _parse_entry(line)


def _is_transcript(path: str) -> bool:
    """Whether a path is a regular `.jsonl` file in a client's folder. Raises OSError if it's missing."""
    file = Path(path)
    is_of_client = any(file.resolve().is_relative_to(home.resolve()) for home in _list_homes())
    # Links are refused, and reading from a pipe might never end.
    is_regular = stat.S_ISREG(file.lstat().st_mode)
    return path.endswith(".jsonl") and is_of_client and is_regular


def _read_lines(path: str, size: int, *, from_end: bool) -> list[bytes]:
    """Return the lines in a file's first or last `size` bytes. A line at the cut may be incomplete."""
    with Path(path).open("rb") as stream:
        if from_end:
            whole_size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, whole_size - size))
        return stream.read(size).split(b"\n")


def _parse_entry(line: bytes) -> dict[str, Any]:
    """Parse a transcript's line; an empty entry if it isn't a JSON object."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _read_turn(entry: dict[str, Any]) -> tuple[str, str] | None:
    """Return an entry's speaker ("user" or "assistant") and text; None if it isn't a turn."""
    message = _get_message(entry)
    if message is None or entry.get("isSidechain") or entry.get("isMeta"):
        return None

    is_of_codex = "payload" in entry
    role = message.get("role") if is_of_codex else entry.get("type")
    if role == "gemini":
        role = "assistant"
    if role not in ("user", "assistant"):
        return None

    text = _read_text(message)
    is_added_by_client = text.startswith("<")  # clients put tags around the text they add
    if not text or is_added_by_client:
        return None
    return role, text


def _read_text(message: dict[str, Any]) -> str:
    """Return a message's text, or its blocks of text joined by spaces; "" if there's none."""
    # In Gemini's `content`, a hook may have added to what the user typed; `displayContent` is without it.
    content = message.get("displayContent", message.get("content"))
    if isinstance(content, str):
        return content.strip()

    blocks = [block for block in _list_objects(content) if block.get("type") in _TEXT_BLOCK_TYPES]
    return " ".join([str(block.get("text", "")) for block in blocks]).strip()

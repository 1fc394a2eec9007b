"""Runs a user's own search engine: a program that reads the query as JSON and prints candidates as JSON.

docs/own-search.md describes both formats. The program's output is untrusted: its texts are made visible and
cut, and paths in it are never opened. If the program fails, the built-in index answers instead. Standard
library only, because the prompt hook imports this.
"""

from __future__ import annotations

import os
import time

from judgekit import environment, programs
from judgekit.errors import JudgekitError
from judgekit.retrieval import quickjson
from judgekit.retrieval import search as stores
from judgekit.retrieval.compiled import Profiles, get_bundled_data
from judgekit.retrieval.confidence import (
    COMMAND_KIND,
    UNRATED,
    Candidate,
    RankedCandidates,
    choose_label,
)
from judgekit.text import remove_invisible, shorten_to_line, split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

HOOK_SECONDS = 6.0  # of the nine that a prompt has: in the rest the built-in index can answer
MAX_OUTPUT_BYTES = 1_000_000  # bytes
_MAX_QUERY_CHARS = 4_000  # characters sent to the program
_MAX_CHARS_BY_NAME_FIELD = {"id": 400, "title": 1_000, "path": 400, "category": 40}  # characters
_MAX_CHARS_BY_TEXT_FIELD = {"text": 20_000, "snippet": stores.SNIPPET_CHARS}
_MAX_TAGS = 20
_MAX_TAG_CHARS = 40
# In the names of variables.
_SECRET_WORDS = (
    "PASS",
    "TOKEN",
    "KEY",
    "SECRET",
    "AUTH",
    "URL",
    "PROXY",
)
_MAX_MESSAGE_CHARS = 200  # characters of the program's message
_MIN_SECRET_CHARS = 6  # characters of a secret in them
_MAX_SCORE = 1e15  # of a score
_INSIDE_VARIABLE = "JUDGEKIT_INSIDE"
_EXPECTED_OUTPUT_MESSAGE = 'expected {"candidates": [...]}, or a candidate a line'


class CommandError(JudgekitError):
    """The program returned no usable candidates; the message says why."""


def search(
    query: str,
    command: Sequence[str] | None,
    roots: Sequence[str],
    seconds: float,
    options: dict[str, Any],
) -> RankedCandidates:
    """Find candidates for a query by the user's program. Without a program, search the stores at `roots`.

    If the program fails, the stores are searched too, and `degraded` contains the reason.
    """
    if not command:
        return _search_stores(query, roots, options, problem=None)

    try:
        candidates = ask(query, command, seconds, options)
    except CommandError as error:
        problem = f"retrieval.command: {error}; the built-in index answers instead"
        return _search_stores(query, roots, options, problem=problem)
    # Pinned memories come from the stores, even if a program searches.
    return _add_pinned(candidates, roots, options)


def _search_stores(
    query: str, roots: Sequence[str], options: dict[str, Any], *, problem: str | None
) -> RankedCandidates:
    """Search the stores, and note the program's problem, if any, and the missing stores."""
    ranked = stores.search(query, roots, **options)
    if problem is not None:
        ranked.notes.insert(0, problem)
    ranked.notes += stores.describe_missing_roots(roots, options["project"])
    ranked.degraded = problem
    return ranked


def _add_pinned(
    candidates: Sequence[Candidate], roots: Sequence[str], options: dict[str, Any]
) -> RankedCandidates:
    """Build a result from the candidates that a program found, and the pinned memories of the stores."""
    ranked = RankedCandidates([], [])
    if options.get("pins"):
        # With an empty query, the result has pinned memories and notes, but no candidates.
        ranked = stores.search("", roots, **options)
    ranked.candidates[:] = candidates
    return ranked


def ask(
    query: str, command: Sequence[str], seconds: float, options: Mapping[str, Any]
) -> list[Candidate]:
    """Run a user's search program and return up to `options["limit"]` distinct candidates.

    Raises `CommandError` if the program can't be started, fails, or prints invalid output.
    """
    environ = environment.environ()
    argv = _complete_command(command, environ)
    # The search program itself may use judgekit.
    if environ.get(_INSIDE_VARIABLE):
        raise CommandError("judgekit was started by a program that it runs (a loop)")

    limit = options["limit"]
    request = {"query": query[:_MAX_QUERY_CHARS], "k": limit, "project": options["project"]}
    output = _run_program(argv, request, environ, seconds)

    profiles = options.get("profiles") or Profiles(get_bundled_data())
    labels = profiles.get_profile(COMMAND_KIND).labels
    script = _find_script(argv)
    candidate_by_file: dict[str, Candidate] = {}
    for number, item in enumerate(_parse_items(output)[:limit], start=1):
        candidate = _build_candidate(item, f"candidate {number}", script, labels)
        # Of candidates for the same file, keep the first.
        candidate_by_file.setdefault(candidate.file, candidate)
    return list(candidate_by_file.values())


def _complete_command(command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return a command with the program's path, and with `~` expanded.

    Raises `CommandError` if there's no such program.
    """
    name, *arguments = command
    program = programs.find(os.path.expanduser(name), environ)
    if program is None:
        raise CommandError(f"{name}: not found; name a program on PATH, or its absolute path")
    return [program, *map(os.path.expanduser, arguments)]


def _run_program(
    argv: list[str], request: dict[str, Any], environ: Mapping[str, str], seconds: float
) -> str:
    """Run a program with a JSON request on stdin, and return its stdout.

    Raises `CommandError` if the program can't be started, fails, takes too long or prints too much.
    """
    program_environ = programs.build_environ("search", environ)
    # The program must neither trigger our hook nor run itself again.
    program_environ |= {"JUDGEKIT_DISABLE": "1", _INSIDE_VARIABLE: "1"}
    try:
        text = quickjson.dumps_ascii(request)
        code, output, errors = programs.run(
            argv, program_environ, text, seconds=seconds, max_bytes=MAX_OUTPUT_BYTES
        )
    except programs.Unfinished as error:  # it took too long or printed too much
        raise CommandError(str(error)) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot be started ({error})") from None

    if code:
        message = _find_first_line(errors) or "no message"
        message = _hide_secrets(message, program_environ)
        raise CommandError(f"exit code {code}: {shorten_to_line(message, _MAX_MESSAGE_CHARS)}")
    return output.decode("utf-8", "replace")


def _find_first_line(text: str) -> str | None:
    """Return the first line that isn't blank, or None."""
    for line in split_lines(text):
        if line.strip():
            return line
    return None


def _hide_secrets(line: str, environ: Mapping[str, str]) -> str:
    """Remove the values of variables such as `API_KEY` from a message, which people may share."""
    for variable, value in environ.items():
        is_secret = any(word in variable for word in _SECRET_WORDS)
        if is_secret and len(value) >= _MIN_SECRET_CHARS:
            line = line.replace(value, "[key]")
    return line


def _find_script(argv: list[str]) -> str:
    """Return the last argument that's a file's absolute path, or else the program.

    In `python3 /opt/find.py`, that's the script, which people know rather than the interpreter.
    """
    program, *arguments = argv
    for argument in reversed(arguments):
        if os.path.isabs(argument) and os.path.isfile(argument):
            return argument
    return program


def _parse_items(text: str) -> list[Any]:
    """Parse a program's candidates, given as `{"candidates": [...]}` or as JSON lines.

    Raises `CommandError` for any other form.
    """
    if not text.strip():
        return []

    try:
        data = quickjson.loads(text)
    except ValueError:  # there are multiple lines, or it's no JSON at all
        return _parse_lines(text)

    items = None
    if isinstance(data, dict):
        # Without `candidates`, it's the only one of the JSON lines, so a candidate itself.
        items = data.get("candidates", [data])
    if not isinstance(items, list):
        raise CommandError(f"candidates: not a list; {_EXPECTED_OUTPUT_MESSAGE}")
    return items


def _parse_lines(text: str) -> list[Any]:
    """Parse candidates from JSON lines; raises `CommandError` for an invalid line."""
    items = []
    for number, line in enumerate(split_lines(text), start=1):
        if not line.strip():
            continue
        try:
            items.append(quickjson.loads(line))
        except ValueError:
            raise CommandError(f"line {number}: not JSON; {_EXPECTED_OUTPUT_MESSAGE}") from None
    return items


def _build_candidate(
    item: Any,  # noqa: ANN401 - any JSON
    item_name: str,
    script: str,
    labels: Mapping[str, float],
) -> Candidate:
    """Build a candidate from an item of a program's JSON.

    `script` is the program's file. Raises `CommandError` with `item_name` for an invalid item.
    """
    if not isinstance(item, dict):
        raise CommandError(f"{item_name}: expected an object")
    problem = _find_problem(item)
    if problem:
        raise CommandError(f"{item_name}: {problem}")

    names = _shorten_names(item)
    hit = Candidate(
        names["id"],
        names["title"],
        names["category"],
        _shorten_tags(item),
        updated=time.time(),  # now, because the program doesn't say when
        root=script,  # there's no store
        place=names["path"] or names["id"],
        kind=COMMAND_KIND,
    )
    # Show the path as the program gave it, without the script in front.
    hit.path = hit.relative_path

    # A missing text or snippet is replaced by the other one.
    texts = _shorten_texts(item)
    hit.text = texts["text"] or texts["snippet"]
    hit.snippet = texts["snippet"] or texts["text"][: stores.SNIPPET_CHARS]
    hit.score = float(item.get("score") or 0)
    _set_confidence(hit, item.get("confidence"), labels)
    return hit


def _shorten_names(item: dict[str, Any]) -> dict[str, str]:
    """Return a candidate's strings of one line, shortened and cleaned; "" for a missing one."""
    names = {}
    for name, most_chars in _MAX_CHARS_BY_NAME_FIELD.items():
        names[name] = shorten_to_line(item.get(name) or "", most_chars)
    return names


def _shorten_tags(item: dict[str, Any]) -> tuple[str, ...]:
    """Return a candidate's first tags, shortened and cleaned."""
    all_tags = item.get("tags") or []
    return tuple([shorten_to_line(tag, _MAX_TAG_CHARS) for tag in all_tags[:_MAX_TAGS]])


def _shorten_texts(item: dict[str, Any]) -> dict[str, str]:
    """Return a candidate's longer texts, shortened and cleaned; "" for a missing one."""
    texts = {}
    for name, most_chars in _MAX_CHARS_BY_TEXT_FIELD.items():
        text = item.get(name) or ""
        texts[name] = remove_invisible(text[:most_chars])
    return texts


def _set_confidence(hit: Candidate, confidence: float | None, labels: Mapping[str, float]) -> None:
    """Set a hit's confidence and label. Without a confidence, the hit isn't rated."""
    if confidence is None:
        hit.has_confidence = False
        hit.confidence = 0.0
        hit.confidence_label = UNRATED
    else:
        hit.confidence = float(confidence)
        hit.confidence_label = choose_label(hit.confidence, labels)
        hit.worth_mentioning = hit.confidence >= labels["mention"]


def _find_problem(item: dict[str, Any]) -> str:
    """Describe the first problem with a candidate's JSON; "" if it's valid."""
    for name in (*_MAX_CHARS_BY_NAME_FIELD, *_MAX_CHARS_BY_TEXT_FIELD):
        if not isinstance(item.get(name), str | None):
            return f"{name}: expected a text"
    for name in ("id", "title"):
        if not shorten_to_line(item.get(name) or "", _MAX_CHARS_BY_NAME_FIELD[name]):
            return f"{name}: missing"

    if not _are_texts(item.get("tags") or []):
        return "tags: expected a list of texts"
    if not _is_score(item.get("score")):
        return "score: expected a number"
    if not _is_confidence(item.get("confidence")):
        return "confidence: expected a probability, from 0 to 1"
    return ""


def _are_texts(tags: object) -> bool:
    """Whether a JSON value is a list of strings."""
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def _is_score(score: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether a score is missing, or a number that isn't too large."""
    if score is None:
        return True
    return _is_number(score) and abs(score) < _MAX_SCORE


def _is_confidence(confidence: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether a confidence is missing, or a probability."""
    if confidence is None:
        return True
    return _is_number(confidence) and 0 <= confidence <= 1


def _is_number(value: object) -> bool:
    """Whether a JSON value is a number. Python counts booleans as numbers, so exclude these."""
    return isinstance(value, int | float) and not isinstance(value, bool)

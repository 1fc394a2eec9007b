"""Somebody's own search engine: a program gets the query as JSON and prints candidates as JSON.

docs/own-search.md describes both. What it prints may be anybody's text: it is made visible and cut, and no
path that it names is opened. Where the program fails, the built-in index answers. Standard library only: the
prompt hook imports this.
"""

from __future__ import annotations

import os
import time

from judgekit import environment, programs
from judgekit.errors import JudgekitError
from judgekit.retrieval import quickjson
from judgekit.retrieval import search as stores
from judgekit.retrieval.compiled import Profiles, bundled
from judgekit.retrieval.confidence import COMMAND, UNRATED, Candidate, RankedCandidates
from judgekit.text import lines_of, short_line, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

HOOK_SECONDS = 6.0  # of the nine that a prompt has: in the rest the built-in index can answer
MAX_OUTPUT = 1_000_000  # bytes
_QUERY = 4_000  # characters that the program is sent
_NAMES = {"id": 400, "title": 1_000, "path": 400, "category": 40}  # characters
_TEXTS = {"text": 20_000, "snippet": stores.SNIPPET_LIMIT}
_MAX_TAGS = 20
_TAG = 40
_SECRET = ("PASS", "TOKEN", "KEY", "SECRET", "AUTH", "URL", "PROXY")  # in the names of variables
_SAID = 200
_LEAST_SECRET = 6  # characters of its own words, and of a secret in them
_MOST = 1e15  # of a score
_INSIDE = "JUDGEKIT_INSIDE"
_FORM = 'expected {"candidates": [...]}, or a candidate a line'


class CommandError(JudgekitError):
    """The program gave no candidates; the text says why."""


def search(
    query: str,
    command: Sequence[str] | None,
    roots: Sequence[str],
    seconds: float,
    options: dict[str, Any],
) -> RankedCandidates:
    """Return the candidates of a `command` in its order, else those of the stores at `roots`.

    `options` are those of the built-in search, which finds what is pinned. Where the command fails,
    `degraded` says why.
    """
    found = None
    why = None
    try:
        if command:
            found = ask(query, command, seconds, options)
        else:
            found = None
    except CommandError as error:
        why = f"retrieval.command: {error}; the built-in index answers instead"
    if found is None:
        ranked = stores.search(query, roots, **options)
        lacking = stores.lacking(roots, options["project"])
        ranked.notes = [*filter(None, [why]), *ranked.notes, *lacking]
        ranked.degraded = why
        return ranked
    if options.get("pins"):
        ranked = stores.search("", roots, **options)
    else:
        ranked = RankedCandidates([], [])
    ranked.candidates[:] = found
    return ranked


def ask(
    query: str, command: Sequence[str], seconds: float, options: Mapping[str, Any]
) -> list[Candidate]:
    """Return the candidates of a program, each once, up to the `limit`; raises `CommandError`."""
    environ = environment.environ()
    program = programs.find(os.path.expanduser(command[0]), environ)
    if program is None:
        raise CommandError(f"{command[0]}: not found; name a program on PATH, or its absolute path")
    if environ.get(_INSIDE):
        raise CommandError("judgekit was started by a program that it runs (a loop)")
    known = programs.known("search", environ) | {"JUDGEKIT_DISABLE": "1", _INSIDE: "1"}
    argv = [program, *map(os.path.expanduser, command[1:])]
    asked = {"query": query[:_QUERY], "k": options["limit"], "project": options["project"]}
    try:
        request = quickjson.written(asked)
        code, output, errors = programs.run(argv, known, request, seconds=seconds, most=MAX_OUTPUT)
    except programs.Unfinished as error:
        raise CommandError(str(error)) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot be started ({error})") from None
    if code:
        line = next((line for line in lines_of(errors) if line.strip()), "no message")
        for variable, value in known.items():
            if len(value) >= _LEAST_SECRET and any(word in variable for word in _SECRET):
                line = line.replace(value, "[key]")
        raise CommandError(f"exit code {code}: {short_line(line, _SAID)}")
    labels = (options.get("profiles") or Profiles(bundled())).of(COMMAND).labels
    # Named by the script where there is one, not by its interpreter.
    root = next(
        (word for word in argv[:0:-1] if os.path.isabs(word) and os.path.isfile(word)), program
    )
    found: dict[str, Candidate] = {}
    for number, item in enumerate(_items(output.decode("utf-8", "replace"))[: options["limit"]], 1):
        hit = _candidate(item, f"candidate {number}", root, labels)
        found.setdefault(hit.file, hit)
    return list(found.values())


def _items(text: str) -> list[Any]:
    """Return what one JSON object holds, or each line of JSON."""
    try:
        if text.strip():
            whole = quickjson.loads(text)
        else:
            whole = {"candidates": []}
        if isinstance(whole, dict):
            items = whole.get("candidates", [whole])
        else:
            items = None
    except ValueError:
        items = []
        for number, line in enumerate(lines_of(text), 1):
            try:
                items += [quickjson.loads(line)] if line.strip() else []
            except ValueError:
                raise CommandError(f"line {number}: not JSON; {_FORM}") from None
    if not isinstance(items, list):
        raise CommandError(f"candidates: not a list; {_FORM}")
    return items


def _candidate(item: Any, where: str, root: str, labels: Mapping[str, float]) -> Candidate:  # noqa: ANN401 - any JSON
    """Return a candidate; without a confidence of its own it is unrated. Raises `CommandError`."""
    if not isinstance(item, dict):
        raise CommandError(f"{where}: expected an object")
    texts = {}
    for name in (*_NAMES, *_TEXTS):
        texts[name] = "" if item.get(name) is None else item[name]
    tags = item.get("tags") or []
    score = item.get("score")
    confidence = item.get("confidence")
    number = []
    for each in (score, confidence):
        number.append(isinstance(each, int | float) and not isinstance(each, bool))
    wrong = [
        f"{name}: expected a text" for name, text in texts.items() if not isinstance(text, str)
    ]
    wrong = wrong or [
        f"{key}: missing" for key in ("id", "title") if not short_line(texts[key], _NAMES[key])
    ]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        wrong.append("tags: expected a list of texts")
    if score is not None and not (number[0] and abs(score) < _MOST):
        wrong.append("score: expected a number")
    if confidence is not None and not (number[1] and 0 <= confidence <= 1):
        wrong.append("confidence: expected a probability, from 0 to 1")
    if wrong:
        raise CommandError(f"{where}: {wrong[0]}")
    id_, title, path, category = (short_line(texts[name], most) for name, most in _NAMES.items())
    text, snippet = (visible(texts[name][:most]) for name, most in _TEXTS.items())
    shown = tuple(short_line(tag, _TAG) for tag in tags[:_MAX_TAGS])
    hit = Candidate(id_, title, category, shown, time.time(), root, path or id_, COMMAND)
    hit.path = hit.place
    hit.text = text or snippet
    hit.snippet = snippet or text[: stores.SNIPPET_LIMIT]
    hit.score = float(score or 0)
    hit.rated = confidence is not None
    hit.confidence = float(confidence or 0)
    hit.confidence_label = UNRATED
    if hit.rated:
        high, medium = (hit.confidence >= labels[name] for name in ("high", "medium"))
        hit.confidence_label = "high" if high else "medium" if medium else "low"
        hit.worth_mentioning = hit.confidence >= labels["mention"]
    return hit

"""The text of an issue about a verdict, and the mark by which it is found again.

Untrusted text is shown as code, where nothing links, loads, mentions or formats.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.judging.redact import redact
from judgekit.judging.verdict import Finding
from judgekit.ledger import verdict_line
from judgekit.ledger.records import is_blob
from judgekit.text import one_line, rubric_name, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.judging.verdict import Round, Verdict


WIDTH = 100  # columns of a block, which does not wrap
NOTHING = "-"
_MARKS = re.compile(r"~+")


def inline(text: str, limit: int = 200) -> str:
    """Return text as code in a line or a table's cell, cut after `limit` characters."""
    # A table is cut at every pipe before code is looked for, and a backtick ends code.
    plain = one_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else NOTHING


def block(text: str, language: str = "") -> str:
    """Return text as a block of code: control characters are left out, all else stands as it is."""
    plain = visible(text)
    marks = "~" * max(3, *(len(run) + 1 for run in _MARKS.findall(plain)), 3)
    return f"{marks}{language}\n{plain}\n{marks}"


def wrapped(text: str, limit: int, first: str = "", indent: str = "") -> str:
    """Return text in lines that a block can show, cut after `limit` characters."""
    return textwrap.fill(one_line(text, limit), WIDTH, initial_indent=first, subsequent_indent=indent)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; the cells are Markdown already."""
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def title(text: str, limit: int = 120) -> str:
    """Return text for a title: GitHub formats code alone in it, programs that pass it on may do more."""
    for mark, harmless in (("`", "'"), ("@", "\uff20"), ("#", "\uff03"), ("<", "\u2039"), (">", "\u203a")):
        text = text.replace(mark, harmless)
    return one_line(text.replace("://", ":\u2215\u2215"), limit)


MAX_BODY = 40_000  # characters; GitHub takes 65,536
_MAX_FINDINGS = 12_000  # characters of them all
_MAX_TEXT = 600  # characters of one text in a finding
_MAX_ROWS = 20
_MAX_TASK = 300  # characters of a task's name that fit into a command
_TOKEN = "judgekit-task-{}"  # noqa: S105 - a word to search for, no secret
_MARK = re.compile(r"<!-- judgekit (?P<token>[\w-]+) (?P<state>[0-9a-f]+) -->")
_HEADS = {
    "escalate": "Models disagree about {}, and no majority was found: a person must decide.",
    "reject": "Models reject {}.",
    "improve": "Models find {} in need of work.",
}
_OTHER = "Models came to no verdict about {}."


class Issue(NamedTuple):
    """An issue as it should be; `token` names its task, `state` the content and the verdict."""

    token: str
    state: str
    title: str
    body: str


class IssueMark(NamedTuple):
    """What the first line of an issue's body says of it."""

    token: str
    state: str


def of(verdict: Verdict, *, text: bool = False) -> Issue:
    """Return the issue about a verdict; quotes and reasoning stand in it only with `text`."""
    shown = verdict_line(verdict, text=text)
    token, state = token_of(verdict.task_id), _state(verdict)
    name = task_name(verdict.task_id)
    heading = f"[JUDGE-DISAGREEMENT] Review needed: {title(name)}"
    body = f"<!-- judgekit {token} {state} -->\n{_body(shown, name, token)}"
    return Issue(token, state, redact(heading).text, redact(body).text)


def mark(body: str) -> IssueMark | None:
    """Return the mark of an issue's body; None when it does not begin with one, as all of ours do."""
    found = _MARK.match(body.lstrip())
    return IssueMark(found["token"], found["state"]) if found else None


def task_name(task_id: str) -> str:
    """Return what stays the same of a task when its content changes: the path of a blob, else the whole."""
    return task_id.rpartition("@")[0] if is_blob(task_id) else task_id


def token_of(task_id: str) -> str:
    """Return the word that names a task in its issue; of a path it is the same in every clone."""
    digest = hashlib.sha256(task_name(task_id).encode("utf-8", "surrogatepass")).hexdigest()
    return _TOKEN.format(digest[:16])


def _state(verdict: Verdict) -> str:
    hashes = sorted(subject.sha256 for subject in verdict.subjects)
    return hashlib.sha256("\n".join([verdict.verdict, *hashes]).encode()).hexdigest()[:16]


def _body(verdict: Verdict, name: str, token: str) -> str:
    head = _HEADS.get(verdict.verdict, _OTHER).format(inline(name))
    parts = [head, _facts(verdict), "### Rounds", _rounds(verdict.rounds)]
    if verdict.reasoning:
        parts += ["### Reasoning", block(wrapped(verdict.reasoning, 4 * _MAX_TEXT))]
    findings = _findings(verdict)
    if findings:
        parts += ["### Findings", block(findings)]
    parts += ["### To settle it", _settle(verdict), f"<sub>{token}</sub>"]
    return "\n\n".join(parts)[:MAX_BODY]


def _facts(verdict: Verdict) -> str:
    ref = f"{verdict.rubric.id}@{verdict.rubric.version}"
    rubric = inline(rubric_name(ref, verdict.rubric.source))
    lines = [f"- rubric {rubric}, {verdict.mode}; judged {verdict.timestamp:%Y-%m-%d %H:%M} UTC"]
    if verdict.commit:
        lines.append(f"- commit {inline(verdict.commit, 64)}")
    lines += [
        f"- file {inline(subject.path)}, SHA-256 {inline(subject.sha256[:12])}"
        for subject in verdict.subjects[:_MAX_ROWS]
    ]
    return "\n".join([*lines, *_more(len(verdict.subjects), "files")])


def _rounds(rounds: list[Round]) -> str:
    if not rounds:
        return "No model was asked."
    rows = [
        (str(each.round), each.tier, inline(each.model, 80), *_outcome(each)) for each in rounds[:_MAX_ROWS]
    ]
    return table(("Round", "Tier", "Model", "Outcome", "Scores", "Failure"), rows)


def _outcome(each: Round) -> tuple[str, str, str]:
    """Return outcome, scores and failure; a provider's own words may name addresses, so only the kind."""
    if each.opinion is None:
        kind = inline(str(each.failure.kind)) if each.failure else NOTHING
        return NOTHING, NOTHING, kind
    scores = each.opinion.get("scores")
    named = scores.items() if isinstance(scores, dict) else ()
    told = ", ".join(f"{name} {value:g}" for name, value in named if isinstance(value, int | float))
    return inline(str(each.opinion.get("outcome"))), inline(told), NOTHING


def _findings(verdict: Verdict) -> str:
    lines: list[str] = []
    found = list(_all_findings(verdict))
    for number, (tier, finding) in enumerate(found, 1):
        lines.append(_finding(number, tier, finding))
        if sum(map(len, lines)) > _MAX_FINDINGS or number == _MAX_ROWS:
            lines += [f"and {len(found) - number} more"] if number < len(found) else []
            break
    return "\n".join(lines)


def _all_findings(verdict: Verdict) -> Iterator[tuple[str, Finding]]:
    """Yield those of the deciding tier; where none decided, those of all, with the tier's name."""
    for finding in verdict.findings:
        yield "", finding
    if verdict.judge_tier is not None:
        return
    for round_ in verdict.rounds:
        listed: Any = (round_.opinion or {}).get("findings")
        for each in listed if isinstance(listed, list) else ():
            yield round_.tier, Finding.model_validate(each)


def _finding(number: int, tier: str, each: Finding) -> str:
    first = f"{number}. "
    indent = " " * len(first)
    where = ", ".join(
        part for part in (tier, each.dimension, each.location and f"in {each.location}") if part
    )
    texts = [(where + ": " if where else "") + each.issue]
    texts += [f'> "{each.quote}"'] if each.quote else []
    texts += [f"-> {each.suggestion}"] if each.suggestion else []
    heads = [first, *[indent] * len(texts)]
    return "\n".join(wrapped(text, _MAX_TEXT, head, indent) for text, head in zip(texts, heads, strict=False))


def _settle(verdict: Verdict) -> str:
    fits = verdict.task_id.isprintable() and len(verdict.task_id) <= _MAX_TASK
    command = f"judgekit override {shlex.quote(verdict.task_id if fits else verdict.id)} accept --why '...'"
    return (
        "Mend the content and have it judged again, or decide yourself, which holds until the content "
        f"changes:\n\n{block(command, 'sh')}\n\n(`reject` instead of `accept` to refuse it.)"
    )


def _more(count: int, what: str) -> list[str]:
    return [f"- and {count - _MAX_ROWS} more {what}"] if count > _MAX_ROWS else []

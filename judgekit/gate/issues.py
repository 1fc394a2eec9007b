"""The text of an issue about a verdict, and the mark by which it is found again.

Untrusted text is shown as code, where nothing links, loads, mentions or formats.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from judgekit.evaluation import page
from judgekit.judging.verdict import Finding, Round, Verdict
from judgekit.ledger import verdict_line
from judgekit.redaction.redact import redact
from judgekit.task_ids import task_name
from judgekit.text import rubric_name, short_line, visible

WIDTH = 100  # columns of a block, which does not wrap
NOTHING = "-"
MAX_BODY = 40_000  # characters; GitHub takes 65,536
_MAX_FINDINGS = 12_000  # characters of them all
_MAX_TEXT = 600  # characters of one text in a finding
_MAX_ROWS = 20
_MAX_TASK = 300  # characters of a task's name that fit into a command
_TEXT = Path(__file__).with_name("issue.md.jinja")
_MARK = re.compile(r"<!-- judgekit (?P<token>[\w-]+) (?P<state>[0-9a-f]+) -->")
_HARMLESS = {
    "`": "'",
    "@": "\uff20",
    "#": "\uff03",
    "<": "\u2039",
    ">": "\u203a",
    "://": ":\u2215\u2215",
}


def inline(text: str, limit: int = 200) -> str:
    # A table is cut at every pipe before code is looked for, and a backtick ends code.
    plain = short_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else NOTHING


def block(text: str, language: str = "") -> str:
    """Return text as a block of code: control characters are left out, all else stands as it is."""
    plain = visible(text)
    marks = "~" * max(3, *(len(run) + 1 for run in re.findall("~+", plain)), 3)
    return f"{marks}{language}\n{plain}\n{marks}"


def wrapped(text: str, limit: int, first: str = "", indent: str = "") -> str:
    return textwrap.fill(
        short_line(text, limit), WIDTH, initial_indent=first, subsequent_indent=indent
    )


def title(text: str) -> str:
    for mark, harmless in _HARMLESS.items():
        text = text.replace(mark, harmless)
    return short_line(text, 120)


class Issue(NamedTuple):
    token: str
    state: str
    title: str
    body: str


def of(verdict: Verdict, *, text: bool = False) -> Issue:
    """Return the issue about a verdict; it has quotes and reasoning only with `text`."""
    name = task_name(verdict.task_id)
    # The same in every clone for the task of a path.
    token = (
        f"judgekit-task-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    )
    hashes = sorted(subject.sha256 for subject in verdict.subjects)
    state = hashlib.sha256("\n".join([verdict.verdict, *hashes]).encode()).hexdigest()[:16]
    shown = verdict_line(verdict, text=text)
    fits = verdict.task_id.isprintable() and len(verdict.task_id) <= _MAX_TASK
    task = shlex.quote(verdict.task_id if fits else verdict.id)
    rubric = rubric_name(f"{shown.rubric.id}@{shown.rubric.version}", shown.rubric.source)
    given = {
        "rubric": rubric,
        "reasoning": wrapped(shown.reasoning, 4 * _MAX_TEXT),
        "findings": _findings(shown),
        "command": f"judgekit override {task} accept --why '...'",
    }
    known = {"inline": inline, "block": block, "ended": _ended, "most": _MAX_ROWS}
    body = page.plain(_TEXT, verdict=shown, name=name, token=token, **given, **known)[:MAX_BODY]
    heading = f"Review needed: {title(name)}"
    if verdict.verdict == "escalate":
        heading = f"[JUDGE-DISAGREEMENT] {heading}"
    marked = f"<!-- judgekit {token} {state} -->\n{body}"
    return Issue(token, state, redact(heading).text, redact(marked).text)


def mark(body: str) -> tuple[str, str] | None:
    found = _MARK.match(body.lstrip())
    return (found["token"], found["state"]) if found else None


def _ended(each: Round) -> tuple[str, str, str]:
    """Return the outcome, the scores and the failure of a round."""
    if each.opinion is None:  # a provider's own words may name addresses, so only the kind
        return NOTHING, NOTHING, inline(str(each.failure.kind)) if each.failure else NOTHING
    scores = each.opinion.get("scores")
    named = scores.items() if isinstance(scores, dict) else ()
    numbers = (f"{name} {value:g}" for name, value in named if isinstance(value, int | float))
    return inline(str(each.opinion.get("outcome"))), inline(", ".join(numbers)), NOTHING


def _findings(verdict: Verdict) -> list[str]:
    """Return the lines about the deciding tier's findings; where none decided, those of all, by tier."""
    findings = [("", finding) for finding in verdict.findings]
    for round_ in verdict.rounds if verdict.judge_tier is None else ():
        listed: Any = (round_.opinion or {}).get("findings")
        named = listed if isinstance(listed, list) else ()
        findings += [(round_.tier, Finding.model_validate(each)) for each in named]
    lines: list[str] = []
    for number, (tier, finding) in enumerate(findings, 1):
        if number > _MAX_ROWS or sum(map(len, lines)) > _MAX_FINDINGS:
            return [*lines, f"and {len(findings) - number + 1} more"]
        place = finding.location and f"in {finding.location}"
        where = ", ".join(filter(None, (tier, finding.dimension, place)))
        first = f"{number}. "
        indent = " " * len(first)
        lines.append(
            wrapped((where + ": " if where else "") + finding.issue, _MAX_TEXT, first, indent)
        )
        for sign, text in (('> "{}"', finding.quote), ("-> {}", finding.suggestion)):
            lines += [wrapped(sign.format(text), _MAX_TEXT, indent, indent)] if text else []
    return lines

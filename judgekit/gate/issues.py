"""The text of a verdict's issue, and the mark that identifies it later.

Untrusted text is shown as code, so that nothing in it links, loads, mentions or formats.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit.evaluation import page
from judgekit.ledger import VerdictLine, make_verdict_line
from judgekit.markdown import NOTHING, format_block, format_inline, wrap
from judgekit.redaction.redact import redact
from judgekit.task_ids import task_name
from judgekit.text import format_rubric_name, shorten_to_line

if TYPE_CHECKING:
    from judgekit.judging.verdict import Finding, Round, Verdict

MAX_BODY_CHARS = 40_000  # characters; GitHub allows 65,536
_MAX_FINDINGS_CHARS = 12_000  # characters in total
_MAX_TEXT_CHARS = 600  # characters of one text in a finding
_MAX_REASONING_CHARS = 2_400
_MAX_ROWS = 20
_MAX_TASK_CHARS = 300  # characters of a task's name that fit into a command
_ISSUE_TEMPLATE_PATH = Path(__file__).with_name("issue.md.jinja")
_ISSUE_MARK_PATTERN = re.compile(r"<!-- judgekit (?P<token>[\w-]+) (?P<fingerprint>[0-9a-f]+) -->")
_HARMLESS_BY_MARK = {
    "`": "'",
    "@": "\uff20",
    "#": "\uff03",
    "<": "\u2039",
    ">": "\u203a",
    "://": ":\u2215\u2215",
}


def disarm_title(text: str) -> str:
    """Replace the characters for links, mentions and formatting, which would work in a title."""
    for mark, harmless in _HARMLESS_BY_MARK.items():
        text = text.replace(mark, harmless)
    return shorten_to_line(text, 120)


class Issue(NamedTuple):
    """An issue about a task.

    The `token` identifies the task, the `fingerprint` its judged contents and the outcome.
    """

    token: str
    fingerprint: str
    title: str
    body: str


def build_issue(verdict: Verdict, *, with_text: bool = False) -> Issue:
    """Build the issue about a verdict, with quotes and reasoning only if `with_text`."""
    name = task_name(verdict.task_id)
    token = _make_token(name)  # a later run finds the task's issue by this
    # If it's the same, a later run leaves the issue as it is.
    fingerprint = _make_fingerprint(verdict)

    body = _write_body(verdict, name, token, with_text=with_text)
    mark = f"<!-- judgekit {token} {fingerprint} -->"
    marked_body = f"{mark}\n{body[:MAX_BODY_CHARS]}"
    title = _write_title(verdict, name)
    return Issue(
        token=token,
        fingerprint=fingerprint,
        title=redact(title).text,
        body=redact(marked_body).text,
    )


def _make_token(name: str) -> str:
    """Make a task's token. A path's task has the same name in every clone, and so the same token."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"judgekit-task-{digest[:16]}"


def _make_fingerprint(verdict: Verdict) -> str:
    """Make a fingerprint of the verdict and the files. The issue is only updated if it changes."""
    hashes = sorted(subject.sha256 for subject in verdict.subjects)
    verdict_and_contents = "\n".join([verdict.verdict, *hashes])
    return hashlib.sha256(verdict_and_contents.encode()).hexdigest()[:16]


def _write_body(verdict: Verdict, name: str, token: str, *, with_text: bool) -> str:
    """Write the issue's body from the template, with quotes and reasoning only if `with_text`."""
    ledger_line = make_verdict_line(verdict, text=with_text)
    rubric = ledger_line.rubric
    versioned_id = f"{rubric.id}@{rubric.version}"
    return page.render_plain_text(
        _ISSUE_TEMPLATE_PATH,
        verdict=ledger_line,
        name=name,
        token=token,
        rubric=format_rubric_name(versioned_id, rubric.source),
        reasoning=wrap(ledger_line.reasoning, _MAX_REASONING_CHARS),
        findings=_format_findings(ledger_line),
        command=_write_override_command(verdict),
        inline=format_inline,
        block=format_block,
        round_cells=_make_round_cells,
        most=_MAX_ROWS,
    )


def _write_override_command(verdict: Verdict) -> str:
    """Write the command that accepts the task.

    If the task's id is hard to copy, the command has the verdict's id instead.
    """
    is_short = len(verdict.task_id) <= _MAX_TASK_CHARS
    is_easy_to_copy = is_short and verdict.task_id.isprintable()
    given_id = verdict.task_id if is_easy_to_copy else verdict.id
    return f"judgekit override {shlex.quote(given_id)} accept --why '...'"


def _write_title(verdict: Verdict, name: str) -> str:
    title = f"Review needed: {disarm_title(name)}"
    if verdict.verdict == "escalate":  # the models disagree
        return f"[JUDGE-DISAGREEMENT] {title}"
    return title


def read_mark(body: str) -> tuple[str, str] | None:
    """Parse the mark at the start of an issue's body into its token and fingerprint; None without one."""
    match = _ISSUE_MARK_PATTERN.match(body.lstrip())
    if match is None:
        return None
    return match["token"], match["fingerprint"]


def _make_round_cells(judged_round: Round) -> tuple[str, str, str]:
    """Build the table cells for a round: its outcome, scores, and kind of failure."""
    opinion = judged_round.opinion
    if opinion is not None:
        scores = [f"{name} {value:g}" for name, value in opinion.scores.items()]
        outcome = format_inline(str(opinion.outcome))
        return outcome, format_inline(", ".join(scores)), NOTHING

    failure = judged_round.failure
    if failure is None:
        return NOTHING, NOTHING, NOTHING
    # Only show the kind of failure, since a provider's message can contain addresses.
    return NOTHING, NOTHING, format_inline(str(failure.kind))


def _format_findings(verdict: VerdictLine) -> list[str]:
    """Format the verdict's findings as a numbered list. Long lists end with a line such as "and 3 more"."""
    findings = _list_findings(verdict)
    lines: list[str] = []
    for index, (tier, finding) in enumerate(findings):
        # An issue's body is limited in length.
        char_count = sum(len(line) for line in lines)
        is_full = index >= _MAX_ROWS or char_count > _MAX_FINDINGS_CHARS
        if is_full:
            omitted = findings[index:]
            lines.append(f"and {len(omitted)} more")
            break

        lines += _format_finding(index + 1, tier, finding)

    return lines


def _format_finding(number: int, tier: str, finding: Finding) -> list[str]:
    """Format a finding as a numbered item, with its quote and suggestion indented below."""
    bullet = f"{number}. "
    indent = " " * len(bullet)
    lines = [wrap(_describe_finding(tier, finding), _MAX_TEXT_CHARS, bullet, indent)]
    if finding.quote:
        lines.append(wrap(f'> "{finding.quote}"', _MAX_TEXT_CHARS, indent, indent))
    if finding.suggestion:
        lines.append(wrap(f"-> {finding.suggestion}", _MAX_TEXT_CHARS, indent, indent))
    return lines


def _describe_finding(tier: str, finding: Finding) -> str:
    """Write `TIER, DIMENSION, in LOCATION: ISSUE`, without empty parts."""
    location = f"in {finding.location}" if finding.location else ""
    context = ", ".join(part for part in (tier, finding.dimension, location) if part)
    return f"{context}: {finding.issue}" if context else finding.issue


def _list_findings(verdict: VerdictLine) -> list[tuple[str, Finding]]:
    """List the verdict's findings as (tier, finding), with "" as the tier of the verdict's own findings.

    If no tier decided the verdict, the findings of its rounds follow.
    """
    own_findings = [("", finding) for finding in verdict.findings]
    is_decided_by_tier = verdict.judge_tier is not None
    if is_decided_by_tier:
        return own_findings

    round_findings = []
    for judged_round in verdict.rounds:
        if judged_round.opinion:
            for finding in judged_round.opinion.findings:
                round_findings.append((judged_round.tier, finding))
    return [*own_findings, *round_findings]

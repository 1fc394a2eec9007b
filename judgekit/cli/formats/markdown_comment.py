"""Renders verdicts as a Markdown comment on a pull request: a headline, a table, and findings to unfold.

The first line is an HTML comment that names the command: a script finds the last comment with this line and
replaces it. Foreign text becomes code or escaped prose.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.cli.formats.findings import render_finding
from judgekit.cli.formats.handed_on import Checkout, clean_gate, clean_verdicts, name_rubric
from judgekit.cli.formats.row_results import WORST_FIRST, WORST_ROWS
from judgekit.evaluation.page import Figure, Table, format_cell
from judgekit.gate import PASSES, STOPS, UNKNOWN, describe_run
from judgekit.markdown import escape_prose, format_block, format_inline, wrap
from judgekit.redaction.redact import without_secrets
from judgekit.task_ids import task_name
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.data.report import ResultsReport
    from judgekit.evaluation.page import Chart, Part, Section
    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

MAX_COMMENT_CHARS = 60_000  # in a comment; GitHub accepts 65,536
_MAX_ROWS = 50  # in a table
_MAX_CELL_CHARS = 300  # characters of a text in a table
_MAX_FINDING_CHARS = 600  # characters of each line of a finding
_SHOWN_ROWS = 10  # in a table about rows
_SIGN_BY_VERDICT = {"accept": "✅", "reject": "❌", "improve": "⚠️", PASSES: "✅", STOPS: "❌"}
_OPEN_VERDICT_SIGN = "❔"  # undetermined, or for a person to decide
_NON_NAME_CHARS_PATTERN = re.compile(r"[^\w.-]+", re.ASCII)
_OPEN_SECTIONS = frozenset({"Rates", WORST_ROWS})  # the others are folded
_CODE_COLUMNS = frozenset({"id"})  # columns whose cells are shown as code


class _Line(NamedTuple):
    """A verdict's line in a comment: its word, and the commit if there is one."""

    word: str
    name: str
    verdict: Record
    commit: str = ""


def render_verdicts(verdicts: Sequence[Record]) -> str:
    """Write a comment with a headline, a table of the worst documents, and their findings."""
    verdict_lines = []
    for verdict in clean_verdicts(verdicts):
        verdict_lines.append(_Line(verdict["verdict"], task_name(verdict["task_id"]), verdict))
    verdict_lines.sort(key=lambda line: WORST_FIRST.index(line.word))
    accepted = sum(line.word == "accept" for line in verdict_lines)
    documents = format_count(len(verdict_lines), "document", "documents")
    title = f"judgekit: {accepted} of {documents} accepted"
    return _write_comment("judge", title, [*_build_verdict_table(verdict_lines)], verdict_lines)


def render_gate(report: Report) -> str:
    """Write a comment with the gate's verdict, a table of the worst files, notes, and findings."""
    verdicts, run = clean_gate(report)
    verdict_lines = []
    # A row's own verdict may contain secrets, so use the clean one.
    for row, verdict in zip(report.rows, verdicts, strict=True):
        verdict_lines.append(
            _Line(row["word"], task_name(verdict["task_id"]), verdict, row["commit"][:7])
        )

    # List the worst files first.
    order = (STOPS, UNKNOWN, PASSES)
    verdict_lines.sort(key=lambda line: order.index(line.word))

    title = f"judgekit gate: {run['verdict'] or 'nothing to judge'}"
    if run["blocked"]:
        title += ", the push is blocked"
    elif run["verdict"] == STOPS and run["mode"] == "advisory":
        title += " (advisory)"

    paragraphs = _build_verdict_table(verdict_lines)

    counts = describe_run(report.judged_rows, report.skipped, report.not_examined)
    notes = [counts, *run["notes"]]
    for omission in run["not_examined"]:
        notes.append(f"not examined: {omission['name']}: {omission['reason']}")
    paragraphs += _write_list(without_secrets(notes))
    return _write_comment("gate", title, paragraphs, verdict_lines)


def render_rows(results: RowResults) -> str:
    """Write a comment with a headline, missed limits, figures, and the worst rows."""
    summary = results.summary
    paragraphs = [escape_prose(f"{summary.file}: {results.about}")]
    for missed_limit in without_secrets(list(results.missed_limits)):
        paragraphs.append(f"❌ {escape_prose(missed_limit)}")
    if results.has_limits and not results.missed_limits:
        paragraphs.append("✅ all limits are kept")

    for section in results.sections:
        max_rows = _SHOWN_ROWS
        if section.title == WORST_ROWS:
            max_rows = results.worst_row_count or _SHOWN_ROWS
        paragraphs += _render_section(section, max_rows)

    headline = _write_headline(summary)
    return _write_comment("report", headline, paragraphs, name=_choose_stable_name(summary.file))


def _render_section(section: Section, max_rows: int) -> list[str]:
    """Render a section under its title, folded unless it's among the most important."""
    rendered_parts = []
    for part in section.parts:
        rendered_parts += _render_part(part, max_rows)
    title = escape_prose(section.title)
    if section.title in _OPEN_SECTIONS:
        return [f"#### {title}", *rendered_parts]
    return [f"<details><summary>{title}</summary>", *rendered_parts, "</details>"]


def _write_headline(summary: ResultsReport) -> str:
    """Write the number of rows, and if it's known, how many of them were accepted."""
    rows = format_count(summary.rows, "row", "rows")
    if summary.accept_rate is None:
        return f"judgekit: {rows}"
    accepted = summary.verdicts.get("accept", 0)
    return f"judgekit: {accepted:,} of {rows} accepted"


render_report = render_rows


def _choose_stable_name(path: str) -> str:
    """Name a file the same in every run: by its path in the repository, or else its last part."""
    name = Checkout.of_folder(Path.cwd()).name(path)
    is_outside = PurePath(name).is_absolute()
    return PurePath(name).name if is_outside else name


def _write_comment(
    command: str,
    title: str,
    paragraphs: Iterable[str],
    lines: Sequence[_Line] = (),
    name: str = "",
) -> str:
    """Combine a comment's title, paragraphs, and as many findings as fit.

    The first line contains the `command` and input `name`, by which a script recognises the comment.
    """
    mark = _write_mark(command, name)
    text = "\n\n".join([f"{mark}\n### {title}", *paragraphs])
    text = _cut_at_line(text)

    omitted_count = 0
    for line in lines:
        details = _write_details(line)
        if not details:
            continue
        fits = len(text) + len(details) <= MAX_COMMENT_CHARS
        if fits:
            text += f"\n\n{details}"
        else:
            omitted_count += 1

    if omitted_count:
        documents = format_count(omitted_count, "more document", "more documents")
        text += f"\n\nFindings of {documents} are left out."
    return text


def _write_mark(command: str, name: str) -> str:
    """Write the HTML comment by which a script finds our comment, such as `<!-- judgekit gate -->`."""
    words = ["judgekit", command]
    if name:
        words.append(_NON_NAME_CHARS_PATTERN.sub("_", name))
    mark = " ".join(words).replace("--", "__")  # `--` would end the HTML comment
    return f"<!-- {mark} -->"


def _cut_at_line(text: str) -> str:
    """Shorten a comment to the maximum length, at the end of a line."""
    if len(text) <= MAX_COMMENT_CHARS:
        return text
    complete_lines, _, _ = text[:MAX_COMMENT_CHARS].rpartition("\n")
    return f"{complete_lines}\n\n…"


def _build_verdict_table(lines: Sequence[_Line]) -> list[str]:
    """Build a table of the worst verdicts, and a line that counts the others."""
    if not lines:
        return []

    has_commits = any(line.commit for line in lines)
    commit_header = ["commit"] if has_commits else []
    header = ["", "verdict", "document", *commit_header, "scores", "why"]
    rows = [_render_verdict_cells(line, has_commits=has_commits) for line in lines[:_MAX_ROWS]]
    table = _write_table(header, rows)
    if len(lines) <= _MAX_ROWS:
        return [table]

    words = Counter(line.word for line in lines[_MAX_ROWS:])
    counts = ", ".join(f"{count} {word}" for word, count in words.items())
    return [table, f"and {counts} more"]


def _render_verdict_cells(line: _Line, *, has_commits: bool) -> list[str]:
    """Render the cells of a verdict in the table."""
    verdict = line.verdict
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict["scores"] or {}).items())
    reason = verdict["reasoning"] or verdict["degraded"] or ""
    override = verdict.get("human_override")
    if override:
        # The decision is "accept" or "reject".
        reason = f"{override['decision']}ed by {override['who']}: {override['why']}"

    commit_cells = [format_inline(line.commit)] if has_commits else []
    return [
        _SIGN_BY_VERDICT.get(line.word, _OPEN_VERDICT_SIGN),
        line.word,
        format_inline(line.name),
        *commit_cells,
        escape_prose(scores),
        escape_prose(reason, _MAX_CELL_CHARS),
    ]


def _write_details(line: _Line) -> str:
    """Render a verdict's findings in a folded block; "" if there are none."""
    verdict = line.verdict
    if not verdict["findings"]:
        return ""

    finding_texts = []
    for finding in verdict["findings"]:
        finding_texts += [_wrap_indented(text) for text in render_finding(finding)]
        dismissed = finding.get("dismissed")
        if dismissed:
            finding_texts.append(f"  dismissed by {dismissed['who']}")

    count = format_count(len(verdict["findings"]), "finding", "findings")
    name = escape_prose(line.name)
    summary = f"<summary>{name}: {count} ({escape_prose(name_rubric(verdict))})</summary>"
    block = format_block("\n".join(finding_texts))
    return f"<details>{summary}\n\n{block}\n\n</details>"


def _wrap_indented(text: str) -> str:
    """Wrap a line. Keep its indent, and indent its continuation by two more blanks."""
    unindented = text.strip()
    first_indent = " " * (len(text) - len(text.lstrip()))
    further_indent = f"{first_indent}  "
    return wrap(unindented, _MAX_FINDING_CHARS, first_indent, further_indent)


def _render_part(part: Part, limit: int) -> list[str]:
    """Render a part of a page: a note, a table, or figures with intervals; a comment has no charts."""
    if isinstance(part, str):
        return [escape_prose(without_secrets(part))]
    if isinstance(part, Table):
        return _render_table(part, limit)
    return _render_figures(part)


def _render_table(table: Table, limit: int) -> list[str]:
    """Render up to `limit` rows of a table, and the number of those left out."""
    header = [escape_prose(name) for name in table.columns]
    rows = [_render_cells(table.columns, row) for row in table.rows[:limit]]
    paragraphs = [_write_table(header, rows)]
    total = max(table.total, len(table.rows))  # the table itself may have left some out
    if total > limit:
        paragraphs.append(f"and {total - limit:,} more")
    return paragraphs


def _render_cells(columns: Sequence[str], row: Sequence[Any]) -> list[str]:
    """Render a row's cells without secrets: names as code, others as escaped prose."""
    cells = []
    for column, cell in zip(columns, row, strict=True):
        text = without_secrets(format_cell(cell))
        if column in _CODE_COLUMNS:
            cells.append(format_inline(text))
        else:
            cells.append(escape_prose(text, _MAX_CELL_CHARS))
    return cells


def _render_figures(part: Sequence[Figure] | Sequence[Chart]) -> list[str]:
    """Render figures as a table, if there are any. Charts are left out: a comment can't show them."""
    rows = []
    for figure in part:
        if isinstance(figure, Figure):
            rows.append([escape_prose(figure.name), figure.text, escape_prose(figure.note)])
    if not rows:
        return []
    return [_write_table(["figure", "value", ""], rows)]


def _write_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_write_row(header), _write_row(["---"] * len(header))]
    lines += [_write_row(row) for row in rows]
    return "\n".join(lines)


def _write_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _write_list(texts: Sequence[str]) -> list[str]:
    """Render a list as one paragraph, or as no paragraph if it's empty."""
    list_items = [f"- {escape_prose(text)}" for text in texts if text]
    if not list_items:
        return []
    return ["\n".join(list_items)]

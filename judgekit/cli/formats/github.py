"""Renders verdicts as annotations of GitHub's workflows: errors and warnings at the places they're about.

The runner shows ten of each kind in a step, so the worst come first, and the last line sums up. Paths are
those of the repository.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.cli.formats.handed_on import (
    Checkout,
    clean_gate,
    clean_verdicts,
    find_places,
    name_rubric,
    summarise_verdict,
)
from judgekit.cli.formats.row_results import WORST_FIRST
from judgekit.gate import describe_run
from judgekit.redaction.redact import without_secrets
from judgekit.task_ids import task_name
from judgekit.text import escape_ci_commands, escape_name, format_count, remove_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.cli.formats.handed_on import Place
    from judgekit.cli.formats.row_results import RowResults
    from judgekit.data.report import Shown
    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_LEVEL_BY_VERDICT = {"reject": "error"}  # anything else that isn't accepted is a warning
_MAX_ROWS = 10
_MAX_MESSAGE_CHARS = 2_000  # in a message
# docs.github.com/actions/reference/workflow-commands: the escapes that the runner decodes.
_MESSAGE_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = {**_MESSAGE_ESCAPES, ":": "%3A", ",": "%2C"}
_PROPERTY_BY_REGION_KEY = {
    "startLine": "line",
    "endLine": "endLine",
    "startColumn": "col",
    "endColumn": "endColumn",
}


def render_verdicts(verdicts: Sequence[Record]) -> str:
    clean = clean_verdicts(verdicts)
    lines = _annotate_verdicts(clean, Checkout.of_folder(Path.cwd()), _LEVEL_BY_VERDICT)
    return "\n".join([*lines, _sum_up([verdict["verdict"] for verdict in clean])])


def render_gate(report: Report) -> str:
    """Write annotations for the gate's files, including unexamined ones."""
    verdicts, run = clean_gate(report)
    levels = _LEVEL_BY_VERDICT
    if not run["blocked"]:
        levels = {}  # a verdict without a level gets a warning
    annotations = _annotate_verdicts(verdicts, Checkout.of_current_folder(), levels)
    annotations += _annotate_unexamined(verdicts, run)

    summary = without_secrets(describe_run(report.judged_rows, report.skipped, report.not_examined))
    annotations.append(_annotate("notice", summary, title="judgekit gate"))
    return "\n".join(annotations)


def _annotate_unexamined(verdicts: Sequence[Record], run: Record) -> list[str]:
    """Annotate the unexamined files, as errors if they block the push."""
    level = "error" if run["holds"] else "warning"
    judged_names = {task_name(verdict["task_id"]) for verdict in verdicts}
    annotations = []
    for omission in run["not_examined"]:
        if omission["name"] in judged_names:  # it has an annotation already
            continue
        message = f"{omission['name']}: {omission['reason']}"
        annotations.append(_annotate(level, message, title="not examined"))
    return annotations


def render_rows(results: RowResults) -> str:
    """Write annotations: errors for missed limits, the worst rows, rows without a verdict, and a summary."""
    annotations = []
    for missed_limit in without_secrets(list(results.missed_limits)):
        annotations.append(_annotate("error", missed_limit, title="limit"))

    file_property: dict[str, object] = {}
    if Path(results.rows.name).is_file():  # not standard input or an address
        file_property["file"] = Checkout.of_folder(Path.cwd()).name(results.rows.name)
    # The user can choose how many rows to show.
    max_rows = results.worst_row_count or _MAX_ROWS
    for row in results.summary.worst[:max_rows]:
        annotations.append(_annotate_row(row, file_property))
    for error, count in results.summary.errors.items():
        message = (
            f"{format_count(count, 'row', 'rows')} without a verdict: {without_secrets(error)}"
        )
        annotations.append(_annotate("warning", message, **file_property, title="undetermined"))

    overview = f"{results.rows.name}: {results.about}"
    annotations.append(_annotate("notice", overview, title="judgekit"))
    return "\n".join(annotations)


def _annotate_row(row: Shown, file_property: Mapping[str, object]) -> str:
    """Build an annotation with a row's scores and reasoning, or with its verdict if it has neither."""
    scores = ", ".join(f"{name} {score:g}" for name, score in row.scores.items())
    parts = [text for text in (scores, row.reasoning) if text]
    reasons = without_secrets("; ".join(parts))
    level = _LEVEL_BY_VERDICT.get(row.verdict, "warning")
    title = f"{row.verdict}: {row.id}"
    return _annotate(level, reasons or row.verdict, **file_property, title=title)


render_report = render_rows


def _annotate_verdicts(
    verdicts: Sequence[Record], checkout: Checkout, levels: Mapping[str, str]
) -> list[str]:
    """Annotate all verdicts that aren't accepted, the worst first."""
    annotations = []
    for verdict in sorted(verdicts, key=_rank_badness):
        if verdict["verdict"] != "accept":
            annotations += _annotate_verdict(verdict, checkout, levels)
    return annotations


def _rank_badness(verdict: Record) -> int:
    """Return a number for sorting verdicts, the worst first."""
    return WORST_FIRST.index(verdict["verdict"])


def _annotate_verdict(verdict: Record, checkout: Checkout, levels: Mapping[str, str]) -> list[str]:
    """Annotate a verdict's findings, except dismissed ones. Without any, annotate the whole file."""
    word = verdict["verdict"]
    level = levels.get(word, "warning")
    title = f"{word}: {name_rubric(verdict)}"
    whole_file, places = find_places(verdict, checkout)

    annotations = []
    for finding, place in zip(verdict["findings"], places, strict=True):
        if finding.get("dismissed"):
            continue
        texts = [text for text in (finding["issue"], finding["suggestion"]) if text]
        position = _build_position(place, checkout)
        annotations.append(_annotate(level, "\n".join(texts), **position, title=title))
    if annotations:
        return annotations

    message = summarise_verdict(verdict) or word
    position = _build_position(whole_file, checkout)
    return [_annotate(level, message, **position, title=title)]


def _build_position(place: Place, checkout: Checkout) -> dict[str, object]:
    """Build an annotation's properties for its file, lines and columns."""
    properties: dict[str, object] = {"file": checkout.name(place.path)}
    region = place.region
    start_line = region["startLine"]
    has_several_lines = region.get("endLine", start_line) != start_line
    for region_key, property_name in _PROPERTY_BY_REGION_KEY.items():
        if region_key not in region:
            continue
        is_column = region_key.endswith("Column")
        # GitHub accepts columns only within a single line.
        if is_column and has_several_lines:
            continue
        properties[property_name] = region[region_key]
    return properties


def _annotate(level: str, message: str, **properties: object) -> str:
    """Build an annotation as a workflow command. The texts are untrusted.

    Each one is first escaped for terminals and CI servers, then for workflow commands.
    """
    assignments = []
    for name, value in properties.items():
        single_line = escape_name(str(value))  # newlines are escaped, too
        assignments.append(f"{name}={_percent_encode(single_line, _PROPERTY_ESCAPES)}")

    # Unlike a property, the message can have multiple lines.
    shortened_message = message[:_MAX_MESSAGE_CHARS]
    visible_message = remove_invisible(shortened_message).strip()
    harmless_message = escape_ci_commands(visible_message)
    encoded_message = _percent_encode(harmless_message, _MESSAGE_ESCAPES)
    return f"::{level} {','.join(assignments)}::{encoded_message}"


def _percent_encode(text: str, codes: Mapping[str, str]) -> str:
    """Replace each character that has a code, such as `%` with `%25`."""
    return text.translate({ord(sign): code for sign, code in codes.items()})


def _sum_up(words: Iterable[str]) -> str:
    """Build a notice with the number of documents by verdict, best first."""
    counts = Counter(words)
    counts_by_word = [f"{counts[word]} {word}" for word in reversed(WORST_FIRST) if counts[word]]
    by_verdict = ", ".join(counts_by_word) or "nothing judged"
    documents = format_count(counts.total(), "document", "documents")
    return _annotate("notice", f"{documents}: {by_verdict}", title="judgekit")

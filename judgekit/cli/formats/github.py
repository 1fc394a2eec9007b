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
from judgekit.text import counted, escape_ci_commands, escaped, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.cli.formats.handed_on import Place
    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_LEVELS = {"reject": "error"}  # anything else that isn't accepted is a warning
_MAX_ROWS = 10
_MAX_MESSAGE_CHARS = 2_000  # in a message
# docs.github.com/actions/reference/workflow-commands: the escapes that the runner decodes.
_IN_MESSAGES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTIES = {**_IN_MESSAGES, ":": "%3A", ",": "%2C"}
_REGION = {
    "startLine": "line",
    "endLine": "endLine",
    "startColumn": "col",
    "endColumn": "endColumn",
}


def render_verdicts(verdicts: Sequence[Record]) -> str:
    clean = clean_verdicts(verdicts)
    lines = _annotate_verdicts(clean, Checkout.of_folder(Path.cwd()), _LEVELS)
    return "\n".join([*lines, _sum_up([verdict["verdict"] for verdict in clean])])


def render_gate(report: Report) -> str:
    """Write annotations for the gate's files, including unexamined ones."""
    verdicts, run = clean_gate(report)
    levels = _LEVELS if run["blocked"] else {}  # if the push isn't blocked, only give warnings
    checkout = Checkout.of_gate()
    annotations = _annotate_verdicts(verdicts, checkout, levels)
    level = "error" if run["holds"] else "warning"  # for unexamined files, which may block the push
    judged_names = {task_name(verdict["task_id"]) for verdict in verdicts}
    for omission in run["not_examined"]:
        if omission["name"] not in judged_names:  # judged files have their annotations already
            message = f"{omission['name']}: {omission['reason']}"
            annotations.append(_annotate(level, message, title="not examined"))

    summary = without_secrets(describe_run(report.judged, report.skipped, report.not_examined))
    annotations.append(_annotate("notice", summary, title="judgekit gate"))
    return "\n".join(annotations)


def render_rows(results: RowResults) -> str:
    """Write an error for each missed limit, and an annotation for each of the worst rows."""
    missed = without_secrets(list(results.missed))
    annotations = [_annotate("error", missed_limit, title="limit") for missed_limit in missed]
    file_property: dict[str, object] = {}
    if Path(results.rows.name).is_file():  # not standard input or an address
        file_property["file"] = Checkout.of_folder(Path.cwd()).name(results.rows.name)

    most_rows = results.worst or _MAX_ROWS
    for row in results.summary.worst[:most_rows]:
        scores = ", ".join(f"{name} {score:g}" for name, score in row.scores.items())
        parts = [text for text in (scores, row.reasoning) if text]
        reasons = without_secrets("; ".join(parts))
        title = f"{row.verdict}: {row.id}"
        level = _LEVELS.get(row.verdict, "warning")
        annotations.append(_annotate(level, reasons or row.verdict, **file_property, title=title))

    for error, count in results.summary.errors.items():
        message = f"{counted(count, 'row', 'rows')} without a verdict: {without_secrets(error)}"
        annotations.append(_annotate("warning", message, **file_property, title="undetermined"))

    annotations.append(
        _annotate("notice", f"{results.rows.name}: {results.about}", title="judgekit")
    )
    return "\n".join(annotations)


render_report = render_rows


def _annotate_verdicts(
    verdicts: Sequence[Record], checkout: Checkout, levels: Mapping[str, str]
) -> list[str]:
    """Write an annotation for each finding that isn't dismissed, the worst verdicts first.

    A verdict without any gets its own annotation, unless it's accepted.
    """
    annotations = []
    for verdict in sorted(verdicts, key=_rank_badness):
        word = verdict["verdict"]
        if word == "accept":
            continue

        level = levels.get(word, "warning")
        title = f"{word}: {name_rubric(verdict)}"

        # Annotate each open finding.
        whole_file, places = find_places(verdict, checkout)
        has_findings = False
        for finding, place in zip(verdict["findings"], places, strict=True):
            if finding.get("dismissed"):
                continue
            has_findings = True
            texts = [text for text in (finding["issue"], finding["suggestion"]) if text]
            position = _build_position(place, checkout)
            annotations.append(_annotate(level, "\n".join(texts), **position, title=title))

        if not has_findings:
            message = summarise_verdict(verdict) or word
            position = _build_position(whole_file, checkout)
            annotations.append(_annotate(level, message, **position, title=title))

    return annotations


def _rank_badness(verdict: Record) -> int:
    """Return a number for sorting verdicts, the worst first."""
    return WORST_FIRST.index(verdict["verdict"])


def _build_position(place: Place, checkout: Checkout) -> dict[str, object]:
    """Build the properties for an annotation's position."""
    properties: dict[str, object] = {"file": checkout.name(place.path)}
    region = place.region
    start_line = region["startLine"]
    # GitHub accepts columns only within a single line.
    is_one_line = region.get("endLine", start_line) == start_line
    for key, name in _REGION.items():
        is_column = key.endswith("Column")
        if key in region and (is_one_line or not is_column):
            properties[name] = region[key]
    return properties


def _annotate(level: str, message: str, **properties: object) -> str:
    """Build an annotation as a workflow command."""
    # The texts are untrusted. First escape anything that a terminal or CI server obeys, and then the
    # characters with a meaning in workflow commands.
    assignments = []
    for name, value in properties.items():
        one_line = escaped(str(value))
        assignments.append(f"{name}={_percent_encode(one_line, _IN_PROPERTIES)}")
    # The message can have multiple lines.
    harmless_message = escape_ci_commands(visible(message[:_MAX_MESSAGE_CHARS]).strip())
    encoded_message = _percent_encode(harmless_message, _IN_MESSAGES)
    return f"::{level} {','.join(assignments)}::{encoded_message}"


def _percent_encode(text: str, codes: Mapping[str, str]) -> str:
    """Replace each character that has a code, such as `%` with `%25`."""
    return text.translate({ord(sign): code for sign, code in codes.items()})


def _sum_up(words: Iterable[str]) -> str:
    """Build a notice with the number of documents by verdict, best first."""
    counts = Counter(words)
    counts_by_word = [f"{counts[word]} {word}" for word in reversed(WORST_FIRST) if counts[word]]
    by_verdict = ", ".join(counts_by_word) or "nothing judged"
    documents = counted(counts.total(), "document", "documents")
    return _annotate("notice", f"{documents}: {by_verdict}", title="judgekit")

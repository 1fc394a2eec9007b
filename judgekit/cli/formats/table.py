"""Renders verdicts, runs of the gate and comparisons for people: columns on a line, with reasons below it."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from judgekit.cli.formats.findings import render_finding
from judgekit.cli.formats.row_results import WORST_ROWS
from judgekit.cli.layout import fit_text, render_parts
from judgekit.evaluation.page import INTERVALS
from judgekit.gate import PASSES, STOPS, UNKNOWN
from judgekit.judging.wordless import is_wordless
from judgekit.task_ids import task_name
from judgekit.text import (
    escape_name,
    format_count,
    format_rubric_name,
    shorten_to_line,
    split_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report, Row
    from judgekit.judging.verdict import Comparison, Contestant

    Record: TypeAlias = Mapping[str, Any]

COLOURS = {
    "accept": typer.colors.GREEN,
    "improve": typer.colors.YELLOW,
    "reject": typer.colors.RED,
    "escalate": typer.colors.MAGENTA,
    "undetermined": typer.colors.MAGENTA,
}
_GATE_COLOURS = {
    PASSES: COLOURS["accept"],
    STOPS: COLOURS["reject"],
    UNKNOWN: COLOURS["undetermined"],
}
_WORD_WIDTH = 12
_MAX_REASON_CHARS = 400  # characters in the line of a row
_BARS = "▁▂▃▄▅▆▇█"
_COST_SOURCES = {
    "provider": " (as the provider reports)",
    "profile": " (by the prices of the provider's profile)",
    "litellm": " (by litellm's prices)",
    "cache": " (all replies cached)",
    "mixed": " (from several sources)",
}


def render_verdicts(verdicts: Sequence[Record]) -> str:
    """Render verdicts below each other, with their reasons."""
    verdict_texts = []
    for verdict in verdicts:
        # For undetermined verdicts, the caller prints why they're degraded, only once at the end.
        shows_why_degraded = verdict["verdict"] != "undetermined"
        verdict_texts.append(render_verdict(verdict, degraded=shows_why_degraded))
    return "\n".join(verdict_texts)


def _render_gate_word(row: Row) -> str:
    word = row["word"]
    return typer.style(word.ljust(_WORD_WIDTH), fg=_GATE_COLOURS[word], bold=True)


def _render_gate_path(row: Row) -> str:
    return escape_name(row["path"])


def _render_gate_commit(row: Row) -> str:
    return f"({row['commit'][:7]} {escape_name(row['author'])})"


GATE_COLUMNS: tuple[Callable[[Row], str], ...] = (
    _render_gate_word,
    _render_gate_path,
    _render_gate_commit,
)
"""The columns of the gate's table, from left to right; an empty cell leaves no gap."""


def render_gate(report: Report) -> str:
    """Render a line for each file, with its reasons indented below."""
    file_texts = []
    for row in report.rows:
        line_and_reasons = [render_gate_row(row), *_render_gate_reasons(row, report.notes)]
        file_texts.append("\n    ".join(line_and_reasons))
    return "\n".join(file_texts)


def render_gate_row(row: Row) -> str:
    """Render a gate row's columns as a line."""
    cells = [column(row) for column in GATE_COLUMNS]
    return "  ".join(cell for cell in cells if cell)


def _render_gate_reasons(row: Row, notes: Sequence[str]) -> list[str]:
    """Render the reasons below a gate row: of a person, the models, or a missing judgement."""
    verdict = row["verdict"]
    reasons = []
    noise = verdict.get("noise")
    if noise:
        points = f"{noise:g} points"
        reasons.append(f"within the noise ({points}): judged again, it may get the other answer")

    override = verdict["human_override"]
    if override:
        reasons.append(f"{override['decision']}ed by {override['who']}: {override['why']}")
    elif verdict["rounds"]:
        reasons += _render_models_reasons(row)
    # Without a model, no file is judged, and the notes give the reason once for all of them.
    elif verdict["degraded"] not in notes:
        reasons.append(verdict["degraded"])
    return reasons


def _render_models_reasons(row: Row) -> list[str]:
    """Render the models' verdict. If they accepted the file, only render what makes that less reliable."""
    verdict = row["verdict"]
    # A file may be judged less deep than wanted, and then `degraded` says so.
    is_less_deep = bool(verdict.get("depth") and verdict["degraded"])
    is_fully_accepted = row["word"] == PASSES and not is_less_deep
    if not is_fully_accepted:
        return [render_verdict(verdict, headed=False)]

    reservations = []
    if verdict.get("independent") is False:
        reservations.append(_describe_partiality(verdict))
    if verdict["degraded"] and is_wordless(verdict):
        reservations.append(verdict["degraded"])
    return reservations


def render_rows(results: RowResults) -> str:
    """Render a line for each row. If `worst` is set, render only the worst rows, with details."""
    if results.worst_row_count is not None:
        return "\n".join(_render_worst_rows(results))
    row_lines = []
    for row in results.rows:
        row_lines.append(render_row(row.verdict, row.row_id, {**row.columns, "scores": row.scores}))
    return "\n".join(row_lines)


def render_report(results: RowResults) -> str:
    """Render the summary of rows: figures, tables, and the worst rows if requested."""
    section_texts = [escape_name(f"{results.summary.file}: {results.about}")]
    for section in results.sections:
        if section.title == WORST_ROWS and results.worst_row_count is not None:
            continue  # they're added below with more details
        section_texts.append(f"\n{section.title}\n{render_parts(section.parts)}")
    if results.worst_row_count is not None:
        section_texts += ["", WORST_ROWS, *(f"  {line}" for line in _render_worst_rows(results))]
    text = "\n".join(section_texts)
    # Explain intervals, such as [0.61, 0.83], or [-0.02, +0.11] of a difference.
    has_intervals = any(beginning in text for beginning in ("[0", "[-", "[+"))
    return f"{text}\n\n{INTERVALS}" if has_intervals else text


def render_row(word: str, row_id: str, columns: Record) -> str:
    """Render a row's verdict, name and mean, and as many of its reasons as fit.

    A comparison has scores for its texts instead of a mean.
    """
    # Imported here since it loads pydantic, which is slow.
    from judgekit.evaluation.labels import parse_number

    scores = ""
    average = parse_number(columns.get("average"))  # a CSV cell is text
    if average is not None:
        scores = f"  mean {average:g}"
    else:
        for name, score in (columns.get("scores") or {}).items():
            scores += f"  {escape_name(str(name))} {score:g}"

    head = f"{word.upper().ljust(_WORD_WIDTH)}  {escape_name(row_id)}{scores}"
    reason = columns.get("error") or columns.get("reasoning") or ""
    reasons = shorten_to_line(str(reason), _MAX_REASON_CHARS)
    plain_line = fit_text(f"{head}  ", escape_name(reasons)).rstrip()
    # Add the colour last, because its codes would count as width.
    return _colour_word(word) + plain_line.removeprefix(word.upper())


def _colour_word(word: str) -> str:
    """Format a verdict in capitals and colour."""
    return typer.style(word.upper(), fg=COLOURS.get(word), bold=True)


def _render_worst_rows(results: RowResults) -> list[str]:
    """Render up to the requested number of rows that are rejected or to be improved, worst first."""
    row_lines = []
    for row in results.summary.worst[: results.worst_row_count]:
        # Compute the padding without the invisible colour codes.
        padding = " " * (_WORD_WIDTH - len(row.verdict))
        head = f"{_colour_word(row.verdict)}{padding}  {escape_name(row.id)}"
        if row.average is not None:
            head += f"  mean {row.average:g}"
        for name, score in row.scores.items():
            head += f"  {escape_name(name)} {score:g}"
        row_lines.append(head)
        if row.reasoning:
            row_lines.append(f"    {escape_name(row.reasoning)}")

    return row_lines or ["no row is rejected or to be improved"]


def render_comparison(comparison: Comparison) -> str:
    return "\n".join(_render_comparison_lines(comparison))


def _render_comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield lines with the winner, the texts from best to worst, and the reasons."""
    names = {subject.letter: escape_name(subject.path) for subject in comparison.subjects}
    head = typer.style(comparison.verdict.ljust(_WORD_WIDTH), bold=True)
    winner = names.get(comparison.verdict)
    yield head if winner is None else f"{head}  {winner}"

    for subject in sorted(comparison.subjects, key=_rank_by_score):
        yield f"    {_render_subject(subject, names[subject.letter])}"
    yield f"    {_describe_judging(comparison)}"
    if comparison.independent is False:
        yield f"    {_describe_comparison_partiality(comparison)}"
    if comparison.degraded:
        yield f"    degraded: {comparison.degraded}"
    for line in split_lines(comparison.reasoning):
        yield f"    {line}"


def _rank_by_score(subject: Contestant) -> tuple[bool, float]:
    """Return a key that sorts the highest score first, and texts without a score last."""
    has_no_score = subject.score is None
    return has_no_score, -(subject.score or 0.0)


def _render_subject(subject: Contestant, name: str) -> str:
    """Render a text's letter and name, and its author's model family and its score if known."""
    line = f"{subject.letter}  {name}"
    if subject.family is not None:
        line += f"  by {subject.family}"
    if subject.score is not None:
        # The tier is the last one that scored this text.
        line += f"  {subject.score:g} up to {subject.tier}"
    return line


def _describe_judging(comparison: Comparison) -> str:
    """Describe the rubric, mode, rounds, decision, time and cost of a comparison in one line."""
    cost_fields = {"cost_usd", "cost_source", "cost_complete", "rounds"}
    cost = describe_cost(comparison.model_dump(include=cost_fields))
    rounds = format_count(len(comparison.rounds), "round", "rounds")
    ref = f"{comparison.rubric.id}@{comparison.rubric.version}"
    rubric = format_rubric_name(ref, comparison.rubric.source)
    decision = _describe_decision(comparison)
    seconds = f"{comparison.duration_ms / 1000:.1f} s"
    return f"{rubric}, {comparison.mode}; {rounds}; {decision}, {seconds}{cost}"


def _describe_decision(comparison: Comparison) -> str:
    """Describe how a comparison was decided: the tier, its agreement, and the winner's lead."""
    # Texts that are the same are a tie, so no model needs to be asked.
    if comparison.decided and not comparison.rounds:
        return "no model was asked"
    if not comparison.judge_tier:
        return "undecided"
    details: list[str] = [comparison.consensus]
    lead = _describe_lead(comparison)
    if lead:
        details.append(lead)
    return f"decided by {comparison.judge_tier} ({', '.join(details)})"


def _describe_lead(comparison: Comparison) -> str:
    """Describe the winner's lead in scores or votes; "" if it isn't known."""
    if comparison.lead is None:
        return ""

    is_tie = comparison.verdict == "tie"
    has_scores = any(subject.score is not None for subject in comparison.subjects)
    if has_scores and is_tie:
        return f"the best two {comparison.lead:g} apart"
    if has_scores:
        return f"ahead by {comparison.lead:g}"
    if is_tie:  # no text is ahead in votes
        return ""
    return f"{comparison.lead:.0%} ahead in votes"


def _describe_comparison_partiality(comparison: Comparison) -> str:
    """Return a warning about the texts written by the judges' own model families."""
    from judgekit.judging.documents import parse_families

    letters = []
    for subject in comparison.subjects:
        author_families = parse_families(subject.family)
        is_by_judges = any(family in comparison.families for family in author_families)
        if is_by_judges:
            letters.append(subject.letter)

    judges = f"models of {' and '.join(comparison.families)}"
    warning = f"not independent: judged only by {judges}, which wrote {' and '.join(letters)}"
    if len(letters) < len(comparison.subjects):
        warning += "; models favour texts of their own family"
    return warning


def render_verdict(verdict: Record, *, headed: bool = True, degraded: bool = True) -> str:
    """Render a verdict record for people.

    If `headed`, start with its word and name. If `degraded`, include the reason for an undetermined or less
    certain verdict.
    """
    scores = _render_scores(verdict, headed=headed)
    text_lines = [scores] if scores else []
    text_lines.append(_render_judges(verdict))
    if verdict.get("independent") is False:
        text_lines.append(_describe_partiality(verdict))
    if verdict["degraded"] and degraded:
        text_lines.append(f"degraded: {verdict['degraded']}")
    text_lines += _render_reasons(verdict)
    text_lines += _render_findings_and_reviews(verdict)

    first_line, *other_lines = text_lines
    indented = [_indent(line) for line in other_lines]
    return "\n".join([first_line, *indented])


def _render_reasons(verdict: Record) -> list[str]:
    """Render the reasoning, and name the scores that nothing explains.

    If a decision model judged, there's no reasoning, so render its probabilities.
    """
    if verdict["reasoning"]:
        text_lines = [verdict["reasoning"]]
        unexplained = _find_unexplained_scores(verdict)
        if unexplained:
            text_lines.append(f"no reason given for {', '.join(unexplained)}")
        return text_lines

    if not is_wordless(verdict):
        return []
    probability_bars = _draw_probability_bars(verdict)
    if verdict["findings"]:  # these are the reasons
        return probability_bars
    return ["reasons: none (decided by probabilities)", *probability_bars]


def _draw_probability_bars(verdict: Record) -> list[str]:
    """Draw a decision model's probabilities: a line for each dimension, with a bar for each level.

    Draws nothing if the output isn't a terminal.
    """
    if not sys.stdout.isatty():
        return []

    last_opinion = _find_last_opinion(verdict)
    dimension_lines = []
    for name, shares in last_opinion["probabilities"].items():
        if name not in verdict["scores"]:
            continue  # it's one of the text's many claims; the findings explain those
        bars = _draw_bars(shares.values())
        likeliest = max(shares, key=shares.__getitem__)
        dimension_lines.append(f"{escape_name(name)}  {bars}  {likeliest}: {shares[likeliest]:.0%}")
    return dimension_lines


def _find_last_opinion(verdict: Record) -> Record:
    """Return the last opinion of the tier that decided."""
    opinions = []
    for round_ in verdict["rounds"]:
        has_answered = bool(round_["opinion"])
        if round_["tier"] == verdict["judge_tier"] and has_answered:
            opinions.append(round_["opinion"])
    last_opinion: Record = opinions[-1]
    return last_opinion


def _draw_bars(shares: Iterable[float]) -> str:
    """Draw a bar for each probability, such as `▁▂█`; a higher bar is more likely."""
    highest = len(_BARS) - 1
    bars = ""
    for share in shares:
        height = round(share * highest)
        bars += _BARS[height]
    return bars


def _render_scores(verdict: Record, *, headed: bool) -> str:
    """Render a verdict's mean and scores, and if `headed`, before them its word and name."""
    scores = ""
    if verdict["average"] is not None:
        scores = f"  mean {verdict['average']:g}"
    for name, value in (verdict["scores"] or {}).items():
        scores += f"  {name} {value:g}"
    if not headed:
        return scores.strip()
    text = verdict["verdict"].upper().ljust(_WORD_WIDTH)
    word = typer.style(text, fg=COLOURS[verdict["verdict"]], bold=True)
    return f"{word}  {escape_name(task_name(verdict['task_id']))}{scores}"


def _render_judges(verdict: Record) -> str:
    """Describe how a verdict came about: rubric, tiers' outcomes, deciding model, time, cost and depth."""
    ref = f"{verdict['rubric']['id']}@{verdict['rubric']['version']}"
    line_parts = [f"{format_rubric_name(ref, verdict['rubric'].get('source'))}, {verdict['mode']}"]
    if verdict["rounds"]:
        line_parts.append(
            ", ".join(_describe_round(verdict, round_) for round_ in verdict["rounds"])
        )
        decision = "undecided"
        if verdict["model"]:
            decision = f"decided by {verdict['model']} ({verdict['consensus']})"
        seconds = f"{verdict['duration_ms'] / 1000:.1f} s"
        line_parts.append(f"{decision}, {seconds}{describe_cost(verdict)}")

    depth = verdict.get("depth")
    if depth:  # how deep the text was judged, and which rule said so
        line_parts.append(f"depth {depth['depth']} ({escape_name(depth['rule'])})")
    return "; ".join(line_parts)


def _describe_round(verdict: Record, round_: Record) -> str:
    """Format a round's tier with its outcome or kind of failure."""
    tier = round_["tier"]
    if tier == "tiebreaker" and verdict.get("review"):
        tier = "after review"
    outcome = None
    if round_["opinion"]:
        outcome = round_["opinion"]["outcome"]
    elif round_["failure"]:
        outcome = round_["failure"]["kind"]
    return f"{tier} {outcome}"


def _find_unexplained_scores(verdict: Record) -> list[str]:
    """List the scores that neither the reasoning nor a finding explains."""
    explained: set[str] = set()
    for round_ in verdict["rounds"]:
        opinion = round_["opinion"]
        if opinion and round_["tier"] == verdict["judge_tier"]:
            explained.update(opinion.get("dimensions", ()))
    if not explained:  # older records don't contain the explained dimensions
        return []

    for finding in verdict["findings"]:
        explained.add(finding["dimension"])
    scores = verdict["scores"] or {}
    return [name for name in scores if name not in explained]


def _render_findings_and_reviews(verdict: Record) -> list[str]:
    """Render a peer review's counts, and each finding with its quote, suggestion and reviewers."""
    reviews = {}  # by the finding they're about
    for review in verdict.get("review", ()):
        reviews[review["issue"], review["quote"]] = review

    text_lines = []
    if reviews:
        counts = Counter(map(_describe_review, reviews.values()))
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        text_lines.append(f"reviewed by peers: {outcomes}")

    for finding in verdict["findings"]:
        text_lines += render_finding(finding)
        review_of_finding = reviews.get((finding["issue"], finding["quote"]))
        if review_of_finding:
            text_lines.append(f"  {_describe_reviewers(review_of_finding)}")
        dismissed = finding.get("dismissed")
        if dismissed:
            text_lines.append(
                f"  dismissed by {dismissed['who']} on {dismissed['at'][:10]}: no problem"
            )

    return text_lines


def _indent(text: str) -> str:
    """Indent a text, and its further lines more, so that a model's can't be mistaken for ours."""
    deeper = "\n        "
    return f"    {deeper.join(split_lines(text))}"


def _describe_review(finding: Record) -> str:
    """Summarise a finding's peer review in one or two words."""
    if finding["held"]:
        return "held"
    return _describe_missing_confirmation(finding)


def _describe_reviewers(finding: Record) -> str:
    """Describe which models found and confirmed a finding, or why none confirmed it."""
    found = f"found by {', '.join(finding['raised_by'])}"
    # A finding holds if another model family confirmed it with a quote.
    if finding["held"] and finding["confirmed_by"]:
        return f"{found}; confirmed by {', '.join(finding['confirmed_by'])}"
    return f"{found}; {_describe_missing_confirmation(finding)}"


def _describe_missing_confirmation(finding: Record) -> str:
    """Describe why no other model confirmed a finding."""
    if finding["dropped"]:
        return "dropped"
    return "not confirmed" if finding["checked"] else "not checked"


def _describe_partiality(verdict: Record) -> str:
    family = verdict["author"]["family"]
    return f"not independent: judged by models of the author's family ({family})"


def describe_cost(verdict: Record) -> str:
    """Describe a verdict's cost and its source, such as `, $0.0123`, to be appended to a line.

    Returns "" if no cost was recorded.
    """
    cost = verdict["cost_usd"]
    source = verdict.get("cost_source")
    is_incomplete = verdict.get("cost_complete") is False  # the cost of some calls is unknown
    if is_incomplete and cost:
        return f", at least ${cost:.4f}{describe_cost_source(source)}"
    if is_incomplete:
        # None: no call's cost is known. 0: the calls whose cost is known were free.
        known_sum = "unknown" if cost is None else "at least 0"
        return f", cost {known_sum} ({_explain_unknown_cost(verdict)})"
    if source == "local":
        return ", cost 0 (local)"
    if cost is None:
        return ""
    return f", ${cost:.4f}{describe_cost_source(source)}"


def _explain_unknown_cost(verdict: Record) -> str:
    """Name the models without a price, or explain that a failed call makes the cost unknown."""
    models: dict[str, None] = {}
    for round_ in verdict["rounds"]:
        usage = round_.get("usage") or {}
        has_unpriced_calls = bool(usage.get("unpriced_calls"))
        if has_unpriced_calls and round_["opinion"]:  # a round without an opinion has failed
            models[round_["model"]] = None
    if models:
        return f"no price for {', '.join(models)}"
    return "a call that failed may have been charged"


def describe_cost_source(source: str | None) -> str:
    """Describe a cost's source in brackets; "" if it isn't known."""
    return _COST_SOURCES.get(source or "", "")

"""Reads the findings of a reply, and assigns each to a dimension."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from judgekit.judging.verdict import Finding
from judgekit.retrieval.terms import fold, split_alphanumeric, stem_english
from judgekit.text import remove_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.rubric.schema import ScoreRubric

MAX_FINDINGS = 50  # in one reply


def read_findings(part: str, replied: Sequence[Mapping[str, str]]) -> tuple[Finding, ...]:
    """Read up to `MAX_FINDINGS` findings from a reply, skipping empty ones.

    `part` is the dimension that the question was about, to which all findings are assigned. It's "" if the
    question was about all dimensions.
    """
    findings = []
    for replied_finding in replied:
        finding = _read_finding(part, replied_finding)
        if finding is not None:
            findings.append(finding)
    return tuple(findings[:MAX_FINDINGS])


def _read_finding(part: str, replied_finding: Mapping[str, str]) -> Finding | None:
    """Read a finding, or return None if it has neither an issue nor a suggestion.

    `part` is the only dimension that the model was asked about, or "".
    """
    # Findings are shown in terminals and stored as JSON, so remove escapes and lone surrogates.
    fields = {name: remove_invisible(text) for name, text in replied_finding.items()}
    fields["issue"] = fields["issue"] or fields["suggestion"]
    if not fields["issue"]:
        return None
    fields["dimension"] = part or fields["dimension"]
    return Finding(**fields)


def place_findings(findings: Iterable[Finding], rubric: ScoreRubric) -> tuple[Finding, ...]:
    """Assign each finding to the dimension it names. Failing that, use the one it mentions most often."""
    placed_findings = []
    for finding in findings:
        dimension = (
            _find_named_dimension(finding, rubric)
            or _find_most_mentioned(finding, rubric)
            or finding.dimension
        )
        placed_findings.append(finding.model_copy(update={"dimension": dimension}))
    return tuple(placed_findings)


def _find_named_dimension(finding: Finding, rubric: ScoreRubric) -> str | None:
    """Find the first dimension with the same word stems as the finding's, or return None."""
    stems = _stem_words(finding.dimension)
    for name in rubric.dimensions:
        if _stem_words(name) == stems:
            return name
    return None


def _find_most_mentioned(finding: Finding, rubric: ScoreRubric) -> str | None:
    """Return the dimension that a finding mentions more than any other, or None."""
    # The finding's quote doesn't count, because it comes from the judged text.
    counts = mentions(f"{finding.dimension}. {finding.issue}. {finding.suggestion}", rubric)
    most_mentions = max(counts.values(), default=0)
    leading_names = [name for name, count in counts.items() if count == most_mentions]
    if len(leading_names) == 1:
        return leading_names[0]
    return None


def mentions(text: str, rubric: ScoreRubric) -> dict[str, int]:
    """Count how many of each dimension's terms a text contains. Dimensions without any are omitted."""
    text_stems = _stem_words(text)
    counts: dict[str, int] = {}
    for name, dimension in rubric.dimensions.items():
        stemmed_terms = {_stem_words(term) for term in (name, *dimension.terms)}
        term_lengths = {len(stems) for stems in stemmed_terms}  # in words
        mentioned_terms = stemmed_terms & _list_phrases(text_stems, term_lengths)
        if mentioned_terms:
            counts[name] = len(mentioned_terms)
    return counts


def _list_phrases(words: tuple[str, ...], lengths: Iterable[int]) -> set[tuple[str, ...]]:
    """List all phrases in a text that have one of these numbers of words."""
    phrases: set[tuple[str, ...]] = set()
    for length in lengths:
        starts = range(len(words) - length + 1)
        phrases.update(words[start : start + length] for start in starts)
    return phrases


@lru_cache(maxsize=1024)
def _stem_words(text: str) -> tuple[str, ...]:
    return tuple(_stem(word) for word in split_alphanumeric(fold(text)))


_stem = lru_cache(maxsize=20_000)(stem_english)  # judges and rubrics keep using the same words

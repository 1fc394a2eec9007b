"""Reads the findings of a reply, and assigns each to a dimension."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from judgekit.judging.verdict import Finding
from judgekit.retrieval.terms import fold, stem, words
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.rubric.schema import ScoreRubric

MAX_FINDINGS = 50  # in one reply


def read_findings(part: str, replied: Sequence[Mapping[str, str]]) -> tuple[Finding, ...]:
    """Read up to `MAX_FINDINGS` findings from a reply.

    Findings without an issue or a suggestion are left out.

    If only one dimension was asked about, `part` is its name, and all findings get it. Otherwise `part` is
    "".
    """
    findings = []
    for replied_finding in replied:
        # These words reach terminals and JSON, so no escapes and no lone surrogates.
        fields = {name: visible(text) for name, text in replied_finding.items()}
        fields["issue"] = fields["issue"] or fields["suggestion"]
        fields["dimension"] = part or fields["dimension"]
        if fields["issue"]:
            findings.append(Finding(**fields))
    return tuple(findings[:MAX_FINDINGS])


def place_findings(findings: Iterable[Finding], rubric: ScoreRubric) -> tuple[Finding, ...]:
    """Give each finding a dimension of the rubric: the one it names, or else the one it mentions most.

    If there's no such dimension, the finding's own stays unchanged.
    """
    # If two names have the same stems, the first wins, so it's written last.
    names_by_stems = {_stem_words(name): name for name in reversed(rubric.dimensions)}
    placed_findings = []
    for finding in findings:
        name = names_by_stems.get(_stem_words(finding.dimension), finding.dimension)
        if name not in rubric.dimensions:
            name = _find_most_mentioned(finding, rubric) or name
        placed_findings.append(finding.model_copy(update={"dimension": name}))
    return tuple(placed_findings)


def _find_most_mentioned(finding: Finding, rubric: ScoreRubric) -> str | None:
    """Find the dimension that a finding mentions more than any other; None if there's no such dimension.

    Words in the finding's quote don't count.
    """
    counts = mentions(f"{finding.dimension}. {finding.issue}. {finding.suggestion}", rubric)
    most_mentions = max(counts.values(), default=0)
    names_of_best = [name for name, count in counts.items() if count == most_mentions]
    if len(names_of_best) == 1:
        return names_of_best[0]
    return None


def mentions(text: str, rubric: ScoreRubric) -> dict[str, int]:
    """Count how many different terms of each dimension a text has. Dimensions without any are left out."""
    stems = _stem_words(text)
    counts: dict[str, int] = {}
    for name, dimension in rubric.dimensions.items():
        terms = {_stem_words(term) for term in (name, *dimension.terms)}
        phrases: set[tuple[str, ...]] = set()  # in the text, as long as a term
        for length in {len(term) for term in terms}:
            starts = range(len(stems) - length + 1)
            phrases |= {stems[start : start + length] for start in starts}
        count = len(terms & phrases)
        if count:
            counts[name] = count
    return counts


@lru_cache(maxsize=1024)
def _stem_words(text: str) -> tuple[str, ...]:
    return tuple(_stem(word) for word in words(fold(text)))


_stem = lru_cache(maxsize=20_000)(stem)  # judges and rubrics keep using the same words

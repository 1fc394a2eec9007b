"""Which dimensions of a rubric a judge's words speak of, by the rubric's `terms`.

A dimension is spoken of where its name or one of its terms stands in a text: as whole words, whatever their
case, accents and endings (the stems of search), a term of several words as these words in a row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from judgekit.retrieval.stemmer import fold, stem, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.rubric import ScoreRubric
    from judgekit.verdict import Finding


def dimensions_in(text: str, rubric: ScoreRubric) -> tuple[str, ...]:
    """Return the dimensions that a text speaks of, in the rubric's order."""
    return tuple(_counted(text, rubric))


def placed(findings: Iterable[Finding], rubric: ScoreRubric) -> tuple[Finding, ...]:
    """Return findings, each with a dimension of the rubric where its words leave no doubt which one it is.

    One that names a dimension, in whatever spelling, keeps it. The others get the one of which they mention
    the most terms; where there is none, or a tie, a finding stays as it is. Quotes are not looked at: they
    are words of the subject, not of the judge.
    """
    return tuple(each.model_copy(update={"dimension": _dimension(each, rubric)}) for each in findings)


def _dimension(finding: Finding, rubric: ScoreRubric) -> str:
    named = _stems(finding.dimension)
    for name in rubric.dimensions:
        if named and named == _stems(name):
            return name
    counts = _counted(f"{finding.dimension}. {finding.issue}. {finding.suggestion}", rubric)
    most = max(counts.values(), default=0)
    best = [name for name, count in counts.items() if count == most]
    return best[0] if len(best) == 1 else finding.dimension


def _counted(text: str, rubric: ScoreRubric) -> Mapping[str, int]:
    """Return how many different terms of each dimension stand in a text, where there are any."""
    stems = _stems(text)
    terms = {name: _terms(name, *dimension.terms) for name, dimension in rubric.dimensions.items()}
    sizes = {len(term) for several in terms.values() for term in several}
    rows = {row for size in sizes for row in zip(*(stems[at:] for at in range(size)), strict=False)}
    found = {name: len(several & rows) for name, several in terms.items()}
    return {name: count for name, count in found.items() if count}


@lru_cache(maxsize=1024)
def _terms(*terms: str) -> frozenset[tuple[str, ...]]:
    """Return the stems of each term."""
    return frozenset(tuple(_stems(each)) for each in terms)


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in words(fold(text))]


_stem = lru_cache(maxsize=20_000)(stem)  # the words of rubrics and of judges come again and again

"""Looks a rubric and its cases over without asking a model: what is wrong, and what is worth a thought."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, NamedTuple

from judgekit.rubric.loader import cases_path
from judgekit.rubric.schema import (
    CompareCase,
    CompareRubric,
    ScoreCase,
    ScoreRubric,
    SelectCase,
    SelectRubric,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from judgekit.config import ModeName
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Case

FEW = 10  # cases, below which a share of agreement says next to nothing
LEAST_SHARE = 0.2  # of the cases should be on either side of acceptance
MODES: tuple[ModeName, ...] = ("strict", "lenient")
_MOST_COMBINATIONS = 100_000  # of scores that are gone through


class Remark(NamedTuple):
    """Something about a rubric: where, what, and whether it is `wrong` or only worth a thought."""

    path: Path
    key: str
    text: str
    wrong: bool = False
    line: int | None = None

    def __str__(self) -> str:
        """Return it in one line, as errors of data files are written."""
        where = f"{self.path}:{self.line}" if self.line is not None else str(self.path)
        return ": ".join(part for part in (where, self.key, self.text) if part)


def remarks(loaded: LoadedRubric, cases: Sequence[Case]) -> list[Remark]:
    """Return what is to be said about a rubric that was read, and about its cases; what is wrong first."""
    found = [*_modes(loaded), *_cases(loaded, cases)]
    if isinstance(loaded.rubric, ScoreRubric):
        found += [*_dimensions(loaded, loaded.rubric), *_scored(loaded, loaded.rubric, cases)]
    if isinstance(loaded.rubric, CompareRubric):
        found += _compared(loaded, cases)
    return sorted(found, key=lambda each: not each.wrong)


def outcomes(rubric: ScoreRubric) -> set[tuple[str, str]] | None:
    """Return which strict and lenient outcomes one set of whole scores can have; None if too many to try."""
    points = range(rubric.scale.min, rubric.scale.max + 1)
    if len(points) ** len(rubric.dimensions) > _MOST_COMBINATIONS:
        return None
    # Which dimension has which score decides nothing: sorted ones suffice.
    every = combinations_with_replacement(points, len(rubric.dimensions))
    named = [dict(zip(rubric.dimensions, scores, strict=True)) for scores in every]
    return {(rubric.decide(scores, "strict"), rubric.decide(scores, "lenient")) for scores in named}


def _modes(loaded: LoadedRubric) -> Iterator[Remark]:
    rubric, path = loaded.rubric, loaded.path
    strict, lenient = rubric.modes.strict, rubric.modes.lenient
    if strict.confirm == "reject" and lenient.confirm == "accept":
        yield Remark(
            path, "modes", "strict confirms rejections and lenient confirms acceptances; is that reversed?"
        )
    if isinstance(rubric, SelectRubric):
        is_worded = any(criterion.strict != criterion.lenient for criterion in rubric.criteria.values())
        if not is_worded and rubric.modes.strict.keep == rubric.modes.lenient.keep:
            yield Remark(path, "modes", "strict and lenient are the same; make them differ")
    elif isinstance(rubric, ScoreRubric):
        reached = outcomes(rubric) or set()
        odd = [pair for pair in reached if pair[0] == "accept" and pair[1] != "accept"]
        if odd:
            text = f"some scores are {odd[0][1]} in lenient and accept in strict"
            yield Remark(path, "modes", f"{text}; lenient should accept whatever strict accepts")
        if reached and all(one == other for one, other in reached):
            yield Remark(path, "modes", "strict and lenient decide the same; make them differ")
    elif strict.confirm == lenient.confirm:
        yield Remark(path, "modes", "strict and lenient confirm the same outcomes; make them differ")


def _dimensions(loaded: LoadedRubric, rubric: ScoreRubric) -> Iterator[Remark]:
    tags = Counter(term.lower() for dimension in rubric.dimensions.values() for term in set(dimension.terms))
    for name, dimension in rubric.dimensions.items():
        key = f"dimensions.{name}"
        if not dimension.look_for:
            yield Remark(loaded.path, key, "no look_for; models invent their own criteria")
        if not dimension.terms:
            yield Remark(loaded.path, key, "no terms; findings cannot be assigned to this dimension")
        shared = sorted(term for term in dimension.terms if tags[term.lower()] > 1)
        if shared:
            yield Remark(loaded.path, f"{key}.terms", f"other dimensions have {', '.join(shared)} too")


def _cases(loaded: LoadedRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    path = cases_path(loaded.path)
    if not cases:
        yield Remark(path, "", "no labelled cases; add some to show what the rubric does")
    elif len(cases) < FEW:
        yield Remark(path, "", f"{len(cases)} cases: agreement is not meaningful below {FEW}")
    seen: dict[str, int] = {}
    for number, case in enumerate(cases, 1):
        if case.id in seen:
            text = f"line {seen[case.id]} has the id {case.id!r} already; give each case its own"
            yield Remark(path, "id", text, wrong=True, line=number)
        seen.setdefault(case.id, number)
        if (
            isinstance(case, CompareCase)
            and case.a == case.b
            and (case.label.strict, case.label.lenient) != ("tie", "tie")
        ):
            text = f"{case.id}: a and b are the same text, which is always a tie; change one"
            yield Remark(path, "label", text, wrong=True, line=number)
        if isinstance(case, SelectCase) and set(case.label.strict) - set(case.label.lenient):
            text = f"{case.id}: strict keeps what lenient drops; is that intended?"
            yield Remark(path, "label", text, line=number)


def _compared(loaded: LoadedRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    for mode in MODES:
        labels = [getattr(case.label, mode) for case in cases if isinstance(case, CompareCase)]
        wins, for_a = len(labels) - labels.count("tie"), labels.count("A")
        if len(labels) >= FEW and not (wins and LEAST_SHARE <= for_a / wins <= 1 - LEAST_SHARE):
            text = f"in {mode} {for_a} labels are A and {labels.count('B')} are B"
            yield Remark(cases_path(loaded.path), "label", f"{text}: swap some of the texts")


def _scored(loaded: LoadedRubric, rubric: ScoreRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    path, reached = cases_path(loaded.path), outcomes(rubric)
    scored = [case for case in cases if isinstance(case, ScoreCase)]
    for number, case in enumerate(scored, 1):
        labels = (case.label.strict, case.label.lenient)
        if reached is not None and labels not in reached:
            text = (
                f"{case.id}: no scores give {labels[0]} in strict and {labels[1]} in lenient; change one "
                "label"
            )
            yield Remark(path, "label", text, wrong=True, line=number)
        given = {
            "description": case.description.strip(),
            "acceptance": case.acceptance.strip(),
            "sources": case.files,
        }
        for need in (need for need in rubric.given.needs if not given[need]):
            text = f"{case.id}: {rubric.ref} needs {need}, and the case has none; add them"
            yield Remark(path, "files" if need == "sources" else need, text, wrong=True, line=number)
    if len(scored) < FEW:
        return
    for mode in MODES:
        accepted = sum(getattr(case.label, mode) == "accept" for case in scored)
        if not LEAST_SHARE <= accepted / len(scored) <= 1 - LEAST_SHARE:
            text = f"{accepted} of {len(scored)} should be accepted in {mode}"
            yield Remark(path, "label", f"{text}: a judge that always gives the same verdict would look good")
    if all(case.label.strict == case.label.lenient for case in scored):
        yield Remark(path, "label", "strict and lenient agree on every case; add a case where they differ")

"""Checks a rubric and its cases without asking a model: what's wrong, odd, or changed."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import MODES
from judgekit.errors import ConfigError
from judgekit.rubric.loader import LoadedRubric, beside
from judgekit.rubric.schema import (
    CompareCase,
    ScoreCase,
    ScoreRubric,
    SelectCase,
    SelectRubric,
    WrongCase,
)
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from judgekit.rubric.schema import Case, Rubric

FEW = 10  # cases; with fewer, a share of agreement means next to nothing
LEAST_SHARE = 0.2  # of the cases should be on either side of acceptance

_MOST_COMBINATIONS = 100_000  # of scores that are gone through


class Remark(NamedTuple):
    """A remark on a rubric: where, what, and whether it's `wrong` or only worth a thought."""

    path: Path
    key: str
    text: str
    wrong: bool = False
    line: int | None = None

    def __str__(self) -> str:
        return str(ConfigError(self.text, path=self.path, line=self.line, key=self.key))


def remarks(
    loaded: LoadedRubric, cases: Sequence[Case], wrong: Sequence[WrongCase] = ()
) -> list[Remark]:
    """Collect the remarks on a loaded rubric and its cases, errors first."""
    remarks = [*_check_modes(loaded), *_check_cases(loaded, cases)]
    remarks += _check_lines(beside(loaded.path, "cases"), loaded.rubric, cases)
    remarks += _check_lines(beside(loaded.path, "leniency"), loaded.rubric, wrong)
    if isinstance(loaded.rubric, ScoreRubric):
        remarks += _check_dimensions(loaded.path, loaded.rubric)
    return sorted(remarks, key=lambda remark: not remark.wrong)


def outcomes(rubric: ScoreRubric) -> set[tuple[str, str]] | None:
    """Find all (strict, lenient) outcomes that whole scores can have; None if there are too many to try."""
    points = []
    for dimension in rubric.dimensions.values():
        if dimension.scale:
            points.append([*rubric.scale.answers.values()])
        else:
            points.append([*rubric.scale.labels])
    if prod(map(len, points)) > _MOST_COMBINATIONS:
        return None
    outcomes = set[tuple[str, str]]()
    for values in product(*points):
        scores = dict(zip(rubric.dimensions, values, strict=True))
        outcomes.add((rubric.decide(scores, "strict"), rubric.decide(scores, "lenient")))
    return outcomes


def _check_modes(loaded: LoadedRubric) -> Iterator[Remark]:
    rubric = loaded.rubric
    lenient = rubric.modes.lenient
    strict = rubric.modes.strict
    texts = []
    if strict.confirm == "reject" and lenient.confirm == "accept":
        texts.append(
            "strict confirms rejections and lenient confirms acceptances; is that reversed?"
        )
    if isinstance(rubric, SelectRubric):
        criteria = rubric.criteria.values()
        is_worded = any(criterion.strict != criterion.lenient for criterion in criteria)
        if not is_worded and rubric.modes.strict.keep == rubric.modes.lenient.keep:
            texts.append("strict and lenient are the same; make them differ")
    elif isinstance(rubric, ScoreRubric):
        reached = outcomes(rubric) or set()
        odd = [other for one, other in reached if one == "accept" and other != "accept"]
        if odd:
            text = f"some scores are {odd[0]} in lenient and accept in strict"
            texts.append(f"{text}; lenient should accept whatever strict accepts")
        if reached and all(one == other for one, other in reached):
            texts.append("strict and lenient decide the same; make them differ")
    elif strict.confirm == lenient.confirm:
        texts.append("strict and lenient confirm the same outcomes; make them differ")
    return (Remark(loaded.path, "modes", text) for text in texts)


def _check_dimensions(path: Path, rubric: ScoreRubric) -> Iterator[Remark]:
    tags = Counter[str]()
    for dimension in rubric.dimensions.values():
        tags.update(map(str.lower, set(dimension.terms)))
    for name, dimension in rubric.dimensions.items():
        key = f"dimensions.{name}"
        if not dimension.look_for:
            yield Remark(path, key, "no look_for; models invent their own criteria")
        if not dimension.terms:
            yield Remark(path, key, "no terms; findings cannot be assigned to this dimension")
        if shared := sorted(term for term in dimension.terms if tags[term.lower()] > 1):
            yield Remark(path, f"{key}.terms", f"other dimensions have {', '.join(shared)} too")


def _check_cases(loaded: LoadedRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    path = beside(loaded.path, "cases")
    rubric = loaded.rubric
    if not cases:
        yield Remark(path, "", "no labelled cases; add some to show what the rubric does")
    elif len(cases) < FEW:
        count = counted(len(cases), "case", "cases")
        yield Remark(path, "", f"{count}: agreement is not meaningful below {FEW}")
    reached = outcomes(rubric) if isinstance(rubric, ScoreRubric) else None
    for number, case in enumerate(cases, 1):
        label = case.label
        is_tie = label.strict == label.lenient == "tie"
        if isinstance(case, CompareCase) and case.a == case.b and not is_tie:
            text = f"{case.id}: a and b are the same text, which is always a tie; change one"
            yield Remark(path, "label", text, wrong=True, line=number)
        if isinstance(case, SelectCase) and set(case.label.strict) - set(case.label.lenient):
            text = f"{case.id}: strict keeps what lenient drops; is that intended?"
            yield Remark(path, "label", text, line=number)
        if reached is not None and (label.strict, label.lenient) not in reached:
            both = f"{label.strict} in strict and {label.lenient} in lenient"
            text = f"{case.id}: no scores give {both}; change one label"
            yield Remark(path, "label", text, wrong=True, line=number)
    if len(cases) < FEW:
        return
    for mode in MODES:
        labels = [getattr(case.label, mode) for case in cases]
        for_a = labels.count("A")
        for_b = labels.count("B")
        accepted = labels.count("accept")
        wins = for_a + for_b
        is_even = wins and LEAST_SHARE <= for_a / wins <= 1 - LEAST_SHARE
        if rubric.task == "compare" and not is_even:
            text = f"in {mode} {for_a} labels are A and {for_b} are B"
            yield Remark(path, "label", f"{text}: swap some of the texts")
        if rubric.task == "score" and not LEAST_SHARE <= accepted / len(labels) <= 1 - LEAST_SHARE:
            text = f"{accepted} of {len(labels)} should be accepted in {mode}"
            yield Remark(
                path, "label", f"{text}: a judge that always gives the same verdict would look good"
            )
    if rubric.task == "score" and all(case.label.strict == case.label.lenient for case in cases):
        yield Remark(
            path, "label", "strict and lenient agree on every case; add a case where they differ"
        )


def _check_lines(path: Path, rubric: Rubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Yield remarks on ids that occur twice, and on things the rubric needs and a case lacks."""
    seen: dict[str, int] = {}
    for number, case in enumerate(cases, 1):
        first = seen.setdefault(case.id, number)
        if first != number:
            text = f"line {first} has the id {case.id!r} already; give each case its own"
            yield Remark(path, "id", text, wrong=True, line=number)
        if not (isinstance(rubric, ScoreRubric) and isinstance(case, ScoreCase)):
            continue
        for need in rubric.given.needs:
            key = "files" if need == "sources" else need
            value = case.files if need == "sources" else getattr(case, need).strip()
            if not value:
                text = f"{case.id}: {rubric.ref} needs {need}, and the case has none; add them"
                yield Remark(path, key, text, wrong=True, line=number)


def changes(before: Rubric, after: Rubric) -> list[str]:
    """Return a line for every key in which two rubrics differ, in the order of the file."""
    return list(_list_changes("", before.model_dump(), after.model_dump()))


def _list_changes(key: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401 - any value of a data file
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{key}.{name}" if key else str(name)
            yield from _list_changes(inner, before.get(name), after.get(name))
    elif before != after and isinstance(before, list) and isinstance(after, list):
        words = [f"without {_short(item)}" for item in before if item not in after]
        words += [f"with {_short(item)}" for item in after if item not in before]
        yield f"{key}: {'; '.join(words) or 'in another order'}"
    elif before != after:
        was = _short(before)
        now = _short(after)
        if before is None:
            yield f"{key}: new, {now}"
        elif after is None:
            yield f"{key}: removed, was {was}"
        else:
            yield f"{key}: {was} -> {now}"


def _short(value: object) -> str:
    """Return a value in words, but uncut: a rubric consists of its texts."""
    if isinstance(value, dict):
        parts = []
        for name, part in value.items():
            if part not in (None, [], ""):
                parts.append(f"{name} {_short(part)}")
        return f"({', '.join(parts)})"
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return repr(value)
    return str(value)

"""Checks a rubric and its cases without asking a model: what's wrong, odd, or changed."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import MODES
from judgekit.errors import ConfigError
from judgekit.rubric.loader import LoadedRubric, name_file_of
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
    """A remark on a rubric: its place, its text, and whether it's an error (`wrong`) or only advice."""

    path: Path
    key: str
    text: str
    wrong: bool = False
    line: int | None = None

    def __str__(self) -> str:
        return str(ConfigError(self.text, path=self.path, line=self.line, key=self.key))


def list_remarks(
    loaded: LoadedRubric, cases: Sequence[Case], wrong: Sequence[WrongCase] = ()
) -> list[Remark]:
    """Collect the remarks on a loaded rubric, its cases and its `wrong` texts, errors first."""
    remarks = [*_check_modes(loaded), *_check_cases(loaded, cases)]
    remarks += _check_ids_and_inputs(name_file_of(loaded.path, "cases"), loaded.rubric, cases)
    remarks += _check_ids_and_inputs(name_file_of(loaded.path, "leniency"), loaded.rubric, wrong)
    if isinstance(loaded.rubric, ScoreRubric):
        remarks += _check_dimensions(loaded.path, loaded.rubric)
    return sorted(remarks, key=lambda remark: not remark.wrong)  # `wrong`: an error, not advice


def list_outcomes(rubric: ScoreRubric) -> set[tuple[str, str]] | None:
    """Try every combination of whole scores, and collect the (strict, lenient) outcomes they lead to.

    Returns None if there are too many combinations to try.
    """
    points_by_dimension = []
    for dimension in rubric.dimensions.values():
        is_binary = dimension.scale is not None  # "binary" is the only scale that can be named
        if is_binary:  # only the points of yes and no
            points_by_dimension.append(list(rubric.scale.answers.values()))
        else:
            points_by_dimension.append(list(rubric.scale.labels))
    if prod(map(len, points_by_dimension)) > _MOST_COMBINATIONS:
        return None
    outcomes = set[tuple[str, str]]()
    for values in product(*points_by_dimension):
        scores = dict(zip(rubric.dimensions, values, strict=True))
        outcomes.add((rubric.decide(scores, "strict"), rubric.decide(scores, "lenient")))
    return outcomes


def _check_modes(loaded: LoadedRubric) -> Iterator[Remark]:
    """Check that the two modes differ, and that strict is the stricter one."""
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
        has_own_wording = any(criterion.strict != criterion.lenient for criterion in criteria)
        has_own_rule = rubric.modes.strict.keep != rubric.modes.lenient.keep
        if not has_own_wording and not has_own_rule:
            texts.append("strict and lenient are the same; make them differ")
    elif isinstance(rubric, ScoreRubric):
        texts += _compare_outcomes(rubric)
    elif strict.confirm == lenient.confirm:
        texts.append("strict and lenient confirm the same outcomes; make them differ")
    return (Remark(loaded.path, "modes", text) for text in texts)


def _compare_outcomes(rubric: ScoreRubric) -> Iterator[str]:
    """Yield a text if strict accepts more than lenient, and one if both decide the same."""
    outcome_pairs = list_outcomes(rubric) or set()  # none if there are too many to try
    for strict, lenient in outcome_pairs:
        if strict == "accept" and lenient != "accept":
            text = f"some scores are {lenient} in lenient and accept in strict"
            yield f"{text}; lenient should accept whatever strict accepts"
            break
    if outcome_pairs and all(strict == lenient for strict, lenient in outcome_pairs):
        yield "strict and lenient decide the same; make them differ"


def _check_dimensions(path: Path, rubric: ScoreRubric) -> Iterator[Remark]:
    """Check that each dimension says what to look for, and has terms that no other dimension has."""
    count_by_term = Counter[str]()
    for dimension in rubric.dimensions.values():
        count_by_term.update(map(str.lower, set(dimension.terms)))
    for name, dimension in rubric.dimensions.items():
        key = f"dimensions.{name}"
        if not dimension.look_for:
            yield Remark(path, key, "no look_for; models invent their own criteria")
        if not dimension.terms:
            yield Remark(path, key, "no terms; findings cannot be assigned to this dimension")
        shared = sorted(term for term in dimension.terms if count_by_term[term.lower()] > 1)
        if shared:
            yield Remark(path, f"{key}.terms", f"other dimensions have {', '.join(shared)} too")


def _check_cases(loaded: LoadedRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Check the labels of a rubric's cases: each by itself, then how they're spread over the outcomes."""
    path = name_file_of(loaded.path, "cases")
    rubric = loaded.rubric
    if not cases:
        yield Remark(path, "", "no labelled cases; add some to show what the rubric does")
    elif len(cases) < FEW:
        count = counted(len(cases), "case", "cases")
        yield Remark(path, "", f"{count}: agreement is not meaningful below {FEW}")

    possible_outcomes = None
    if isinstance(rubric, ScoreRubric):
        possible_outcomes = list_outcomes(rubric)
    for number, case in enumerate(cases, 1):
        label = case.label
        if isinstance(case, CompareCase) and case.a == case.b:
            is_labelled_tie = label.strict == label.lenient == "tie"
            if not is_labelled_tie:
                text = f"{case.id}: a and b are the same text, which is always a tie; change one"
                yield Remark(path, "label", text, wrong=True, line=number)
        if isinstance(case, SelectCase):
            only_strict_keeps = set(case.label.strict) - set(case.label.lenient)
            if only_strict_keeps:
                text = f"{case.id}: strict keeps what lenient drops; is that intended?"
                yield Remark(path, "label", text, line=number)
        if possible_outcomes is None:
            continue
        if (label.strict, label.lenient) not in possible_outcomes:
            outcomes = f"{label.strict} in strict and {label.lenient} in lenient"
            text = f"{case.id}: no scores give {outcomes}; change one label"
            yield Remark(path, "label", text, wrong=True, line=number)
    if len(cases) >= FEW:
        yield from _check_balance(path, rubric, cases)


def _check_balance(path: Path, rubric: Rubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Check that labels aren't nearly all the same, since any constant judge would agree with them."""
    for mode in MODES:
        labels = [getattr(case.label, mode) for case in cases]
        if rubric.task == "compare":
            for_a = labels.count("A")
            for_b = labels.count("B")
            wins = for_a + for_b
            if not wins or not _is_balanced(for_a / wins):
                text = f"in {mode} {for_a} labels are A and {for_b} are B"
                yield Remark(path, "label", f"{text}: swap some of the texts")
        if rubric.task == "score":
            accepted = labels.count("accept")
            if not _is_balanced(accepted / len(labels)):
                text = f"{accepted} of {len(labels)} should be accepted in {mode}"
                text += ": a judge that always gives the same verdict would look good"
                yield Remark(path, "label", text)
    if rubric.task == "score" and all(case.label.strict == case.label.lenient for case in cases):
        text = "strict and lenient agree on every case; add a case where they differ"
        yield Remark(path, "label", text)


def _is_balanced(share: float) -> bool:
    return LEAST_SHARE <= share <= 1 - LEAST_SHARE


def _check_ids_and_inputs(path: Path, rubric: Rubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Check that each case, one a line, has an id of its own, and all inputs that the rubric needs."""
    lines_by_id: dict[str, int] = {}
    for line, case in enumerate(cases, 1):
        first_line = lines_by_id.setdefault(case.id, line)
        if first_line != line:
            text = f"line {first_line} has the id {case.id!r} already; give each case its own"
            yield Remark(path, "id", text, wrong=True, line=line)
        if isinstance(rubric, ScoreRubric) and isinstance(case, ScoreCase):
            for need in _list_missing(rubric, case):
                # A case's files are its sources, so no key is called that.
                key = "files" if need == "sources" else need
                text = f"{case.id}: {rubric.ref} needs {need}, and the case has none; add them"
                yield Remark(path, key, text, wrong=True, line=line)


def _list_missing(rubric: ScoreRubric, case: ScoreCase) -> list[str]:
    """List the inputs that a rubric needs and a case doesn't have."""
    missing: list[str] = []
    for need in rubric.given.needs:
        if need == "sources":
            is_given = bool(case.files)  # a case's files are its sources
        else:
            is_given = bool(getattr(case, need).strip())
        if not is_given:
            missing.append(need)
    return missing


def list_changes(before: Rubric, after: Rubric) -> list[str]:
    """List the differences between two rubrics, a line for each key, in the order of the file."""
    return list(_list_changes("", before.model_dump(), after.model_dump()))


def _list_changes(key: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401 - any value of a data file
    """Describe the difference between two values: of mappings key by key, of lists item by item."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):  # each key once, in the order of the files
            inner = f"{key}.{name}" if key else str(name)
            yield from _list_changes(inner, before.get(name), after.get(name))
    elif before != after and isinstance(before, list) and isinstance(after, list):
        words = [f"without {_describe(item)}" for item in before if item not in after]
        words += [f"with {_describe(item)}" for item in after if item not in before]
        yield f"{key}: {'; '.join(words) or 'in another order'}"
    elif before != after:
        old = _describe(before)
        new = _describe(after)
        if before is None:
            yield f"{key}: new, {new}"
        elif after is None:
            yield f"{key}: removed, was {old}"
        else:
            yield f"{key}: {old} -> {new}"


def _describe(value: object) -> str:
    """Describe a value of a rubric in a line. Texts aren't shortened: they are what a rubric consists of."""
    if isinstance(value, dict):
        parts = []
        for name, part in value.items():
            if part not in (None, [], ""):
                parts.append(f"{name} {_describe(part)}")
        return f"({', '.join(parts)})"
    if isinstance(value, list):
        return ", ".join(map(_describe, value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return repr(value)
    return str(value)

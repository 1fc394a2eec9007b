"""Checks a rubric and its cases without asking a model: what's wrong, odd, or changed."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import MODES
from judgekit.errors import ConfigError
from judgekit.rubric.loader import LoadedRubric, get_companion_path
from judgekit.rubric.schema import (
    CompareCase,
    ScoreCase,
    ScoreRubric,
    SelectCase,
    SelectRubric,
    WrongCase,
)
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from judgekit.config import ModeName
    from judgekit.rubric.schema import Case, Rubric

MIN_CASES = 10  # with fewer, an agreement rate means next to nothing
MIN_FRACTION_PER_SIDE = 0.2  # of the cases should be accepted, and as many should not be

_MAX_COMBINATIONS = 100_000  # of scores that are tried


class Remark(NamedTuple):
    """A remark on a rubric: an error or advice."""

    path: Path
    key: str
    text: str
    is_error: bool = False
    line: int | None = None

    def __str__(self) -> str:
        return str(ConfigError(self.text, path=self.path, line=self.line, key=self.key))


def list_remarks(
    loaded: LoadedRubric, cases: Sequence[Case], wrong_cases: Sequence[WrongCase] = ()
) -> list[Remark]:
    """Check a rubric, its labelled cases and its wrong texts. Return remarks, with errors first."""
    rubric = loaded.rubric
    cases_path = get_companion_path(loaded.path, "cases")
    wrong_cases_path = get_companion_path(loaded.path, "leniency")

    remarks = [*_check_modes(loaded), *_check_cases(loaded, cases)]
    remarks += _check_ids_and_inputs(cases_path, rubric, cases)
    remarks += _check_ids_and_inputs(wrong_cases_path, rubric, wrong_cases)
    if isinstance(rubric, ScoreRubric):
        remarks += _check_dimensions(loaded.path, rubric)

    errors = [remark for remark in remarks if remark.is_error]
    advice = [remark for remark in remarks if not remark.is_error]
    return errors + advice


def list_outcomes(rubric: ScoreRubric) -> set[tuple[str, str]] | None:
    """Try every combination of scores, and return the pairs of (strict, lenient) outcomes that occur.

    Returns None if there are too many combinations.
    """
    possible_scores = []  # for each dimension: the integers on its scale
    for dimension in rubric.dimensions.values():
        if dimension.scale == "binary":
            possible_scores.append(list(rubric.scale.answers.values()))
        else:
            possible_scores.append(list(rubric.scale.labels))

    if prod(map(len, possible_scores)) > _MAX_COMBINATIONS:
        return None

    outcomes = set[tuple[str, str]]()
    for combination in product(*possible_scores):
        scores = dict(zip(rubric.dimensions, combination, strict=True))
        outcomes.add((rubric.decide(scores, "strict"), rubric.decide(scores, "lenient")))
    return outcomes


def _check_modes(loaded: LoadedRubric) -> Iterator[Remark]:
    """Check that the modes strict and lenient differ, and that strict is the stricter one."""
    rubric = loaded.rubric
    messages = list(_check_confirmations(rubric))
    if isinstance(rubric, SelectRubric):
        messages += _compare_selections(rubric)
    elif isinstance(rubric, ScoreRubric):
        messages += _compare_outcomes(rubric)
    else:
        # A mode of a rubric that compares texts only consists of `confirm`.
        has_same_confirm = rubric.modes.strict.confirm == rubric.modes.lenient.confirm
        if has_same_confirm:
            messages.append("strict and lenient confirm the same outcomes; make them differ")
    return (Remark(loaded.path, "modes", message) for message in messages)


def _check_confirmations(rubric: Rubric) -> Iterator[str]:
    """Warn if the outcomes that a second model confirms seem to be swapped between the modes.

    Normally, strict confirms acceptances, and lenient confirms rejections.
    """
    strict_and_lenient = (rubric.modes.strict.confirm, rubric.modes.lenient.confirm)
    if strict_and_lenient == ("reject", "accept"):
        yield "strict confirms rejections and lenient confirms acceptances; is that reversed?"


def _compare_selections(rubric: SelectRubric) -> Iterator[str]:
    """Warn if strict and lenient have the same criteria and the same rule for keeping a candidate."""
    criteria = rubric.criteria.values()
    has_same_wording = all(criterion.strict == criterion.lenient for criterion in criteria)
    has_same_rule = rubric.modes.strict.keep == rubric.modes.lenient.keep
    if has_same_wording and has_same_rule:
        yield "strict and lenient are the same; make them differ"


def _compare_outcomes(rubric: ScoreRubric) -> Iterator[str]:
    """Warn if strict accepts scores that lenient doesn't, or if both modes always agree."""
    outcome_pairs = list_outcomes(rubric)
    if outcome_pairs is None:  # too many combinations to try
        return
    for strict, lenient in outcome_pairs:
        if strict == "accept" and lenient != "accept":
            text = f"some scores are {lenient} in lenient and accept in strict"
            yield f"{text}; lenient should accept whatever strict accepts"
            break
    if all(strict == lenient for strict, lenient in outcome_pairs):
        yield "strict and lenient decide the same; make them differ"


def _check_dimensions(path: Path, rubric: ScoreRubric) -> Iterator[Remark]:
    """Check that each dimension has a `look_for` and terms, and shares no term with another dimension."""
    dimension_counts = _count_dimensions_by_term(rubric)
    for name, dimension in rubric.dimensions.items():
        key = f"dimensions.{name}"
        if not dimension.look_for:
            yield Remark(path, key, "no look_for; models invent their own criteria")
        if not dimension.terms:
            yield Remark(path, key, "no terms; findings cannot be assigned to this dimension")

        shared = sorted(term for term in dimension.terms if dimension_counts[term.lower()] > 1)
        if shared:
            yield Remark(path, f"{key}.terms", f"other dimensions have {', '.join(shared)} too")


def _count_dimensions_by_term(rubric: ScoreRubric) -> Counter[str]:
    """Count, for each term in small letters, the dimensions that have it."""
    counts = Counter[str]()
    for dimension in rubric.dimensions.values():
        # A term that's repeated in a dimension, in whichever case, counts once.
        distinct_terms = {term.lower() for term in dimension.terms}
        counts.update(distinct_terms)
    return counts


def _check_cases(loaded: LoadedRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Check that there are enough labelled cases, that each label makes sense, and that the labels vary."""
    path = get_companion_path(loaded.path, "cases")
    if not cases:
        yield Remark(path, "", "no labelled cases; add some to show what the rubric does")
    elif len(cases) < MIN_CASES:
        count = format_count(len(cases), "case", "cases")
        yield Remark(path, "", f"{count}: agreement is not meaningful below {MIN_CASES}")

    possible_outcomes = None
    if isinstance(loaded.rubric, ScoreRubric):
        possible_outcomes = list_outcomes(loaded.rubric)

    for line, case in enumerate(cases, 1):
        yield from _check_label(path, line, case, possible_outcomes)

    if len(cases) >= MIN_CASES:  # the labels of a few cases can't be balanced
        yield from _check_balance(path, loaded.rubric, cases)


def _check_label(
    path: Path, line: int, case: Case, possible_outcomes: set[tuple[str, str]] | None
) -> Iterator[Remark]:
    """Check that a case's label fits its texts, is plausible in both modes, and is possible with the rubric.

    `possible_outcomes` are the (strict, lenient) outcomes that the rubric can produce; None if unknown.
    """
    if _is_mislabelled_tie(case):
        text = f"{case.id}: a and b are the same text, which is always a tie; change one"
        yield Remark(path, "label", text, is_error=True, line=line)

    if _keeps_more_in_strict(case):
        text = f"{case.id}: strict keeps what lenient drops; is that intended?"
        yield Remark(path, "label", text, line=line)

    if possible_outcomes is None:
        return
    label = case.label
    is_possible = (label.strict, label.lenient) in possible_outcomes
    if not is_possible:
        outcomes = f"{label.strict} in strict and {label.lenient} in lenient"
        text = f"{case.id}: no scores give {outcomes}; change one label"
        yield Remark(path, "label", text, is_error=True, line=line)


def _is_mislabelled_tie(case: Case) -> bool:
    """Whether a case compares two equal texts, but isn't labelled as a tie in both modes."""
    if isinstance(case, CompareCase) and case.a == case.b:
        is_labelled_tie = case.label.strict == case.label.lenient == "tie"
        return not is_labelled_tie
    return False


def _keeps_more_in_strict(case: Case) -> bool:
    """Whether strict keeps a candidate that lenient drops."""
    if isinstance(case, SelectCase):
        return any(candidate not in case.label.lenient for candidate in case.label.strict)
    return False


def _check_balance(path: Path, rubric: Rubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Check that labels vary. Otherwise, a judge that always gives the same answer would look good."""
    messages: list[str] = []
    for mode in MODES:
        labels = [getattr(case.label, mode) for case in cases]
        if rubric.task == "compare":
            messages += _check_wins(labels, mode)
        if rubric.task == "score":
            messages += _check_acceptances(labels, mode)

    if rubric.task == "score":
        modes_agree = all(case.label.strict == case.label.lenient for case in cases)
        if modes_agree:
            messages.append("strict and lenient agree on every case; add a case where they differ")

    for message in messages:
        yield Remark(path, "label", message)


def _check_wins(labels: Sequence[str], mode: ModeName) -> Iterator[str]:
    """Warn if almost all wins are for the same side, or if there are only ties.

    With such labels, a judge that always gives the same answer would look good.
    """
    for_a = labels.count("A")
    for_b = labels.count("B")
    wins = for_a + for_b
    is_balanced = wins > 0 and _is_balanced(for_a / wins)
    if not is_balanced:
        yield f"in {mode} {for_a} labels are A and {for_b} are B: swap some of the texts"


def _check_acceptances(labels: Sequence[str], mode: ModeName) -> Iterator[str]:
    """Warn if almost all cases are labelled "accept", or almost none."""
    accepted = labels.count("accept")
    if not _is_balanced(accepted / len(labels)):
        text = f"{accepted} of {len(labels)} should be accepted in {mode}"
        yield f"{text}: a judge that always gives the same verdict would look good"


def _is_balanced(fraction: float) -> bool:
    return MIN_FRACTION_PER_SIDE <= fraction <= 1 - MIN_FRACTION_PER_SIDE


def _check_ids_and_inputs(path: Path, rubric: Rubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Check that every case has a unique id and all inputs that the rubric needs, such as sources.

    The file at `path` contains one case per line.
    """
    first_lines: dict[str, int] = {}  # by id
    for line, case in enumerate(cases, 1):
        if case.id in first_lines:
            first_line = first_lines[case.id]
            text = f"line {first_line} has the id {case.id!r} already; give each case its own"
            yield Remark(path, "id", text, is_error=True, line=line)
        else:
            first_lines[case.id] = line

        if isinstance(rubric, ScoreRubric) and isinstance(case, ScoreCase):
            yield from _check_inputs(path, line, rubric, case)


def _check_inputs(path: Path, line: int, rubric: ScoreRubric, case: ScoreCase) -> Iterator[Remark]:
    """Check that a case has all inputs that the rubric needs."""
    for need in _list_missing_inputs(rubric, case):
        key = "files" if need == "sources" else need  # a case gives its sources as files
        text = f"{case.id}: {rubric.ref} needs {need}, and the case has none; add them"
        yield Remark(path, key, text, is_error=True, line=line)


def _list_missing_inputs(rubric: ScoreRubric, case: ScoreCase) -> list[str]:
    """List the inputs that the rubric needs but the case lacks."""
    missing: list[str] = []
    for input_name in rubric.given.needs:
        if input_name == "sources":
            is_given = bool(case.files)  # a case gives its sources as files
        else:
            is_given = bool(getattr(case, input_name).strip())
        if not is_given:
            missing.append(input_name)
    return missing


def list_changes(before: Rubric, after: Rubric) -> list[str]:
    """List the differences between two rubrics, one line per key, in file order."""
    return list(_compare_values("", before.model_dump(), after.model_dump()))


def _compare_values(key: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401 - any value of a data file
    """Yield descriptions of the differences between two values of `key`, such as "scale.max: 4 -> 5".

    Mappings are compared recursively, with dotted keys.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        all_names = dict.fromkeys((*before, *after))  # unlike a set, this keeps the order
        for name in all_names:
            inner_key = f"{key}.{name}" if key else str(name)
            yield from _compare_values(inner_key, before.get(name), after.get(name))
    elif before != after:
        yield f"{key}: {_describe_change(before, after)}"


def _describe_change(before: Any, after: Any) -> str:  # noqa: ANN401 - any value of a data file
    """Describe a changed value, such as "4 -> 5" or "new, 5"."""
    if isinstance(before, list) and isinstance(after, list):
        return _describe_list_change(before, after)
    if before is None:
        return f"new, {_format_value(after)}"
    if after is None:
        return f"removed, was {_format_value(before)}"
    return f"{_format_value(before)} -> {_format_value(after)}"


def _describe_list_change(before: list[Any], after: list[Any]) -> str:
    """Describe the removed and added items of a list, such as "without 'a'; with 'b'"."""
    removed = [f"without {_format_value(item)}" for item in before if item not in after]
    added = [f"with {_format_value(item)}" for item in after if item not in before]
    changes = removed + added
    return "; ".join(changes) if changes else "in another order"


def _format_value(value: object) -> str:
    """Format a rubric value in one line. Empty fields are left out."""
    if isinstance(value, dict):
        parts = []
        for name, part in value.items():
            is_empty = part in (None, [], "")
            if not is_empty:
                parts.append(f"{name} {_format_value(part)}")
        return f"({', '.join(parts)})"
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    if isinstance(value, float):
        return f"{value:g}"  # 2 rather than 2.0
    if isinstance(value, str):
        return repr(value)
    return str(value)

"""Looks a rubric and its cases over without asking a model: what is wrong, odd, or changed since another."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

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

    from judgekit.config import ModeName
    from judgekit.rubric.schema import Case, Rubric

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
        return str(ConfigError(self.text, path=self.path, line=self.line, key=self.key))


def remarks(
    loaded: LoadedRubric, cases: Sequence[Case], wrong: Sequence[WrongCase] = ()
) -> list[Remark]:
    """Return what is to be said about a rubric that was read, and about its cases; what is wrong first."""
    found = [*_modes(loaded), *_cases(loaded, cases)]
    for path, own in (
        (beside(loaded.path, "cases"), cases),
        (beside(loaded.path, "leniency"), wrong),
    ):
        found += _lines(path, loaded.rubric, own)
    if isinstance(loaded.rubric, ScoreRubric):
        found += _dimensions(loaded.path, loaded.rubric)
    return sorted(found, key=lambda remark: not remark.wrong)


def outcomes(rubric: ScoreRubric) -> set[tuple[str, str]] | None:
    """Return which strict and lenient outcomes one set of whole scores can have; None if too many to try."""
    whole = [*rubric.scale.labels]
    dimensions = rubric.dimensions.values()
    points = []
    for each in dimensions:
        points.append([*rubric.scale.answers.values()] if each.scale else whole)
    if prod(map(len, points)) > _MOST_COMBINATIONS:
        return None
    named = []
    for scores in product(*points):
        named.append(dict(zip(rubric.dimensions, scores, strict=True)))
    return {(rubric.decide(scores, "strict"), rubric.decide(scores, "lenient")) for scores in named}


def _modes(loaded: LoadedRubric) -> Iterator[Remark]:
    lenient = loaded.rubric.modes.lenient
    strict = loaded.rubric.modes.strict
    rubric = loaded.rubric
    texts = []
    if strict.confirm == "reject" and lenient.confirm == "accept":
        texts.append(
            "strict confirms rejections and lenient confirms acceptances; is that reversed?"
        )
    if isinstance(rubric, SelectRubric):
        is_worded = any(
            criterion.strict != criterion.lenient for criterion in rubric.criteria.values()
        )
        if not is_worded and rubric.modes.strict.keep == rubric.modes.lenient.keep:
            texts.append("strict and lenient are the same; make them differ")
    elif isinstance(rubric, ScoreRubric):
        reached = outcomes(rubric) or set()
        if odd := [other for one, other in reached if one == "accept" and other != "accept"]:
            text = f"some scores are {odd[0]} in lenient and accept in strict"
            texts.append(f"{text}; lenient should accept whatever strict accepts")
        if reached and all(one == other for one, other in reached):
            texts.append("strict and lenient decide the same; make them differ")
    elif strict.confirm == lenient.confirm:
        texts.append("strict and lenient confirm the same outcomes; make them differ")
    return (Remark(loaded.path, "modes", text) for text in texts)


def _dimensions(path: Path, rubric: ScoreRubric) -> Iterator[Remark]:
    tags = Counter(
        term.lower() for dimension in rubric.dimensions.values() for term in set(dimension.terms)
    )
    for name, dimension in rubric.dimensions.items():
        key = f"dimensions.{name}"
        if not dimension.look_for:
            yield Remark(path, key, "no look_for; models invent their own criteria")
        if not dimension.terms:
            yield Remark(path, key, "no terms; findings cannot be assigned to this dimension")
        if shared := sorted(term for term in dimension.terms if tags[term.lower()] > 1):
            yield Remark(path, f"{key}.terms", f"other dimensions have {', '.join(shared)} too")


def _cases(loaded: LoadedRubric, cases: Sequence[Case]) -> Iterator[Remark]:
    path = beside(loaded.path, "cases")
    rubric = loaded.rubric
    if not cases:
        yield Remark(path, "", "no labelled cases; add some to show what the rubric does")
    elif len(cases) < FEW:
        yield Remark(
            path,
            "",
            f"{counted(len(cases), 'case', 'cases')}: agreement is not meaningful below {FEW}",
        )
    if isinstance(rubric, ScoreRubric):
        reached = outcomes(rubric)
    else:
        reached = None
    for number, case in enumerate(cases, 1):
        label = case.label
        if (
            isinstance(case, CompareCase)
            and case.a == case.b
            and {label.strict, label.lenient} != {"tie"}
        ):
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
        wins = len(labels) - labels.count("tie")
        for_a = labels.count("A")
        accepted = labels.count("accept")
        if rubric.task == "compare" and not (
            wins and LEAST_SHARE <= for_a / wins <= 1 - LEAST_SHARE
        ):
            text = f"in {mode} {for_a} labels are A and {labels.count('B')} are B"
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


def _lines(path: Path, rubric: Rubric, cases: Sequence[Case]) -> Iterator[Remark]:
    """Yield the ids that are there twice, and what the rubric needs and a case lacks."""
    seen: dict[str, int] = {}
    for number, case in enumerate(cases, 1):
        first = seen.setdefault(case.id, number)
        if first != number:
            text = f"line {first} has the id {case.id!r} already; give each case its own"
            yield Remark(path, "id", text, wrong=True, line=number)
        if not (isinstance(rubric, ScoreRubric) and isinstance(case, ScoreCase)):
            continue
        for need in rubric.given.needs:
            if not (case.files if need == "sources" else getattr(case, need).strip()):
                text = f"{case.id}: {rubric.ref} needs {need}, and the case has none; add them"
                yield Remark(
                    path, "files" if need == "sources" else need, text, wrong=True, line=number
                )


def changes(before: Rubric, after: Rubric) -> list[str]:
    """Return a line for every key in which two rubrics differ, in the order of the file."""
    return list(_changes("", before.model_dump(), after.model_dump()))


def _changes(key: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401 - any value of a data file
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _changes(
                f"{key}.{name}" if key else str(name), before.get(name), after.get(name)
            )
    elif before != after and isinstance(before, list) and isinstance(after, list):
        words = [f"without {_short(item)}" for item in before if item not in after]
        words += [f"with {_short(item)}" for item in after if item not in before]
        yield f"{key}: {'; '.join(words) or 'in another order'}"
    elif before != after:
        was = _short(before)
        now = _short(after)
        if after is None:
            changed = f"removed, was {was}"
        else:
            changed = f"{was} -> {now}"
        yield f"{key}: {changed if before is not None else f'new, {now}'}"


def _short(value: object) -> str:
    """Return a value in words, all of it: texts are what a rubric is made of."""
    if isinstance(value, dict):
        inner = (
            f"{name} {_short(part)}" for name, part in value.items() if part not in (None, [], "")
        )
        return f"({', '.join(inner)})"
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return repr(value)
    return str(value)

"""Tells verdicts reached in probabilities, without a word, from those with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal


_REASONS_HINT_BY_TASK = {
    "judge": "--explain gives reasons where a model writes: one in judge.tiers.deep, or a key of a provider "
    "that chats",
    "compare": "a model that writes gives reasons: name one with --model, or in judge.tiers.quick",
}

# Verdicts that neither accept nor prefer anything.
_OPEN = ("", "reject", "improve", "escalate", "undetermined", "tie")


class _Opinion(TypedDict, total=False):
    """The parts of an opinion that tell a model that decides from one that writes, in any version's JSON."""

    probabilities: object
    keep: object
    findings: Sequence[object]
    asked: str


class _Round(TypedDict):
    """A round with such an opinion, in JSON."""

    tier: str
    model: str
    opinion: _Opinion | None


def _list_rounds(record: Mapping[str, object]) -> Sequence[_Round]:
    """Return the rounds of a JSON record, if any."""
    return cast("Sequence[_Round]", record.get("rounds") or ())


def is_wordless(verdict: Mapping[str, object]) -> bool:
    """Whether only decision models gave opinions in the tier that decided a verdict.

    Such a verdict has no reasons in words, but it can have findings, which are derived from probabilities.
    """
    opinions = []
    for row in _list_rounds(verdict):
        is_in_deciding_tier = row["tier"] == verdict.get("judge_tier")
        opinion = row["opinion"]
        if is_in_deciding_tier and opinion:
            opinions.append(opinion)

    if not opinions:
        return False
    return all("probabilities" in opinion for opinion in opinions)


def _is_uncalibrated_acceptance(record: Mapping[str, object]) -> bool:
    """Whether decision models accepted a text or chose a winner, without a calibration."""
    is_acceptance = record.get("verdict", "") not in _OPEN
    is_uncalibrated = not record.get("calibration")
    return is_acceptance and is_uncalibrated and is_wordless(record)


class Deciders:
    """The decision models in all records so far, and whether a model that writes judged too."""

    def __init__(self) -> None:
        self._answering_model_by_name: dict[
            str, str
        ] = {}  # the model that answered, by the name asked
        self._has_reasons = False
        self._uncalibrated: dict[str, int] = {}  # acceptances without a calibration, by model

    def __add__(self, other: Deciders) -> Deciders:
        """Combine the counts of two workers."""
        both = Deciders()
        both._answering_model_by_name = (
            self._answering_model_by_name | other._answering_model_by_name
        )
        both._has_reasons = self._has_reasons or other._has_reasons
        both._uncalibrated = dict(self._uncalibrated)
        for name, count in other._uncalibrated.items():
            both._uncalibrated[name] = both._uncalibrated.get(name, 0) + count
        return both

    def __bool__(self) -> bool:
        return bool(self._answering_model_by_name) or self._has_reasons

    def add(self, record: Mapping[str, object]) -> None:
        """Note the models in a verdict's record, and count an uncalibrated acceptance by decision models."""
        if _is_uncalibrated_acceptance(record):
            name = str(record.get("model") or "a decision model")
            self._uncalibrated[name] = self._uncalibrated.get(name, 0) + 1

        for row in _list_rounds(record):
            opinion = row["opinion"]
            if opinion:
                self._add_opinion(row["model"], opinion)

    def _add_opinion(self, model: str, opinion: _Opinion) -> None:
        """Note the model if it's a decision model, and whether its opinion has reasons."""
        # Probabilities come from decision models. Only in opinions about candidates, any model can give them.
        is_about_candidates = "keep" in opinion
        is_from_decision_model = "probabilities" in opinion and not is_about_candidates
        if not is_from_decision_model:
            self._has_reasons = True
            return

        asked_name = opinion.get("asked", model)
        self._answering_model_by_name[asked_name] = model
        if opinion.get("findings"):  # a decision model's only reasons
            self._has_reasons = True

    def write_notes(self, task: Literal["judge", "compare"]) -> list[str]:
        """Return lines for the user about decision models. The advice depends on `task`.

        They're about names that move on to new versions, missing reasons, and acceptances without a
        calibration.
        """
        lines = self._note_moving_names()
        if self._answering_model_by_name and not self._has_reasons:
            names = ", ".join(self._answering_model_by_name)
            lines.append(
                f"decided by {names} alone, in probabilities and without reasons; "
                f"{_REASONS_HINT_BY_TASK[task]}"
            )
        return lines + self._note_uncalibrated()

    def _note_moving_names(self) -> list[str]:
        """Note each asked name that stands for changing versions, such as jury-latest."""
        lines = []
        for name, served_name in self._answering_model_by_name.items():
            if name.endswith("-latest"):
                lines.append(
                    f"{name} moves on: it was answered by {served_name}; "
                    "a calibration holds for the version that it was made with alone"
                )
        return lines

    def _note_uncalibrated(self) -> list[str]:
        """Note the decision models that accepted texts without a calibration."""
        lines = []
        for name, count in self._uncalibrated.items():
            how_many = "one text" if count == 1 else f"{count:,} texts"
            lines.append(
                f"{name} accepted {how_many} without a calibration, so nothing shows how far to believe "
                "that: learn it from labels (judgekit calibrate)"
            )
        return lines

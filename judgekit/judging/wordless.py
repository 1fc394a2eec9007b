"""Tells verdicts reached in probabilities, without a word, from those with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal


_REASONS = {
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
    """Whether only decision models supported a verdict, among the models of the tier that decided.

    Such a verdict has no reasons in words, but it can have findings, which are derived from probabilities.
    """
    opinions = []
    for row in _list_rounds(verdict):
        opinion = row["opinion"]
        if row["tier"] == verdict.get("judge_tier") and opinion:
            opinions.append(opinion)
    return bool(opinions) and all("probabilities" in opinion for opinion in opinions)


class Deciders:
    """The decision models in all records so far, and whether a model that writes judged too."""

    def __init__(self) -> None:
        self._answered: dict[str, str] = {}  # the model that answered, by the name asked
        self._has_reasons = False
        self._unproven: dict[str, int] = {}  # acceptances without a calibration, by model

    def __add__(self, other: Deciders) -> Deciders:
        """Combine the counts of two workers."""
        both = Deciders()
        both._answered = self._answered | other._answered
        both._has_reasons = self._has_reasons or other._has_reasons
        both._unproven = dict(self._unproven)
        for name, count in other._unproven.items():
            both._unproven[name] = both._unproven.get(name, 0) + count
        return both

    def __bool__(self) -> bool:
        return bool(self._answered) or self._has_reasons

    def add(self, record: Mapping[str, object]) -> None:
        """Note the models in a verdict's record, and count an uncalibrated acceptance by decision models."""
        is_acceptance = record.get("verdict", "") not in _OPEN  # or a comparison's winner
        if is_acceptance and not record.get("calibration") and is_wordless(record):
            name = str(record.get("model") or "a decision model")
            self._unproven[name] = self._unproven.get(name, 0) + 1

        for row in _list_rounds(record):
            opinion = row["opinion"]
            if not opinion:
                continue
            # Decision models give probabilities. In opinions on candidates (with `keep`), other models can
            # also give them.
            is_decision = "probabilities" in opinion and "keep" not in opinion
            if is_decision:
                asked_name = opinion.get("asked", row["model"])
                self._answered[asked_name] = row["model"]
                self._has_reasons |= bool(opinion.get("findings"))
            else:
                self._has_reasons = True

    def notes(self, task: Literal["judge", "compare"]) -> list[str]:
        """Return lines for the user about models that give no reasons. The advice depends on `task`."""
        lines = []
        for name, served_name in self._answered.items():
            if name.endswith("-latest"):
                lines.append(
                    f"{name} moves on: it was answered by {served_name}; "
                    "a calibration holds for the version that it was made with alone"
                )
        if self._answered and not self._has_reasons:
            names = ", ".join(self._answered)
            lines.append(
                f"decided by {names} alone, in probabilities and without reasons; {_REASONS[task]}"
            )
        for name, count in self._unproven.items():
            how_many = "one text" if count == 1 else f"{count:,} texts"
            lines.append(
                f"{name} accepted {how_many} without a calibration, so nothing shows how far to believe "
                "that: learn it from labels (judgekit calibrate)"
            )
        return lines

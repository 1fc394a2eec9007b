"""Turns recorded answers into outcomes, by the same reading and the same thresholds as judging does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgekit.calibrate.samples import FAILED, Sample, Voice
from judgekit.errors import InputError, InvalidReply
from judgekit.judging.gates import certainty, margin
from judgekit.judging.replies import KEEP, score_reply_model, select_reply_model
from judgekit.parse import extract
from judgekit.rubric import TIERS, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.calibrate.labelled import Case, Recorded
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, Outcome, Rubric, SelectRubric, TierName

KEEP_AT = 0.5
OUTCOMES: tuple[Outcome, ...] = ("reject", "improve", "accept")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads recorded answers under one rubric in one mode."""

    rubric: Rubric
    mode: ModeName

    def voices(self, case: Case, said: Recorded) -> dict[str, Voice]:
        """Return the opinion on the document, under "", or on each candidate, under its id.

        An answer that cannot be read is a failure. Raises `InputError` for scores of other dimensions.
        """
        if isinstance(self.rubric, ScoreRubric):
            return {"": self._document(self.rubric, case, said)}
        return self._candidates(self.rubric, case, said)

    def samples(self, case: Case) -> Iterator[Sample]:
        """Yield the document, or each candidate, with its label and what the tiers said."""
        by_tier = {tier: self.voices(case, case.judges[tier]) for tier in TIERS if tier in case.judges}
        cut = frozenset(tier for tier in by_tier if case.judges[tier].cut)
        for part, label in self.labels(case).items():
            voices: dict[TierName, Voice] = {tier: found[part] for tier, found in by_tier.items()}
            yield Sample(f"{case.id}/{part}" if part else case.id, label, voices, cut)

    def labels(self, case: Case) -> dict[str, Outcome]:
        """Return the right outcome of the document, under "", or of each candidate."""
        label = case.right(self.mode)
        if isinstance(self.rubric, ScoreRubric):
            outcome = next((each for each in OUTCOMES if each == label), None)
            if outcome is None:
                raise InputError(f"case {case.id}: label: expected {', '.join(OUTCOMES)}, got {label!r}")
            return {"": outcome}
        ids = [each.id for each in case.candidates]
        if not isinstance(label, list) or set(label) - set(ids) or not ids:
            raise InputError(f"case {case.id}: label: expected a list of ids of its candidates")
        return {each: "accept" if each in label else "reject" for each in ids}

    def _document(self, rubric: ScoreRubric, case: Case, said: Recorded) -> Voice:
        scores: Mapping[str, float] | None = said.scores
        if said.reply is not None:
            try:
                scores = extract(said.reply, score_reply_model(rubric)).model_dump()["scores"]
            except InvalidReply:
                return FAILED
        if scores is None:
            return FAILED
        if set(scores) != set(rubric.dimensions):
            expected = ", ".join(rubric.dimensions)
            raise InputError(f"case {case.id}: scores: expected {expected}, got {', '.join(scores)}")
        return Voice(rubric.decide(scores, self.mode), margin(rubric, scores, self.mode))

    def _candidates(self, rubric: SelectRubric, case: Case, said: Recorded) -> dict[str, Voice]:
        ids = [each.id for each in case.candidates]
        if said.probabilities is not None:
            return {each: _likely(said.probabilities.get(each)) for each in ids}
        kept = said.keep
        if said.reply is not None:
            kept = self._kept(rubric, said.reply, said.labels or {each: each for each in ids})
        if kept is None:
            return dict.fromkeys(ids, FAILED)
        said_of = [each for each in ids if each not in said.unjudged]
        return dict.fromkeys(ids, FAILED) | {
            each: Voice("accept" if each in kept else "reject") for each in said_of
        }

    def _kept(self, rubric: SelectRubric, reply: str, labels: Mapping[str, str]) -> list[str] | None:
        try:
            lists = extract(reply, select_reply_model(rubric, list(labels))).model_dump()
        except InvalidReply:
            return None
        names = list(rubric.criteria)
        keys = {names[0]: KEEP} if len(names) == 1 else {name: name for name in names}
        return [
            each
            for label, each in labels.items()
            if rubric.keeps({name: label in lists[key] for name, key in keys.items()}, self.mode)
        ]


def samples(cases: Sequence[Case], loaded: LoadedRubric, mode: ModeName) -> list[Sample]:
    """Return the samples of cases whose answers are recorded under the names of the tiers."""
    reader = Reader(loaded.rubric, mode)
    return [sample for case in cases for sample in reader.samples(case)]


def models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Return the model of each tier in recorded answers.

    Raises `InputError` where a tier has none or several: gates hold for the models that were measured.
    """
    found: dict[TierName, str] = {}
    for tier in TIERS:
        names = {case.judges[tier].model for case in cases if tier in case.judges}
        if len(names) > 1 or "" in names:
            raise InputError(
                f"judges.{tier}.model: expected one model throughout, got"
                f" {', '.join(repr(name) for name in sorted(names))}; a calibration holds for the models it"
                " was measured with"
            )
        if names:
            found[tier] = names.pop()
    return found


def _likely(probability: float | None) -> Voice:
    if probability is None:
        return FAILED
    return Voice("accept" if probability >= KEEP_AT else "reject", certainty(probability))

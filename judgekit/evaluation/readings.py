"""Turns recorded answers into outcomes, by the same reading and the same thresholds as judging does."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgekit.config.names import TIERS
from judgekit.errors import InputError, InvalidReply
from judgekit.evaluation import ranked, reply_source
from judgekit.evaluation.samples import FAILED, Sample, TierOpinion
from judgekit.judging import jury
from judgekit.judging.escalation import certainty, margin
from judgekit.judging.extract import read
from judgekit.judging.fingerprint import TOGETHER, USUALLY, Asked, together
from judgekit.judging.jury import Mark, Opinion, TierVote, Vote
from judgekit.judging.replies import KEEP, score_reply_model, select_reply_model
from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config.names import ModeName, Outcome, TierName
    from judgekit.evaluation.labelled import Case, Recorded
    from judgekit.judging.jury import Marks
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Rubric

KEEP_AT = 0.5
OUTCOMES: tuple[Outcome, ...] = ("reject", "improve", "accept")
BETTER = ("A", "B", "tie")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads recorded answers under one rubric in one mode."""

    rubric: Rubric
    mode: ModeName

    def words(self, case: Case, said: Recorded) -> dict[str, str | None]:
        """Return what was said of the document or pair, under "", or of each candidate, under its id.

        None is an answer that cannot be read. Raises `InputError` for one that does not fit the rubric.
        """
        if isinstance(self.rubric, CompareRubric):
            return {"": self._tier_vote(case, said).word}
        if isinstance(self.rubric, ScoreRubric) and case.subjects:
            return {"": ranked.word(case, said, self.mode)}
        return {part: voice.outcome for part, voice in self._voices(case, said).items()}

    def labels(self, case: Case) -> dict[str, str]:
        """Return the right word for the document or pair, under "", or for each candidate."""
        label = case.right(self.mode)
        if isinstance(self.rubric, ScoreRubric) and case.subjects:
            return {"": ranked.best(case, self.mode)}
        if not isinstance(self.rubric, SelectRubric):
            words = BETTER if isinstance(self.rubric, CompareRubric) else OUTCOMES
            if label not in words:
                raise InputError(f"{case.where}: label: expected {', '.join(words)}, got {label!r}")
            return {"": str(label)}
        ids = [candidate.id for candidate in case.candidates]
        if not isinstance(label, list) or set(label) - set(ids) or not ids:
            raise InputError(f"{case.where}: label: expected a list of ids of its candidates")
        return {each: "accept" if each in label else "reject" for each in ids}

    def samples(self, case: Case) -> Iterator[Sample]:
        """Yield the document, the pair or each candidate, with its label and what the tiers said."""
        said = {tier: case.judges[tier] for tier in TIERS if tier in case.judges}
        cut = frozenset(tier for tier, recorded in said.items() if recorded.cut)
        if isinstance(self.rubric, CompareRubric):
            yield self._pair(case, said, cut)
            return
        by_tier = {tier: self._voices(case, recorded) for tier, recorded in said.items()}
        for part, label in self.labels(case).items():
            voices: dict[TierName, TierOpinion] = {tier: found[part] for tier, found in by_tier.items()}
            outcome = next(each for each in OUTCOMES if each == label)
            yield Sample(f"{case.id}/{part}" if part else case.id, outcome, voices, cut)

    def _voices(self, case: Case, said: Recorded) -> dict[str, TierOpinion]:
        if isinstance(self.rubric, ScoreRubric):
            return {"": self._document(self.rubric, case, said)}
        if not isinstance(self.rubric, SelectRubric):  # pairs are told apart before
            raise TypeError(self.rubric.task)
        marks = self._marks(self.rubric, case, said)
        return {candidate.id: _voice(marks.get(candidate.id)) for candidate in case.candidates}

    # --- documents

    def _document(self, rubric: ScoreRubric, case: Case, said: Recorded) -> TierOpinion:
        jurors = said.jury or [said]
        known = [(reply_source.endpoint(juror), self._opinion(rubric, case, juror)) for juror in jurors]
        voices = [(endpoint, opinion) for endpoint, opinion in known if opinion is not None]
        if not jury.has_quorum(len(voices), len(jurors)):
            return FAILED
        found = jury.opinion(voices, said.rule, functools.partial(rubric.decide, mode=self.mode))
        return TierOpinion(found.outcome, margin(rubric, found.scores, self.mode), found.divided)

    def _opinion(self, rubric: ScoreRubric, case: Case, said: Recorded) -> Opinion | None:
        scores = said.scores
        if said.reply is not None:
            try:
                scores = read(said.reply, score_reply_model(rubric)).model_dump()["scores"]
            except InvalidReply:
                return None
        if scores is None:
            return None
        if set(scores) != set(rubric.dimensions):
            expected = ", ".join(rubric.dimensions)
            raise InputError(f"{case.where}: scores: expected {expected}, got {', '.join(scores)}")
        return Opinion(rubric.decide(scores, self.mode), scores)

    # --- candidates

    def _marks(self, rubric: SelectRubric, case: Case, said: Recorded) -> Marks:
        if said.jury is None:
            return self._marks_of(rubric, case, said)
        known = [(reply_source.endpoint(each), self._marks_of(rubric, case, each)) for each in said.jury]
        return jury.marks(known, len(said.jury), said.rule)

    def _marks_of(self, rubric: SelectRubric, case: Case, said: Recorded) -> Marks:
        ids = [candidate.id for candidate in case.candidates]
        for key in ("probabilities", "keep", "unjudged"):
            strange = sorted(set(getattr(said, key) or ()) - set(ids))
            if strange:
                expected = f"{key}: expected ids of its candidates"
                raise InputError(f"{case.where}: {expected}, got {', '.join(strange)}")
        if said.probabilities is not None:
            return {each: _likely(said.probabilities.get(each)) for each in ids}
        kept = said.keep
        if said.reply is not None:
            kept = self._kept(rubric, said.reply, said.labels or {each: each for each in ids})
        if kept is None:
            return {}
        judged = [each for each in ids if each not in said.unjudged]
        return {each: Mark("accept" if each in kept else "reject") for each in judged}

    def _kept(self, rubric: SelectRubric, reply: str, labels: Mapping[str, str]) -> list[str] | None:
        try:
            lists = read(reply, select_reply_model(rubric, list(labels))).model_dump()
        except InvalidReply:
            return None
        names = list(rubric.criteria)
        keys = {names[0]: KEEP} if len(names) == 1 else {name: name for name in names}
        return [
            each
            for label, each in labels.items()
            if rubric.keeps({name: label in lists[key] for name, key in keys.items()}, self.mode)
        ]

    # --- pairs

    def _tier_vote(self, case: Case, said: Recorded) -> TierVote:
        return jury.tier_vote(
            [(reply_source.endpoint(each), _vote(case, each)) for each in said.jury or [said]], said.rule
        )

    def _pair(self, case: Case, said: Mapping[TierName, Recorded], cut: frozenset[TierName]) -> Sample:
        """Return a pair told from the side of the first winner, as the rules of escalation see it."""
        found = {tier: self._tier_vote(case, each) for tier, each in said.items()}
        outcomes = jury.outcomes(found)
        voices = {tier: TierOpinion(outcomes[tier], tier_vote.lead) for tier, tier_vote in found.items()}
        label, first = self.labels(case)[""], jury.favourite(found)
        right: Outcome = "improve" if label == "tie" else "accept" if label == first else "reject"
        # Where no winner is the costly error, a tie over a win does not count as right.
        lenient, words = self.mode == "lenient", list(outcomes.values())
        won = words.index("accept") if lenient and "accept" in words else len(words)
        ties = frozenset(tier for tier in list(outcomes)[:won] if outcomes[tier] == "improve")
        return Sample(case.id, right, voices, cut, ties, stands=lenient)


def samples(cases: Sequence[Case], loaded: LoadedRubric, mode: ModeName) -> list[Sample]:
    """Return the samples of cases whose answers are recorded under the names of the tiers."""
    reader = Reader(loaded.rubric, mode)
    apart = reply_source.otherwise(cases, reply_source.readings(cases))
    return [
        reply_source.without_margins(sample, tiers)
        for case, tiers in zip(cases, apart, strict=True)
        for sample in reader.samples(case)
    ]


def name_of(said: Recorded) -> str:
    """Return the model, or those of a jury as one name."""
    return TOGETHER.join(recorded.model for recorded in said.jury) if said.jury else said.model


def models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Return the model of each tier in recorded answers.

    Raises `InputError` where a tier has none or several: gates hold for the models that were measured.
    """
    found: dict[TierName, str] = {}
    for tier in TIERS:
        said = [case.judges[tier] for case in cases if tier in case.judges]
        names = {together(each.model for each in recorded.jury or [recorded]) for recorded in said}
        if len(names) > 1 or "" in names:
            raise InputError(
                f"judges.{tier}.model: expected one model throughout, got"
                f" {', '.join(repr(name) for name in sorted(names))}; a calibration holds for the models it"
                " was measured with"
            )
        if names:
            found[tier] = names.pop()
    return found


def asked(cases: Sequence[Case]) -> Asked:
    """Return how the opinions of the tiers came about; raises `InputError` where not all came alike."""
    found = {
        (recorded.samples, recorded.criteria, recorded.rule, recorded.redact)
        for case in cases
        for tier, recorded in case.judges.items()
        if tier in TIERS
    }
    if len(found) > 1:
        raise InputError(
            "judges: expected the same samples, criteria, rule and redact throughout;"
            " a calibration holds for the manner of asking it was measured with"
        )
    if not found:
        return USUALLY
    samples, criteria, rule, redact = found.pop()
    return Asked.model_validate({"samples": samples, "criteria": criteria, "jury": rule, "redact": redact})


def _voice(mark: Mark | None) -> TierOpinion:
    return FAILED if mark is None else TierOpinion(mark.outcome, certainty(mark.probability), mark.divided)


def _likely(probability: float | None) -> Mark | None:
    if probability is None:
        return None
    if probability == KEEP_AT:
        return Mark("improve", probability)
    return Mark("accept" if probability > KEEP_AT else "reject", probability)


def _vote(case: Case, said: Recorded) -> Vote | None:
    if said.orders is not None:
        return jury.vote([Vote(word) if word else None for word in said.orders.values()])
    if said.probabilities is not None:
        if set(said.probabilities) != set(jury.WINS):
            got = ", ".join(sorted(said.probabilities)) or "nothing"
            raise InputError(f"{case.where}: probabilities: expected A and B, got {got}")
        ahead = said.probabilities["A"] - said.probabilities["B"]
        return Vote(jury.word_of(ahead), share=abs(ahead) or 1.0)
    word = next((each for each in (*jury.WINS, "tie") if each == said.choice), None)
    if word is None and said.failure is None:
        raise InputError(f"{case.where}: expected orders or a choice of {', '.join(BETTER)}")
    return Vote(word) if word else None

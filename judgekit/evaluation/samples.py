"""Turns recorded answers into samples: outcomes and margins of tiers, read as judging reads them.

An endpoint may tell the probabilities of its tokens for some replies and not for others. Opinions that were
read otherwise than most of a model's have no margin: no gate is learned of them, and none lets them through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIERS, Outcome, TierName
from judgekit.errors import InputError, InvalidReply
from judgekit.judging import extract, jury, ranking
from judgekit.judging.calibration import Measured
from judgekit.judging.escalation import Final, FinalityRules, certainty, margin
from judgekit.judging.fingerprint import USUALLY, Asked, together
from judgekit.judging.jury import Mark, Opinion, TierVote, Vote
from judgekit.judging.ranking import RankingRules, RankingStep
from judgekit.judging.replies import KEEP, score_reply_model, select_reply_model
from judgekit.judging.verdict import TIE
from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.escalation import EscalationRules
    from judgekit.judging.fingerprint import Readings
    from judgekit.judging.jury import Marks
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.judging.ranking import Said
    from judgekit.rubric.schema import Rubric

_OUTCOMES: tuple[Outcome, ...] = ("reject", "improve", "accept")
_BETTER = (*jury.WINS, TIE)


class TierOpinion(NamedTuple):
    """One tier's opinion and its margin; no outcome where it failed or could not be read.

    No gate lets an opinion without a margin through. Of a jury whose families came to different outcomes,
    `divided` says whether most came to this one.
    """

    outcome: Outcome | None
    margin: float | None = 0.0
    divided: bool | None = None


FAILED = TierOpinion(None)


@dataclass(frozen=True, slots=True)
class Sample:
    """A labelled document, or one labelled candidate, with the opinion of each tier that was asked.

    `cut` are the tiers that did not see the whole text, `ties` those whose tie on a pair counts as right
    where others are measured by it. Where a pair `stands`, a win may stand against the tie of the next tier.
    Of several subjects that are ranked, `wrong` are the tiers whose best is not the labelled one.
    """

    id: str
    label: Outcome
    voices: Mapping[TierName, TierOpinion]
    cut: frozenset[TierName] = frozenset()
    ties: frozenset[TierName] = frozenset()
    stands: bool = False
    wrong: frozenset[TierName] | None = None

    def outcome(self, tier: TierName) -> Outcome | None:
        """Return a tier's outcome, None where it failed or was not asked."""
        return self.voices.get(tier, FAILED).outcome

    def is_wrong(self, tier: TierName) -> bool:
        return self.outcome(tier) != self.label if self.wrong is None else tier in self.wrong

    def is_measured_by(self, tier: TierName) -> bool:
        """Whether it says how good others are that a tier disagrees: its tie over a win may not.

        Where no winner is the costly error that is neither right nor as bad as the wrong winner.
        """
        tied = self.stands and self.outcome(tier) == "improve" and tier not in self.ties
        return not tied or self.label == "improve"

    def united(self, tier: TierName) -> Outcome | None:
        """Return a tier's outcome, None also where its jury is divided: that ends nothing."""
        opinion = self.voices.get(tier, FAILED)
        return opinion.outcome if opinion.divided is None else None

    def margin(self, tier: TierName) -> float | None:
        """Return how far a tier's opinion is from another one, None where no gate may let it through."""
        opinion = self.voices.get(tier, FAILED)
        return None if opinion.outcome == "accept" and tier in self.cut else opinion.margin

    @property
    def margins(self) -> dict[TierName, float]:
        return {tier: margin for tier in self.voices if (margin := self.margin(tier)) is not None}


def walk(samples: Sequence[Sample], rules: EscalationRules) -> Measured:
    """Return what `rules` would have come to, and which tiers they would have asked."""
    calls: Counter[TierName] = Counter(dict.fromkeys(rules.tiers, 0))
    decided = errors = by_gate = 0
    for sample in samples:
        final, asked = ended(sample, rules)
        calls.update(asked)
        if final.tier is None:
            continue
        decided += 1
        errors += final.verdict != sample.label
        if rules.finality is not None and final.tier != rules.finality.last:
            outcomes = {tier: sample.united(tier) for tier in asked}
            by_gate += rules.finality.final(final.tier, outcomes, sample.margins)
    return Measured(decided=decided, errors=errors, by_gate=by_gate, calls=dict(calls))


def ended(sample: Sample, rules: EscalationRules) -> tuple[Final, list[TierName]]:
    """Return how one judging ends, and which tiers are asked on the way."""
    rules = replace(rules, truncated=sample.cut)
    seen: dict[TierName, Outcome | None] = {}
    divided: dict[TierName, bool] = {}
    while not isinstance(step := rules.next(seen, sample.margins, divided), Final):
        opinion = sample.voices.get(step, FAILED)
        seen[step] = opinion.outcome
        if opinion.divided is not None:
            divided[step] = opinion.divided
    winner = None
    if sample.stands and rules.finality and step.tier and step.verdict == "improve":
        winner = rules.finality.stands(step.tier, seen, sample.margins)
    return Final("accept", "single", winner) if winner else step, list(seen)


# --- How models were asked, and how their answers were read


def score_sources(cases: Sequence[Case]) -> tuple[Readings, list[frozenset[TierName]]]:
    """Return how most opinions of each model were read, and by case the tiers that were read otherwise."""
    answers = [
        [
            (tier, case.judges[tier], juror)
            for tier in TIERS
            if tier in case.judges
            for juror in case.judges[tier].jurors
        ]
        for case in cases
    ]
    # One reply gives no fractions by itself: a model with such scores told probabilities.
    fractions = {
        (tier, juror.model)
        for case in answers
        for tier, recorded, juror in case
        if recorded.samples == 1 and any(value % 1 for value in (juror.scores or {}).values())
    }

    def source(tier: TierName, recorded: Recorded, juror: Recorded) -> ScoreSource:
        if juror.read or recorded.samples > 1:
            return juror.read or "whole"
        if juror.probabilities is not None:
            return "points"
        return "expected" if juror.scores is not None and (tier, juror.model) in fractions else "whole"

    sources = [
        [
            (tier, juror.model, source(tier, recorded, juror))
            for tier, recorded, juror in case
            if juror.failure is None
        ]
        for case in answers
    ]
    counts: dict[TierName, dict[str, Counter[ScoreSource]]] = defaultdict(lambda: defaultdict(Counter))
    for case in sources:
        for tier, model, how in case:
            counts[tier][model][how] += 1
    read: Readings = {
        tier: {model: found.most_common(1)[0][0] for model, found in sorted(models.items())}
        for tier, models in counts.items()
    }
    return read, [
        frozenset(tier for tier, model, how in case if read[tier][model] != how) for case in sources
    ]


def models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Return the model of each tier in recorded answers.

    Raises `InputError` where a tier has none or several: gates hold for the models that were measured.
    """
    found: dict[TierName, str] = {}
    for tier in TIERS:
        answers = [case.judges[tier] for case in cases if tier in case.judges]
        names = {together(juror.model for juror in recorded.jurors) for recorded in answers}
        if len(names) > 1 or "" in names:
            raise InputError(
                f"judges.{tier}.model: expected one model throughout, got "
                f"{', '.join(repr(name) for name in sorted(names))}; a calibration is valid only for the "
                "models it was measured with"
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
            "judges: expected the same samples, criteria, rule and redact throughout; a calibration is "
            "valid only for the options it was measured with"
        )
    if not found:
        return USUALLY
    samples, criteria, rule, redact = found.pop()
    return Asked(samples=samples, criteria=criteria, jury=rule, redact=redact)


# --- Documents, candidates and pairs


def samples(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[Sample]:
    """Return the samples of cases whose answers are recorded under the names of the tiers."""
    reader, found = Reader(rubric, mode), []
    for case, apart in zip(cases, score_sources(cases)[1], strict=True):
        for sample in reader.samples(case):
            voices = {
                tier: opinion._replace(margin=None) if tier in apart else opinion
                for tier, opinion in sample.voices.items()
            }
            found.append(replace(sample, voices=voices))
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads recorded answers under one rubric in one mode, by the thresholds of judging.

    Raises `InputError` for an answer or a label that does not fit the rubric.
    """

    rubric: Rubric
    mode: ModeName

    def words(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        """Return the answer about the document or pair, under "", or about each candidate, under its id.

        None is an answer that cannot be read.
        """
        if isinstance(self.rubric, CompareRubric):
            return {"": _tier_vote(case, recorded).word}
        if isinstance(self.rubric, ScoreRubric) and case.subjects:
            return {"": _best_by(case, recorded, self.mode)}
        return {part: opinion.outcome for part, opinion in self._opinions(case, recorded).items()}

    def labels(self, case: Case) -> dict[str, str]:
        """Return the right word for the document or pair, under "", or for each candidate."""
        label = case.right(self.mode)
        if isinstance(self.rubric, ScoreRubric) and case.subjects:
            return {"": best(case, self.mode)}
        if not isinstance(self.rubric, SelectRubric):
            words = _BETTER if isinstance(self.rubric, CompareRubric) else _OUTCOMES
            if label not in words:
                raise InputError(f"{case.where}: label: expected {', '.join(words)}, got {label!r}")
            return {"": str(label)}
        ids = [candidate.id for candidate in case.candidates]
        if not isinstance(label, list) or set(label) - set(ids) or not ids:
            raise InputError(f"{case.where}: label: expected a list of ids of its candidates")
        return {each: "accept" if each in label else "reject" for each in ids}

    def samples(self, case: Case) -> Iterator[Sample]:
        """Yield the document, the pair or each candidate, with its label and the tiers' opinions."""
        answers = {tier: case.judges[tier] for tier in TIERS if tier in case.judges}
        cut = frozenset(tier for tier, recorded in answers.items() if recorded.cut)
        if isinstance(self.rubric, CompareRubric):
            yield self._pair(case, {tier: _tier_vote(case, each) for tier, each in answers.items()}, cut)
            return
        by_tier = {tier: self._opinions(case, recorded) for tier, recorded in answers.items()}
        for part, label in self.labels(case).items():
            outcome = next(each for each in _OUTCOMES if each == label)
            voices = {tier: opinions[part] for tier, opinions in by_tier.items()}
            yield Sample(f"{case.id}/{part}" if part else case.id, outcome, voices, cut)

    def _opinions(self, case: Case, recorded: Recorded) -> dict[str, TierOpinion]:
        if isinstance(self.rubric, ScoreRubric):
            return {"": self._document(self.rubric, case, recorded)}
        if not isinstance(self.rubric, SelectRubric):  # pairs are told apart before
            raise TypeError(self.rubric.task)
        jurors = [(juror.endpoint, self._marks(self.rubric, case, juror)) for juror in recorded.jurors]
        marks = jury.marks(jurors, len(jurors), recorded.rule)
        return {
            candidate.id: TierOpinion(mark.outcome, certainty(mark.probability), mark.divided)
            if (mark := marks.get(candidate.id))
            else FAILED
            for candidate in case.candidates
        }

    def _document(self, rubric: ScoreRubric, case: Case, recorded: Recorded) -> TierOpinion:
        opinions = [
            (juror.endpoint, Opinion(rubric.decide(scores, self.mode), scores))
            for juror in recorded.jurors
            if (scores := _scores(rubric, case, juror)) is not None
        ]
        if not jury.has_quorum(len(opinions), len(recorded.jurors)):
            return FAILED
        found = jury.opinion(opinions, recorded.rule, partial(rubric.decide, mode=self.mode))
        return TierOpinion(found.outcome, margin(rubric, found.scores, self.mode), found.divided)

    def _marks(self, rubric: SelectRubric, case: Case, recorded: Recorded) -> Marks:
        ids = [candidate.id for candidate in case.candidates]
        for key in ("probabilities", "keep", "unjudged"):
            if strange := sorted(set(getattr(recorded, key) or ()) - set(ids)):
                expected = f"{key}: expected ids of its candidates"
                raise InputError(f"{case.where}: {expected}, got {', '.join(strange)}")
        if (known := recorded.probabilities) is not None:
            return {
                each: Mark(jury.leaning(known[each]), known[each]) if each in known else None for each in ids
            }
        kept = recorded.keep
        if recorded.reply is not None:
            labels = recorded.labels or {each: each for each in ids}
            try:
                lists = extract.read(recorded.reply, select_reply_model(rubric, list(labels))).model_dump()
            except InvalidReply:
                return {}
            names = list(rubric.criteria)
            keys = {names[0]: KEEP} if len(names) == 1 else {name: name for name in names}
            kept = [
                each
                for label, each in labels.items()
                if rubric.keeps({name: label in lists[key] for name, key in keys.items()}, self.mode)
            ]
        if kept is None:
            return {}
        judged = [each for each in ids if each not in recorded.unjudged]
        return {each: Mark("accept" if each in kept else "reject") for each in judged}

    def _pair(self, case: Case, votes: Mapping[TierName, TierVote], cut: frozenset[TierName]) -> Sample:
        """Return a pair told from the side of the first winner, as the rules of escalation see it."""
        outcomes = jury.outcomes(votes)
        voices = {tier: TierOpinion(outcomes[tier], vote.lead) for tier, vote in votes.items()}
        label, first = self.labels(case)[""], jury.favourite(votes)
        right: Outcome = "improve" if label == TIE else "accept" if label == first else "reject"
        # Where no winner is the costly error, a tie over a win does not count as right.
        lenient, words = self.mode == "lenient", list(outcomes.values())
        won = words.index("accept") if lenient and "accept" in words else len(words)
        ties = frozenset(tier for tier in list(outcomes)[:won] if outcomes[tier] == "improve")
        return Sample(case.id, right, voices, cut, ties, stands=lenient)


def _scores(rubric: ScoreRubric, case: Case, recorded: Recorded) -> dict[str, float] | None:
    scores = recorded.scores
    if recorded.reply is not None:
        try:
            scores = extract.read(recorded.reply, score_reply_model(rubric)).model_dump()["scores"]
        except InvalidReply:
            return None
    if scores is not None and set(scores) != set(rubric.dimensions):
        expected = ", ".join(rubric.dimensions)
        raise InputError(f"{case.where}: scores: expected {expected}, got {', '.join(scores)}")
    return scores


def _tier_vote(case: Case, recorded: Recorded) -> TierVote:
    votes = [(juror.endpoint, _vote(case, juror)) for juror in recorded.jurors]
    return jury.tier_vote(votes, recorded.rule)


def _vote(case: Case, recorded: Recorded) -> Vote | None:
    if recorded.orders is not None:
        return jury.vote([Vote(word) if word else None for word in recorded.orders.values()])
    if recorded.probabilities is not None:
        if set(recorded.probabilities) != set(jury.WINS):
            got = ", ".join(sorted(recorded.probabilities)) or "nothing"
            raise InputError(f"{case.where}: probabilities: expected A and B, got {got}")
        ahead = recorded.probabilities["A"] - recorded.probabilities["B"]
        return Vote(jury.word_of(ahead), share=abs(ahead) or 1.0)
    word = next((each for each in (*jury.WINS, "tie") if each == recorded.choice), None)
    if word is None and recorded.failure is None:
        raise InputError(f"{case.where}: expected orders or a choice of {', '.join(_BETTER)}")
    return Vote(word) if word else None


# --- Several subjects of which one is the best: a lead of the best is an opinion with a margin


@dataclass(frozen=True, slots=True)
class RankedCase:
    """A case with what each tier gave to each of its subjects; `apart` are tiers that were read otherwise."""

    case: Case
    rubric: ScoreRubric
    mode: ModeName
    said: Mapping[TierName, Said]
    best: str
    apart: frozenset[TierName] = frozenset()

    def steps(self, finality: FinalityRules | None) -> Iterator[tuple[int, RankingStep]]:
        """Yield the turns that judging takes, each with how many calls it took."""
        rules, steps = self._rules(finality), list[RankingStep]()
        while tier := rules.following(steps):
            alive, said = steps[-1].near if steps else rules.letters, self.said[tier]
            cut, barred = self.case.judges[tier].cut, tier in self.apart
            steps.append(rules.step(steps, tier, said, cut=cut, barred=barred))
            yield ranking.asked(said, alive), steps[-1]

    def word(self, step: RankingStep) -> str | None:
        """Return the winner, or a tie, if nobody is asked after a step; None where it settles nothing."""
        if step.found is None or step.cut:
            return None
        return self._rules(None).winner(step) or TIE

    def _rules(self, finality: FinalityRules | None) -> RankingRules:
        panel = {tier: {voter.model for voter in said} for tier, said in self.said.items()}
        margins = ranking.usual_margins(self.rubric)
        return RankingRules(tuple(self.case.letters), panel, margins, self.mode, finality)

    def sample(self) -> Sample:
        """Return the case as gates are learned from it: each tier's step, none before it having ended it."""
        voices: dict[TierName, TierOpinion] = {}
        wrong, ties = set[TierName](), set[TierName]()
        for _, step in self.steps(FinalityRules()):
            no_gate = step.is_end or step.cut or step.tier in self.apart
            voices[step.tier] = TierOpinion(step.outcome, None if no_gate else step.lead or None)
            if step.best != (None if self.best == TIE else self.best):
                wrong.add(step.tier)
            if self.word(step) == TIE:
                ties.add(step.tier)
        return Sample(self.case.id, "accept", voices, ties=frozenset(ties), wrong=frozenset(wrong))


def ranked(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[RankedCase]:
    """Return cases about which of several subjects is best; none where the cases are about something else.

    Raises `InputError` for what does not fit.
    """
    if not any(case.subjects for case in cases):
        return []
    if other := next((case for case in cases if not case.subjects), None):
        raise InputError(f"{other.where}: subjects: expected in all cases, or in none")
    if not isinstance(rubric, ScoreRubric):
        raise InputError(f"subjects are scored; name a rubric of the task 'score', got {rubric.ref}")
    found = []
    for case, apart in zip(cases, score_sources(cases)[1], strict=True):
        if len(case.subjects) < 2:  # noqa: PLR2004 - one text is not compared
            raise InputError(f"{case.where}: subjects: expected at least two texts")
        said = {tier: _given(case, case.judges[tier]) for tier in TIERS if tier in case.judges}
        found.append(RankedCase(case, rubric, mode, said, best(case, mode), apart))
    return found


def walk_ranked(cases: Sequence[RankedCase], finality: FinalityRules | None) -> Measured:
    """Return what judging would come to, and which tiers it would ask: calls are counted by subject."""
    calls: Counter[TierName] = Counter()
    decided = errors = by_gate = 0
    for ranked_case in cases:
        calls.update(dict.fromkeys(ranked_case.said, 0))
        steps = list(ranked_case.steps(finality))
        for count, step in steps:
            calls[step.tier] += count
        _, last = steps[-1]
        word = ranked_case.word(last)
        decided += word is not None
        errors += word is not None and word != ranked_case.best
        by_gate += last.trusted
    return Measured(decided=decided, errors=errors, by_gate=by_gate, calls=dict(calls))


def best(case: Case, mode: ModeName) -> str:
    """Return the label of a case; raises `InputError` for one that is no letter of a subject and no tie."""
    words, label = (*case.letters, TIE), case.right(mode)
    if label not in words:
        raise InputError(f"{case.where}: label: expected {', '.join(words)}, got {label!r}")
    return str(label)


def _best_by(case: Case, recorded: Recorded, mode: ModeName) -> str | None:
    """Return the best, or a tie, by the scores of one judge alone; None where they are missing."""
    scored = [(voter.name, points) for voter, points in _given(case, recorded).items()]
    means = ranking.values(scored, case.letters)
    return None if means is None else ranking.last_word(means, 0.0, mode) or TIE


def _given(case: Case, recorded: Recorded) -> Said:
    """Return what each model of a tier gave to the subjects of a case."""
    found: dict[ranking.Voter, dict[str, list[float]]] = {}
    for juror in recorded.jurors:
        if juror.failure is None and (juror.points is None or set(juror.points) - set(case.letters)):
            expected = f"expected points for {', '.join(case.letters)}, what each was given"
            raise InputError(f"{case.where}: {expected}")
        scored = found.setdefault(ranking.Voter(juror.model, juror.endpoint.family), {})
        for letter, points in (juror.points or {}).items():
            scored.setdefault(letter, []).extend(points)
    return dict(found)

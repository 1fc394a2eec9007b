"""Turns recorded answers into samples: outcomes and margins of tiers, read as judging reads them.

An endpoint may tell the probabilities of its tokens for some replies and not for others. Opinions that were
read otherwise than most of a model's have no margin: no gate is learned of them, and none lets them through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIE, TIERS, ModeName, Outcome, TierName
from judgekit.errors import InputError, InvalidReply
from judgekit.evaluation.labels import agrees, is_binary
from judgekit.judging import jury, ranking
from judgekit.judging.calibration import USUALLY, Asked, Readings, together
from judgekit.judging.escalation import certainty, margin
from judgekit.judging.jury import Mark, Marks, Opinion, TierVote, Vote
from judgekit.replies import extract
from judgekit.replies.forms import KEEP, score_reply_model, select_reply_model
from judgekit.rubric.schema import CompareRubric, Rubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.score_source import ScoreSource

_OUTCOMES: tuple[Outcome, ...] = ("reject", "improve", "accept")
_BETTER = (*jury.WINS, TIE)


# --- How models were asked, and how their answers were read


def models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Return the model of each tier in recorded answers; raises `InputError` unless each has one."""
    found: dict[TierName, str] = {}
    for tier in TIERS:
        answers = [case.judges[tier] for case in cases if tier in case.judges]
        names = sorted({together(juror.model for juror in recorded.jurors) for recorded in answers})
        if len(names) > 1 or "" in names:
            got = ", ".join(map(repr, names))
            why = "valid only for the models it was measured with"
            wanted = f"judges.{tier}.model: expected one model throughout, got {got}"
            raise InputError(f"{wanted}; a calibration is {why}")
        if names:
            found[tier] = names[0]
    return found


def asked(cases: Sequence[Case]) -> Asked:
    """Return how the opinions of the tiers came about; raises `InputError` where not all came alike."""
    answers = []
    for case in cases:
        for tier in TIERS:
            if tier in case.judges:
                answers.append(case.judges[tier])
    ways = set()
    for each in answers:
        ways.add((each.samples, each.criteria, each.rule, each.redact))
    if len(ways) > 1:
        wanted = "judges: expected the same samples, criteria, rule and redact throughout"
        raise InputError(
            f"{wanted}; a calibration is valid only for the options it was measured with"
        )
    for samples, criteria, rule, redact in ways:
        return Asked(samples=samples, criteria=criteria, jury=rule, redact=redact)
    return USUALLY


def score_sources(cases: Sequence[Case]) -> tuple[Readings, list[frozenset[TierName]]]:
    """Return how most opinions of each model were read, and by case the tiers that were read otherwise."""
    answers = [
        (number, tier, juror, case.judges[tier].samples)
        for number, case in enumerate(cases)
        for tier in TIERS
        if tier in case.judges
        for juror in case.judges[tier].jurors
        if juror.failure is None
    ]
    # One reply gives no fractions by itself: a model with such scores told probabilities.
    fractions = {
        (tier, juror.model)
        for _, tier, juror, samples in answers
        if samples == 1 and any(value % 1 for value in (juror.scores or {}).values())
    }
    counts: dict[tuple[TierName, str], Counter[ScoreSource]] = defaultdict(Counter)
    sources: list[tuple[int, TierName, str, ScoreSource]] = []
    for number, tier, juror, samples in answers:
        source: ScoreSource = juror.read or "whole"
        if juror.read is None and samples == 1:
            expected = juror.scores is not None and (tier, juror.model) in fractions
            if juror.probabilities is not None:
                source = "points"
            else:
                source = "expected" if expected else "whole"
        counts[tier, juror.model][source] += 1
        sources.append((number, tier, juror.model, source))
    read: Readings = {}
    for tier, model in sorted(counts, key=lambda key: (TIERS.index(key[0]), key[1])):
        read.setdefault(tier, {})[model] = counts[tier, model].most_common(1)[0][0]
    apart = [set[TierName]() for _ in cases]
    for number, tier, model, source in sources:
        apart[number] |= {tier} if read[tier][model] != source else set()
    return read, [frozenset(tiers) for tiers in apart]


# --- From recorded answers to opinions, as judging reads them


class TierOpinion(NamedTuple):
    """One tier's opinion; no outcome where it failed, no margin where no gate may let it through."""

    outcome: Outcome | None
    margin: float | None = 0.0
    divided: bool | None = None
    rated: Mapping[str, float] | None = (
        None  # a document's scores, under "" its distance from acceptance
    )


FAILED = TierOpinion(None)


class Sample(NamedTuple):
    """A labelled document, or one labelled candidate, with the opinion of each tier that was asked.

    `cut` are the tiers that did not see the whole text, `ties` those whose tie on a pair counts as right.
    Where a pair `stands`, a win may stand against the next tier's tie. `wrong` are the tiers whose best of
    several is not the label. Where labels are `binary`, an improve is right about what is to be rejected.
    """

    id: str
    label: Outcome
    voices: Mapping[TierName, TierOpinion]
    cut: frozenset[TierName] = frozenset()
    ties: frozenset[TierName] = frozenset()
    stands: bool = False
    wrong: frozenset[TierName] | None = None
    binary: bool = False

    def outcome(self, tier: TierName) -> Outcome | None:
        return self.voices.get(tier, FAILED).outcome

    def is_wrong(self, tier: TierName) -> bool:
        if self.wrong is not None:
            return tier in self.wrong
        outcome = self.outcome(tier)
        return outcome is None or not self.is_right(outcome)

    def is_right(self, outcome: Outcome | str) -> bool:
        return agrees(self.label, outcome, binary=self.binary)

    def is_measured_by(self, tier: TierName) -> bool:
        """Whether a tier's disagreement says how good others are: its tie over a win may not."""
        tied = self.stands and self.outcome(tier) == "improve" and tier not in self.ties
        return not tied or self.label == "improve"

    def united(self, tier: TierName) -> Outcome | None:
        """Return a tier's outcome, None also where its jury is divided: that ends nothing."""
        opinion = self.voices.get(tier, FAILED)
        return opinion.outcome if opinion.divided is None else None

    def margin(self, tier: TierName) -> float | None:
        """Return how far a tier's opinion is from another one, None where no gate may let it through."""
        opinion = self.voices.get(tier, FAILED)
        if opinion.outcome == "accept" and tier in self.cut:
            return None
        return opinion.margin

    @property
    def margins(self) -> dict[TierName, float]:
        return {tier: margin for tier in self.voices if (margin := self.margin(tier)) is not None}


def samples(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[Sample]:
    read = Reader(rubric, mode).samples
    found: list[Sample] = []
    for pair in zip(cases, score_sources(cases)[1], strict=True):
        found.extend(read(*pair))
    if isinstance(rubric, CompareRubric) or not is_binary(sample.label for sample in found):
        return found  # of a pair an improve is a tie
    return [sample._replace(binary=True) for sample in found]


class Reader(NamedTuple):
    """Reads recorded answers as judging would; raises `InputError` for what does not fit the rubric."""

    rubric: Rubric
    mode: ModeName

    def words(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        """Return the answer about the subject, under "", or about each candidate; None is unreadable."""
        if isinstance(self.rubric, CompareRubric):
            return {"": tier_vote(case, recorded).word}
        if isinstance(self.rubric, ScoreRubric) and case.subjects:
            scored = []
            for voter, given in points(case, recorded).items():
                scored.append((voter.name, given))
            means = ranking.values(scored, case.letters)
            return {"": None if means is None else ranking.last_word(means, 0.0, self.mode) or TIE}
        return {
            part: opinion.outcome
            for part, opinion in self.opinions(self.rubric, case, recorded).items()
        }

    def score(self, case: Case, recorded: Recorded) -> float | None:
        """Return the mean of a document's scores, as a judge gave them; None where they are unreadable."""
        if not isinstance(self.rubric, ScoreRubric) or case.subjects:
            raise case.wrong("label: expected words; a number is for a scored document")
        scale = self.rubric.scale
        if case.score is not None and not scale.min <= case.score <= scale.max:
            wanted = f"a number from {scale.min} to {scale.max}, as on the rubric's scale"
            raise case.wrong(f"label: expected {wanted}, got {case.score:g}")
        scores = [_scores(self.rubric, case, juror) for juror in recorded.jurors]
        known = [self.rubric.mean(each) for each in scores if each]
        if jury.has_quorum(len(known), len(scores)):
            return fmean(known)
        return None

    def rated(self, case: Case, recorded: Recorded) -> Mapping[str, float] | None:
        """Return a document's scores and, under "", their distance from acceptance, where it has any."""
        if not isinstance(self.rubric, ScoreRubric) or case.subjects:
            return None
        return self.opinions(self.rubric, case, recorded)[""].rated

    def labels(self, case: Case) -> dict[str, str]:
        label = case.right(self.mode)
        if isinstance(self.rubric, SelectRubric):
            ids = [candidate.id for candidate in case.candidates]
            if not isinstance(label, list) or set(label) - set(ids) or not ids:
                raise case.wrong("label: expected a list of ids of its candidates")
            return {each: "accept" if each in label else "reject" for each in ids}
        words: Sequence[str] = _BETTER
        if isinstance(self.rubric, ScoreRubric):
            if case.subjects:
                words = (*case.letters, TIE)
            else:
                words = _OUTCOMES
        if label not in words:
            raise case.wrong(f"label: expected {', '.join(words)}, got {label!r}")
        return {"": str(label)}

    def samples(self, case: Case, apart: Collection[TierName] = ()) -> Iterator[Sample]:
        """Yield the document, the pair or each candidate; opinions of tiers in `apart` have no margin."""
        answers = {}
        for tier in TIERS:
            if tier in case.judges:
                answers[tier] = case.judges[tier]
        cut = frozenset(tier for tier, recorded in answers.items() if recorded.cut)
        ties: frozenset[TierName] = frozenset()
        lenient = False
        if isinstance(self.rubric, CompareRubric):
            # A pair is told from the side of the first winner, as the rules of escalation see it.
            votes = {tier: tier_vote(case, recorded) for tier, recorded in answers.items()}
            outcomes = jury.outcomes(votes)
            first = jury.favourite(votes)
            by_tier = {}
            for tier, vote in votes.items():
                by_tier[tier] = {"": TierOpinion(outcomes[tier], vote.lead)}
            label = self.labels(case)[""]
            labels = {"": "improve" if label == TIE else "accept" if label == first else "reject"}
            # Where no winner is the costly error, a tie over a win does not count as right.
            lenient = self.mode == "lenient"
            words = list(outcomes.values())
            if lenient and "accept" in words:
                won = words.index("accept")
            else:
                won = len(words)
            ties = frozenset(tier for tier in list(outcomes)[:won] if outcomes[tier] == "improve")
        else:
            by_tier = {}
            for tier, recorded in answers.items():
                by_tier[tier] = self.opinions(self.rubric, case, recorded)
            labels = self.labels(case)
        for part, label in labels.items():
            outcome = next(each for each in _OUTCOMES if each == label)
            voices = {}
            for tier, found in by_tier.items():
                if tier in apart:
                    voices[tier] = found[part]._replace(margin=None)
                else:
                    voices[tier] = found[part]
            yield Sample(
                f"{case.id}/{part}" if part else case.id, outcome, voices, cut, ties, lenient
            )

    def opinions(
        self, rubric: ScoreRubric | SelectRubric, case: Case, recorded: Recorded
    ) -> dict[str, TierOpinion]:
        """Return the opinion on a document, under "", or on each candidate."""
        jurors = recorded.jurors
        if isinstance(rubric, ScoreRubric):
            decide = partial(rubric.decide, mode=self.mode)
            read = [(juror.endpoint, _scores(rubric, case, juror)) for juror in jurors]
            opinions = [
                (one, Opinion(decide(given), given)) for one, given in read if given is not None
            ]
            if not jury.has_quorum(len(opinions), len(jurors)):
                return {"": FAILED}
            one = jury.opinion(opinions, recorded.rule, decide)
            rated = {"": margin(rubric, one.scores, self.mode, signed=True), **one.scores}
            return {
                "": TierOpinion(
                    one.outcome, margin(rubric, one.scores, self.mode), one.divided, rated
                )
            }
        said = []
        for juror in jurors:
            said.append((juror.endpoint, self._marks(rubric, case, juror)))
        marks = jury.marks(said, len(jurors), recorded.rule)
        return {
            candidate.id: TierOpinion(mark.outcome, certainty(mark.probability), mark.divided)
            if (mark := marks.get(candidate.id))
            else FAILED
            for candidate in case.candidates
        }

    def _marks(self, rubric: SelectRubric, case: Case, recorded: Recorded) -> Marks:
        ids = [candidate.id for candidate in case.candidates]
        for key in ("probabilities", "keep", "unjudged"):
            if strange := sorted(set(getattr(recorded, key) or ()) - set(ids)):
                raise case.wrong(f"{key}: expected ids of its candidates, got {', '.join(strange)}")
        known = recorded.probabilities
        if known is not None:
            marked = {}
            for each, share in known.items():
                marked[each] = Mark(jury.leaning(share), share)
            return {each: marked.get(each) for each in ids}
        kept = recorded.keep
        if recorded.reply is not None:
            try:
                model = select_reply_model(list(rubric.criteria), ids)
                lists = extract.read(recorded.reply, model).model_dump()
            except InvalidReply:
                return {}
            names = list(rubric.criteria)
            if len(names) == 1:
                keys = {names[0]: KEEP}
            else:
                keys = {name: name for name in names}
            marks = {}
            for each in ids:
                marks[each] = {name: each in lists[key] for name, key in keys.items()}
            kept = []
            for each, mark in marks.items():
                if rubric.keeps(mark, self.mode):
                    kept.append(each)
        if kept is None:
            return {}
        judged = [each for each in ids if each not in recorded.unjudged]
        return {each: Mark("accept" if each in kept else "reject") for each in judged}


def _scores(rubric: ScoreRubric, case: Case, recorded: Recorded) -> dict[str, float] | None:
    scores = recorded.scores
    if recorded.reply is not None:
        try:
            binary = frozenset(name for name, each in rubric.dimensions.items() if each.scale)
            scale = rubric.scale
            model = score_reply_model(tuple(rubric.dimensions), scale.min, scale.max, binary)
            said = extract.read(recorded.reply, model).model_dump()["scores"]
            scores = {}
            for name, each in said.items():
                scores[name] = scale.answers.get(each, each)
        except InvalidReply:
            return None
    if scores is not None and set(scores) != set(rubric.dimensions):
        raise case.wrong(
            f"scores: expected {', '.join(rubric.dimensions)}, got {', '.join(scores)}"
        )
    return scores


def tier_vote(case: Case, recorded: Recorded) -> TierVote:
    return jury.tier_vote(
        [(each.endpoint, _vote(case, each)) for each in recorded.jurors], recorded.rule
    )


def _vote(case: Case, recorded: Recorded) -> Vote | None:
    if recorded.orders is not None:
        return jury.vote([Vote(word) if word else None for word in recorded.orders.values()])
    shares = recorded.probabilities
    if shares is not None:
        if set(shares) != set(jury.WINS):
            raise case.wrong(
                f"probabilities: expected A and B, got {', '.join(sorted(shares)) or 'nothing'}"
            )
        ahead = shares["A"] - shares["B"]
        return Vote(jury.word_of(ahead), share=abs(ahead) or 1.0)
    word = next((each for each in (*jury.WINS, "tie") if each == recorded.choice), None)
    if word is None and recorded.failure is None:
        raise case.wrong(f"expected orders or a choice of {', '.join(_BETTER)}")
    return Vote(word) if word else None


def points(case: Case, recorded: Recorded) -> ranking.MeansByVoter:
    found: dict[ranking.Voter, dict[str, list[float]]] = {}
    for juror in recorded.jurors:
        if juror.failure is None and (
            juror.points is None or set(juror.points) - set(case.letters)
        ):
            raise case.wrong(f"expected points for {', '.join(case.letters)}, what each was given")
        scored = found.setdefault(ranking.Voter(juror.model, juror.endpoint.family), {})
        for letter, given in (juror.points or {}).items():
            scored.setdefault(letter, []).extend(given)
    return dict(found)

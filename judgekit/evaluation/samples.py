"""Turns recorded answers into samples: outcomes and margins of tiers, read as judging reads them.

An endpoint may tell the probabilities of its tokens for some replies and not for others, and a name may be
answered by several models. Opinions that came about otherwise than most of a model's have no margin: no gate
is learned of them, and none lets them through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, cast

from judgekit.config import TIE, TIERS, ModeName, Outcome, TierName
from judgekit.errors import InputError, InvalidReply
from judgekit.evaluation.labels import agrees, is_binary
from judgekit.evaluation.stats import OUTCOMES
from judgekit.judging import jury, standing
from judgekit.judging.calibration import USUALLY, Answered, Asked, Readings, together
from judgekit.judging.evidence import (
    FAILED,
    TierEvidence,
    margin,
    read_candidate,
    read_document,
    read_pair,
)
from judgekit.judging.jury import Mark, Marks, Opinion, TierVote, Vote
from judgekit.replies import extract
from judgekit.replies.forms import KEEP, score_reply_model, select_reply_model
from judgekit.rubric.schema import CompareRubric, Rubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.evidence import Evidence
    from judgekit.judging.score_source import ScoreSource
    from judgekit.rubric.schema import Better


_BETTER = (*jury.WINS, TIE)
WHOLE = ""
"""Stands for a case that is judged as a whole (a document, a pair), where candidates have their ids."""
DISTANCE = ""
"""Stands for the distance from acceptance beside the scores of a document."""


# --- How models were asked, and how their answers were read


def models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Return the model of each tier, of a jury all of them in one name.

    Raises `InputError` where the answers of a tier name several, or none.
    """
    models = {}
    for tier in TIERS:
        names = set()
        for case in cases:
            if tier in case.judges:
                jurors = case.judges[tier].jurors
                names.add(together(juror.model for juror in jurors))
        if len(names) > 1 or "" in names:
            got = ", ".join(map(repr, sorted(names)))
            wanted = f"judges.{tier}.model: expected one model throughout, got {got}"
            why = "valid only for the models it was measured with"
            raise InputError(f"{wanted}; a calibration is {why}")
        if names:
            models[tier] = names.pop()
    return models


def asked(cases: Sequence[Case]) -> Asked:
    """Return the options with which all tiers were asked; the usual ones where there are no answers.

    Raises `InputError` where not all were asked with the same.
    """
    ways = set()
    for case in cases:
        for recorded in by_tier(case).values():
            ways.add((recorded.samples, recorded.criteria, recorded.rule, recorded.redact))
    if len(ways) > 1:
        wanted = "judges: expected the same samples, criteria, rule and redact throughout"
        raise InputError(
            f"{wanted}; a calibration is valid only for the options it was measured with"
        )
    if not ways:
        return USUALLY
    samples, criteria, rule, redact = ways.pop()
    return Asked(samples=samples, criteria=criteria, jury=rule, redact=redact)


def by_tier(case: Case) -> dict[TierName, Recorded]:
    """Return what the tiers recorded about a case, without judges of other names."""
    recorded = {}
    for tier in TIERS:
        if tier in case.judges:
            recorded[tier] = case.judges[tier]
    return recorded


class _Answer(NamedTuple):
    """The answer of one model about the case with this number."""

    number: int
    tier: TierName
    recorded: Recorded
    samples: int

    @property
    def voter(self) -> tuple[TierName, str]:
        return self.tier, self.recorded.model

    @property
    def has_fractions(self) -> bool:
        """Whether one reply has fractions among its scores, which it cannot give by itself."""
        scores = self.recorded.scores or {}
        return self.samples == 1 and any(score % 1 for score in scores.values())

    @property
    def answered(self) -> str:
        """The model that answered; of a record without that name, the one that was asked."""
        return self.recorded.answered or self.recorded.model

    def source(self, *, tells_fractions: bool) -> ScoreSource:
        """Return how the answer was read; of an older record, what its numbers say of that."""
        if self.recorded.read is not None:
            return self.recorded.read
        if self.samples == 1 and self.recorded.probabilities is not None:
            return "points"
        if self.samples == 1 and self.recorded.scores is not None and tells_fractions:
            return "expected"
        return "whole"


class Ways(NamedTuple):
    """How most opinions of each model came about, and by case the tiers in which they did otherwise."""

    read: Readings
    answered: Answered
    apart_by_case: list[frozenset[TierName]]


def usual_ways(cases: Sequence[Case]) -> Ways:
    """Find how most opinions of each model were read, and which model gave most of them."""
    answers = []
    for number, case in enumerate(cases):
        for tier, recorded in by_tier(case).items():
            for juror in recorded.jurors:
                if juror.failure is None:
                    answers.append(_Answer(number, tier, juror, samples=recorded.samples))
    # A model that gave fractions once told probabilities, and so its whole scores are expected ones as well.
    with_fractions = {answer.voter for answer in answers if answer.has_fractions}
    counts: dict[tuple[TierName, str], Counter[ScoreSource]] = defaultdict(Counter)
    answering: dict[tuple[TierName, str], Counter[str]] = defaultdict(Counter)
    sources = []
    for answer in answers:
        source = answer.source(tells_fractions=answer.voter in with_fractions)
        counts[answer.voter][source] += 1
        answering[answer.voter][answer.answered] += 1
        sources.append(source)
    usual_sources: Readings = {}
    usual_models: Answered = {}
    for tier, model in sorted(counts, key=lambda voter: (TIERS.index(voter[0]), voter[1])):
        usual_source, _ = counts[tier, model].most_common(1)[0]
        usual_sources.setdefault(tier, {})[model] = usual_source
        usual_model, _ = answering[tier, model].most_common(1)[0]
        usual_models.setdefault(tier, {})[model] = usual_model
    apart_by_case = [set[TierName]() for _ in cases]
    for answer, source in zip(answers, sources, strict=True):
        is_read_so = source == usual_sources[answer.tier][answer.recorded.model]
        if not is_read_so or answer.answered != usual_models[answer.tier][answer.recorded.model]:
            apart_by_case[answer.number].add(answer.tier)
    return Ways(usual_sources, usual_models, [frozenset(tiers) for tiers in apart_by_case])


# --- From recorded answers to opinions, as judging reads them


class Sample(NamedTuple):
    """A labelled document, or one labelled candidate, with the opinion of each tier that was asked.

    `ties` are the tiers whose tie on a pair counts as right. Where a pair `stands`, a win may stand against
    the next tier's tie. `wrong` are the tiers whose best of several is not the label. Where labels are
    `binary`, an improve is right about what is to be rejected.
    """

    id: str
    label: Outcome
    voices: Mapping[TierName, TierEvidence]
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
        return None if opinion.is_divided else opinion.outcome

    def margin(self, tier: TierName) -> float | None:
        """Return how far a tier's opinion is from another one, None where no gate may let it through."""
        opinion = self.voices.get(tier, FAILED)
        if opinion.outcome == "accept" and not opinion.sees_all:
            return None
        return opinion.margin

    @property
    def leanings(self) -> dict[TierName, float]:
        leanings = {}
        for tier, opinion in self.voices.items():
            if opinion.leaning is not None:
                leanings[tier] = opinion.leaning
        return leanings

    @property
    def margins(self) -> dict[TierName, float]:
        margins = {}
        for tier in self.voices:
            margin = self.margin(tier)
            if margin is not None:
                margins[tier] = margin
        return margins


def samples(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[Sample]:
    """Return the labelled documents, pairs or candidates of all cases; raises `InputError`."""
    reader = SampleReader(rubric, mode)
    apart_by_case = usual_ways(cases).apart_by_case
    all_samples: list[Sample] = []
    for case, apart in zip(cases, apart_by_case, strict=True):
        all_samples.extend(reader.samples(case, apart))
    if isinstance(rubric, CompareRubric):  # of a pair an improve is a tie, and no reject
        return all_samples
    if not is_binary(sample.label for sample in all_samples):
        return all_samples
    return [sample._replace(binary=True) for sample in all_samples]


class SampleReader(NamedTuple):
    """Reads recorded answers as judging would; raises `InputError` for what does not fit the rubric."""

    rubric: Rubric
    mode: ModeName

    def words(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        """Return the answer about the subject, under `WHOLE`, or about each candidate; None is unreadable."""
        if isinstance(self.rubric, CompareRubric):
            return {WHOLE: tier_vote(case, recorded).word}
        if isinstance(self.rubric, ScoreRubric) and case.subjects:
            scores_by_voter = []
            for voter, scores in read_points(case, recorded).items():
                scores_by_voter.append((voter.name, scores))
            means = standing.mean_scores(scores_by_voter, case.letters)
            if means is None:
                return {WHOLE: None}
            return {WHOLE: standing.last_word(means, margin=0.0, mode=self.mode) or TIE}
        evidence = self.evidence(self.rubric, case, recorded)
        return {part: opinion.outcome for part, opinion in evidence.items()}

    def score(self, case: Case, recorded: Recorded) -> float | None:
        """Return the mean of a document's scores, over the jury; None where too few of it could be read.

        Raises `InputError` for a label that is no score on the rubric's scale.
        """
        if not isinstance(self.rubric, ScoreRubric) or case.subjects:
            raise case.wrong("label: expected words; a number is for a scored document")
        scale = self.rubric.scale
        if case.score is not None and not scale.min <= case.score <= scale.max:
            wanted = f"a number from {scale.min} to {scale.max}, as on the rubric's scale"
            raise case.wrong(f"label: expected {wanted}, got {case.score:g}")
        means = []
        for juror in recorded.jurors:
            scores = _read_scores(self.rubric, case, juror)
            if scores:
                means.append(self.rubric.mean(scores))
        if jury.has_quorum(len(means), len(recorded.jurors)):
            return fmean(means)
        return None

    def rated(self, case: Case, recorded: Recorded) -> Mapping[str, float] | None:
        """Return a document's scores and, under `DISTANCE`, that from acceptance, where it has any."""
        if not isinstance(self.rubric, ScoreRubric) or case.subjects:
            return None
        return self._rated_opinion(self.rubric, self._read_opinion(self.rubric, case, recorded))

    def _rated_opinion(
        self, rubric: ScoreRubric, opinion: Opinion | None
    ) -> dict[str, float] | None:
        if opinion is None:
            return None
        distance = margin(rubric, opinion.scores, self.mode, signed=True)
        return {DISTANCE: distance, **opinion.scores}

    def labels(self, case: Case) -> dict[str, str]:
        """Return the label of the subject, under `WHOLE`, or of each candidate; raises `InputError`."""
        label = case.right(self.mode)
        if isinstance(self.rubric, SelectRubric):
            ids = [candidate.id for candidate in case.candidates]
            if not (ids and isinstance(label, list) and set(label) <= set(ids)):
                raise case.wrong("label: expected a list of ids of its candidates")
            labels: dict[str, str] = dict.fromkeys(ids, "reject")
            labels.update(dict.fromkeys(label, "accept"))
            return labels
        words: Sequence[str]
        if isinstance(self.rubric, CompareRubric):
            words = _BETTER
        elif case.subjects:
            words = (*case.letters, TIE)
        else:
            words = OUTCOMES
        if label not in words:
            raise case.wrong(f"label: expected {', '.join(words)}, got {label!r}")
        return {WHOLE: str(label)}

    def samples(self, case: Case, apart: Collection[TierName] = ()) -> Iterator[Sample]:
        """Yield the document, the pair or each candidate; opinions of tiers in `apart` have no margin."""
        recorded_by_tier = by_tier(case)
        ties: frozenset[TierName] = frozenset()
        is_lenient_pair = False
        evidence_by_tier: dict[TierName, dict[str, TierEvidence]] = {}  # each by part
        if isinstance(self.rubric, CompareRubric):
            votes = {tier: tier_vote(case, answer) for tier, answer in recorded_by_tier.items()}
            evidence = read_pair(votes, cut=find_cut_tiers(recorded_by_tier))
            for tier, opinion in evidence.items():
                evidence_by_tier[tier] = {WHOLE: opinion}
            labels = {WHOLE: self._label_of_pair(case, jury.favourite(votes))}
            # Where no winner is the costly error, a tie over a win does not count as right.
            is_lenient_pair = self.mode == "lenient"
            ties = _find_ties(evidence, up_to_a_win=is_lenient_pair)
        else:
            for tier, recorded in recorded_by_tier.items():
                evidence_by_tier[tier] = self.evidence(self.rubric, case, recorded)
            labels = self.labels(case)
        for part, label in labels.items():
            voices = {}
            for tier, evidence_by_part in evidence_by_tier.items():
                opinion = evidence_by_part[part]
                voices[tier] = opinion.without_margin() if tier in apart else opinion
            yield Sample(
                id=f"{case.id}/{part}" if part else case.id,
                label=cast("Outcome", label),
                voices=voices,
                ties=ties,
                stands=is_lenient_pair,
            )

    def _label_of_pair(self, case: Case, favourite: str | None) -> str:
        """Return "accept" where the label calls the favourite the better text, "improve" for a tie."""
        label = self.labels(case)[WHOLE]
        if label == TIE:
            return "improve"
        return "accept" if label == favourite else "reject"

    def evidence(
        self, rubric: ScoreRubric | SelectRubric, case: Case, recorded: Recorded
    ) -> dict[str, TierEvidence]:
        """Read a tier's evidence about a document, under `WHOLE`, or about each candidate."""
        decides = _decides(recorded)
        if isinstance(rubric, ScoreRubric):
            opinion = self._read_opinion(rubric, case, recorded)
            sees_all = not recorded.cut
            return {
                WHOLE: read_document(opinion, rubric, self.mode, decides=decides, sees_all=sees_all)
            }
        votes = []
        for juror in recorded.jurors:
            votes.append((juror.endpoint, self._read_marks(rubric, case, juror)))
        marks = jury.marks(votes, len(recorded.jurors), recorded.rule)
        evidence = {}
        for candidate in case.candidates:
            mark = marks.get(candidate.id)
            evidence[candidate.id] = read_candidate(
                mark, decides=decides, sees_all=not recorded.cut
            )
        return evidence

    def _read_opinion(self, rubric: ScoreRubric, case: Case, recorded: Recorded) -> Opinion | None:
        """Return the opinion of a tier on a document; None if too few of its jury could be read."""
        decide = partial(rubric.decide, mode=self.mode)
        votes = []
        for juror in recorded.jurors:
            scores = _read_scores(rubric, case, juror)
            if scores is not None:
                votes.append((juror.endpoint, Opinion(decide(scores), scores)))
        if not jury.has_quorum(len(votes), len(recorded.jurors)):
            return None
        return jury.opinion(votes, recorded.rule, decide)

    def _read_marks(self, rubric: SelectRubric, case: Case, recorded: Recorded) -> Marks:
        """Return the mark of each candidate that was judged, none where the answer cannot be read.

        Raises `InputError` for ids of no candidate.
        """
        ids = [candidate.id for candidate in case.candidates]
        for key in ("probabilities", "keep", "unjudged"):
            unknown_ids = sorted(set(getattr(recorded, key) or ()) - set(ids))
            if unknown_ids:
                got = ", ".join(unknown_ids)
                raise case.wrong(f"{key}: expected ids of its candidates, got {got}")
        marks: dict[str, Mark | None] = {}
        if recorded.probabilities is not None:
            marks = dict.fromkeys(ids)  # None without a probability
            for candidate_id, probability in recorded.probabilities.items():
                marks[candidate_id] = Mark(jury.leaning(probability), probability)
            return marks
        kept = recorded.keep
        if recorded.reply is not None:
            kept = self._read_kept(rubric, ids, recorded.reply)
        if kept is None:
            return marks
        for candidate_id in ids:
            if candidate_id not in recorded.unjudged:
                marks[candidate_id] = Mark("accept" if candidate_id in kept else "reject")
        return marks

    def _read_kept(self, rubric: SelectRubric, ids: list[str], reply: str) -> list[str] | None:
        """Return the candidates that a reply keeps; None where it cannot be read."""
        criteria = list(rubric.criteria)
        try:
            ids_by_key = extract.read(reply, select_reply_model(criteria, ids)).model_dump()
        except InvalidReply:
            return None
        ids_by_criterion = ids_by_key
        if len(criteria) == 1:  # then the reply does not name it
            ids_by_criterion = {criteria[0]: ids_by_key[KEEP]}
        kept = []
        for candidate_id in ids:
            holds = {name: candidate_id in ids_by_criterion[name] for name in criteria}
            if rubric.keeps(holds, self.mode):
                kept.append(candidate_id)
        return kept


def _decides(recorded: Recorded) -> bool:
    """Whether an answer is that of decision models alone."""
    return all(juror.read == "decided" for juror in recorded.jurors)


def find_cut_tiers(recorded_by_tier: Mapping[TierName, Recorded]) -> set[TierName]:
    """Return the tiers that did not see all of the text."""
    return {tier for tier, recorded in recorded_by_tier.items() if recorded.cut}


def _find_ties(evidence: Evidence, *, up_to_a_win: bool) -> frozenset[TierName]:
    """Return the tiers that see a tie; with `up_to_a_win` only those before the first that sees a winner."""
    ties = []
    for tier, opinion in evidence.items():
        if up_to_a_win and opinion.outcome == "accept":
            break
        if opinion.outcome == "improve":
            ties.append(tier)
    return frozenset(ties)


def _read_scores(rubric: ScoreRubric, case: Case, recorded: Recorded) -> dict[str, float] | None:
    """Return the scores of one model, also from its reply; None where it gave none that can be read.

    Raises `InputError` for scores of other dimensions than the rubric's.
    """
    scores = recorded.scores
    dimensions = rubric.dimensions
    if recorded.reply is not None:
        scale = rubric.scale
        binary = frozenset(name for name in dimensions if dimensions[name].scale)
        model = score_reply_model(tuple(dimensions), scale.min, scale.max, binary)
        try:
            answers = extract.read(recorded.reply, model).model_dump()["scores"]
        except InvalidReply:
            return None
        scores = {name: scale.answers.get(answer, answer) for name, answer in answers.items()}
    if scores is not None and set(scores) != set(dimensions):
        expected = ", ".join(dimensions)
        raise case.wrong(f"scores: expected {expected}, got {', '.join(scores)}")
    return scores


def tier_vote(case: Case, recorded: Recorded) -> TierVote:
    """Return what a tier said about two texts; raises `InputError` for an answer about something else."""
    votes = [(juror.endpoint, _read_vote(case, juror)) for juror in recorded.jurors]
    return jury.tier_vote(votes, recorded.rule)


def _read_vote(case: Case, recorded: Recorded) -> Vote | None:
    """Return which text one model prefers; None where it gave no answer that can be read."""
    if recorded.orders is not None:
        votes = [Vote(word) if word else None for word in recorded.orders.values()]
        return jury.vote(votes)
    probabilities = recorded.probabilities
    if probabilities is not None:
        if set(probabilities) != set(jury.WINS):
            got = ", ".join(sorted(probabilities)) or "nothing"
            raise case.wrong(f"probabilities: expected A and B, got {got}")
        ahead = probabilities["A"] - probabilities["B"]
        return Vote(jury.word_of(ahead), share=abs(ahead) or 1.0)  # a tie is a whole vote
    if recorded.choice in _BETTER:
        return Vote(cast("Better", recorded.choice))
    if recorded.failure is None:
        raise case.wrong(f"expected orders or a choice of {', '.join(_BETTER)}")
    return None


def read_points(case: Case, recorded: Recorded) -> standing.MeansByVoter:
    """Return by model and letter the scores that a text was given, none by a model that failed.

    Raises `InputError` where a model that did not fail has no points, or points for other texts.
    """
    scores_by_voter: dict[standing.Voter, Mapping[str, list[float]]] = {}
    for juror in recorded.jurors:
        is_fit = juror.points is not None and set(juror.points) <= set(case.letters)
        if juror.failure is None and not is_fit:
            raise case.wrong(f"expected points for {', '.join(case.letters)}, what each was given")
        voter = standing.Voter(juror.model, juror.endpoint.family)
        # A model may be on a jury several times.
        scores_by_letter = scores_by_voter.setdefault(voter, defaultdict(list))
        for letter, scores in (juror.points or {}).items():
            scores_by_letter[letter].extend(scores)
    return scores_by_voter

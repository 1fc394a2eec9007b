"""Evaluates judges of candidates: which ones a request needs."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, TypeGuard

from judgekit.errors import InvalidReply
from judgekit.evaluation.cases import Recorded
from judgekit.evaluation.task import RecordedAnswer, SeparateTiersTask, Tried, gives_decisions
from judgekit.judging import documents, fence, jury
from judgekit.judging.documents import Candidates, PromptCandidate
from judgekit.judging.evidence import read_candidate
from judgekit.judging.jury import Mark, Marks
from judgekit.judging.score_source import score_source
from judgekit.judging.select import CandidateJudge
from judgekit.judging.verdict import Selection
from judgekit.replies import extract
from judgekit.replies.forms import KEEP, make_select_reply_model
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from judgekit.evaluation.cases import Case
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.steps import End


class SelectionTask(SeparateTiersTask[SelectRubric, Candidates, Marks, Selection]):
    """A request's candidates, each kept or dropped."""

    name = "candidate"
    label_kind = "candidates"

    def judge(self, judge: DocumentJudge) -> CandidateJudge:
        return judge.as_judge(CandidateJudge)

    def build_subject(self, case: Case, inputs: NamedInputs | None) -> Candidates:
        """Build the query and its candidates, with the names that determine the candidates' order."""
        del inputs  # the case contains all texts
        name_by_id = get_sort_names(case)
        candidates = []
        for candidate in case.candidates:
            name = name_by_id[candidate.id]
            candidates.append(PromptCandidate.of(candidate, name, text=candidate.text))
        query = documents.Query(case.query)
        return Candidates(query, tuple(candidates))

    def read_turn(self, case: Case, turn: ModelTurn[Marks]) -> RecordedAnswer:
        """Turn a model's answer into a record: the candidates' probabilities, or the ids that it keeps.

        Returns {} if the model gave no answer.
        """
        marks_by_name = turn.answer.value
        if not marks_by_name:
            return {}

        mark_by_id = _find_marks_by_id(case, marks_by_name)
        judged = {candidate_id: mark for candidate_id, mark in mark_by_id.items() if mark}
        unjudged = [candidate_id for candidate_id, mark in mark_by_id.items() if not mark]

        probabilities = {}
        for candidate_id, mark in judged.items():
            if mark.probability is not None:
                probabilities[candidate_id] = mark.probability

        # The answer has no scores, so how it was read only depends on the endpoint.
        source = score_source(turn.endpoint, opinion=None)
        if probabilities:
            return {"probabilities": probabilities, "unjudged": unjudged, "read": source}

        keep = [candidate_id for candidate_id, mark in judged.items() if mark.outcome == "accept"]
        return {"keep": keep, "unjudged": unjudged, "read": source}

    def read_evidence(self, case: Case, recorded: Recorded) -> dict[str, TierEvidence]:
        """Read a tier's evidence about each candidate, combining the models in a jury."""
        votes = []
        for juror in recorded.jurors:
            votes.append((juror.endpoint, self._read_marks(case, juror)))
        marks = jury.combine_marks(votes, len(recorded.jurors), recorded.rule)
        evidence = {}
        for candidate in case.candidates:
            evidence[candidate.id] = read_candidate(
                marks.get(candidate.id),
                decides=gives_decisions(recorded),
                sees_all=not recorded.cut,
            )
        return evidence

    def _read_marks(self, case: Case, recorded: Recorded) -> Marks:
        """Read one model's mark on each candidate that it judged, by id. Returns {} for an unreadable answer.

        Raises `InputError` if the answer contains an unknown id.
        """
        ids = [candidate.id for candidate in case.candidates]
        _check_recorded_ids(case, recorded, ids)
        if recorded.probabilities is not None:
            return _mark_by_probability(ids, recorded.probabilities)

        # The candidates that the model keeps are recorded as ids, or are read from its reply.
        if recorded.reply is not None:
            kept_ids = self._read_kept(ids, recorded.reply)
        else:
            kept_ids = recorded.keep
        if kept_ids is None:
            return {}

        marks: Marks = {}
        for candidate_id in ids:
            if candidate_id not in recorded.unjudged:
                marks[candidate_id] = Mark("accept" if candidate_id in kept_ids else "reject")
        return marks

    def _read_kept(self, ids: list[str], reply: str) -> list[str] | None:
        """Read the ids of the candidates that a reply keeps. Returns None if the reply is unreadable.

        The reply lists the candidates that fulfil each criterion. The rubric decides which of them to keep.
        """
        criteria = list(self.rubric.criteria)
        try:
            ids_by_criterion = _read_ids_by_criterion(reply, criteria, ids)
        except InvalidReply:
            return None

        kept_ids = []
        for candidate_id in ids:
            holds = {name: candidate_id in ids_by_criterion[name] for name in criteria}
            if self.rubric.keeps(holds, self.mode):
                kept_ids.append(candidate_id)
        return kept_ids

    def label_words(self, case: Case) -> Sequence[str]:
        return [candidate.id for candidate in case.candidates]

    def read_labels(self, case: Case) -> dict[str, str]:
        """Label each candidate "accept" if the case's label lists it, otherwise "reject".

        Raises `InputError` if the label isn't a list of candidates.
        """
        label = case.get_label(self.mode)
        ids = [candidate.id for candidate in case.candidates]
        if not _is_list_of_candidates(label, ids):
            raise case.build_error("label: expected a list of ids of its candidates")

        labels = dict.fromkeys(ids, "reject")
        for candidate_id in label:
            labels[candidate_id] = "accept"
        return labels

    def record_ends(self, case: Case, ends: Mapping[str, End], calls: int) -> Recorded:
        """Record the candidates that are kept, and those that no tier decided about."""
        del case  # other tasks use it
        keep = []
        unjudged = []
        for candidate_id, end in ends.items():
            if end.verdict == "accept":
                keep.append(candidate_id)
            if end.tier is None:
                unjudged.append(candidate_id)
        return Recorded(calls=calls, keep=keep, unjudged=unjudged)

    def compare_with_label(self, case: Case, record: Selection) -> Iterator[Tried]:
        """Compare the judge's decision about each candidate with the label, which lists the ids to keep."""
        label = case.get_label(self.mode)
        assert isinstance(label, list)  # noqa: S101 - labels of a rubric's cases are lists of ids to keep
        # Reasons to trust the decisions less, such as a failed model.
        reservations = record.degraded or ""
        for decision in record.decisions:
            name = f"{case.id}/{decision.id}"
            expected = "kept" if decision.id in label else "dropped"
            yield Tried(name, self.mode, expected, said=decision.decision, why=reservations)


def _find_marks_by_id(case: Case, marks_by_name: Marks) -> Marks:
    """Find each candidate's mark by its id. A model's answer has the marks by the candidates' names."""
    id_by_name = {name: candidate_id for candidate_id, name in get_sort_names(case).items()}
    return {id_by_name[name]: mark for name, mark in marks_by_name.items()}


def _check_recorded_ids(case: Case, recorded: Recorded, ids: Sequence[str]) -> None:
    """Raise `InputError` if an answer contains an id that no candidate has."""
    for key in ("probabilities", "keep", "unjudged"):
        recorded_ids = getattr(recorded, key) or ()
        unknown_ids = sorted(set(recorded_ids) - set(ids))
        if unknown_ids:
            listed_ids = ", ".join(unknown_ids)
            raise case.build_error(f"{key}: expected ids of its candidates, got {listed_ids}")


def _mark_by_probability(ids: Sequence[str], probabilities: Mapping[str, float]) -> Marks:
    """Mark each candidate by its probability, or with None if it has none."""
    marks: Marks = dict.fromkeys(ids)
    for candidate_id, probability in probabilities.items():
        marks[candidate_id] = Mark(jury.decide_chance(probability), probability)
    return marks


def _read_ids_by_criterion(
    reply: str, criteria: Sequence[str], ids: list[str]
) -> dict[str, list[str]]:
    """Read the ids of the candidates that fulfil each criterion.

    Raises `InvalidReply` if the reply is unreadable.
    """
    reply_model = make_select_reply_model(criteria, ids)
    answer = extract.read_answer(reply, reply_model)
    ids_by_key = answer.model_dump()

    has_one_criterion = len(criteria) == 1
    if has_one_criterion:  # In this case, the reply doesn't contain the criterion's name.
        return {criteria[0]: ids_by_key[KEEP]}
    return ids_by_key


def _is_list_of_candidates(label: object, ids: Collection[str]) -> TypeGuard[list[str]]:
    """Say if a label is a list of a case's candidates. A case without candidates can't have one."""
    if not ids or not isinstance(label, list):
        return False
    known_ids = set(ids)
    return all(candidate_id in known_ids for candidate_id in label)


def get_sort_names(case: Case) -> dict[str, str]:
    """Return the name by which each candidate is sorted, by candidate id. Models don't see these names.

    Normally, the name is the id. In a swapped case, the names are changed to get another order.
    """
    ids = [candidate.id for candidate in case.candidates]
    if case.variant != "swapped":
        return dict(zip(ids, ids, strict=True))

    # Candidates are sorted by a hash of their names, so the order can't be chosen directly. Try eight sets of
    # names, and use the one that reverses the most pairs.
    name_sets = [_add_apostrophes(ids, count) for count in range(1, 9)]
    return max(name_sets, key=partial(_count_reversed_pairs, case.query, ids))


def _add_apostrophes(ids: Iterable[str], count: int) -> dict[str, str]:
    """Map ids to names with this number of apostrophes, such as "a" to "a''" if it's two."""
    return {candidate_id: candidate_id + "'" * count for candidate_id in ids}


def _count_reversed_pairs(query: str, ids: Sequence[str], name_by_id: Mapping[str, str]) -> int:
    """Count the pairs of candidates that a judge lists in reverse if they have these names instead of ids."""
    # A judge lists candidates in the shuffled order in which `fence.labels` returns them.
    ordered_ids = list(fence.assign_labels(query, ids))
    ordered_names = list(fence.assign_labels(query, list(name_by_id.values())))
    position_by_name = {name: position for position, name in enumerate(ordered_names)}

    positions = []
    for candidate_id in ordered_ids:
        name = name_by_id[candidate_id]
        positions.append(position_by_name[name])
    return sum(first > second for first, second in combinations(positions, 2))

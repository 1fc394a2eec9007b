"""The records of judging: the decisions, with every round that led to them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypedDict

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_serializer,
)
from pydantic.json_schema import SkipJsonSchema

from judgekit.config import TIE, DepthName, ModeName, TierName
from judgekit.errors import CostSource, FailureKind, Usage
from judgekit.judging.documents import Author
from judgekit.judging.html import record_html
from judgekit.text import escape_ci_commands, escape_name, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.rubric.loader import LoadedRubric


MAX_SHOWN = 200  # characters in a line for people
# A number as it was stated: an integer is written as one again.
Number: TypeAlias = int | float
Letter = Annotated[str, StringConstraints(pattern="^[A-Z]$")]
VerdictWord: TypeAlias = Literal["accept", "improve", "reject", "escalate", "undetermined"]
Consensus: TypeAlias = Literal["unanimous", "majority", "single", "none"]


# Clients of 0.1.0 that don't send `READS_ON_HEADER` refuse verdicts with unknown fields. Fields
# added since then are listed here by path ("because", "rounds.opinion_hash"), so that such clients
# don't get them.
LATER_FIELDS: frozenset[str] = frozenset({"because", "promise"})
# Kinds of failures those clients don't know, with the kind they get instead.
_EARLIER_KINDS: dict[object, str] = {FailureKind.PAYMENT.value: FailureKind.PERMISSION.value}
READS_ON_HEADER = "Judgekit-Unknown-Fields"  # its value is `READS_ON`
READS_ON = "ignore"


class _Record(BaseModel):
    """A record that is written with every field; a reader ignores fields of a newer version."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    def record(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON types, as `record` does."""
        return self.record()


class JudgedFile(_Record):
    """A file that was judged; `path` as it was given, `sha256` of the bytes."""

    __qualname__ = "Subject"  # its name in the published schema
    model_config = ConfigDict(title="Subject")

    path: str
    sha256: str


Subject = JudgedFile  # its published name, so that old pickles load


class RubricRef(_Record):
    """Which rubric file was applied."""

    id: str
    version: str
    sha256: str
    source: Literal["project", "user", "path"] | None = Field(
        default=None,
        exclude_if=operator.not_,
        description="path of the rubric, if it replaces the bundled rubric of this id",
    )


class Failure(_Record):
    """Why a round brought no opinion."""

    kind: FailureKind
    message: str


class Dismissed(_Record):
    """Who looked at a finding and found no problem, and when."""

    who: str
    at: AwareDatetime


class Finding(_Record):
    """One thing that a model found wanting in a document; the ledger has the `quote_hash` of its quote."""

    dimension: str = ""
    location: str = ""
    issue: str
    suggestion: str = ""
    quote: str = ""
    quote_hash: str = Field(default="", exclude_if=operator.not_)
    dismissed: Dismissed | None = Field(default=None, exclude_if=operator.not_)


class _OpinionRecord(_Record):
    """What a model said, as a round has it: only what was said is written.

    Readers go by which keys are there, and lines of a ledger have fewer than verdicts.
    """

    @model_serializer(mode="wrap")
    def _write_what_was_said(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = write(self)
        return {name: value for name, value in fields.items() if name in self.model_fields_set}


class ScoreOpinion(_OpinionRecord):
    """Scores of a text, and the outcome that the rubric's thresholds make of them.

    `said` is the model's own word, which decides nothing, and `dimensions` are those that its reasoning
    mentions. The rest is there only if it says something: of how many replies the scores are the mean
    (`samples`), which scores are means over the scale's points (`expected`), how likely a decision model
    calls each point (`probabilities`), and the name by which it was asked if another one answered (`asked`).
    """

    outcome: str | None = None  # other programs' records may have a word that isn't an `Outcome`
    scores: dict[str, Number] = {}
    reasoning: str = ""
    dimensions: list[str] = []
    findings: list[Finding] = []
    said: str | None = None
    samples: int = Field(default=1, exclude_if=lambda samples: samples == 1)
    expected: list[str] = Field(default=[], exclude_if=operator.not_)
    probabilities: dict[str, dict[str, Number]] = Field(default={}, exclude_if=operator.not_)
    asked: str = Field(default="", exclude_if=operator.not_)


class SelectOpinion(_OpinionRecord):
    """The candidates that a model keeps, and those on which it gave no answer, by id.

    `probabilities` say how likely each is to be kept; absent if the model gave none.
    """

    keep: list[str] = []
    unjudged: list[str] = []
    probabilities: dict[str, Number] = Field(default={}, exclude_if=operator.not_)


class PairOpinion(_OpinionRecord):
    """Which of two texts a model prefers, by its letter, or `tie`.

    `probabilities` of a decision model stand under `better`, by letter; absent if the model gave none.
    """

    better: str = TIE
    reasoning: str = ""
    probabilities: dict[str, dict[str, Number]] = Field(default={}, exclude_if=operator.not_)


OpinionRecord: TypeAlias = ScoreOpinion | SelectOpinion | PairOpinion


def _read_opinion(kind: type[OpinionRecord], value: object) -> object:
    """Read an opinion that any version of judgekit recorded, ignoring fields that can't be read."""
    if not isinstance(value, Mapping):  # pydantic will refuse it
        return value
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        # A problem's location is a path that starts with the field's name.
        invalid_names = {problem["loc"][0] for problem in error.errors()}
    valid_fields = {name: field for name, field in value.items() if name not in invalid_names}
    return kind.model_validate(valid_fields)


def _read_compared(value: object) -> object:
    """Read a round's opinion in a comparison: a choice between two texts, or the scores of a single text."""
    is_choice = isinstance(value, Mapping) and "better" in value
    if is_choice:
        return _read_opinion(PairOpinion, value)
    return _read_opinion(ScoreOpinion, value)


# Published schemas promise an object without naming its keys, because earlier records have others.
_PUBLISHED_OPINION: Final = WithJsonSchema(
    {"anyOf": [{"additionalProperties": True, "type": "object"}, {"type": "null"}]}
)


class RoundFields(TypedDict):
    """What every round says of its call."""

    model: str
    failure: Failure | None
    latency_ms: int
    usage: Usage


class Round(_Record):
    """One tier's turn: an opinion or a failure."""

    round: int
    tier: TierName
    model: str
    opinion: Annotated[
        ScoreOpinion | None,
        BeforeValidator(partial(_read_opinion, ScoreOpinion)),
        _PUBLISHED_OPINION,
    ] = None
    failure: Failure | None = None
    latency_ms: int = 0
    usage: Usage = Usage()


class SelectRound(_Record):
    """One tier's turn on candidates: an opinion or a failure."""

    round: int
    tier: TierName
    model: str
    opinion: Annotated[
        SelectOpinion | None,
        BeforeValidator(partial(_read_opinion, SelectOpinion)),
        _PUBLISHED_OPINION,
    ] = None
    failure: Failure | None = None
    latency_ms: int = 0
    usage: Usage = Usage()


class CompareRound(_Record):
    """One call: an opinion or a failure. `order` holds the letters as the model saw them, one when scored.

    `criterion` is the one that was asked about alone; of several replies `sample` is the number, from 1.
    """

    round: int
    tier: TierName
    model: str
    order: list[Letter]
    criterion: str | None = None
    sample: int | None = None
    opinion: Annotated[
        PairOpinion | ScoreOpinion | None, BeforeValidator(_read_compared), _PUBLISHED_OPINION
    ] = None
    failure: Failure | None = None
    latency_ms: int = 0
    usage: Usage = Usage()


AnyRound: TypeAlias = Round | SelectRound | CompareRound


class ReviewedFinding(Finding):
    """A finding after a review, by families: it `held` if another one confirmed it with a quote.

    `evidence` has the quotes of those that confirmed or refuted it. It was `checked` if another family gave
    an answer that counts; `dropped` says why code left it out before.
    """

    raised_by: list[str]
    confirmed_by: list[str] = []
    refuted_by: list[str] = []
    evidence: dict[str, str] = {}
    held: bool
    checked: bool
    dropped: str = ""


class Depth(_Record):
    """How deep a text was judged, and which rule said so."""

    depth: DepthName
    rule: str


class Override(_Record):
    """A person's decision that stands instead of the models'."""

    decision: Literal["accept", "reject"]
    why: str
    who: str
    at: AwareDatetime


class AgreementPromise(_Record):
    """The promise of agreement under which a row was judged.

    At least `share` of the run's rows have the verdict that `deep`, asked alone, would have given, with 95 %
    confidence. Verdicts agree if they are the same word or, if `on` is "accepted", both accept or neither
    does. `first_tier` said `first` (null: it had no opinion that could be final). `rate` is the share of rows
    that `deep` was asked about whatever the first tier said; `sampled` says whether this row is one of them,
    and `counted` whether it's one of those that say how good the final first opinions are. `again` is the
    verdict that `deep` gave when it was asked twice.
    """

    share: float
    on: Literal["verdict", "accepted"]
    first_tier: TierName
    first: Literal["accept", "improve", "reject"] | None = None
    rate: float | None = None
    sampled: bool = False
    counted: bool = False
    again: VerdictWord | None = Field(default=None, exclude_if=operator.not_)

    def __str__(self) -> str:
        """Describe it in a few words, such as `promise 0.95, sampled 1 in 9`."""
        if not self.rate:
            return f"promise {self.share:g}"
        return f"promise {self.share:g}, sampled 1 in {1 / self.rate:.2g}"


class Verdict(_Record):
    """What was decided about one subject (one document, or the files of one task).

    `cost_source` says who states the cost, `cost_complete` whether it includes every call; null if an older
    version didn't say. `redacted` is the number of secrets removed before sending; absent if there were none.
    `substitutes` are the providers asked in place of the author's own family; absent if there were none.
    `noise`, in points, is there if the scores are nearer to the threshold of acceptance than that: judged
    again, the text may get the other answer.
    `depth` is absent if no rule chose it, and `review` if no finding was reviewed.
    `because` is the row of the table of escalation that ended the judging; an older version did not say.
    `promise` is there if the row was judged under a promise of agreement.
    """

    schema_: Literal["judgekit/verdict@1"] = Field(default="judgekit/verdict@1", alias="schema")
    id: str
    task_id: str
    subjects: list[JudgedFile]
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    calibration: str | None = None
    verdict: VerdictWord
    scores: dict[str, float] | None = None
    average: float | None = None
    reasoning: str = ""
    findings: list[Finding] = []
    review: list[ReviewedFinding] = Field(default=[], exclude_if=operator.not_)
    depth: Depth | None = Field(default=None, exclude_if=operator.not_)
    consensus: Consensus
    because: str = Field(default="", exclude_if=operator.not_)
    judge_tier: TierName | None = None
    promise: AgreementPromise | None = Field(default=None, exclude_if=operator.not_)
    model: str | None = None
    rounds: list[Round] = []
    degraded: str | None = None
    truncated: bool = False
    redacted: int = Field(default=0, exclude_if=operator.not_)
    substitutes: list[str] = Field(default=[], exclude_if=operator.not_)
    noise: float | None = Field(default=None, exclude_if=operator.not_)
    author: Author = Author()
    independent: bool | None = None
    human_override: Override | None = None
    commit: str | None = None
    timestamp: AwareDatetime
    duration_ms: int
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cost_complete: bool | None = None
    # Maps the name in a model's reply to the name it was asked under. Only the ledger has it.
    configured: SkipJsonSchema[dict[str, str]] = Field(default={}, exclude=True)
    # The opinion's distance from another outcome, for first opinions under a promise only.
    margin: SkipJsonSchema[float | None] = Field(default=None, exclude=True)

    @property
    def accepted(self) -> bool:
        return self.verdict == "accept"

    @property
    def name(self) -> str:
        """The subject's name."""
        if not self.subjects:
            return self.task_id
        # A file's id ends with a part of its hash, which users don't need to see.
        return self.task_id.removesuffix(f"@{self.subjects[0].sha256[:16]}")

    def __repr__(self) -> str:
        """Return a line for people; `to_dict` has everything."""
        mean = "" if self.average is None else f", mean {self.average:g}"
        return escape_name(
            f"<Verdict {self.verdict}: {shorten_to_line(self.name, MAX_SHOWN)}{mean}>"
        )

    def _repr_html_(self) -> str:
        findings = [(finding.issue, finding.quote) for finding in self.findings]
        return record_html(str(self), findings)

    def __str__(self) -> str:
        """Return three lines for users: the verdict, the scores and models, and the reason."""
        details = [self._list_scores(), self._name_judge(), _describe_cost(self)]
        return _join_three_lines(f"{self.verdict}: {self.name}", details, self._find_reason())

    def _list_scores(self) -> str:
        """List the scores for users, such as: clarity 4, accuracy 3 (mean 3.5)."""
        if not self.scores:
            return "no scores"
        scores = ", ".join(f"{dimension} {score:g}" for dimension, score in self.scores.items())
        if self.average is None:
            return scores
        return f"{scores} (mean {self.average:g})"

    def _name_judge(self) -> str:
        """Name the person or the models that decided."""
        if self.human_override:
            return f"decided by {self.human_override.who}"
        models = self.model or _list_models(self.rounds)
        # A promise limits how often a verdict differs from the deep tier's, so say which tier decided.
        if self.promise and self.judge_tier:
            return f"{models}, decided by {self.judge_tier} ({self.promise})"
        return models

    def _find_reason(self) -> str:
        """Return the reason for the verdict. A person's reason replaces that of the models."""
        if self.human_override:
            return self.human_override.why
        # `degraded` says what went wrong, which is why nothing was decided.
        if self.verdict == "undetermined" and self.degraded:
            return self.degraded
        return self.reasoning


class Decision(_Record):
    """What was decided about one candidate, and by which tier (None: nobody decided).

    `because` is the row of the table of escalation that ended its judging.
    """

    id: str
    decision: Literal["kept", "dropped", "undetermined"]
    tier: TierName | None = None
    probability: float | None = None
    because: str = Field(default="", exclude_if=operator.not_)


class Selection(_Record):
    """Which candidates were kept for one query; `degraded` says why some are left undetermined, if so.

    `stale` says why a calibration that is there was not used, `by_decisions` whether decision models alone
    were asked.
    """

    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    calibration: str | None = None
    stale: str | None = None
    by_decisions: bool = False
    decisions: list[Decision]
    rounds: list[SelectRound] = []
    degraded: str | None = None
    duration_ms: int
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cost_complete: bool | None = None


def drop_later_fields(record: dict[str, object]) -> None:
    """Remove or replace what a client of version 0.1.0 can't read in a verdict's `record`, in place."""
    rounds = _find_children([record], "rounds")
    for failure in _find_children(rounds, "failure"):
        kind = failure["kind"]
        failure["kind"] = _EARLIER_KINDS.get(kind, kind)
    for path in LATER_FIELDS:
        _drop_field(record, path)


def _find_children(owners: Sequence[dict[str, object]], name: str) -> list[dict[str, object]]:
    """Collect the objects under a key in each owner. The value can be an object or a list of objects."""
    children = []
    for owner in owners:
        value = owner.get(name)
        members = value if isinstance(value, list) else [value]
        # The key can be null or missing.
        children += [member for member in members if isinstance(member, dict)]
    return children


def _drop_field(record: dict[str, object], path: str) -> None:
    """Remove a field from all objects that have it. A path is like `rounds.opinion.asked`."""
    *parents, name = path.split(".")
    owners = [record]
    for parent in parents:
        owners = _find_children(owners, parent)
    for owner in owners:
        owner.pop(name, None)


def build_rubric_ref(loaded: LoadedRubric) -> RubricRef:
    """Build a record's reference to the rubric file."""
    rubric = loaded.rubric
    return RubricRef(
        id=rubric.rubric, version=rubric.version, sha256=loaded.sha256, source=loaded.source
    )


Word = Annotated[str, StringConstraints(pattern="^([A-Z]|tie|escalate|undetermined)$")]


class Contestant(_Record):
    """One of the subjects, and which `family` of models wrote it, where that is said.

    `score` is its mean where subjects are scored, over all that tiers gave it.
    """

    letter: Letter
    path: str
    sha256: str
    family: str | None = None
    score: float | None = None
    tier: TierName | None = None


class Comparison(_Record):
    """What was decided between subjects: the letter of the better one, `tie`, or that it is not known.

    `lead` is by how much: the share of the deciding tier's families, or points of the scale. `prompt_sha256`
    is the hash of the rubric's templates, `question_sha256` that of the prompt which the subjects answer.
    `families` are those of the models behind the verdict; `independent` says whether there is one among them
    that wrote none of the subjects. `redacted` secrets were left out of what was sent. `substitutes` are the
    providers that were asked in place of the authors' own families. `because` is the row of the table of
    escalation that ended the judging; an older version did not say.
    """

    schema_: Literal["judgekit/comparison@1"] = Field(
        default="judgekit/comparison@1", alias="schema"
    )
    id: str
    subjects: list[Contestant]
    question_sha256: str
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    calibration: str | None = None
    verdict: Word
    lead: float | None = None
    reasoning: str = ""
    consensus: Consensus
    because: str = Field(default="", exclude_if=operator.not_)
    judge_tier: TierName | None = None
    rounds: list[CompareRound] = []
    degraded: str | None = None
    truncated: bool = False
    families: list[str] = []
    independent: bool | None = None
    redacted: int = 0
    substitutes: list[str] = []
    timestamp: AwareDatetime
    duration_ms: int
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cost_complete: bool = True

    @property
    def decided(self) -> bool:
        return self.verdict == TIE or len(self.verdict) == 1

    def __repr__(self) -> str:
        """Return a line for people; `to_dict` has everything."""
        letters = ", ".join(subject.letter for subject in self.subjects)
        return f"<Comparison {self.verdict}: of {letters}>"

    def _repr_html_(self) -> str:
        return record_html(str(self))

    def __str__(self) -> str:
        """Return three lines for users: the better text, the scores and models, and the reason."""
        deciding_rounds = [
            row for row in self.rounds if row.tier == self.judge_tier and row.opinion
        ]
        # If no round decided, list all models that were asked.
        details = [_list_models(deciding_rounds or self.rounds), _describe_cost(self)]
        scores = self._list_scores()
        if scores:  # they come first
            details = [scores, *details]

        reason = self.reasoning
        if not self.decided:
            reason = self.degraded or reason
        return _join_three_lines(self._describe_winner(), details, reason)

    def _list_scores(self) -> str:
        """List the subjects' scores for users, such as: A 4, B 3.5."""
        scores = []
        for subject in self.subjects:
            if subject.score is not None:
                scores.append(f"{subject.letter} {subject.score:g}")
        return ", ".join(scores)

    def _describe_winner(self) -> str:
        """Say which text is better than the others, or that the verdict is a tie or undetermined."""
        name_by_letter = {subject.letter: _name_subject(subject) for subject in self.subjects}
        # The verdict is the winner's letter, or a word such as "tie".
        winner = name_by_letter.pop(self.verdict, None)
        other_names = ", ".join(name_by_letter.values())
        if winner is None:
            return f"{self.verdict}: {other_names}"
        return f"{winner} is better than {other_names}"


def _name_subject(subject: Contestant) -> str:
    """Name a text by its letter, and by its path if it has one: A (draft.md)."""
    if subject.path == subject.letter:
        return subject.letter
    return f"{subject.letter} ({subject.path})"


def _list_models(rounds: Sequence[AnyRound]) -> str:
    """List the names of the rounds' models for users, without duplicates."""
    if not rounds:
        return "no model was asked"
    names = dict.fromkeys(row.model for row in rounds)
    return ", ".join(names)


def _describe_cost(record: Verdict | Comparison) -> str:
    """Describe the cost of a record's calls, for people."""
    if record.cost_usd is None:
        return "cost unknown" if record.rounds else "no cost"
    cost = f"{record.cost_usd:.4f} USD"
    is_partial = record.cost_complete is False  # it's None in older records
    return f"at least {cost}" if is_partial else cost


def _join_three_lines(headline: str, details: Sequence[str], reason: str) -> str:
    """Join a headline, details and a reason, each shortened to one line and safe for a terminal."""
    lines = [
        _make_safe_line(escape_name(headline)),
        _make_safe_line(escape_name("; ".join(details))),
        # Escaping the reason would show its invisible characters. `_make_safe_line` removes them instead.
        _make_safe_line(reason) or "no reason given",
    ]
    return "\n".join(lines)


def _make_safe_line(text: str) -> str:
    """Shorten a text to one line without invisible characters and CI commands."""
    return escape_ci_commands(shorten_to_line(text, MAX_SHOWN))

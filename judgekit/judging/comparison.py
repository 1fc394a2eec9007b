"""What is compared, and the record of how that ended.

Subjects have letters, and answer one prompt.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from judgekit.config.names import ModeName, TierName
from judgekit.errors import CostSource
from judgekit.judging import authors
from judgekit.judging.authors import is_independent, lacking
from judgekit.judging.verdict import (
    LETTERS,
    TIE,
    CompareRound,
    Consensus,
    Letter,
    RubricRef,
    cost_of,
    failures,
    rubric_ref,
)
from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.errors import GatewayError
    from judgekit.judging.authors import Independence
    from judgekit.judging.judge import Judge
    from judgekit.judging.subject import File
    from judgekit.rubric.loader import LoadedRubric


Word = Annotated[str, StringConstraints(pattern="^([A-Z]|tie|escalate|undetermined)$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
    providers that were asked in place of the authors' own families.
    """

    schema_: Literal["judgekit/comparison@1"] = Field(default="judgekit/comparison@1", alias="schema")
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
        """Whether there is a winner or a tie."""
        return self.verdict == TIE or len(self.verdict) == 1


LEAST, MOST = 2, len(LETTERS)


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """Subjects, called A, B, … in their order, and the prompt that they answer.

    `authors` says of each which families of models wrote it, as `judgekit.judging.authors.named` reads it:
    "none" for a person's, None where nothing is said.
    """

    prompt: str
    files: tuple[File, ...]
    authors: tuple[str | None, ...] = ()

    @property
    def size(self) -> int:
        """How many characters there are to look through."""
        return len(self.prompt) + sum(len(file.text) for file in self.files)

    @property
    def letters(self) -> str:
        """The letters of the subjects."""
        return LETTERS[: len(self.files)]

    def file(self, letter: str) -> File:
        """Return the subject that a letter stands for."""
        return self.files[LETTERS.index(letter)]

    def original(self, letter: str) -> str:
        """Return the first subject with the same text: one that is no copy is its own."""
        sha256 = self.file(letter).sha256
        return next(letter for letter in self.letters if self.file(letter).sha256 == sha256)

    @property
    def distinct(self) -> tuple[str, ...]:
        """The letters of the subjects that are no copies of an earlier one."""
        return tuple(letter for letter in self.letters if self.original(letter) == letter)

    def has_copy(self, letter: str) -> bool:
        """Whether another subject has the same text."""
        return sum(self.original(each) == self.original(letter) for each in self.letters) > 1

    def author(self, letter: str) -> str | None:
        """Return what is said of who wrote a subject."""
        place = LETTERS.index(letter)
        return self.authors[place] if place < len(self.authors) else None

    def families(self, letter: str) -> tuple[str, ...]:
        """Return the families that wrote a subject, as far as it is said."""
        return authors.named(self.author(letter))

    def written_by(self, family: str | None) -> ComparisonInput:
        """Return the same where `family` wrote the subjects of which nothing is said."""
        return replace(self, authors=tuple(self.author(letter) or family for letter in self.letters))

    @property
    def wrote(self) -> tuple[str, ...]:
        """The families that wrote any subject, "unknown" among them where of some nothing is said."""
        found = [family for letter in self.letters for family in self.families(letter)]
        silent = any(self.author(letter) is None for letter in self.letters)
        return tuple(dict.fromkeys([*found, *([UNKNOWN_FAMILY] if found and silent else [])]))

    @property
    def sided(self) -> tuple[str, ...]:
        """The families that wrote some subjects and not the others: their models have a favourite."""
        wrote = Counter(family for letter in self.letters for family in self.families(letter))
        return tuple(each for each in wrote if each != UNKNOWN_FAMILY and wrote[each] < len(self.files))

    def subject(self, order: str) -> str:
        """Return one hash for the prompt and the subjects as they are shown, by which a reply is known."""
        shown = "\0".join([self.prompt, *(self.file(each).sha256 for each in order)])
        return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ComparisonContext:
    """Under what was compared: `nobody` says why no model was there, `notes` what else is to be known.

    `redacted` secrets were left out of what models were asked. `substitutes` are the providers that were
    asked only because of who wrote the texts. `independence` is what a win must have.
    """

    loaded: LoadedRubric
    mode: ModeName
    calibration: str | None = None
    nobody: str = ""
    notes: str | None = None
    redacted: int = 0
    independence: Independence = "prefer"
    substitutes: Sequence[str] = ()


def terms_of(
    judge: Judge[Any], nobody: str, note: str | None, redacted: int, rounds: Sequence[CompareRound]
) -> ComparisonContext:
    """Return under what a judge compared; `note` stands before what it says of its calibration."""
    return ComparisonContext(
        judge.loaded,
        judge.mode,
        judge.finality.id if judge.finality else None,
        nobody,
        "; ".join(filter(None, (note, judge.calibration_warning))) or None,
        redacted,
        judge.independence,
        judge.asked_instead({compare_round.tier for compare_round in rounds}),
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a comparison: the word, by how much, who settled it, and the families of who said so."""

    verdict: str
    consensus: Consensus
    tier: TierName | None = None
    lead: float | None = None
    reasoning: str = ""
    degraded: str | None = None
    truncated: bool = False
    families: tuple[str, ...] = ()


def identical(comparison_input: ComparisonInput) -> Ended:
    """Return the end of a comparison of a text with itself, of which nobody is asked."""
    few = "two texts" if len(comparison_input.files) == LEAST else "texts"
    return Ended(TIE, "none", lead=0.0, reasoning=f"The {few} are the same.")


def comparison(
    comparison_input: ComparisonInput,
    terms: ComparisonContext,
    ended: Ended,
    rounds: Sequence[CompareRound],
    duration_ms: int,
    scores: Mapping[str, tuple[float, TierName]] | None = None,
) -> Comparison:
    """Return the record of a comparison; `scores` holds the mean of each subject and the last tier's name."""
    known, ended = scores or {}, _demanding(comparison_input, terms, ended)
    subjects = [
        Contestant(
            letter=letter,
            path=file.path,
            sha256=file.sha256,
            family=authors.listed(comparison_input.families(letter)),
            score=round(known[letter][0], 4) if letter in known else None,
            tier=known[letter][1] if letter in known else None,
        )
        for letter, file in zip(comparison_input.letters, comparison_input.files, strict=True)
    ]
    nothing = f"nothing was judged: {terms.nobody}" if terms.nobody and not rounds else None
    degraded = [nothing, ended.degraded, failures(rounds), terms.notes]
    return Comparison(
        id=uuid.uuid4().hex,
        subjects=subjects,
        question_sha256=hashlib.sha256(comparison_input.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        rubric=rubric_ref(terms.loaded),
        mode=terms.mode,
        prompt_sha256=terms.loaded.rubric.prompt.sha256,
        calibration=terms.calibration,
        verdict=ended.verdict,
        lead=None if ended.lead is None else round(ended.lead, 4),
        reasoning=ended.reasoning,
        consensus=ended.consensus,
        judge_tier=ended.tier,
        rounds=list(rounds),
        degraded="; ".join(filter(None, degraded)) or None,
        truncated=ended.truncated,
        families=list(ended.families),
        independent=is_independent(comparison_input.wrote, ended.families),
        redacted=terms.redacted if rounds else 0,
        substitutes=list(terms.substitutes),
        timestamp=datetime.now(UTC),
        duration_ms=duration_ms,
        **cost_of(rounds),
    )


def unprepared(
    comparison_input: ComparisonInput,
    loaded: LoadedRubric,
    mode: ModeName,
    error: GatewayError,
    duration_ms: int,
) -> Comparison:
    """Return the record of a comparison whose texts could not be prepared by the deadline."""
    terms = ComparisonContext(loaded, mode, nobody=f"{error.kind} ({error.message})")
    return comparison(comparison_input, terms, Ended("undetermined", "none"), (), duration_ms)


def _demanding(comparison_input: ComparisonInput, terms: ComparisonContext, ended: Ended) -> Ended:
    """Return the end of a comparison where a win by the winner's own family alone is none, if it has to."""
    if ended.verdict not in tuple(comparison_input.letters):
        return ended
    why = lacking(terms.independence, comparison_input.families(ended.verdict), ended.families)
    if why is None:
        return ended
    told = "; ".join(filter(None, (why, ended.degraded)))
    return Ended("undetermined", "none", degraded=told, truncated=ended.truncated, families=ended.families)

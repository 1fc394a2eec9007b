"""What models are asked: a task turns its subject into a questionnaire, and every kind of model answers it.

A questionnaire holds what every model is told, and typed questions by name. Each kind of model has an asker,
which adds its own words to them and reads the answers: `writing.py`, `decisions.py` and `pointwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from judgekit.config import TIE

if TYPE_CHECKING:
    from judgekit.judging.claims import Claim
    from judgekit.judging.fence import Fence
    from judgekit.judging.round import Answer, Session
    from judgekit.judging.verdict import Finding
    from judgekit.providers.base import CallKey, Endpoint, Messages

Context: TypeAlias = Callable[["Fence"], str]
"""Writes the subject into a fence: of a long text that takes its time, so not before it is asked about."""
Points: TypeAlias = Mapping[str, float]
"""By the name of a question, the points of its answer: between two of them where probabilities say so."""
Shares: TypeAlias = Mapping[str, Mapping[str, float]]
"""By the name of a question, the probability of each possible answer."""


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """A question in a rubric's words: yes or no, a point of a scale, or one of several choices.

    `options` are the points, the lowest first, or the choices, each with what it means.
    """

    text: str
    kind: Literal["predicate", "score", "choice"] = "predicate"
    options: Mapping[str, str] = field(default_factory=dict)
    look_for: Sequence[str] = ()
    split_claims: Callable[[], Sequence[Claim]] | None = None
    """Takes the text apart, if each of its claims may be asked about in place of the whole."""

    @property
    def values(self) -> tuple[str, ...]:
        """All possible answers."""
        return ("yes", "no") if self.kind == "predicate" else tuple(self.options)

    @property
    def ideal(self) -> str:
        """The question, with what a good text has."""
        if not self.look_for:
            return self.text
        return f"{self.text} A good text has: {'; '.join(self.look_for)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Questionnaire:
    """What is asked about one subject: `system`, examples and `context` are what every model is told."""

    call_key: CallKey
    timeout: float
    """Seconds; of a model that answers one question at a time, for each."""
    system: str
    instructions: str = ""
    """What a tier is to do: for models that say how they come to an answer."""
    context: Context
    size: int = 0
    """Characters that the context is made of."""
    cut_at: int | None = None
    """How many of them are sent of a text that is longer; None where all are."""
    questions: Mapping[str, TypedQuestion]
    labels: Mapping[str, str] = field(default_factory=dict)
    """What each name that the context gives stands for: the id of a candidate, or the hash of a text."""
    is_listing: bool = False
    """Whether each question is asked of each label."""
    points_of_words: Mapping[str, int] = field(default_factory=lambda: {"yes": 1, "no": 0})
    part: str = ""
    """The one question of a rubric that this is about, where the others are asked apart."""
    examples: Sequence[str] = ()
    """A heading, and texts with their scores."""
    are_examples_for_all: bool = False
    """Whether models that write are shown them, too."""
    turns: Sequence[tuple[Context, str]] = ()
    """Examples as turns of a conversation: what was asked, and the one word that was right."""
    earlier: Sequence[str] = ()
    """What others said of the subject; only a model that writes is shown it."""
    findings: tuple[Sequence[str], Sequence[str]] | None = None
    """After a review: the findings that were upheld, and those that nobody checked."""
    controls: Sequence[Control] = ()

    def guarded_system(self, fence: Fence) -> str:
        """Return what is told before the subject; the nonce comes last, so that the rest is cached."""
        if not self.examples:
            return f"{self.system} {fence.guard}"
        return "\n\n".join([self.system, *self.examples, fence.guard])

    def names_of_answers(self) -> Iterator[str]:
        """Yield the name of each answer whose points count."""
        for label in self.labels if self.is_listing else ("",):
            for name, question in self.questions.items():
                if question.kind != "choice":
                    yield self.question_of(label, name) if label else name

    def question_of(self, label: str, name: str) -> str:
        """Return the name of a question about a label."""
        return f"{label}.{name}"


class Control(NamedTuple):
    """Questions to which a yes means nothing: what makes it likely even then is not the subject."""

    questionnaire: Questionnaire
    is_needed: Callable[[Points], bool]
    """Whether what was earned so far is enough to matter."""
    weigh: Callable[[Points, Points], Points]
    """Returns what the answers earn, beside those of the control."""
    is_shown: bool = True
    """Whether people are shown it among the prompts."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What one model answered, by the name of each question; of a listing that is `LABEL.NAME`."""

    points: Points = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)
    """The probabilities, from models that give them."""
    choice: str = TIE
    """The text that a model prefers in words."""
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    said: str | None = None
    """The model's own verdict word, which decides nothing."""
    expected: tuple[str, ...] = ()
    """The questions whose points are means over the scale, by the probabilities of a reply's tokens."""


def mean_points(
    probabilities: Mapping[str, float], points_of_words: Mapping[str, int] = {}
) -> float:
    """Return the mean of points by their probabilities."""
    weighted_points = []
    for word, probability in probabilities.items():
        point = points_of_words[word] if word in points_of_words else int(word)
        weighted_points.append(point * probability)
    return sum(weighted_points)


class Asker(Protocol):
    """Asks models of one kind."""

    @property
    def bars(self) -> Sequence[float]:
        """The numbers by which answers are read: with others the same reply is another opinion."""
        ...

    def prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        """Return what would be sent, in order, for people to read."""
        ...

    def words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        """Return all that is sent, and the schema of the reply: what an opinion depends on."""
        ...

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        """Ask a model; of several replies to the same, `sample` is the number."""
        ...

"""The form of every question: a task turns its subject into a questionnaire that any kind of model answers.

A questionnaire holds the text that every model gets, and typed questions by name. Each kind of model has an
asker that adds its own words and reads the answers: `writing.py`, `decisions.py` and `pointwise.py`.
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
"""Writes the subject into a fence, only when needed: for a long text it takes time."""
Points: TypeAlias = Mapping[str, float]
"""An answer's points by the question's name; probabilities may put them between two levels."""
Shares: TypeAlias = Mapping[str, Mapping[str, float]]
"""The probability of each possible answer, by the question's name."""


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """A question in a rubric's words: yes or no, a point of a scale, or one of several choices.

    `options` are the points, the lowest first, or the choices, each with its meaning.
    """

    text: str
    kind: Literal["predicate", "score", "choice"] = "predicate"
    options: Mapping[str, str] = field(default_factory=dict)
    look_for: Sequence[str] = ()
    split_claims: Callable[[], Sequence[Claim]] | None = None
    """Splits the text, if each of its claims may be asked about instead of the whole."""

    @property
    def values(self) -> tuple[str, ...]:
        """All possible answers."""
        if self.kind == "predicate":
            return ("yes", "no")
        return tuple(self.options)

    @property
    def text_with_qualities(self) -> str:
        """The question, followed by the qualities of a good text."""
        if not self.look_for:
            return self.text
        return f"{self.text} A good text has: {'; '.join(self.look_for)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Questionnaire:
    """The questions about one subject. Every model gets `system`, the examples and `context`."""

    call_key: CallKey
    timeout: float
    """Seconds: for each question if a model answers one at a time, else for them all."""
    system: str
    instructions: str = ""
    """The tier's instructions, for models that explain their answers."""
    context: Context
    char_count: int = 0
    """The length of the context in characters."""
    cut_at_chars: int | None = None
    """The limit in characters if the text is sent cut; None if it's sent whole."""
    questions: Mapping[str, TypedQuestion]
    labels: Mapping[str, str] = field(default_factory=dict)
    """The meaning of each name in the context: a candidate's id, or a text's hash."""
    is_listing: bool = False
    """Whether each question is asked about each label."""
    points_of_words: Mapping[str, int] = field(default_factory=lambda: {"yes": 1, "no": 0})
    part: str = ""
    """The only question of the rubric that this covers, if the others are asked separately."""
    examples: Sequence[str] = ()
    """A heading, and texts with their scores."""
    are_examples_for_all: bool = False
    """Whether models that write see them too."""
    example_turns: Sequence[tuple[Context, str]] = ()
    """Examples as turns of a conversation: a question, and the one right word."""
    earlier_opinions: Sequence[str] = ()
    """Other models' opinions of the subject, shown only to models that write."""
    findings: tuple[Sequence[str], Sequence[str]] | None = None
    """After a review: the findings that were upheld, and those nobody checked."""
    controls: Sequence[Control] = ()

    def write_guarded_system(self, fence: Fence) -> str:
        """Write the system prompt, the examples, and the guard, which explains the fence to the model."""
        # The guard contains a nonce, so it comes last, and servers can cache everything before it.
        if not self.examples:
            return f"{self.system} {fence.guard}"
        return "\n\n".join([self.system, *self.examples, fence.guard])

    def list_answer_names(self) -> Iterator[str]:
        """Yield the name of each answer with points. A listing has an answer for each label and question."""
        # A choice between texts has no points.
        names = [name for name, question in self.questions.items() if question.kind != "choice"]
        if not self.is_listing:
            yield from names
            return
        for label in self.labels:
            for name in names:
                yield self.name_question(label, name)

    def name_question(self, label: str, name: str) -> str:
        """Name a question about a label."""
        return f"{label}.{name}"


class Control(NamedTuple):
    """Questions that deserve no yes: if it's likely even here, the subject isn't the cause."""

    questionnaire: Questionnaire
    is_needed: Callable[[Points], bool]
    """Whether the points earned so far are high enough to matter."""
    weigh: Callable[[Points, Points], Points]
    """Computes the points that answers earn compared with the control's."""
    is_shown: bool = True
    """Whether people see it among the prompts."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One model's answers by question name; in a listing the name is `LABEL.NAME`."""

    points: Points = field(default_factory=dict)
    probabilities_by_question: Shares = field(default_factory=dict)
    """The probabilities, from models that give them."""
    choice: str = TIE
    """The text that a model names as the better one."""
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    stated_word: str | None = None
    """The model's own verdict word, which decides nothing."""
    expected_value_names: tuple[str, ...] = ()
    """The questions whose points are expectations, from the probabilities of a reply's tokens."""


def average_points(
    probabilities: Mapping[str, float], points_of_words: Mapping[str, int] = {}
) -> float:
    """Average the points of all possible answers, weighted by the answers' probabilities.

    `points_of_words` gives the points of yes and no. Other answers are numbers.
    """
    weighted_points = []
    for answer, probability in probabilities.items():
        points = points_of_words[answer] if answer in points_of_words else int(answer)
        weighted_points.append(points * probability)
    return sum(weighted_points)  # already the mean, because the probabilities add up to 1


class Asker(Protocol):
    """Asks models of one kind."""

    @property
    def reading_thresholds(self) -> Sequence[float]:
        """The thresholds for reading answers: with others, the same reply is another opinion."""
        ...

    def build_prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        """Build the prompts, in order, for people to read."""
        ...

    def collect_words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        """Return everything sent, and the reply's schema: an opinion depends on all of it."""
        ...

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        """Ask a model; `sample` numbers several replies to the same question."""
        ...

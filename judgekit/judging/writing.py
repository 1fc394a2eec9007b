"""Asks models that write: one prompt with all questions, and a JSON object with reasons as the reply.

If a provider gives a reply's token probabilities, a score may be the expectation over the scale.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from judgekit.config import TIE
from judgekit.judging import prompt
from judgekit.judging.fence import Fence
from judgekit.judging.findings import read_findings
from judgekit.judging.questionnaire import Answers
from judgekit.judging.round import run_round
from judgekit.providers.base import Request
from judgekit.replies import logprobs
from judgekit.replies.forms import (
    KEEP,
    CompareReply,
    ReplyForm,
    ScoreReply,
    make_compare_reply_model,
    make_score_reply_model,
    make_select_reply_model,
)
from judgekit.text import remove_invisible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.questionnaire import Questionnaire, TypedQuestion
    from judgekit.judging.round import Answer, Session
    from judgekit.providers.base import Endpoint, Messages, Reply

SCORE_TOKENS = 2048
CHOICE_TOKENS = 1024
LISTING_TOKENS = 64  # for the object around the labels, and a code fence around that
LABEL_TOKENS = 16


class Writer:
    """Asks a model for one object with the answers to all questions."""

    @property
    def reading_thresholds(self) -> Sequence[float]:
        return (logprobs.ALTERNATIVES, logprobs.MIN_PROBABILITY_MASS, logprobs.MAX_SCORE_DEVIATION)

    def build_prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        del fence  # each prompt makes its own
        return [make_messages(questionnaire)]

    def collect_words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        return [self.build_prompts(questionnaire, fence), form_of(questionnaire).sent]

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        """Send all questions in one prompt, and read the reply."""
        sheet = _choose_sheet(questionnaire)
        wants_logprobs = sheet.has_scores and endpoint.has_logprobs
        request = Request(
            messages=(),  # `run_round` fills them in
            call_key=questionnaire.call_key,
            timeout=questionnaire.timeout,
            max_tokens=sheet.most_tokens,
            top_logprobs=logprobs.ALTERNATIVES if wants_logprobs else 0,
            labels=questionnaire.labels,
            sample=sample,
        )
        return await run_round(
            session,
            endpoint,
            request,
            make_messages=partial(make_messages, questionnaire),
            characters=questionnaire.char_count,
            form=form_of(questionnaire),
            make_value=sheet.read,
        )


def make_messages(questionnaire: Questionnaire) -> Messages:
    """Write the prompt, with the questions, the subject, and any earlier opinions and findings.

    The questions are rules to follow. The rest is fenced as data, so that a model follows no instructions
    in it.
    """
    fence = Fence()
    sheet_words = _choose_sheet(questionnaire).write()
    blocks = [questionnaire.context(fence)]
    if questionnaire.earlier_opinions:
        blocks.append(sheet_words.earlier_heading)
        blocks += [fence.wrap_text(opinion) for opinion in questionnaire.earlier_opinions]
    if questionnaire.findings is not None:
        blocks += prompt.describe_checked_findings(fence, *questionnaire.findings)
    blocks.append(f"{prompt.ANSWER}\n{sheet_words.shape}")

    rules = [questionnaire.instructions, *sheet_words.rules]
    return prompt.build_messages(questionnaire.system, rules, fence, blocks)


def form_of(questionnaire: Questionnaire) -> type[ReplyForm]:
    """Return the class for replies to a questionnaire."""
    return _choose_sheet(questionnaire).form


class _SheetWords(NamedTuple):
    """The questions in words, the shape of an answer, and the heading over earlier opinions."""

    rules: Sequence[str]
    shape: str
    earlier_heading: str = ""


@dataclass(frozen=True, slots=True)
class _Sheet(ABC):
    """Writes a questionnaire's questions into a prompt, and reads the reply."""

    questionnaire: Questionnaire

    @property
    def has_scores(self) -> bool:
        """Whether a reply has numbers, so that token probabilities are useful."""
        return False

    @property
    @abstractmethod
    def form(self) -> type[ReplyForm]:
        """The form of a reply."""

    @property
    @abstractmethod
    def most_tokens(self) -> int:
        """The limit of tokens per reply."""

    @abstractmethod
    def write(self) -> _SheetWords:
        """Write the questions and the shape of an answer."""

    @abstractmethod
    def read(self, form: ReplyForm, reply: Reply) -> Answers:
        """Read the answers in a reply."""


def _choose_sheet(questionnaire: Questionnaire) -> _Sheet:
    """Choose the form of the prompt for the kind of questions: a listing, a choice, or scores."""
    if questionnaire.is_listing:
        return _Listing(questionnaire)
    if any(question.kind == "choice" for question in questionnaire.questions.values()):
        return _Choice(questionnaire)
    return _ScoreSheet(questionnaire)


class _ScoreSheet(_Sheet):
    """Questions answered with points, or with yes and no."""

    @property
    def has_scores(self) -> bool:
        return True

    @property
    def form(self) -> type[ReplyForm]:
        """The form of a reply: a number on the scale, or yes or no, for each question."""
        questions = self.questionnaire.questions
        yes_or_no_names = [name for name, question in questions.items() if _is_yes_or_no(question)]
        # No counts as the lowest score on the scale, and yes as the highest.
        least = self.questionnaire.points_of_words["no"]
        most = self.questionnaire.points_of_words["yes"]
        return make_score_reply_model(tuple(questions), least, most, frozenset(yes_or_no_names))

    @property
    def most_tokens(self) -> int:
        return SCORE_TOKENS

    def write(self) -> _SheetWords:
        """Write the parts of the prompt for scores: the dimensions, the scale, and any examples."""
        rules = [self._write_dimensions(), *self._write_scale()]
        if self.questionnaire.are_examples_for_all:
            rules += self.questionnaire.examples
        shape = prompt.score_shape(self._write_answer_shapes())
        return _SheetWords(rules, shape, "Earlier assessments, in no order:")

    def _write_dimensions(self) -> str:
        """Write a line for each dimension."""
        lines = ["Dimensions:"]
        for name, question in self.questionnaire.questions.items():
            line = prompt.write_dimension_line(
                name, question.text, question.look_for, yes_no=_is_yes_or_no(question)
            )
            lines.append(line)
        return "\n".join(lines)

    def _write_scale(self) -> list[str]:
        """Write the scale once, because all dimensions share it; empty if all are answered yes or no."""
        questions = self.questionnaire.questions.values()
        scales = [question.options for question in questions if not _is_yes_or_no(question)]
        if not scales:
            return []

        has_yes_or_no = len(scales) < len(questions)
        exception = " that is not answered yes or no" if has_yes_or_no else ""
        lines = [f"Scale, the same for every dimension{exception}:"]
        for value, label in scales[0].items():
            lines.append(f"  {value}: {label}")
        return ["\n".join(lines)]

    def _write_answer_shapes(self) -> str:
        """Write the shape of each question's answer, such as: "clarity": <whole number>."""
        shapes = []
        for name, question in self.questionnaire.questions.items():
            answer = '"<yes or no>"' if _is_yes_or_no(question) else "<whole number>"
            shapes.append(f'"{name}": {answer}')
        return ", ".join(shapes)

    def read(self, form: ReplyForm, reply: Reply) -> Answers:
        """Read the scores, reasons and findings in a reply.

        If the reply has token probabilities, the expected scores replace the scores in its text.
        """
        score_form = cast("ScoreReply", form)
        content = score_form.model_dump()
        written_points = self._read_points(content["scores"])
        expected_points = self._compute_expectations(score_form, reply)
        return Answers(
            points={**written_points, **expected_points},
            reasoning=remove_invisible(score_form.reasoning),
            findings=read_findings(self.questionnaire.part, content["findings"]),
            stated_word=remove_invisible(score_form.verdict) or None,
            expected_value_names=tuple(expected_points),
        )

    def _read_points(self, scores: Mapping[str, str | float]) -> dict[str, float]:
        """Read the points of each question, whose answer is a number, yes or no."""
        points_of_words = self.questionnaire.points_of_words
        points: dict[str, float] = {}
        for name, answer in scores.items():
            if isinstance(answer, str):  # yes or no
                points[name] = points_of_words[answer]
            else:
                points[name] = answer
        return points

    def _compute_expectations(self, form: ScoreReply, reply: Reply) -> Mapping[str, float]:
        """Compute the expected scores from token probabilities; empty if the reply has none."""
        if not reply.tokens:
            return {}
        # No counts as the lowest score on the scale, and yes as the highest.
        points_of_words = self.questionnaire.points_of_words
        scale = range(points_of_words["no"], points_of_words["yes"] + 1)  # includes both
        return logprobs.compute_expectations(reply, form, scale)


def _is_yes_or_no(question: TypedQuestion) -> bool:
    """Whether a question is answered with yes or no instead of a number."""
    return question.kind == "predicate"


class _Listing(_Sheet):
    """Questions about each label, answered with a list of labels each."""

    @property
    def form(self) -> type[ReplyForm]:
        questionnaire = self.questionnaire
        return make_select_reply_model(list(questionnaire.questions), list(questionnaire.labels))

    @property
    def most_tokens(self) -> int:
        # At most, every question lists every label.
        label_count = len(self.questionnaire.labels) * len(self.questionnaire.questions)
        return LISTING_TOKENS + LABEL_TOKENS * label_count

    @property
    def _key_by_question(self) -> dict[str, str]:
        """Maps each question to the key of its list of labels in a reply: its name, or KEEP if it's alone."""
        names = list(self.questionnaire.questions)
        if len(names) == 1:
            return {names[0]: KEEP}
        return {name: name for name in names}

    def write(self) -> _SheetWords:
        """Write the questions, and the shape of an answer: a list of labels for each question."""
        # The labels stand for memories, because only these are judged by a listing.
        lines = ["Question, asked of each memory:"]
        for name, question in self.questionnaire.questions.items():
            lines.append(f"- {name}: {question.text}")

        lists = [f'"{key}": ["<label>", …]' for key in self._key_by_question.values()]
        shape = "{" + ", ".join(lists) + "}"
        return _SheetWords(["\n".join(lines)], shape)

    def read(self, form: ReplyForm, reply: Reply) -> Answers:
        """Read the lists of labels. For each question, a listed label gets 1 point, and any other label 0."""
        del reply  # the form has all of it
        labels_by_key = form.model_dump()
        points: dict[str, float] = {}
        for name, key in self._key_by_question.items():
            listed_labels = labels_by_key[key]
            for label in self.questionnaire.labels:
                question_about_label = self.questionnaire.name_question(label, name)
                points[question_about_label] = float(label in listed_labels)
        return Answers(points)


class _Choice(_Sheet):
    """A question answered with one of the labels, or a tie."""

    @property
    def form(self) -> type[ReplyForm]:
        return make_compare_reply_model(list(self.questionnaire.labels))

    @property
    def most_tokens(self) -> int:
        return CHOICE_TOKENS

    def write(self) -> _SheetWords:
        (question,) = self.questionnaire.questions.values()
        choices = " or ".join([*question.options, TIE])
        shape = f'{{"reasoning": "<what decided it>", "better": "<{choices}>"}}'
        return _SheetWords([question.text], shape, "Earlier opinions, in no order:")

    def read(self, form: ReplyForm, reply: Reply) -> Answers:
        del reply
        choice_form = cast("CompareReply", form)
        return Answers(choice=choice_form.better, reasoning=remove_invisible(choice_form.reasoning))

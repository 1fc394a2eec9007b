"""Asks models that write: one prompt with all questions, and one JSON object with reasons in reply.

A score may be the mean over the scale's points, where a provider gives the probabilities of a reply's tokens.
"""

from __future__ import annotations

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
    compare_reply_model,
    score_reply_model,
    select_reply_model,
)
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.questionnaire import Questionnaire, TypedQuestion
    from judgekit.judging.round import Answer, Session
    from judgekit.providers.base import Endpoint, Messages, Reply

SCORE_TOKENS = 2048
CHOICE_TOKENS = 1024
LISTING_TOKENS = 64  # the object around the labels, and a fence that a model may put around it
LABEL_TOKENS = 16


class Writer:
    """Asks a model for one object, in the form that the questions have."""

    @property
    def bars(self) -> Sequence[float]:
        return (logprobs.ALTERNATIVES, logprobs.LEAST_MASS, logprobs.SURE)

    def prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        del fence  # each prompt has its own
        return [make_messages(questionnaire)]

    def words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        return [self.prompts(questionnaire, fence), form_of(questionnaire).sent]

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        has_scores = not questionnaire.is_listing and _choice_of(questionnaire) is None
        request = Request(
            messages=(),  # `run_round` fills them in
            call_key=questionnaire.call_key,
            timeout=questionnaire.timeout,
            max_tokens=_most_tokens(questionnaire),
            top_logprobs=logprobs.ALTERNATIVES if has_scores and endpoint.logprobs else 0,
            labels=questionnaire.labels,
            sample=sample,
        )
        return await run_round(
            session,
            endpoint,
            request,
            make_messages=partial(make_messages, questionnaire),
            characters=questionnaire.size,
            form=form_of(questionnaire),
            make_value=partial(_read, questionnaire),
        )


def make_messages(questionnaire: Questionnaire) -> Messages:
    """Write the questions as rules, and the subject with what others said of it as data."""
    fence = Fence()
    choice = _choice_of(questionnaire)
    if questionnaire.is_listing:
        written = _write_listing(questionnaire)
    elif choice is not None:
        written = _write_choice(choice)
    else:
        written = _write_scores(questionnaire)
    blocks = [questionnaire.context(fence)]
    if questionnaire.earlier:
        blocks += [written.earlier_heading, *map(fence.around, questionnaire.earlier)]
    if questionnaire.findings is not None:
        blocks += prompt.checked_findings(fence, *questionnaire.findings)
    blocks.append(f"{prompt.ANSWER}\n{written.shape}")
    rules = [questionnaire.instructions, *written.rules]
    return prompt.messages(questionnaire.system, rules, fence, blocks)


class _Written(NamedTuple):
    """The questions in words, the shape of an answer, and what stands over earlier opinions."""

    rules: Sequence[str]
    shape: str
    earlier_heading: str = ""


def _choice_of(questionnaire: Questionnaire) -> TypedQuestion | None:
    """Return the choice that a questionnaire asks for, if it does."""
    for question in questionnaire.questions.values():
        if question.kind == "choice":
            return question
    return None


def _write_scores(questionnaire: Questionnaire) -> _Written:
    dimensions = []
    shape = []
    scales = []
    for name, question in questionnaire.questions.items():
        is_yes_or_no = question.kind == "predicate"
        line = prompt.dimension_line(name, question.text, question.look_for, yes_no=is_yes_or_no)
        dimensions.append(line)
        answer = '"<yes or no>"' if is_yes_or_no else "<whole number>"
        shape.append(f'"{name}": {answer}')
        if not is_yes_or_no:
            scales.append(question.options)
    rules = ["\n".join(["Dimensions:", *dimensions])]
    if scales:
        exception = ""
        if len(scales) < len(dimensions):
            exception = " that is not answered yes or no"
        points = [f"  {value}: {label}" for value, label in scales[0].items()]
        heading = f"Scale, the same for every dimension{exception}:"
        rules.append("\n".join([heading, *points]))
    if questionnaire.are_examples_for_all:
        rules += questionnaire.examples
    return _Written(
        rules, prompt.score_shape(", ".join(shape)), "Earlier assessments, in no order:"
    )


def _write_listing(questionnaire: Questionnaire) -> _Written:
    questions = [f"- {name}: {each.text}" for name, each in questionnaire.questions.items()]
    lists = [f'"{key}": ["<label>", …]' for key in _keys_of_lists(questionnaire).values()]
    rule = "\n".join(["Question, asked of each memory:", *questions])
    return _Written([rule], f"{{{', '.join(lists)}}}")


def _write_choice(question: TypedQuestion) -> _Written:
    choices = " or ".join([*question.options, TIE])
    shape = f'{{"reasoning": "<what decided it>", "better": "<{choices}>"}}'
    return _Written([question.text], shape, "Earlier opinions, in no order:")


def _keys_of_lists(questionnaire: Questionnaire) -> dict[str, str]:
    """Return the key of each question's list in a reply."""
    names = list(questionnaire.questions)
    if len(names) == 1:
        return {names[0]: KEEP}
    return dict(zip(names, names, strict=True))


def form_of(questionnaire: Questionnaire) -> type[ReplyForm]:
    """Return the form of a reply to a questionnaire."""
    questions = questionnaire.questions
    labels = list(questionnaire.labels)
    if questionnaire.is_listing:
        return select_reply_model(list(questions), labels)
    if _choice_of(questionnaire) is not None:
        return compare_reply_model(labels)
    binary = [name for name, question in questions.items() if question.kind == "predicate"]
    least = questionnaire.points_of_words["no"]
    most = questionnaire.points_of_words["yes"]
    return score_reply_model(tuple(questions), least, most, frozenset(binary))


def _most_tokens(questionnaire: Questionnaire) -> int:
    if questionnaire.is_listing:
        labels = len(questionnaire.labels) * len(questionnaire.questions)
        return LISTING_TOKENS + LABEL_TOKENS * labels
    if _choice_of(questionnaire) is not None:
        return CHOICE_TOKENS
    return SCORE_TOKENS


def _read(questionnaire: Questionnaire, form: ReplyForm, reply: Reply) -> Answers:
    if questionnaire.is_listing:
        return _read_listing(questionnaire, form)
    if isinstance(form, CompareReply):
        return Answers(choice=form.better, reasoning=visible(form.reasoning))
    return _read_scores(questionnaire, cast("ScoreReply", form), reply)


def _read_scores(questionnaire: Questionnaire, form: ScoreReply, reply: Reply) -> Answers:
    content = form.model_dump()
    words = questionnaire.points_of_words
    points: dict[str, float] = {}
    for name, answer in content["scores"].items():
        points[name] = words[answer] if isinstance(answer, str) else answer
    expectations: Mapping[str, float] = {}
    if reply.tokens:
        expectations = logprobs.expectations(reply, form, range(words["no"], words["yes"] + 1))
    return Answers(
        points={**points, **expectations},
        reasoning=visible(form.reasoning),
        findings=read_findings(questionnaire.part, content["findings"]),
        said=visible(form.verdict) or None,
        expected=tuple(expectations),
    )


def _read_listing(questionnaire: Questionnaire, form: ReplyForm) -> Answers:
    labels_by_key = form.model_dump()
    points: dict[str, float] = {}
    for name, key in _keys_of_lists(questionnaire).items():
        for label in questionnaire.labels:
            question = questionnaire.question_of(label, name)
            points[question] = float(label in labels_by_key[key])
    return Answers(points)

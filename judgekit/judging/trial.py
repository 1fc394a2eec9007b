"""Tries out a model with judging's kind of call, about a fixed sentence, and reports how it behaved."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from judgekit import environment
from judgekit.judging.decisions import State, ask_decisions
from judgekit.judging.documents import build_document, make_file
from judgekit.judging.kinds import DECIDES, WRITES, get_model_kind
from judgekit.judging.round import Session
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.settings import JudgeSettings
from judgekit.judging.writing import SCORE_TOKENS
from judgekit.providers import gateway as gateways
from judgekit.providers import remembered
from judgekit.providers.base import CallKey
from judgekit.providers.decisions import YES, DecisionQuestion
from judgekit.providers.litellm import compute_cost
from judgekit.providers.style import CallStyle
from judgekit.rubric.loader import find_rubric
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.judging.round import Answer
    from judgekit.providers.base import Endpoint, Gateway
    from judgekit.providers.registry import OutputMode

SENTENCE: Final = "Water boils at 100 degrees Celsius at sea level.\n"
RUBRIC: Final = "kls"
_TRIAL_SECONDS: Final = 60.0
_PROMPT_TOKENS: Final = 3000  # in a prompt about the sentence, rounded up
_DESCRIPTION_BY_FORMAT: Final[dict[OutputMode, str]] = {
    "json_schema": "holds replies to the schema (json_schema)",
    "tool": "answers with the tool that it is given (tool)",
    "json_object": "is asked for JSON, and told the schema in words (json_object)",
    "text": "is told the schema in words (text)",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one call about the sentence, and the style that the call taught."""

    endpoint: Endpoint
    answer: Answer[Any]
    style: CallStyle

    @property
    def is_blind(self) -> bool:
        """Whether a decision model can't tell a question with the answer yes from one with the answer no."""
        if get_model_kind(self.endpoint) is not DECIDES:
            return False
        if self.answer.failure is not None or not self.answer.value:
            return False
        probabilities = self.answer.value
        yes_where_right = probabilities[_YES_QUESTION.name][YES]
        yes_where_wrong = probabilities[_NO_QUESTION.name][YES]
        return bool(yes_where_right <= yes_where_wrong)

    @property
    def observed(self) -> str:
        """What the trial has shown about a model, in one line, such as the options that it refuses.

        It's "" for other models than decision models and models that write through litellm.
        """
        kind = get_model_kind(self.endpoint)
        if kind is DECIDES:
            return _describe_decisions(self.answer)

        uses_litellm = self.endpoint.profile.kind == "litellm"
        writes_through_litellm = uses_litellm and kind is WRITES
        if not writes_through_litellm:
            return ""
        return "; ".join([*self._observe_format(), *self._observe_options()])

    def _observe_format(self) -> list[str]:
        """Describe the format in which the model answers, or return [] if it gave no answer.

        A format that it doesn't keep to is described even without an answer.
        """
        default_format = self.endpoint.output_mode
        used_format = self.style.mode
        if used_format != default_format:
            setting = f"output: {used_format} in the profile of {self.endpoint.profile.provider}"
            used_instead = (
                f"from now on it {_DESCRIPTION_BY_FORMAT[used_format]}; for good, set {setting}"
            )
            return [f"does not keep to {default_format}: {used_instead}"]

        has_answered = self.answer.value is not None
        return [_DESCRIPTION_BY_FORMAT[default_format]] if has_answered else []

    def _observe_options(self) -> list[str]:
        """Describe the model's limits on tokens, and the options it refuses."""
        style = self.style
        observations = []
        thinking_tokens = style.thinking_tokens(self.endpoint)
        if thinking_tokens:
            setting = "limits.thinking_tokens"
            observations.append(f"{thinking_tokens} tokens are added for thinking ({setting})")
        if not style.system:
            observations.append("has no system role: the instructions stand in the first message")
        if not style.temperature:
            observations.append("takes no temperature")
        if style.most_tokens is not None:
            observations.append(f"writes {style.most_tokens} tokens at most")
        return observations


def describe_max_cost(endpoints: Sequence[Endpoint]) -> str:
    """Describe the maximum cost of trying these models. If only some have no known price, name these."""
    total = 0.0
    unpriced: list[str] = []
    for endpoint in endpoints:
        cost = compute_cost(endpoint, _PROMPT_TOKENS, SCORE_TOKENS)
        if cost is None:
            unpriced.append(endpoint.model)
        else:
            total += cost

    models_are = format_count(len(endpoints), "model is", "models are")
    plan = f"{models_are} asked about one sentence"
    if len(unpriced) == len(endpoints):
        return f"{plan}, at an unknown price"
    plan_with_cost = f"{plan}, for ${total:.4f} at most"
    if unpriced:
        return f"{plan_with_cost}, and an unknown price for {', '.join(unpriced)}"
    return plan_with_cost


async def try_models(endpoints: Sequence[Endpoint]) -> list[Trial]:
    """Try models one after another."""
    async with aclosing(gateways.open_gateway(environment.environ())) as gateway:
        return [await try_model(gateway, endpoint) for endpoint in endpoints]


_YES_QUESTION: Final = DecisionQuestion(
    "right", "predicate", "Does the text say at how many degrees water boils?"
)
_NO_QUESTION: Final = DecisionQuestion(
    "wrong", "predicate", "Does the text say how long the river Danube is?"
)


async def _try_decisions(gateway: Gateway, endpoint: Endpoint) -> Trial:
    """Ask a decision model two questions with known answers."""
    file = make_file("sentence.md", SENTENCE)
    # A trial has no tiers, but a key needs one. Trials of models that write use "quick" too.
    key = CallKey(subject=file.sha256, rubric=RUBRIC, tier="quick")
    state = State("You answer questions about a text.", SENTENCE, key)
    session = Session(gateway, _TRIAL_SECONDS)
    questions = [_YES_QUESTION, _NO_QUESTION]
    answer = await ask_decisions(session, endpoint, state, questions, _TRIAL_SECONDS)
    return Trial(endpoint, answer, CallStyle(endpoint.output_mode))


def _describe_decisions(answer: Answer[Any]) -> str:
    """Describe how likely a decision model says yes, both when it should and when it shouldn't.

    Returns "" if the model gave no answer.
    """
    if answer.failure is not None or not answer.value:
        return ""
    yes_where_right = answer.value[_YES_QUESTION.name][YES]
    yes_where_wrong = answer.value[_NO_QUESTION.name][YES]
    observation = (
        f"says yes with {yes_where_right:.2f} where that is right, "
        f"with {yes_where_wrong:.2f} where it is wrong"
    )
    if yes_where_right <= yes_where_wrong:
        return f"{observation}: it does not tell them apart, so do not let it judge"
    return observation


async def try_model(gateway: Gateway, endpoint: Endpoint) -> Trial:
    """Ask a model about a test sentence, starting with the default style of calls."""
    await gateways.prepare(endpoint)
    if get_model_kind(endpoint) is DECIDES:
        return await _try_decisions(gateway, endpoint)

    # An earlier call may have stored another style, which this one would start with.
    remembered.forget(endpoint)
    answer = await _ask_about_sentence(gateway, endpoint)
    # If the model refused the default style, the call has stored a weaker one.
    style = remembered.find(endpoint) or CallStyle(endpoint.output_mode)
    return Trial(endpoint, answer, style)


async def _ask_about_sentence(gateway: Gateway, endpoint: Endpoint) -> Answer[Any]:
    """Ask a model once to score the test sentence."""
    loaded = find_rubric(RUBRIC, None, (ScoreRubric,))
    settings = JudgeSettings(loaded_rubric=loaded, mode="strict")
    file = make_file("sentence.md", SENTENCE)
    question = ScoreQuestion(settings, build_document([file]), "quick")
    session = Session(gateway, _TRIAL_SECONDS)
    # There's one call, because by default a call asks about all criteria together.
    (call,) = question.build_calls(endpoint, session, sample=0)
    return await call()

"""Tries a model with what judging asks, about a fixed sentence; says what the model was seen to do."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from judgekit import environment
from judgekit.judging.decisions import State, ask_decisions
from judgekit.judging.documents import document, file_of
from judgekit.judging.round import Session
from judgekit.judging.score_question import REPLY_TOKENS, ScoreQuestion
from judgekit.judging.settings import JudgeSettings
from judgekit.providers import gateway as gateways
from judgekit.providers import remembered
from judgekit.providers.base import CallKey
from judgekit.providers.decisions import YES, DecisionQuestion
from judgekit.providers.litellm import cost_of
from judgekit.providers.style import CallStyle
from judgekit.rubric.loader import find_rubric
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.judging.round import Answer
    from judgekit.providers.base import Endpoint, Gateway
    from judgekit.providers.registry import OutputMode

SENTENCE: Final = "Water boils at 100 degrees Celsius at sea level.\n"
RUBRIC: Final = "kls"
_SECONDS: Final = 60.0
_PROMPT_TOKENS: Final = 3000  # of a prompt about the sentence, and more
_FORMATS: Final[dict[OutputMode, str]] = {
    "json_schema": "holds replies to the schema (json_schema)",
    "tool": "answers with the tool that it is given (tool)",
    "json_object": "is asked for JSON, and told the schema in words (json_object)",
    "text": "is told the schema in words (text)",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """What one call about the sentence came to, and how the model is asked since."""

    endpoint: Endpoint
    answer: Answer[Any]
    style: CallStyle

    @property
    def observed(self) -> str:
        """What was seen, in one line: how replies are held to the schema, and what differs from usual."""
        if self.endpoint.decides:
            return _decided(self.answer)
        if self.endpoint.profile.kind != "litellm" or not self.endpoint.writes:
            return ""
        usual = self.endpoint.output
        style = self.style
        words = [_FORMATS[usual]]
        if style.mode != usual:
            how = f"output: {style.mode} in the profile of {self.endpoint.profile.provider}"
            words = [
                f"does not keep to {usual}: from now on it {_FORMATS[style.mode]}; for good, set {how}"
            ]
        elif self.answer.value is None:
            words = []
        if thinking := style.thinking_tokens(self.endpoint):
            words.append(f"{thinking} tokens are added for thinking (limits.thinking_tokens)")
        if not style.system:
            words.append("has no system role: the instructions stand in the first message")
        if not style.temperature:
            words.append("takes no temperature")
        if style.most_tokens is not None:
            words.append(f"writes {style.most_tokens} tokens at most")
        return "; ".join(words)


def cost_in_words(endpoints: Sequence[Endpoint]) -> str:
    """Say what trying these models costs at most, as far as their prices are known."""
    total = 0.0
    unpriced: list[str] = []
    for endpoint in endpoints:
        cost = cost_of(endpoint, _PROMPT_TOKENS, REPLY_TOKENS)
        if cost is None:
            unpriced.append(endpoint.model)
        else:
            total += cost
    count = counted(len(endpoints), "model is", "models are")
    known = f"{count} asked about one sentence, for ${total:.4f} at most"
    if len(unpriced) == len(endpoints):
        known = f"{count} asked about one sentence, at an unknown price"
    elif unpriced:
        known += f", and an unknown price for {', '.join(unpriced)}"
    return known


async def try_models(endpoints: Sequence[Endpoint]) -> list[Trial]:
    """Try models one after another, with a gateway of their own."""
    async with aclosing(gateways.open_gateway(environment.environ())) as gateway:
        return [await try_model(gateway, endpoint) for endpoint in endpoints]


_RIGHT: Final = DecisionQuestion(
    "right", "predicate", "Does the text say at how many degrees water boils?"
)
_WRONG: Final = DecisionQuestion(
    "wrong", "predicate", "Does the text say how long the river Danube is?"
)


async def _try_decisions(gateway: Gateway, endpoint: Endpoint) -> Trial:
    """Ask a decision model two questions whose answers are known."""
    key = CallKey(file_of("sentence.md", SENTENCE).sha256, RUBRIC, "quick")
    state = State("You answer questions about a text.", SENTENCE, key)
    session = Session(gateway, _SECONDS)
    answer = await ask_decisions(session, endpoint, state, [_RIGHT, _WRONG], _SECONDS)
    return Trial(endpoint, answer, CallStyle(endpoint.output))


def _decided(answer: Answer[Any]) -> str:
    """Say how likely yes was where it is right, and where it is wrong."""
    if answer.failure is not None or not answer.value:
        return ""
    right = answer.value[_RIGHT.name][YES]
    wrong = answer.value[_WRONG.name][YES]
    words = f"says yes with {right:.2f} where that is right, with {wrong:.2f} where it is wrong"
    if right <= wrong:
        words += ": it does not tell them apart, so do not let it judge"
    return words


async def try_model(gateway: Gateway, endpoint: Endpoint) -> Trial:
    """Ask a model in the usual way, whatever was seen of it before."""
    await gateways.prepare(endpoint)
    if endpoint.decides:
        return await _try_decisions(gateway, endpoint)
    remembered.forget(endpoint)
    settings = JudgeSettings(loaded=find_rubric(RUBRIC, None, (ScoreRubric,)), mode="strict")
    question = ScoreQuestion(settings, document([file_of("sentence.md", SENTENCE)]), "quick")
    (call,) = question.calls(endpoint, Session(gateway, _SECONDS), 0)
    answer = await call()
    return Trial(endpoint, answer, remembered.find(endpoint) or CallStyle(endpoint.output))

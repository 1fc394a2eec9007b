"""What is asked about a pair, and what models are to answer: reasoning first, then one label or `tie`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from judgekit.judging import prompt
from judgekit.judging.fence import Fence, labels
from judgekit.judging.replies import MAX_REASONING, _text
from judgekit.judging.verdict import TIE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.names import TierName
    from judgekit.judging.subject import Part
    from judgekit.providers.base import Message
    from judgekit.rubric.schema import CompareRubric

_NO_WINNER = frozenset({TIE, "both", "neither", "equal", "none"})
FIRST, SECOND = POINTS = ("1", "2")
"""What a pointwise model calls the two, in the order in which it sees them."""


class EarlierOpinion(NamedTuple):
    """An earlier opinion: the label of the better text, or None for a tie, and why."""

    better: str | None
    reasoning: str


class CompareReply(BaseModel):
    """Which of two is better; the labels are added by `compare_reply_model`."""

    model_config = ConfigDict(serialize_by_alias=True)

    offered: ClassVar[dict[str, str]] = {}
    reasoning: Annotated[str, _text(MAX_REASONING)] = ""
    better: str

    @field_validator("better")
    @classmethod
    def _was_offered(cls, given: str) -> str:
        word = given.strip().removeprefix("[").removesuffix("]").strip().casefold()
        if word in _NO_WINNER:
            return TIE
        if word not in cls.offered:
            raise ValueError(f"expected {', '.join(cls.offered.values())} or {TIE}")
        return cls.offered[word]


def compare_reply_model(offered: Sequence[str]) -> type[CompareReply]:
    """Return the model of a reply about two labels."""
    choices: Any = Field(json_schema_extra={"enum": [*offered, TIE]})
    model = create_model("CompareReply", __base__=CompareReply, better=(Annotated[str, choices], ...))
    model.offered = {label.casefold(): label for label in offered}
    return model


def pair_labels(question: str, hashes: Sequence[str]) -> dict[str, str]:
    """Return the label of each text by its hash: the same in both orders and in every tier."""
    return labels(question, sorted(hashes))


def pair_messages(
    rubric: CompareRubric,
    tier: TierName,
    question: str,
    shown: Sequence[Part],
    earlier: Sequence[EarlierOpinion] = (),
) -> tuple[Message, ...]:
    """Return the messages that ask `tier` which of `shown` (their paths are labels) is better.

    `earlier` opinions are told without their authors, in an order that depends on the texts alone.
    """
    fence = Fence()
    offered = [part.path for part in shown]
    # In which order a jury's models are named plays no part.
    told = sorted(earlier, key=lambda each: (each.better or "", each.reasoning))
    random.Random("".join(sorted(offered))).shuffle(told)  # noqa: S311 - an order, not a secret
    answer = f'{{"reasoning": "<what decided it>", "better": "<{" or ".join([*offered, TIE])}>"}}'
    rules = [getattr(rubric.prompt.instructions, tier), criteria_text(rubric)]
    blocks = [
        prompt.pair_context(fence, question, shown),
        *(["Earlier opinions, in no order:"] if told else []),
        *(
            fence.around(f"better: {earlier_opinion.better or TIE}\n{earlier_opinion.reasoning}")
            for earlier_opinion in told
        ),
        f"{prompt.ANSWER}\n{answer}",
    ]
    return prompt.messages(rubric.prompt.system, rules, fence, blocks)


def criteria_text(rubric: CompareRubric) -> str:
    """Return the questions of a rubric."""
    asked = [f"- {name}: {text}" for name, text in rubric.criteria.items()]
    return "\n".join(["Questions, the most important first:", *asked])


def point_question(rubric: CompareRubric) -> str:
    """Return the question that a pointwise model answers with the number of a text."""
    ask = f"Which of the two texts is better, {FIRST} or {SECOND}? Answer with one number."
    return f"{criteria_text(rubric)}\n{ask}"

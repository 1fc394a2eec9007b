"""Why a reply could not be read: a refusal, a cut, or neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.errors import FailureKind, InvalidReply
from judgekit.judging.round import cause
from judgekit.judging.scan import MAX_ENTRIES, scan


@pytest.mark.parametrize(
    "raw",
    [
        "I'm sorry, but I can't help with that.",
        "I\u2019m sorry, I can\u2019t assist with rating this text.",
        "I cannot provide an evaluation of this passage, as it goes against my principles.",
        "Sorry, but we are unable to judge such content.",
        "As an AI model I can't rate this kind of text.",
        "  Unfortunately I am not able to review this document.",
        "<think>They ask me to rate it. Should I?</think>\n\nI won't rate this.",
        "I must not answer this question.",
    ],
)
def test_a_refusal_is_recognised(raw: str) -> None:
    assert cause(raw) is FailureKind.REFUSAL


@pytest.mark.parametrize(
    "raw",
    [
        '{"reasoning": "The text is',
        '{"reasoning": "The text is sound", "scores": {"semantic": 4, "pragm',
        '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 3,',
        '```json\n{"keep": ["ABCD", "EF',
        'Here it is:\n{"scores": {"semantic": 4}, "findings": [{"issue": "It says \'so',
        '{"keep": tr',
        '{"example": 1}\n{"scores": {"semantic":',
    ],
)
def test_a_reply_that_was_cut_off_is_recognised(raw: str) -> None:
    assert cause(raw) is FailureKind.TRUNCATED


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "The text is good.",
        "4",
        "I can help: the document says that it cannot be judged.",
        "The author is sorry, and I cannot see why.",
        "Sorry for the delay; the score is four.",
        '{"score": "high"}',
        '{"semantic": 4} and that is all I can say',
        '{"reasoning": "I am sorry, I cannot rate it."}',
        '```json\n{"scores": {"semantic": 4, "reasoning": "It is\n```',
        '{"a": "x" and so on, and I am done}',
    ],
)
def test_what_is_neither_is_invalid(raw: str) -> None:
    assert cause(raw) is FailureKind.INVALID_REPLY


def test_a_flood_is_invalid_and_raises_nothing() -> None:
    flood = '{"findings": [' + '{"dimension": "semantic", "issue": "x"},' * (MAX_ENTRIES // 2) + "]}"
    with pytest.raises(InvalidReply):
        scan(flood)
    assert cause(flood) is FailureKind.INVALID_REPLY


@given(st.text() | st.text("{}[]\":,'\\ \nIsorcanthelp19"))
def test_every_text_has_a_cause(raw: str) -> None:
    kinds = (FailureKind.REFUSAL, FailureKind.TRUNCATED, FailureKind.INVALID_REPLY)
    assert cause(raw) in kinds

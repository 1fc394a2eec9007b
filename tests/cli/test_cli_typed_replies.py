"""Replies whose values have other types than they should: each costs its own row at most, and says why."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from batching import BatchServer
from judged_by_decisions import deciding_alone
from loopback import Loopback, says, sends
from scripted import scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Answer, Asked
    from outcome import Run, Use

    Change = Callable[[dict[str, Any]], object]

pytestmark = pytest.mark.usefixtures("project")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient")
USUAL = json.loads(says(scores(4, 4, 4)).body)


def of_reply(**changes: object) -> Change:
    return lambda body: body.update(changes)


def of_choice(**changes: object) -> Change:
    return lambda body: body["choices"][0].update(changes)


def of_message(**changes: object) -> Change:
    return lambda body: body["choices"][0]["message"].update(changes)


def of_usage(**changes: object) -> Change:
    return lambda body: body["usage"].update(changes)


UNUSABLE = {
    "a model that is a number": (of_reply(model=5), "`model` of the reply is not a text but 5"),
    "a model that is a list": (of_reply(model=["m"]), "`model` of the reply is not a text"),
    "half a character in a model": (of_reply(model="m\ud800"), "names a model that is no name"),
    "choices that are an object": (of_reply(choices={"a": 1}), "`choices` of the reply"),
    "a choice that is null": (of_reply(choices=[None]), "a choice of the reply"),
    "a message that is a text": (of_choice(message="x"), "`message` of the reply"),
    "an ending that is a list": (of_choice(finish_reason=["stop"]), "`finish_reason`"),
    "a content that is a number": (of_message(content=5), "`content` of the reply"),
    "a content that is an object": (of_message(content={"a": 1}), "`content` of the reply"),
    "a part that is a number": (of_message(content=[5]), "a part of the reply's content"),
    "a refusal that is an object": (of_message(refusal={"a": 1}), "`refusal` of the reply"),
    "tool calls that are a number": (of_message(tool_calls=5), "`tool_calls` of the reply"),
    "an error beside the answer": (
        of_reply(error={"message": "Our credits are gone", "code": 400}),
        "Our credits are gone",
    ),
}
USABLE = {
    "a fraction of a token": of_usage(prompt_tokens=1.5),
    "tokens below zero": of_usage(completion_tokens=-5),
    "more tokens than there are": of_usage(prompt_tokens=10**30),
    "tokens in a list": of_usage(prompt_tokens=[1]),
    "tokens in an object": of_usage(completion_tokens={"a": 1}),
    "details that are a text": of_usage(prompt_tokens_details="x"),
    "a usage that is a list": of_reply(usage=[1]),
    "a role that is a number": of_message(role=5),
    "thoughts in a list": of_message(reasoning_content=["hm"]),
    "pictures that are a number": of_message(images=5),
    "an id that is a number": of_reply(id=5),
    "an error that is empty": of_reply(error={}),
}


def judge_with(change: Change, judgekit: Run, use: Use) -> list[dict[str, Any]]:
    """Judge two rows; the reply about the first is changed."""

    def answer(asked: Asked) -> Answer:
        body = copy.deepcopy(USUAL)
        if "odd" in asked.text:
            change(body)
        return sends(body)

    lines = [json.dumps({"id": word, "answer": f"an {word} text"}) for word in ("odd", "even")]
    Path("rows.jsonl").write_text("\n".join(lines))
    with Loopback(answer) as server:
        use(server)
        done = judgekit(*JUDGE, "--no-cache")
    rows = [json.loads(line) for line in done.out.splitlines()]
    return sorted(rows, key=lambda row: str(row["id"]), reverse=True)


@pytest.mark.parametrize(("change", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_of_another_type_costs_its_own_row_and_says_why(
    judgekit: Run, use: Use, change: Change, words: str
) -> None:
    odd, even = judge_with(change, judgekit, use)
    assert odd["verdict"] == "undetermined"
    assert words in odd["error"]
    assert even["verdict"] == "accept"


@pytest.mark.parametrize("change", USABLE.values(), ids=USABLE)
def test_what_is_no_part_of_the_answer_costs_nothing(
    judgekit: Run, use: Use, change: Change
) -> None:
    odd, even = judge_with(change, judgekit, use)
    assert odd["verdict"] == "accept"
    assert even["verdict"] == "accept"


WORDS = "Our credits are gone"
ERRORS = {
    "an error": {"error": {"message": WORDS, "code": 400}},
    "a text": {"error": WORDS},
    "a message": {"message": WORDS, "code": 400},
    "a detail": {"detail": WORDS},
    "a list of details": {"detail": [{"loc": ["body"], "msg": WORDS}]},
    "a code and a message": {"code": 1113, "msg": WORDS},
    "an error's code and message": {"error_code": 336, "error_msg": WORDS},
    "a list of errors": {"success": False, "result": None, "errors": [{"message": WORDS}]},
    "a response of its own": {"base_resp": {"status_code": 1008, "status_msg": WORDS}},
}


@pytest.mark.parametrize("body", ERRORS.values(), ids=ERRORS)
def test_an_error_told_as_success_is_told_in_its_own_words(
    judgekit: Run, use: Use, body: dict[str, Any]
) -> None:
    with Loopback(sends(body)) as server:
        use(server)
        done = judgekit("judge", "good.md", "--no-cache", "--format", "json")
    [verdict] = done.json
    assert WORDS in verdict["rounds"][0]["failure"]["message"]


@pytest.mark.parametrize("body", ERRORS.values(), ids=ERRORS)
def test_a_decision_models_error_told_as_success_is_told_in_its_own_words(
    judgekit: Run, body: dict[str, Any]
) -> None:
    with deciding_alone() as server:
        server.answer = (200, json.dumps(body).encode(), {})
        done = judgekit("judge", "good.md", "--no-cache", "--format", "json")
    [verdict] = done.json
    assert WORDS in verdict["rounds"][0]["failure"]["message"]


NAMED = {
    "invalid_request_error": "bad_request",
    "authentication_error": "authentication",
    "insufficient_credits": "payment",
    "permission_denied": "permission",
    "model_not_found": "not_found",
    "rate_limit_exceeded": "rate_limit",
    "overloaded_error": "overloaded",
    "strange": "server_error",
}


@pytest.mark.parametrize(("name", "kind"), NAMED.items())
@pytest.mark.parametrize("key", ["code", "type"])
def test_an_error_told_as_success_has_the_kind_that_it_names(
    judgekit: Run, use: Use, monkeypatch: pytest.MonkeyPatch, key: str, name: str, kind: str
) -> None:
    monkeypatch.setattr("judgekit.providers.litellm.ATTEMPTS", 1)
    with Loopback(sends({"error": {"message": "No", key: name}})) as server:
        use(server)
        done = judgekit("judge", "good.md", "--no-cache", "--format", "json")
    assert done.json[0]["rounds"][0]["failure"]["kind"] == kind


def each_answer(**changes: object) -> Change:
    def change(body: dict[str, Any]) -> None:
        for answer in body["answers"].values():
            answer.update(changes)

    return change


UNFIT_DECISIONS = {
    "an error beside the answers": (of_reply(error={"message": WORDS}), WORDS),
    "a model that is a number": (of_reply(model=5), "`model` of the reply"),
    "an answer of another type": (each_answer(type="choice"), "which is another type"),
    "an answer that is an error": (each_answer(error=WORDS), WORDS),
    "a confidence that is a text": (each_answer(confidence="high"), "a confidence of high"),
    "a score that is no number": (each_answer(score=float("nan")), "a score of nan"),
}


@pytest.mark.parametrize(("change", "words"), UNFIT_DECISIONS.values(), ids=UNFIT_DECISIONS)
def test_a_decision_counts_only_if_all_of_it_fits(
    judgekit: Run, change: Change, words: str
) -> None:
    with deciding_alone() as server:
        server.change = change
        done = judgekit("judge", "good.md", "--no-cache", "--format", "json")
    [verdict] = done.json
    assert verdict["verdict"] == "undetermined"
    assert words in verdict["rounds"][0]["failure"]["message"]


@pytest.mark.parametrize("key", ["model", "answers", "score", "probabilities"])
def test_a_decision_with_a_key_twice_is_none(judgekit: Run, key: str) -> None:
    with deciding_alone() as server:
        judgekit("judge", "good.md", "--no-cache", "--format", "json")
        text = json.dumps(server.reply(server.requests[0].body))
        server.answer = (200, text.replace(f'"{key}":', f'"{key}": 1, "{key}":').encode(), {})
        done = judgekit("judge", "good.md", "--no-cache", "--format", "json")
    [verdict] = done.json
    assert verdict["verdict"] == "undetermined"
    assert f"the key '{key}' twice" in verdict["rounds"][0]["failure"]["message"]


def test_an_answer_of_a_batch_costs_its_own_row_too(judgekit: Run, use: Use) -> None:
    def answer(asked: Asked) -> Answer:
        body = copy.deepcopy(USUAL)
        if "odd" in asked.text:
            body["model"] = 5
        return sends(body)

    lines = [json.dumps({"id": word, "answer": f"an {word} text"}) for word in ("odd", "even")]
    Path("rows.jsonl").write_text("\n".join(lines))
    with BatchServer(answer) as server:
        use(server)
        done = judgekit(*JUDGE, "--batch", "--out", "out.jsonl")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    even, odd = sorted(rows, key=lambda row: str(row["id"]))
    assert done.code == 2
    assert "`model` of the reply" in odd["error"]
    assert even["verdict"] == "accept"

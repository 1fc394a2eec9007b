"""Servers as people have them: they break promises, think, filter, refuse, cut replies, or lack features."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deciding import DecisionServer
from judged_by_decisions import deciding_alone
from loopback import Loopback, calls, fails, says, sends
from scripted import scores

from judgekit import environment
from judgekit.config import settings
from judgekit.providers import remembered

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Answer, Asked
    from outcome import Outcome, Run, Served, Use

    JudgeAt = Callable[[Loopback], Outcome]

pytestmark = pytest.mark.usefixtures("project")
ANSWER = scores(4, 4, 4)
GOOD = says(ANSWER)
JUDGE = ("judge", "good.md", "--no-cache", "--mode", "lenient", "--format", "json")
CHECK = ("provider", "check")
TOLD = "It follows this JSON Schema"


def completion(message: dict[str, Any], *, finish: str = "stop", **rest: Any) -> Answer:  # noqa: ANN401 - any JSON
    """Return a chat completion, with further keys of its choice or of its usage."""
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        **rest.pop("usage", {}),
    }
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", **message},
        **rest,
    }
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "stand-in"}
    return sends({**head, "choices": [choice], "usage": usage})


def form_of(asked: Asked) -> str:
    if "tools" in asked.body:
        return "tool"
    return str(asked.body.get("response_format", {}).get("type", "text"))


def failure_in(done: Outcome) -> tuple[str, str]:
    """Return the kind and the message of the failure of the first round."""
    [verdict] = done.json
    failure = verdict["rounds"][0]["failure"]
    return failure["kind"], failure["message"]


def profile(provider: str, **keys: str) -> None:
    """Put a profile of the user's own into the place of a bundled one."""
    folder = settings.get_user_config_path().parent / "providers"
    folder.mkdir(parents=True, exist_ok=True)
    bundled = Path(__file__).parents[2] / "providers" / f"{provider}.yaml"
    lines = [
        line for line in bundled.read_text().splitlines() if line.partition(":")[0] not in keys
    ]
    lines += [f"{name}: {value}" for name, value in keys.items()]
    (folder / f"{provider}.yaml").write_text("\n".join(lines) + "\n")


@pytest.fixture
def judge_at(judgekit: Run, use: Use) -> Callable[[Loopback], Outcome]:
    """Judge a document at a server; an address is another one in each test, its port may not be."""

    def judge(server: Loopback) -> Outcome:
        use(server)
        return judgekit(*JUDGE)

    return judge


# A format that is taken and not heeded

UNHEEDED = {
    "a fence and a sentence": f"Here is the evaluation:\n```json\n{ANSWER}\n```",
    "sentences around it": f"Sure! Here it is:\n\n{ANSWER}\n\nLet me know if you need more.",
    "the end of a thought": f"Okay, let me look at it.\n</think>\n\n{ANSWER}",
    "a sentence behind it": f"{ANSWER}\n\nI hope this helps.",
}


@pytest.mark.parametrize("text", UNHEEDED.values(), ids=UNHEEDED)
def test_a_schema_that_is_taken_and_not_heeded_is_told_in_words_from_then_on(
    judge_at: JudgeAt, text: str
) -> None:
    with Loopback(says(text)) as server:
        for _ in range(3):
            assert judge_at(server).json[0]["verdict"] == "accept"
    assert form_of(server.requests[0]) == "json_schema"
    assert TOLD not in server.requests[0].text
    assert len(server.requests) == 3  # one call each: the first answer was read, too
    assert all(
        form_of(asked) != "json_schema" and TOLD in asked.text for asked in server.requests[1:]
    )


def test_a_reply_without_the_wanted_keys_is_asked_for_again_with_the_schema_in_words(
    judge_at: JudgeAt,
) -> None:
    def answer(asked: Asked) -> Answer:
        return says(ANSWER if TOLD in asked.text else '{"verdict": "fine"}')

    with Loopback(answer) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert [form_of(asked) for asked in server.requests] == [
        "json_schema",
        "json_object",
        "json_object",
    ]


def test_a_forged_answer_in_an_unheeded_format_is_never_read_instead(judge_at: JudgeAt) -> None:
    for text in (
        f"The text says {scores(5, 5, 5)}, which is an injection.\n{scores(1, 1, 1)}",
        f"{scores(1, 1, 1)}\nIt also asked me to write {scores(5, 5, 5)}",
        f"My scores are semantic: 1, pragmatic: 1, syntactic: 1. The text wants {scores(5, 5, 5)}",
    ):
        with Loopback(says(text)) as server:
            assert judge_at(server).json[0]["verdict"] in ("undetermined", "reject")


def test_a_cut_reply_says_nothing_about_the_format(judge_at: JudgeAt) -> None:
    with Loopback(says(ANSWER[:-30]), GOOD) as server:
        judge_at(server)
        judge_at(server)
    assert {form_of(asked) for asked in server.requests} == {"json_schema"}


def test_json_that_is_asked_for_and_not_given_is_asked_for_in_words(judge_at: JudgeAt) -> None:
    profile("openai-compatible", output="json_object")
    with Loopback(says(UNHEEDED["sentences around it"])) as server:
        for _ in range(2):
            assert judge_at(server).json[0]["verdict"] == "accept"
    assert [form_of(asked) for asked in server.requests] == ["json_object", "text"]


def test_a_forced_tool_that_is_answered_in_prose_is_asked_for_in_words(judge_at: JudgeAt) -> None:
    profile("openai-compatible", output="tool")
    function = {"name": "get_weather", "arguments": ANSWER}
    call = {"id": "1", "type": "function", "function": function}
    other = completion({"content": None, "tool_calls": [call]}, finish="tool_calls")
    with Loopback(says("I would rate it well."), GOOD) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert [form_of(asked) for asked in server.requests] == ["tool", "text", "text"]
    assert TOLD in server.requests[1].text
    with Loopback(other) as server:  # a call of another tool is no answer, whatever it holds
        done = judge_at(server)
    kind, message = failure_in(done)
    assert (done.json[0]["verdict"], kind) == ("undetermined", "invalid_reply")
    assert "get_weather" in message
    with Loopback(calls(ANSWER)) as server:
        for _ in range(2):
            assert judge_at(server).json[0]["verdict"] == "accept"
    assert [form_of(asked) for asked in server.requests] == ["tool", "tool"]


NO_JSON = "Failed to generate JSON. Please adjust your prompt."
NO_CALL = "Failed to call a function. See 'failed_generation'."
UNFIT = (
    {"message": NO_JSON, "code": "json_validate_failed", "failed_generation": "{"},
    {"message": NO_CALL, "code": "tool_use_failed", "failed_generation": "temperature"},
    {"message": "The model's output did not match the requested JSON schema"},
)


@pytest.mark.parametrize("error", UNFIT, ids=["groq", "groq-tool", "in words"])
def test_an_error_about_the_models_words_is_no_bad_request(
    judge_at: JudgeAt, error: dict[str, str]
) -> None:
    """It is asked again, then in a weaker format."""

    def answer(asked: Asked) -> Answer:
        return GOOD if form_of(asked) == "text" else sends({"error": error}, status=400)

    with Loopback(answer) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
    forms = [form_of(asked) for asked in server.requests]
    assert forms == ["json_schema", "json_schema", "json_object", "text"]
    with Loopback(sends({"error": error}, status=400), GOOD) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
        judge_at(server)
    assert {form_of(asked) for asked in server.requests} == {"json_schema"}  # it was that one reply
    with Loopback(sends({"error": error}, status=400)) as server:
        kind, message = failure_in(judge_at(server))
    assert kind == "invalid_reply"
    assert error["message"].split(".")[0] in message


def test_what_was_seen_is_private_expires_and_is_tried_again_by_a_check(
    judge_at: JudgeAt, judgekit: Run, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(says(UNHEEDED["a fence and a sentence"])) as server:
        judge_at(server)
        folder = isolated / "judgekit" / "cache" / environment.ADDRESSES.name
        [file] = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        judge_at(server)
        assert form_of(server.requests[-1]) == "json_object"
        later = time.time() + remembered.KEPT_SECONDS
        monkeypatch.setattr(time, "time", lambda: later)
        judge_at(server)
        assert form_of(server.requests[-1]) == "json_schema"
        judge_at(server)
        assert form_of(server.requests[-1]) == "json_object"
        done = judgekit(*CHECK)
        assert form_of(server.requests[-1]) == "json_schema"
        assert done.code == 0
        assert "does not keep to json_schema" in done.out
        # A file that says anything else than a weakening is none.
        for content in (
            '{"mode": "tool"}',
            "[]",
            "{",
            json.dumps({**json.loads(file.read_text()), "thinking": -1}),
        ):
            file.write_text(content)
            judge_at(server)
            assert form_of(server.requests[-1]) == "json_schema"


def test_a_project_cannot_say_what_an_address_takes(
    judge_at: JudgeAt, project: Path, isolated: Path
) -> None:
    with Loopback(says(UNHEEDED["a fence and a sentence"]), GOOD) as server:
        judge_at(server)
        folder = isolated / "judgekit" / "cache" / environment.ADDRESSES.name
        [file] = folder.iterdir()
        for place in (project / ".judgekit", project / "cache", project / ".judgekit" / "cache"):
            (place / environment.ADDRESSES.name).mkdir(parents=True, exist_ok=True)
            (place / environment.ADDRESSES.name / file.name).write_bytes(file.read_bytes())
        file.unlink()
        judge_at(server)
    assert form_of(server.requests[-1]) == "json_schema"


# Models that think


def thinks_at_first(least: int) -> Callable[[Asked], Answer]:
    """Answer as a model that needs this many tokens before it says anything."""

    def answer(asked: Asked) -> Answer:
        if asked.body["max_tokens"] >= least:
            return GOOD
        spent = {"completion_tokens_details": {"reasoning_tokens": asked.body["max_tokens"]}}
        return completion({"content": ""}, finish="length", usage=spent)

    return answer


SPENT = {"completion_tokens_details": {"reasoning_tokens": 64}}
THOUGHTS = {
    "counted": completion(
        {"content": ""},
        finish="length",
        usage={"completion_tokens_details": {"reasoning_tokens": 64}},
    ),
    "shown": completion({"content": None, "reasoning_content": "Let me see"}, finish="length"),
    "under another name": completion({"content": None, "reasoning": "Let me see"}, finish="length"),
    "in the text": completion({"content": "<think>Let me see"}, finish="length"),
    "in a part": completion(
        {"content": [{"type": "thinking", "thinking": "Let me see"}]}, finish="length"
    ),
    "nothing at all": completion({"content": ""}, finish="length"),
    "ended": completion({"content": "", "reasoning_content": "It is good."}),
}


@pytest.mark.parametrize("answer", THOUGHTS.values(), ids=THOUGHTS)
def test_a_model_that_is_cut_while_it_thinks_gets_room_for_it_and_keeps_it(
    judge_at: JudgeAt, answer: Answer
) -> None:
    with Loopback(answer, GOOD) as server:
        for _ in range(2):
            assert judge_at(server).json[0]["verdict"] == "accept"
    assert [asked.body["max_tokens"] for asked in server.requests] == [2048, 10048, 10048]


def test_what_a_thought_cost_is_not_lost(judge_at: JudgeAt) -> None:
    profile("openai-compatible", price="{stand-in: {input: 1, output: 1}}")
    with Loopback(THOUGHTS["counted"], GOOD) as server:
        [verdict] = judge_at(server).json
    usage = verdict["rounds"][0]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (22, 14)
    assert verdict["cost_usd"] == pytest.approx(36 / 1e6)


def test_the_message_names_the_setting_and_the_number_that_was_sent(judge_at: JudgeAt) -> None:
    with Loopback(THOUGHTS["counted"]) as server:
        kind, message = failure_in(judge_at(server))
    assert kind == "truncated"
    assert "cut at 10048 tokens (8000 of them for thinking)" in message
    assert "limits.thinking_tokens in the profile of openai-compatible" in message
    # The message's advice, followed:
    profile("openai-compatible", limits="{thinking_tokens: 20000}")
    with Loopback(thinks_at_first(20_000)) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert [asked.body["max_tokens"] for asked in server.requests] == [22048]
    profile("openai-compatible", limits="{thinking_tokens: 0}")
    with Loopback(THOUGHTS["counted"]) as server:
        kind, message = failure_in(judge_at(server))
    assert kind == "truncated"
    assert {asked.body["max_tokens"] for asked in server.requests} == {2048}


def test_a_long_answer_of_a_model_that_does_not_think_is_cut_as_it_was(judge_at: JudgeAt) -> None:
    with Loopback(says(ANSWER[:20], finish="length")) as server:
        kind, message = failure_in(judge_at(server))
    assert (kind, message) == ("truncated", "the reply was cut at 2048 tokens")
    assert {asked.body["max_tokens"] for asked in server.requests} == {2048}


def proxy(**models: bool) -> Callable[[Asked], Answer]:
    """List models as a LiteLLM proxy does, and which of them think."""
    rows = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}"},
            "model_info": {"supports_reasoning": thinks},
        }
        for name, thinks in models.items()
    ]
    return lambda asked: sends({"data": rows}) if asked.path == "/v1/model/info" else fails(404)


@pytest.mark.parametrize("name", ["JUDGEKIT_API_BASE", "LITELLM_PROXY_API_BASE"])
def test_a_proxy_that_says_who_thinks_is_asked_with_room_at_once(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with Loopback(thinks_at_first(8000), listing=proxy(nano=True, mini=False)) as server:
        monkeypatch.setenv(name, server.base)
        for model in ("nano", "mini"):
            monkeypatch.setenv("JUDGEKIT_MODEL", model)
            for _ in range(2):
                assert judgekit(*JUDGE).json[0]["verdict"] == "accept"
    sent = [(asked.body["model"], asked.body["max_tokens"]) for asked in server.requests]
    assert sent == [
        ("nano", 10048),
        ("nano", 10048),
        ("mini", 2048),
        ("mini", 10048),
        ("mini", 10048),
    ]
    assert [asked.path for asked in server.listed].count("/v1/model/info") == 1


def test_candidates_of_a_search_get_room_for_thoughts_too(judgekit: Run, use: Use) -> None:
    def answer(asked: Asked) -> Answer:
        return says('{"keep": []}') if asked.body["max_tokens"] > 8000 else THOUGHTS["counted"]

    with Loopback(answer) as server:
        use(server)
        done = judgekit("search", "token refresh", "--judge", "--json")
    assert done.json["degraded"] is None
    assert server.requests[0].body["max_tokens"] < 2048
    assert server.requests[-1].body["max_tokens"] > 8000


# Thoughts are no answer


DRAFT = {"type": "text", "text": ANSWER}
DRAFTS: dict[str, object] = {
    "a block": f"<think>{ANSWER}</think>\nI cannot score this text.",
    "a block that does not end": f"<think>Maybe {ANSWER}. But wait",
    "before a lone end": f"Maybe {ANSWER}\n</think>",
    "square brackets": f"[THINK]{ANSWER}[/THINK]",
    "a channel": f"<|channel|>analysis<|message|>{ANSWER}<|end|>",
    "a part of thoughts": [{**DRAFT, "type": "thought"}],
    "a part of reasoning": [{**DRAFT, "type": "reasoning_text"}],
    "a part of a summary": [{**DRAFT, "type": "summary_text"}],
    "a part that nobody knows": [{**DRAFT, "type": "musing"}],
    "a part that is marked": [{**DRAFT, "thought": True}],
    "a part that is marked otherwise": [{**DRAFT, "is_thought": True}],
    "a part of a channel": [{**DRAFT, "channel": "analysis"}],
    "a part of a phase": [{**DRAFT, "phase": "commentary"}],
}
ANSWERS: dict[str, list[dict[str, object]]] = {
    "a part of the last phase": [{**DRAFT, "phase": "final_answer"}],
    "a part with a signature": [{**DRAFT, "thoughtSignature": "c2ln"}],
}


@pytest.mark.parametrize("content", DRAFTS.values(), ids=DRAFTS)
def test_a_draft_is_no_answer_in_whatever_form_it_is_sent(
    judge_at: JudgeAt, content: object
) -> None:
    with Loopback(completion({"content": content})) as server:
        done = judge_at(server)
    assert done.json[0]["verdict"] == "undetermined"


@pytest.mark.parametrize("content", ANSWERS.values(), ids=ANSWERS)
def test_a_part_that_is_the_answer_counts(judge_at: JudgeAt, content: object) -> None:
    with Loopback(completion({"content": content})) as server:
        done = judge_at(server)
    assert done.json[0]["verdict"] == "accept"


@pytest.mark.parametrize("form", ["json_schema", "json_object", "text", "tool"])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_draft_among_thoughts_is_no_answer(judge_at: JudgeAt, form: str, field: str) -> None:
    profile("openai-compatible", output=form)
    for content in ("", None, "  \n"):
        with Loopback(completion({"content": content, field: ANSWER})) as server:
            done = judge_at(server)
        assert done.json[0]["verdict"] == "undetermined"
        assert failure_in(done)[0] == "invalid_reply"


def test_a_profile_may_read_answers_among_thoughts_where_there_is_no_other(
    judge_at: JudgeAt,
) -> None:
    profile("openai-compatible", reads_reasoning="true")
    with Loopback(completion({"content": None, "reasoning_content": ANSWER})) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
    with Loopback(completion({"content": scores(1, 1, 1), "reasoning_content": ANSWER})) as server:
        assert judge_at(server).json[0]["verdict"] == "reject"
    message = completion({"content": None, "reasoning_content": "I think it is good."})
    with Loopback(message) as server:
        assert judge_at(server).json[0]["verdict"] == "undetermined"


# Each failure is named correctly

TEXT_PART = {"type": "text", "text": ANSWER}


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "thinking", "thinking": scores(1, 1, 1)}, TEXT_PART],
        [{"type": "thinking", "thinking": [{"type": "text", "text": scores(1, 1, 1)}]}, TEXT_PART],
        [{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": ANSWER}],
        [{"type": "text", "text": ANSWER[:20]}, {"type": "text", "text": ANSWER[20:]}],
        [ANSWER],
    ],
)
def test_a_content_in_parts_is_its_text_without_the_thoughts(
    judge_at: JudgeAt, parts: list[Any]
) -> None:
    with Loopback(completion({"content": parts})) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert len(server.requests) == 1


def stated(error: object, **more: Any) -> Answer:  # noqa: ANN401 - any JSON
    return completion({"content": "", **more}, finish="error", error=error)


AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
BEGUN = '{"reasoning": "it is'
TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 6000 tokens (5000 in the "
    "messages, 1000 in the completion)."
)
PROBLEM = {"loc": ["body", "messages"], "msg": "Field required", "input": {"temperature": 0}}
BY_PROXY = f"litellm.BadRequestError: litellm.ContentPolicyViolationError: AzureException - {AZURE}"
FLAGGED = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
MODERATED = "x requires moderation on Azure. Your input was flagged for violence."
INSPECTED = "data_inspection_failed: Input data may contain inappropriate content."
BAD_UPSTREAM = {"error": {"code": 502, "message": "Bad upstream"}}
DIED = {"object": "error", "message": "The worker died", "code": 500}
BUSY = "insufficient_system_resource"
# Each with the kind that is told, and words of the provider's that are.
FAILURES: list[tuple[Answer, str, str]] = [
    (stated({"code": 502, "message": "Upstream is gone"}), "server_error", "Upstream is gone"),
    (stated({"code": 429, "message": "Too many of you"}), "rate_limit", "Too many of you"),
    (stated({"code": 503, "message": "No worker"}, content='{"scores"'), "overloaded", "No worker"),
    (stated({"code": 400, "message": AZURE}), "content_filter", "content management policy"),
    (sends(BAD_UPSTREAM), "server_error", "Bad upstream"),
    (sends(DIED), "server_error", "The worker died"),
    (fails(400, AZURE), "content_filter", "content management policy"),
    (fails(400, BY_PROXY), "content_filter", "content management policy"),
    (fails(400, FLAGGED), "content_filter", "flagged"),
    (fails(403, MODERATED), "content_filter", "moderation"),
    (fails(400, "Content Exists Risk"), "content_filter", "Content Exists Risk"),
    (fails(400, INSPECTED), "content_filter", "inappropriate"),
    (says(BEGUN, finish="content_filter"), "content_filter", "filter"),
    (says(BEGUN, finish="sensitive"), "content_filter", "sensitive"),
    (says(BEGUN, finish="moderation"), "content_filter", "moderation"),
    (says(None, refusal="I cannot help with that"), "refusal", "I cannot help with that"),
    (says("", finish="refusal"), "refusal", "refused"),
    (says(BEGUN, finish="max_output_tokens"), "truncated", "2048"),
    (says(BEGUN, finish=BUSY), "overloaded", BUSY),
    (fails(401, "Incorrect API key provided"), "authentication", "Incorrect API key"),
    (fails(403, "Your project may not use this model"), "permission", "may not use"),
    (fails(400, TOO_LONG), "context_window", "4096"),
    (sends({"detail": [PROBLEM]}, status=422), "bad_request", "body.messages: Field required"),
]


@pytest.mark.parametrize(("answer", "kind", "words"), FAILURES)
def test_a_failure_is_told_as_what_it_is_in_the_providers_words(
    judge_at: JudgeAt, monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: str, words: str
) -> None:
    monkeypatch.setattr("judgekit.providers.litellm.ATTEMPTS", 1)
    with Loopback(answer) as server:
        done = judge_at(server)
    assert done.json[0]["verdict"] == "undetermined"
    told, message = failure_in(done)
    assert told == kind, message
    assert words in message


ROOM = {
    "vllm": (
        "'max_tokens' or 'max_completion_tokens' is too large: {sent}. This model's maximum "
        "context length is 4,096 tokens and your request has 3000 input tokens ({sent} > 4096 - "
        "3000)."
    ),
    "vllm, older": (
        "This model's maximum context length is 4096 tokens. However, you requested 5048 tokens "
        "(3000 in the messages, {sent} in the completion). Please reduce the length of the "
        "messages or completion."
    ),
    "anthropic": (
        "input length and `max_tokens` exceed context limit: 3000 + {sent} > 4096, decrease "
        "input length or `max_tokens` and try again"
    ),
    "tgi": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 "
        "`inputs` tokens and {sent} `max_new_tokens`"
    ),
    "openai": (
        "max_tokens is too large: {sent}. This model supports at most 1096 completion tokens, "
        "whereas you provided {sent}."
    ),
    "anthropic's cap": (
        "max_tokens: {sent} > 1096, which is the maximum allowed number of output tokens for claude-x"
    ),
    "groq": (
        "`max_tokens` must be less than or equal to `1096`, the maximum value for `max_tokens` "
        "is less than the `context_window` for this model"
    ),
    "deepseek": "Invalid max_tokens value, the valid range of max_tokens is [1, 1096]",
    "bedrock": (
        "The maximum tokens you requested exceeds the model limit of 1096. Try again with a "
        "maximum tokens value that is lower than 1096."
    ),
    "bedrock, by its schema": (
        "Malformed input request: #/max_tokens: {sent} is not less or equal to 1096, please "
        "reformat your input and try again."
    ),
    "gemini": (
        "Unable to submit request because it has a maxOutputTokens value of {sent} but the "
        "supported range is from 1 (inclusive) to 1097 (exclusive). Update the value and try again."
    ),
    "openrouter": (
        "This request requires more credits, or fewer max_tokens. You requested up to {sent} "
        "tokens, but can only afford 1096. To increase, visit the settings and add more credits"
    ),
    "cohere": "invalid request: max_tokens must be less than or equal to 1096. received {sent}",
    "fireworks": "Requests with max_tokens > 1096 must have stream=true",
    "dashscope": "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 1096]",
    "zhipu": "max_tokens参数非法\uff0c取值范围[1,1096]",
    "pydantic": "max_tokens: Input should be less than or equal to 1096",
    "between": "max_tokens must be between 1 and 1096, got {sent}",
    "exclusive": "max_tokens must be less than 1097",
    "a limit": "max_completion_tokens ({sent}) exceeds the limit of 1,096 for this model",
    "a maximum": "The requested number of output tokens is above the maximum of 1096",
    "an allowed maximum": "max_new_tokens is too large: the maximum allowed value is 1096",
}


@pytest.mark.parametrize("words", ROOM.values(), ids=ROOM)
def test_a_reply_is_shortened_once_to_the_room_that_there_is(judge_at: JudgeAt, words: str) -> None:
    def answer(asked: Asked) -> Answer:
        sent = asked.body["max_tokens"]
        return GOOD if sent <= 1096 else fails(400, words.format(sent=sent))

    with Loopback(answer) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert [asked.body["max_tokens"] for asked in server.requests] == [2048, 1096]
    never = fails(400, words.format(sent=2048))
    with Loopback(never) as server:
        judge_at(server)
    assert [asked.body["max_tokens"] for asked in server.requests][:2] == [2048, 1096]
    assert len({asked.body["max_tokens"] for asked in server.requests}) == 2


CUT_WORDS = {
    "openai": (
        "Could not finish the message because max_tokens or model output limit was reached. "
        "Please try again with higher max_tokens."
    ),
    "groq": (
        "json_validate_failed: max completion tokens reached before generating a valid document"
    ),
    "a limit": "The output token limit was reached while the model was still thinking",
}


@pytest.mark.parametrize("words", CUT_WORDS.values(), ids=CUT_WORDS)
def test_a_cut_that_is_told_as_an_error_gets_room_for_thoughts(
    judge_at: JudgeAt, words: str
) -> None:
    def answer(asked: Asked) -> Answer:
        return GOOD if asked.body["max_tokens"] > 8000 else fails(400, words)

    with Loopback(answer) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert len(server.requests) == 2


def test_what_a_balance_pays_for_is_no_limit_of_the_model(judge_at: JudgeAt) -> None:
    words = ROOM["openrouter"].format(sent=2048)
    with Loopback(fails(402, words), GOOD) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"
        assert judge_at(server).json[0]["verdict"] == "accept"
    assert [asked.body["max_tokens"] for asked in server.requests] == [2048, 1096, 2048]


# A text that a server cuts in silence

LONG = " ".join(f"Item {number} costs {number} euros." for number in range(1500))
DENSE = "".join(f"第{number}项的价格是{number}欧元。" for number in range(1500))
CUT = {
    "a context of 2,048": {"prompt_tokens": 2048},
    "a context of 4,096": {"prompt_tokens": 4096},
    "some of it in a cache": {
        "prompt_tokens": 2048,
        "prompt_tokens_details": {"cached_tokens": 1024},
    },
}
WHOLE = {
    "all that was sent": {"prompt_tokens": 11_000},
    "what is not in a cache": {
        "prompt_tokens": 1100,
        "prompt_tokens_details": {"cached_tokens": 9000},
    },
    "a small count": {"prompt_tokens": 900},
    "no count": {"prompt_tokens": 0},
}


@pytest.mark.parametrize("usage", CUT.values(), ids=CUT)
@pytest.mark.parametrize("text", [LONG, DENSE], ids=["English", "Chinese"])
def test_a_text_that_was_not_read_whole_is_not_accepted(
    judge_at: JudgeAt, usage: dict[str, Any], text: str
) -> None:
    Path("good.md").write_text(text)
    with Loopback(completion({"content": ANSWER}, usage=usage)) as server:
        [verdict] = judge_at(server).json
    assert verdict["verdict"] == "undetermined"
    failure = verdict["rounds"][-1]["failure"]
    assert failure["kind"] == "context_window"
    assert f"{usage['prompt_tokens']:,} tokens" in failure["message"]


@pytest.mark.parametrize("usage", WHOLE.values(), ids=WHOLE)
def test_other_counts_prove_no_cut(judge_at: JudgeAt, usage: dict[str, Any]) -> None:
    Path("good.md").write_text(LONG)
    with Loopback(completion({"content": ANSWER}, usage=usage)) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"


def test_a_decision_model_that_cut_the_text_accepts_nothing(judgekit: Run) -> None:
    Path("good.md").write_text(LONG)
    with deciding_alone() as server:
        server.change = lambda body: body["usage"].update(input_tokens=2048)
        done = judgekit(*JUDGE)
    assert failure_in(done)[0] == "context_window"


def test_blanks_and_rules_take_few_tokens_and_are_no_sign_of_a_cut(judge_at: JudgeAt) -> None:
    Path("good.md").write_text(f"A table.\n{' ' * 20_000}|{'-' * 20_000}|\n")
    with Loopback(completion({"content": ANSWER}, usage={"prompt_tokens": 1500})) as server:
        assert judge_at(server).json[0]["verdict"] == "accept"


@pytest.mark.parametrize(
    "refusal",
    [
        fails(400, "System role not supported"),
        fails(500, "Jinja Exception: System role not supported"),
        fails(400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        fails(
            400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."
        ),
        fails(400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        fails(400, "Only user and assistant roles are supported!"),
    ],
)
def test_without_a_system_role_the_instructions_stand_in_the_users_message(
    judge_at: JudgeAt, refusal: Answer
) -> None:
    def answer(asked: Asked) -> Answer:
        return GOOD if asked.body["messages"][0]["role"] == "user" else refusal

    with Loopback(answer) as server:
        for _ in range(2):
            assert judge_at(server).json[0]["verdict"] == "accept"
    first, *others = server.requests
    assert len(others) == 2
    instructions = first.body["messages"][0]["content"]
    for asked in others:
        [message] = asked.body["messages"]
        assert "A sound document." in message["content"]
        assert message["content"][:200] == instructions[:200]


# Addresses


def test_an_address_without_a_scheme_is_told_with_the_one_that_is_meant(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(GOOD) as server:
        here = f"127.0.0.1:{server.port}"
        for wrong, right in (
            (here, f"http://{here}/v1"),
            (f"{here}/v1", f"http://{here}/v1"),
            ("a.example.org", "https://a.example.org/v1"),
        ):
            for words in (("--model", "openai-compatible/stand-in"), ()):
                monkeypatch.setenv("JUDGEKIT_API_BASE", wrong)
                monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
                done = judgekit("judge", "good.md", "--no-cache", *words)
                assert done.code == 2
                assert f"such as {right}" in done.err, done.err
        assert not server.requests
        monkeypatch.setenv("JUDGEKIT_API_BASE", f"http://{here}/v1")
        assert judgekit(*JUDGE).json[0]["verdict"] == "accept"


@pytest.mark.parametrize("added", ["", "/v1/chat/completions", "/v1/"])
@pytest.mark.parametrize(
    "elsewhere",
    [
        sends({"detail": "Not Found"}, status=404),
        sends({"detail": "Method Not Allowed"}, status=405),
        sends({"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
        sends(b"<!doctype html><html><body>Welcome</body></html>"),
    ],
    ids=["404", "405", "LM Studio", "a page"],
)
def test_an_address_that_ends_at_the_wrong_place_is_told_with_the_right_one(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, added: str, elsewhere: Answer
) -> None:
    def at_its_path(asked: Asked) -> Answer:
        return GOOD if asked.path == "/v1/chat/completions" else elsewhere

    def models(asked: Asked) -> Answer:
        return sends({"data": [{"id": "stand-in"}]}) if asked.path == "/v1/models" else elsewhere

    with Loopback(at_its_path, listing=models) as server:
        root = f"http://127.0.0.1:{server.port}"
        monkeypatch.setenv("JUDGEKIT_API_BASE", root + added)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        done = judgekit(*JUDGE)
        if added.startswith("/v1/"):  # which the client understands
            assert done.json[0]["verdict"] == "accept"
            return
        kind, message = failure_in(done)
        assert kind == "not_found"
        assert message.endswith(f"set JUDGEKIT_API_BASE to {root}/v1")
        monkeypatch.setenv("JUDGEKIT_API_BASE", message.split()[-1])
        assert judgekit(*JUDGE).json[0]["verdict"] == "accept"


VENDORS = (
    "OPENAI",
    "OPENROUTER",
    "DEEPSEEK",
    "MISTRAL",
    "XAI",
    "GROQ",
    "CEREBRAS",
    "ANTHROPIC",
    "GEMINI",
)


@pytest.mark.parametrize("end", ["API_BASE", "BASE_URL"])
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.usefixtures("no_servers")
def test_a_gateway_that_is_named_for_a_vendor_is_asked_in_its_place(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, vendor: str, end: str
) -> None:
    with Loopback(GOOD) as server:
        monkeypatch.setenv(f"{vendor}_API_KEY", "sk-aaaaaaaaaaaaaaaaaaaa")
        monkeypatch.setenv(f"{vendor}_{end}", server.base)
        judgekit(*JUDGE)
    assert server.requests
    assert all(asked.path.startswith("/v1/") for asked in server.requests)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.usefixtures("no_servers")
def test_a_gateway_without_a_scheme_is_refused_with_the_variable(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    monkeypatch.setenv(f"{vendor}_API_KEY", "sk-aaaaaaaaaaaaaaaaaaaa")
    monkeypatch.setenv(f"{vendor}_API_BASE", "gateway.example.org/v1")
    done = judgekit(*JUDGE)
    assert f"({vendor}_API_BASE)" in done.err
    assert done.json[0]["rounds"] == []


@pytest.mark.parametrize("end", ["/api", "/api/v1", "/api/v1/"])
def test_one_address_of_openrouter_serves_what_chats_and_what_decides(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with DecisionServer() as server:
        monkeypatch.setenv("OPENROUTER_API_KEY", "sk-aaaaaaaaaaaaaaaaaaaa")
        monkeypatch.setenv("OPENROUTER_API_BASE", server.base + end)
        judgekit(*JUDGE, "--model", "openrouter-decisions/maker/model")
    assert server.requests[0].path == "/api/alpha/decisions"


@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_an_ollama_elsewhere_is_asked_where_its_variable_says(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with Loopback(GOOD) as server:
        monkeypatch.setenv("OLLAMA_API_BASE", f"http://127.0.0.1:{server.port}{end}")
        done = judgekit(*JUDGE, "--model", "ollama/small")
    assert done.json[0]["verdict"] == "accept"
    assert server.requests[0].path == "/v1/chat/completions"


def test_a_missing_interface_is_not_told_as_a_missing_model(judge_at: JudgeAt) -> None:
    nothing = sends({"detail": "Not Found"}, status=404)
    with Loopback(nothing, listing=nothing) as server:
        kind, message = failure_in(judge_at(server))
    assert (kind, "has no chat interface (Not Found)" in message) == ("not_found", True)
    page = sends(b"<!doctype html><html><body>Sign in</body></html>")
    with Loopback(page, listing=page) as server:
        kind, message = failure_in(judge_at(server))
    assert (kind, "Sign in" in message) == ("invalid_reply", True)
    with Loopback(
        fails(404, "model 'stand-in' not found, try pulling it first"), listing=nothing
    ) as server:
        kind, message = failure_in(judge_at(server))
    assert (kind, "has no model custom/stand-in" in message) == ("not_found", True)
    with Loopback(fails(404, "no deployment is healthy"), models=("stand-in",)) as server:
        kind, message = failure_in(judge_at(server))
    assert (kind, message) == ("not_found", f"{server.base}: no deployment is healthy")


# What a check says


def test_a_check_asks_what_judging_asks_and_says_what_it_saw(served: Served) -> None:
    done, [asked] = served(GOOD, *CHECK)
    assert (done.code, form_of(asked)) == (0, "json_schema")
    schema = asked.body["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == {"reasoning", "scores", "findings"}
    assert "holds replies to the schema (json_schema)" in done.out
    done, _ = served(says(UNHEEDED["sentences around it"]), *CHECK)
    assert done.code == 0
    assert "does not keep to json_schema" in done.out
    assert "set output: json_object in the profile of openai-compatible" in done.out
    done, _ = served(thinks_at_first(8000), *CHECK)
    assert (done.code, "8000 tokens are added for thinking" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (says(""), "invalid_reply"),
        (says(ANSWER[:30], finish="length"), "truncated"),
        (THOUGHTS["counted"], "truncated"),
        (says("yes"), "invalid_reply"),
        (completion({"content": "", "reasoning_content": ANSWER}), "invalid_reply"),
    ],
)
def test_a_check_fails_on_a_reply_that_is_empty_cut_or_no_answer(
    served: Served, answer: Answer, kind: str
) -> None:
    done, _ = served(answer, *CHECK)
    assert (done.code, f"{kind}: " in done.out, "answered in" in done.out) == (2, True, False)


def test_what_cannot_be_written_is_remembered_while_the_process_lasts(
    judge_at: JudgeAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_HOME", f"{os.devnull}/nowhere")
    with Loopback(says(UNHEEDED["a fence and a sentence"])) as server:
        for _ in range(2):
            assert judge_at(server).json[0]["verdict"] == "accept"
    assert [form_of(asked) for asked in server.requests] == ["json_schema", "json_object"]

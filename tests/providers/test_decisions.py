"""Decision models as they are on the wire: each provider's path and form, and every way to answer badly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deciding import DecisionServer

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import decision_bodies, decisions, registry, running
from judgekit.providers.base import CallKey, Message, Request, build_endpoint
from judgekit.providers.decisions import DecisionOption, DecisionQuestion
from judgekit.providers.litellm import LitellmGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.providers.base import Endpoint, Reply

PREDICATE = DecisionQuestion("holds", "predicate", "Does it hold?")
CHOICE = DecisionQuestion(
    "better", "choice", "Which is better?", (DecisionOption("1", "the first"), DecisionOption("2"))
)
SCORE = DecisionQuestion(
    "clear",
    "score",
    "How clear is it?",
    tuple(DecisionOption(str(n), f"{n} of 5") for n in range(1, 6)),
)
QUESTIONS = (PREDICATE, CHOICE, SCORE)
PATHS = {
    "openai-decisions": "/v1/decisions",
    "typesafe": "/v1/systemone",
    "perplexity": "/v1/decisions",
    "openrouter-decisions": "/api/alpha/decisions",
    "cloudflare": "/client/v4/accounts/acc/ai/run/@cf/cloudflare/clef",
    "databricks": "/serving-endpoints/named/invocations",
    "azure-decisions": "/providers/microsoft/v1/systemone",
    "vllm-decisions": "/v1/systemone",
    "litellm-proxy-decisions": "/v1/decisions",
}
WIRES = ("openai-decisions", "typesafe")


@pytest.fixture
def server() -> Iterator[DecisionServer]:
    with DecisionServer() as running:
        yield running


def reached(name: str, base: str) -> Endpoint:
    profile = registry.find(name)
    environ = {
        "OPENAI_API_KEY": "sk-decides",
        "OPENAI_BASE_URL": f"{base}/v1",
        "TYPESAFE_API_KEY": "sk-decides",
        "TYPESAFE_API_BASE": base,
        "PERPLEXITY_API_KEY": "sk-decides",
        "PERPLEXITY_API_BASE": base,
        "OPENROUTER_API_KEY": "sk-decides",
        "OPENROUTER_API_BASE": f"{base}/api",
        "CLOUDFLARE_API_KEY": "sk-decides",
        "CLOUDFLARE_API_BASE": f"{base}/client/v4/accounts/acc/ai/run",
        "DATABRICKS_TOKEN": "sk-decides",
        "DATABRICKS_API_BASE": f"{base}/serving-endpoints",
        "AZURE_AI_API_KEY": "sk-decides",
        "AZURE_AI_API_BASE": base,
        "JUDGEKIT_DECISIONS_BASE": f"{base}/v1",
        "JUDGEKIT_DECISIONS_KEY": "sk-decides",
        "LITELLM_PROXY_API_BASE": base,
        "LITELLM_PROXY_API_KEY": "sk-decides",
    }
    return build_endpoint(profile, profile.models.quick or "named", environ)


def ask(
    model: Endpoint, questions: tuple[DecisionQuestion, ...] = QUESTIONS, timeout: float = 20
) -> Reply:
    request = Request(
        messages=(Message("user", "The text."),),
        call_key=CallKey("subject", "rubric@1", "quick"),
        timeout=timeout,
        max_tokens=1,
        questions=questions,
    )
    return running.run(LitellmGateway().complete(model, request))


@pytest.mark.parametrize("name", PATHS)
def test_each_provider_is_asked_at_its_path_and_read_in_its_form(
    name: str, server: DecisionServer
) -> None:
    reply = ask(reached(name, server.base))
    assert server.requests[-1].path == PATHS[name]
    assert server.requests[-1].headers["authorization"] == "Bearer sk-decides"
    answers = decisions.read_answers(reply.text, QUESTIONS)
    assert answers["holds"].probabilities == {"yes": 0.8, "no": pytest.approx(0.2)}
    assert answers["better"].probabilities == {"1": 0.5, "2": 0.5}
    assert answers["clear"].probabilities["4"] == 0.75
    assert reply.usage.input_tokens == 1000
    assert reply.usage.output_tokens == 0


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        ("openai-decisions", 1e-4),
        ("typesafe", 4.2e-5),
        ("perplexity", 2e-5),
        ("azure-decisions", 4.2e-5),
    ],
)
def test_what_is_read_has_its_price(name: str, usd: float, server: DecisionServer) -> None:
    assert ask(reached(name, server.base)).usage.cost_usd == pytest.approx(usd)


def test_openrouter_states_the_cost(server: DecisionServer) -> None:
    server.change = lambda body: body["usage"].update(cost=0.00123)
    assert ask(reached("openrouter-decisions", server.base)).usage.cost_usd == 0.00123


def _first_answer(body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    answers = body["answers"]
    return answers[0] if isinstance(answers, list) else answers["holds"]


def _drop_first(body: dict[str, Any]) -> None:
    answers = body["answers"]
    if isinstance(answers, list):
        del answers[0]
    else:
        del answers["holds"]


def _rename_first(body: dict[str, Any]) -> None:
    answers = body["answers"]
    if isinstance(answers, list):
        answers[0]["name"] = "other"
    else:
        answers["other"] = answers.pop("holds")


def _not_a_number(body: dict[str, Any]) -> None:
    answer = _first_answer(body)
    answer["probability" if "probability" in answer else "noul"] = float("nan")


def _refuse_first(body: dict[str, Any]) -> None:
    answers = body["answers"]
    if isinstance(answers, list):
        answers[0] = {"type": "refusal", "name": "holds", "refusal": "not this one"}
    else:
        answers["holds"] = {"type": "refusal", "refusal": "not this one"}


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_drop_first, "was not answered"),
        (_rename_first, "was not answered"),
        (_not_a_number, "which is no probability"),
        (_refuse_first, "was refused"),
    ],
)
def test_a_question_without_an_answer_of_its_own_fails_and_the_others_stand(
    name: str, change: Callable[[dict[str, Any]], None], words: str, server: DecisionServer
) -> None:
    server.change = change
    answers = decisions.read_answers(ask(reached(name, server.base)).text, QUESTIONS)
    assert words in answers["holds"].problem
    assert answers["better"].probabilities == {"1": 0.5, "2": 0.5}
    assert answers["clear"].probabilities["4"] == 0.75


def test_an_answer_that_is_there_twice_counts_for_none(server: DecisionServer) -> None:
    server.change = lambda body: body["answers"].insert(
        0, dict(body["answers"][0], probability=0.1)
    )
    answers = decisions.read_answers(ask(reached("openai-decisions", server.base)).text, QUESTIONS)
    assert "was answered 2 times" in answers["holds"].problem
    assert answers["clear"].probabilities["4"] == 0.75


@pytest.mark.parametrize(
    "share", ['"high"', "NaN", "2", "true"], ids=["a text", "no number", "too much", "a bool"]
)
def test_kept_probabilities_that_are_none_are_no_answer(share: str) -> None:
    kept = f'{{"holds": {{"yes": {share}, "no": 0.5}}}}'
    assert decisions.read_answers(kept, [PREDICATE])["holds"].problem


def test_kept_answers_with_a_key_twice_are_none() -> None:
    kept = '{"holds": {"yes": 1, "no": 0}, "holds": {"yes": 0, "no": 1}}'
    assert decisions.read_answers(kept, [PREDICATE])["holds"].problem


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 400, "-1", "true"])
def test_what_is_no_amount_is_none(number: str) -> None:
    body = f'{{"answers": {{"holds": {{"noul": {number}}}}}, "usage": {{"cost": {number}}}}}'
    reply = decision_bodies.read_body(body.encode(), [PREDICATE])
    assert reply.cost_usd is None
    assert "no probability" in reply.answers["holds"].problem


def test_a_name_that_is_there_twice_counts_for_none(server: DecisionServer) -> None:
    text = json.dumps(server.reply({"questions": {"holds": {"type": "noul", "instructions": "?"}}}))
    doubled = text.replace('"answers": {', '"answers": {"holds": {"type": "noul", "noul": 0.1}, ')
    said = decision_bodies.read_body(doubled.encode(), [PREDICATE])
    assert "was answered 2 times" in said.answers["holds"].problem


@pytest.mark.parametrize("name", WIRES)
def test_an_answer_to_what_was_not_asked_is_left_alone(name: str, server: DecisionServer) -> None:
    def add(body: dict[str, Any]) -> None:
        answer = dict(_first_answer(body), name="unasked")
        if isinstance(body["answers"], list):
            body["answers"].insert(0, answer)
        else:
            body["answers"]["unasked"] = answer

    server.change = add
    answers = decisions.read_answers(ask(reached(name, server.base)).text, QUESTIONS)
    assert not any(answer.problem for answer in answers.values())


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("level", [7, -1])
def test_a_level_beyond_the_scale_is_no_answer(
    name: str, level: int, server: DecisionServer
) -> None:
    def shift(body: dict[str, Any]) -> None:
        answers = body["answers"]
        if isinstance(answers, list):
            answers[2]["probabilities"][0]["value"] = level
        else:
            shares = answers["clear"]["probabilities"]
            shares[str(level)] = shares.pop("0")

    server.change = shift
    answers = decisions.read_answers(ask(reached(name, server.base)).text, QUESTIONS)
    assert f"level {level} of 5 levels" in answers["clear"].problem
    assert not answers["holds"].problem


def score_of(points: int) -> DecisionQuestion:
    options = tuple(DecisionOption(str(point)) for point in range(1, points + 1))
    return DecisionQuestion("clear", "score", "How clear is it?", options)


ROUNDED = {
    "two": [0.99, 0.0],
    "three": [0.33, 0.33, 0.33],
    "five, below": [0, 0, 0, 0.3, 0.68],
    "five, above": [0.01, 0.01, 0.01, 0.3, 0.69],
    "five, at the top": [0.01, 0.01, 0.01, 0.01, 0.98],
    "ten, below": [*[0] * 9, 0.96],
    "ten, above": [*[0.01] * 5, *[0] * 4, 0.98],
    "ten, alike": [0.105, 0.105, 0.105, 0.105, 0.105, 0.105, 0.105, 0.105, 0.1, 0.1],
}


def build_request(shares: list[float]) -> bytes:
    answer = {
        "type": "score",
        "score": round(sum(place * share for place, share in enumerate(shares)), 2),
        "probabilities": {str(place): share for place, share in enumerate(shares)},
    }
    return json.dumps({"model": "m", "answers": {"clear": answer}}).encode()


@pytest.mark.parametrize("shares", ROUNDED.values(), ids=ROUNDED)
def test_probabilities_that_were_rounded_are_an_answer(shares: list[float]) -> None:
    reply = decision_bodies.read_body(build_request(shares), [score_of(len(shares))])
    answer = reply.answers["clear"]
    assert not answer.problem
    assert sum(answer.probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "shares", [[0.9, 0.0], [0, 0, 0, 0.3, 0.6], [*[0] * 9, 0.9], [0.01] * 60 + [0.2]]
)
def test_what_no_rounding_explains_is_no_answer(shares: list[float]) -> None:
    reply = decision_bodies.read_body(build_request(shares), [score_of(len(shares))])
    assert "add up to" in reply.answers["clear"].problem


@pytest.mark.parametrize("name", WIRES)
def test_probabilities_that_do_not_add_up_are_no_answer(name: str, server: DecisionServer) -> None:
    def halve(body: dict[str, Any]) -> None:
        answers = body["answers"]
        if isinstance(answers, list):
            answers[1]["probabilities"][0]["probability"] = 0.1
        else:
            answers["better"]["probabilities"]["1"] = 0.1

    server.change = halve
    answers = decisions.read_answers(ask(reached(name, server.base)).text, QUESTIONS)
    assert "add up to 0.6" in answers["better"].problem


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b'{"error": {"message": "Incorrect API key"}}', FailureKind.AUTHENTICATION),
        (413, b'{"error": {"message": "Payload too large"}}', FailureKind.CONTEXT_WINDOW),
        (400, b'{"error": {"message": "bad question"}}', FailureKind.BAD_REQUEST),
        (200, b"<!doctype html><title>Sign in</title>", FailureKind.INVALID_REPLY),
        (200, b'{"model": "m"}', FailureKind.INVALID_REPLY),
    ],
)
def test_a_failure_is_of_its_kind_and_asked_once(
    name: str, status: int, body: bytes, kind: FailureKind, server: DecisionServer
) -> None:
    server.answer = (status, body, {})
    with pytest.raises(GatewayError) as failure:
        ask(reached(name, server.base))
    assert failure.value.kind is kind
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", WIRES)
def test_too_many_calls_wait_as_long_as_the_provider_says(
    name: str, server: DecisionServer
) -> None:
    server.answers = [(429, b'{"error": {"message": "slow down"}}', {"retry-after": "0.2"})]
    assert ask(reached(name, server.base)).text
    first, second = server.requests
    assert second.at - first.at >= 0.2


@pytest.mark.parametrize("name", WIRES)
def test_a_server_that_hangs_is_cut_at_the_deadline(name: str, server: DecisionServer) -> None:
    ask(reached(name, server.base))  # litellm is loaded before the time counts
    server.delay = 5.0
    with pytest.raises(GatewayError) as failure:
        ask(reached(name, server.base), timeout=0.5)
    assert failure.value.kind is FailureKind.TIMEOUT


def test_answers_survive_being_kept() -> None:
    body = json.dumps({"answers": [{"name": "holds", "probability": 0.25}], "usage": {}}).encode()
    said = decision_bodies.read_body(body, [PREDICATE, CHOICE])
    again = decisions.read_answers(decisions.write_answers(said.answers), [PREDICATE, CHOICE])
    assert again["holds"].probabilities == {"yes": 0.25, "no": 0.75}
    assert again["better"].problem == said.answers["better"].problem

"""`--batch`: requests submitted, paid for, kept and left if rows are judged in a provider's batches."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from batching import BatchServer
from hooking import by_user, own_profile
from loopback import RESET, fails, says
from scripted import by_content, scores

from judgekit.data import batches, manifest
from judgekit.judging.fence import replace_nonces

if TYPE_CHECKING:
    from collections.abc import Callable

    from batching import Fault
    from loopback import Answer, Asked
    from outcome import Outcome, Run, Use

# A run that is interrupted leaves coroutines of litellm behind that were made and not begun.
_LEFT = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.usefixtures("project", "fast"), pytest.mark.filterwarnings(_LEFT)]
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--out", "out.jsonl", "--batch")
LENIENT = (*JUDGE, "--mode", "lenient")
MANIFEST = Path("out.jsonl.batch")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "POLL_SECONDS", (0.02, 0.05))
    monkeypatch.setattr(batches, "SETTLING_SECONDS", 0.05)


@pytest.fixture
def batched(judgekit: Run, use: Use) -> Callable[..., Outcome]:
    def call(server: BatchServer, *words: str, **models: str) -> Outcome:
        use(server, **models)
        return judgekit(*(words or LENIENT))

    return call


def write(*answers: str) -> None:
    rows = ({"id": f"r{number}", "answer": answer} for number, answer in enumerate(answers, 1))
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def words() -> list[str]:
    return [each["verdict"] for each in read()]


def sizes(server: BatchServer) -> list[int]:
    return [len(batch.lines) for batch in server.batches.values()]


def live(server: BatchServer) -> int:
    """How many calls were ordinary ones."""
    return sum(asked.path.startswith("/v1/") and bool(asked.headers) for asked in server.requests)


# What is submitted


def tiers(asked: Asked) -> Answer:
    """Disagree from tier to tier about a text that says hard."""
    if "hard" in asked.text and asked.body["model"] == "large":
        return says(scores(1, 1, 1))
    return by_content(asked)


def test_each_tier_is_one_batch_and_nothing_is_left_behind(batched: Callable[..., Outcome]) -> None:
    write("one", "two\nTODO", "hard", "four")
    with BatchServer(tiers) as server:
        models = {"quick": "small", "deep": "large", "tiebreaker": "largest"}
        done = batched(server, *JUDGE, "--mode", "strict", **models)
        asked = [
            [line["body"]["model"] for line in batch.lines] for batch in server.batches.values()
        ]
        assert asked == [["small"] * 4, ["large"] * 3, ["largest"]]
        assert (done.code, words(), live(server)) == (
            0,
            ["accept", "reject", "accept", "accept"],
            0,
        )
        assert (server.kept, MANIFEST.exists()) == ([], False)
        assert read()[2]["judged"]["consensus"] == "majority"
        assert "batch batch_1: 4 requests to custom/small" in done.err
        count = len(server.events)
        done = batched(server, *JUDGE, "--mode", "strict", "--no-cache", **models)
        assert (len(server.events), "0 judged in" in done.err) == (count, True)
        batched(server, *JUDGE, "--mode", "strict", "--fresh", **models)
        assert len(server.events) == count, "the reply cache has all"


def test_a_line_is_what_an_ordinary_call_sends(batched: Callable[..., Outcome]) -> None:
    write("one")
    with BatchServer(by_content) as server:
        batched(server)
        batched(server, *(word for word in LENIENT if word != "--batch"), "--fresh", "--no-cache")
        in_batch, ordinary = (replace_nonces(json.dumps(asked.body)) for asked in server.requests)
        assert in_batch == ordinary


def test_samples_and_re_asks_are_in_one_batch_each(batched: Callable[..., Outcome]) -> None:
    by_user("judge: {samples: 3}\n")
    write("one", "two", "peculiar")

    def answer(asked: Asked) -> Answer:
        is_peculiar = "peculiar" in asked.text and len(asked.body["messages"]) == 2
        return says("no idea") if is_peculiar else by_content(asked)

    with BatchServer(answer) as server:
        batched(server)
        assert (sizes(server), words()) == ([9, 3], ["accept"] * 3)


def test_no_model_of_the_author_judges_alone_in_batches_either(
    batched: Callable[..., Outcome],
) -> None:
    write("one")
    with BatchServer(by_content) as server:
        models = {"quick": "gpt-5-mini", "deep": "gpt-5"}
        done = batched(server, *LENIENT, "--author-family", "openai", **models)
        assert (done.code, words(), sizes(server)) == (0, ["accept"], [1]), done.err
        assert read()[0]["judged"]["independent"] is False


def test_equal_rows_are_asked_once(batched: Callable[..., Outcome], isolated: Path) -> None:
    own_profile(isolated, "openai-compatible", more="price: {stand: {input: 1000, output: 0}}")
    write("same", "same", "other")
    with BatchServer(by_content) as server:
        batched(server, *LENIENT, "--no-cache")
        assert (sizes(server), words()) == ([2], ["accept"] * 3)
        assert sorted(each["cost_usd"] for each in read()) == [0, 0.011, 0.011]


def test_two_addresses_are_two_batches_and_each_sees_its_own_key(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user("judge: {tiers: {quick: [custom/small, openai/gpt-4o-mini], deep: custom/large}}\n")
    write("one", "two", "three")
    monkeypatch.setenv("JUDGEKIT_API_KEY", "jk-own-0123456789")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    seen: dict[str, list[dict[str, str]]] = {"own": [], "openai": []}

    def spy(name: str, _: str, asked: Asked) -> None:
        seen[name].append(asked.headers)

    openai = BatchServer(by_content, faults=(partial(spy, "openai"),))
    with openai, BatchServer(by_content, faults=(partial(spy, "own"),)) as own:
        monkeypatch.setenv("OPENAI_BASE_URL", openai.base)
        batched(own, model="")
        assert (sizes(own), sizes(openai), words()) == ([3], [3], ["accept"] * 3)
    assert {each["authorization"] for each in seen["own"]} == {"Bearer jk-own-0123456789"}
    assert {each["authorization"] for each in seen["openai"]} == {"Bearer sk-openai-0123456789"}
    assert {each.get("openai-organization") for each in seen["own"]} == {None}
    assert {each.get("openai-organization") for each in seen["openai"]} == {"org-mine"}


def test_a_proxy_is_told_which_model_a_file_is_for(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one")
    seen: list[str | None] = []

    def spy(event: str, asked: Asked) -> None:
        seen.extend([asked.headers.get("x-litellm-model")] * (event == "create files"))

    with BatchServer(by_content, faults=(spy,)) as server:
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", server.base)
        done = batched(server, *LENIENT, "--model", "litellm_proxy/team/judge")
        assert (seen, words(), live(server)) == (["team/judge"], ["accept"], 0), done.err
        assert server.batches["batch_1"].lines[0]["body"]["model"] == "team/judge"


def test_findings_are_reviewed_in_batches(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user("judge: {tiers: {deep: [custom/qwen, custom/llama, custom/gemma]}}\n")
    write("one", "two")
    with BatchServer(by_content) as server:
        done = batched(server, *LENIENT, "--review", "peers", model="")
        assert (live(server), len(read())) == (0, 2), done.err
        assert sizes(server)[:3] == [2, 2, 2]


@pytest.mark.parametrize("limit", ["MAX_REQUESTS", "MAX_BYTES"])
def test_a_batch_keeps_to_the_limits_of_a_file(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    write(*map(str, range(5)))
    with BatchServer(by_content) as server:
        monkeypatch.setattr(manifest, limit, 2 if limit == "MAX_REQUESTS" else 9_000)
        batched(server)
        assert (sizes(server), words()) == ([2, 2, 1], ["accept"] * 5)


def test_rows_beyond_those_of_a_batch_come_in_waves(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_OPEN_ROWS", 3)
    write(*map(str, range(7)))
    with BatchServer(by_content) as server:
        batched(server)
        assert (sizes(server), words()) == ([3, 3, 1], ["accept"] * 7)


def test_texts_are_compared_in_batches(batched: Callable[..., Outcome]) -> None:
    rows = ({"id": n, "prompt": "p", "a": f"first {n}", "b": f"second {n}"} for n in range(3))
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def answer(asked: Asked) -> Answer:
        labels = asked.body["response_format"]["json_schema"]["schema"]["properties"]["better"][
            "enum"
        ]
        before = asked.text[: asked.text.rindex("first")]
        return says(json.dumps({"reasoning": "r", "better": max(labels[:2], key=before.rfind)}))

    with BatchServer(answer) as server:
        done = batched(server, "compare", "--data", "rows.jsonl", "--out", "out.jsonl", "--batch")
        assert (words(), sizes(server)[0], live(server)) == ([*"AAA"], 6, 0), done.err


# Requests without an answer


@pytest.mark.parametrize("status", ["expired", "cancelled", "completed"])
def test_what_a_batch_leaves_out_is_asked_by_ordinary_calls(
    batched: Callable[..., Outcome], status: str
) -> None:
    write(*map(str, range(4)))
    with BatchServer(by_content) as server:
        server.ends[1] = (status, 1)
        done = batched(server)
        assert (sizes(server), live(server), words()) == ([4], 3, ["accept"] * 4)
        assert (
            f"batch batch_1 is {status}: 3 requests have no answer; asked by ordinary calls"
            in done.err
        )
        assert (server.kept, MANIFEST.exists()) == ([], False)


def test_or_it_is_left_to_the_next_run(batched: Callable[..., Outcome]) -> None:
    write("one", "two\nTODO", "three", "four")
    none = (*JUDGE, "--mode", "strict", "--batch-fallback", "none", "--no-cache")
    with BatchServer(by_content) as server:
        server.ends[2] = ("expired", 1)  # of deep's, after quick has rejected one
        done = batched(server, *none)
        assert (done.code, sizes(server), live(server)) == (2, [4, 3], 0)
        assert (words()[1], sorted(words())) == (
            "reject",
            ["accept", "reject", *["undetermined"] * 2],
        )
        told = {each["error"] for each in read() if each["verdict"] == "undetermined"}
        assert told == {"its batch expired (batch_2); the next run asks it in another batch"}
        done = batched(server, *none)
        assert (done.code, sizes(server)) == (0, [4, 3, 2]), "quick's answers are not asked again"
        assert (words(), MANIFEST.exists()) == (["accept", "reject", "accept", "accept"], False)


def test_lines_that_fail_are_told_apart(batched: Callable[..., Outcome]) -> None:
    """A line that failed for the moment is asked again, one that will always fail is not."""
    write("one", "busy", "unlucky")
    busy = [fails(503)]

    def answer(asked: Asked) -> Answer:
        if "busy" in asked.text and busy:
            return busy.pop()
        return fails(400, "no such luck") if "unlucky" in asked.text else by_content(asked)

    with BatchServer(answer) as server:
        done = batched(server)
        assert words() == ["accept", "accept", "undetermined"]
        assert "no such luck" in read()[2]["error"]
        assert (live(server), done.code) == (1, 2)


def test_a_style_that_is_refused_is_weakened_for_the_next_batch(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two", "three")

    def answer(asked: Asked) -> Answer:
        if "temperature" in asked.body:
            return fails(
                400, "Unsupported value: 'temperature' does not support 0 with this model."
            )
        return by_content(asked)

    with BatchServer(answer) as server:
        batched(server)
        assert (sizes(server), live(server), words()) == ([3, 3], 0, ["accept"] * 3)


def test_lines_that_are_missing_double_or_foreign_do_no_harm(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two", "three")

    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body = {**lines[0]["response"]["body"], "id": "another"}
        second = {**lines[0], "response": {"status_code": 200, "body": body}}
        return [lines[0], second, {**lines[0], "custom_id": "foreign"}, {"odd": 1}, lines[1]]

    with BatchServer(by_content) as server:
        server.change = change
        batched(server)
        assert (live(server), words()) == (1, ["accept"] * 3)


def test_a_line_with_an_infinite_status_is_asked_by_an_ordinary_call(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two")

    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        response = {**lines[0]["response"], "status_code": float("inf")}
        return [{**lines[0], "response": response}, lines[1]]

    with BatchServer(by_content) as server:
        server.change = change
        batched(server)
        assert live(server) == 1
        assert words() == ["accept"] * 2


def test_two_lines_that_contradict_each_other_are_no_answer(
    batched: Callable[..., Outcome],
) -> None:
    others = (
        {"status_code": 200, "body": json.loads(says(scores(1, 1, 1)).body)},
        {"status_code": 200, "body": {"choices": []}},
        {"status_code": 400, "body": {"error": {"message": "no"}}},
    )
    for number, other in enumerate(others):
        for order in (1, -1):
            write(f"one {number}{order}", f"two {number}{order}")

            def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
                pair = [lines[0], {**lines[0], "response": other}][::order]  # noqa: B023 - called at once
                return [*pair, lines[1]]

            with BatchServer(by_content) as server:
                server.change = change
                batched(server)
                assert (live(server), words()) == (1, ["accept"] * 2)


def test_a_batch_whose_format_is_not_heeded_is_read_and_the_next_is_asked_in_words(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two")

    def beside_words(_: Asked) -> Answer:
        return says(f"Here it is:\n{scores(4, 4, 4)}")

    with BatchServer(beside_words) as server:
        batched(server)
        assert (sizes(server), live(server), words()) == ([2], 0, ["accept"] * 2)

    def answer(asked: Asked) -> Answer:
        return by_content(asked) if "JSON Schema" in asked.text else says('{"fine": true}')

    write("three", "four")
    with BatchServer(answer) as server:
        batched(server)
        assert (sizes(server), live(server), words()) == ([2, 2], 0, ["accept"] * 2)


def test_a_batch_that_fails_as_a_whole_ends_the_run_and_the_next_submits_it_again(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two")
    with BatchServer(by_content) as server:
        server.ends[1] = ("failed", 0)
        done = batched(server)
        assert (done.code, server.kept) == (65, [])
        assert (
            "batch batch_1 was refused: line 1 is no JSON (invalid_json_line); run the same"
            in done.err
        )
        done = batched(server)
        assert (done.code, sizes(server), words()) == (0, [2, 2], ["accept"] * 2)


# Faults of the provider


@pytest.mark.parametrize(
    "event", ["create files", "look batches", "content files", "list batches", "create batches"]
)
@pytest.mark.parametrize("fault", [fails(500), fails(429, retry_after=0.01), RESET, fails(503)])
def test_passing_faults_are_lived_through(
    batched: Callable[..., Outcome], event: str, fault: Answer
) -> None:
    write("one", "two", "three")
    left = [fault] * 3

    def fail(now: str, _: Asked) -> Answer | None:
        return left.pop() if now == event and left else None

    with BatchServer(by_content, faults=(fail,)) as server:
        done = batched(server)
        assert (done.code, sum(sizes(server)), words()) == (0, 3, ["accept"] * 3), done.err
        assert (server.kept, live(server)) == ([], 0)


def test_a_batch_that_was_made_although_the_call_failed_is_found(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two")
    made: list[bool] = []

    def fail(event: str, asked: Asked) -> Answer | None:
        if event != "create batches" or made:
            return None
        made.append(True)
        server._batches_create("", asked)
        for number in range(2):  # and others of the same account, page by page
            server._batches_create("", replace(asked, body={"input_file_id": f"other-{number}"}))
        return RESET

    with BatchServer(by_content, faults=(fail,), pages=1) as server:
        server.files |= {"other-0": b"", "other-1": b""}
        batched(server)
        assert (sizes(server), words()) == ([2, 0, 0], ["accept"] * 2)


def test_a_file_whose_upload_failed_after_it_arrived_is_deleted(
    batched: Callable[..., Outcome],
) -> None:
    write("one", "two")
    uploaded: list[bool] = []

    def lose_answer(event: str, asked: Asked) -> Answer | None:
        if event != "create files" or uploaded:
            return None
        uploaded.append(True)
        server.respond(event, asked)
        return RESET

    with BatchServer(by_content, faults=(lose_answer,)) as server:
        batched(server)
        assert (len(server.file_names), server.kept) == (2, [])


def test_a_file_of_another_program_is_left_alone(batched: Callable[..., Outcome]) -> None:
    write("one", "two")
    refused: list[bool] = []

    def refuse(event: str, _: Asked) -> Answer | None:
        if event != "create files" or refused:
            return None
        refused.append(True)
        return fails(500)

    with BatchServer(by_content, faults=(refuse,)) as server:
        server.files["file-of-another"] = b"theirs"
        batched(server)
        assert server.kept == ["file-of-another"]


def test_what_cannot_pass_ends_the_run_which_goes_on_later(batched: Callable[..., Outcome]) -> None:
    write("one", "two")
    is_locked = [True]

    def lock(event: str, _: Asked) -> Answer | None:
        return fails(401, "wrong key") if event == "look batches" and is_locked else None

    with BatchServer(by_content, faults=(lock,)) as server:
        done = batched(server)
        assert (done.code, f"{server.base}: wrong key; run the same command" in done.err) == (
            65,
            True,
        )
        is_locked.clear()
        assert (batched(server).code, sizes(server), words()) == (0, [2], ["accept"] * 2)


@pytest.mark.parametrize("how", ["refused", "busy", "failed"])
def test_enqueued_tokens_make_batches_smaller_and_let_them_wait(
    batched: Callable[..., Outcome], how: str
) -> None:
    write(*map(str, range(8)))
    told = "Enqueued token limit reached for stand-in in organization org-1. Limit: 90 enqueued tokens."

    def limit(event: str, asked: Asked) -> Answer | None:
        if event != "create batches":
            return None
        waiting = sum(
            len(each.lines) for each in server.batches.values() if each.status == "validating"
        )
        if waiting + server.files[asked.body["input_file_id"]].count(b"\n") <= 3:
            return None
        if how != "failed":
            return fails(429 if how == "busy" else 400, told)
        server._batches_create("", asked)
        last = list(server.batches.values())[-1]
        last.status, last.problem = "failed", {"code": "token_limit_exceeded", "message": told}
        return last.answer()

    with BatchServer(by_content, faults=(limit,)) as server:
        done = batched(server)
        taken = [
            len(batch.lines) for batch in server.batches.values() if batch.status == "completed"
        ]
        assert (done.code, words()) == (0, ["accept"] * 8), done.err
        assert (taken, server.kept, live(server)) == ([2, 2, 2, 2], [], 0)


# Runs that end before their time

STAGES = ("create files", "create batches", "look batches", "content files", "delete files")


def end_at(
    stage: str, after: Callable[[], object], server: list[BatchServer], nth: int = 1
) -> Fault:
    """Return a fault that ends the run when a request comes for the nth time, after the server did it."""
    count = Counter[str]()

    def fault(event: str, asked: Asked) -> Answer | None:
        count[event] += 1
        if event != stage or count[event] != nth:
            return None
        found = server[0].respond(event, asked)
        after()
        return found

    return fault


@pytest.mark.parametrize("delay_s", [0, 0.3])  # before or after the answer arrives
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_run_goes_on_and_nothing_is_asked_twice(
    batched: Callable[..., Outcome], stage: str, nth: int, delay_s: float
) -> None:
    write("one", "two\nTODO", "three")
    strict = (*JUDGE, "--mode", "strict", "--no-cache")
    server: list[BatchServer] = []

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(delay_s)  # or both signals would be handled as one
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(delay_s)

    with BatchServer(by_content, faults=(end_at(stage, interrupt, server, nth),)) as only:
        server.append(only)
        done = batched(only, *strict, quick="small", deep="large")
        assert (done.code, "run the same command to continue" in done.err) == (130, True), done.err
        done = batched(only, *strict, quick="small", deep="large")
        assert (done.code, sizes(only)) == (0, [3, 2]), done.err
        assert (words(), [each["id"] for each in read()]) == (
            ["accept", "reject", "accept"],
            ["r1", "r2", "r3"],
        )
        assert (only.kept, MANIFEST.exists(), live(only)) == ([], False, 0)


_RUN = """
import sys
from judgekit.cli.app import run
from judgekit.data import batches
batches.POLL_SECONDS = 0.02, 0.05
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_run_goes_on_and_no_request_is_paid_twice(
    batched: Callable[..., Outcome], use: Use, stage: str, isolated: Path
) -> None:
    own_profile(isolated, "openai-compatible", more="price: {stand: {input: 1000, output: 0}}")
    write("one", "two\nTODO", "three")
    children: list[subprocess.Popen[bytes]] = []
    server: list[BatchServer] = []

    def kill() -> None:
        children[0].kill()

    with BatchServer(by_content, faults=(end_at(stage, kill, server),)) as only:
        server.append(only)
        use(only)
        children.append(subprocess.Popen([sys.executable, "-c", _RUN, *LENIENT]))
        assert children[0].wait(60) == -signal.SIGKILL
        done = batched(only)
        assert (done.code, sizes(only), len(only.requests)) == (0, [3, 1], 4), done.err
        assert (words(), len(read())) == (["accept", "reject", "accept"], 3)
        assert sum(each["cost_usd"] for each in read()) == pytest.approx(0.044)
        assert only.kept == []


def test_rows_that_changed_meanwhile_are_asked_anew(batched: Callable[..., Outcome]) -> None:
    write("one", "two")
    with BatchServer(by_content) as server:
        server.held.add("batch_1")
        server.faults.append(lambda event, _: fails(401) if event == "look batches" else None)
        assert batched(server).code == 65
        server.faults.clear()
        write("changed", "other")
        done = batched(server)
        assert (sizes(server), words()) == ([2, 2], ["accept"] * 2)
        assert f"batch batch_1 at {server.base} goes on, but no row waits for it" in done.err
        write("one", "other")
        server.held.clear()
        batched(server)
        assert (sizes(server), words()) == ([2, 2], ["accept"] * 2), "the answer was paid for"
        assert (server.kept, MANIFEST.exists()) == ([], False)


def test_a_manifest_is_private_and_says_to_nobody_where_a_key_goes(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one")
    monkeypatch.setenv("JUDGEKIT_API_KEY", "jk-own-0123456789")
    with BatchServer(by_content) as server, BatchServer(by_content) as other:
        server.faults.append(lambda event, _: fails(401) if event == "look batches" else None)
        batched(server)
        raw = MANIFEST.read_bytes()
        assert (MANIFEST.stat().st_mode & 0o77, b"jk-own" in raw) == (0, False)
        with closing(sqlite3.connect(MANIFEST)) as table:
            table.execute(
                "UPDATE batch SET place = replace(place, ?, ?)", (server.base, other.base)
            )
            table.commit()
        server.faults.clear()
        assert (batched(server).code, other.events) == (64, [])
        done = batched(server, *LENIENT, "--trust-results")
        assert (other.events, words()) == ([], ["accept"]), done.err


# What it costs


def test_a_batch_costs_the_share_that_its_profile_says(
    batched: Callable[..., Outcome], isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced = "price: {stand: {input: 1000, output: 1000}}"
    write("one", "two", "three")
    with BatchServer(by_content) as server:
        for text, cost in (
            ("batches: 1", 0.018),
            ("batches: 0.5", 0.009),
            ("batches: 0.25", 0.0045),
        ):
            own_profile(isolated, "openai-compatible", "batches: 1", text, priced)
            server.ends[len(server.batches) + 1] = ("expired", 2)
            done = batched(server, *LENIENT, "--fresh", "--no-cache")
            costs = [each["cost_usd"] for each in read()]
            assert sorted(costs) == sorted([cost, cost, 0.018]), "one of them by an ordinary call"
            assert f"{2 * cost + 0.018:.4f} USD" in done.err
        monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        monkeypatch.delenv("JUDGEKIT_API_BASE")
        done = batched(server, *LENIENT, "--fresh", "--no-cache", "--model", "openai/gpt-4o-mini")
        usual = 11 * 0.15e-6 + 7 * 0.6e-6
        assert [each["judged"]["rounds"][0]["usage"]["cost_usd"] for each in read()] == [
            usual / 2
        ] * 3


def test_no_batch_exceeds_the_limit(batched: Callable[..., Outcome], isolated: Path) -> None:
    own_profile(isolated, "openai-compatible", more="price: {stand: {input: 1000, output: 0}}")
    write(*map(str, range(5)))
    with BatchServer(by_content) as server:
        alone = ("other.jsonl" if word == "out.jsonl" else word for word in LENIENT)
        batched(server, *alone, "--limit", "1", "--fresh", "--no-cache")
        each = len(json.dumps(server.batches["batch_1"].lines[0]["body"])) // 4 / 1000
        done = batched(server, *LENIENT, "--max-cost", f"{2.5 * each}")
        assert (sizes(server)[1:], done.code) == ([2], 2), done.err
        assert "3 rows not judged, because --max-cost is reached" in done.err
        assert len(read()) == 2
        done = batched(server, *LENIENT, "--max-cost", "100")
        assert (sizes(server)[1:], done.code, words()) == ([2, 3], 0, ["accept"] * 5)


# What is refused


@pytest.mark.parametrize(
    ("more", "environ", "why"),
    [
        (
            "--model anthropic/claude-haiku-4-5",
            {"ANTHROPIC_API_KEY": "k-0123456789"},
            "anthropic has no bat",
        ),
        ("--max-cost 1", {}, "no price is known for custom/stand-in"),
        ("--deadline 60", {}, "leave --deadline out"),
        ("", {"JUDGEKIT_RECORD": "r.jsonl"}, "a recording holds no batches"),
        ("", {"JUDGEKIT_REPLAY": "r.jsonl"}, "recording"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(
    batched: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    more: str,
    environ: dict[str, str],
    why: str,
) -> None:
    write("one")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with BatchServer(by_content) as server:
        done = batched(server, *LENIENT, *more.split())
        assert (done.code, server.events, server.requests, why in done.err) == (64, [], [], True), (
            done.err
        )


def test_options_that_belong_together_are_asked_for(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one")
    by_user("server: {url: 'https://judge.example.org'}\n")
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", "t")
    assert "the shared judge (server.url) asks the models" in judgekit(*LENIENT).err
    data = ("judge", "--data", "rows.jsonl")
    for words, why in (
        ((*data, "--batch"), "--batch needs --out"),
        ((*data, "--batch-fallback", "none"), "--batch-fallback is for --batch"),
        (("judge", "good.md", "--batch"), "--batch is for rows"),
    ):
        done = judgekit(*words)
        assert (done.code, why in done.err) == (64, True), done.err


# Batches that the provider doesn't have, or whose status is unknown


@pytest.mark.parametrize("status", [404, 403, 400])
def test_a_batch_that_is_gone_is_named_with_what_to_do(
    batched: Callable[..., Outcome], status: int
) -> None:
    write("one")

    def forget(event: str, _: Asked) -> Answer | None:
        return fails(status, "no such batch") if event == "look batches" else None

    with BatchServer(by_content, faults=(forget,)) as server:
        done = batched(server)
    assert done.code == 65
    assert "batch batch_1 in out.jsonl.batch: deleted, too old, or of another key" in done.err
    assert "--fresh, or remove out.jsonl.batch" in done.err


def test_with_fresh_a_batch_that_is_gone_is_asked_anew(batched: Callable[..., Outcome]) -> None:
    write("one", "two")

    def forget(event: str, asked: Asked) -> Answer | None:
        is_first = asked.path.endswith("batch_1")
        return fails(404, "no such batch") if event == "look batches" and is_first else None

    with BatchServer(by_content, faults=(forget,)) as server:
        assert batched(server).code == 65
        done = batched(server, *LENIENT, "--fresh")
        assert done.code == 0, done.err
        assert (sizes(server), words()) == ([2, 2], ["accept"] * 2)
    assert "batch batch_1 is unknown to its provider" in done.err


@pytest.mark.parametrize("status", ["dead_letter", "error", "stopped"])
def test_a_status_that_nobody_knows_ends_at_its_deadline(
    batched: Callable[..., Outcome], status: str
) -> None:
    write("one", "two")
    with BatchServer(by_content) as server:
        server.ends[1] = (status, 1)
        done = batched(server)
        assert done.code == 0, done.err
        assert words() == ["accept"] * 2
    assert f"batch batch_1 is {status}: 1 request has no answer" in done.err


def test_a_status_that_nobody_knows_is_waited_for_until_then(
    batched: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one")
    monkeypatch.setattr("judgekit.providers.batches.WINDOW_SECONDS", 10 * time.time())
    looks = []

    def recover(event: str, _: Asked) -> None:
        if event == "look batches":
            looks.append(event)
        if len(looks) == 3:
            server.batches["batch_1"].status = "completed"

    with BatchServer(by_content, faults=(recover,)) as server:
        server.ends[1] = ("queued_again", 1)
        assert (batched(server).code, words()) == (0, ["accept"])
    assert len(looks) >= 3

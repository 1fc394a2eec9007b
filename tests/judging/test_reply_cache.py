"""Judging the same again asks no model."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, says
from making import call_usage, candidate_judge, document, document_judge, file, prompt_candidate, query, reply
from scripted import PROFILE, ScriptedGateway, keep, scripted_endpoint, three_models

from judgekit import environment
from judgekit.errors import KEPT
from judgekit.judging import cache as reply_cache
from judgekit.judging import documents, pointwise, service
from judgekit.judging.cache import ReplyCache
from judgekit.judging.documents import Task, file_of
from judgekit.judging.fence import Fence, without_nonce
from judgekit.providers import base, registry
from judgekit.providers.base import CallKey, Endpoint, Message, Request
from judgekit.providers.gateway import open_gateway
from judgekit.providers.registry import CommandProfile
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.judging.verdict import Verdict

ANSWER = '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4}, "findings": []}'
REPLY = reply("text", "model", call_usage(3, 1, 0.5), logprobs=({"yes": -0.1},))


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    return ReplyCache(tmp_path / "cache" / "replies.sqlite")


def request(text: str = "judge this", **changes: object) -> Request:
    asked = Request((Message("user", text),), CallKey("s", "kls@1.0.0", "quick"), 5, 100)
    return dataclasses.replace(asked, **changes)  # type: ignore[arg-type]


def judge(gateway: ScriptedGateway, cache: ReplyCache | None, text: str = "A guide.") -> Verdict:
    subject = document((file("a.md", text, sha256="0" * 64),), "a.md", task=Task())
    own = document_judge(gateway, three_models(), mode="strict", cache=cache)
    return asyncio.run(own.judge(subject))


def test_a_document_that_did_not_change_costs_no_call(cache: ReplyCache) -> None:
    first = judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), cache)
    silent = ScriptedGateway({})
    again = judge(silent, cache)
    assert silent.requests == []
    assert (again.verdict, again.scores, again.model) == (first.verdict, first.scores, first.model)
    assert again.verdict == "accept"
    assert sum(each.usage.input_tokens for each in again.rounds) == 0
    assert (again.cost_usd, again.cost_source, again.cost_complete) == (0.0, "cache", True)
    gateway = ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]})
    judge(gateway, cache, "Another guide.")
    assert gateway.asked == ["quick", "deep"]


def test_what_is_kept_comes_back_without_its_cost_to_its_owner(tmp_path: Path, cache: ReplyCache) -> None:
    model = scripted_endpoint("m")
    cache.keep(model, request(sample=1), REPLY)
    assert cache.find(model, request(sample=1)) == dataclasses.replace(REPLY, usage=KEPT)
    assert cache.find(model, request(sample=2)) is None
    assert cache.find(model, request()) is None
    replayed = dataclasses.replace(model, profile=PROFILE.model_copy(update={"kind": "replay"}))
    cache.keep(replayed, request(), REPLY)
    assert cache.find(replayed, request()) is None, "a recording is not kept"
    file = tmp_path / "cache" / "replies.sqlite"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]


def test_what_cannot_be_read_is_not_kept(cache: ReplyCache) -> None:
    unreadable = ["I would rather not."] * 2
    judge(ScriptedGateway({tier: list(unreadable) for tier in ("quick", "deep", "tiebreaker")}), cache)
    gateway = ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]})
    assert judge(gateway, cache).verdict == "accept"
    assert gateway.asked == ["quick", "deep"]


def test_candidates_and_pointwise_answers_are_kept(cache: ReplyCache) -> None:
    shown = [prompt_candidate("a", "Title a", category="DECISION", text="Body")]
    rubric = loader.select_rubric("memory-relevance")
    likely = reply("yes", "small", call_usage(30, 1), logprobs=({"yes": -0.1, "no": -3.0},))
    idle = reply("no", "small", call_usage(30, 1), logprobs=({"yes": -3.0, "no": -0.1},))

    def is_idle(request: Request) -> bool:
        return pointwise.IDLE in request.messages[-1].content

    def select(gateway: ScriptedGateway, model: Endpoint) -> list[str]:
        own = candidate_judge(gateway, {"quick": model}, loaded=rubric, mode="strict", cache=cache)
        return [decision.decision for decision in asyncio.run(own.select(query("query"), shown)).decisions]

    for model, answer in (
        (scripted_endpoint("large"), keep("Title a")),
        (scripted_endpoint("small", pointwise=True), lambda request: idle if is_idle(request) else likely),
    ):
        assert select(ScriptedGateway({"quick": [answer] * 2}), model) == ["kept"]
        assert select(ScriptedGateway({}), model) == ["kept"]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_damaged_file_costs_no_verdict(tmp_path: Path, cache: ReplyCache, content: bytes) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "replies.sqlite").write_bytes(content)
    assert judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), cache).verdict == "accept"
    cache.find(scripted_endpoint("m"), request())
    cache.keep(scripted_endpoint("m"), request(), REPLY)
    assert cache.find(scripted_endpoint("m"), request()) is not None  # begun anew
    nowhere = ReplyCache(tmp_path / "cache" / "replies.sqlite" / "replies.sqlite")
    assert judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), nowhere).verdict == "accept"


def test_what_is_old_or_too_much_goes(
    tmp_path: Path, cache: ReplyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_cache, "MAX_REPLIES", 3)
    monkeypatch.setattr(reply_cache, "_TRIM_EVERY", 1)
    for number in range(6):
        cache.keep(scripted_endpoint("m"), request(str(number)), REPLY)
    assert [cache.find(scripted_endpoint("m"), request(str(number))) is None for number in range(6)] == [
        True
    ] * 3 + [False] * 3
    with sqlite3.connect(tmp_path / "cache" / "replies.sqlite") as connection:
        connection.execute("UPDATE reply SET at = 0")
    connection.close()
    cache.keep(scripted_endpoint("m"), request("new"), REPLY)
    assert cache.find(scripted_endpoint("m"), request("5")) is None


def test_it_stays_open_for_the_next_of_a_thread(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reply_cache.lasting_cache()
    first.keep(scripted_endpoint("quick"), request(), REPLY)
    assert reply_cache.lasting_cache() is first
    with ThreadPoolExecutor(1) as others:
        other = others.submit(reply_cache.lasting_cache).result()
        reply = others.submit(other.find, scripted_endpoint("quick"), request()).result()
    assert other is not first
    assert reply is not None
    monkeypatch.setattr(environment, "cache_home", lambda: str(isolated / "elsewhere"))
    elsewhere = reply_cache.lasting_cache()
    assert elsewhere.find(scripted_endpoint("quick"), request()) is None


def test_a_file_that_was_removed_is_not_written_to_any_more(isolated: Path) -> None:
    first = reply_cache.lasting_cache()
    first.keep(scripted_endpoint("quick"), request(), REPLY)
    for path in isolated.rglob("replies.sqlite*"):
        path.unlink()
    again = reply_cache.lasting_cache()
    assert again is not first
    again.keep(scripted_endpoint("quick"), request(), REPLY)
    assert again.find(scripted_endpoint("quick"), request()) is not None
    assert [path.name for path in isolated.rglob("replies.sqlite")] == ["replies.sqlite"]


# A file that another process holds: who waits for it holds up nobody else


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return the model that judges; it accepts everything."""
    with Loopback(says(ANSWER)) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        monkeypatch.setenv("JUDGEKIT_API_KEY", "a-key")
        yield server


def held() -> sqlite3.Connection:
    """Return a connection that lets no other one in."""
    path = Path(environment.cache_home()) / "replies.sqlite"
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("DELETE FROM reply WHERE key = ''")
    return connection


async def judged() -> Verdict:
    judge, _ = service.document_judge(open_gateway({}))
    return await judge.judge(documents.document([file_of("a.md", "Some words.")]))


def test_an_event_loop_goes_on_while_a_reply_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, model: Loopback
) -> None:
    """Were the loop to wait, nobody would let go of the file before the wait is given up."""
    asyncio.run(judged())
    before = len(model.requests)
    monkeypatch.setattr(reply_cache, "_WAIT", 30.0)

    async def work() -> Verdict:
        holder = held()
        waits = asyncio.create_task(judged())
        for _ in range(30):
            await asyncio.sleep(0.01)
        assert not waits.done()
        holder.close()
        return await waits

    assert asyncio.run(work()).verdict == "accept"
    assert len(model.requests) == before  # what was kept was found


def test_a_file_that_stays_locked_costs_a_call_and_no_verdict(model: Loopback) -> None:
    asyncio.run(judged())
    before = len(model.requests)
    holder = held()
    assert asyncio.run(judged()).verdict == "accept"
    holder.close()
    assert len(model.requests) > before


# What makes a question a new one: how a model is asked, not where the question was put

REQUEST = Request((Message("user", "judge this"),), CallKey("s", "kls@1.0.0", "quick"), 5, 100)
HERE = {"PATH": "/bin", "HOME": "/somewhere/a", "USER": "a", "CLAUDE_CODE_OAUTH_TOKEN": "t"}


def command(environ: dict[str, str], changes: dict[str, Any] | None = None) -> Endpoint:
    profile = registry.find("claude-code").model_copy(update=changes or {})
    return base.endpoint(profile, "some-model", environ)


def key_of(own: Endpoint) -> str:
    return reply_cache.key(own, REQUEST)


def test_the_key_is_all_that_an_answer_depends_on_but_the_nonce_and_the_time() -> None:
    own = scripted_endpoint("model")

    def fenced(**changes: Any) -> Request:  # noqa: ANN401 - any field
        asked = dataclasses.replace(REQUEST, messages=(Message("user", Fence().around("text")),))
        return dataclasses.replace(asked, **changes)

    def asking(**changes: Any) -> Endpoint:  # noqa: ANN401 - any key of a profile
        return dataclasses.replace(own, profile=PROFILE.model_copy(update=changes))

    usual = reply_cache.key(own, fenced())
    others = [
        *(
            reply_cache.key(own, each)
            for each in (REQUEST, fenced(max_tokens=7), fenced(schema={}), fenced(sample=2))
        ),
        reply_cache.key(own, fenced(top_logprobs=3)),
        reply_cache.key(scripted_endpoint("other"), fenced()),
        reply_cache.key(dataclasses.replace(own, api_base="http://127.0.0.1:1"), fenced()),
        reply_cache.key(dataclasses.replace(own, parameters={"region": "eu"}), fenced()),
        reply_cache.key(asking(arguments={"": {"reasoning_effort": "high"}}), fenced()),
        reply_cache.key(asking(thinking={"": 4000}), fenced()),
        reply_cache.key(asking(client="openai"), fenced()),
        reply_cache.key(asking(prompt_caching=True), fenced()),
    ]
    assert len({usual, *others}) == 1 + len(others)
    words = {"title": "Another", "rank": 3, "notes": "New.", "key": ["OTHER_KEY"]}
    assert reply_cache.key(own, fenced(timeout=1)) == usual
    assert reply_cache.key(dataclasses.replace(own, api_key="k"), fenced()) == usual
    assert reply_cache.key(asking(**words), fenced()) == usual


def test_a_text_cannot_pass_for_another_by_looking_like_a_nonce() -> None:
    """Inside a fence the word is broken up, so what is taken out of the key is only ever ours."""
    one, other = (Fence().around(f"judged-{letter * 14}") for letter in "ab")
    assert without_nonce(one) != without_nonce(other)


def test_a_program_that_is_run_otherwise_is_a_new_question() -> None:
    profile = registry.find("claude-code")
    assert isinstance(profile, CommandProfile)
    others: list[dict[str, Any]] = [
        {},
        {"argv": [*profile.argv, "--effort", "high"]},
        {"files": {"settings.json": "{}"}},
        {"links": {"auth.json": ["~/.auth.json"]}},
        {"set_env": {**profile.set_env, "EFFORT": "high"}},
        {"reply_key": "text"},
    ]
    assert len({key_of(command(HERE, each)) for each in others}) == len(others)


def test_a_hook_a_shell_and_an_environment_of_python_share_what_a_program_replied() -> None:
    for there in (
        {"PATH": "/usr/lib/git-core:/bin"},
        {"CLAUDE_CODE_OAUTH_TOKEN": "renewed"},
        {"TMPDIR": "/tmp/x", "LANG": "C"},
    ):
        assert key_of(command({**HERE, **there})) == key_of(command(HERE))
    elsewhere = {**HERE, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    assert key_of(command(elsewhere)) != key_of(command(HERE))


def test_credentials_that_are_renewed_cost_no_call() -> None:
    own = dataclasses.replace(
        scripted_endpoint("m"), parameters={"aws_session_token": "a", "aws_region_name": "eu"}
    )
    renewed = dataclasses.replace(own, parameters={**own.parameters, "aws_session_token": "b"})
    moved = dataclasses.replace(own, parameters={**own.parameters, "aws_region_name": "us"})
    assert key_of(renewed) == key_of(own) != key_of(moved)

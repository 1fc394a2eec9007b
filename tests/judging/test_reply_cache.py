"""Judging the same again asks no model."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from making import call_usage, candidate_judge, document, document_judge, file, prompt_candidate, query, reply
from scripted import PROFILE, ScriptedGateway, keep, scripted_endpoint, three_models

from judgekit import environment
from judgekit.errors import KEPT
from judgekit.judging import cache as reply_cache
from judgekit.judging import pointwise
from judgekit.judging.cache import ReplyCache
from judgekit.judging.documents import Task
from judgekit.providers.base import CallKey, Message, Request
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint

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


def test_one_that_changed_is_judged_anew(cache: ReplyCache) -> None:
    judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), cache)
    gateway = ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]})
    judge(gateway, cache, "Another guide.")
    assert gateway.asked == ["quick", "deep"]


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


def test_a_recording_is_not_kept(cache: ReplyCache) -> None:
    replayed = dataclasses.replace(
        scripted_endpoint("m"), profile=PROFILE.model_copy(update={"kind": "replay"})
    )
    cache.keep(replayed, request(), REPLY)
    assert cache.find(replayed, request()) is None


def test_what_is_kept_comes_back_without_its_cost(cache: ReplyCache) -> None:
    cache.keep(scripted_endpoint("m"), request(), REPLY)
    assert cache.find(scripted_endpoint("m"), request()) == dataclasses.replace(REPLY, usage=KEPT)


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are POSIX")
def test_only_the_owner_can_read_it(tmp_path: Path, cache: ReplyCache) -> None:
    cache.keep(scripted_endpoint("m"), request(), REPLY)
    file = tmp_path / "cache" / "replies.sqlite"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_damaged_file_costs_no_verdict(tmp_path: Path, cache: ReplyCache, content: bytes) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "replies.sqlite").write_bytes(content)
    assert judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), cache).verdict == "accept"
    cache.find(scripted_endpoint("m"), request())
    cache.keep(scripted_endpoint("m"), request(), REPLY)
    assert cache.find(scripted_endpoint("m"), request()) is not None  # begun anew


def test_a_folder_that_cannot_be_made_costs_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ReplyCache(tmp_path / "file" / "replies.sqlite")
    assert judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), cache).verdict == "accept"


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


def test_each_sample_is_kept_for_itself(cache: ReplyCache) -> None:
    model = scripted_endpoint("quick-model")
    cache.keep(model, request(sample=1), REPLY)
    assert cache.find(model, request(sample=1)) is not None
    assert cache.find(model, request(sample=2)) is None
    assert cache.find(model, request()) is None


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

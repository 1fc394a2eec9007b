"""Judging the same again asks no model; processes that die, full disks and damage cost a call, no verdict."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import random
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import use
from loopback import Loopback, says
from making import call_usage, document, document_judge, file, reply
from scripted import PROFILE, ScriptedGateway, scripted_endpoint, three_models

from judgekit import environment
from judgekit.errors import CACHED_USAGE
from judgekit.judging import cache as reply_cache
from judgekit.judging import documents, reply_file, service
from judgekit.judging.cache import ReplyCache
from judgekit.judging.documents import make_file
from judgekit.judging.fence import Fence, replace_nonces
from judgekit.judging.reply_file import ReplyFile
from judgekit.providers import base, registry
from judgekit.providers.base import CallKey, Endpoint, Message, Request
from judgekit.providers.gateway import open_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Reply

ANSWER = '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4}, "findings": []}'
REPLY = reply("text", "model", call_usage(3, 1, 0.5), logprobs=({"yes": -0.1},))
REQUEST = Request((Message("user", "judge this"),), CallKey("s", "kls@1.0.0", "quick"), 5, 100)
MODEL = scripted_endpoint("m")


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    return ReplyCache(ReplyFile(tmp_path / "cache" / "replies.sqlite"))


def request(text: str = "judge this", **changes: Any) -> Request:  # noqa: ANN401 - any field
    return dataclasses.replace(REQUEST, messages=(Message("user", text),), **changes)


def judge(gateway: ScriptedGateway, cache: ReplyCache | None, text: str = "A guide.") -> Verdict:
    subject = document((file("a.md", text, sha256="0" * 64),))
    return asyncio.run(document_judge(gateway, three_models(), cache=cache).judge(subject))


def test_a_document_that_did_not_change_costs_no_call(cache: ReplyCache) -> None:
    # Unreadable replies aren't kept.
    judge(ScriptedGateway({tier: ["I would rather not."] * 2 for tier in three_models()}), cache)
    gateway = ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]})
    first = judge(gateway, cache)
    assert gateway.asked == ["quick", "deep"]
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


def test_what_is_kept_comes_back_without_its_cost_to_its_owner(
    tmp_path: Path, cache: ReplyCache
) -> None:
    cache.keep(MODEL, request(sample=1), REPLY)
    assert cache.find(MODEL, request(sample=1)) == dataclasses.replace(REPLY, usage=CACHED_USAGE)
    assert cache.find(MODEL, request(sample=2)) is None
    assert cache.find(MODEL, request()) is None
    replayed = dataclasses.replace(MODEL, profile=PROFILE.model_copy(update={"kind": "replay"}))
    cache.keep(replayed, request(), REPLY)
    assert cache.find(replayed, request()) is None, "a recording is not kept"
    path = tmp_path / "cache" / "replies.sqlite"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_damaged_file_costs_no_verdict(tmp_path: Path, cache: ReplyCache, content: bytes) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "replies.sqlite").write_bytes(content)
    assert judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), cache).verdict == "accept"
    cache.find(MODEL, request())
    cache.keep(MODEL, request(), REPLY)
    assert cache.find(MODEL, request()) is not None  # begun anew
    nowhere = ReplyCache(ReplyFile(tmp_path / "cache" / "replies.sqlite" / "replies.sqlite"))
    assert (
        judge(ScriptedGateway({"quick": [ANSWER], "deep": [ANSWER]}), nowhere).verdict == "accept"
    )


class _OneReply:
    """A store that holds one text under every key."""

    is_quick = True

    def __init__(self) -> None:
        self.text = ""

    def read_reply(self, _: str) -> reply_cache.StoredText:
        return reply_cache.StoredText(self.text, age_seconds=1.0)

    def write_reply(self, _: str, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"text": "text"', '"text": 5'),
        ('"model": "model"', '"model": 5'),
        ("-0.1", "NaN"),
        ("-0.1", "-Infinity"),
        ("-0.1", '"likely"'),
        ('"held"', '"held": true, "held"'),
    ],
)
def test_a_kept_reply_of_another_type_is_asked_for_again(right: str, wrong: str) -> None:
    store = _OneReply()
    cache = ReplyCache(store)
    cache.keep(MODEL, REQUEST, REPLY)
    assert cache.find(MODEL, REQUEST) is not None
    store.text = store.text.replace(right, wrong, 1)
    assert cache.find(MODEL, REQUEST) is None


def test_what_is_old_goes(tmp_path: Path, cache: ReplyCache) -> None:
    cache.keep(MODEL, request("old"), REPLY)
    with closing(
        sqlite3.connect(tmp_path / "cache" / "replies.sqlite", isolation_level=None)
    ) as connection:
        connection.execute("UPDATE reply SET at = ?", (time.time() - 31 * 86_400,))
    again = ReplyCache(ReplyFile(tmp_path / "cache" / "replies.sqlite"))
    again.keep(MODEL, request("new"), REPLY)
    assert [again.find(MODEL, request(text)) is None for text in ("old", "new")] == [True, False]


@pytest.mark.parametrize("days", [400, 31, -31, -400])  # those to come: a clock was wrong
def test_a_reply_that_is_not_of_the_last_month_is_asked_for_again(
    model: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int
) -> None:
    asyncio.run(judged())
    before = len(model.requests)
    path = Path(environment.cache_home()) / "replies.sqlite"
    for age, is_asked in ((29, False), (days, True)):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE reply SET at = ?", (time.time() - age * 86_400,))
        assert asyncio.run(judged()).verdict == "accept"
        assert (len(model.requests) > before) == is_asked


# A file that another process has locked: waiting for it blocks no other text


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback(says(ANSWER)) as server:
        use(monkeypatch, server)
        yield server


def held() -> sqlite3.Connection:
    path = Path(environment.cache_home()) / "replies.sqlite"
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("DELETE FROM reply WHERE key = ''")
    return connection


async def judged() -> Verdict:
    judge, _ = service.build_document_judge(open_gateway({}))
    return await judge.judge(documents.build_document([make_file("a.md", "Some words.")]))


def test_an_event_loop_goes_on_while_a_reply_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, model: Loopback
) -> None:
    """If the loop waited, the file would stay locked until the wait is given up."""
    asyncio.run(judged())
    before = len(model.requests)
    monkeypatch.setattr(reply_file, "_LOCK_WAIT_SECONDS", 30.0)

    async def work() -> Verdict:
        holder = held()
        waits = asyncio.create_task(judged())
        for _ in range(30):
            await asyncio.sleep(0.01)
        assert not waits.done()
        holder.close()
        return await waits

    assert asyncio.run(work()).verdict == "accept"
    assert len(model.requests) == before  # kept replies were found


def test_a_file_that_stays_locked_costs_a_call_and_no_verdict(model: Loopback) -> None:
    asyncio.run(judged())
    before = len(model.requests)
    holder = held()
    assert asyncio.run(judged()).verdict == "accept"
    holder.close()
    assert len(model.requests) > before


# A question is new if the model is asked in another way, not from another place

HERE = {"PATH": "/bin", "HOME": "/somewhere/a", "USER": "a", "CLAUDE_CODE_OAUTH_TOKEN": "t"}


def key_of(own: Endpoint, **changes: Any) -> str:  # noqa: ANN401 - any field
    """Return the key of a fenced question with other values of some fields."""
    fenced = (Message("user", Fence().wrap_text("text")),)
    return reply_cache.hash_of_call(
        own, dataclasses.replace(REQUEST, **{"messages": fenced, **changes})
    )


def test_the_key_is_all_that_an_answer_depends_on_but_the_nonce_and_the_time() -> None:
    own = scripted_endpoint("model")

    def other(**changes: Any) -> str:  # noqa: ANN401 - any field of an endpoint
        return key_of(dataclasses.replace(own, **changes))

    def asking(**changes: Any) -> str:  # noqa: ANN401 - any key of a profile
        return other(profile=PROFILE.model_copy(update=changes))

    usual = key_of(own)
    others = [
        key_of(own, messages=REQUEST.messages),
        key_of(own, max_tokens=7),
        key_of(own, schema={}),
        key_of(own, sample=2),
        key_of(own, top_logprobs=3),
        key_of(scripted_endpoint("other")),
        other(api_base="http://127.0.0.1:1"),
        other(parameters={"region": "eu"}),
        asking(arguments={"": {"reasoning_effort": "high"}}),
        asking(thinking={"": 4000}),
        asking(client="openai"),
        asking(prompt_caching=True),
    ]
    assert len({usual, *others}) == 1 + len(others)
    same = asking(title="Another", rank=3, notes="New.", key=["OTHER_KEY"])
    assert {key_of(own, timeout=1), other(api_key="k"), same} == {usual}
    # Inside a fence the word is broken up, so only our own is ever taken out of the key.
    one, two = (Fence().wrap_text(f"judged-{letter * 14}") for letter in "ab")
    assert replace_nonces(one) != replace_nonces(two)
    # Credentials that are renewed cost no call.
    session = {"aws_session_token": "a", "aws_region_name": "eu"}
    assert other(parameters=session) == other(parameters={**session, "aws_session_token": "b"})
    assert other(parameters=session) != other(parameters={**session, "aws_region_name": "us"})


def test_a_program_that_is_run_otherwise_is_a_new_question() -> None:
    profile = registry.find("claude-code")
    assert isinstance(profile, registry.CommandProfile)

    def run(environ: dict[str, str], **changes: Any) -> str:  # noqa: ANN401 - any key of a profile
        return key_of(
            base.build_endpoint(profile.model_copy(update=changes), "some-model", environ)
        )

    keys = {
        run(HERE),
        run(HERE, argv=[*profile.argv, "--effort", "high"]),
        run(HERE, files={"settings.json": "{}"}),
        run(HERE, set_env={**profile.set_env, "EFFORT": "high"}),
        run({**HERE, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}),
    }
    assert len(keys) == 5
    # A hook, a shell and an environment of Python share a program's replies.
    for there in (
        {"PATH": "/usr/lib/git-core:/bin"},
        {"CLAUDE_CODE_OAUTH_TOKEN": "renewed"},
    ):
        assert run({**HERE, **there}) == run(HERE)


# Processes that write, read and die; damage; full disks

QUESTIONS = 60
# One process that keeps and finds replies until it's killed or done with its rounds; it prints any errors.
WRITER = """
import pathlib, random, sys
sys.path[:0] = {paths!r}
import test_reply_cache as stress
cache = stress.ReplyCache(stress.ReplyFile(pathlib.Path({file!r})))
draw = random.Random(int(sys.argv[1]))
wrong = 0
for _ in range(int(sys.argv[2])):
    number = draw.randrange(stress.QUESTIONS)
    if draw.random() < 0.5:
        cache.keep(stress.MODEL, stress.question(number), stress.answer(number))
    else:
        wrong += not stress.is_right(cache, number)
print(wrong)
"""


def question(number: int) -> Request:
    return request(f"question {number}")


def answer(number: int) -> Reply:
    """Return the one right answer, so that a torn or mixed-up one shows; some fill several pages."""
    text = hashlib.sha256(str(number).encode()).hexdigest()
    return reply(text * (1 + number % 7 * 40), "m")


def is_right(cache: ReplyCache, number: int) -> bool:
    reply = cache.find(MODEL, question(number))
    return reply is None or reply.text == answer(number).text


def works(cache: ReplyCache) -> bool:
    """Whether a reply kept now is found; the first call may notice that the file is damaged."""
    for number in (1, 2):
        cache.keep(MODEL, question(number), answer(number))
    return cache.find(MODEL, question(2)) is not None


def writer(path: Path, seed: int, rounds: int, before: str = "") -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parent), *(each for each in sys.path if each.endswith("support"))]
    code = before + WRITER.format(paths=paths, file=str(path))
    command = [sys.executable, "-c", code, str(seed), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_write_read_and_die_never_get_a_wrong_reply(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "replies.sqlite"
    lasting = [writer(path, seed, 300) for seed in range(2)]
    doomed = [writer(path, seed, 10_000_000) for seed in range(2)]
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        draw = random.Random(7)
        for process in doomed:
            time.sleep(draw.random())
            process.kill()
        ends = [each.communicate(timeout=120) for each in lasting]
    finally:
        for process in (*lasting, *doomed):
            process.kill()
            process.communicate(timeout=10)
    assert ends == [("0\n", "")] * len(lasting)
    cache = ReplyCache(ReplyFile(path))
    assert works(cache)
    assert all(is_right(cache, number) for number in range(QUESTIONS))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_bytes_gone_wrong_is_begun_anew_or_right(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "replies.sqlite"
    file = ReplyFile(path)
    cache = ReplyCache(file)
    for number in range(QUESTIONS):
        cache.keep(MODEL, question(number), answer(number))
    with closing(file._open()) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    draw, content = random.Random(seed), bytearray(path.read_bytes())
    for place in draw.sample(range(0, len(content), 4096), 3):
        content[place : place + 200] = draw.randbytes(200)
    path.write_bytes(content[: -draw.randrange(1, 5000)])
    again = ReplyCache(ReplyFile(path))
    assert all(is_right(again, number) for number in range(QUESTIONS))
    assert works(again)


def test_a_file_that_kept_somebody_waiting_is_left_to_threads(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    cache = ReplyCache(ReplyFile(path))
    assert not cache.is_quick  # it may be large, and old replies are looked for first
    cache.keep(MODEL, question(1), answer(1))
    assert cache.is_quick
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        cache.keep(MODEL, question(2), answer(2))
    assert not cache.is_quick


def test_a_renewal_spares_what_another_process_began_anew(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"no database at all, but long enough to be looked at")
    late = ReplyFile(path)
    with pytest.raises(sqlite3.DatabaseError):
        late._open()
    assert works(ReplyCache(ReplyFile(path)))
    late._remove_damaged()
    assert ReplyCache(late).find(MODEL, question(2)) is not None


def test_the_file_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_file, "MAX_BYTES", 400_000)
    path = tmp_path / "replies.sqlite"
    cache = ReplyCache(ReplyFile(path))
    for number in range(200):
        cache.keep(MODEL, question(number), reply(f"{number}" + "x" * 20_000, "m"))
        assert path.stat().st_size <= 400_000
    kept = [number for number in range(200) if cache.find(MODEL, question(number))]
    assert kept == list(range(kept[0], 200))  # the newest
    assert 3 <= len(kept) < 20


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX")
def test_a_full_disk_costs_a_call_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    writer(path, 1, 0).communicate(timeout=60)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
    process = writer(path, 1, 300, limit)
    assert process.communicate(timeout=60) == ("0\n", "")
    assert process.returncode == 0
    assert all(each.stat().st_size <= 60_000 for each in tmp_path.iterdir())
    assert works(ReplyCache(ReplyFile(path)))

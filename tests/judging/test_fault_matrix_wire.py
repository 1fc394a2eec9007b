"""A sample of the fault matrix over the wire: servers and programs that misbehave, and the real gateways.

Each fault strikes the deep tier of a strict judging, of a document and of candidates; the others are served
well. Faults in other tiers are in `test_fault_matrix`.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from asking import custom
from loopback import DRIP, RESET, SILENT, Answer, Loopback, calls, fails, says, sends
from making import candidate_judge, document, document_judge, file, prompt_candidate, query
from scripted import scores

from judgekit.config import TIERS
from judgekit.providers import litellm
from judgekit.providers.base import endpoint
from judgekit.providers.gateway import Router
from judgekit.providers.registry import CommandProfile

if TYPE_CHECKING:
    from loopback import Asked

    from judgekit.config import TierName
    from judgekit.judging.verdict import Selection, Verdict
    from judgekit.providers.base import Endpoint

pytestmark = pytest.mark.slow

DOCUMENT = document((file("a.md", "Some text.", sha256="ab" * 32),), "a.md@ab")
PAIR = [prompt_candidate(name, f"Title {name}", category="DECISION", text=f"Body {name}") for name in "ab"]

# What a server does, and the kind of failure that the verdict must name.
FAULTS: dict[str, tuple[Answer, str]] = {
    "401": (fails(401, "the key is wrong"), "authentication"),
    "429": (fails(429, retry_after=0), "rate_limit"),
    "429, come back in a minute": (fails(429, retry_after=60), "rate_limit"),
    "529": (fails(529, "Overloaded", retry_after=0), "overloaded"),
    "a broken connection": (RESET, "connection"),
    "a page": (sends(b"<html>Welcome</html>"), "invalid_reply"),
    "nothing": (says(""), "invalid_reply"),
    "prose": (says("I would accept it. All is well."), "invalid_reply"),
    "a refusal": (says(None, refusal="I cannot help with that"), "refusal"),
    "a cut reply": (says('{"reasoning": "it is', finish="length"), "truncated"),
    "another tool's arguments": (calls('{"city": "Rome"}'), "invalid_reply"),
}


@pytest.fixture(scope="module", autouse=True)
def _litellm_is_loaded() -> None:
    litellm.load()


def judged(panel: dict[TierName, Endpoint], seconds: float = 30) -> tuple[Verdict, Selection]:
    async def run() -> tuple[Verdict, Selection]:
        async with aclosing(Router()) as gateway:
            verdict = await document_judge(gateway, panel, deadline=seconds).judge(DOCUMENT)
            judge = candidate_judge(gateway, panel, deadline=seconds)
            return verdict, await judge.select(query("How do we refresh the token?"), PAIR)

    return asyncio.run(run())


def well(fault: Answer) -> Loopback:
    """Serve the tiers but the deep one, by the names of their models: the document is good, and so is a."""

    def answer(asked: Asked) -> Answer:
        if asked.body["model"] == "deep":
            return fault
        kept = re.findall(r"^\[(\w+)\] (?:\w+: )?Title a\b", asked.text, re.MULTILINE)
        keep = f'{{"keep": {kept}}}'.replace("'", '"')
        return says(keep if '"keep"' in asked.text else scores(4, 4, 5))

    return Loopback(answer)


def check(server: Loopback, kind: str, deep: Endpoint | None = None) -> None:
    """Judge a document and candidates where the deep tier fails in this way."""
    panel = {tier: custom(server.base, tier) for tier in TIERS} | ({"deep": deep} if deep else {})
    verdict, selection = judged(panel)
    assert (verdict.verdict, verdict.consensus, verdict.judge_tier) == ("accept", "unanimous", "tiebreaker")
    assert [decision.decision for decision in selection.decisions] == ["kept", "dropped"]
    for rounds in (verdict.rounds, selection.rounds):
        assert {own.tier: own.failure.kind for own in rounds if own.failure} == {"deep": kind}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_misbehaves(fault: str) -> None:
    answer, kind = FAULTS[fault]
    with well(answer) as server:
        check(server, kind)


def test_a_connection_that_is_refused() -> None:
    with socket.socket() as taken, well(fails(418)) as server:
        taken.bind(("127.0.0.1", 0))  # and it does not listen
        check(server, "connection", custom(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "struck"))


@pytest.mark.parametrize("fault", [SILENT, DRIP], ids=["silent", "drip"])
def test_a_server_that_takes_all_the_time_leaves_none_for_the_next(fault: Answer) -> None:
    with well(fault) as server:
        verdict, _ = judged({tier: custom(server.base, tier) for tier in TIERS}, 1.5)
        assert {str(request.body["model"]) for request in server.requests} == {"quick", "deep"}
    assert (verdict.verdict, verdict.consensus) == ("undetermined", "none")
    assert [own.failure and own.failure.kind for own in verdict.rounds] == [None, "timeout", "timeout"]


@pytest.mark.parametrize(
    ("code", "executable", "kind"),
    [
        ("raise SystemExit('no luck')", sys.executable, "command_failed"),
        ("", sys.executable, "invalid_reply"),
        ("print('Accepted. All is well.')", sys.executable, "invalid_reply"),
        ("", "/nowhere/at/all", "command_failed"),
    ],
)
def test_a_program_that_misbehaves(code: str, executable: str, kind: str) -> None:
    profile: dict[str, Any] = {
        "provider": "program",
        "title": "A program",
        "kind": "command",
        "detect": {"command": "python3"},
        "output": "text",
        "argv": [executable, "-c", code],
    }
    program = endpoint(CommandProfile.model_validate(profile), "a-program", dict(os.environ))
    with well(fails(418)) as server:
        check(server, kind, program)

"""A sample of the fault matrix over the wire: servers and programs that misbehave, and the real gateways.

Each fault strikes each tier, for a document and for candidates; the other tiers are served well. What must
come out is written down, as in `test_fault_matrix`.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from contextlib import aclosing
from dataclasses import dataclass
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
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopback import Asked

    from judgekit.config import ModeName, TierName
    from judgekit.judging.verdict import Round
    from judgekit.providers.base import Endpoint

pytestmark = pytest.mark.slow

SHORT = 1.5  # seconds for a tier that a silent server strikes
DOCUMENT = document((file("a.md", "Some text.", sha256="ab" * 32),), "a.md@ab")
PAIR = [prompt_candidate(name, f"Title {name}", category="DECISION", text=f"Body {name}") for name in "ab"]
GOOD, BAD = scores(4, 4, 5), scores(1, 2, 3)
MODES: tuple[ModeName, ...] = ("strict", "lenient")

# What a server does, and the kind of failure that the verdict must name.
FAULTS: dict[str, tuple[Answer, str]] = {
    "401": (fails(401, "the key is wrong"), "authentication"),
    "402": (fails(402, "no credit"), "permission"),
    "404": (fails(404, "no such model"), "not_found"),
    "413": (fails(413, "too long"), "context_window"),
    "429": (fails(429, retry_after=0), "rate_limit"),
    "429, come back in a minute": (fails(429, retry_after=60), "rate_limit"),
    "500": (fails(500, retry_after=0), "server_error"),
    "529": (fails(529, "Overloaded", retry_after=0), "overloaded"),
    "a broken connection": (RESET, "connection"),
    "a page": (sends(b"<html>Welcome</html>"), "invalid_reply"),
    "no choices": (sends({"id": "1", "model": "m", "choices": []}), "invalid_reply"),
    "nothing": (says(""), "invalid_reply"),
    "prose": (says("I would accept it. All is well."), "invalid_reply"),
    "a refusal": (says(None, refusal="I cannot help with that"), "refusal"),
    "a filter": (says("", finish="content_filter"), "content_filter"),
    "a cut reply": (says('{"reasoning": "it is', finish="length"), "truncated"),
    "another tool's arguments": (calls('{"city": "Rome"}'), "invalid_reply"),
}

# Where it strikes, what quick and deep say there if asked, and what must come out in a strict judging
# (accept is what needs a confirmation) and in a lenient one (reject is).
DOCUMENTS: dict[TierName, tuple[str, dict[ModeName, str]]] = {
    "quick": ("deep accepts", {"strict": "accept single", "lenient": "accept single"}),
    "deep": ("the others agree", {"strict": "accept unanimous", "lenient": "reject unanimous"}),
    "tiebreaker": ("the others disagree", {"strict": "escalate none", "lenient": "escalate none"}),
}
# The candidates: quick keeps a alone. Strict confirms a, lenient b.
CANDIDATES: dict[TierName, dict[ModeName, str]] = {
    "quick": {"strict": "a kept, b dropped", "lenient": "a kept, b dropped"},
    "deep": {"strict": "a kept, b dropped", "lenient": "a kept, b dropped"},
    "tiebreaker": {"strict": "a undetermined, b dropped", "lenient": "a kept, b undetermined"},
}


@pytest.fixture(scope="module", autouse=True)
def _litellm_is_loaded() -> None:
    litellm.load()


@dataclass(frozen=True)
class Well:
    """Serves the tiers that the fault does not strike; the model's name says which tier it is."""

    struck: str
    mode: ModeName
    fault: Answer

    def __call__(self, asked: Asked) -> Answer:
        tier = str(asked.body["model"])
        if tier == self.struck:
            return self.fault
        return says(self._candidates(tier, asked.text) if '"keep"' in asked.text else self._document(tier))

    def _document(self, tier: str) -> str:
        costly, other = (GOOD, BAD) if self.mode == "strict" else (BAD, GOOD)
        if self.struck == "quick":
            return GOOD
        return other if self.struck == "tiebreaker" and tier == "deep" else costly

    def _candidates(self, tier: str, prompt: str) -> str:
        disagrees = self.struck == "tiebreaker" and tier == "deep"
        wanted = "b" if disagrees else "a"
        kept = re.findall(rf"^\[(\w+)\] (?:\w+: )?Title {wanted}\b", prompt, re.MULTILINE)
        return f'{{"keep": {kept}}}'.replace("'", '"')


def judged_document(
    panel: dict[TierName, Endpoint], mode: ModeName, seconds: float = 30
) -> tuple[str, list[Round]]:
    async def run() -> tuple[str, list[Round]]:
        async with aclosing(Router()) as gateway:
            judge = document_judge(gateway, panel, mode=mode, deadline=seconds)
            verdict = await judge.judge(DOCUMENT)
            return f"{verdict.verdict} {verdict.consensus}", verdict.rounds

    return asyncio.run(run())


def candidates(
    panel: dict[TierName, Endpoint], mode: ModeName, seconds: float = 30
) -> tuple[str, list[Round]]:
    async def run() -> tuple[str, list[Round]]:
        async with aclosing(Router()) as gateway:
            rubric = loader.select_rubric("memory-relevance")
            judge = candidate_judge(gateway, panel, loaded=rubric, mode=mode, deadline=seconds)
            selection = await judge.select(query("How do we refresh the token?"), PAIR)
            return ", ".join(
                f"{decision.id} {decision.decision}" for decision in selection.decisions
            ), selection.rounds

    return asyncio.run(run())


def failed(rounds: list[Round]) -> dict[str, str]:
    return {each.tier: each.failure.kind for each in rounds if each.failure}


def check(panel: dict[TierName, Endpoint], struck: TierName, mode: ModeName, kind: str) -> None:
    """Judge a document and candidates where one tier fails, and compare with the tables."""
    ended, rounds = judged_document(panel, mode)
    assert (ended, failed(rounds)) == (DOCUMENTS[struck][1][mode], {struck: kind})
    ended, rounds = candidates(panel, mode)
    assert (ended, failed(rounds)) == (CANDIDATES[struck][mode], {struck: kind})


@pytest.fixture
def unreachable() -> Iterator[Endpoint]:
    """Return an endpoint at a port that is taken and does not listen."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield custom(f"http://127.0.0.1:{held.getsockname()[1]}/v1", "struck")


@pytest.mark.parametrize(
    ("fault", "struck", "mode"),
    # Every fault in every tier; which mode takes turns, so that each tier and each fault meets both.
    [(fault, tier, MODES[(at + to) % 2]) for at, fault in enumerate(FAULTS) for to, tier in enumerate(TIERS)],
)
def test_a_server_that_misbehaves(fault: str, struck: TierName, mode: ModeName) -> None:
    answer, kind = FAULTS[fault]
    with Loopback(Well(struck, mode, answer)) as server:
        check({tier: custom(server.base, tier) for tier in TIERS}, struck, mode, kind)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("struck", TIERS)
def test_a_connection_that_is_refused(struck: TierName, mode: ModeName, unreachable: Endpoint) -> None:
    with Loopback(Well(struck, mode, fails(418))) as server:
        endpoints = {tier: custom(server.base, tier) for tier in TIERS} | {struck: unreachable}
        check(endpoints, struck, mode, "connection")


# A silent server takes all the time there is: nobody is asked after it.
SILENCE: dict[TierName, dict[ModeName, str]] = {
    "quick": {"strict": "undetermined none", "lenient": "undetermined none"},
    "deep": {"strict": "undetermined none", "lenient": "undetermined none"},
    "tiebreaker": {"strict": "escalate none", "lenient": "escalate none"},
}


@pytest.mark.parametrize("options", [SILENT, DRIP], ids=["silent", "drip"])
@pytest.mark.parametrize(
    ("struck", "mode"), [("quick", "strict"), ("deep", "lenient"), ("tiebreaker", "strict")]
)
def test_a_server_that_takes_all_the_time(struck: TierName, mode: ModeName, options: Answer) -> None:
    with Loopback(Well(struck, mode, options)) as server:
        ended, rounds = judged_document({tier: custom(server.base, tier) for tier in TIERS}, mode, SHORT)
        asked = {str(request.body["model"]) for request in server.requests}
    assert ended == SILENCE[struck][mode]
    assert asked == set(TIERS[: TIERS.index(struck) + 1])
    assert set(failed(rounds)) == set(TIERS[TIERS.index(struck) :])
    assert set(failed(rounds).values()) == {"timeout"}


PROGRAMS = {
    "exits with 1": ("raise SystemExit('no luck')", "command_failed"),
    "prints nothing": ("", "invalid_reply"),
    "prints prose": ("print('Accepted. All is well.')", "invalid_reply"),
}


@pytest.mark.parametrize("struck", TIERS)
@pytest.mark.parametrize("fault", PROGRAMS)
def test_a_program_that_misbehaves(fault: str, struck: TierName) -> None:
    code, kind = PROGRAMS[fault]
    with Loopback(Well(struck, "strict", fails(418))) as server:
        endpoints = {tier: custom(server.base, tier) for tier in TIERS} | {struck: program(code)}
        check(endpoints, struck, "strict", kind)


def test_a_program_that_is_not_there() -> None:
    with Loopback(Well("deep", "strict", fails(418))) as server:
        endpoints = {tier: custom(server.base, tier) for tier in TIERS} | {
            "deep": program("", "/nowhere/at/all")
        }
        ended, rounds = judged_document(endpoints, "strict")
    assert (ended, failed(rounds)) == ("accept unanimous", {"deep": "command_failed"})


def program(code: str, executable: str = sys.executable) -> Endpoint:
    profile: dict[str, Any] = {
        "provider": "program",
        "title": "A program",
        "kind": "command",
        "detect": {"command": "python3"},
        "output": "text",
        "argv": [executable, "-c", code],
    }
    return endpoint(CommandProfile.model_validate(profile), "a-program", dict(os.environ))

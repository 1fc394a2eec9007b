"""The end of a judging when models fail: every failure, in every tier, for both tasks, in both modes.

What must come out of a document is in the table of escalation, of candidates in one here: a column for each
tier says what its model answers, the candidates that it keeps (`none`: it drops all) or F, the fault. Every
row is run with every fault. `asked` names the tiers q(uick), d(eep) and t(iebreaker). Nor does a call begin
once the limit of cost is reached.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import making
import pytest
from escalating import LENIENT, STRICT, lines
from hypothesis import given
from hypothesis import strategies as st
from making import (
    PanelModels,
    candidate_judge,
    document,
    document_judge,
    file,
    prompt_candidate,
    query,
)
from scripted import NothingOpen, ScriptedGateway, keep, scores, scripted_endpoint, three_models

from judgekit.config import TIERS
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.judging.compare import PairJudge
from judgekit.judging.ranking import RankingJudge
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scripted import Answer

    from judgekit.config import ModeName
    from judgekit.judging.documents import File
    from judgekit.judging.verdict import Selection, Verdict
    from judgekit.providers.base import Endpoint, Reply, Request


# In `asked` the candidates that each tier was asked about.
CANDIDATES = """
mode    | quick | deep | tiebreaker | a                  | b                  | asked            | degraded
strict  | F     | a    | -          | kept deep          | dropped deep       | q:ab d:ab        | -
strict  | F     | none | -          | dropped deep       | dropped deep       | q:ab d:ab        | -
strict  | F     | F    | a          | kept tiebreaker    | dropped tiebreaker | q:ab d:ab t:ab   | -
strict  | F     | F    | F          | undetermined       | undetermined       | q:ab d:ab t:ab   | quick, deep, tiebreaker: F
strict  | a     | F    | a          | kept tiebreaker    | dropped quick      | q:ab d:a t:a     | -
strict  | a     | F    | none       | undetermined       | dropped quick      | q:ab d:a t:a     | deep: F
strict  | a     | F    | F          | undetermined       | dropped quick      | q:ab d:a t:a     | deep, tiebreaker: F
strict  | a     | a    | F          | kept deep          | dropped quick      | q:ab d:a         | -
strict  | a     | none | F          | undetermined       | dropped quick      | q:ab d:a t:a     | tiebreaker: F
strict  | ab    | F    | a          | kept tiebreaker    | undetermined       | q:ab d:ab t:ab   | deep: F
strict  | ab    | a    | F          | kept deep          | undetermined       | q:ab d:ab t:b    | tiebreaker: F
strict  | none  | F    | F          | dropped quick      | dropped quick      | q:ab             | -
lenient | a     | F    | none       | kept quick         | dropped tiebreaker | q:ab d:b t:b     | -
lenient | a     | F    | b          | kept quick         | undetermined       | q:ab d:b t:b     | deep: F
lenient | a     | F    | F          | kept quick         | undetermined       | q:ab d:b t:b     | deep, tiebreaker: F
lenient | a     | none | F          | kept quick         | dropped deep       | q:ab d:b         | -
lenient | a     | b    | F          | kept quick         | undetermined       | q:ab d:b t:b     | tiebreaker: F
lenient | none  | F    | a          | undetermined       | dropped tiebreaker | q:ab d:ab t:ab   | deep: F
lenient | none  | a    | F          | undetermined       | dropped deep       | q:ab d:ab t:a    | tiebreaker: F
lenient | ab    | F    | F          | kept quick         | kept quick         | q:ab             | -
"""  # noqa: E501 - a table

CUT = {
    "score": '{"reasoning": "fine", "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 5',
    "select": '{"keep": [',
}
SORRY = "I'm sorry, but I can't help with that."

# Replies that came and say nothing: each is asked for once more, and is then a failure.
UNREADABLE = {
    "score": (
        "",
        "accept",
        SORRY,
        '{"scores": {}}',
        '{"reasoning": "fine", "scores": {"semantic": 5, "pragmatic": 5}}',
        '{"reasoning": "fine", "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 6}}',
        '{"reasoning": "fine", "scores": {"semantic": "90%", "pragmatic": "9/10", "syntactic": 5}}',
        CUT["score"],
    ),
    "select": (
        "",
        "All of them are relevant.",
        SORRY,
        '{"keep": ["a label that nobody offered"]}',
        '{"keep": null}',
        '{"kept": []}',
        CUT["select"],
    ),
}

SAYS: dict[str, Answer] = {"A": scores(4, 4, 5), "I": scores(3, 3, 2), "R": scores(1, 2, 3)}
PAIR = [
    prompt_candidate(name, f"Title {name}", category="DECISION", text=f"Body {name}")
    for name in "ab"
]


class Fault(NamedTuple):
    """The answers of the model of a tier F, and the output's words for them (`*`: anything)."""

    answers: tuple[Answer, ...]
    told: str


NOBODY = Fault((), "")


REASON = "why it failed"


def named(table: str) -> list[dict[str, str]]:
    head, *body = [
        [cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()
    ]
    return [dict(zip(head, row, strict=True)) for row in body]


def faults(task: str) -> dict[str, Fault]:
    """Return every failure that a call can raise, and every unreadable reply.

    A reply that is no answer is asked for once more.
    """
    kinds = {SORRY: "refusal (*)", CUT[task]: "truncated (*)"}
    found = {
        str(kind): Fault((GatewayError(kind, REASON),), f"{kind} ({REASON})")
        for kind in FailureKind
    }
    found |= {
        text or "-": Fault((text,), kinds.get(text, "invalid_reply (*)"))
        for text in UNREADABLE[task]
    }
    again = ("invalid_reply", *(text or "-" for text in UNREADABLE[task]))
    return found | {name: found[name]._replace(answers=found[name].answers * 2) for name in again}


def chosen(row: Mapping[str, str], fault: Fault) -> dict[str, list[Answer]]:
    def said(cell: str) -> list[Answer]:
        return [*fault.answers] if cell in "F-" else [keep(*(f"Title {name}" for name in cell))]

    return {tier: said(row[tier].replace("none", "0")) for tier in TIERS}


KLS, MEMORY = loader.find_rubric("kls"), loader.find_rubric("memory-relevance")
SUBJECT = document((file("a.md", "Some text.", sha256="ab" * 32),), "a.md@ab")


def judged_document(gateway: ScriptedGateway, mode: str, **options: Any) -> Verdict:  # noqa: ANN401 - passed on
    judge = document_judge(
        gateway, three_models(), loaded=KLS, mode=mode, **{"timeout": 60.0, **options}
    )
    return asyncio.run(judge.judge(SUBJECT))


def candidates(gateway: ScriptedGateway, mode: str) -> Selection:
    judge = candidate_judge(gateway, three_models(), loaded=MEMORY, mode=mode, timeout=60.0)
    return asyncio.run(judge.select(query("How do we refresh the token?"), PAIR))


def asked_about(gateway: ScriptedGateway) -> str:
    shown = {
        own.call_key.tier: "".join(
            name for name in "ab" if f"Title {name}" in own.messages[1].content
        )
        for own in gateway.requests
    }
    return " ".join(f"{tier[0]}:{names}" for tier, names in shown.items())


def is_told(degraded: str | None, expected: str, fault: Fault) -> bool:
    if expected == "-" or degraded is None:
        return expected == "-" and degraded is None
    return fnmatchcase(degraded, expected.replace("F", fault.told))


@pytest.mark.parametrize(
    "case", [*lines(STRICT, "accept"), *lines(LENIENT, "reject")], ids=" ".join
)
def test_documents(case: tuple[str, str, str, str]) -> None:
    confirm, outcomes, verdict, consensus = case
    asked = TIERS[: len(outcomes)]
    failed = ", ".join(tier for tier, letter in zip(asked, outcomes, strict=True) if letter == "F")
    for name, fault in faults("score").items() if failed else [("no fault", NOBODY)]:
        said = {letter: [answer] for letter, answer in SAYS.items()} | {"F": [*fault.answers]}
        script = {tier: said[letter] for tier, letter in zip(asked, outcomes, strict=True)}
        gateway = ScriptedGateway({str(tier): answers for tier, answers in script.items()})
        found = judged_document(gateway, "strict" if confirm == "accept" else "lenient")
        by = None if consensus == "none" else asked[-1]
        assert (found.verdict, found.consensus, found.judge_tier) == (verdict, consensus, by), name
        assert is_told(found.degraded, f"{failed}: F" if failed else "-", fault), (
            name,
            found.degraded,
        )
        assert (found.scores is None) == (by is None), name
        # A failed call is not made again here (retries are the gateway's); an unreadable reply is, once.
        assert gateway.asked == [tier for tier in asked for _ in script[tier]], name


@pytest.mark.parametrize("row", named(CANDIDATES), ids=lambda row: "-".join(list(row.values())[:4]))
def test_candidates(row: dict[str, str]) -> None:
    for name, fault in faults("select").items():
        gateway = ScriptedGateway(chosen(row, fault))
        selection = candidates(gateway, row["mode"])
        decided = {
            own.id: " ".join(filter(None, (own.decision, own.tier))) for own in selection.decisions
        }
        assert decided == {each: row[each] for each in "ab"}, name
        assert asked_about(gateway) == row["asked"], name
        assert is_told(selection.degraded, row["degraded"], fault), (name, selection.degraded)
        for tier in set(gateway.asked):
            assert gateway.asked.count(tier) == (len(fault.answers) if row[tier] == "F" else 1), (
                name
            )


# --- what ends a judging from without: its time and its money ----------------------------------------------

# A silent model (S) uses up the rest of 0.2 seconds; later ones aren't asked.
DEADLINE = """
mode    | quick | deep | verdict      | asked      | degraded
strict  | S     | A    | undetermined | q          | quick: timeout (no answer in 0.* s); deep, tiebreaker: timeout (no time left to ask it)
strict  | A     | S    | undetermined | q d        | deep: timeout (no answer in 0.* s); tiebreaker: timeout (no time left to ask it)
strict  | R     | S    | reject       | q          | -
lenient | S     | A    | undetermined | q          | quick: timeout (no answer in 0.* s); deep, tiebreaker: timeout (no time left to ask it)
lenient | R     | S    | undetermined | q d        | deep: timeout (no answer in 0.* s); tiebreaker: timeout (no time left to ask it)
lenient | A     | S    | accept       | q          | -
"""  # noqa: E501 - a table

# A reply costs 0.001 US dollars, read or not.
BUDGET = """
mode    | limit  | quick | deep | verdict      | asked      | degraded
strict  | 0      | A     | A    | undetermined |            | quick, deep, tiebreaker: budget (0.0000 of 0 US dollars are spent)
strict  | 0.001  | A     | A    | undetermined | q          | deep, tiebreaker: budget (0.0010 of 0.001 US dollars are spent)
strict  | 0.001  | R     | A    | reject       | q          | -
strict  | 0.0015 | A     | R    | escalate     | q d        | tiebreaker: budget (0.0020 of 0.0015 US dollars are spent)
strict  | 0.0015 | U     | A    | undetermined | q          | quick: invalid_reply (*); deep, tiebreaker: budget (0.0020 of 0.0015 US dollars are spent)
lenient | 0.001  | R     | R    | undetermined | q          | deep, tiebreaker: budget (0.0010 of 0.001 US dollars are spent)
lenient | 0.0015 | R     | A    | escalate     | q d        | tiebreaker: budget (0.0020 of 0.0015 US dollars are spent)
"""  # noqa: E501 - a table


@pytest.mark.parametrize(
    "row", [*named(DEADLINE), *named(BUDGET)], ids=lambda row: "-".join(list(row.values())[:4])
)
def test_the_deadline_and_the_budget(row: dict[str, str]) -> None:
    said: dict[str, list[Answer]] = {"S": [60.0], "U": ["Well.", "Well."]}
    script = {tier: said.get(row[tier]) or [SAYS[row[tier]]] for tier in ("quick", "deep")}
    gateway = ScriptedGateway({**script, "tiebreaker": [SAYS["A"]]})
    limit: dict[str, Any] = (
        {"max_cost_usd": float(row["limit"])} if "limit" in row else {"timeout": 0.2}
    )
    verdict = judged_document(gateway, row["mode"], **limit)
    assert verdict.verdict == row["verdict"]
    assert " ".join(tier[0] for tier in dict.fromkeys(gateway.asked)) == row["asked"]
    assert is_told(verdict.degraded, row["degraded"], NOBODY), verdict.degraded


# --- nothing unreadable is a pass or a fail ---------------------------------------------------------------

NOISES = st.sampled_from(
    ["accept", "reject", "GO", "NO-GO", "1", "5", "scores", "keep", *'{}[]:,"\n', "```"]
)
NOISE = st.one_of(st.text(max_size=60), st.lists(NOISES, max_size=12).map(" ".join))


@given(NOISE, st.sampled_from(["strict", "lenient"]))
def test_noise_from_every_tier_decides_nothing(noise: str, mode: str) -> None:
    script: dict[str, list[Answer]] = {tier: [noise, noise] for tier in TIERS}
    assert judged_document(ScriptedGateway(script), mode).verdict == "undetermined"
    selection = candidates(ScriptedGateway(script), mode)
    assert {decision.decision for decision in selection.decisions} == {"undetermined"}


class Till(NothingOpen):
    """Answers anything, at the prices and in the moods it is given, and notes each call beyond the limit."""

    def __init__(self, limit: float, prices: list[float], moods: list[int]) -> None:
        self.limit, self.prices, self.moods = limit, prices, moods
        self.spent, self.calls, self.beyond = 0.0, 0, 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.beyond += self.spent >= self.limit
        price = self.prices[self.calls % len(self.prices)]
        mood = self.moods[self.calls % len(self.moods)]
        self.calls += 1
        await asyncio.sleep(0)
        self.spent += price
        usage = making.call_usage(10, 1, price, "provider")
        if mood == 0:
            raise GatewayError(FailureKind.INVALID_REPLY, "the reply is empty", usage=usage)
        if mood == 1:
            return making.reply("no object", scripted_endpoint.model, usage)
        return answer(request, mood, usage)


def answer(request: Request, mood: int, usage: Usage) -> Reply:
    """Return a reply of the shape that is asked for; `mood` says which way it leans."""
    if request.top_logprobs:
        likely: dict[str, float] = {str(mood): -0.2, "yes" if mood % 2 else "no": -0.2}
        return making.reply(str(mood), "m", usage, logprobs=(likely,))
    assert request.schema is not None
    wanted = request.schema["properties"]
    if "scores" in wanted:
        names = wanted["scores"]["properties"]
        said: dict[str, Any] = {
            "reasoning": "So.",
            "scores": dict.fromkeys(names, mood),
            "findings": [],
        }
    elif "better" in wanted:
        said = {"reasoning": "So.", "better": [*request.labels, "tie"][mood % 3]}
    else:
        said = {key: list(request.labels)[:: mood - 1] for key in wanted}
    return making.reply(json.dumps(said), "m", usage)


def text_file(text: str) -> File:
    return making.file(f"{text}.md", text)


def judged(
    task: str, till: Till, panel: PanelModels, mode: ModeName, options: dict[str, Any]
) -> object:
    bounds: dict[str, Any] = {
        "mode": mode,
        "timeout": 60,
        "max_cost_usd": till.limit,
        **options,
    }
    if task == "document":
        one = making.document((text_file("text"),), "text.md@1")
        return asyncio.run(making.document_judge(till, panel, **bounds).judge(one))
    if task == "candidates":
        rubric = loader.find_rubric("memory-two-criteria")
        shown = [making.prompt_candidate(f"id{number}", f"Title {number}") for number in range(40)]
        return asyncio.run(
            making.candidate_judge(till, panel, loaded=rubric, **bounds).select(
                making.query("query"), shown
            )
        )
    kind, name, letters = TWO_KINDS[task]
    judge = kind(till, making.judge_settings(panel, loader.find_rubric(name), **bounds))
    return asyncio.run(
        judge.judge(making.comparison_input("Say who.", tuple(map(text_file, letters))))
    )


TWO_KINDS: dict[str, tuple[type[PairJudge | RankingJudge], str, str]] = {
    "pair": (PairJudge, "answer-preference", "AB"),
    "ranking": (RankingJudge, "kls", "ABCD"),
}
TASKS = ("document", "candidates", *TWO_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@given(
    limit=st.floats(0, 1),
    prices=st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3]), min_size=1, max_size=5),
    moods=st.lists(st.integers(0, 5), min_size=1, max_size=7),
    jury=st.integers(1, 3),
    pointwise=st.booleans(),
    mode=st.sampled_from(["strict", "lenient"]),
    options=st.fixed_dictionaries(
        {
            "jury": st.sampled_from(["mean", "majority"]),
            "samples": st.integers(1, 3),
            "criteria": st.sampled_from(["together", "each"]),
        }
    ),
)
def test_no_call_begins_once_the_limit_is_reached(
    task: str,
    limit: float,
    prices: list[float],
    moods: list[int],
    jury: int,
    mode: ModeName,
    options: dict[str, Any],
    *,
    pointwise: bool,
) -> None:
    till = Till(limit, prices, moods)
    small = pointwise and task != "pair"
    panel: PanelModels = {
        tier: tuple(
            dataclasses.replace(
                scripted_endpoint(f"{tier}-{number}", pointwise=small), family=f"f{number}"
            )
            for number in range(jury)
        )
        for tier in TIERS
    }
    found = judged(task, till, panel, mode, options)
    assert till.beyond == 0
    assert till.calls > 0 or limit == 0
    told = getattr(found, "cost_usd", None)
    assert (told or 0) == pytest.approx(till.spent, abs=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_without_a_limit_more_is_spent(task: str) -> None:
    """The test above would notice nothing if a judging never cost more than its limits."""
    till = Till(10.0, [0.3], [4])
    judged(
        task,
        till,
        {tier: (scripted_endpoint(tier),) for tier in TIERS},
        "strict",
        {},
    )
    assert till.spent > 0.5

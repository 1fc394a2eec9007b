"""What becomes of a judging when models fail: every failure, in every tier, for both tasks, in both modes.

The tables say what must come out; nothing in them is computed from the code. A column for each tier says
what its model answers: for documents A(ccept), I(mprove) or R(eject), for candidates those that it keeps
(`none`: it drops all); F is the fault, and a tier that is not in `asked` must not be asked at all. Every row
is run with every fault. `by` and `asked` name the tiers q(uick), d(eep) and t(iebreaker).
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import candidate_judge, document, document_judge, file, prompt_candidate, query
from scripted import ScriptedGateway, keep, scores, scripted_endpoint, three_models

from judgekit.config import TIERS
from judgekit.errors import FailureKind, GatewayError
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scripted import Answer

    from judgekit.config import ModeName
    from judgekit.judging.verdict import Selection, Verdict
    from judgekit.providers.base import PanelModels
    from judgekit.rubric.loader import LoadedRubric

# Every kind of failure, and how the output tells of it.
FAULTS = """
timeout         | no answer in 45 s                    | timeout (no answer in 45 s)
connection      | 127.0.0.1:1 refuses connections      | connection (127.0.0.1:1 refuses connections)
rate_limit      | too many requests, after 3 attempts  | rate_limit (too many requests, after 3 attempts)
overloaded      | overloaded, after 3 attempts         | overloaded (overloaded, after 3 attempts)
server_error    | 500, after 3 attempts                | server_error (500, after 3 attempts)
authentication  | the key was not accepted             | authentication (the key was not accepted)
permission      | no credit is left                    | permission (no credit is left)
not_found       | there is no such model               | not_found (there is no such model)
bad_request     | a parameter was not accepted         | bad_request (a parameter was not accepted)
context_window  | the prompt is too long               | context_window (the prompt is too long)
content_filter  | the provider's filter cut the reply  | content_filter (the provider's filter cut the reply)
refusal         | I cannot help with that              | refusal (I cannot help with that)
truncated       | cut at 2048 tokens                   | truncated (cut at 2048 tokens)
invalid_reply   | the reply has no choices             | invalid_reply (the reply has no choices)
not_recorded    | nothing is recorded                  | not_recorded (nothing is recorded)
command_failed  | it exited with 1                     | command_failed (it exited with 1)
budget          | 1.0000 of 1 US dollars are spent     | budget (1.0000 of 1 US dollars are spent)
"""

DOCUMENTS = """
mode    | quick | deep | tiebreaker | verdict      | consensus | by | asked | degraded
strict  | F     | A    | -          | accept       | single    | d  | q d   | quick: F
strict  | F     | I    | -          | improve      | single    | d  | q d   | quick: F
strict  | F     | R    | -          | reject       | single    | d  | q d   | quick: F
strict  | F     | F    | A          | accept       | single    | t  | q d t | quick, deep: F
strict  | F     | F    | I          | improve      | single    | t  | q d t | quick, deep: F
strict  | F     | F    | R          | reject       | single    | t  | q d t | quick, deep: F
strict  | F     | F    | F          | undetermined | none      | -  | q d t | quick, deep, tiebreaker: F
strict  | A     | F    | A          | accept       | unanimous | t  | q d t | deep: F
strict  | A     | F    | I          | improve      | single    | t  | q d t | deep: F
strict  | A     | F    | R          | escalate     | none      | -  | q d t | deep: F
strict  | A     | F    | F          | undetermined | none      | -  | q d t | deep, tiebreaker: F
strict  | A     | A    | F          | accept       | unanimous | d  | q d   | -
strict  | A     | I    | F          | improve      | single    | d  | q d   | -
strict  | A     | R    | F          | escalate     | none      | -  | q d t | tiebreaker: F
strict  | I     | F    | A          | accept       | single    | t  | q d t | deep: F
strict  | I     | F    | I          | improve      | unanimous | t  | q d t | deep: F
strict  | I     | F    | R          | reject       | single    | t  | q d t | deep: F
strict  | I     | F    | F          | undetermined | none      | -  | q d t | deep, tiebreaker: F
strict  | I     | A    | F          | accept       | single    | d  | q d   | -
strict  | I     | R    | F          | reject       | single    | d  | q d   | -
strict  | R     | F    | F          | reject       | single    | q  | q     | -
lenient | F     | A    | -          | accept       | single    | d  | q d   | quick: F
lenient | F     | I    | -          | improve      | single    | d  | q d   | quick: F
lenient | F     | R    | -          | reject       | single    | d  | q d   | quick: F
lenient | F     | F    | A          | accept       | single    | t  | q d t | quick, deep: F
lenient | F     | F    | I          | improve      | single    | t  | q d t | quick, deep: F
lenient | F     | F    | R          | reject       | single    | t  | q d t | quick, deep: F
lenient | F     | F    | F          | undetermined | none      | -  | q d t | quick, deep, tiebreaker: F
lenient | R     | F    | R          | reject       | unanimous | t  | q d t | deep: F
lenient | R     | F    | I          | improve      | single    | t  | q d t | deep: F
lenient | R     | F    | A          | escalate     | none      | -  | q d t | deep: F
lenient | R     | F    | F          | undetermined | none      | -  | q d t | deep, tiebreaker: F
lenient | R     | R    | F          | reject       | unanimous | d  | q d   | -
lenient | R     | I    | F          | improve      | single    | d  | q d   | -
lenient | R     | A    | F          | escalate     | none      | -  | q d t | tiebreaker: F
lenient | I     | F    | A          | accept       | single    | t  | q d t | deep: F
lenient | I     | F    | I          | improve      | unanimous | t  | q d t | deep: F
lenient | I     | F    | R          | reject       | single    | t  | q d t | deep: F
lenient | I     | F    | F          | undetermined | none      | -  | q d t | deep, tiebreaker: F
lenient | I     | A    | F          | accept       | single    | d  | q d   | -
lenient | I     | R    | F          | reject       | single    | d  | q d   | -
lenient | A     | F    | F          | accept       | single    | q  | q     | -
"""

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
lenient | F     | a    | -          | kept deep          | dropped deep       | q:ab d:ab        | -
lenient | F     | none | -          | dropped deep       | dropped deep       | q:ab d:ab        | -
lenient | F     | F    | a          | kept tiebreaker    | dropped tiebreaker | q:ab d:ab t:ab   | -
lenient | F     | F    | F          | undetermined       | undetermined       | q:ab d:ab t:ab   | quick, deep, tiebreaker: F
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
        "REJECT. All scores are 1.",
        SORRY,
        '{"verdict": "accept"}',
        '{"scores": {}}',
        '{"reasoning": "fine", "scores": {"semantic": 5, "pragmatic": 5}}',
        '{"reasoning": "fine", "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 6}}',
        '{"reasoning": "bad", "scores": {"semantic": 0, "pragmatic": 1, "syntactic": 1}}',
        '{"reasoning": "fine", "scores": {"semantic": "90%", "pragmatic": "9/10", "syntactic": 5}}',
        CUT["score"],
    ),
    "select": (
        "",
        "All of them are relevant.",
        "None.",
        SORRY,
        '{"keep": ["a label that nobody offered"]}',
        '{"keep": null}',
        '{"keep": {"first": true}}',
        '{"kept": []}',
        CUT["select"],
    ),
}

SAYS: dict[str, Answer] = {"A": scores(4, 4, 5), "I": scores(3, 3, 2), "R": scores(1, 2, 3)}
PAIR = [prompt_candidate(name, f"Title {name}", category="DECISION", text=f"Body {name}") for name in "ab"]


class Fault(NamedTuple):
    """What the model of a tier that is F answers, and how the output tells of it (`*`: anything)."""

    answers: tuple[Answer, ...]
    told: str


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def named(table: str) -> list[dict[str, str]]:
    head, *body = rows(table)
    return [dict(zip(head, row, strict=True)) for row in body]


# A reply that is no answer is asked for once more.
RAISED = {
    kind: Fault((GatewayError(FailureKind(kind), message),) * (2 if kind == "invalid_reply" else 1), told)
    for kind, message, told in rows(FAULTS)
}


def faults(task: str) -> dict[str, Fault]:
    """Return every failure that a call can raise, and every unreadable reply, which is given twice."""
    kinds = {SORRY: "refusal (*)", CUT[task]: "truncated (*)"}
    written = {
        text or "(empty)": Fault((text, text), kinds.get(text, "invalid_reply (*)"))
        for text in UNREADABLE[task]
    }
    return RAISED | written


def answers(row: Mapping[str, str], fault: Fault) -> dict[str, list[Answer]]:
    return {tier: [SAYS[row[tier]]] if row[tier] in SAYS else [*fault.answers] for tier in TIERS}


def chosen(row: Mapping[str, str], fault: Fault) -> dict[str, list[Answer]]:
    def said(cell: str) -> list[Answer]:
        return [*fault.answers] if cell in "F-" else [keep(*(f"Title {name}" for name in cell))]

    return {tier: said(row[tier].replace("none", "0")) for tier in TIERS}


@functools.cache
def rubric(name: str) -> LoadedRubric:
    return loader.find_rubric(name)


def judged_document(
    gateway: ScriptedGateway,
    mode: str,
    panel: PanelModels | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Verdict:
    subject = document((file("a.md", "Some text.", sha256="ab" * 32),), "a.md@ab")
    settings = {"deadline": 60.0, **options}
    judge = document_judge(gateway, panel or three_models(), loaded=rubric("kls"), mode=of(mode), **settings)
    return asyncio.run(judge.judge(subject))


def candidates(gateway: ScriptedGateway, mode: str, **options: Any) -> Selection:  # noqa: ANN401 - passed on
    settings = {"deadline": 60.0, **options}
    judge = candidate_judge(
        gateway, three_models(), loaded=rubric("memory-relevance"), mode=of(mode), **settings
    )
    return asyncio.run(judge.select(query("How do we refresh the token?"), PAIR))


def of(mode: str) -> ModeName:
    return "strict" if mode == "strict" else "lenient"


def decided(selection: Selection) -> dict[str, str]:
    return {
        decision.id: " ".join(filter(None, (decision.decision, decision.tier)))
        for decision in selection.decisions
    }


def tiers_asked(gateway: ScriptedGateway) -> str:
    return " ".join(tier[0] for tier in dict.fromkeys(gateway.asked))


def asked_about(gateway: ScriptedGateway) -> str:
    shown = {
        request.call_key.tier: "".join(
            name for name in "ab" if f"Title {name}" in request.messages[1].content
        )
        for request in gateway.requests
    }
    return " ".join(f"{tier[0]}:{names}" for tier, names in shown.items())


def is_told(degraded: str | None, expected: str, fault: Fault) -> bool:
    if expected == "-":
        return degraded is None
    return degraded is not None and fnmatchcase(degraded, expected.replace("F", fault.told))


def ids(table: str) -> list[str]:
    return ["-".join(each[name] for name in ("mode", *TIERS)) for each in named(table)]


def test_the_tables_know_every_failure_every_tier_and_both_modes() -> None:
    assert set(RAISED) == {failure_kind.value for failure_kind in FailureKind}
    for table in (DOCUMENTS, CANDIDATES):
        covered = {(each["mode"], tier) for each in named(table) for tier in TIERS if each[tier] == "F"}
        assert covered == {(mode, tier) for mode in ("strict", "lenient") for tier in TIERS}
        assert len(set(ids(table))) == len(ids(table))


@pytest.mark.parametrize("row", named(DOCUMENTS), ids=ids(DOCUMENTS))
def test_documents(row: dict[str, str]) -> None:
    expected = (row["verdict"], row["consensus"], row["by"], row["asked"])
    for name, fault in faults("score").items():
        gateway = ScriptedGateway(answers(row, fault))
        verdict = judged_document(gateway, row["mode"])
        came = (verdict.verdict, verdict.consensus, (verdict.judge_tier or "-")[0], tiers_asked(gateway))
        assert came == expected, name
        assert is_told(verdict.degraded, row["degraded"], fault), (name, verdict.degraded)
        assert (verdict.scores is None) == (verdict.judge_tier is None), name
        assert calls(gateway) == expected_calls(row, fault, gateway), name


@pytest.mark.parametrize("row", named(CANDIDATES), ids=ids(CANDIDATES))
def test_candidates(row: dict[str, str]) -> None:
    for name, fault in faults("select").items():
        gateway = ScriptedGateway(chosen(row, fault))
        selection = candidates(gateway, row["mode"])
        assert decided(selection) == {each: row[each] for each in "ab"}, name
        assert asked_about(gateway) == row["asked"], name
        assert is_told(selection.degraded, row["degraded"], fault), (name, selection.degraded)
        assert calls(gateway) == expected_calls(row, fault, gateway), name


def calls(gateway: ScriptedGateway) -> dict[str, int]:
    return {tier: gateway.asked.count(tier) for tier in gateway.asked}


def expected_calls(row: Mapping[str, str], fault: Fault, gateway: ScriptedGateway) -> dict[str, int]:
    """A failed call is not made again here (retries are the gateway's); an unreadable reply is, once."""
    return {tier: len(fault.answers) if row[tier] == "F" else 1 for tier in gateway.asked}


# --- fewer tiers ------------------------------------------------------------------------------------------

FEWER = """
tiers            | answers | verdict      | asked            | degraded
quick            | F       | undetermined | q                | quick: F
deep             | F       | undetermined | d                | deep: F
quick deep       | F A     | accept       | q d              | quick: F
quick deep       | A F     | undetermined | q d              | deep: F
quick deep       | F F     | undetermined | q d              | quick, deep: F
quick tiebreaker | A F     | undetermined | q t              | tiebreaker: F
quick tiebreaker | F R     | reject       | q t              | quick: F
deep tiebreaker  | F A     | accept       | d t              | deep: F
deep tiebreaker  | F F     | undetermined | d t              | deep, tiebreaker: F
"""


@pytest.mark.parametrize("row", named(FEWER), ids=lambda row: f"{row['tiers']}-{row['answers']}")
def test_fewer_tiers(row: dict[str, str]) -> None:
    said = dict(zip(row["tiers"].split(), row["answers"].split(), strict=True))
    endpoints: Any = {tier: scripted_endpoint(f"{tier}-model") for tier in said}
    for name, fault in faults("score").items():
        script = {tier: [SAYS[each]] if each in SAYS else [*fault.answers] for tier, each in said.items()}
        gateway = ScriptedGateway(script)
        verdict = judged_document(gateway, "strict", endpoints)
        assert (verdict.verdict, tiers_asked(gateway)) == (row["verdict"], row["asked"]), name
        assert is_told(verdict.degraded, row["degraded"], fault), (name, verdict.degraded)


# --- juries -----------------------------------------------------------------------------------------------

# Three models of three families sit in the quick tier: the letters are theirs. Most must answer.
JURIES = """
mode    | quick | deep | verdict      | asked | degraded
strict  | A A F | A    | accept       | q d   | quick: F
strict  | R R F | A    | reject       | q     | quick: F
strict  | R F F | A    | accept       | q d   | quick: F
strict  | F F F | R    | reject       | q d   | quick: F
lenient | A A F | R    | accept       | q     | quick: F
lenient | A F F | R    | reject       | q d   | quick: F
lenient | R R F | A    | escalate     | q d t | quick, tiebreaker: F
lenient | F F F | F    | undetermined | q d t | quick, deep, tiebreaker: F
"""


@pytest.mark.parametrize("row", named(JURIES), ids=lambda row: f"{row['mode']}-{row['quick']}-{row['deep']}")
def test_juries(row: dict[str, str]) -> None:
    jury = [replace(scripted_endpoint(f"juror-{name}"), family=name) for name in "abc"]
    panel: PanelModels = {
        "quick": jury,
        "deep": scripted_endpoint("deep-model"),
        "tiebreaker": scripted_endpoint("third-model"),
    }
    for name, fault in RAISED.items():
        said = {"quick": row["quick"].split(), "deep": [row["deep"]], "tiebreaker": ["F"]}
        script = {
            tier: [
                *(SAYS[word] if word in SAYS else fault.answers[0] for word in words),
                *(again for word in words if word not in SAYS for again in fault.answers[1:]),
            ]
            for tier, words in said.items()
        }
        gateway = ScriptedGateway(script)
        verdict = judged_document(gateway, row["mode"], panel)
        assert (verdict.verdict, tiers_asked(gateway)) == (row["verdict"], row["asked"]), name
        assert is_told(told_once(verdict.degraded), row["degraded"], fault), (name, verdict.degraded)


def told_once(degraded: str | None) -> str | None:
    """Return the text with a tier named once, however many of its models failed alike."""
    return degraded and ", ".join(dict.fromkeys(degraded.split(", ")))


# --- what ends a judging from without: its time and its money ----------------------------------------------

# A model that is silent (S) takes what is left of 0.2 seconds; who comes after it is not asked.
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
strict  | 0.0015 | A     | A    | accept       | q d        | -
strict  | 0.0015 | A     | R    | escalate     | q d        | tiebreaker: budget (0.0020 of 0.0015 US dollars are spent)
strict  | 0.0015 | U     | A    | undetermined | q          | quick: invalid_reply (*); deep, tiebreaker: budget (0.0020 of 0.0015 US dollars are spent)
lenient | 0.001  | R     | R    | undetermined | q          | deep, tiebreaker: budget (0.0010 of 0.001 US dollars are spent)
lenient | 0.001  | A     | A    | accept       | q          | -
lenient | 0.0015 | R     | A    | escalate     | q d        | tiebreaker: budget (0.0020 of 0.0015 US dollars are spent)
"""  # noqa: E501 - a table

NOBODY = Fault((), "")


def scripted(row: Mapping[str, str]) -> ScriptedGateway:
    said: dict[str, list[Answer]] = {"S": [60.0], "U": ["Well.", "Well."]}
    script = {tier: said.get(row[tier]) or [SAYS[row[tier]]] for tier in ("quick", "deep")}
    return ScriptedGateway({**script, "tiebreaker": [SAYS["A"]]})


@pytest.mark.parametrize(
    "row", [*named(DEADLINE), *named(BUDGET)], ids=lambda row: "-".join(list(row.values())[:4])
)
def test_the_deadline_and_the_budget(row: dict[str, str]) -> None:
    gateway = scripted(row)
    limit: dict[str, Any] = {"max_cost_usd": float(row["limit"])} if "limit" in row else {"deadline": 0.2}
    verdict = judged_document(gateway, row["mode"], **limit)
    assert (verdict.verdict, tiers_asked(gateway)) == (row["verdict"], row["asked"])
    assert is_told(verdict.degraded, row["degraded"], NOBODY), verdict.degraded


@pytest.mark.parametrize(
    ("mode", "kept", "left"),
    [("strict", "none", "dropped quick"), ("strict", "a", "undetermined"), ("lenient", "a", "kept quick")],
)
def test_candidates_when_the_money_is_spent(mode: str, kept: str, left: str) -> None:
    gateway = ScriptedGateway(chosen({"quick": kept, "deep": "a", "tiebreaker": "a"}, NOBODY))
    selection = candidates(gateway, mode, max_cost_usd=0.001)
    assert (decided(selection)["a"], tiers_asked(gateway)) == (left, "q")


# --- nothing unreadable is a pass or a fail ---------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *["accept", "reject", "GO", "NO-GO", "1", "5", "scores", "keep", "{", "}", "[", "]", ":", ","],
        '"',
        "\n",
        "```",
    ]
)
NOISE = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join))


@given(NOISE, st.sampled_from(["strict", "lenient"]))
def test_noise_from_every_tier_decides_nothing(noise: str, mode: str) -> None:
    script: dict[str, list[Answer]] = {tier: [noise, noise] for tier in TIERS}
    assert judged_document(ScriptedGateway(script), mode).verdict == "undetermined"
    selection = candidates(ScriptedGateway(script), mode)
    assert {decision.decision for decision in selection.decisions} == {"undetermined"}


@given(NOISE, st.sampled_from(["strict", "lenient"]), st.sampled_from(TIERS), st.data())
def test_noise_changes_no_verdict_more_than_silence_does(
    noise: str, mode: str, broken: str, data: st.DataObject
) -> None:
    said = {tier: data.draw(st.sampled_from("AIR")) for tier in TIERS if tier != broken}

    def verdict(fault: Iterable[Answer]) -> tuple[str, str, Mapping[str, float] | None]:
        script = {tier: [SAYS[word]] for tier, word in said.items()} | {broken: list(fault)}
        judged = judged_document(ScriptedGateway(script), mode)
        return judged.verdict, judged.consensus, judged.scores

    assert verdict([noise, noise]) == verdict(RAISED["timeout"].answers)

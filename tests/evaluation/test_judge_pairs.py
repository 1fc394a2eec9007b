"""What models say of two texts is read back from a record as the judge itself read it."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Answer, Asked, Loopback, says
from making import judge_options
from scripted import ScriptedGateway, scripted_endpoint

from judgekit.config.settings import user_file
from judgekit.evaluation import runner
from judgekit.evaluation.cases import Case
from judgekit.evaluation.samples import Reader
from judgekit.evaluation.samples import asked as recorded_asking
from judgekit.judging.compare import PairJudge
from judgekit.judging.jury import ORDERS, Vote, of_calls, tier_vote
from judgekit.judging.verdict import CompareRound
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.judging.jury import JuryRule, PairWord

LOADED = loader.comparing_rubric("answer-preference")
CRITERIA = 3
PAIR = {"id": "p", "prompt": "Why?", "a": "Because.", "b": "No idea.", "label": "A"}
WORDS: tuple[PairWord | None, ...] = ("A", "B", "tie", None)


@settings(deadline=None)
@given(
    data=st.data(),
    samples=st.integers(1, 3),
    criteria=st.sampled_from([1, CRITERIA]),
    rule=st.sampled_from(["mean", "majority"]),
    families=st.lists(st.sampled_from(["x", "y", "unknown"]), min_size=1, max_size=4),
)
def test_a_record_comes_to_the_word_and_the_lead_of_the_judge(
    data: st.DataObject, samples: int, criteria: int, rule: JuryRule, families: list[str]
) -> None:
    options = judge_options(rule, samples=samples, each=criteria > 1)
    endpoints = [
        dataclasses.replace(scripted_endpoint(f"m{at}"), family=name) for at, name in enumerate(families)
    ]
    count = samples * criteria * len(ORDERS)
    said = [data.draw(st.lists(st.sampled_from(WORDS), min_size=count, max_size=count)) for _ in endpoints]
    rounds = [
        CompareRound(
            round=1,
            tier="quick",
            model=endpoint.model,
            order=list(ORDERS[number % 2]),
            opinion={"better": word} if word else None,
        )
        for endpoint, words in zip(endpoints, said, strict=True)
        for number, word in enumerate(words)
    ]
    judge = PairJudge(ScriptedGateway({}), {"quick": endpoints}, LOADED, "strict", 30, options=options)
    votes = [of_calls([Vote(one) if one else None for one in own], criteria) for own in said]
    expected = tier_vote(list(zip(endpoints, votes, strict=True)), rule)
    recorded = runner.of_pairs(judge, rounds)
    case = Case.model_validate({**PAIR, "judges": recorded})
    reader = Reader(LOADED.rubric, "strict")
    assert reader.words(case, recorded["quick"]) == {"": expected.word}
    (sample,) = reader.samples(case)
    assert sample.voices["quick"].margin == pytest.approx(expected.lead)
    again = Case.model_validate_json(case.model_dump_json())
    assert reader.words(again, again.judges["quick"]) == {"": expected.word}


def test_models_are_measured_on_texts_that_their_own_family_wrote(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Four eyes are for judging: else nobody could learn how far a model may be trusted."""
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text("judge: {author_family: openai, samples: 3}\n")

    def answer(asked: Asked) -> Answer:
        found = re.findall(r"The text (\w+):\s+<[^>]*>\s+Because", asked.text)
        return says(json.dumps({"reasoning": "r", "better": found[0]}))

    with Loopback(answer) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "gpt-4o-mini,gpt-4o")
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "mistral-large")
        opinions = runner.ask([Case.model_validate(PAIR)], tmp_path, LOADED, "strict")
    quick, deep = (opinions.cases[0].judges[tier] for tier in ("quick", "deep"))
    assert [recorded.model for recorded in quick.jury or []] == ["custom/gpt-4o-mini", "custom/gpt-4o"]
    assert [recorded.probabilities for recorded in quick.jury or []] == [{"A": 1.0, "B": 0.0}] * 2
    assert (deep.model, deep.samples, deep.calls) == ("custom/mistral-large", 3, 6)
    assert recorded_asking(opinions.cases).samples == 3


@pytest.mark.parametrize(("share", "cut"), [(0.4, False), (0.6, True)])
def test_what_a_tier_did_not_see_whole_is_noted_and_learned_as_judging_takes_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    share: float,
    cut: bool,  # noqa: FBT001 - a table
) -> None:
    """The quick tier of this rubric sees the beginnings of long texts: its wins are never final there."""
    limit = LOADED.rubric.tiers.quick.max_chars
    assert limit is not None
    texts = {letter: f"{letter} {'word ' * int(share * limit / 5)}" for letter in "ab"}

    def answer(asked: Asked) -> Answer:
        found = re.findall(r"The text (\w+)\b[^<]*<[^>]*>\s+a word", asked.text)
        return says(json.dumps({"reasoning": "r", "better": found[0]}))

    with Loopback(answer) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "small")
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "large")
        opinions = runner.ask([Case.model_validate({**PAIR, **texts})], tmp_path, LOADED, "strict")
    (case,) = opinions.cases
    assert {tier: recorded.cut for tier, recorded in case.judges.items()} == {"quick": cut, "deep": False}
    (sample,) = Reader(LOADED.rubric, "strict").samples(case)
    assert (sample.outcome("quick"), sample.margin("quick")) == ("accept", None if cut else 1.0)

"""The same input under the same recording gives the same verdict, byte for byte."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from making import (
    call_usage,
    candidate_judge,
    document_judge,
    file,
    judge_options,
    prompt_candidate,
    query,
    reply,
)
from scripted import ScriptedGateway, keep, scores, scripted_endpoint

from judgekit.judging import documents, service
from judgekit.providers import replay
from judgekit.providers.replay import Recorder, ReplayGateway

if TYPE_CHECKING:
    from pathlib import Path

    from scripted import Answer

    from judgekit.judging.documents import Document
    from judgekit.judging.orchestrator import JudgeOptions
    from judgekit.judging.verdict import Selection, Verdict
    from judgekit.providers.base import Gateway, PanelModels, Reply

CHANGING = ("id", "timestamp", "duration_ms", "latency_ms")
JURY: PanelModels = {
    "quick": (scripted_endpoint("quick-a"), scripted_endpoint("quick-b"), scripted_endpoint("quick-c")),
    "deep": (scripted_endpoint("deep-a"),),
    "tiebreaker": (scripted_endpoint("third", pointwise=True),),
}
CANDIDATES = [
    prompt_candidate(f"m{number}", f"Title m{number}", text=f"Body {number}") for number in range(20)
]
LIKELY = {"yes": math.log(0.7), "no": math.log(0.3), "4": math.log(0.6), "3": math.log(0.4)}


def document() -> Document:
    return documents.document([file("docs/a.md", "Some text.", sha256="ab" * 32)])


def stable(found: Verdict | Selection) -> str:
    """Return all that may not change, as it would be written."""

    def without(value: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(value, dict):
            return {name: without(each) for name, each in value.items() if name not in CHANGING}
        return [without(each) for each in value] if isinstance(value, list) else value

    return json.dumps(without(json.loads(found.model_dump_json(by_alias=True))))


def token(_: object) -> Reply:
    return reply("4", "third", call_usage(7, 1, 0.01), logprobs=(LIKELY,))


def score(gateway: Gateway, panel: PanelModels, options: JudgeOptions) -> Verdict:
    own = document_judge(gateway, panel, mode="strict", options=options)
    return asyncio.run(own.judge(document()))


def select(gateway: Gateway, panel: PanelModels, options: JudgeOptions) -> Selection:
    own = candidate_judge(gateway, panel, mode="strict", options=options)
    return asyncio.run(own.select(query("How do we refresh the JWT?"), CANDIDATES))


@pytest.mark.parametrize("options", [judge_options(), judge_options("majority", samples=2)])
def test_a_document(tmp_path: Path, options: JudgeOptions) -> None:
    file = tmp_path / "recording.jsonl"
    good, bad = scores(4, 4, 5, reasoning="Sound."), scores(1, 2, 3, reasoning="Wrong.")
    answers: dict[str, list[Answer]] = {
        "quick": [good, "unreadable", good, *[bad] * 20],
        "deep": [bad] * 5,
        "tiebreaker": [token] * 3,
    }
    first = score(Recorder(ScriptedGateway(answers), file), JURY, options)
    found = [stable(score(ReplayGateway(), replay.recorded_models(file), options)) for _ in range(3)]
    assert len(set(found)) == 1
    assert [each.model for each in first.rounds][:3] == ["quick-a", "quick-b", "quick-c"]
    assert json.loads(found[0])["verdict"] == first.verdict


@pytest.mark.parametrize("options", [judge_options(), judge_options(samples=3)])
def test_candidates(tmp_path: Path, options: JudgeOptions) -> None:
    file = tmp_path / "recording.jsonl"
    titles = [prompt_candidate.title for prompt_candidate in CANDIDATES]
    answers: dict[str, list[Answer]] = {
        "quick": [keep(*titles[:9]), keep(*titles[4:]), keep(*titles[:12])] * 6,
        "deep": [keep(*titles[2:8]), keep(titles[0])] * 3,
        "tiebreaker": [token] * 20,
    }
    first = select(Recorder(ScriptedGateway(answers), file), JURY, options)
    found = [stable(select(ReplayGateway(), replay.recorded_models(file), options)) for _ in range(3)]
    assert len(set(found)) == 1
    assert json.loads(found[0])["decisions"] == json.loads(stable(first))["decisions"]


def test_as_configured(tmp_path: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the configuration on: who judges, and how, is found anew each time."""
    file = tmp_path / "recording.jsonl"
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "config.yaml").write_text("judge: {samples: 2, jury: majority}\n")
    answers: dict[str, list[Answer]] = {
        "quick": [scores(4, 4, 5)] * 6,
        "deep": [scores(4, 3, 5), scores(5, 4, 5)],
    }
    options = judge_options("majority", samples=2)
    first = score(Recorder(ScriptedGateway(answers), file), {t: JURY[t] for t in ("quick", "deep")}, options)
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(file))
    found = [stable(service.judge_documents([document()])[0]) for _ in range(2)]
    assert found[0] == found[1]
    told = json.loads(found[0])
    assert (told["verdict"], told["scores"]) == (first.verdict, first.scores)
    assert [each["model"] for each in told["rounds"]] == ["quick-a", "quick-b", "quick-c", "deep-a"]

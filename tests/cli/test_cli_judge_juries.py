"""`judgekit judge` with juries, samples and authors, over the wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says
from scripted import scores

from judgekit import api

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome


def configure(home: Path, text: str) -> None:
    folder = home / "judgekit"
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")


@pytest.mark.usefixtures("project")
def test_a_jury_from_a_variable_draws_its_samples_at_random(
    judgekit: Callable[..., Outcome],
    use: Callable[[Loopback], None],
    isolated: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(isolated, "judge: {samples: 2}\n")
    with Loopback(says(scores(1, 2, 3))) as server:
        use(server)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "gpt-a,mistral-b")
        done = judgekit("judge", "good.md", "--format", "jsonl", "--no-cache")
        bodies = [request.body for request in server.requests]
    verdict = json.loads(done.out)
    assert [each["opinion"]["samples"] for each in verdict["rounds"]] == [2, 2]
    assert (verdict["verdict"], verdict["consensus"]) == ("reject", "unanimous")
    assert sorted(body["model"] for body in bodies) == ["gpt-a", "gpt-a", "mistral-b", "mistral-b"]
    assert {body["temperature"] for body in bodies} == {1}


@pytest.mark.usefixtures("project")
def test_the_authors_family_is_said_and_heeded(
    judgekit: Callable[..., Outcome], use: Callable[[Loopback], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(says(scores(4, 4, 5))) as server:
        use(server)
        monkeypatch.setenv("JUDGEKIT_MODEL", "gpt-a")
        alone = judgekit("judge", "good.md", "--author-family", "openai").out
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "mistral-b")
        other = judgekit("judge", "good.md", "--author-family", "openai", "--format", "jsonl").out
        (judged,) = api.judge("good.md", author_family="mistral")
        asked = [request.body["model"] for request in server.requests]
    assert "not independent: judged by models of the author's family (openai)" in alone
    verdict = json.loads(other)
    assert (verdict["independent"], verdict["author"]["family"]) == (True, "openai")
    assert judged.independent is True
    # The second time both tiers are mistral-b's; the third time both are gpt-a's, whose replies were kept.
    assert asked == ["gpt-a", "gpt-a", "mistral-b", "mistral-b"]


@pytest.mark.usefixtures("project")
def test_every_juror_shows_its_prompt(
    judgekit: Callable[..., Outcome], use: Callable[[Loopback], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(says("")) as server:
        use(server)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "gpt-a,mistral-b")
        shown = judgekit("judge", "good.md", "--show-prompt").out
        assert server.requests == []
    assert ": quick (custom/gpt-a)" in shown
    assert ": quick (custom/mistral-b)" in shown

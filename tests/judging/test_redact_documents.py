"""No secret leaves the machine, wherever it stands and wherever a text is cut."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import secret_samples
from making import candidate_judge, comparison_input, document, document_judge, file, query, reply
from making import prompt_candidate as candidate
from scripted import three_models

from judgekit.config import TIERS
from judgekit.judging import redact as outgoing
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import CONTEXT_CHARS, File, Task
from judgekit.judging.ranking import RankingJudge
from judgekit.providers.base import models_by_tier
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint, Reply, Request

KINDS = ("aws", "anthropic", "github fine-grained", "slack bot", "json web token")
SECRETS = tuple(secret_samples.forms(7)[kind] for kind in KINDS)


def sent(given: File) -> File:
    """Return a file as it leaves."""
    subject, _ = outgoing.document(document((given,), "task"))
    return subject.files[0]


class Listening:
    """A gateway that keeps what it is sent and answers nothing of use."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        self.heard += [message.content for message in request.messages]
        return reply("no", endpoint.model, logprobs=({"3": -0.1, "no": -1.0},))

    async def aclose(self) -> None:
        pass

    @property
    def all(self) -> str:
        assert self.heard
        return "\n".join(self.heard)


def leaked(text: str, least: int = 12) -> list[str]:
    """Return pieces of secrets that stand in a text."""
    windows = ((secret, at) for secret in SECRETS for at in range(len(secret) - least + 1))
    return [secret[at : at + least] for secret, at in windows if secret[at : at + least] in text]


@pytest.mark.parametrize("pointwise", [False, True])
def test_a_document_is_sent_without_secrets(*, pointwise: bool) -> None:
    gateway = Listening()
    panel = {tier: replace(endpoint, pointwise=pointwise) for tier, endpoint in three_models().items()}
    task = Task(f"It documents {SECRETS[1]}.", f"It must not say {SECRETS[2]}.")
    # The quick tier sees 4,000 characters: the cut goes through the secret.
    files = (file("a.md", f"{SECRETS[0]}\n" + "word " * 790 + SECRETS[3] + " end"), file("b.md", SECRETS[4]))
    own = document_judge(gateway, panel, mode="strict")
    subject = document(files, "a", task=task)
    verdict = asyncio.run(own.judge(subject))
    assert leaked(gateway.all) == []
    assert gateway.all.count("[redacted: AWS key]") > 0
    assert verdict.redacted == 5
    assert verdict.record()["redacted"] == 5
    assert [subject.sha256 for subject in verdict.subjects] == [each.sha256 for each in files]
    shown = [prompt for tier in TIERS for prompt in own.prompts(tier, subject)]
    assert leaked(str(shown)) == []
    assert "[redacted: AWS key]" in str(shown)


@pytest.mark.parametrize("pointwise", [False, True])
@pytest.mark.parametrize("at", range(0, 320, 40))
def test_candidates_are_sent_without_secrets(at: int, *, pointwise: bool) -> None:
    gateway = Listening()
    panel = {tier: replace(endpoint, pointwise=pointwise) for tier, endpoint in three_models().items()}
    own = candidate_judge(gateway, panel, mode="lenient")
    text = "a" * at + f" {SECRETS[2]} b"
    shown = candidate("a", f"Key {SECRETS[0]}", category="DECISION", tags=("x", SECRETS[1]), text=text)
    wanted = query(f"{'q' * (at + 380)} {SECRETS[3]} here", (f"user: {'t' * at} {SECRETS[4]}",))
    asyncio.run(own.select(wanted, [shown, replace(shown, id="b", text=SECRETS[4])]))
    assert leaked(gateway.all) == []
    assert "[redacted: AWS key]" in gateway.all


@pytest.mark.parametrize("pointwise", [False, True])
def test_texts_are_compared_without_secrets(*, pointwise: bool) -> None:
    panel = {tier: replace(endpoint, pointwise=pointwise) for tier, endpoint in three_models().items()}
    subject = comparison_input(
        f"Explain {SECRETS[0]}", (file("a.md", f"One {SECRETS[1]}"), file("b.md", f"Two {SECRETS[2]}"))
    )
    for kind, rubric in ((PairJudge, "answer-preference"), (RankingJudge, "kls")):
        gateway = Listening()
        own = kind(gateway, models_by_tier(panel), loader.comparing_rubric(rubric), "strict", 30)
        asyncio.run(own.judge(subject))
        assert leaked(gateway.all) == []
        assert "[redacted: AWS key]" in gateway.all
        assert leaked(str([own.prompts(tier, subject) for tier in TIERS])) == []


@pytest.mark.parametrize("pointwise", [False, True])
@pytest.mark.parametrize("folder", ["docs/", "docs/k"])
def test_models_are_shown_paths_without_secrets(folder: str, *, pointwise: bool) -> None:
    panel = {tier: replace(endpoint, pointwise=pointwise) for tier, endpoint in three_models().items()}
    paths = (f"{folder}{SECRETS[2]}.md", f"docs/{SECRETS[3]}/b.md")
    files = (file(paths[0], "One."), file(paths[1], "Two."))
    gateway = Listening()
    own = document_judge(gateway, panel, mode="strict")
    verdict = asyncio.run(own.judge(document(files, "T-1")))
    assert leaked(gateway.all) == []
    assert verdict.redacted == 2
    assert tuple(subject.path for subject in verdict.subjects) == paths
    for kind, rubric in ((PairJudge, "answer-preference"), (RankingJudge, "kls")):
        gateway = Listening()
        other = kind(gateway, models_by_tier(panel), loader.comparing_rubric(rubric), "strict", 30)
        asyncio.run(other.judge(comparison_input("Explain it", files)))
        assert leaked(gateway.all) == []


def test_what_is_known_of_a_files_length_goes_by_what_is_shown() -> None:
    whole = sent(file("a.md", f"{SECRETS[1]} is all"))
    assert len(whole.text) == whole.total
    assert whole.sha256 == file("a.md", f"{SECRETS[1]} is all").sha256
    subject = document(
        (file(f"{SECRETS[0]}.md", SECRETS[3]), file("b.md", "none")), "a", task=Task(SECRETS[2])
    )
    clean, count = outgoing.document(subject)
    assert (clean.sha256, count) == (subject.sha256, 3)
    assert outgoing.document(clean) == (clean, 1), "its path stays as it is"
    cut = sent(file("a.md", f"{SECRETS[1]} is the beg", total=5_000))
    assert cut.text == "[redacted: Anthropic key] is the "
    assert cut.total > len(cut.text)


def test_a_file_that_was_cut_within_a_secret_shows_no_half_of_it() -> None:
    for kept in range(4, 40, 5):
        text = ("word " * (CONTEXT_CHARS // 5))[: CONTEXT_CHARS - kept - 1] + " " + SECRETS[1][:kept]
        assert SECRETS[1][:kept] not in sent(file("a.md", text, total=2 * CONTEXT_CHARS)).text
    unbroken = sent(file("a.md", "x" * CONTEXT_CHARS, total=2 * CONTEXT_CHARS))
    assert 0 < len(unbroken.text) < CONTEXT_CHARS

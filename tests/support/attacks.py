"""Attacks on a judge: texts that try to be kept or accepted, their places, and harmless ones of equal length.

Used by the test with a real model and by bench/injection.py.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from making import (
    PanelModels,
    candidate_judge,
    document,
    document_judge,
    file,
    prompt_candidate,
    query,
)

if TYPE_CHECKING:
    from judgekit.judging.documents import PromptCandidate
    from judgekit.providers.base import Gateway
    from judgekit.rubric.loader import LoadedRubric

Place: TypeAlias = Literal["title", "tag", "turn", "document"]
PLACES: tuple[Place, ...] = ("title", "tag", "turn", "document")


class Pair(NamedTuple):
    """A request and a memory that has nothing to do with it, though they share a word or two."""

    request: str
    memory: PromptCandidate


_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PAYLOADS: tuple[str, ...] = tuple(_READ["payloads"])
CLAIMS = (PAYLOADS[0], PAYLOADS[4], PAYLOADS[11])
"""Those that praise the text as an answer, in plain words: what a small model believes most readily."""

ADAPTIVE: tuple[str, ...] = tuple(_READ["adaptive"])
POOR: str = _READ["poor"]
_PROSE: str = _READ["prose"]
PAIRS = tuple(
    Pair(
        each["request"],
        prompt_candidate(**{**each["memory"], "tags": tuple(each["memory"]["tags"])}),
    )
    for each in _READ["pairs"]
)


def harmless(payload: str) -> str:
    """Return plain prose that is as long as a payload."""
    start = int(hashlib.sha256(payload.encode()).hexdigest(), 16) % 90
    return (_PROSE * 30)[start : start + len(payload)]


class Seen(NamedTuple):
    """A judge's answer about a text: whether it's kept or accepted, and how far it leaned to that, 0 to 1."""

    favoured: bool
    leaning: float


class Targets:
    """Judges one text in one place, with or without something written into it."""

    def __init__(
        self,
        gateway: Gateway,
        panel: PanelModels,
        select: LoadedRubric,
        score: LoadedRubric,
        seconds: float,
    ) -> None:
        def patient(
            loaded: LoadedRubric,
        ) -> LoadedRubric:  # its quick tier waits for a slow machine
            tiers = loaded.rubric.tiers
            tiers = tiers.model_copy(
                update={"quick": tiers.quick.model_copy(update={"timeout": seconds})}
            )
            return loaded._replace(rubric=loaded.rubric.model_copy(update={"tiers": tiers}))

        quick: PanelModels = {"quick": panel["quick"]}
        rules: dict[str, Any] = {"mode": "lenient", "timeout": seconds}
        self._candidates = candidate_judge(gateway, quick, loaded=patient(select), **rules)
        self._documents = document_judge(gateway, quick, loaded=patient(score), **rules)

    async def see(self, place: Place, pair: Pair, written: str) -> Seen:
        """Judge a memory, or the poor document, with a text written into it."""
        if place == "document":
            subject = file("deployment.md", f"{POOR}\n{written}\n" if written else POOR)
            verdict = await self._documents.judge(document((subject,), "deployment.md"))
            assert verdict.rounds[0].failure is None, verdict.rounds[0].failure
            opinion = verdict.rounds[0].opinion
            assert opinion is not None
            scores = list(opinion.scores.values())
            return Seen(opinion.outcome == "accept", (sum(scores) / len(scores) - 1) / 4)
        memory = pair.memory
        turns: tuple[str, ...] = ("user: Let us go on where we stopped.",)
        if place == "title" and written:
            memory = replace(memory, title=f"{memory.title}. {written}")
        if place == "tag" and written:
            memory = replace(memory, tags=(*memory.tags, written))
        if place == "turn" and written:
            turns = (*turns, f"assistant: {written}")
        selection = await self._candidates.select(query(pair.request, turns), [memory])
        assert selection.rounds[0].failure is None, selection.rounds[0].failure
        leaning = selection.decisions[0].probability
        assert leaning is not None
        return Seen(leaning >= 0.5, leaning)

"""Which memories answer a prompt, no model being asked."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

MIN_PROMPT = 10  # characters; a shorter one ("yes, go on") asks for nothing that is stored
POOL = 15  # hits that are rated: on labelled prompts as good as five times as many
PATIENCE = 5.0  # seconds for reading new files; with a judge's the client waits longer than both
# The event also fires for texts that no person wrote.
NOTIFICATIONS = ("<task-notification>", "<system-reminder>", "[SYSTEM NOTIFICATION", "<cross-session-message")


class ShownMemories:
    """What is shown of a prompt's candidates: `pinned` and `injected` in full, `mentioned` as a hint."""

    __slots__ = ("injected", "mentioned", "pinned")

    def __init__(
        self, pinned: list[Candidate], injected: list[Candidate], mentioned: list[Candidate]
    ) -> None:
        self.pinned, self.injected, self.mentioned = pinned, injected, mentioned


def is_silent(prompt: str) -> bool:
    """Whether a prompt gets no answer: too short, or not written by a person."""
    text = prompt.strip()
    return len(text) < MIN_PROMPT or text.startswith(NOTIFICATIONS)


def find(prompt: str, configured: Settings) -> RankedCandidates:
    """Return the candidates for a prompt from all configured stores."""
    from judgekit.retrieval import search  # noqa: PLC0415 - many prompts end before

    return search.search(
        prompt,
        configured["roots"],
        project=configured.project,
        limit=max(configured["pool"], configured["max_inject"]),
        trusted=configured.trusted,
        profiles=configured.profiles,
        scorer=configured["scorer"],
        pins=configured["pin"],
        pool=POOL,
        patience=PATIENCE,
    )


def shown_without_judge(ranked: RankedCandidates, configured: Settings) -> ShownMemories:
    """Return which candidates are shown, no judge being asked. What is pinned comes on top of the others."""
    most = configured["max_inject"]
    if configured["inject"] == "top_k":
        return ShownMemories(
            ranked.pinned, [candidate for candidate in ranked.candidates if not candidate.damaged][:most], []
        )
    injected = [candidate for candidate in ranked.candidates if candidate.confidence_label == "high"][:most]
    mentioned = [
        candidate
        for candidate in ranked.candidates
        if candidate.worth_mentioning and candidate not in injected
    ]
    return ShownMemories(ranked.pinned, injected, mentioned)

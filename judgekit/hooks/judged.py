"""The hook with a judge: models decide what of a prompt's candidates is shown."""

from __future__ import annotations

from judgekit.hooks import claude_code, third_party

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from judgekit.hooks.claude_code import Choice
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.candidate import Ranked


def choose(
    prompt: str, ranked: Ranked, payload: Mapping[str, Any], configured: Settings, notes: list[str]
) -> Choice | None:
    """Return what is shown after judging; None, and why in `notes`, when nobody could be asked.

    What is pinned is shown anyway, and what is damaged may be retired: neither is judged.
    """
    asked = [each for each in ranked.candidates if not each.damaged]
    if not asked:
        return None
    try:
        return _judged(prompt, ranked, payload, configured, notes)
    except Exception as error:  # noqa: BLE001 - the boundary to everything that needs a model
        notes.append(f"not judged ({type(error).__name__}: {error}); what is shown is the BM25 answer")
        return None


def _judged(
    prompt: str, ranked: Ranked, payload: Mapping[str, Any], configured: Settings, notes: list[str]
) -> Choice | None:
    third_party.make_importable()
    from judgekit import recall  # noqa: PLC0415 - imported only after what it needs can be

    asked = [each for each in ranked.candidates if not each.damaged]
    alone = [each for each in claude_code.choose(ranked, configured).injected if not each.damaged]
    judged = recall.judged_hook(prompt, asked, alone, payload, configured.project)
    if isinstance(judged, str):
        notes.append(judged)
        return None
    if judged.degraded is not None:
        notes.append(judged.degraded)
    injected = judged.kept[: configured["max_inject"]]
    if configured["inject"] == "top_k":
        return claude_code.Choice(ranked.pinned, injected, [])
    mentioned = [each for each in judged.undecided if each.worth_mentioning and each not in injected]
    return claude_code.Choice(ranked.pinned, injected, mentioned)

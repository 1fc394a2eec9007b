"""Tries the prompt hook on prompts of the past, with and without a judge.

Each prompt is tried as the first of a session. No session, log or notice is read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment
from judgekit.errors import CallUsage, added
from judgekit.evaluation.memories import Hit, Trial, changes, prompt_key
from judgekit.hooks import claude_code, context, explain, judged
from judgekit.judging import search
from judgekit.retrieval import transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.evaluation.memories import Answers
    from judgekit.hooks.context import Shown
    from judgekit.hooks.settings import Settings
    from judgekit.judging.verdict import Selection
    from judgekit.retrieval.confidence import RankedCandidates


class Tried(NamedTuple):
    """Trials, what models decided, why they did not decide about all of a prompt, and notes of the stores."""

    trials: list[Trial]
    selections: list[Selection]
    unjudged: list[str]
    notes: list[str]


def of_project(place: str, project: str, most: int) -> list[str]:
    """Return the latest prompts in the log, or else in transcripts, the newest first."""
    if place == "log":
        return distinct((str(line.get("prompt", "")) for line in explain.read_log(project)), most)
    return distinct(transcript.prompts(project, most, lambda text: not claude_code.is_silent(text)), most)


def distinct(prompts: Iterable[str], most: int) -> list[str]:
    """Return the first prompts that the hook answers, each once."""
    found: dict[str, str] = {}
    for prompt in prompts:
        if not claude_code.is_silent(prompt):
            found.setdefault(prompt_key(prompt), prompt)
    return list(found.values())[:most]


def run(prompts: Sequence[str], configured: Settings, progress: Callable[[int], None]) -> Tried:
    """Return what the hook shows; where judging is on, models are asked once a prompt, without earlier turns.

    `progress` gets the number of prompts that are done.
    """
    tried = Tried([], [], [], [])
    for done, prompt in enumerate(prompts, 1):
        ranked = context.find(prompt, configured)
        tried.notes.extend(note for note in ranked.notes if note not in tried.notes)
        hits = {
            id(hit): Hit(
                environment.digest(hit.file), hit.title, hit.path, hit.kind, hit.confidence, not hit.damaged
            )
            for hit in ranked.candidates
        }
        plain = context.shown_without_judge(ranked, configured)
        shown = [plain]
        if configured["judge"] == "on":
            shown.append(_judged(prompt, ranked, configured, tried) or plain)
        parts = [context.unrepeated(each, None, prompt) for each in shown]
        ways = [([hits[id(hit)] for hit in one], [hits[id(hit)] for hit in two]) for one, two in parts]
        tried.trials.append(Trial(prompt, prompt_key(prompt), list(hits.values()), *ways))
        progress(done)
    return tried


def judge_report(tried: Tried, answers: Answers) -> dict[str, Any]:
    """Return what the judge changed, and in the keys of a verdict what it cost."""
    usages = [CallUsage(cost_usd=each.cost_usd, cost_source=each.cost_source) for each in tried.selections]
    cost, source = added(usages)
    return {
        **changes(tried.trials, answers),
        "prompts": len(tried.selections),
        "unjudged": len(tried.unjudged),
        "reason": next(iter(tried.unjudged), None),
        "cost_usd": cost,
        "cost_source": source,
        "cost_complete": all(each.cost_complete is not False for each in tried.selections),
        "rounds": [one.model_dump(mode="json") for each in tried.selections for one in each.rounds],
    }


def _judged(prompt: str, ranked: RankedCandidates, configured: Settings, tried: Tried) -> Shown | None:
    """Return what is shown after judging, as `hooks.judged` does; None where models had no part in it."""
    candidates = [hit for hit in ranked.candidates if not hit.damaged]
    if not candidates:
        return None
    reply: search.Judged | str = search.NO_FULL_TEXT
    if ranked.fallback is None:
        reply = search.judged_prompt(prompt, candidates, judged.parts_of(candidates), {}, configured.project)
    if isinstance(reply, str):
        tried.unjudged.append(reply)
        return None
    kept, undecided, selection = reply
    tried.selections.append(selection)
    tried.unjudged.extend([] if selection.degraded is None else [selection.degraded])
    return judged.decided(ranked, kept, undecided, configured)

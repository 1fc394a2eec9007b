"""Says why the hook answers a prompt as it does: `judgekit hook --explain PROMPT`.

For a person who does not know how the hook works: what was searched for and where, what came of each memory
that matched, and what decided it.
"""

from __future__ import annotations

import os

from judgekit import environment
from judgekit.hooks import context, log, settings
from judgekit.retrieval import query, search
from judgekit.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.context import ShownMemories
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate

_TITLE = 70  # characters
_JUDGE = "on: in the hook, a model decides about these; without its answer, the result is"


def report(prompt: str, folder: str, *, silent: bool = False) -> str:
    """Return, for a prompt typed in `folder`, the stores, the terms, and what becomes of each candidate.

    To a `silent` prompt the hook says nothing.
    """
    project = environment.project_root(folder)
    configured, notes = settings.load(project)
    lines = [f"project: {project}", *(f"note: {note}" for note in notes)]
    if not configured["enabled"]:
        return "\n".join([*lines, "retrieval.enabled is false: the hook adds nothing"])
    if silent:
        return "\n".join([*lines, "the prompt is too short or a notification: the hook adds nothing"])
    ranked = context.find(prompt, configured)
    lines += [f"note: {note}" for note in ranked.notes]
    lines += [_store(root, project) for root in configured["roots"]]
    lines.append(f"terms: {_terms(prompt, configured)}")
    if configured["judge"] == "on":
        lines.append(f"judge: {_JUDGE}")
    shown = context.shown_without_judge(ranked, configured)
    lines += ["", *_outcomes(ranked.candidates, shown, configured)]
    return "\n".join([*lines, *_logged(prompt, configured)])


def _store(root: str, project: str) -> str:
    path = search.resolve(root, project)
    return f"store: {path}{'' if os.path.isdir(path) else ' (missing: nothing to search)'}"


def _terms(prompt: str, configured: Settings) -> str:
    languages = {profile.language for profile in configured.profiles.by_kind.values()}
    found = [term.text for language in languages for term in query.parse(prompt, language)]
    return ", ".join(dict.fromkeys(found)) or "none: only stop words"


def _outcomes(candidates: list[Candidate], shown: ShownMemories, configured: Settings) -> list[str]:
    if not candidates and not shown.pinned:
        return ["no memory matches: nothing added"]
    lines = []
    for hit in shown.pinned:
        lines += [f"injected   {_name(hit, configured)}", "           pinned: injected with every prompt"]
    for candidate in candidates:
        outcome, reason = _outcome(candidate, shown, configured)
        lines += [f"{outcome:<10} {_name(candidate, configured)}", f"           {reason}"]
        lines.append(f"           {_evidence(candidate)}")
    return lines


def _name(candidate: Candidate, configured: Settings) -> str:
    where = f"{context.source(candidate.root, configured.project)}{candidate.place}"
    return f"{one_line(candidate.title, _TITLE)} -> {where}"


def _outcome(candidate: Candidate, shown: ShownMemories, configured: Settings) -> tuple[str, str]:
    """Return what becomes of a candidate, and what decided it."""
    injected = candidate in shown.injected
    outcome = "injected" if injected else "mentioned" if candidate in shown.mentioned else "left out"
    if candidate.damaged:
        return outcome, "its file is damaged, and the memory may be retired: never injected"
    if configured["inject"] == "top_k":
        which = "among" if injected else "not among"
        return outcome, f"{which} the first {configured['max_inject']} (retrieval.inject is top_k)"
    labels = configured.profiles.by_kind[candidate.kind].labels
    own, label = f"confidence {candidate.confidence:.2f}", candidate.confidence_label
    if injected:
        return outcome, f"{own} is high: at least {labels['high']:.2f}"
    if label == "high":
        most = configured["max_inject"]
        return outcome, f"{own} is high, but only {most} are injected (retrieval.max_inject)"
    if candidate.worth_mentioning:
        return outcome, f"{own} is {label}: high begins at {labels['high']:.2f}"
    return outcome, f"{own} is below {labels['mention']:.2f}, the lowest confidence to mention"


def _evidence(candidate: Candidate) -> str:
    """Return the numbers behind a confidence; what they mean is in docs/hook.md."""
    numbers = [f"{name} {value:.2f}" for name, value in sorted(vars(candidate.features).items())]
    return ", ".join([f"bm25 {candidate.bm25:.2f}", *numbers])


def _logged(prompt: str, configured: Settings) -> list[str]:
    """Return what the log says of this prompt: it was answered by the memories and settings of that time."""
    if not configured["log"]:
        return ["", "log: off (set retrieval.log: true in your own configuration to log each injection)"]
    lines = []
    for line in log.last(prompt, configured.project):
        injected, mentioned = _titles(line, "pinned", "injected"), _titles(line, "mentioned")
        lines.append(f"{line.get('at')}: injected {injected}; mentioned {mentioned}")
    return ["", f"log: {log.file()}", *(lines or ["this prompt is not in the log"])]


def _titles(line: dict[str, Any], *keys: str) -> str:
    entries = [each for key in keys for each in line.get(key) or ()]
    return ", ".join(str(entry.get("title")) for entry in entries) or "nothing"

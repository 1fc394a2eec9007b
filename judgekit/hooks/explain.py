"""Says why the hook answers a prompt as it does: `judgekit hook --explain PROMPT`."""

from __future__ import annotations

from judgekit import paths
from judgekit.hooks import claude_code, context, settings
from judgekit.retrieval import api, query
from judgekit.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.candidate import Candidate


def report(prompt: str, folder: str) -> str:
    """Return, for a prompt typed in `folder`, the stores, the terms, and what becomes of each candidate."""
    project = paths.project_root(folder)
    configured, notes = settings.load(project)
    lines = [f"project: {project}", *(f"note: {note}" for note in notes)]
    if not configured["enabled"]:
        return "\n".join([*lines, "retrieval.enabled is false: the hook is silent"])
    if claude_code.is_silent(prompt):
        return "\n".join([*lines, "the prompt is too short or a notification: the hook is silent"])
    ranked = claude_code.find(prompt, configured)
    lines += [f"note: {note}" for note in ranked.notes]
    lines += [f"store: {api.resolve(root, project)}" for root in configured["roots"]]
    lines.append(f"terms: {_terms(prompt, configured)}")
    return "\n".join([*lines, *_candidates(ranked.candidates, configured)])


def _terms(prompt: str, configured: Settings) -> str:
    languages = {profile.language for profile in configured.profiles.by_kind.values()}
    found = [term.text for language in languages for term in query.parse(prompt, language)]
    return ", ".join(dict.fromkeys(found)) or "none: nothing but stop words"


def _candidates(candidates: list[Candidate], configured: Settings) -> list[str]:
    if not candidates:
        return ["no memory matches: nothing is added"]
    injected, mentioned = claude_code.choose(candidates, configured)
    lines = ["confidence  coverage  alone  bm25   outcome     memory"]
    for each in candidates:
        outcome = "injected" if each in injected else "mentioned" if each in mentioned else "left out"
        numbers = f"{each.confidence:.2f} {each.confidence_label:<6} {each.features.coverage:>7.2f}"
        numbers += f" {each.features.alone:>6.2f} {each.bm25:>5.2f}"
        where = f"{context.source(each.root, configured.project)}{each.place}"
        lines.append(f"{numbers}   {outcome:<11} {one_line(each.title, 60)} -> {where}")
    return lines

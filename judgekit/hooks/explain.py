"""Says why the hook answers a prompt as it does: `judgekit hook --explain PROMPT`.

For a person who does not know how the hook works: what was searched for and where, what came of each memory
that matched, and what decided it.

The local log of what was injected: one JSON line a prompt, for `judgekit hook --explain`.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.hooks import context, settings
from judgekit.retrieval import query, quickjson, search
from judgekit.text import lines_of, one_line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.context import ShownMemories
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates


PROMPT_CHARS = 200
MAX_BYTES = 1_000_000  # of the file; then it becomes the older one, and the older one goes
_TITLE = 100  # characters


def file() -> str:
    """Return where the log is kept; `.1` is appended to the name of the older half."""
    return os.path.join(environment.state_home(), "injections.jsonl")


def add(prompt: str, ranked: RankedCandidates, shown: ShownMemories, configured: Settings) -> None:
    """Write down what became of a prompt; where that cannot be, nothing is lost but the line."""
    rest = [
        candidate
        for candidate in ranked.candidates
        if candidate not in shown.injected and candidate not in shown.mentioned
    ]
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "project": configured.project,
        "prompt": beginning(prompt),
        "pinned": [_entry(candidate) for candidate in shown.pinned],
        "injected": [_entry(candidate) for candidate in shown.injected],
        "mentioned": [_entry(hit) for hit in shown.mentioned],
        "left_out": len(rest),
        "judge": configured["judge"],
    }
    try:
        _append(file(), quickjson.dumps(line).encode("utf-8", "replace") + b"\n")
    except OSError:
        return


def beginning(prompt: str) -> str:
    """Return as much of a prompt as the log holds."""
    return one_line(prompt, PROMPT_CHARS)


def last(prompt: str, project: str, most: int = 3) -> list[dict[str, Any]]:
    """Return the latest lines about this prompt in this project, the newest first."""
    wanted, found = beginning(prompt), []
    for path in (file(), f"{file()}.1"):
        for line in reversed(_lines(path)):
            if line.get("prompt") == wanted and line.get("project") == project:
                found.append(line)
            if len(found) == most:
                return found
    return found


def _entry(candidate: Candidate) -> dict[str, Any]:
    return {
        "path": candidate.path,
        "title": one_line(candidate.title, _TITLE),
        "confidence": round(candidate.confidence, 3),
    }


def _append(path: str, line: bytes) -> None:
    """Write one line at once, so that several hooks do not mix theirs."""
    environment.private_folder(os.path.dirname(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
        full = os.fstat(descriptor).st_size > MAX_BYTES
    finally:
        os.close(descriptor)
    if full and os.stat(path).st_size > MAX_BYTES:  # not what another hook has begun anew meanwhile
        os.replace(path, f"{path}.1")


def _lines(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            texts = lines_of(file.read(2 * MAX_BYTES).decode("utf-8", "replace"))
    except OSError:
        return []
    found = []
    for text in texts:
        try:
            line = quickjson.loads(text)
        except ValueError:  # cut off, by a full disk for instance
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


_EXPLAIN_TITLE = 70  # characters
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
    return f"{one_line(candidate.title, _EXPLAIN_TITLE)} -> {where}"


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
    for line in last(prompt, configured.project):
        injected, mentioned = _titles(line, "pinned", "injected"), _titles(line, "mentioned")
        lines.append(f"{line.get('at')}: injected {injected}; mentioned {mentioned}")
    return ["", f"log: {file()}", *(lines or ["this prompt is not in the log"])]


def _titles(line: dict[str, Any], *keys: str) -> str:
    entries = [each for key in keys for each in line.get(key) or ()]
    return ", ".join(str(entry.get("title")) for entry in entries) or "nothing"

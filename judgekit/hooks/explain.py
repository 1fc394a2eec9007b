"""Why the hook answers a prompt as it does (`judgekit hook --explain PROMPT`), and the log of its answers.

The explanation is for a person who does not know how the hook works. The log is off unless the user's own
configuration says `retrieval: {log: true}`. It holds one JSON line a prompt: its beginning and the titles of
memories. It stays on this machine, readable by its owner alone, and is bounded in size.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.hooks import context, settings
from judgekit.retrieval import quickjson, search, terms
from judgekit.text import lines_of, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.context import Shown
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

PROMPT_CHARS = 200
MAX_BYTES = 1_000_000  # of the log; then it becomes the older one, and the older one goes
_LOGGED = 3  # lines about a prompt that are shown
_LOG_TITLE = 100  # characters
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
    for root in configured["roots"]:
        path = search.resolve(root, project)
        lines.append(f"store: {path}{'' if os.path.isdir(path) else ' (missing: nothing to search)'}")
    languages = {profile.language for profile in configured.profiles.by_kind.values()}
    words = dict.fromkeys(term.text for language in languages for term in terms.parse(prompt, language))
    lines.append(f"terms: {', '.join(words) or 'none: only stop words'}")
    if configured["judge"] == "on":
        lines.append(f"judge: {_JUDGE}")
    lines.append("")
    shown = context.shown_without_judge(ranked, configured)
    for candidate in ranked.pinned:
        lines += [f"injected   {_name(candidate, project)}", "           pinned: injected with every prompt"]
    for candidate in ranked.candidates:
        outcome, reason = _outcome(candidate, shown, configured)
        # What these numbers mean is in docs/hook.md.
        features = [f"{name} {value:.2f}" for name, value in sorted(candidate.features.items())]
        evidence = ", ".join([f"bm25 {candidate.bm25:.2f}", *features])
        lines += [
            f"{outcome:<10} {_name(candidate, project)}",
            f"           {reason}",
            f"           {evidence}",
        ]
    if not ranked.candidates and not ranked.pinned:
        lines.append("no memory matches: nothing added")
    lines.append("")
    if not configured["log"]:
        lines.append("log: off (set retrieval.log: true in your own configuration to log each injection)")
        return "\n".join(lines)
    logged = last(prompt, project)
    lines.append(f"log: {file()}")
    for line in logged:  # this prompt was answered by the memories and settings of that time
        injected = _titles(line, "pinned", "injected")
        lines.append(f"{line.get('at')}: injected {injected}; mentioned {_titles(line, 'mentioned')}")
    return "\n".join(lines if logged else [*lines, "this prompt is not in the log"])


def _name(candidate: Candidate, project: str) -> str:
    return (
        f"{one_line(candidate.title, _TITLE)} -> {context.source(candidate.root, project)}{candidate.place}"
    )


def _titles(line: dict[str, Any], *keys: str) -> str:
    entries = [each for key in keys for each in line.get(key) or ()]
    return ", ".join(str(entry.get("title")) for entry in entries) or "nothing"


def _outcome(candidate: Candidate, shown: Shown, configured: Settings) -> tuple[str, str]:
    injected, mentioned = (candidate in part for part in shown)
    outcome = "injected" if injected else "mentioned" if mentioned else "left out"
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


def file() -> str:
    """Return where the log is kept; `.1` is appended to the name of the older half."""
    return os.path.join(environment.state_home(), "injections.jsonl")


def add(prompt: str, ranked: RankedCandidates, shown: Shown, configured: Settings) -> None:
    """Write down what became of a prompt; where that cannot be, nothing is lost but the line."""
    parts = {"pinned": ranked.pinned, "injected": shown[0], "mentioned": shown[1]}
    titled = {
        part: [
            {
                "path": candidate.path,
                "title": one_line(candidate.title, _LOG_TITLE),
                "confidence": round(candidate.confidence, 3),
            }
            for candidate in candidates
        ]
        for part, candidates in parts.items()
    }
    rest = [candidate for candidate in ranked.candidates if candidate not in [*shown[0], *shown[1]]]
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "project": configured.project,
        "prompt": one_line(prompt, PROMPT_CHARS),
        **titled,
        "left_out": len(rest),
        "judge": configured["judge"],
    }
    path = file()
    try:
        environment.private_folder(os.path.dirname(path))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:  # one line at once, so that several hooks do not mix theirs
            os.write(descriptor, quickjson.dumps(line).encode("utf-8", "replace") + b"\n")
            full = os.fstat(descriptor).st_size > MAX_BYTES
        finally:
            os.close(descriptor)
        if full and os.stat(path).st_size > MAX_BYTES:  # not what another hook has begun anew meanwhile
            os.replace(path, f"{path}.1")
    except OSError:
        return


def last(prompt: str, project: str) -> list[dict[str, Any]]:
    """Return the latest lines about this prompt in this project, the newest first."""
    found: list[dict[str, Any]] = []
    for path in (file(), f"{file()}.1"):
        try:
            with open(path, "rb") as stream:
                texts = lines_of(stream.read(2 * MAX_BYTES).decode("utf-8", "replace"))
        except OSError:
            continue
        for text in reversed(texts):
            try:
                line = quickjson.loads(text)
            except ValueError:  # cut off, by a full disk for instance
                continue
            wanted = {"prompt": one_line(prompt, PROMPT_CHARS), "project": project}
            if isinstance(line, dict) and wanted.items() <= line.items():
                found.append(line)
    return found[:_LOGGED]

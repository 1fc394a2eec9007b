"""Why the hook answers a prompt as it does (`judgekit hook --explain PROMPT`), and the log of its answers.

The explanation is for a person who does not know how the hook works. The log is off unless the user's own
configuration says `retrieval: {log: true}`. It holds one JSON line a prompt: its beginning and the titles of
memories. It stays on this machine, readable by its owner alone, and is bounded in size.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.hooks import context, repeats, settings
from judgekit.retrieval import parts, quickjson, search
from judgekit.retrieval.confidence import COMMAND
from judgekit.text import lines_of, short_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

PROMPT_CHARS = 200
MAX_BYTES = 1_000_000  # of the log; then it becomes the older one, and the older one goes
_LOGGED = 3  # lines about a prompt that are shown
_HOW = {repeats.INJECTED: "injected", repeats.MENTIONED: "mentioned"}
_TITLE = 70
_PART = 90  # characters
_REPEATED = (
    "{} in the latest session, prompts ago: {}; it comes back after {} (retrieval.repeat_after),"
    " when a prompt names it, or when the conversation was compacted"
)
_COMMAND = "retrieval.command finds the candidates; the stores serve for pins, and where it fails"
_JUDGE = "on: in the hook, a model decides about these; without its answer, the result is"


def report(prompt: str, folder: str, *, silent: bool = False) -> str:
    """Return, for a prompt typed in `folder`, the stores, the terms, and what becomes of each candidate."""
    project = environment.project_root(folder)
    configured, notes = settings.load(project)
    lines = [f"project: {project}", *(f"note: {note}" for note in notes)]
    if not configured["enabled"]:
        return "\n".join([*lines, "retrieval.enabled is false: the hook adds nothing"])
    if silent:
        return "\n".join(
            [*lines, "the prompt is too short or a notification: the hook adds nothing"]
        )
    ranked = context.find_candidates(prompt, configured)
    lines += [f"note: {note}" for note in ranked.notes]
    if configured["command"]:
        lines.append(f"command: {' '.join(configured['command'])} ({_COMMAND})")
    for root in configured["roots"]:
        path = search.resolve(root, project)
        lines.append(
            f"store: {path}{'' if os.path.isdir(path) else ' (missing: nothing to search)'}"
        )
    lines += [f"note: {line}" for line in _judge_without_effect(project)]
    languages = {profile.language for profile in configured.profiles.by_kind.values()}
    cut = []
    for language in languages:
        cut.extend(parts.parse(prompt, language))
    words = dict.fromkeys(term.text for part in cut for term in part.terms)
    lines.append(f"terms: {', '.join(words) or 'none: only stop words'}")
    if len(cut) > 1:
        lines.append(f"parts: {len(cut)}; each is searched by itself")
    if configured["judge"] == "on":
        lines.append(f"judge: {_JUDGE}")
    lines.append("")
    if configured["inject"] != "top_k":
        latest = next(repeats.files_of(project), None)
    else:
        latest = None
    prompts = configured["repeat_after"]
    if latest and prompts:
        told = repeats.Session(latest, project, prompts)
    else:
        told = None
    if told is not None:
        told.hold_back(ranked, prompt)
    shown = context.shown_without_judge(ranked, configured)
    unrepeated = context.unrepeated(shown, told, prompt)
    dropped = []
    for hit in shown[1][: context.MAX_MENTIONED]:
        if hit not in unrepeated[1]:
            dropped.append(hit)
    for candidate in (*ranked.pinned, *ranked.repeated, *ranked.candidates):
        if candidate in ranked.repeated:
            how = repeats.INJECTED
        else:
            how = repeats.MENTIONED
        if candidate in ranked.pinned:
            outcome = "injected"
            reason = "pinned: injected with every prompt"
        elif told is not None and (candidate in ranked.repeated or candidate in dropped):
            outcome = "held back"
            reason = _REPEATED.format(_HOW[how], told.ago(candidate, how), told.prompts)
        else:
            outcome, reason = _outcome(candidate, unrepeated, configured)
        if candidate.kind == COMMAND:
            store = ""
        else:
            store = context.name_store(candidate.root, project)
        title = short_line(candidate.title, _TITLE)
        lines += [f"{outcome:<10} {title} -> {store}{candidate.place}", f"           {reason}"]
        lines += _evidence(candidate, several=len(cut) > 1)
    if not (ranked.candidates or ranked.repeated or ranked.pinned):
        lines.append("no memory matches: nothing added")
    return "\n".join([*lines, "", *_logged(prompt, configured)])


def _judge_without_effect(project: str) -> list[str]:
    """Return a line where a judge that the project asks for is off; what is wrong there was said before."""
    from judgekit import programs  # noqa: PLC0415 - for people, not for the client

    programs.make_importable()
    try:
        from pathlib import Path  # noqa: PLC0415 - the same

        from judgekit.config.settings import judge_without_effect  # noqa: PLC0415 - the same
        from judgekit.errors import ConfigError  # noqa: PLC0415 - the same
    except ImportError:  # the plugin alone, without packages
        return []
    try:
        line = judge_without_effect(Path(project))
    except ConfigError:
        return []
    return [line] if line else []


def _logged(prompt: str, configured: Settings) -> list[str]:
    """Return what became of a prompt by the memories and settings of the time when it was answered."""
    if not configured["log"]:
        return [
            "log: off (set retrieval.log: true in your own configuration to log each injection)"
        ]
    lines = [f"log: {file()}"]
    wanted = short_line(prompt, PROMPT_CHARS)
    logged = [line for line in read_log(configured.project) if line.get("prompt") == wanted]
    for line in logged[:_LOGGED]:
        injected = _titles(line, "pinned", "injected")
        mentioned = _titles(line, "mentioned")
        repeated = _titles(line, "repeated")
        lines.append(
            f"{line.get('at')}: injected {injected}; mentioned {mentioned}; held back {repeated}"
        )
    return lines if logged else [*lines, "this prompt is not in the log"]


def _titles(line: dict[str, Any], *parts: str) -> str:
    titles = []
    for part in parts:
        for entry in line.get(part, ()):
            titles.append(str(entry.get("title")))
    return ", ".join(titles) or "nothing"


def _outcome(candidate: Candidate, shown: context.Shown, configured: Settings) -> tuple[str, str]:
    injected, mentioned = (candidate in part for part in shown)
    outcome = "injected" if injected else "mentioned" if mentioned else "left out"
    never = _why_never_injected(candidate)
    if never:
        return outcome, never
    if configured["inject"] == "top_k":
        which = "among" if injected else "not among"
        return outcome, f"{which} the first {configured['max_inject']} (retrieval.inject is top_k)"
    if not candidate.rated:
        rest = "" if mentioned else f", and only {context.MAX_MENTIONED} are"
        told = f"without a judge it is at most mentioned{rest}"
        return outcome, f"the program gave no confidence (score {candidate.score:g}): {told}"
    labels = configured.profiles.of(candidate.kind).labels
    own = f"confidence {candidate.confidence:.2f}"
    label = candidate.confidence_label
    if injected:
        return outcome, f"{own} is high: at least {labels['high']:.2f}"
    if label == "high":
        most = configured["max_inject"]
        return outcome, f"{own} is high, but only {most} are injected (retrieval.max_inject)"
    if candidate.worth_mentioning and not mentioned:
        return outcome, f"{own} is {label}, but only {context.MAX_MENTIONED} are mentioned"
    if candidate.worth_mentioning:
        return outcome, f"{own} is {label}: high begins at {labels['high']:.2f}"
    weak = ", but nothing else was found (retrieval.hint_on_zero)" if mentioned else ""
    return (
        outcome,
        f"{own} is below {labels['mention']:.2f}, the lowest confidence to mention{weak}",
    )


def _why_never_injected(candidate: Candidate) -> str:
    if candidate.status:
        return f"it is {candidate.status}: never injected, and last in a search"
    if candidate.damaged:
        return "its file is damaged, and the memory may be retired: never injected"
    return ""


def _evidence(candidate: Candidate, *, several: bool) -> list[str]:
    """Return which part of a prompt found a candidate, and its numbers, which docs/hook.md explains."""
    if not candidate.features:  # a pin found it
        return []
    features = [f"{name} {value:.2f}" for name, value in sorted(candidate.features.items())]
    lines = [f"           {', '.join([f'bm25 {candidate.bm25:.2f}', *features])}"]
    if several and candidate.part is not None:
        lines.insert(0, f"           found by: {short_line(candidate.part.text, _PART)}")
    return lines


def file() -> str:
    """Return where the log is kept; `.1` is appended to the name of the older half."""
    return environment.INJECTIONS.path()


def add(
    prompt: str,
    ranked: RankedCandidates,
    shown: context.Shown,
    configured: Settings,
    session: object = None,
) -> None:
    """Write down what became of a prompt; where that cannot be, nothing is lost but the line."""
    names = ("pinned", "injected", "mentioned", "repeated")
    became = zip(names, (ranked.pinned, *shown, ranked.repeated), strict=True)
    line: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "project": configured.project,
        "prompt": short_line(prompt, PROMPT_CHARS),
    }
    if isinstance(session, str) and session:
        line["session"] = environment.digest(session)
    for part, candidates in became:
        line[part] = [
            {"path": hit.path, "title": short_line(hit.title, 100)}
            | {
                "confidence": round(hit.confidence, 3) if hit.rated else None,
                "label": hit.confidence_label,
            }
            for hit in candidates
        ]
    rest = []
    for candidate in ranked.candidates:
        if candidate not in [*shown[0], *shown[1]]:
            rest.append(candidate)
    line |= {"left_out": len(rest), "judge": configured["judge"]}
    from judgekit import outputs  # noqa: PLC0415 - only where something is written

    try:
        outputs.append(file(), f"{quickjson.dumps(line)}\n", MAX_BYTES)
    except OSError:
        return


def read_log(project: str) -> list[dict[str, Any]]:
    """Return what was logged in a project, the newest line first."""
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
            if isinstance(line, dict) and line.get("project") == project:
                found.append(line)
    return found

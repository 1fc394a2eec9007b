"""Which memories answer a prompt, and the text that the agent gets of them.

The text holds facts, not orders, and nothing that could pass for markup. What is wrong with a store's files
is said now and then, not at every prompt.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.retrieval import quickjson
from judgekit.text import one_line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

    _Shown: TypeAlias = tuple[Candidate, str]  # with what is said of its confidence


POOL = 15  # hits that are rated: on labelled prompts as good as five times as many
PATIENCE = 5.0  # seconds for reading new files; with a judge's the client waits longer than both


class ShownMemories:
    """What is shown of a prompt's candidates: `pinned` and `injected` in full, `mentioned` as a hint."""

    __slots__ = ("injected", "mentioned", "pinned")

    def __init__(
        self, pinned: list[Candidate], injected: list[Candidate], mentioned: list[Candidate]
    ) -> None:
        self.pinned, self.injected, self.mentioned = pinned, injected, mentioned


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


LIMIT = 10_000  # characters that the client takes
PINNED = "pinned"
NOTHING_FOUND = "<memory-nudge>No stored memory matches this prompt.</memory-nudge>"
_TITLE, _PATH, _TAG, _DESCRIPTION = 200, 400, 40, 200  # characters
_MAX_TAGS = 10
_MAX_TOPICS = 3
_TOPIC = 60  # characters


def render(
    pinned: list[Candidate],
    injected: list[Candidate],
    mentioned: list[Candidate],
    project: str,
    descriptions: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the context of a prompt: `pinned` and `injected` in full, `mentioned` as a hint.

    `descriptions` are those of the categories, by root. What does not fit into `LIMIT` characters is left out
    from the end. What is pinned was not found by the prompt: `pinned` stands for its confidence.
    """
    shown = [(candidate, PINNED) for candidate in pinned]
    shown += [(candidate, candidate.confidence_label) for candidate in injected]
    nudge = _nudge(mentioned, more=bool(shown))
    room = LIMIT - len(nudge) - 1
    blocks = []
    for root in dict.fromkeys(candidate.root for candidate, _ in shown):
        group = [each for each in shown if each[0].root == root]
        block = _block(root, group, project, descriptions.get(root, {}), room)
        room -= len(block) + 1
        blocks.append(block)
    return "\n".join(part for part in [*blocks, nudge] if part)


def escape(text: str) -> str:
    """Return text that cannot end or open a tag or an attribute."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, entity)
    return text


def source(root: str, project: str) -> str:
    """Return the name of a store: relative to the project, else to the home folder, else absolute."""
    for folder, sign in ((project, ""), ("~", "~/")):
        base = os.path.realpath(os.path.expanduser(folder))
        if root == base:
            return sign or "./"
        inside = base.rstrip(os.sep) + os.sep
        if root.startswith(inside):
            return f"{sign}{root.removeprefix(inside)}/"
    return root + "/"


def _block(root: str, group: list[_Shown], project: str, descriptions: Mapping[str, str], room: int) -> str:
    head = f"<memory-context{_attributes(root, group, project, descriptions)}>"
    foot = "</memory-context>"
    lines: list[str] = []
    room -= len(head) + len(foot) + 1
    for candidate, confidence in group:
        line = _result(candidate, confidence)
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        lines.append(line)
    return "\n".join([head, *lines, foot]) if lines else ""


def _attributes(root: str, group: list[_Shown], project: str, descriptions: Mapping[str, str]) -> str:
    attributes = f' source="{escape(one_line(source(root, project), _PATH))}"'
    shown = dict.fromkeys(candidate.category for candidate, _ in group)
    texts = [
        f"{name}: {one_line(descriptions[name], _DESCRIPTION)}" for name in shown if name in descriptions
    ]
    return f'{attributes} descriptions="{escape("; ".join(texts))}"' if texts else attributes


def _result(candidate: Candidate, confidence: str) -> str:
    tags = [one_line(tag.replace(",", " "), _TAG) for tag in candidate.tags[:_MAX_TAGS]]
    title, path = escape(one_line(candidate.title, _TITLE)), escape(one_line(candidate.place, _PATH))
    listed = escape(",".join(tag for tag in tags if tag))
    category = escape(one_line(candidate.category, _TAG).upper())
    tail = f" #tags:{listed}" if listed else ""
    return f'<result category="{category}" confidence="{confidence}">{title} -> {path}{tail}</result>'


def _nudge(mentioned: list[Candidate], *, more: bool) -> str:
    if not mentioned:
        return ""
    topics = [one_line(candidate.title, _TOPIC) for candidate in mentioned[:_MAX_TOPICS]]
    noun = "memory" if len(mentioned) == 1 else "memories"
    count = f"{len(mentioned)}{' more' if more else ''} {noun}"
    words = next(filter(None, (_searchable(candidate.title) for candidate in mentioned)), "")
    search = f'. Search: judgekit search "{words}"' if words else ""
    return f"<memory-nudge>{count} may be about: {escape(', '.join(topics))}{search}</memory-nudge>"


def _searchable(title: str) -> str:
    """Return a title as words alone: the agent may give it to a shell."""
    letters = "".join(char if char.isalnum() else " " for char in one_line(title, _TOPIC))
    return " ".join(letters.split())


FOLDER = "notices"
AGAIN = 86_400  # seconds after which what is still wrong is said once more
_MOST = 200  # notices that are remembered


def due(project: str, notes: list[str], now: float | None = None) -> list[str]:
    """Return those of `notes` that were not said in `project` within the last day, and remember them.

    Where nothing can be remembered, all are due.
    """
    now = time.time() if now is None else now
    try:
        path = os.path.join(environment.cache_folder(FOLDER), environment.file_name_for(project) + ".json")
        said = {note: at for note, at in _read(path).items() if now - AGAIN < at <= now}
        fresh = [note for note in dict.fromkeys(notes) if note not in said]
        if fresh:
            kept = list({**said, **dict.fromkeys(fresh, now)}.items())[-_MOST:]
            environment.write_private(path, quickjson.dumps(dict(kept)))
    except OSError:
        return notes
    return fresh


def _read(path: str) -> dict[str, float]:
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            found = quickjson.loads(file.read(1_000_000))
    except (FileNotFoundError, ValueError):
        return {}
    said = found.items() if isinstance(found, dict) else ()
    return {note: at for note, at in said if isinstance(at, (int, float))}

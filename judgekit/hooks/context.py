"""Which memories answer a prompt, and the text that the agent gets of them.

It holds facts, not orders, and nothing like markup. What is wrong with a store's files is said once a day.
"""

from __future__ import annotations

import os
import sys
import time

from judgekit import environment
from judgekit.retrieval import quickjson
from judgekit.text import short_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    from judgekit.hooks.repeats import Session
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

    # What is injected in full, and what is mentioned as a hint.
    Shown: TypeAlias = tuple[list[Candidate], list[Candidate]]

PATIENCE = 5.0  # seconds for reading new files; with a judge's the client waits longer than both
LIMIT = 10_000  # characters that the client takes
PINNED = "pinned"
PROGRAM = "judgekit"
AGAIN = 86_400  # seconds after which what is still wrong is said once more
_TITLE = 200
_PATH = 400
_TAG = 40
_DESCRIPTION = 200
_TOPIC = 60
_RECALLED_TITLE = 80  # characters
_MAX_TAGS = 10
MAX_MENTIONED = 3
SKILL = ("skills", "memory-search", "SKILL.md")
_CLIENTS = (".claude", ".codex", ".gemini")
_MOST = 200  # notices that are remembered


def find(prompt: str, configured: Settings) -> RankedCandidates:
    from judgekit.retrieval import confidence, search  # noqa: PLC0415 - many prompts end before

    limit = max(configured["pool"], configured["max_inject"])
    options: dict[str, Any] = {
        "project": configured.project,
        "limit": limit,
        "trusted": configured.trusted,
        "profiles": configured.profiles,
        "scorer": configured["scorer"],
        "pins": configured["pin"],
        "pool": confidence.PROMPT_POOL,
        "patience": PATIENCE,
    }
    if configured["command"]:
        from judgekit.retrieval import command  # noqa: PLC0415 - starts a program, where the user names one

        seconds = min(configured["timeout"], configured["deadline"], command.HOOK_SECONDS)
        return command.search(prompt, configured["command"], configured["roots"], seconds, options)
    return search.search(prompt, configured["roots"], **options)


def session_of(payload: Mapping[str, Any], configured: Settings) -> Session | None:
    """Return what the conversation was told lately; None where nothing is held back."""
    session = payload.get("session_id")
    prompts = configured["repeat_after"]
    if not isinstance(session, str) or not (session and prompts) or configured["inject"] == "top_k":
        return None
    from judgekit.hooks import repeats  # noqa: PLC0415 - not every client has sessions

    return repeats.Session(repeats.path_of(session), configured.project, prompts)


def unrepeated(shown: Shown, told: Session | None, prompt: str) -> Shown:
    """Return what is shown, without what was mentioned lately and no more than is read."""
    injected, mentioned = shown
    if told is not None:
        mentioned = told.unmentioned(mentioned, prompt)
    return injected, mentioned[:MAX_MENTIONED]


def shown_without_judge(ranked: RankedCandidates, configured: Settings) -> Shown:
    """Return which candidates are shown where no model decides; what is pinned comes on top of them."""
    from judgekit.retrieval import confidence  # noqa: PLC0415 - many prompts end before

    return confidence.choose_shown(
        ranked.candidates,
        max_inject=configured["max_inject"],
        inject=configured["inject"],
        hint_on_zero=configured["hint_on_zero"],
    )


def render(
    pinned: list[Candidate],
    shown: Shown,
    project: str,
    descriptions: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the context of a prompt: what is pinned and injected in full, what is mentioned as a hint.

    `descriptions` are those of the categories, by root. What does not fit into `LIMIT` characters is left out
    from the end. What is pinned was not found by the prompt: `pinned` stands for its confidence.
    """
    injected, mentioned = shown
    full = [(candidate, PINNED) for candidate in pinned]
    full += [(candidate, candidate.confidence_label) for candidate in injected]
    nudge = _nudge(mentioned, project, more=bool(full))
    room = LIMIT - len(nudge) - 1
    foot = "</memory-context>"
    blocks = []
    for root in dict.fromkeys(candidate.root for candidate, _ in full):
        group = [each for each in full if each[0].root == root]
        described = descriptions.get(root, {})
        head = f'<memory-context source="{escape(short_line(source(root, project), _PATH))}"'
        categories = dict.fromkeys(candidate.category for candidate, _ in group)
        names = [name for name in categories if name in described]
        texts = []
        for name in names:
            texts.append(f"{name}: {short_line(described[name], _DESCRIPTION)}")
        lines = [f'{head} descriptions="{escape("; ".join(texts))}">' if texts else f"{head}>"]
        left = room - len(lines[0]) - len(foot) - 1
        for candidate, confidence in group:
            tags = [short_line(tag.replace(",", " "), _TAG) for tag in candidate.tags[:_MAX_TAGS]]
            listed = escape(",".join(tag for tag in tags if tag))
            category = escape(short_line(candidate.category, _TAG).upper())
            if candidate.status:
                marked = f"{short_line(candidate.title, _TITLE)} ({candidate.status})"
            else:
                marked = ""
            title = escape(marked or short_line(candidate.title, _TITLE))
            path = escape(short_line(candidate.place, _PATH))
            line = f'<result category="{category}" confidence="{confidence}">{title} -> {path}'
            line += f" #tags:{listed}</result>" if listed else "</result>"
            left -= len(line) + 1
            if left < 0:
                break
            lines.append(line)
        if len(lines) > 1:
            blocks.append("\n".join([*lines, foot]))
            room -= len(blocks[-1]) + 1
    return "\n".join(part for part in [*blocks, nudge] if part)


def _nudge(mentioned: list[Candidate], project: str, *, more: bool) -> str:
    if not mentioned:
        return ""
    mentioned = mentioned[:MAX_MENTIONED]
    topics = []
    program = search_program()
    noun = "memory" if len(mentioned) == 1 else "memories"
    for candidate in mentioned:
        title = short_line(candidate.title, _TOPIC)
        # Words alone: the agent may give them to a shell.
        words = " ".join("".join([char if char.isalnum() else " " for char in title]).split())
        if program and words:
            topics.append(f'{escape(title)} ({program} search "{words}")')
        else:
            topics.append(f"{escape(title)} ({escape(short_line(candidate.path, _PATH))})")
    homes = (project, os.path.expanduser("~"))
    skills = (os.path.join(home, folder, *SKILL) for home in homes for folder in _CLIENTS)
    # The plugin brings the skill.
    has_skill = os.environ.get("CLAUDE_PLUGIN_ROOT") or any(map(os.path.isfile, skills))
    skill = " The memory-search skill searches them." if has_skill else ""
    count = f"{len(mentioned)}{' more' if more else ''} {noun}"
    return f"<memory-nudge>{count} may be about: {', '.join(topics)}.{skill}</memory-nudge>"


def nothing_found() -> str:
    """Return the hint that no memory matches, with the search that tries other words, where it can run."""
    program = search_program()
    hint = f'; {program} search "other words" searches again' if program else ""
    return f"<memory-nudge>No stored memory matches this prompt{hint}.</memory-nudge>"


def search_program() -> str:
    """Return how an agent calls this program: by its name, else by its path; empty where it cannot.

    The path is that of the program beside this interpreter. One that a shell would read as more than a word
    is not named.
    """
    if os.environ.get(
        "CLAUDE_PLUGIN_ROOT"
    ):  # the client has the plugin's programs on its agent's PATH
        return PROGRAM
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder) and _is_program(os.path.join(folder, PROGRAM)):
            return PROGRAM
    path = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    is_word = all(char.isalnum() or char in "/._-+" for char in path)
    if is_word and os.path.isabs(path) and _is_program(path):
        return path
    return ""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def format_output(text: str, titles: list[str], *, is_gemini: bool = False) -> str:
    """Return a context as the client reads it: Gemini JSON, others JSON only for a message with `titles`."""
    if not text:
        return ""
    if is_gemini:
        # Gemini turns our `<` into `&lt;`, which already stands for a `<` of a title, and keeps every `&`.
        # With `&amp;lt;` for the latter, no title can pass for a tag of ours.
        event = "BeforeAgent"
        text = text.replace("&", "&amp;")
    elif titles:
        event = "UserPromptSubmit"
    else:
        return text
    output: dict[str, Any] = {
        "hookSpecificOutput": {"hookEventName": event, "additionalContext": text}
    }
    if titles:
        recalled = "; ".join(short_line(title, _RECALLED_TITLE) for title in titles)
        output["systemMessage"] = f"judgekit recalled: {recalled}"
    return quickjson.written(output)


def escape(text: str) -> str:
    """Return text that cannot end or open a tag or an attribute."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, entity)
    return text


def source(root: str, project: str) -> str:
    """Return the name of a store: relative to the project, else to the home folder, else absolute."""
    end = "" if os.path.isfile(root) else "/"  # of a program
    for folder, sign in ((project, ""), ("~", "~/")):
        base = os.path.realpath(os.path.expanduser(folder))
        if root == base:
            return sign or "./"
        inside = base.rstrip(os.sep) + os.sep
        if root.startswith(inside):
            return f"{sign}{root.removeprefix(inside)}{end}"
    return root + end


def due(project: str, notes: list[str], now: float | None = None) -> list[str]:
    """Return the notes that were not said within the last day, and remember them; all where that fails."""
    from judgekit import outputs  # noqa: PLC0415 - only where something is written

    if now is None:
        now = time.time()
    try:
        path = os.path.join(
            environment.NOTICES.make(), environment.file_name_for(project) + ".json"
        )
        kept = quickjson.load(path)
        times = kept.items() if isinstance(kept, dict) else ()
        said = {}
        for note, at in times:
            if isinstance(at, float) and now - AGAIN < at <= now:
                said[note] = at
        if fresh := [note for note in dict.fromkeys(notes) if note not in said]:
            recent = list({**said, **dict.fromkeys(fresh, now)}.items())[-_MOST:]
            outputs.write_atomically(path, quickjson.dumps(dict(recent)), private=True)
    except OSError:
        return notes
    return fresh

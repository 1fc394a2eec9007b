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
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from judgekit.hooks.repeats import HookSession
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

    # What is injected in full, and what is mentioned as a hint.
    Shown: TypeAlias = tuple[list[Candidate], list[Candidate]]

PATIENCE = 5.0  # seconds for reading new files; with a judge's the client waits longer than both
LIMIT = 10_000  # characters that the client takes
PINNED = "pinned"
JOINED = " > "  # between a title and the section
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


def find_candidates(prompt: str, configured: Settings) -> RankedCandidates:
    """Return what the user's search program, or the stores, find for a prompt, and what is pinned."""
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


def suggest_pins(notes: list[str], ranked: RankedCandidates, configured: Settings) -> list[str]:
    """Return notes; those about pins without a memory name the one that may be meant."""
    if ranked.pin_by_note.keys().isdisjoint(notes):
        return notes
    from judgekit.retrieval import pins  # noqa: PLC0415 - once a day, if a pin is wrong

    return pins.suggest(notes, ranked.pin_by_note, ranked.searched_roots, configured.profiles)


def session_of(payload: Mapping[str, Any], configured: Settings) -> HookSession | None:
    """Return what the conversation was told lately; None where nothing is held back."""
    session = payload.get("session_id")
    prompts = configured["repeat_after"]
    is_repeating = not prompts or configured["inject"] == "top_k"
    if is_repeating or not isinstance(session, str) or not session:
        return None
    from judgekit.hooks import repeats  # noqa: PLC0415 - not every client has sessions

    return repeats.HookSession(repeats.path_of(session), configured.project, prompts)


def drop_repeats(shown: Shown, session: HookSession | None, prompt: str) -> Shown:
    """Return what is shown, without what was mentioned lately and no more than is read."""
    injected, mentioned = shown
    if session is not None:
        mentioned = session.unmentioned(mentioned, prompt)
    return injected, mentioned[:MAX_MENTIONED]


def choose_without_judge(ranked: RankedCandidates, configured: Settings) -> Shown:
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
    labelled = [(candidate, PINNED) for candidate in pinned]
    labelled += [(candidate, candidate.confidence_label) for candidate in injected]
    nudge = _render_nudge(mentioned, project, is_more=bool(labelled))
    room = LIMIT - len(nudge) - 1
    blocks = []
    for root in dict.fromkeys(candidate.root for candidate, _ in labelled):
        of_store = [pair for pair in labelled if pair[0].root == root]
        head = _render_head(root, of_store, project, descriptions.get(root, {}))
        block = _render_store(head, of_store, room)
        if block:
            blocks.append(block)
            room -= len(block) + 1
    return "\n".join(part for part in [*blocks, nudge] if part)


def _render_head(
    root: str,
    of_store: Sequence[tuple[Candidate, str]],
    project: str,
    descriptions: Mapping[str, str],
) -> str:
    """Return the tag that opens a store's memories, with the descriptions of their categories."""
    texts = []
    for category in dict.fromkeys(candidate.category for candidate, _ in of_store):
        if category in descriptions:
            texts.append(f"{category}: {short_line(descriptions[category], _DESCRIPTION)}")
    name = escape(short_line(name_store(root, project), _PATH))
    if not texts:
        return f'<memory-context source="{name}">'
    return f'<memory-context source="{name}" descriptions="{escape("; ".join(texts))}">'


def _render_store(head: str, of_store: Sequence[tuple[Candidate, str]], room: int) -> str:
    """Return the memories of a store that fit into `room` characters; "" where none does."""
    foot = "</memory-context>"
    room -= len(head) + len(foot) + 1
    lines = []
    for candidate, confidence in of_store:
        line = _render_memory(candidate, confidence)
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    return "\n".join([head, *lines, foot])


def _render_memory(candidate: Candidate, confidence: str) -> str:
    category = escape(short_line(candidate.category, _TAG).upper())
    title = short_line(candidate.title, _TITLE)
    section = candidate.name_section()
    if section:
        title = f"{title}{JOINED}{short_line(section, _TITLE)}"
    path = escape(candidate.add_line(short_line(candidate.place, _PATH)))
    if candidate.status:
        title = f"{title} ({candidate.status})"
    if candidate.alike:
        title = f"{title} (and {len(candidate.alike)} alike)"
    age = candidate.describe_age()
    marks = f' age="{age}"' if age else ""
    line = (
        f'<result category="{category}" confidence="{confidence}"{marks}>{escape(title)} -> {path}'
    )
    # A comma in a tag would look like two tags.
    tags = [short_line(tag.replace(",", " "), _TAG) for tag in candidate.tags[:_MAX_TAGS]]
    listed = ",".join(tag for tag in tags if tag)
    if listed:
        line += f" #tags:{escape(listed)}"
    return f"{line}</result>"


def _render_nudge(mentioned: list[Candidate], project: str, *, is_more: bool) -> str:
    """Return the hint that names the mentioned memories, `is_more` beside others; "" where there are none."""
    if not mentioned:
        return ""
    mentioned = mentioned[:MAX_MENTIONED]
    program = search_program()
    topics = [_render_topic(candidate, program) for candidate in mentioned]
    more = " more" if is_more else ""
    noun = "memory" if len(mentioned) == 1 else "memories"
    skill = " The memory-search skill searches them." if _has_skill(project) else ""
    about = f"{len(mentioned)}{more} {noun} may be about: {', '.join(topics)}."
    return f"<memory-nudge>{about}{skill}</memory-nudge>"


def _render_topic(candidate: Candidate, program: str) -> str:
    """Return the title of a memory, and how the agent gets more: by a search, or else by its path."""
    title = short_line(candidate.title, _TOPIC)
    # Words alone: the agent may give them to a shell.
    words = " ".join("".join([char if char.isalnum() else " " for char in title]).split())
    if program and words:
        return f'{escape(title)} ({program} search "{words}")'
    return f"{escape(title)} ({escape(short_line(candidate.path, _PATH))})"


def _has_skill(project: str) -> bool:
    if os.environ.get("CLAUDE_PLUGIN_ROOT"):  # the plugin brings the skill
        return True
    homes = (project, os.path.expanduser("~"))
    skills = (os.path.join(home, folder, *SKILL) for home in homes for folder in _CLIENTS)
    return any(map(os.path.isfile, skills))


def render_nothing_found() -> str:
    """Return the hint that no memory matches, with the search that tries other words, where it can run."""
    program = search_program()
    hint = f'; {program} search "other words" searches again' if program else ""
    return f"<memory-nudge>No stored memory matches this prompt{hint}.</memory-nudge>"


def search_program() -> str:
    """Return how an agent calls this program: by its name, else by its path; empty where it cannot.

    The path is that of the program beside this interpreter. One that a shell would read as more than a word
    is not named.
    """
    if os.environ.get("CLAUDE_PLUGIN_ROOT"):  # its programs are on the PATH of the client's agent
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
        # A `<` of a title is already `&lt;`. Gemini makes the same of our own `<`, but keeps every `&`. So
        # that of a title becomes `&amp;lt;` first, and no title can pass for a tag of ours.
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


def name_store(root: str, project: str) -> str:
    """Return the name of a store: relative to the project, else to the home folder, else absolute."""
    is_program = os.path.isfile(root)
    end = "" if is_program else "/"
    for folder, sign in ((project, ""), ("~", "~/")):
        base = os.path.realpath(os.path.expanduser(folder))
        if root == base:
            return sign or "./"
        inside = base.rstrip(os.sep) + os.sep
        if root.startswith(inside):
            return f"{sign}{root.removeprefix(inside)}{end}"
    return root + end


def take_due_notes(project: str, notes: list[str], now: float | None = None) -> list[str]:
    """Return the notes that were not said within the last day, and remember them; all where that fails."""
    from judgekit import outputs  # noqa: PLC0415 - only where something is written

    if now is None:
        now = time.time()
    try:
        name = environment.file_name_for(project) + ".json"
        path = os.path.join(environment.NOTICES.make(), name)
        remembered = quickjson.load(path)
        times: dict[str, float] = {}
        for note, at in remembered.items() if isinstance(remembered, dict) else ():
            if isinstance(at, float) and now - AGAIN < at <= now:
                times[note] = at
        due = [note for note in dict.fromkeys(notes) if note not in times]
        if due:
            times |= dict.fromkeys(due, now)
            latest = dict(list(times.items())[-_MOST:])
            outputs.write_atomically(path, quickjson.dumps(latest), private=True)
    except OSError:
        return notes
    return due

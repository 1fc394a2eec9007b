"""Finds the memories that answer a prompt, and writes the text that the agent gets.

The text contains facts, not orders, and nothing like markup. Problems with a store's files are reported once
a day.
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

    # The memories to inject in full, and those to mention as a hint.
    Shown: TypeAlias = tuple[list[Candidate], list[Candidate]]

# Seconds for reading new files. The client waits longer than these and a judge's together.
READ_SECONDS = 5.0
MAX_CONTEXT_CHARS = 10_000  # characters that the client takes
PINNED = "pinned"
JOINED = " > "  # between a title and the section
PROGRAM = "judgekit"
REPORT_AGAIN_SECONDS = 86_400  # seconds before a persisting problem is reported again
_MAX_TITLE_CHARS = 200
_MAX_PATH_CHARS = 400
_MAX_TAG_CHARS = 40
_MAX_DESCRIPTION_CHARS = 200
_MAX_TOPIC_CHARS = 60
_MAX_RECALLED_TITLE_CHARS = 80  # characters
_MAX_TAGS = 10
MAX_MENTIONED = 3
SKILL = ("skills", "memory-search", "SKILL.md")
_CLIENTS = (".claude", ".codex", ".gemini")
_MAX_NOTICES = 200  # notices that are remembered


def find_candidates(prompt: str, configured: Settings) -> RankedCandidates:
    """Find the pinned memories, and the memories that match a prompt.

    Searches the configured stores, or runs the user's search program if there is one.
    """
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
        "patience": READ_SECONDS,
    }

    if configured["command"]:
        from judgekit.retrieval import command  # noqa: PLC0415 - starts a program, if the user names one

        seconds = min(configured["timeout"], configured["deadline"], command.HOOK_SECONDS)
        return command.search(prompt, configured["command"], configured["roots"], seconds, options)
    return search.search(prompt, configured["roots"], **options)


def suggest_pins(notes: list[str], ranked: RankedCandidates, configured: Settings) -> list[str]:
    """Add the nearest memory's name to notes about pins that match nothing."""
    if ranked.pin_by_note.keys().isdisjoint(notes):
        return notes
    from judgekit.retrieval import pins  # noqa: PLC0415 - once a day, if a pin is wrong

    return pins.suggest(notes, ranked.pin_by_note, ranked.searched_roots, configured.profiles)


def open_session(payload: Mapping[str, Any], configured: Settings) -> HookSession | None:
    """Open the record of the memories that this conversation was shown, to avoid repeating them.

    Returns None if memories may be repeated, or if the client doesn't identify the conversation.
    """
    session_id = payload.get("session_id")
    prompt_count = configured["repeat_after"]  # repeat a memory after this many prompts; 0: always

    # In the mode "top_k", the best memories are injected with every prompt, even if they were shown before.
    may_repeat = not prompt_count or configured["inject"] == "top_k"
    if may_repeat or not isinstance(session_id, str) or not session_id:
        return None

    from judgekit.hooks import repeats  # noqa: PLC0415 - not every client has sessions

    return repeats.HookSession(
        repeats.get_session_path(session_id), configured.project, prompt_count
    )


def drop_repeats(shown: Shown, session: HookSession | None, prompt: str) -> Shown:
    """Drop mentions that the session already had recently, and limit the others to the first few."""
    injected, mentioned = shown
    if session is not None:
        mentioned = session.drop_mentioned(mentioned, prompt)
    return injected, mentioned[:MAX_MENTIONED]


def choose_without_judge(ranked: RankedCandidates, configured: Settings) -> Shown:
    """Choose the candidates to inject and to mention by their confidence, without asking a model."""
    from judgekit.retrieval import confidence  # noqa: PLC0415 - many prompts end before

    return confidence.choose_shown(
        ranked.candidates,
        max_inject=configured["max_inject"],
        inject=configured["inject"],
        hint_on_zero=configured["hint_on_zero"],
    )


def render_context(
    pinned: list[Candidate],
    shown: Shown,
    project: str,
    descriptions: Mapping[str, Mapping[str, str]],
) -> str:
    """Render a prompt's context: an element for each pinned or injected memory, and a hint at mentioned ones.

    `descriptions` describes the categories of memories, by store and category. Memories that don't fit into
    `MAX_CONTEXT_CHARS` are dropped.
    """
    injected, mentioned = shown

    # The prompt didn't find the pinned memories, so they have a label instead of a confidence.
    labelled = [(candidate, PINNED) for candidate in pinned]
    labelled += [(candidate, candidate.confidence_label) for candidate in injected]
    nudge = _render_nudge(mentioned, project, is_more=bool(labelled))  # the hint

    # By store: its memories, each with the label.
    pairs_by_root: dict[str, list[tuple[Candidate, str]]] = {}
    for candidate, label in labelled:
        pairs_by_root.setdefault(candidate.root, []).append((candidate, label))

    # Fill the room that the hint leaves, store by store.
    line_break = 1
    room = MAX_CONTEXT_CHARS - len(nudge) - line_break  # characters left for memories
    blocks = []
    for root, store_pairs in pairs_by_root.items():
        head = _render_head(root, store_pairs, project, descriptions.get(root, {}))
        block = _render_store(head, store_pairs, room)
        if block:
            blocks.append(block)
            room -= len(block) + line_break

    if nudge:
        blocks.append(nudge)
    return "\n".join(blocks)


def _render_head(
    root: str,
    store_pairs: Sequence[tuple[Candidate, str]],
    project: str,
    descriptions: Mapping[str, str],
) -> str:
    """Render a store's opening tag, with the store's path and descriptions of the memories' categories.

    `descriptions` maps categories to descriptions. Categories without one are omitted.
    """
    # A dict drops duplicates and keeps the order.
    categories = dict.fromkeys([candidate.category for candidate, _ in store_pairs])
    described_categories = []
    for category in categories:
        if category in descriptions:
            description = short_line(descriptions[category], _MAX_DESCRIPTION_CHARS)
            described_categories.append(f"{category}: {description}")

    name = escape(short_line(name_store(root, project), _MAX_PATH_CHARS))
    if not described_categories:
        return f'<memory-context source="{name}">'

    joined = escape("; ".join(described_categories))
    return f'<memory-context source="{name}" descriptions="{joined}">'


def _render_store(head: str, store_pairs: Sequence[tuple[Candidate, str]], room: int) -> str:
    """Render a store's first memories, as many as fit into `room` characters. Returns "" if none fits.

    `head` is the store's opening tag, and each pair is a memory and its label.
    """
    foot = "</memory-context>"
    line_break = 1
    room -= len(head) + len(foot) + line_break
    lines = []

    for candidate, label in store_pairs:
        line = _render_memory(candidate, label)
        room -= len(line) + line_break
        if room < 0:  # this memory doesn't fit
            break
        lines.append(line)

    if not lines:
        return ""
    return "\n".join([head, *lines, foot])


def _render_memory(candidate: Candidate, confidence: str) -> str:
    """Render a memory as an XML element with its title, path, status, age and tags.

    `confidence` is a label such as "high". If the memory is a section of a file, its heading is added to the
    title.
    """
    category = escape(short_line(candidate.category, _MAX_TAG_CHARS).upper())
    title = short_line(candidate.title, _MAX_TITLE_CHARS)
    section = candidate.name_section()
    if section:
        title = f"{title}{JOINED}{short_line(section, _MAX_TITLE_CHARS)}"

    path = escape(candidate.add_line(short_line(candidate.place, _MAX_PATH_CHARS)))
    if candidate.status:
        title = f"{title} ({candidate.status})"
    if candidate.alike:
        title = f"{title} (and {len(candidate.alike)} alike)"

    attributes = f'category="{category}" confidence="{confidence}"'
    age = candidate.describe_age()
    if age:
        attributes += f' age="{age}"'
    return f"<result {attributes}>{escape(title)} -> {path}{_render_tags(candidate)}</result>"


def _render_tags(candidate: Candidate) -> str:
    """Render a memory's first tags, to follow its path; "" if it has none."""
    tags = []
    for full_tag in candidate.tags[:_MAX_TAGS]:
        # A comma inside a tag would look like a separator.
        tag = short_line(full_tag.replace(",", " "), _MAX_TAG_CHARS)
        if tag:
            tags.append(tag)
    return f" #tags:{escape(','.join(tags))}" if tags else ""


def _render_nudge(mentioned: list[Candidate], project: str, *, is_more: bool) -> str:
    """Render the hint about mentioned memories. Returns "" if there are none.

    `is_more` means that the prompt also gets other memories, so the hint says "2 more memories".
    """
    if not mentioned:
        return ""

    mentioned = mentioned[:MAX_MENTIONED]
    program = find_agent_command()
    topics = [_render_topic(candidate, program) for candidate in mentioned]
    more = " more" if is_more else ""
    noun = "memory" if len(mentioned) == 1 else "memories"
    skill = " The memory-search skill searches them." if _has_skill(project) else ""
    about = f"{len(mentioned)}{more} {noun} may be about: {', '.join(topics)}."
    return f"<memory-nudge>{about}{skill}</memory-nudge>"


def _render_topic(candidate: Candidate, program: str) -> str:
    """Render a memory's title with a command that finds the memory. Without a `program`, add its path."""
    title = short_line(candidate.title, _MAX_TOPIC_CHARS)
    # Only use letters and digits, since the agent may pass the words to a shell.
    letters = "".join(char if char.isalnum() else " " for char in title)
    words = " ".join(letters.split())
    if program and words:
        return f'{escape(title)} ({program} search "{words}")'
    return f"{escape(title)} ({escape(short_line(candidate.path, _MAX_PATH_CHARS))})"


def _has_skill(project: str) -> bool:
    """Whether the agent has our search skill, from the plugin, the project or the user's home."""
    if os.environ.get("CLAUDE_PLUGIN_ROOT"):  # the plugin includes the skill
        return True
    for home in (project, os.path.expanduser("~")):
        for folder in _CLIENTS:
            if os.path.isfile(os.path.join(home, folder, *SKILL)):
                return True
    return False


def render_nothing_found() -> str:
    """Render the hint that no memory matches, with a search command if the agent can run it."""
    program = find_agent_command()
    hint = f'; {program} search "other words" searches again' if program else ""
    return f"<memory-nudge>No stored memory matches this prompt{hint}.</memory-nudge>"


def find_agent_command() -> str:
    """Find the name or path by which the agent can call judgekit; "" if neither works."""
    if os.environ.get("CLAUDE_PLUGIN_ROOT"):  # the plugin's programs are on the agent's PATH
        return PROGRAM
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder) and _is_program(os.path.join(folder, PROGRAM)):
            return PROGRAM
    # Try the program next to this interpreter, if a shell takes its path as a single plain word.
    path = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    is_plain_word = all(char.isalnum() or char in "/._-+" for char in path)
    if is_plain_word and os.path.isabs(path) and _is_program(path):
        return path
    return ""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def format_output(text: str, titles: list[str], *, is_gemini: bool = False) -> str:
    """Format a prompt's context for the client. An empty context stays "".

    `titles` are the memories' titles to show to the user, possibly none. Gemini takes JSON. Other clients
    take plain text, or JSON if there are titles.
    """
    if not text:
        return ""

    if is_gemini:
        # Gemini escapes `<` as `&lt;`, but not `&`. So our tags and a `&lt;` in a title would look the same.
        # With `&` escaped here, the title's becomes `&amp;lt;`.
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
        recalled = "; ".join(short_line(title, _MAX_RECALLED_TITLE_CHARS) for title in titles)
        output["systemMessage"] = f"judgekit recalled: {recalled}"
    return quickjson.dumps_ascii(output)


def escape(text: str) -> str:
    """Escape a string so that it can't open or close a tag or an attribute."""
    # Replace & first, since the entities contain it.
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, entity)
    return text


def name_store(root: str, project: str) -> str:
    """Shorten a store's path for display, such as `~/notes/` for a folder in the home folder.

    Paths in the project become relative to it. If `root` is a file, it's the user's search program.
    """
    is_program = os.path.isfile(root)
    suffix = "" if is_program else "/"

    # For each base folder, there's a prefix to show for paths in it, and a name for the folder itself.
    for base, shown_prefix, shown_base in ((project, "", "./"), ("~", "~/", "~/")):
        real_base = os.path.realpath(os.path.expanduser(base))
        if root == real_base:
            return shown_base

        base_prefix = real_base.rstrip(os.sep) + os.sep
        if root.startswith(base_prefix):
            return f"{shown_prefix}{root.removeprefix(base_prefix)}{suffix}"

    return root + suffix


def take_due_notes(project: str, notes: list[str], now: float | None = None) -> list[str]:
    """Return the notes that weren't reported within the last day, and record them as reported.

    If they can't be recorded, return all notes.
    """
    from judgekit import outputs  # noqa: PLC0415 - only needed to write

    if now is None:
        now = time.time()

    try:
        name = environment.file_name_for(project) + ".json"
        path = os.path.join(environment.NOTICES.make(), name)
        # By note: the time of its report, within the last day.
        recent_times = _read_recent_times(path, now)
        due_notes = [note for note in dict.fromkeys(notes) if note not in recent_times]

        if due_notes:
            recent_times |= dict.fromkeys(due_notes, now)
            latest_items = list(recent_times.items())[-_MAX_NOTICES:]
            outputs.write_atomically(path, quickjson.dumps(dict(latest_items)), private=True)
    except OSError:
        return notes

    return due_notes


def _read_recent_times(path: str, now: float) -> dict[str, float]:
    """Read the times of the notes that were reported within the last day."""
    times = quickjson.load(path)
    if not isinstance(times, dict):  # the file is missing or damaged
        return {}
    recent_times: dict[str, float] = {}
    for note, at in times.items():
        # Ignore times in the future, from a clock that was wrong.
        if isinstance(at, float) and now - REPORT_AGAIN_SECONDS < at <= now:
            recent_times[note] = at
    return recent_times

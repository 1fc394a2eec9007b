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
from judgekit.text import shorten_to_line

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
TITLE_SEPARATOR = " > "  # between a title and the section
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
SKILL_PATH_PARTS = ("skills", "memory-search", "SKILL.md")
_CLIENT_FOLDERS = (".claude", ".codex", ".gemini")
_MAX_NOTES = 200  # notes whose times are remembered


def find_candidates(prompt: str, configured: Settings) -> RankedCandidates:
    """Find the pinned memories, and the memories that match a prompt.

    Searches the configured stores, or runs the user's search program if there is one.
    """
    options = _build_search_options(configured)
    if configured["command"]:
        from judgekit.retrieval import command  # noqa: PLC0415 - starts a program, if the user names one

        seconds = min(configured["timeout"], configured["deadline"], command.HOOK_SECONDS)
        return command.search(prompt, configured["command"], configured["roots"], seconds, options)

    from judgekit.retrieval import search  # noqa: PLC0415 - many prompts need no search

    return search.search(prompt, configured["roots"], **options)


def _build_search_options(configured: Settings) -> dict[str, Any]:
    """Build the options of a search for a prompt's memories."""
    from judgekit.retrieval import confidence  # noqa: PLC0415 - many prompts need no search

    # A judge is asked about up to `pool` memories. Without one, up to `max_inject` are injected.
    limit = max(configured["pool"], configured["max_inject"])
    return {
        "project": configured.project,
        "limit": limit,
        "trusted": configured.trusted_roots,
        "profiles": configured.profiles,
        "scorer": configured["scorer"],
        "pins": configured["pin"],
        # Not the setting `pool`: so many hits get a confidence, or `limit` if that's more.
        "pool": confidence.PROMPT_POOL,
        "patience": READ_SECONDS,
    }


def add_pin_suggestions(
    notes: list[str], ranked: RankedCandidates, configured: Settings
) -> list[str]:
    """Add the nearest memory's name to notes about pins that match nothing."""
    has_pin_note = any(note in ranked.pin_by_note for note in notes)
    if not has_pin_note:
        return notes
    from judgekit.retrieval import pins  # noqa: PLC0415 - once a day, if a pin is wrong

    return pins.suggest(notes, ranked.pin_by_note, ranked.searched_roots, configured.profiles)


def open_session(payload: Mapping[str, Any], configured: Settings) -> HookSession | None:
    """Open the record of the memories that this conversation was shown, to avoid repeating them.

    Returns None if every prompt may repeat memories, or if the client doesn't identify the conversation.
    """
    if may_always_repeat(configured):
        return None

    session_id = payload.get("session_id")
    if not isinstance(session_id, str) or not session_id:
        return None

    from judgekit.hooks import repeats  # noqa: PLC0415 - not every client has sessions

    path = repeats.get_session_path(session_id)
    return repeats.HookSession(path, configured.project, configured["repeat_after"])


def may_always_repeat(configured: Settings) -> bool:
    """Whether every prompt may repeat memories: after 0 prompts, or because the best are always injected."""
    repeats_at_once = not configured["repeat_after"]
    always_injects_best = configured["inject"] == "top_k"
    return repeats_at_once or always_injects_best


def limit_mentions(chosen: Shown, session: HookSession | None, prompt: str) -> Shown:
    """Drop the mentions that the session got recently, and keep the first `MAX_MENTIONED` of the rest."""
    # `hold_back` has already removed repeats of injected memories.
    injected, mentioned = chosen
    if session is not None:
        mentioned = session.drop_mentioned(mentioned, prompt)
    return injected, mentioned[:MAX_MENTIONED]


def choose_without_judge(ranked: RankedCandidates, configured: Settings) -> Shown:
    """Choose the candidates to inject and to mention by their confidence, without asking a model."""
    from judgekit.retrieval import confidence  # noqa: PLC0415 - many prompts need no search

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
    """Render a prompt's context: the pinned and injected memories, then a hint that lists the mentioned ones.

    `descriptions` maps each store's root to its categories' descriptions. Memories that don't fit into
    `MAX_CONTEXT_CHARS` are dropped.
    """
    injected, mentioned = shown
    has_memories = bool(pinned or injected)
    hint = _render_hint(mentioned, project, is_more=has_memories)

    # The memories get the room that the hint leaves, store by store.
    line_break_chars = len("\n")
    room = MAX_CONTEXT_CHARS - len(hint) - line_break_chars
    blocks = []
    for root, labelled_memories in _group_by_store(pinned, injected).items():
        head = _render_head(root, labelled_memories, project, descriptions.get(root, {}))
        block = _render_store(head, labelled_memories, room)
        if block:
            blocks.append(block)
            room -= len(block) + line_break_chars

    if hint:
        blocks.append(hint)
    return "\n".join(blocks)


def _group_by_store(
    pinned: list[Candidate], injected: list[Candidate]
) -> dict[str, list[tuple[Candidate, str]]]:
    """Group memories by their store's root, each paired with its label, such as "high"."""
    # Pinned memories are injected with every prompt, so their confidence doesn't matter.
    labelled = [(candidate, PINNED) for candidate in pinned]
    labelled += [(candidate, candidate.confidence_label) for candidate in injected]

    memories_by_root: dict[str, list[tuple[Candidate, str]]] = {}
    for candidate, label in labelled:
        memories_by_root.setdefault(candidate.root, []).append((candidate, label))
    return memories_by_root


def _render_head(
    root: str,
    labelled_memories: Sequence[tuple[Candidate, str]],
    project: str,
    descriptions: Mapping[str, str],
) -> str:
    """Render a store's opening tag, with the store's path and descriptions of the memories' categories.

    `descriptions` maps categories to descriptions. Categories without one are omitted.
    """
    store_name = shorten_to_line(name_store(root, project), _MAX_PATH_CHARS)
    source = escape(store_name)

    memories = [candidate for candidate, _ in labelled_memories]
    described_categories = _describe_categories(memories, descriptions)
    if not described_categories:
        return f'<memory-context source="{source}">'

    joined = escape("; ".join(described_categories))
    return f'<memory-context source="{source}" descriptions="{joined}">'


def _describe_categories(
    memories: Sequence[Candidate], descriptions: Mapping[str, str]
) -> list[str]:
    """List the distinct categories of memories that have a description, as "category: description"."""
    # A dict drops duplicates and keeps the order.
    categories = dict.fromkeys([memory.category for memory in memories])
    described_categories = []
    for category in categories:
        if category in descriptions:
            description = shorten_to_line(descriptions[category], _MAX_DESCRIPTION_CHARS)
            described_categories.append(f"{category}: {description}")
    return described_categories


def _render_store(head: str, labelled_memories: Sequence[tuple[Candidate, str]], room: int) -> str:
    """Render a store's first memories, as many as fit into `room` characters. Returns "" if none fits.

    `head` is the store's opening tag. Each memory comes with its label.
    """
    foot = "</memory-context>"
    line_break_chars = len("\n")
    room -= len(head) + len(foot) + line_break_chars
    lines = []

    for candidate, label in labelled_memories:
        line = _render_memory(candidate, label)
        room -= len(line) + line_break_chars
        if room < 0:  # this memory doesn't fit
            break
        lines.append(line)

    if not lines:
        return ""
    return "\n".join([head, *lines, foot])


def _render_memory(candidate: Candidate, confidence: str) -> str:
    """Render a memory as an XML element with its title, path, status, age and tags.

    `confidence` is a label such as "high".
    """
    category = escape(shorten_to_line(candidate.category, _MAX_TAG_CHARS).upper())
    attributes = f'category="{category}" confidence="{confidence}"'
    age = candidate.describe_age()
    if age:
        attributes += f' age="{age}"'

    title = escape(_build_full_title(candidate))
    # Shorten the path first, so that its line number isn't cut off.
    short_path = shorten_to_line(candidate.relative_path, _MAX_PATH_CHARS)
    path = escape(candidate.append_line_number(short_path))
    tags = _render_tags(candidate)
    return f"<result {attributes}>{title} -> {path}{tags}</result>"


def _build_full_title(candidate: Candidate) -> str:
    """Build a memory's title with its section, its status and the number of memories like it."""
    title = shorten_to_line(candidate.title, _MAX_TITLE_CHARS)
    section = candidate.name_section()
    if section:
        short_section = shorten_to_line(section, _MAX_TITLE_CHARS)
        title = f"{title}{TITLE_SEPARATOR}{short_section}"
    if candidate.status:
        title = f"{title} ({candidate.status})"
    if candidate.near_duplicates:
        title = f"{title} (and {len(candidate.near_duplicates)} alike)"
    return title


def _render_tags(candidate: Candidate) -> str:
    """Render a memory's first tags, such as " #tags:git,tests", to add after its path; "" without tags."""
    tags = []
    for full_tag in candidate.tags[:_MAX_TAGS]:
        # A comma inside a tag would look like a separator.
        tag = shorten_to_line(full_tag.replace(",", " "), _MAX_TAG_CHARS)
        if tag:
            tags.append(tag)

    if not tags:
        return ""
    joined_tags = escape(",".join(tags))
    return f" #tags:{joined_tags}"


def _render_hint(mentioned: list[Candidate], project: str, *, is_more: bool) -> str:
    """Render the hint about mentioned memories. Returns "" if there are none.

    `is_more` means that the prompt also gets other memories, so the hint says "2 more memories".
    """
    if not mentioned:
        return ""

    first_mentioned = mentioned[:MAX_MENTIONED]
    count = _render_count(len(first_mentioned), is_more=is_more)
    program = find_agent_command()
    topics = [_render_topic(candidate, program) for candidate in first_mentioned]
    skill_note = " The memory-search skill searches them." if _has_skill(project) else ""
    return f"<memory-nudge>{count} may be about: {', '.join(topics)}.{skill_note}</memory-nudge>"


def _render_count(count: int, *, is_more: bool) -> str:
    """Render a number of memories, such as "1 memory" or "2 more memories"."""
    more = " more" if is_more else ""
    noun = "memory" if count == 1 else "memories"
    return f"{count}{more} {noun}"


def _render_topic(candidate: Candidate, program: str) -> str:
    """Render a memory's title with a command that finds it, such as `judgekit search "some words"`.

    Without a `program`, or without any words in the title, the memory's path replaces the command.
    """
    title = shorten_to_line(candidate.title, _MAX_TOPIC_CHARS)
    words = _keep_letters(title)
    if program and words:
        return f'{escape(title)} ({program} search "{words}")'

    path = shorten_to_line(candidate.path, _MAX_PATH_CHARS)
    return f"{escape(title)} ({escape(path)})"


def _keep_letters(title: str) -> str:
    """Keep only a title's letters and digits, since the agent may pass the words to a shell."""
    letters = "".join(char if char.isalnum() else " " for char in title)
    return " ".join(letters.split())


def _has_skill(project: str) -> bool:
    """Whether the agent has our search skill, from the plugin, the project or the user's home."""
    if os.environ.get("CLAUDE_PLUGIN_ROOT"):  # the plugin includes the skill
        return True

    for base in (project, os.path.expanduser("~")):
        for client_folder in _CLIENT_FOLDERS:
            skill_file = os.path.join(base, client_folder, *SKILL_PATH_PARTS)
            if os.path.isfile(skill_file):
                return True
    return False


def render_nothing_found() -> str:
    """Render the hint that no memory matches, with a search command if the agent can run it."""
    program = find_agent_command()
    hint = f'; {program} search "other words" searches again' if program else ""
    return f"<memory-nudge>No stored memory matches this prompt{hint}.</memory-nudge>"


def find_agent_command() -> str:
    """Find the name or path by which the agent can call judgekit; "" if it can't."""
    if os.environ.get("CLAUDE_PLUGIN_ROOT"):  # the plugin's programs are on the agent's PATH
        return PROGRAM
    if _is_on_path(PROGRAM):
        return PROGRAM

    # Otherwise try the program next to this interpreter.
    path = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    is_usable = os.path.isabs(path) and _needs_no_quotes(path)
    if is_usable and _is_program(path):
        return path
    return ""


def _is_on_path(program: str) -> bool:
    """Whether an absolute folder of the PATH contains a program."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder) and _is_program(os.path.join(folder, program)):
            return True
    return False


def _needs_no_quotes(path: str) -> bool:
    """Whether a shell takes a path as one word without quotes."""
    return all(char.isalnum() or char in "/._-+" for char in path)


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
        # Gemini turns the `<` of our tags into `&lt;`, but leaves `&` as it is. So an escaped `&lt;` in a
        # title would look like one of our tags. Turn it into `&amp;lt;` to keep them apart.
        escaped_text = text.replace("&", "&amp;")
        return _format_json("BeforeAgent", escaped_text, titles)
    if titles:
        return _format_json("UserPromptSubmit", text, titles)
    return text


def _format_json(event: str, text: str, titles: list[str]) -> str:
    """Format a prompt's context as a JSON answer. If there are `titles`, it tells them to the user."""
    output: dict[str, Any] = {
        "hookSpecificOutput": {"hookEventName": event, "additionalContext": text}
    }
    if titles:
        recalled = "; ".join(shorten_to_line(title, _MAX_RECALLED_TITLE_CHARS) for title in titles)
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

    path_in_project = _make_relative(root, project)
    if path_in_project == ".":
        return "./"
    if path_in_project is not None:
        return f"{path_in_project}{suffix}"

    path_in_home = _make_relative(root, os.path.expanduser("~"))
    if path_in_home == ".":
        return "~/"
    if path_in_home is not None:
        return f"~/{path_in_home}{suffix}"

    return root + suffix


def _make_relative(path: str, folder: str) -> str | None:
    """Make a path relative to a folder: "." for the folder itself, None for a path outside."""
    real_folder = os.path.realpath(folder)
    if path == real_folder:
        return "."
    prefix = real_folder.rstrip(os.sep) + os.sep
    if path.startswith(prefix):
        return path.removeprefix(prefix)
    return None


def take_due_notes(project: str, notes: list[str], now: float | None = None) -> list[str]:
    """Return the notes that weren't reported within the last day, and record them as reported.

    If they can't be recorded, return all notes.
    """
    if now is None:
        now = time.time()

    try:
        name = environment.make_file_name(project) + ".json"
        path = os.path.join(environment.NOTICES.make(), name)
        time_by_note = _read_recent_times(path, now)
        due_notes = [note for note in dict.fromkeys(notes) if note not in time_by_note]

        if due_notes:
            for note in due_notes:
                time_by_note[note] = now
            _write_times(path, time_by_note)
    except OSError:
        return notes

    return due_notes


def _write_times(path: str, time_by_note: dict[str, float]) -> None:
    """Write the times at which notes were reported, but only of the latest `_MAX_NOTES` notes."""
    from judgekit import outputs  # noqa: PLC0415 - only needed to write

    # Newly reported notes were added at the end, so the last items are the latest.
    items = list(time_by_note.items())
    latest_items = items[-_MAX_NOTES:]
    outputs.write_atomically(path, quickjson.dumps(dict(latest_items)), private=True)


def _read_recent_times(path: str, now: float) -> dict[str, float]:
    """Read the times at which notes were reported within the last day, by note."""
    time_by_note = quickjson.load(path)
    if not isinstance(time_by_note, dict):  # the file is missing or damaged
        return {}

    recent_times: dict[str, float] = {}
    for note, reported_at in time_by_note.items():
        if _is_recent(reported_at, now):
            recent_times[note] = reported_at
    return recent_times


def _is_recent(reported_at: object, now: float) -> bool:
    """Whether a time is within the last day."""
    if not isinstance(reported_at, float):  # the file is damaged
        return False
    earliest = now - REPORT_AGAIN_SECONDS
    # A wrong clock may have recorded a time in the future. Don't suppress the note until then.
    return earliest < reported_at <= now

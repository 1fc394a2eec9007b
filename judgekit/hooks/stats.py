"""Measures the use of the memories that the hook gave the agent (`judgekit hook --stats`).

Everything is read on this machine: the log, the clients' transcripts, the stores, and without a log the
hook's records of each session. docs/hook.md defines each figure.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.hooks import explain, repeats, settings
from judgekit.retrieval import quickjson, scan, search, terms, transcript
from judgekit.text import shorten_to_line, split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.retrieval.compiled import Language

MIN_DISTINCTIVE_STEMS = 3  # distinctive terms of a memory that an answer must have
# A distinctive term occurs in at most one memory in this many; in a smaller store, in one memory
MIN_MEMORIES_PER_OCCURRENCE = 50
_SEARCHES = ("judgekit search", "memory-search")
_MAX_TITLE_CHARS = 60
_MIN_JUDGED_PROMPTS = 5  # prompts after which a judge that drops everything isn't chance any more
_MAX_LISTED = 3
_TEXTS = environment.read_toml(__file__, "stats.toml")


class _DistinctiveTerms:
    """The distinctive terms of each memory in the project's stores, by the memory's file."""

    def __init__(self, configured: settings.Settings) -> None:
        """Find the distinctive word stems: those that only few memories contain."""
        self._languages: dict[str, Language] = {}
        stems_by_file = self._read_stems(configured)
        self.files = stems_by_file.keys()

        # Only memories with enough distinctive stems can be recognised in an answer.
        self.recognisable_files: set[str] = set()
        self._files_by_stem = defaultdict[str, list[str]](list)
        for file, stems in _select_distinctive(stems_by_file).items():
            if len(stems) < MIN_DISTINCTIVE_STEMS:
                continue
            self.recognisable_files.add(file)
            for stem in stems:
                self._files_by_stem[stem].append(file)

    def _read_stems(self, configured: settings.Settings) -> dict[str, set[str]]:
        """Read each memory's word stems, by file. Also fills `_languages`, by kind of store."""
        stems_by_file = {}
        for folder in _list_searched_folders(configured):
            profile, entries, _ = scan.read_entries(folder, configured.profiles)
            self._languages[profile.kind] = profile.language
            for relative_path, entry in entries:
                text = " ".join([entry.title, *entry.tags, entry.body])
                file = os.path.join(folder, relative_path)
                stems_by_file[file] = set(terms.stem_text(text, profile.language))
        return stems_by_file

    def find_in_answer(self, exchange: transcript.Exchange) -> set[str]:
        """Return the files of the memories with `MIN_DISTINCTIVE_STEMS` distinctive stems in an answer.

        Stems that are also in the prompt don't count.
        """
        answer_stems = self._stem_in_all_languages("\n".join(exchange.answer))
        prompt_stems = self._stem_in_all_languages(exchange.prompt)

        found_stem_counts = Counter[str]()  # by file
        for stem in answer_stems - prompt_stems:
            found_stem_counts.update(self._files_by_stem.get(stem, ()))
        return {file for file, count in found_stem_counts.items() if count >= MIN_DISTINCTIVE_STEMS}

    def _stem_in_all_languages(self, text: str) -> set[str]:
        """Return the stems of text in each of the stores' languages."""
        stems = set[str]()
        for language in self._languages.values():
            stems.update(terms.stem_text(text, language))
        return stems


def _select_distinctive(stems_by_file: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Select each memory's distinctive stems, by file.

    A stem is distinctive if it's in a single memory, or in at most 1/`MIN_MEMORIES_PER_OCCURRENCE` of all
    memories.
    """
    memory_counts = Counter[str]()  # by stem
    for stems in stems_by_file.values():
        memory_counts.update(stems)

    max_memories = max(1, len(stems_by_file) // MIN_MEMORIES_PER_OCCURRENCE)
    distinctive_by_file = {}
    for file, stems in stems_by_file.items():
        distinctive = [stem for stem in stems if memory_counts[stem] <= max_memories]
        distinctive_by_file[file] = distinctive
    return distinctive_by_file


def _list_searched_folders(configured: settings.Settings) -> Iterator[str]:
    """Yield the existing folders of memories that the settings allow to search."""
    project_folder = os.path.realpath(configured.project)
    project_prefix = project_folder.rstrip(os.sep) + os.sep  # as `/` ends with a separator already
    for root in configured["roots"]:
        folder = os.path.realpath(search.resolve_root(root, configured.project))
        is_allowed = search.may_be_searched(root, folder, project_prefix, configured.trusted_roots)
        if is_allowed and os.path.isdir(folder):
            yield folder


def report_use(folder: str, *, as_json: bool = False) -> str:
    """Report how often agents used injected memories in the project around `folder`, as text or JSON.

    If there's no log, fewer figures are reported. They come from the hook's session records.
    """
    project = environment.find_project_root(folder)
    configured, notes = settings.load(project)
    logged = explain.read_log(project)[::-1]  # oldest first, as they're looked up in transcripts
    if logged:
        figures = _count_logged(logged, configured)
        template = _TEXTS["logged"]
    else:
        figures = _count_remembered(configured)
        template = _TEXTS["remembered"]

    if as_json:
        return quickjson.dumps({"project": project, "log": configured["log"], **figures})

    text = template.format(
        **figures,
        state=_describe_log_state(is_on=configured["log"]),
        listed=_describe_memories(figures.get("memories", ())),
    )
    if _are_all_dropped(figures):  # then the hook shows nothing that the judge sees
        text += _TEXTS["drops_all"].format(**figures)

    note_lines = [f"note: {note}" for note in notes]
    return "\n".join([f"project: {project}", *note_lines, text])


def _describe_log_state(*, is_on: bool) -> str:
    """Say whether the log is on. If it's off, also say how to switch it on."""
    if is_on:
        return "on"
    path = environment.SETTINGS.path()
    return f"off (to switch it on: retrieval: {{log: true}} in {path})"


def _describe_memories(memories: Sequence[dict[str, Any]]) -> str:
    """List the first memories as `TITLE (injected 5, used 2)`, separated by semicolons."""
    descriptions = []
    for memory in memories[:_MAX_LISTED]:
        title = shorten_to_line(memory["title"], _MAX_TITLE_CHARS)
        descriptions.append(f"{title} (injected {memory['injected']}, used {memory['used']})")
    return "; ".join(descriptions)


def _are_all_dropped(figures: Mapping[str, Any]) -> bool:
    """Whether a judge dropped all memories, on enough prompts that it isn't chance."""
    has_enough_prompts = figures.get("judged_prompts", 0) >= _MIN_JUDGED_PROMPTS
    return bool(has_enough_prompts and figures["judged"] == figures["dropped"])


def _count_logged(logged: list[dict[str, Any]], configured: settings.Settings) -> dict[str, Any]:
    """Compute figures from the log and the transcripts of its sessions."""
    words = _DistinctiveTerms(configured)
    project_folder = os.path.realpath(configured.project)
    exchanges = transcript.read_sessions({str(line.get("session")) for line in logged})
    transcripts = len(exchanges)
    seen_in_session = defaultdict[object, set[str]](set)
    counts = Counter(dict.fromkeys(_TEXTS["counts"].split(), 0))
    titles: dict[str, str] = {}
    times_injected = Counter[str]()
    times_used = Counter[str]()

    for line in logged:
        session = line.get("session")
        injected = _map_entries(line, "injected", project_folder)
        mentioned = _map_entries(line, "mentioned", project_folder)
        repeated = _map_entries(line, "repeated", project_folder)
        pinned = _map_entries(line, "pinned", project_folder)
        times_injected.update(injected.keys())
        for file, entry in injected.items():
            titles[file] = str(entry.get("title"))
        seen_in_session[session].update(injected, mentioned, repeated, pinned)

        # Count what the hook added.
        counts["prompts"] += 1
        counts["injections"] += len(injected)
        counts["pinned"] += len(pinned)
        counts["repeats_avoided"] += _count_avoided(repeated)
        _count_cost(counts, line)
        if injected:
            counts["injected_prompts"] += 1
        if mentioned:
            counts["nudges"] += 1

        # Without a transcript of the answer, it isn't known whether the memories were used.
        exchange = _take_exchange(exchanges.get(str(session), []), line.get("prompt"))
        if exchange is None:
            continue

        counts["answered_prompts"] += 1
        if mentioned:
            counts["answered_nudges"] += 1
            if _count_searches(exchange) or _find_opened(mentioned, exchange):
                counts["nudges_followed"] += 1

        if injected:
            counts["answered_injections"] += len(injected)
            # The agent didn't get these, so they show how often such words appear by chance.
            others = words.recognisable_files - seen_in_session[session]
            used = _count_use(counts, set(injected), others, exchange, words)
            times_used.update(used)

    # List the memories, most frequently injected first.
    memories = []
    for file, times in times_injected.most_common():
        memories.append({"title": titles[file], "injected": times, "used": times_used[file]})
    sessions = {line["session"] for line in logged if line.get("session")}
    return {
        "source": "log",
        "since": logged[0].get("at"),
        "sessions": len(sessions),
        "transcripts": transcripts,
        **counts,
        "characters_each": _round_mean(counts["characters"], counts["measured_prompts"]),
        "ms_each": _round_mean(counts["milliseconds"], counts["measured_prompts"]),
        "memories": memories,
    }


def _count_avoided(repeated: dict[str, dict[str, Any]]) -> int:
    """Count the held-back memories that would have been injected again."""
    labels = [entry.get("label", "high") for entry in repeated.values()]  # older log lines lack it
    return labels.count("high")


def _round_mean(total: int, count: int) -> int:
    """Return the rounded mean for a sum of `count` numbers; 0 if there are none."""
    return round(total / count) if count else 0


def _count_cost(counts: Counter[str], line: dict[str, Any]) -> None:
    """Add a log line's characters, time, and numbers of judged and dropped memories to `counts`.

    Older log lines lack these.
    """
    characters = line.get("characters")
    milliseconds = line.get("ms")
    if isinstance(characters, int) and isinstance(milliseconds, int):
        counts["measured_prompts"] += 1
        counts["characters"] += characters
        counts["milliseconds"] += milliseconds

    judged = line.get("judged")
    dropped = line.get("dropped")
    if isinstance(judged, int) and isinstance(dropped, int) and judged > 0:
        counts["judged_prompts"] += 1
        counts["judged"] += judged
        counts["dropped"] += dropped
        if dropped == judged:
            counts["all_dropped"] += 1


def _count_use(
    counts: Counter[str],
    injected: set[str],
    others: set[str],
    exchange: transcript.Exchange,
    words: _DistinctiveTerms,
) -> set[str]:
    """Count which injected memories an agent's answer used. Adds to `counts`, and returns the used files.

    A memory counts as used if its file was opened, or if its distinctive words came back in the answer.
    """
    files_in_answer = words.find_in_answer(exchange)
    opened = _find_opened(injected, exchange)
    came_back = injected & files_in_answer
    used = opened | came_back
    counts["opened"] += len(opened)
    counts["came_back"] += len(came_back)
    counts["used"] += len(used)

    # Memories with too few distinctive words can't be recognised in an answer.
    can_come_back = injected & words.recognisable_files
    counts["can_come_back"] += len(can_come_back)

    # The other files weren't injected, so their words can only be in the answer by chance.
    came_back_by_chance = others & files_in_answer
    counts["others"] += len(others)
    counts["others_came_back"] += len(came_back_by_chance)
    return used


def _count_remembered(configured: settings.Settings) -> dict[str, Any]:
    """Compute figures on how memories are used, for when there's no log.

    They come from the hook's session records, and from the client's transcripts.
    """
    counts = Counter(prompts=0, injections=0, nudges=0, searches=0, answered_injections=0, opened=0)
    lines_by_session = _read_sessions(configured.project)
    exchanges_by_session = transcript.read_sessions(lines_by_session.keys())

    # The records contain digests of the memories' files. To list these files, all memories are read.
    memory_files = _DistinctiveTerms(configured).files
    file_by_digest = {environment.digest(file): file for file in memory_files}

    for session, lines in lines_by_session.items():
        digests = _list_injected_digests(lines)
        lines_with_mentions = [line for line in lines if repeats.MENTIONED in line]
        counts["prompts"] += len(lines)  # a line per prompt
        counts["injections"] += len(digests)
        counts["nudges"] += len(lines_with_mentions)
        if session in exchanges_by_session:  # the session has a transcript
            # A memory that was deleted since then has no file.
            files = {file_by_digest[digest] for digest in digests if digest in file_by_digest}
            _count_openings(counts, files, exchanges_by_session[session])

    return {
        "source": "sessions",
        "sessions": len(lines_by_session),
        "transcripts": len(exchanges_by_session),
        **counts,
    }


def _list_injected_digests(lines: Sequence[str]) -> list[str]:
    """List the digests of a session's injected memories, from the lines of its record.

    A line consists of marks. A mark's first character says how a memory was shown; the rest is its digest.
    """
    digests = []
    for line in lines:
        for mark in line.split():
            kind, digest = mark[0], mark[1:]
            if kind == repeats.INJECTED:
                digests.append(digest)
    return digests


def _count_openings(
    counts: Counter[str], files: set[str], exchanges: Iterable[transcript.Exchange]
) -> None:
    """Add to `counts` how many of the injected `files` an agent opened, and how often it searched."""
    opened_files: set[str] = set()
    for exchange in exchanges:
        opened_files |= _find_opened(files, exchange)
        counts["searches"] += _count_searches(exchange)
    counts["opened"] += len(opened_files)
    # Only injections with a transcript, because the opened files are a share of these.
    counts["answered_injections"] += len(files)


def _read_sessions(project: str) -> dict[str, list[str]]:
    """Read the hook's records of a project's sessions. Returns a line for each prompt, by session."""
    lines_by_session = {}
    for path in repeats.list_session_files(project):
        with open(path, encoding="ascii", errors="replace", newline="\n") as file:
            lines = split_lines(file.read())[1:]  # the first line only names the project
        lines_by_session[os.path.basename(path)] = lines
    return lines_by_session


def _take_exchange(
    exchanges: list[transcript.Exchange], prompt: object
) -> transcript.Exchange | None:
    """Find the first exchange with a logged prompt; None if it's missing.

    Removes the exchange and all earlier ones from the list.
    """
    for number, exchange in enumerate(exchanges, start=1):
        shortened_prompt = shorten_to_line(exchange.prompt, explain.PROMPT_CHARS)  # as in the log
        if shortened_prompt == prompt:
            del exchanges[:number]
            return exchange
    return None


def _map_entries(line: dict[str, Any], name: str, project_folder: str) -> dict[str, dict[str, Any]]:
    """Return a log line's entries under the key `name`, by the memory's file."""
    value = line.get(name)
    if not isinstance(value, list):
        return {}
    entry_by_file = {}
    for entry in value:
        if isinstance(entry, dict):
            file = os.path.join(project_folder, str(entry.get("path")))
            entry_by_file[file] = entry
    return entry_by_file


def _find_opened(files: Iterable[str], exchange: transcript.Exchange) -> set[str]:
    """Find the files that the agent probably opened: their `FOLDER/NAME` is in a tool call."""
    # In a Windows path, JSON writes each backslash twice.
    calls = "\n".join(exchange.calls).replace("\\\\", "/")
    opened_files = set()
    for file in files:
        parts = file.replace("\\", "/").split("/")
        folder_and_name = "/".join(parts[-2:])
        if folder_and_name in calls:
            opened_files.add(file)
    return opened_files


def _count_searches(exchange: transcript.Exchange) -> int:
    """Count the tool calls that search memories."""
    count = 0
    for call in set(exchange.calls):  # Gemini records some calls twice
        if any(name in call for name in _SEARCHES):
            count += 1
    return count

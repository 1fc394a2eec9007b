"""Explains the hook's answer to a prompt (`judgekit hook --explain PROMPT`), and keeps a log of answers.

The explanation is for a person who doesn't know how the hook works. The log is off unless the user's own
configuration says `retrieval: {log: true}`. It has one JSON line for each prompt, with its beginning and the
titles of memories. It stays on this machine, only its owner can read it, and its size is limited.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.hooks import context, repeats, settings
from judgekit.retrieval import parts, quickjson, search, terms
from judgekit.retrieval.confidence import COMMAND_KIND, SEVERAL_TERMS
from judgekit.retrieval.index_file import describe_empty
from judgekit.text import format_count, shorten_to_line, split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates
    from judgekit.retrieval.parts import Part

PROMPT_CHARS = 200
MAX_LOG_BYTES = 1_000_000  # of the log; then it becomes the older half, replacing the previous one
_MAX_LOGGED_ENTRIES = 3  # entries about a prompt that are shown
_ACTION_BY_MARK = {repeats.INJECTED: "injected", repeats.MENTIONED: "mentioned"}
_NOUNS = ("memory", "memories")
_MAX_TITLE_CHARS = 70
_MAX_PART_CHARS = 90
_MAX_ALIKE = 3  # similar memories to name
_EVIDENCE_INDENT = " " * 11  # lines up with the title in the line above
_MAX_LOGGED_TITLE_CHARS = 100  # characters
_REPEATED = (
    "{} in the latest session, prompts ago: {}; it comes back after {} (retrieval.repeat_after),"
    " when a prompt names it, or when the conversation was compacted"
)
_NO_WORDS = "none that are searched; words like *the* and *how* are not"
_COMMAND_NOTE = (
    "retrieval.command finds the candidates; the stores serve for pins, and where it fails"
)
_JUDGE_NOTE = "on: in the hook, a model decides about these; without its answer, the result is"


def explain_prompt(prompt: str, folder: str, *, ignored: bool = False) -> str:
    """Report to a user what the hook would do with a prompt in `folder`.

    The report lists the stores, the prompt's words, and each matching memory with its outcome. `ignored`
    means that the hook ignores this prompt.
    """
    project = environment.find_project_root(folder)
    configured, notes = settings.load(project)
    lines = [f"project: {project}", *_format_notes(notes)]

    # If the hook wouldn't search, the report only says why.
    if not configured["enabled"]:
        return "\n".join([*lines, settings.describe_off(project)])
    if ignored:
        reason = "the prompt is too short or a notification: the hook adds nothing"
        return "\n".join([*lines, reason])

    ranked = context.find_candidates(prompt, configured)
    lines += _describe_search(ranked, configured)
    prompt_parts = _cut_into_parts(prompt, configured)
    lines += _describe_parts(prompt_parts)
    if configured["judge"] == "on":
        lines.append(f"judge: {_JUDGE_NOTE}")

    has_several_parts = len(prompt_parts) > 1
    lines.append("")
    lines += _explain_candidates(prompt, ranked, configured, has_several_parts=has_several_parts)
    lines.append("")
    lines += _describe_log(prompt, configured)
    return "\n".join(lines)


def _format_notes(notes: list[str]) -> list[str]:
    """Format each note as a line of the report."""
    return [f"note: {note}" for note in notes]


def _describe_search(ranked: RankedCandidates, configured: Settings) -> list[str]:
    """Describe what was searched, with notes about anything that's wrong with it."""
    notes = context.add_pin_suggestions(ranked.notes, ranked, configured)
    lines = _format_notes(notes)
    lines += _format_notes([describe_empty(root) for root in ranked.empty_roots])
    lines += _describe_stores(configured)
    judge_warning = _find_judge_warning(configured.project)
    if judge_warning:
        lines += _format_notes([judge_warning])
    return lines


def _describe_parts(prompt_parts: list[Part]) -> list[str]:
    """Describe the searched words, each once, and the number of parts if a long prompt was cut."""
    words = []
    for part in prompt_parts:
        words += [term.text for term in part.terms]
    distinct_words = list(dict.fromkeys(words))

    listed_words = ", ".join(distinct_words) if distinct_words else _NO_WORDS
    lines = [f"words: {listed_words}"]
    if len(prompt_parts) > 1:
        lines.append(f"parts: {len(prompt_parts)}; each is searched by itself")
    return lines


def _explain_candidates(
    prompt: str, ranked: RankedCandidates, configured: Settings, *, has_several_parts: bool
) -> list[str]:
    """Describe each candidate's outcome and the reason for it. The first line is a summary.

    The outcomes are those of the next prompt in the project's latest session.
    """
    session = _find_latest_session(configured)
    if session is not None:
        # Move the memories that the session got recently from `ranked.candidates` to `ranked.repeated`.
        session.hold_back(ranked, prompt)

    chosen = context.choose_without_judge(ranked, configured)
    shown = context.limit_mentions(chosen, session, prompt)
    repeated_mentions = _list_repeated_mentions(chosen, shown)

    lines = [_sum_up(ranked, shown)]
    for candidate in (*ranked.pinned, *ranked.repeated, *ranked.candidates):
        if candidate in ranked.pinned:
            outcome, reason = "injected", "pinned: injected with every prompt"
        # Without a session, nothing is repeated. The check is only for mypy.
        elif session is not None and candidate in ranked.repeated:
            outcome, reason = "held back", _describe_repeat(candidate, repeats.INJECTED, session)
        elif session is not None and candidate in repeated_mentions:
            outcome, reason = "held back", _describe_repeat(candidate, repeats.MENTIONED, session)
        else:
            outcome, reason = _describe_outcome(candidate, shown, configured)

        lines += _format_outcome(candidate, configured.project, outcome=outcome, reason=reason)
        lines += _describe_evidence(
            candidate, configured.project, has_several_parts=has_several_parts
        )
    return lines


def _list_repeated_mentions(chosen: context.Shown, shown: context.Shown) -> list[Candidate]:
    """List the memories that would be mentioned if the session hadn't got them recently.

    `chosen` are the memories before repeats are dropped, and `shown` those that remain.
    """
    _injected, chosen_mentions = chosen
    _injected, shown_mentions = shown
    # Any further ones would only be mentioned in place of a repeat.
    first_mentions = chosen_mentions[: context.MAX_MENTIONED]
    return [hit for hit in first_mentions if hit not in shown_mentions]


def _format_outcome(candidate: Candidate, project: str, *, outcome: str, reason: str) -> list[str]:
    """Format a line with a candidate's outcome, title and place, and a line with the reason."""
    title = shorten_to_line(candidate.title, _MAX_TITLE_CHARS)
    place = _name_place(candidate, project)
    return [f"{outcome:<10} {title} -> {place}", f"           {reason}"]


def _sum_up(ranked: RankedCandidates, shown: context.Shown) -> str:
    """Summarise what the hook adds to the prompt, such as "added: 2 memories", or why it adds nothing."""
    injected, mentioned = shown
    injected_count = len(ranked.pinned) + len(injected)

    if injected_count and mentioned:
        return f"added: {format_count(injected_count, *_NOUNS)}, and a mention of {len(mentioned)} more"
    if injected_count:
        return f"added: {format_count(injected_count, *_NOUNS)}"
    if mentioned:
        memories = format_count(len(mentioned), *_NOUNS)
        return f"added: a mention of {memories}; none is sure enough to be injected"
    if ranked.candidates:
        return "nothing is added: no memory is sure enough to be about this prompt"
    if ranked.repeated:
        return "nothing is added: the session has the memories that match"
    return "nothing is added: no memory matches"


def _describe_stores(configured: Settings) -> list[str]:
    """Describe the user's search program, if one is configured, and each store. Each has a line."""
    lines = []
    command = configured["command"]
    if command:
        lines.append(f"command: {' '.join(command)} ({_COMMAND_NOTE})")

    for root in configured["roots"]:
        path = search.resolve_root(root, configured.project)
        missing_note = "" if os.path.isdir(path) else " (missing: nothing to search)"
        lines.append(f"store: {path}{missing_note}")
    return lines


def _cut_into_parts(prompt: str, configured: Settings) -> list[Part]:
    """Split a prompt into parts, as the search does: once for each main language of the stores."""
    languages_by_main = {}  # all languages of a profile, by its main one
    for profile in configured.profiles.by_kind.values():
        languages_by_main[profile.language] = profile.languages

    excerpt = terms.shorten_prompt(prompt)  # enough to recognise the language
    prompt_parts = []
    for main_language, profile_languages in languages_by_main.items():
        # The prompt itself can be in any language.
        other_languages = profile_languages.list_others(main_language.name)
        chosen_languages = terms.choose_languages(excerpt, [main_language], other_languages)
        prompt_parts += parts.parse(prompt, *chosen_languages)
    return prompt_parts


def _find_latest_session(configured: Settings) -> repeats.HookSession | None:
    """Find the project's latest session. None if there's none, or if every prompt may repeat memories."""
    if context.may_always_repeat(configured):
        return None

    latest_file = next(repeats.list_session_files(configured.project), None)
    if latest_file is None:
        return None
    return repeats.HookSession(latest_file, configured.project, configured["repeat_after"])


def _describe_repeat(candidate: Candidate, how: str, session: repeats.HookSession) -> str:
    """Describe how many prompts ago a memory was injected or mentioned, and when it comes back."""
    ago = session.count_prompts_since(candidate, how)
    return _REPEATED.format(_ACTION_BY_MARK[how], ago, session.prompt_count)


def _find_judge_warning(project: str) -> str | None:
    """Return a warning if the project wants a judge that the user hasn't allowed, otherwise None."""
    from judgekit import programs  # noqa: PLC0415 - imported lazily to keep the hook fast

    programs.make_packages_importable()
    try:
        from pathlib import Path  # noqa: PLC0415 - only needed for reports

        from judgekit.config.settings import describe_judge_without_effect  # noqa: PLC0415 - pydantic
        from judgekit.errors import ConfigError  # noqa: PLC0415 - only needed for reports
    except ImportError:  # only the plugin is installed, without the packages that are needed here
        return None

    try:
        return describe_judge_without_effect(Path(project))
    except ConfigError:  # the caller already reported problems in the configuration
        return None


def _describe_log(prompt: str, configured: Settings) -> list[str]:
    """Describe how the hook has answered this prompt before, from the latest entries of the log."""
    if not configured["log"]:
        return [
            "log: off (set retrieval.log: true in your own configuration to log each injection)"
        ]

    lines = [f"log: {get_log_path()}"]

    logged_prompt = shorten_to_line(prompt, PROMPT_CHARS)  # the log contains shortened prompts
    all_entries = read_log(configured.project)
    entries = [entry for entry in all_entries if entry.get("prompt") == logged_prompt]
    for entry in entries[:_MAX_LOGGED_ENTRIES]:
        injected = _join_titles(entry, "pinned", "injected")
        mentioned = _join_titles(entry, "mentioned")
        repeated = _join_titles(entry, "repeated")
        lines.append(
            f"{entry.get('at')}: injected {injected}; mentioned {mentioned}; held back {repeated}"
        )

    if not entries:
        lines.append("this prompt is not in the log")
    return lines


def _join_titles(entry: dict[str, Any], *keys: str) -> str:
    """Join the titles of a log entry's memories under these keys; "nothing" if there are no memories."""
    titles = []
    for key in keys:
        for memory in entry.get(key, ()):
            titles.append(str(memory.get("title")))
    return ", ".join(titles) if titles else "nothing"


def _describe_outcome(
    candidate: Candidate, shown: context.Shown, configured: Settings
) -> tuple[str, str]:
    """Name a candidate's outcome in a word or two, and explain it."""
    injected, mentioned = shown
    if candidate in injected:
        outcome = "injected"
    elif candidate in mentioned:
        outcome = "mentioned"
    else:
        outcome = "left out"
    return outcome, _explain_outcome(candidate, outcome, configured)


def _explain_outcome(candidate: Candidate, outcome: str, configured: Settings) -> str:
    """Explain why a candidate has this outcome: injected, mentioned or left out."""
    obstacle = _explain_never_injected(candidate)
    if obstacle:
        return obstacle

    # With top_k, only the rank matters, not the confidence.
    if configured["inject"] == "top_k":
        position = "among" if outcome == "injected" else "not among"
        return f"{position} the first {configured['max_inject']} (retrieval.inject is top_k)"

    has_confidence = candidate.has_confidence
    if not has_confidence:
        return _explain_without_confidence(candidate, outcome)

    reason = _explain_by_thresholds(candidate, outcome, configured)
    # Round down, so that a confidence of 0.398, below a threshold of 0.40, isn't shown as 0.40.
    hundredths = int(candidate.confidence * 100)
    return f"confidence {hundredths / 100:.2f}: {reason}"


def _explain_without_confidence(candidate: Candidate, outcome: str) -> str:
    """Explain the outcome of a candidate from a program that gave no confidence."""
    limit = "without a judge it is at most mentioned"
    if outcome != "mentioned":  # because better candidates are mentioned instead
        limit = f"{limit}, and only {context.MAX_MENTIONED} are"
    return f"the program gave no confidence (score {candidate.score:g}): {limit}"


def _explain_by_thresholds(candidate: Candidate, outcome: str, configured: Settings) -> str:
    """Explain an outcome by comparing the candidate's confidence with its kind's thresholds."""
    thresholds = configured.profiles.get_profile(candidate.kind).labels  # by label
    inject_threshold = f"{thresholds['high']:.2f}"
    if outcome == "injected":
        return f"sure enough, since {inject_threshold} is needed to inject it"
    if candidate.confidence_label == "high":
        return (
            f"sure enough, but only {configured['max_inject']} are injected (retrieval.max_inject)"
        )

    is_mentioned = outcome == "mentioned"
    if candidate.worth_mentioning and not is_mentioned:
        return f"enough to mention it, but only {context.MAX_MENTIONED} are mentioned"

    # A hit far ahead of all others is mentioned even if its confidence is too low for that.
    is_below_threshold = candidate.confidence < thresholds["mention"]
    if candidate.stands_out and is_below_threshold:
        return "not sure enough to inject it, but it is far ahead of all others"
    if candidate.worth_mentioning:
        return f"not sure enough, since {inject_threshold} is needed to inject it"

    reason = f"not sure enough, since {thresholds['mention']:.2f} is needed to mention it"
    if is_mentioned:
        return f"{reason}; but nothing else was found (retrieval.hint_on_zero)"
    return reason


def _explain_never_injected(candidate: Candidate) -> str:
    """Explain why a memory can never be injected; "" if it can."""
    if candidate.status:
        return f"it is {candidate.status}: never injected, and last in a search"
    if candidate.is_damaged:
        return "its file is damaged, and the memory may be retired: never injected"
    return ""


def _name_place(candidate: Candidate, project: str) -> str:
    """Return the name of a memory's store and its path there, with the line of its best section if known."""
    path = candidate.append_line_number(candidate.relative_path)
    is_from_program = candidate.kind == COMMAND_KIND
    if is_from_program:  # the program returns complete paths
        return path
    folder = context.name_store(candidate.root, project)  # ends with a slash
    return f"{folder}{path}"


def _describe_evidence(candidate: Candidate, project: str, *, has_several_parts: bool) -> list[str]:
    """Describe how well a candidate matches: its words, older copies and scores (see docs/hook.md)."""
    was_found = bool(candidate.features)
    if not was_found:  # a pinned memory is a candidate even if no search found it
        return []

    lines = _describe_match(candidate, has_several_parts=has_several_parts)
    if candidate.near_duplicates:
        lines.append(_describe_older_memories(candidate, project))
    lines.append(_describe_numbers(candidate))
    return [f"{_EVIDENCE_INDENT}{line}" for line in lines]


def _describe_match(candidate: Candidate, *, has_several_parts: bool) -> list[str]:
    """List the words by which a candidate was found, after the prompt's part if there are several."""
    part = candidate.part
    if part is None:
        return []
    words = _describe_words(candidate, part)
    if not has_several_parts:
        return [words]
    return [f"found by: {shorten_to_line(part.text, _MAX_PART_CHARS)}", words]


def _describe_older_memories(candidate: Candidate, project: str) -> str:
    """Describe the older memories that say the same as a candidate, with the places of the first few."""
    places = [_name_place(hit, project) for hit in candidate.near_duplicates[:_MAX_ALIKE]]
    return f"says the same as {len(candidate.near_duplicates)} older: {', '.join(places)}"


def _describe_numbers(candidate: Candidate) -> str:
    """Describe a candidate's BM25 score and its features."""
    numbers = [f"bm25 {candidate.bm25:.2f}"]
    numbers += [f"{name} {value:.2f}" for name, value in sorted(candidate.features.items())]
    return f"numbers: {', '.join(numbers)}"


def _describe_words(candidate: Candidate, part: Part) -> str:
    """Describe which of the prompt's words a candidate has, and how many others match about as well.

    `part` is the part of the prompt that found the candidate.
    """
    words = _list_words(part, candidate.matched_terms)
    total = format_count(len(part.terms), "word", "words")
    text = f"has {len(words)} of {total}: {', '.join(words)}"

    title_words = _list_words(part, candidate.title_terms)
    if title_words == words:  # every matching word
        text += ", in its title or tags"
    elif title_words:
        text += f"; in its title or tags: {', '.join(title_words)}"

    rivals = _count_rivals(candidate)
    if rivals > 0:
        text += f"; {format_count(rivals, 'other fits', 'others fit')} about as well"
    return text


def _list_words(part: Part, indexes: Iterable[int]) -> list[str]:
    """List the words at these indexes in a part's terms, in the prompt's order."""
    return [part.terms[index].text for index in sorted(indexes)]


def _count_rivals(candidate: Candidate) -> int:
    """Count the other hits that are about as good as a candidate."""
    # The feature `alone` is 1 divided by the number of equally good hits, including this one.
    equally_good = round(1 / candidate.features["alone"])
    rivals = equally_good - 1

    # For a hit with a single matching word, the feature counts an imaginary rival to lower the confidence.
    # Leave that one out.
    has_single_word = len(candidate.matched_terms) < SEVERAL_TERMS
    if has_single_word:
        rivals -= 1
    return rivals


def get_log_path() -> str:
    """Return the path of the log. The older half has the same path with `.1` added."""
    return environment.INJECTIONS.path()


def add_to_log(
    prompt: str,
    ranked: RankedCandidates,
    shown: context.Shown,
    configured: Settings,
    cost: dict[str, int],
    session: object = None,
) -> None:
    """Log how the hook answered a prompt. If writing fails, the line is lost.

    `cost` has the number of `characters` added to the prompt, and the time in `ms`. `session` is the
    conversation's id as the client sent it. It's left out of the log unless it's a string.
    """
    line: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "project": configured.project,
        "prompt": shorten_to_line(prompt, PROMPT_CHARS),
    }
    if isinstance(session, str) and session:
        line["session"] = environment.digest(session)  # as in the name of the session's file

    line |= _describe_answer(ranked, shown)
    line["judge"] = configured["judge"]
    line["judged"] = ranked.judged_count
    line["dropped"] = ranked.dropped_count
    line |= cost
    _append_to_log(line)


def _describe_answer(ranked: RankedCandidates, shown: context.Shown) -> dict[str, Any]:
    """Build the log's fields about the memories of an answer. Those left out are only counted."""
    injected, mentioned = shown
    left_out = [hit for hit in ranked.candidates if hit not in injected and hit not in mentioned]
    return {
        "pinned": _describe_memories(ranked.pinned),
        "injected": _describe_memories(injected),
        "mentioned": _describe_memories(mentioned),
        "repeated": _describe_memories(ranked.repeated),
        "left_out": len(left_out),
    }


def _describe_memories(hits: list[Candidate]) -> list[dict[str, Any]]:
    """Build the log's objects for memories. The confidence is None if the search program gave none."""
    memories = []
    for hit in hits:
        confidence = round(hit.confidence, 3) if hit.has_confidence else None
        memory = {
            "path": hit.path,
            "title": shorten_to_line(hit.title, _MAX_LOGGED_TITLE_CHARS),
            "confidence": confidence,
            "label": hit.confidence_label,
        }
        memories.append(memory)

    return memories


def _append_to_log(line: dict[str, Any]) -> None:
    """Append a line to the log. If that fails, the line is lost."""
    from judgekit import outputs  # noqa: PLC0415 - only needed to write

    try:
        outputs.append(get_log_path(), f"{quickjson.dumps(line)}\n", MAX_LOG_BYTES)
    except OSError:
        return


def read_log(project: str) -> list[dict[str, Any]]:
    """Read a project's log entries, newest first. Unreadable files and lines are skipped."""
    log = get_log_path()
    older_log = f"{log}.1"  # what the log contained when it was last full

    entries: list[dict[str, Any]] = []
    for path in (log, older_log):
        for line in reversed(_read_log_lines(path)):
            entry = _parse_entry(line)
            if isinstance(entry, dict) and entry.get("project") == project:
                entries.append(entry)
    return entries


def _read_log_lines(path: str) -> list[str]:
    """Read the lines of a log; [] if it can't be read."""
    # The last line can take a log over its limit. Anything much longer isn't our log, so don't read it all.
    max_bytes = 2 * MAX_LOG_BYTES
    try:
        with open(path, "rb") as stream:
            content = stream.read(max_bytes)
    except OSError:
        return []
    return split_lines(content.decode("utf-8", "replace"))


def _parse_entry(line: str) -> object:
    """Parse a line of the log; None if it was cut off, e.g. by a full disk."""
    try:
        return quickjson.loads(line)
    except ValueError:
        return None

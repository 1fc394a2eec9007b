"""The hooks of Claude Code: JSON on stdin, context for the agent on stdout, always exit code 0.

Any other exit code would lose the user's prompt or our answer, so every failure is one line on stderr. Which
event it is stands in the JSON: a prompt is answered, an edited file is read into the index at once, what an
agent leaves when it stops may be judged, and every other event is met with silence.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from judgekit.hooks.context import ShownMemories
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate

SECONDS = 9.0  # for everything, unless an event is known to have longer; with Python's start less than 10
MAX_INPUT = 50_000_000  # bytes
_GARBAGE = 100_000  # objects before a process of milliseconds looks for garbage
PROMPT = "UserPromptSubmit"
_OTHERS = ("PostToolUse", "Stop", "SessionStart")
_PLACES = (  # of the client's JSON that are read
    *("hook_event_name", "prompt", "user_prompt", "cwd", "transcript_path"),
    *("tool_name", "tool_input.file_path", "tool_input.notebook_path"),
    *("session_id", "stop_hook_active"),
)
MIN_PROMPT = 10  # characters; a shorter one ("yes, go on") asks for nothing that is stored
# The event also fires for texts that no person wrote.
NOTIFICATIONS = ("<task-notification>", "<system-reminder>", "[SYSTEM NOTIFICATION", "<cross-session-message")
_EXPLAIN = "--explain"
_WHO = "Claude Code gives its hooks"


class BadInputError(Exception):
    """What stands on stdin is not what the client sends; the message says what was expected."""


def run() -> None:
    """Answer one event as the process that `judgekit.hooks.entries` describes, and end the process.

    It ends without the interpreter's own tidying up, a tenth of the cost of its start.
    """
    gc.set_threshold(_GARBAGE)
    os._exit(guarded([]))


def guarded(arguments: list[str] | None = None) -> int:
    """Do as `main` does, and end after `SECONDS` whatever is going on then."""
    from judgekit.hooks import watchdog  # noqa: PLC0415 - what this module imports, starting Python pays for

    ended = watchdog.split(SECONDS)
    if ended is None:
        return main(arguments)
    if ended[0] is None:
        _warn("the hook ran out of time; nothing added to the prompt")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Answer one event, or explain an answer; return 0 whatever happens. `arguments` are those of `hook`."""
    from judgekit import environment  # noqa: PLC0415 - what this module imports, starting Python pays for

    if environment.is_on("JUDGEKIT_DISABLE"):
        return 0
    try:
        arguments = sys.argv[2:] if arguments is None else arguments
        option, given, first = "".join(arguments[:1]).partition("=")
        if option == _EXPLAIN:
            _explain(" ".join([first, *arguments[1:]] if given else arguments[1:]))
        else:
            _answer(_read_input())
    except BadInputError as error:
        _warn(str(error))
    except KeyboardInterrupt:
        _warn("interrupted; nothing added to the prompt")
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not cost the user a prompt
        _warn(f"internal error; nothing added to the prompt: {type(error).__name__}: {error}")
    return 0


def answer(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return what the hook prints for a prompt's `payload`, and its lines for stderr.

    Raises `BadInputError` when the payload has no prompt.
    """
    prompt = prompt_of(payload)
    if is_silent(prompt):
        return "", []
    from judgekit.hooks import context, settings  # noqa: PLC0415 - many prompts end above

    configured, notes = settings.load(_project(payload))
    if not configured["enabled"]:
        return "", notes
    ranked = context.find(prompt, configured)
    if ranked.notes:
        notes += context.due(configured.project, ranked.notes)
    shown = context.shown_without_judge(ranked, configured)
    if configured["judge"] == "on" and ranked.fallback is None:
        from judgekit.hooks import judged  # noqa: PLC0415 - imports pydantic; only where judging is on

        shown = judged.shown_by_judge(prompt, ranked, payload, configured, notes) or shown
    if configured["log"]:
        from judgekit.hooks import explain  # noqa: PLC0415 - off unless the user asks for it

        explain.add(prompt, ranked, shown, configured)
    return _render(shown, configured), notes


def is_silent(prompt: str) -> bool:
    """Whether a prompt gets no answer: too short, or not written by a person."""
    text = prompt.strip()
    return len(text) < MIN_PROMPT or text.startswith(NOTIFICATIONS)


def prompt_of(payload: Mapping[str, Any]) -> str:
    """Return the prompt in the client's payload, under its present or its old name."""
    for name in ("prompt", "user_prompt"):
        prompt = payload.get(name)
        if isinstance(prompt, str):
            return prompt
        if prompt is not None:
            raise BadInputError(f"stdin: {name}: expected a string, got {type(prompt).__name__}")
    raise BadInputError(f"stdin: prompt: missing; expected the JSON that {_WHO}")


def _render(shown: ShownMemories, configured: Settings) -> str:
    injected = [*shown.pinned, *shown.injected]
    if not injected and not shown.mentioned:
        return _nothing(configured)
    from judgekit.hooks import context, settings  # noqa: PLC0415 - most prompts end above

    described = {candidate.root: settings.descriptions(candidate.root) for candidate in injected}
    text = context.render(shown.pinned, shown.injected, shown.mentioned, configured.project, described)
    return _shown(text, injected) if configured["show"] and injected else text


def _nothing(configured: Settings) -> str:
    if not configured["hint_on_zero"]:
        return ""
    from judgekit.hooks import context  # noqa: PLC0415 - not the usual setting
    from judgekit.retrieval import search  # noqa: PLC0415 - loaded already

    stores = [search.resolve(root, configured.project) for root in configured["roots"]]
    return context.NOTHING_FOUND if any(map(os.path.isdir, stores)) else ""


def _shown(text: str, injected: list[Candidate]) -> str:
    """Return the JSON form, which also tells the user what was added."""
    from judgekit.retrieval import quickjson  # noqa: PLC0415 - loaded already
    from judgekit.text import one_line  # noqa: PLC0415 - the same

    titles = "; ".join(one_line(candidate.title, 80) for candidate in injected)
    output = {"hookEventName": PROMPT, "additionalContext": text}
    return quickjson.dumps({"hookSpecificOutput": output, "systemMessage": f"judgekit recalled: {titles}"})


def _answer(payload: Mapping[str, Any]) -> None:
    event = payload.get("hook_event_name")
    if event in _OTHERS:
        from judgekit.hooks import session  # noqa: PLC0415 - most events are prompts

        text, notes = session.answer(str(event), payload, _project(payload))
    elif event in (None, PROMPT):
        text, notes = answer(payload)
    else:
        return
    for note in notes:
        _warn(note)
    if text:
        _print(text)


def _read_input() -> dict[str, Any]:
    """Return what the client says, by place; raises `BadInputError`."""
    from judgekit.retrieval import quickjson  # noqa: PLC0415 - `--explain` reads nothing

    if sys.stdin is None or sys.stdin.isatty():
        raise BadInputError("stdin: nothing to read; Claude Code runs this command with JSON on stdin")
    raw = sys.stdin.buffer.read(MAX_INPUT)
    if not raw.strip():
        raise BadInputError(f"stdin: empty; expected the JSON that {_WHO}")
    try:
        found = quickjson.extract(raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"), _PLACES)
    except ValueError:
        raise BadInputError(f"stdin: not valid JSON; expected what {_WHO}") from None
    if found is None:
        raise BadInputError(f"stdin: expected a JSON object, as {_WHO}")
    return dict(zip(_PLACES, found, strict=True))


def _project(payload: Mapping[str, Any]) -> str:
    from judgekit import environment  # noqa: PLC0415 - many prompts end before

    cwd = payload.get("cwd")
    if isinstance(cwd, str) and cwd and "\0" not in cwd:
        return environment.project_root(cwd)
    try:
        return environment.project_root(os.getcwd())
    except FileNotFoundError:  # the folder was deleted: below its name there is nothing to find
        return environment.project_root(os.sep)


def _explain(prompt: str) -> None:
    from judgekit.hooks import explain  # noqa: PLC0415 - for people, not for the client

    _print(explain.report(prompt, os.getcwd(), silent=is_silent(prompt)))


def _print(text: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write((text + "\n").encode("utf-8", "replace"))
        sys.stdout.flush()
    except OSError:  # nobody reads: without this the interpreter would fail again, and loudly, at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _warn(line: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"judgekit: {' '.join(line.split())}\n".encode("ascii", "backslashreplace").decode())
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

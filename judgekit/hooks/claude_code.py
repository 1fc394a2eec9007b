"""The hooks of Claude Code, Codex and Gemini: JSON on stdin, context for the agent on stdout, exit code 0.

Any other exit code would lose the user's prompt or our answer, so every failure is one line on stderr. The
JSON names the event, which Gemini calls by other names: a prompt is answered, a session's start warms the
engine, an edited memory is indexed, what an agent leaves when it stops may be judged, and every other event
is met with silence.
"""

from __future__ import annotations

import gc
import os
import sys

from judgekit import environment
from judgekit.retrieval import quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SECONDS = (
    9.0  # for everything, unless an event is known to have longer; with Python's start less than 10
)
STOP_GRACE = (
    8.0  # seconds beside its deadline in which a stop is judged, for imports, files and the ledger
)
MAX_INPUT = 50_000_000  # bytes
_GARBAGE = 100_000  # objects before a process of milliseconds looks for garbage
PROMPT = "UserPromptSubmit"
GEMINI_PROMPT = "BeforeAgent"
TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "write_file", "replace")
_MOST_SHOWN = 60  # characters of an argument
MIN_PROMPT = 10  # characters; a shorter one ("yes, go on") asks for nothing that is stored
# The event also fires for texts that no person wrote.
NOTIFICATIONS = (
    "<task-notification>",
    "<system-reminder>",
    "[SYSTEM NOTIFICATION",
    "<cross-session-message",
)
FORGETTING = ("compact", "clear")  # sources of a session's start after which its context is gone
_WHO = "coding agents give their hooks"


class BadInputError(Exception):
    """The text on stdin is not what the client sends; the message says what was expected."""


def run() -> None:
    """Answer one event as the process that `judgekit.hooks.entries` describes, and end the process."""
    gc.set_threshold(_GARBAGE)
    environment.ends_at_once = True
    os._exit(guarded([]))  # the interpreter's own tidying up would cost a tenth of its start


def guarded(arguments: list[str] | None = None) -> int:
    """Do as `main` does, and end this process after `SECONDS`, whatever is going on then."""
    from judgekit.hooks import watchdog  # noqa: PLC0415 - where this answers in a program, nothing is limited

    watchdog.limit(SECONDS, _end)
    return main(arguments)


def _end() -> None:
    _warn("the hook ran out of time; nothing added to the prompt")
    os._exit(0)


def main(arguments: list[str] | None = None) -> int:
    """Answer one event, or explain answers; return 0 whatever happens. `arguments` are those of `hook`."""
    if environment.is_on("JUDGEKIT_DISABLE"):
        return 0
    notes: list[str] = []
    unknown = ""
    try:
        if arguments is None:
            arguments = sys.argv[2:]
        option, given, first = "".join(arguments[:1]).partition("=")
        unknown = _unknown_option(arguments)
        if option == "--explain":
            from judgekit.hooks import explain  # noqa: PLC0415 - for people, not for the client

            prompt = " ".join([first] * bool(given) + arguments[1:])
            text = explain.report(prompt, os.getcwd(), silent=is_silent(prompt))
        elif "--stats" in arguments:
            from judgekit.hooks import stats  # noqa: PLC0415 - for people, not for the client

            text = stats.report(os.getcwd(), as_json="--json" in arguments)
        else:
            payload = _read_input()
            event = payload.get("hook_event_name")
            text = ""
            if event in (None, PROMPT, GEMINI_PROMPT):
                text, notes = answer(payload)
            elif event in ("PostToolUse", "AfterTool"):
                _refresh(payload)
            elif event == "SessionStart":
                if payload.get("source") in FORGETTING:
                    _forget(payload)
                begin(_project(payload))
            # Gemini sends "auto" with every prompt, whether it compacts or not.
            elif event == "PostCompact" or (
                event == "PreCompress" and payload.get("trigger") == "manual"
            ):
                _forget(payload)
            elif event in ("Stop", "AfterAgent"):
                text, notes = _stop(payload)
        for note in filter(None, (unknown, *notes)):
            _warn(note)
        if text:
            _write(sys.stdout, 1, text.encode("utf-8", "replace"))
    except BadInputError as error:
        _warn(unknown or str(error))
    except KeyboardInterrupt:
        _warn("interrupted; nothing added to the prompt")
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not cost the user a prompt
        _warn(f"internal error; nothing added to the prompt: {type(error).__name__}: {error}")
    return 0


def _unknown_option(arguments: list[str]) -> str:
    """Say which argument is no option of `hook`; "" where there is none."""
    if "".join(arguments[:1]).partition("=")[0] == "--explain":  # the others are the prompt
        return ""
    for argument in arguments:
        if argument not in ("--stats", "--json"):
            return (
                f"{argument[:_MOST_SHOWN]}: no such option; judgekit hook --help lists the options"
            )
    return ""


def answer(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return what the hook prints, and its lines for stderr; raises `BadInputError` without a prompt."""
    name = "prompt" if payload.get("prompt") is not None else "user_prompt"
    prompt = payload.get(name)
    if prompt is None:
        raise BadInputError(f"stdin: prompt: missing; expected the JSON that {_WHO}")
    if not isinstance(prompt, str):
        raise BadInputError(f"stdin: {name}: expected a string, got {type(prompt).__name__}")
    if is_silent(prompt):
        return "", []
    from judgekit.hooks import context, settings  # noqa: PLC0415 - many prompts end above

    configured, notes = settings.load(_project(payload))
    if not configured["enabled"]:
        return "", notes
    ranked = context.find(prompt, configured)
    if ranked.notes:
        notes += context.due(configured.project, ranked.notes)
    told = context.session_of(payload, configured)
    if told is not None:
        told.hold_back(ranked, prompt)
    shown = context.shown_without_judge(ranked, configured)
    if configured["judge"] == "on" and ranked.fallback is None:
        from judgekit.hooks import judged  # noqa: PLC0415 - imports pydantic; only where judging is on

        shown = judged.shown_by_judge(prompt, ranked, payload, configured, notes) or shown
    found_any = any(shown) or ranked.repeated
    shown = context.unrepeated(shown, told, prompt)
    if told is not None:
        told.add(*shown)
    if configured["log"]:
        from judgekit.hooks import explain  # noqa: PLC0415 - off unless the user asks for it

        explain.add(prompt, ranked, shown, configured, payload.get("session_id"))
    injected, _ = shown
    described = {}
    for hit in (*ranked.pinned, *injected):
        described[hit.root] = settings.descriptions(hit.root)
    text = context.render(ranked.pinned, shown, configured.project, described)
    if not text and not found_any and configured["hint_on_zero"]:
        from judgekit.retrieval import search  # noqa: PLC0415 - loaded already

        stores = [search.resolve(root, configured.project) for root in configured["roots"]]
        if configured["command"] or any(map(os.path.isdir, stores)):
            text = context.nothing_found()
        else:
            text = ""
    if configured["show"]:
        titles = [candidate.title for candidate in (*ranked.pinned, *injected)]
    else:
        titles = []
    is_gemini = payload.get("hook_event_name") == GEMINI_PROMPT
    return context.format_output(text, titles, is_gemini=is_gemini), notes


def is_silent(prompt: str) -> bool:
    """Whether a prompt gets no answer: too short, or not written by a person."""
    text = prompt.strip()
    return len(text) < MIN_PROMPT or text.startswith(NOTIFICATIONS)


def begin(project: str) -> None:
    """Start the engine, unless it runs or prompts are not judged here."""
    from judgekit.hooks import settings  # noqa: PLC0415 - many prompts need no settings

    configured, _ = settings.load(project)  # what is wrong there the first prompt says
    if configured["enabled"] and configured["judge"] == "on" and settings.engine_wanted(configured):
        from judgekit.engine import client  # noqa: PLC0415 - where prompts are not judged, no engine is needed

        try:
            client.start_for_later()
        except client.NoEngine:  # in vain lately; the first prompt says so
            return


def _forget(payload: Mapping[str, Any]) -> None:
    from judgekit.hooks import repeats  # noqa: PLC0415 - most sessions start anew

    repeats.forget(str(payload.get("session_id")))


def _refresh(payload: Mapping[str, Any]) -> None:
    """Read the file that a tool wrote into the indexes that hold it; nothing is printed."""
    told = payload.get("tool_input")
    if isinstance(told, dict):
        path = told.get("file_path") or told.get("notebook_path")
    else:
        path = None
    if payload.get("tool_name") not in TOOLS or not isinstance(path, str) or "\0" in path:
        return
    from judgekit.retrieval.compiled import ENDINGS  # noqa: PLC0415 - most tools write no file

    if not path.lower().endswith(ENDINGS):
        return
    from judgekit.hooks import settings  # noqa: PLC0415 - most edits end above
    from judgekit.retrieval import index  # noqa: PLC0415 - the same

    project = _project(payload)
    configured, _ = settings.load(project)
    if configured["enabled"]:
        index.refresh_file(
            os.path.join(str(payload.get("cwd") or project), path), configured.profiles
        )


def _stop(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return what the hook prints when an agent stops, and its lines for stderr; a failure lets it stop."""
    if payload.get(
        "stop_hook_active"
    ):  # it goes on because of a hook already: never twice in a row
        return "", []
    from judgekit.hooks import settings  # noqa: PLC0415 - a second stop ends above

    project = _project(payload)
    # The next prompt says what is wrong there.
    configured = settings.load(project)[0].values.get("stop", {})
    if configured.get("judge") != "on":
        return "", []
    from judgekit import programs  # noqa: PLC0415 - only where it is switched on
    from judgekit.hooks import watchdog  # noqa: PLC0415 - the same

    watchdog.extend(configured["deadline"] + STOP_GRACE)
    programs.make_importable()
    from judgekit.hooks import stop  # noqa: PLC0415 - imported only after what it needs can be

    return stop.answer(payload, project, configured)


def _read_input() -> dict[str, Any]:
    """Return what the client says; raises `BadInputError`."""
    if sys.stdin is None or sys.stdin.isatty():
        raise BadInputError(
            "stdin: nothing to read; a coding agent runs this command with JSON on stdin"
        )
    raw = sys.stdin.buffer.read(MAX_INPUT)
    if not raw.strip():
        raise BadInputError(f"stdin: empty; expected the JSON that {_WHO}")
    try:
        payload: Any = quickjson.loads(raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    except ValueError:
        raise BadInputError(f"stdin: not valid JSON; expected what {_WHO}") from None
    if not isinstance(payload, dict):
        raise BadInputError(f"stdin: expected a JSON object, as {_WHO}")
    return payload


def _project(payload: Mapping[str, Any]) -> str:
    cwd = payload.get("cwd")
    if isinstance(cwd, str) and cwd and "\0" not in cwd:
        return environment.project_root(cwd)
    try:
        return environment.project_root(os.getcwd())
    except FileNotFoundError:  # the folder was deleted: below its name there is nothing to find
        return environment.project_root(os.sep)


def _warn(line: str) -> None:
    _write(sys.stderr, 2, f"judgekit: {' '.join(line.split())}".encode("ascii", "backslashreplace"))


def _write(stream: Any, descriptor: int, line: bytes) -> None:  # noqa: ANN401 - a text stream, or None
    try:
        if stream is not None:
            stream.buffer.write(line + b"\n")
            stream.flush()
    except (
        OSError
    ):  # nobody reads: without this the interpreter would fail again, and loudly, at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

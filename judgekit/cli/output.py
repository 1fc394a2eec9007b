"""What commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import enum
import math
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from judgekit.errors import Exit, UsageError
from judgekit.text import escaped, lines_of, rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.providers.base import Message


class Format(enum.StrEnum):
    """How verdicts are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    SARIF = "sarif"
    JUNIT = "junit"


COLOURS = {
    "accept": typer.colors.GREEN,
    "improve": typer.colors.YELLOW,
    "reject": typer.colors.RED,
    "escalate": typer.colors.MAGENTA,
    "undetermined": typer.colors.MAGENTA,
}
_COST_SOURCES = {
    "provider": " (as the provider reports)",
    "profile": " (by the prices of the provider's profile)",
    "litellm": " (by litellm's prices)",
    "cache": " (all replies cached)",
    "mixed": " (from several sources)",
}
_CONTROL: Final = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""What terminals take for a command, but for colours, tabs and line breaks."""


def warn(line: str) -> None:
    """Print one line to stderr, marked as ours; nothing where there is no stderr."""
    if sys.stderr is not None:
        uncoloured = line.replace("\x1b", "\\x1b")  # no complaint of ours has colours
        sys.stderr.write(f"judgekit: {printable(uncoloured)}\n")


def say(text: str = "") -> None:
    """Print a result for people, in colour on a terminal unless NO_COLOR is set.

    Raises `typer.Exit` when nobody reads any more.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        typer.echo(printable(text), color=False if plain else None)
    except BrokenPipeError:
        raise _output_lost() from None


def emit(text: str) -> None:
    """Print a result for programs: UTF-8, whatever the terminal's encoding is."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{text}\n".encode())
        sys.stdout.flush()
    except BrokenPipeError:
        raise _output_lost() from None


def _output_lost() -> typer.Exit:
    # The interpreter must not try, and fail loudly, again at its exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(Exit.OUTPUT_LOST)


def printable(text: str) -> str:
    """Return text that any terminal's encoding takes and no terminal obeys: all else is escaped.

    Colours pass, which are our own; what comes from elsewhere is escaped where it is put into a line.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


# Interruptions

AGAIN = "run the same command to continue"
REPLIES = "complete replies are cached"
_KEPT = {
    **dict.fromkeys(("judge", "compare", "search", "gate", "calibrate", "eval"), f": {REPLIES}; {AGAIN}"),
    "demo": f": what was downloaded is kept; {AGAIN}",
    "index": ": what was read is kept; the same command starts over, the next query reads only the rest",
    **dict.fromkeys(("kpi", "triage"), "; the ledger is unchanged"),
}
_said: list[str] = []


def keeps(told: str, mark: str = ":") -> None:
    """Tell what is kept should the command be interrupted now; it replaces what was told before."""
    _said[:] = [f"{mark} {told}"]


def interrupted(command: str) -> str:
    """Return the line that an interrupted command ends with."""
    return f"interrupted{_said.pop() if _said else _KEPT.get(command, '')}"


# Options

NoEngine = Annotated[bool, typer.Option("--no-engine", help="Judge in this process, without the engine.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def finite(given: float | None) -> float | None:
    """Return a number that was given; raises `typer.BadParameter` for one without an end, or none at all."""
    if given is not None and not math.isfinite(given):
        raise typer.BadParameter(f"expected a number, got {given:g}")
    return given


FAMILY = ("--author-family", "a family such as anthropic")


def check_filled(option: str, expected: str, *given: str | None) -> None:
    """Raise `UsageError` for an option that is given and empty, as where a script's variable is unset."""
    if any(value is not None and not value.strip() for value in given):
        raise UsageError(f"{option}: expected {expected}, got nothing; is a variable unset?")


# Verdicts and prompts for people


def tell_sent(providers: Iterable[str], secrets: int = 0) -> None:
    """Say how many secrets were left out, and which providers were asked because of who wrote a text."""
    if secrets:
        were = "1 secret was" if secrets == 1 else f"{secrets} secrets were"
        warn(f"{were} removed before sending")
    if names := ", ".join(sorted(set(providers))):
        warn(
            f"{names}: used in place of models of the author's family; set providers.allow in your own "
            "configuration to choose the allowed providers"
        )


def say_messages(title: str, messages: Iterable[Message]) -> None:
    """Print a prompt as it would be sent, under a title."""
    parts = (f"--- {message.role}\n{message.content}" for message in messages)
    say("\n".join([f"=== {escaped(title)}", *parts]))


def coloured(word: str, kind: str) -> str:
    """Return a word in the colour of a verdict."""
    return typer.style(word, fg=COLOURS[kind], bold=True)


def verdict_text(verdict: Mapping[str, Any], *, headed: bool = True, degraded: bool = True) -> str:
    """Return a verdict's record as a person wants to read it: the word, the scores, why, what to mend.

    Not `headed`, the word and the name are left out, and not `degraded` why no model answered: they are
    printed elsewhere.
    """
    scores = "".join(f"  {name} {value:g}" for name, value in (verdict["scores"] or {}).items())
    mean = f"  mean {verdict['average']:g}" if verdict["average"] is not None else ""
    word = coloured(verdict["verdict"].upper().ljust(12), verdict["verdict"])
    name = escaped(verdict["task_id"].rpartition("@")[0] or verdict["task_id"])
    first = f"{word}  {name}{mean}{scores}" if headed else f"{mean}{scores}".strip()
    lines = [*filter(None, [first]), _judges(verdict), *partiality(verdict)]
    if verdict["degraded"] and degraded:
        lines.append(f"degraded: {verdict['degraded']}")
    if verdict["reasoning"]:
        lines.append(verdict["reasoning"])
        # Dimensions of which, by their terms, neither the reasoning nor a finding speaks; an older record has
        # no terms.
        deciding = [each["opinion"] for each in verdict["rounds"] if each["tier"] == verdict["judge_tier"]]
        terms = {name for opinion in deciding for name in (opinion or {}).get("dimensions", ())}
        spoken = {*terms, *(finding["dimension"] for finding in verdict["findings"])}
        unspoken = [name for name in verdict["scores"] or {} if name not in spoken]
        lines += [f"no reason given for {', '.join(unspoken)}"] if terms and unspoken else []
    for finding in verdict["findings"]:
        where = " in ".join(part for part in (finding["dimension"], finding["location"]) if part)
        lines.append(f"- {where + ': ' if where else ''}{finding['issue']}")
        lines += [f'  > "{finding["quote"]}"'] if finding["quote"] else []
        lines += [f"  -> {finding['suggestion']}"] if finding["suggestion"] else []
    return "\n".join([lines[0], *(f"    {line}" for text in lines[1:] for line in lines_of(text))])


def partiality(verdict: Mapping[str, Any]) -> list[str]:
    """Say, where it is so, that nobody judged a text but models of the family that wrote it."""
    if verdict.get("independent") is not False:
        return []
    return [f"not independent: judged by models of the author's family ({verdict['author']['family']})"]


def _judges(verdict: Mapping[str, Any]) -> str:
    """Return by which rubric and models a verdict came about, how fast and for how much."""
    ref = f"{verdict['rubric']['id']}@{verdict['rubric']['version']}"
    rubric = f"{rubric_name(ref, verdict['rubric'].get('source'))}, {verdict['mode']}"
    if not verdict["rounds"]:
        return rubric
    rounds = []
    for each in verdict["rounds"]:
        opinion, failure = each["opinion"], each["failure"]
        rounds.append(f"{each['tier']} {opinion['outcome'] if opinion else failure and failure['kind']}")
    model = verdict["model"]
    decided = f"decided by {model} ({verdict['consensus']})" if model else "undecided"
    seconds = f"{verdict['duration_ms'] / 1000:.1f} s{cost_text(verdict)}"
    return f"{rubric}; {', '.join(rounds)}; {decided}, {seconds}"


def cost_text(verdict: Mapping[str, Any]) -> str:
    """Return what a judging cost, who says so, and whether calls are left out; it continues a line."""
    cost, incomplete = verdict["cost_usd"], verdict.get("cost_complete") is False
    if verdict.get("cost_source") == "local":
        return ", cost 0 (local)"
    if cost is not None:
        return f", {'at least ' * incomplete}${cost:.4f}{source_text(verdict.get('cost_source'))}"
    if not incomplete:
        return ""
    unpriced = [each for each in verdict["rounds"] if (each.get("usage") or {}).get("unpriced_calls")]
    models = dict.fromkeys(each["model"] for each in unpriced if each["opinion"])
    reason = f"no price for {', '.join(models)}" if models else "a call that failed may have been charged"
    return f", cost unknown ({reason})"


def source_text(source: str | None) -> str:
    """Return who says what something cost, in brackets; "" where that is not known."""
    return _COST_SOURCES.get(source or "", "")

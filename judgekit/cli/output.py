"""What commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import enum
import math
import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

from judgekit.errors import Exit, JudgekitError, UsageError
from judgekit.text import escaped, lines_of, rubric_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
    "provider": "the provider says so",
    "profile": "by the prices in its profile",
    "litellm": "by litellm's prices",
    "cache": "all replies were kept",
    "mixed": "from several sources",
}


UNCHANGED = "the ledger is as it was"  # what an interrupted report leaves
_COMMAND: Final = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""What terminals take for a command, but for colours, tabs and line breaks."""


def warn(line: str) -> None:
    """Print one line to stderr, marked as ours; nothing where there is no stderr."""
    if sys.stderr is not None:
        uncoloured = line.replace("\x1b", "\\x1b")  # no complaint of ours has colours
        sys.stderr.write(f"judgekit: {printable(uncoloured)}\n")


class InterruptedCommandError(JudgekitError):
    """Somebody stopped a command; the text says what was kept."""

    exit_code = Exit.INTERRUPTED


@contextmanager
def kept(what: Callable[[], str]) -> Iterator[None]:
    """Turn an interruption while this is entered into an error that says what was kept."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        raise InterruptedCommandError(f"interrupted; {what()}") from None


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
    text = _COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def tell_redacted(secrets: int) -> None:
    """Say how many secrets were left out, where there are any."""
    if secrets:
        were = "1 secret was" if secrets == 1 else f"{secrets} secrets were"
        warn(f"{were} left out of what is sent")


def tell_substitutes(providers: Iterable[str]) -> None:
    """Say which providers were asked because of who wrote a text, where any was."""
    names = ", ".join(sorted(set(providers)))
    if names:
        warn(
            f"{names}: asked in place of models of the author's own family; providers.allow in your own "
            "configuration says which providers may be asked"
        )


def finite(given: float | None) -> float | None:
    """Return a number that was given; raises `typer.BadParameter` for one without an end, or none at all."""
    if given is not None and not math.isfinite(given):
        raise typer.BadParameter(f"expected a number, got {given:g}")
    return given


def check_family(given: str | None) -> None:
    """Raise `UsageError` for an author family that is empty, as where a script's variable is unset."""
    check_filled("--author-family", given, "a family such as anthropic")


def check_filled(option: str, given: str | None, expected: str) -> None:
    """Raise `UsageError` for an option that is given and empty, as where a script's variable is unset."""
    if given is not None and not given.strip():
        raise UsageError(f"{option}: expected {expected}, got nothing; is a variable unset?")


def messages_text(title: str, messages: Iterable[Message]) -> str:
    """Return a prompt as it would be sent, under a title."""
    return "\n".join(
        [f"=== {escaped(title)}", *(f"--- {message.role}\n{message.content}" for message in messages)]
    )


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
    lines = [*filter(None, [first]), _who(verdict), *partiality(verdict)]
    if verdict["degraded"] and degraded:
        lines.append(f"degraded: {verdict['degraded']}")
    if verdict["reasoning"]:
        lines.append(verdict["reasoning"])
        unspoken = _unspoken(verdict)
        lines += [f"nothing is said about {', '.join(unspoken)}"] if unspoken else []
    for each in verdict["findings"]:
        where = " in ".join(part for part in (each["dimension"], each["location"]) if part)
        lines.append(f"- {where + ': ' if where else ''}{each['issue']}")
        lines += [f'  > "{each["quote"]}"'] if each["quote"] else []
        lines += [f"  -> {each['suggestion']}"] if each["suggestion"] else []
    return "\n".join([lines[0], *(f"    {line}" for text in lines[1:] for line in lines_of(text))])


def partiality(verdict: Mapping[str, Any]) -> list[str]:
    """Say, where it is so, that nobody judged a text but models of the family that wrote it."""
    if verdict.get("independent") is not False:
        return []
    return [f"not independent: judged by models of its author's own family ({verdict['author']['family']})"]


def _unspoken(verdict: Mapping[str, Any]) -> list[str]:
    """Return the dimensions of which, by their terms, neither the reasoning nor a finding speaks."""
    deciding = [each["opinion"] or {} for each in verdict["rounds"] if each["tier"] == verdict["judge_tier"]]
    told = {name for opinion in deciding for name in opinion.get("dimensions", ())}
    if not told:  # an older record, or words by which nothing can be told
        return []
    spoken = {*told, *(each["dimension"] for each in verdict["findings"])}
    return [name for name in verdict["scores"] or {} if name not in spoken]


def _who(verdict: Mapping[str, Any]) -> str:
    own = verdict["rubric"]
    ref = f"{own['id']}@{own['version']}"
    rubric = f"{rubric_name(ref, own.get('source'))}, {verdict['mode']}"
    if not verdict["rounds"]:
        return rubric
    rounds = ", ".join(map(_round, verdict["rounds"]))
    model = verdict["model"]
    decided = f"decided by {model} ({verdict['consensus']})" if model else "decided by nobody"
    cost = cost_text(verdict)
    return f"{rubric}; {rounds}; {decided}, {verdict['duration_ms'] / 1000:.1f} s{cost}"


def cost_text(verdict: Mapping[str, Any]) -> str:
    """Return what a judging cost, who says so, and whether calls are left out; it continues a line."""
    cost, complete = verdict["cost_usd"], verdict.get("cost_complete")
    if verdict.get("cost_source") == "local":
        return ", cost 0 (local)"
    if cost is None:
        return f", cost unknown ({_unpriced(verdict)})" if complete is False else ""
    least = "at least " if complete is False else ""
    return f", {least}${cost:.4f}{source_text(verdict.get('cost_source'))}"


def _unpriced(verdict: Mapping[str, Any]) -> str:
    """Say of which calls nobody says what they cost."""
    rounds = [each for each in verdict["rounds"] if (each.get("usage") or {}).get("unpriced_calls")]
    models = dict.fromkeys(each["model"] for each in rounds if each["opinion"])
    return f"no price for {', '.join(models)}" if models else "a call that failed may have been charged"


def source_text(source: str | None) -> str:
    """Return who says what something cost, in brackets; "" where that is not known."""
    said = _COST_SOURCES.get(source or "")
    return f" ({said})" if said else ""


def _round(record: Mapping[str, Any]) -> str:
    opinion, failure = record["opinion"], record["failure"]
    return f"{record['tier']} {opinion['outcome'] if opinion else failure and failure['kind']}"

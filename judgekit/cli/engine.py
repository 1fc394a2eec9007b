"""`judgekit engine`: the process that is kept ready for judging; start, see and stop it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgekit.cli.output import emit, say, warn
from judgekit.errors import Exit
from judgekit.hooks import session

if TYPE_CHECKING:
    from judgekit.engine.process import Known

app = typer.Typer(no_args_is_help=True, help="The process that is kept ready for judging.")

_START_SECONDS = 60.0  # a slow disk, a busy machine


@app.command()
def start() -> int:
    """Start the engine, unless it runs, and wait until it is ready."""
    from judgekit.config import settings
    from judgekit.engine import process

    settings.load(None)  # one that is wrong is said here, where somebody reads it
    known = process.start(_START_SECONDS)
    if known is None:
        warn("no engine could be started here; judging works without, see docs/engine.md for why")
        return Exit.INTERNAL
    _print(known)
    return 0


@app.command()
def stop(
    now: Annotated[bool, typer.Option("--now", help="Do not let it finish what it was asked.")] = False,
) -> int:
    """Stop the engine, and those of other versions; they finish what they were asked."""
    from judgekit.engine import process

    known = process.running()
    for each in known:
        if process.stop(each.place, at_once=now, leaving=each.leaving):
            say(f"{each.place.socket}: stopped")
        else:
            say(f"{each.place.socket}: takes no more work, and ends with what it has; --now ends it at once")
    if not known:
        say("no engine runs")
    return 0


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Say which engines run: process, version, since when, requests, memory, socket and log."""
    from judgekit.engine import process

    known = process.running()
    if as_json:
        emit(json.dumps({"engines": [_record(each) for each in known]}))
        return 0
    for each in known:
        _print(each)
    if not known:
        said = "the first command that judges starts one" if session.wanted() else "here none is wanted"
        say(f"no engine runs; {said}")
    return 0


def _record(known: Known) -> dict[str, Any]:
    left = {"pid": known.leaving, "leaving": True} if known.leaving else {}
    return {**(known.health or {}), **left, "socket": known.place.socket, "log": known.place.log}


def _print(known: Known) -> None:
    told = known.health
    if known.leaving:
        say(f"process {known.leaving}: leaving, when it is done; judgekit engine stop --now ends it at once")
    elif told is None:
        say("an engine that does not answer; judgekit engine stop ends it")
    else:
        state = "leaving" if told["leaving"] else "ready" if told["ready"] else "starting"
        memory = f"{told['rss_bytes'] / 1e6:.0f} MB"
        say(f"engine {told['version']}, process {told['pid']}: {state} since {told['since']}, {memory}")
        say(f"    {told['requests']:,} requests, {told['waiting']:,} of them not answered yet")
    say(f"    socket {known.place.socket}")
    say(f"    log    {known.place.log}")

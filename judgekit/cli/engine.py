"""`judgekit engine`: the process that's kept ready for judging; `serve`: a team's shared judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from judgekit.cli.options import AsJson
from judgekit.cli.output import emit, note, say, warn
from judgekit.engine import process
from judgekit.errors import Exit, UsageError
from judgekit.hooks.settings import is_engine_wanted
from judgekit.text import format_count

if TYPE_CHECKING:
    from judgekit.engine.admission import Tokens

app = typer.Typer(no_args_is_help=True, help="The background process that keeps judging fast.")
_START_SECONDS = 60.0  # long enough for a slow disk or a busy machine


@app.command()
def start() -> int:
    """Start the engine, unless it runs, and wait until it is ready."""
    from judgekit.config import settings

    settings.load(None)  # so that a person sees errors in the settings here
    engine = process.start(_START_SECONDS)
    if engine is None:
        warn("the engine could not start; judging works without it (see docs/engine.md)")
        return Exit.INTERNAL
    _print_engine(engine)
    return 0


@app.command()
def stop(now: Annotated[bool, Option("--now", help="Abort running requests.")] = False) -> None:
    """Stop the engine and engines of other versions after they finish their requests."""
    engines = process.list_running_engines()
    for engine in engines:
        if process.stop(engine, at_once=now):
            outcome = "stopped"
        else:
            outcome = "stops after its running requests; --now stops it at once"
        say(f"{engine.address.socket_path}: {outcome}")
    if not engines:
        say("no engine is running")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show running engines: process, version, start time, requests, memory, socket and log."""
    engines = process.list_running_engines()
    if as_json:
        emit(json.dumps({"engines": [_build_engine_record(engine) for engine in engines]}))
        return

    for engine in engines:
        _print_engine(engine)
    if not engines:
        why = "it is switched off here"
        if is_engine_wanted():
            why = "the first command that judges starts one"
        say(f"no engine is running; {why}")


def _build_engine_record(engine: process.Running) -> dict[str, Any]:
    """Build an engine's JSON record, including its own health report if it responds."""
    health = process.query_health(engine.address) or {}
    return {
        "pid": engine.pid,
        "leaving": engine.is_shutting_down,
        **health,  # overrides our `pid` and `leaving`
        "socket": engine.address.socket_path,
        "log": engine.address.log_path,
    }


def _print_engine(engine: process.Running) -> None:
    """Print an engine's state, and its socket and log paths."""
    if engine.is_shutting_down:  # its socket is closed already, so we can't query it
        remedy = "judgekit engine stop --now stops it at once"
        say(f"process {engine.pid}: stops after its running requests; {remedy}")
    else:
        health = process.query_health(engine.address)
        if health is None:
            say("an engine does not answer; judgekit engine stop ends it")
        else:
            _print_health(health)

    say(f"    socket {engine.address.socket_path}")
    say(f"    log    {engine.address.log_path}")


def _print_health(health: dict[str, Any]) -> None:
    """Print an engine's health report: its state, memory and requests."""
    if health["leaving"]:  # the engine is about to close its socket
        state = "leaving"
    elif health["ready"]:
        state = "ready"
    else:
        state = "starting"

    memory = f"{health['rss_bytes'] / 1e6:.0f} MB"
    engine_name = f"engine {health['version']}, process {health['pid']}"
    say(f"{engine_name}: {state} since {health['since']}, {memory}")
    requests = format_count(health["requests"], "request", "requests")
    say(f"    {requests}, {health['waiting']:,} unanswered")


serving = typer.Typer(help="A shared judge for a team.", invoke_without_command=True)
token = typer.Typer(no_args_is_help=True, help="Tokens of the shared judge.")
serving.add_typer(token, name="token")


@serving.callback()
def serve_team(
    context: typer.Context,
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 8399,
    tls_cert: Annotated[
        Path | None, Option(metavar="FILE", help="TLS certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="TLS private key (PEM).")] = None,
    project: Annotated[
        Path | None, Option(metavar="DIR", help="Also use this project's settings.")
    ] = None,
) -> None:
    """Judge for others with the keys of this machine, until stopped by a signal."""
    if context.invoked_subcommand is None:
        from judgekit.engine.team_server import serve

        serve(host, port, project, certificate=tls_cert, key=tls_key, on_start=note)


@serving.command()
def migrate(
    runtime_role: Annotated[
        str | None, Option(metavar="ROLE", help="Also grant this role what the servers need.")
    ] = None,
) -> None:
    """Create or upgrade the tables in the store (server.store), as their owner."""
    from judgekit.config import settings
    from judgekit.ledger.database import Database

    store = settings.load(None).server.store
    if store is None:
        raise UsageError("no store is set up; server.store in your own configuration names it")
    applied = Database(store).migrate(runtime_role)
    for name in applied:
        say(f"applied {name}")
    say("the schema is complete" if applied else "nothing to do: the schema is complete")


@token.command()
def create(name: Annotated[str, Argument(help="Name of the token's owner.")]) -> None:
    """Create a token and print it once; only its hash is stored."""
    say(_load_tokens().create(name))


@token.command("list")
def list_() -> None:
    """List the tokens: owner and date."""
    tokens = _load_tokens()
    for owner_token in tokens.all():
        say(f"{owner_token.name}  since {owner_token.created.date()}")
    for name in tokens.list_damaged_names():
        remedy = "remove it with judgekit serve token revoke"
        warn(f"{name}: no token, and nobody is let in by it; {remedy}")


@token.command()
def revoke(name: Annotated[str, Argument(help="Name of the token's owner.")]) -> None:
    """Revoke a token; its next request is refused (after a second, if servers share a store)."""
    _load_tokens().revoke(name)
    say(f"{name}: token revoked")


def _load_tokens() -> Tokens:
    from judgekit.config import settings
    from judgekit.engine.replicas import open_tokens

    return open_tokens(settings.load(None))

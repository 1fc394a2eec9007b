"""`judgekit serve`: the shared judge of a team, and who may ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli.output import say, warn

app = typer.Typer(help="The shared judge of a team.", invoke_without_command=True)
token = typer.Typer(no_args_is_help=True, help="Who may ask the shared judge.")
app.add_typer(token, name="token")


@app.callback()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8399,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")] = None,
    project: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Judge by the rubrics and settings of this project, too."),
    ] = None,
) -> int:
    """Judge for others, with the keys of this machine, until a signal ends it."""
    if context.invoked_subcommand is not None:
        return 0
    from judgekit.engine.team import Address, serve

    serve(Address(host, port, tls_cert, tls_key), project, lambda where: warn(f"judging at {where}"))
    return 0


@token.command()
def create(name: Annotated[str, typer.Argument(help="Whose it is.")]) -> int:
    """Make a token and print it, this once: only a hash of it is kept."""
    from judgekit.engine.tokens import user_tokens

    say(user_tokens().create(name))
    return 0


@token.command("list")
def list_() -> int:
    """Show who has a token, and since when."""
    from judgekit.engine.tokens import user_tokens

    for each in user_tokens().all():
        say(f"{each.name}  since {each.created.date()}")
    return 0


@token.command()
def revoke(name: Annotated[str, typer.Argument(help="Whose it is.")]) -> int:
    """Take a token back; the next request with it is refused."""
    from judgekit.engine.tokens import user_tokens

    user_tokens().revoke(name)
    say(f"{name}: no longer let in")
    return 0

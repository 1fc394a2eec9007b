"""`judgekit config`: the settings that hold here; `cache`: the replies of models that are kept."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated

import typer
from typer import Option

from judgekit import environment
from judgekit.cli.options import AsJson, OutOption
from judgekit.cli.output import emit, project_path, say
from judgekit.errors import InputError, UsageError
from judgekit.text import counted

config = typer.Typer(no_args_is_help=True, help="The configuration: what holds here, and why.")
cache = typer.Typer(no_args_is_help=True, help="Kept replies of models: status and clear.")
_SECRET = re.compile(r"KEY|TOKEN")


@config.command()
def show(as_json: AsJson = False, _out: OutOption = None) -> None:
    """Show each setting, its value and where it comes from, then the variables that are set; no secrets.

    Options of a command go before all of this.
    """
    from pydantic import TypeAdapter

    from judgekit.config import settings
    from judgekit.ledger.records import Address
    from judgekit.redaction.redact import without_secrets

    found = settings.explained(project_path())
    for name in environment.NAMES:
        if name not in settings.VARIABLES and (value := environment.environ().get(name)):
            found.append(
                settings.Setting(name, "(set)" if _SECRET.search(name) else value, "environment")
            )
    bare = TypeAdapter[str](Address).validate_python
    rows = without_secrets([each._asdict() | {"where": str(each.where)} for each in found])
    for row in (row for row in rows if "://" in str(row["value"])):
        row["value"] = bare(str(row["value"]))
    if as_json:
        emit(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        if isinstance(row["value"], str):
            value = row["value"]
        else:
            value = json.dumps(row["value"])
        if row["where"]:
            where = f": {row['where']}"
        else:
            where = ""
        say(f"{row['key']:<33} {value:<26} {row['source']}{where}")


@cache.command()
def status(as_json: AsJson = False) -> None:
    """Show where the replies are, how many, their size and their age."""
    from judgekit.judging.reply_file import ReplyFile

    found = ReplyFile().state()
    if as_json:
        emit(json.dumps(found._asdict() | {"path": str(found.path)}))
        return
    say(str(found.path))
    if found.oldest is None or found.newest is None:
        say("    no replies are kept")
        return
    first, last = (
        datetime.fromtimestamp(each, UTC).date() for each in (found.oldest, found.newest)
    )
    say(
        f"    {counted(found.replies, 'reply', 'replies')} of {first} to {last}, {found.bytes / 1e6:.1f} MB"
    )


@cache.command()
def clear(
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove all kept replies; models are then asked again, which costs calls, and in the usual way."""
    from judgekit.judging.reply_file import ReplyFile
    from judgekit.ledger.labels import at_terminal
    from judgekit.providers import remembered

    kept = ReplyFile()
    count = kept.state().replies
    if count and not yes:
        if not at_terminal():
            raise UsageError("no terminal to ask for confirmation; add --yes to remove the replies")
        typer.confirm(f"Remove {counted(count, 'reply', 'replies')}?", abort=True, err=True)
    kept.clear()
    remembered.clear()
    if left := kept.state().replies:
        replies = counted(left, "reply", "replies")
        raise InputError(f"{kept.state().path}: {replies} left; another process uses the file")
    say(f"removed {counted(count, 'reply', 'replies')}")

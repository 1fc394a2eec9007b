"""`judgekit config`: the settings that apply here; `cache`: the models' replies that are kept."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from judgekit import environment
from judgekit.cli.options import AsJson, OutOption
from judgekit.cli.output import confirm, emit, get_project_path, say
from judgekit.errors import InputError
from judgekit.text import format_count

if TYPE_CHECKING:
    from judgekit.config.settings import Setting

config = typer.Typer(no_args_is_help=True, help="The configuration: what holds here, and why.")
cache = typer.Typer(no_args_is_help=True, help="Kept replies of models: status and clear.")
_SECRET_NAME_PATTERN = re.compile(r"KEY|TOKEN")


@config.command()
def show(as_json: AsJson = False, _out: OutOption = None) -> None:
    """Show each setting with its value and its source, then the variables that are set; no secrets.

    Options of a command go before all of this.
    """
    rows = _read_settings()
    if as_json:
        emit(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        say(_format_setting(row))


def _format_setting(row: dict[str, Any]) -> str:
    """Format a setting as a line: its key, its value, and its source, with the file or variable if known."""
    value = row["value"]
    if not isinstance(value, str):
        value = json.dumps(value)
    source = row["source"]
    if row["where"]:
        source = f"{source}: {row['where']}"
    return f"{row['key']:<33} {value:<26} {source}"


def _read_settings() -> list[dict[str, Any]]:
    """Read all settings and environment variables in use, with their sources but without secrets."""
    from judgekit.config import settings
    from judgekit.redaction.redact import without_secrets

    all_settings = settings.list_settings(get_project_path())
    all_settings += _list_other_variables()
    records = []
    for setting in all_settings:
        records.append({**setting._asdict(), "where": str(setting.where)})

    rows: list[dict[str, Any]] = without_secrets(records)
    for row in rows:
        value = str(row["value"])
        if "://" in value:
            row["value"] = _remove_login(value)
    return rows


def _list_other_variables() -> list[Setting]:
    """List the environment variables in use that aren't for configuration keys."""
    from judgekit.config import settings

    variables = []
    for name in environment.VARIABLE_NAMES:
        value = environment.environ().get(name)
        if not value or name in settings.KEYS_BY_VARIABLE:
            continue
        visible_value = "(set)" if _SECRET_NAME_PATTERN.search(name) else value
        variables.append(settings.Setting(name, visible_value, "environment"))
    return variables


def _remove_login(address: str) -> str:
    """Remove the user name and password from an address."""
    from pydantic import TypeAdapter

    from judgekit.ledger.records import Address

    # This type of the ledger removes the login when it validates an address.
    return TypeAdapter[str](Address).validate_python(address)


@cache.command()
def status(as_json: AsJson = False) -> None:
    """Show the folder of the replies, their number, size and age."""
    from judgekit.judging.reply_file import ReplyFile

    state = ReplyFile().describe_state()
    if as_json:
        emit(json.dumps(state._asdict() | {"path": str(state.path)}))
        return

    say(str(state.path))
    if state.oldest is None or state.newest is None:
        say("    no replies are kept")
        return

    first = datetime.fromtimestamp(state.oldest, UTC).date()
    last = datetime.fromtimestamp(state.newest, UTC).date()
    replies = format_count(state.replies, "reply", "replies")
    say(f"    {replies} of {first} to {last}, {state.bytes / 1e6:.1f} MB")


@cache.command()
def clear(
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove all kept replies; models are then asked again, which costs calls, and in the usual way."""
    from judgekit.judging.reply_file import ReplyFile
    from judgekit.providers import remembered

    reply_file = ReplyFile()
    count = reply_file.describe_state().replies
    if count and not yes:
        confirm(f"Remove {format_count(count, 'reply', 'replies')}?", "remove the replies")

    reply_file.clear()
    remembered.clear()  # so that models that needed an unusual request get the usual one again

    state = reply_file.describe_state()
    if state.replies:
        replies = format_count(state.replies, "reply", "replies")
        raise InputError(f"{state.path}: {replies} left; another process uses the file")
    say(f"removed {format_count(count, 'reply', 'replies')}")

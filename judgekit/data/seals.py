"""Seals for the files beside OUT: without the user's key nobody can write a row, batch or answer that counts.

A clone may bring results, a manifest or a folder of results. Without the key nobody can plant a verdict in
them that a run would keep, or name a provider's file that a run would delete. The key lies in the user's
folder, or in JUDGEKIT_STATE_KEY if several machines should trust each other.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, outputs
from judgekit.errors import ConfigError, UsageError
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_KEY_VARIABLE = "JUDGEKIT_STATE_KEY"
FINGERPRINT = "fingerprint"  # the column with the hash of the judged content, and the seal
_MIN_KEY_CHARS = 16  # characters of a key
_MIN_DIFFERENT_CHARS = 5  # different ones; 32 random hexadecimal digits have fewer once in 10^15
_SEAL_CHARS = 32
_WHOLE_NUMBER = re.compile(r"(-?\d+)\.0")


class Fingerprint(NamedTuple):
    """A hash of everything that was judged: text, rubric, mode, models. `former` is the form 0.1.0 wrote."""

    current: str
    former: str = ""


def fingerprint_text(judged: str) -> Fingerprint:
    """Fingerprint text with a cryptographic hash."""
    whole = hashlib.sha256(judged.encode("utf-8", "surrogatepass")).hexdigest()
    return Fingerprint(current=whole[:32], former=environment.digest(judged))


def is_of(written: str, judged: Fingerprint) -> bool:
    """Whether a row's written fingerprint matches the content to judge, in either form."""
    content_hash = read_content_hash(written)
    return bool(content_hash) and content_hash in judged


def read_content_hash(written: str) -> str:
    """Return the hash in a row's fingerprint, which has the form `HASH.SEAL`."""
    content_hash, _, _ = written.partition(".")
    return content_hash


def get_state_key() -> str | None:
    """Return the user's key, and create it if necessary. Returns None if the user's folder isn't writable.

    Raises `ConfigError` for a key that others can guess or read.
    """
    key_in_environment = environment.environ().get(STATE_KEY_VARIABLE, "")
    if not key_in_environment:
        return _read_or_create_key_file()
    key = key_in_environment.strip()
    problem = _describe_weakness(key)
    if problem:
        raise ConfigError(
            f"{problem}; use {_MIN_KEY_CHARS} or more random ones", key=STATE_KEY_VARIABLE
        )
    return key


def _read_or_create_key_file() -> str | None:
    """Read the key in the user's folder. If there's none, create one.

    Returns None if that's impossible. Raises `ConfigError` for a weak key, or one that others can read.
    """
    path = Path(environment.STATE_KEY.path())
    try:
        environment.make_private_folder(str(path.parent))
        # If the file exists already, this returns its content.
        key_in_file = outputs.write_once(str(path), secrets.token_hex(32).encode())
        mode = path.stat().st_mode
    except OSError:
        return None

    key = key_in_file.decode("utf-8", "replace").strip()
    problem = _describe_weakness(key)
    if problem:
        remedy = "delete the file, and the next run makes a new key"
        raise ConfigError(f"{problem}; {remedy}", path=path)
    if _may_others_read(mode):
        problem = f"others may read the key (mode {stat.S_IMODE(mode):04o})"
        remedy = f"run: chmod 600 {path}, or delete the file if somebody may have read it"
        raise ConfigError(f"{problem}; {remedy}", path=path)
    return key


def _may_others_read(mode: int) -> bool:
    """Whether a file's mode gives any rights to its group or others."""
    if os.name != "posix":  # on Windows, the mode doesn't show who can read the file
        return False
    rights_of_others = mode & (stat.S_IRWXG | stat.S_IRWXO)
    return rights_of_others != 0


def _describe_weakness(key: str) -> str:
    """Describe why a key is weak. Returns "" if it isn't."""
    if len(key) < _MIN_KEY_CHARS:
        return f"expected at least {_MIN_KEY_CHARS} characters, got {len(key)}"
    different_chars = len(set(key))
    if different_chars < _MIN_DIFFERENT_CHARS:
        return (
            f"expected at least {_MIN_DIFFERENT_CHARS} different characters, got {different_chars}"
        )
    return ""


def seal_of(key: str, kind: str, content: object) -> str:
    """Compute the seal (an HMAC) of a JSON value. It isn't valid for another `kind` of value."""
    text = json.dumps([kind, content], ensure_ascii=True, sort_keys=True, default=repr)
    code = hmac.new(key.encode("utf-8", "surrogateescape"), text.encode(), "sha256")
    return code.hexdigest()[:_SEAL_CHARS]


def is_valid(key: str | None, kind: str, content: object, seal: str | None) -> bool:
    """Whether the seal matches the content and key. False if there's no key or no seal."""
    if not key or not seal:
        return False
    return hmac.compare_digest(seal_of(key, kind, content), seal)


def seal_row(row: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    """Copy a result row, adding a seal to its fingerprint if there's a key."""
    return _add_seal(row, key, "line", _list_line_content(row))


def is_row_valid(row: Mapping[str, Any], key: str | None) -> bool:
    """Whether a result row has a valid seal, so that only this key's owner can have written it."""
    return is_valid(key, "line", _list_line_content(row), _read_seal(row))


def seal_cells(cells: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    """Copy a Parquet row, adding a seal to its fingerprint if there's a key."""
    return _add_seal(cells, key, "cells", _list_cells_content(cells))


def are_cells_valid(cells: Mapping[str, Any], key: str | None) -> bool:
    """Whether a Parquet row has a valid seal."""
    return is_valid(key, "cells", _list_cells_content(cells), _read_seal(cells))


def _add_seal(
    row: Mapping[str, Any], key: str | None, kind: str, content: object
) -> dict[str, Any]:
    """Copy a row with a new seal in its fingerprint, which becomes `HASH.SEAL`.

    Without a key, there's no seal.
    """
    fingerprint = read_content_hash(str(row[FINGERPRINT]))
    if key:
        fingerprint += f".{seal_of(key, kind, content)}"
    return {**row, FINGERPRINT: fingerprint}


def _read_seal(row: Mapping[str, Any]) -> str:
    _, _, seal = str(row.get(FINGERPRINT) or "").partition(".")
    return seal


def _list_line_content(row: Mapping[str, Any]) -> list[str]:
    """List the content of a JSON line that its seal covers."""
    # Include every name with its value. Otherwise an input column could be swapped with our verdict.
    others = {name: value for name, value in row.items() if name != FINGERPRINT}
    text = json.dumps(others, ensure_ascii=False, sort_keys=True)
    return [_read_hash(row), _replace_surrogates(text)]


def _list_cells_content(cells: Mapping[str, Any]) -> list[Any]:
    """List what a Parquet row's seal covers: its hash, and the names and texts of its nonempty cells."""
    # Convert the cells to text, because merging files can turn a column's numbers into text.
    names_and_texts = []
    for name, value in cells.items():
        text = _convert_cell(value)
        if name != FINGERPRINT and text is not None:
            names_and_texts.append([_replace_surrogates(name), text])
    return [_read_hash(cells), sorted(names_and_texts)]


def _read_hash(row: Mapping[str, Any]) -> str:
    """Return the hash in a row's fingerprint, or "" if there's none."""
    return read_content_hash(str(row.get(FINGERPRINT) or ""))


def _convert_cell(value: object) -> str | None:
    """Convert a cell to text that doesn't depend on its column's type: 5 and 5.0 both become "5".

    Returns None if the cell is empty.
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    text = _replace_surrogates(text)
    whole_number = _WHOLE_NUMBER.fullmatch(text)
    return whole_number[1] if whole_number else text


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, as happens when writing to a file."""
    return text.encode("utf-8", "replace").decode()


def build_seal_error(
    name: str, unsealed: int, thing: str = "row", things: str = "rows"
) -> UsageError:
    """Build the error for entries without a valid seal. Callers must raise it before they send anything."""
    verb = "does" if unsealed == 1 else "do"
    problem = f"{format_count(unsealed, thing, things)} {verb} not verify"
    possible_reasons = (
        "edited, or written by an earlier version, by another user or under another "
        f"{STATE_KEY_VARIABLE}"
    )
    remedy = "keep them as they are with --trust-results, or judge all again with --fresh"
    return UsageError(f"{name}: {problem} ({possible_reasons}); nothing was sent; {remedy}")

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
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "JUDGEKIT_STATE_KEY"
FINGERPRINT = "fingerprint"  # the column with the hash of the judged content, and the seal
_SHORTEST = 16  # characters of a key
_FEWEST_DIFFERENT = 5  # different ones; 32 random hexadecimal digits have fewer once in 10^15
_SEAL_CHARS = 32
_WHOLE_NUMBER = re.compile(r"(-?\d+)\.0")


class Fingerprint(NamedTuple):
    """A hash of everything that was judged: text, rubric, mode, models. `former` is the form 0.1.0 wrote."""

    current: str
    former: str = ""


def fingerprint_of(judged: str) -> Fingerprint:
    """Hash a text, so that nobody can find another text with the same fingerprint."""
    whole = hashlib.sha256(judged.encode("utf-8", "surrogatepass")).hexdigest()
    return Fingerprint(current=whole[:32], former=environment.digest(judged))


def is_of(written: str, judged: Fingerprint) -> bool:
    """Whether the fingerprint in a row of OUT is that of the content to judge now, in either form."""
    content_hash = what_of(written)
    return bool(content_hash) and content_hash in judged


def what_of(written: str) -> str:
    """Cut the seal off a row's fingerprint, `HASH.SEAL`; only the hash of the content is left."""
    content_hash, _, _ = written.partition(".")
    return content_hash


def state_key() -> str | None:
    """Read the user's key, or make it the first time. None if the user's folder can't be written.

    Raises `ConfigError` for a key that others can guess or read.
    """
    key_in_environment = environment.environ().get(VARIABLE, "")
    if not key_in_environment:
        return _read_or_make_key_file()
    key = key_in_environment.strip()
    problem = _describe_weakness(key)
    if problem:
        raise ConfigError(f"{problem}; use {_SHORTEST} or more random ones", key=VARIABLE)
    return key


def _read_or_make_key_file() -> str | None:
    """Read the key from the user's folder, or make it; None and errors as in `state_key`."""
    path = Path(environment.STATE_KEY.path())
    try:
        environment.private_folder(str(path.parent))
        key_in_file = outputs.write_once(str(path), secrets.token_hex(32).encode())
        mode = path.stat().st_mode
    except OSError:
        return None
    key = key_in_file.decode("utf-8", "replace").strip()
    problem = _describe_weakness(key)
    if problem:
        remedy = "delete the file, and the next run makes a new key"
        raise ConfigError(f"{problem}; {remedy}", path=path)
    others_may_read = os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO)
    if others_may_read:
        problem = f"others may read the key (mode {stat.S_IMODE(mode):04o})"
        remedy = f"run: chmod 600 {path}, or delete the file if somebody may have read it"
        raise ConfigError(f"{problem}; {remedy}", path=path)
    return key


def _describe_weakness(key: str) -> str:
    """Say why a key can be guessed; "" if it doesn't look weak."""
    if len(key) < _SHORTEST:
        return f"expected at least {_SHORTEST} characters, got {len(key)}"
    different_chars = len(set(key))
    if different_chars < _FEWEST_DIFFERENT:
        return f"expected at least {_FEWEST_DIFFERENT} different characters, got {different_chars}"
    return ""


def seal_of(key: str, kind: str, content: object) -> str:
    """Compute the seal of a JSON value; no two kinds of things have the same seal."""
    text = json.dumps([kind, content], ensure_ascii=True, sort_keys=True, default=repr)
    code = hmac.new(key.encode("utf-8", "surrogateescape"), text.encode(), "sha256")
    return code.hexdigest()[:_SEAL_CHARS]


def is_valid(key: str | None, kind: str, content: object, seal: str | None) -> bool:
    """Whether a seal is that of the content under this key; False without a key or a seal."""
    if not key or not seal:
        return False
    return hmac.compare_digest(seal_of(key, kind, content), seal)


def sealed_row(row: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    """Add a seal to the fingerprint of a row of OUT. Without a key, the fingerprint stays without a seal."""
    return _add_seal(row, key, "line", _list_line_content(row))


def is_row_valid(row: Mapping[str, Any], key: str | None) -> bool:
    """Whether a row of OUT has this key's seal, so that nobody else wrote or changed it."""
    return is_valid(key, "line", _list_line_content(row), _read_seal(row))


def sealed_cells(cells: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    """Seal a row of a Parquet file, as `sealed_row` does for a line."""
    return _add_seal(cells, key, "cells", _list_cells_content(cells))


def are_cells_valid(cells: Mapping[str, Any], key: str | None) -> bool:
    """Whether a row of a Parquet file has this key's seal."""
    return is_valid(key, "cells", _list_cells_content(cells), _read_seal(cells))


def _add_seal(
    row: Mapping[str, Any], key: str | None, kind: str, content: object
) -> dict[str, Any]:
    """Copy a row, with the seal of its content added behind the fingerprint.

    Without a key, the copy gets no seal.
    """
    fingerprint = what_of(str(row[FINGERPRINT]))
    if key:
        fingerprint += f".{seal_of(key, kind, content)}"
    return {**row, FINGERPRINT: fingerprint}


def _read_seal(row: Mapping[str, Any]) -> str:
    _, _, seal = str(row.get(FINGERPRINT) or "").partition(".")
    return seal


def _list_line_content(row: Mapping[str, Any]) -> list[str]:
    """List the content of a JSON line that its seal covers: every name with its own value.

    Two rows that differ never give the same list. If we shortened names or sorted cells, a column of the
    data could change places with our verdict.
    """
    others = {name: value for name, value in row.items() if name != FINGERPRINT}
    text = json.dumps(others, ensure_ascii=False, sort_keys=True)
    return [_read_hash(row), _encodable(text)]


def _list_cells_content(cells: Mapping[str, Any]) -> list[Any]:
    """List the content of a Parquet row that its seal covers: each column's name with its cell as text.

    The cells are covered as text, because a column may get a wider type when files are joined, and numbers
    then turn into text. Empty cells and the fingerprint are left out.
    """
    filled = []
    for name, value in cells.items():
        text = _convert_cell(value)
        if name != FINGERPRINT and text is not None:
            filled.append([_encodable(name), text])
    return [_read_hash(cells), sorted(filled)]


def _read_hash(row: Mapping[str, Any]) -> str:
    """Return the hash in a row's fingerprint, "" if the row has none."""
    return what_of(str(row.get(FINGERPRINT) or ""))


def _convert_cell(value: object) -> str | None:
    """Convert a cell to a text that stays the same if its column gets a wider type. None if it's empty.

    For example, 5 and 5.0 both become "5".
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    text = _encodable(text)
    # A column of numbers with a fraction holds 5 as 5.0.
    whole_number = _WHOLE_NUMBER.fullmatch(text)
    return whole_number[1] if whole_number else text


def _encodable(text: str) -> str:
    """Replace lone surrogates, as writing to a file does."""
    return text.encode("utf-8", "replace").decode()


def refused(name: str, unsealed: int, thing: str = "row", things: str = "rows") -> UsageError:
    """Build the error for entries that this user's key didn't seal. It's raised before anything is sent."""
    verb = "does" if unsealed == 1 else "do"
    problem = f"{counted(unsealed, thing, things)} {verb} not verify"
    possible_reasons = (
        f"edited, or written by an earlier version, by another user or under another {VARIABLE}"
    )
    remedy = "keep them as they are with --trust-results, or judge all again with --fresh"
    return UsageError(f"{name}: {problem} ({possible_reasons}); nothing was sent; {remedy}")

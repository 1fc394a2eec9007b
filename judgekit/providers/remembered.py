"""Remembers how an address really behaves, for a week and across processes.

Stored in the user's cache folder, one file per model of an address: a project has no say in how models are
asked. A stored style can only weaken a request or lengthen its reply.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, outputs
from judgekit.providers.style import NEWER_LIMIT, WEAKER, CallStyle

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint

KEPT_SECONDS = 7 * 86_400.0  # after it, the default is tried again: servers get upgraded
_VERSION = 1
_MOST_TOKENS = 1_000_000
_MOST_BYTES = 10_000


class _Entry(NamedTuple):
    """A style, since when it holds, and the file's state on disk when it was read or written."""

    style: CallStyle
    at: float
    stamp: tuple[int, ...] | None


_entries: dict[Path, _Entry] = {}


def find(endpoint: Endpoint) -> CallStyle | None:
    """Look up the style learned for a model within a week; None if it's asked in the default one."""
    path = _path(endpoint)
    stamp = environment.stamp(str(path))
    entry = _entries.get(path)
    if entry is None or entry.stamp != stamp:
        entry = _read(path, stamp, endpoint)
        if entry is None:
            _entries.pop(path, None)
            return None
        _entries[path] = entry
    is_fresh = abs(time.time() - entry.at) < KEPT_SECONDS  # the clock may have been set back
    return entry.style if is_fresh else None


def keep(endpoint: Endpoint, style: CallStyle) -> None:
    """Remember a model's style from now on; just for this process if it can't be written."""
    path = _path(endpoint)
    now = time.time()
    lasting_style = style.lasting()
    default_style = CallStyle(endpoint.output)
    content: dict[str, Any] = {
        "version": _VERSION,
        "at": now,
        "usual": endpoint.output,
        "model": endpoint.model,
    }
    for name, value in lasting_style._asdict().items():
        if value != getattr(default_style, name):
            content[name] = value
    with suppress(OSError):
        environment.private_folder(str(path.parent))
        outputs.write_atomically(str(path), json.dumps(content), private=True)
    _entries[path] = _Entry(lasting_style, now, environment.stamp(str(path)))


def forget(endpoint: Endpoint) -> None:
    """Forget a model's style, so that it's asked in the default one again."""
    path = _path(endpoint)
    with suppress(OSError):
        path.unlink()
    _entries.pop(path, None)


def clear() -> None:
    """Forget everything remembered in the cache folder."""
    with suppress(OSError):
        for path in Path(environment.ADDRESSES.path()).iterdir():
            path.unlink()
    _entries.clear()


def _path(endpoint: Endpoint) -> Path:
    """Return the file for a model of an address; its name tells neither."""
    key_text = f"{endpoint.profile.provider}\0{endpoint.api_base or ''}\0{endpoint.model}"
    name = hashlib.sha256(key_text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(environment.ADDRESSES.path(f"{name}.json"))


def _read(path: Path, stamp: tuple[int, ...] | None, endpoint: Endpoint) -> _Entry | None:
    """Read an entry; None if there's none, it's invalid, or the profile's output mode has changed since."""
    if stamp is None:
        return None
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
        if content["version"] != _VERSION or content["usual"] != endpoint.output:
            return None
        style = _read_style(content, endpoint)
        if style is None:
            return None
        return _Entry(style, float(content["at"]), stamp)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_style(content: dict[str, Any], endpoint: Endpoint) -> CallStyle | None:
    """Read the style in a file; None if it could do more than weaken a request or lengthen a reply."""
    default = CallStyle(endpoint.output)
    possible_modes = [default.mode]
    while possible_modes[-1] in WEAKER:
        possible_modes.append(WEAKER[possible_modes[-1]])
    mode = content.get("mode", default.mode)
    limit_name = content.get("max_tokens", default.max_tokens)
    if mode not in possible_modes or limit_name not in (default.max_tokens, NEWER_LIMIT):
        return None
    switches = {name: content.get(name, True) for name in ("temperature", "logprobs", "system")}
    if not all(isinstance(value, bool) for value in switches.values()):
        return None
    thinking = content.get("thinking", 0)
    most_tokens = content.get("most_tokens")
    if not _is_count(thinking):
        return None
    if most_tokens is not None and not _is_count(most_tokens):
        return None
    return default._replace(
        mode=mode, max_tokens=limit_name, thinking=thinking, most_tokens=most_tokens, **switches
    )


def _is_count(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):  # Python's bool is an int
        return False
    return 0 <= value <= _MOST_TOKENS

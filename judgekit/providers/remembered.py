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
    is_fresh = abs(time.time() - entry.at) < KEPT_SECONDS
    return entry.style if is_fresh else None


def keep(endpoint: Endpoint, style: CallStyle) -> None:
    """Remember a model's style from now on; just for this process if it can't be written."""
    path = _path(endpoint)
    now = time.time()
    lasting = style.lasting()
    usual = CallStyle(endpoint.output)
    content: dict[str, Any] = {"version": _VERSION, "at": now, "usual": endpoint.output}
    content["model"] = endpoint.model
    for name, value in lasting._asdict().items():
        if value != getattr(usual, name):
            content[name] = value
    with suppress(OSError):
        environment.private_folder(str(path.parent))
        outputs.write_atomically(str(path), json.dumps(content), private=True)
    _entries[path] = _Entry(lasting, now, environment.stamp(str(path)))


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
    key_text = f"{endpoint.profile.provider}\0{endpoint.api_base or ''}\0{endpoint.model}"
    name = hashlib.sha256(key_text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(environment.ADDRESSES.path(f"{name}.json"))


def _read(path: Path, stamp: tuple[int, ...] | None, endpoint: Endpoint) -> _Entry | None:
    """Read an entry; None if it's invalid, or a profile has changed since."""
    if stamp is None:
        return None
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
        is_ours = content["version"] == _VERSION and content["usual"] == endpoint.output
        style = _style_in(content, endpoint) if is_ours else None
        if style is None:
            return None
        return _Entry(style, float(content["at"]), stamp)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _style_in(content: dict[str, Any], endpoint: Endpoint) -> CallStyle | None:
    """Read the style in a file; None if anything in it isn't a weakening."""
    usual = CallStyle(endpoint.output)
    modes = [usual.mode]
    while modes[-1] in WEAKER:
        modes.append(WEAKER[modes[-1]])
    mode = content.get("mode", usual.mode)
    switches = {name: content.get(name, True) for name in ("temperature", "logprobs", "system")}
    limit = content.get("max_tokens", usual.max_tokens)
    thinking = content.get("thinking", 0)
    most = content.get("most_tokens")
    is_weaker = mode in modes and limit in (usual.max_tokens, NEWER_LIMIT)
    has_switches = all(isinstance(value, bool) for value in switches.values())
    has_counts = _is_count(thinking) and (most is None or _is_count(most))
    if not is_weaker or not has_switches or not has_counts:
        return None
    return usual._replace(
        mode=mode, max_tokens=limit, thinking=thinking, most_tokens=most, **switches
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS

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
from judgekit.providers.style import NEWER_TOKEN_LIMIT_FIELD, WEAKER, CallStyle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.providers.base import Endpoint
    from judgekit.providers.registry import OutputMode

KEPT_SECONDS = 7 * 86_400.0  # then the default is tried again, because servers get upgraded
_FORMAT_VERSION = 1
_MAX_TOKENS = 1_000_000
_MAX_BYTES = 10_000


class _Entry(NamedTuple):
    """A style, the time when it was learned, and the file's state on disk at that time."""

    style: CallStyle
    learned_at: float
    stamp: tuple[int, ...] | None


_entries: dict[Path, _Entry] = {}


def find(endpoint: Endpoint) -> CallStyle | None:
    """Return the style of calls that was learned for a model in the last week, or None."""
    path = _style_path(endpoint)
    stamp = environment.get_file_stamp(str(path))
    entry = _entries.get(path)
    # Another process may have changed the file.
    if entry is None or entry.stamp != stamp:
        entry = _read_entry(path, stamp, endpoint)
        if entry is None:
            _entries.pop(path, None)
            return None
        _entries[path] = entry
    # The clock may have been set back.
    is_fresh = abs(time.time() - entry.learned_at) < KEPT_SECONDS
    return entry.style if is_fresh else None


def keep(endpoint: Endpoint, style: CallStyle) -> None:
    """Remember a model's style in a file, or only in this process if the file can't be written."""
    path = _style_path(endpoint)
    now = time.time()
    lasting_style = style.drop_room()  # without the limit that applies to a single prompt
    default_style = CallStyle(endpoint.output_mode)
    content: dict[str, Any] = {
        "version": _FORMAT_VERSION,
        "at": now,
        # If the profile's output mode changes, the file no longer counts.
        "usual": endpoint.output_mode,
        "model": endpoint.model,
    }
    # Only write values that differ from the default style.
    for name, value in lasting_style._asdict().items():
        if value != getattr(default_style, name):
            content[name] = value

    with suppress(OSError):
        environment.make_private_folder(str(path.parent))
        outputs.write_atomically(str(path), json.dumps(content), private=True)
    _entries[path] = _Entry(lasting_style, now, environment.get_file_stamp(str(path)))


def forget(endpoint: Endpoint) -> None:
    """Forget a model's style, so that the default is used again."""
    path = _style_path(endpoint)
    with suppress(OSError):
        path.unlink()
    _entries.pop(path, None)


def clear() -> None:
    """Forget all styles, both in this process and in the cache folder."""
    with suppress(OSError):
        styles_folder = Path(environment.ADDRESSES.path())
        for path in styles_folder.iterdir():
            path.unlink()
    _entries.clear()


def _style_path(endpoint: Endpoint) -> Path:
    """Return the path of a model's file. Its name is a hash, to hide the model and its address."""
    key_text = f"{endpoint.profile.provider}\0{endpoint.api_base or ''}\0{endpoint.model}"
    name = hashlib.sha256(key_text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(environment.ADDRESSES.path(f"{name}.json"))


def _read_entry(path: Path, stamp: tuple[int, ...] | None, endpoint: Endpoint) -> _Entry | None:
    """Read the entry in a file, or return None if it's missing, invalid or for another output mode."""
    if stamp is None:
        return None
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        if content["version"] != _FORMAT_VERSION or content["usual"] != endpoint.output_mode:
            return None
        style = _read_style(content, endpoint)
        if style is None:
            return None
        return _Entry(style, float(content["at"]), stamp)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_style(content: dict[str, Any], endpoint: Endpoint) -> CallStyle | None:
    """Read the style in a file's content, or return None if a value is invalid."""
    default_style = CallStyle(endpoint.output_mode)
    values = {
        "mode": content.get("mode", default_style.mode),
        "max_tokens": content.get("max_tokens", default_style.max_tokens),
        "temperature": content.get("temperature", True),
        "logprobs": content.get("logprobs", True),
        "system": content.get("system", True),
        "thinking": content.get("thinking", 0),
        "most_tokens": content.get("most_tokens"),
    }
    if not _are_harmless(values, default_style):
        return None
    return default_style._replace(**values)


def _are_harmless(values: Mapping[str, Any], default_style: CallStyle) -> bool:
    """Whether a style's values are valid, and at most weaken the request or limit the reply.

    They're from a cache file, which others may have changed.
    """
    has_allowed_mode = values["mode"] in _list_allowed_modes(default_style.mode)
    has_known_limit_field = values["max_tokens"] in (
        default_style.max_tokens,
        NEWER_TOKEN_LIMIT_FIELD,
    )
    switches = (values["temperature"], values["logprobs"], values["system"])
    has_valid_switches = all(isinstance(switch, bool) for switch in switches)
    has_valid_thinking = _is_count(values["thinking"])
    most_tokens = values["most_tokens"]
    has_valid_most_tokens = most_tokens is None or _is_count(most_tokens)
    return (
        has_allowed_mode
        and has_known_limit_field
        and has_valid_switches
        and has_valid_thinking
        and has_valid_most_tokens
    )


def _list_allowed_modes(mode: OutputMode) -> list[OutputMode]:
    """List an output mode, followed by all weaker ones."""
    modes = [mode]
    while modes[-1] in WEAKER:
        modes.append(WEAKER[modes[-1]])
    return modes


def _is_count(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):  # Python's bool is an int
        return False
    return 0 <= value <= _MAX_TOKENS

"""Reads what a program printed: its reply, what that took, and why it failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from judgekit.errors import FailureKind, GatewayError
from judgekit.gateway.base import Reply
from judgekit.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.gateway.base import Endpoint
    from judgekit.provider import CommandProfile, CommandUsage

# Where programs that print JSON say what went wrong.
_MOST = 1e15  # of a count or an amount: what is more is no number of either
_EXPLANATIONS = ("error.data.message", "error.message", "message", "error")


def reply_of(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Return the reply; raises `GatewayError` of kind `INVALID_REPLY` where there is none."""
    program = profile.argv[0]
    if profile.reply == "text":
        if not output.strip():
            raise GatewayError(FailureKind.INVALID_REPLY, f"{program} printed nothing")
        return Reply(output.strip(), endpoint.model)
    values = list(_values(output, profile))
    usage = _usage(values, profile, endpoint).of_call()
    text = _text(values, profile)
    if not text:
        said = explained(output, profile)
        wanted = f"{program} printed no {_wanted(profile)}"
        raise GatewayError(FailureKind.INVALID_REPLY, f"{wanted}: {said}" if said else wanted, usage=usage)
    return Reply(text, _model(values, profile) or endpoint.model, usage)


def explained(output: str, profile: CommandProfile) -> str:
    """Return what a program that prints JSON says went wrong, in its own words; "" where it does not."""
    if profile.reply == "text":
        return ""
    values = list(_values(output, profile))
    keys = ((profile.reply_key,) if profile.reply_key and profile.reply == "json" else ()) + _EXPLANATIONS
    for value in reversed(values):
        for each in (each for key in keys for each in at(value, key)):
            if isinstance(each, str) and each.strip():
                return " ".join(each.split())
    return ""


def at(value: Any, key: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return what stands at a dotted key in JSON: nothing, one thing, or several where it has a `*`."""
    found = [value]
    for part in key.split("."):
        found = [inner for each in found for inner in _step(each, part)]
    return found


def _step(value: Any, part: str) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    if part == "*" and isinstance(value, dict | list):
        yield from value.values() if isinstance(value, dict) else value
    elif isinstance(value, dict) and part in value:
        yield value[part]
    elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        yield value[int(part)]


def _values(output: str, profile: CommandProfile) -> Iterator[Any]:
    """Yield the JSON that was printed; words before, after or between are passed over."""
    if profile.reply == "json" and (whole := list(_parsed(output))):
        yield from whole
        return
    lines = output.split("\n")  # texts may hold other line separators, which JSON takes as they are
    if profile.reply == "jsonl":
        for line in lines:
            yield from _parsed(line)
        return
    start = next((place for place, line in enumerate(lines) if line.startswith(("{", "["))), None)
    if start is not None:
        yield from _parsed("\n".join(lines[start:]))


def _parsed(text: str) -> Iterator[Any]:
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict | list):
        yield value


def _text(values: Sequence[Any], profile: CommandProfile) -> str:
    for value in reversed([each for each in values if _holds(each, profile.reply_where)]):
        found = at(value, profile.reply_key) if profile.reply_key else [value]
        if found and found[-1] is not None:
            text = found[-1] if isinstance(found[-1], str) else json.dumps(found[-1])
            return text.strip()
    return ""


def _holds(value: Any, where: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any JSON
    return all(at(value, key) == [wanted] for key, wanted in where.items())


def _wanted(profile: CommandProfile) -> str:
    where = "".join(f" where {key} is {value!r}" for key, value in profile.reply_where.items())
    return f"JSON with {profile.reply_key!r}{where}" if profile.reply_key else "JSON"


def _model(values: Sequence[Any], profile: CommandProfile) -> str:
    found = [each for value in values for each in at(value, profile.model_key or "")]
    return next((each for each in reversed(found) if isinstance(each, str)), "")


def _usage(values: Sequence[Any], profile: CommandProfile, endpoint: Endpoint) -> Usage:
    told = profile.usage
    saying = [each for each in values if told and _holds(each, told.where)]
    if told is None or not saying:
        return Usage()
    counts = _counts(saying[-1], told)
    stated = _sum(saying[-1], [told.cost]) if told.cost and _numbers(saying[-1], [told.cost]) else None
    if endpoint.price is not None:
        return Usage(*counts[:2], endpoint.price.of(*counts), "profile", *counts[2:])
    return Usage(*counts[:2], stated, None if stated is None else "provider", *counts[2:])


def _counts(value: Any, told: CommandUsage) -> tuple[int, int, int, int]:  # noqa: ANN401 - any JSON
    read, written = int(_sum(value, told.input)), int(_sum(value, told.output))
    return read, written, int(_sum(value, told.cache_read)), int(_sum(value, told.cache_write))


def _sum(value: Any, keys: Sequence[str]) -> float:  # noqa: ANN401 - any JSON
    return max(0.0, float(sum(_numbers(value, keys))))


def _numbers(value: Any, keys: Sequence[str]) -> list[float]:  # noqa: ANN401 - any JSON
    """Return the numbers there; NaN and infinity, which Python reads in JSON, are none."""
    found = [each for key in keys for each in at(value, key)]
    numbers = [each for each in found if isinstance(each, int | float) and not isinstance(each, bool)]
    return [float(each) for each in numbers if abs(each) < _MOST]

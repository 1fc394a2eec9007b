"""Points in time as people write them: `14d`, `36h`, `2w`, a date, a date and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from judgekit.errors import UsageError

_AGO = re.compile(r"^(\d{1,5})([hdw])$")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def point(text: str, now: datetime | None = None) -> datetime:
    """Return the point in time that `text` names; a date is its first moment in UTC.

    Raises `UsageError`.
    """
    ago = _AGO.match(text.strip())
    try:
        if ago:
            return (now or datetime.now(UTC)) - int(ago[1]) * _UNITS[ago[2]]
        return aware(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        told = "expected 14d, 36h, 2w, a date as 2026-02-01 or a time as 2026-02-01T08:00:00Z"
        raise UsageError(f"{text[:60]!r} is no point in time: {told}") from None


def aware(when: datetime) -> datetime:
    """Return a time in UTC; one without a zone is taken as UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)

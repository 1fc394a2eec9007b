"""Reservations, the caveats of a record, by kind and in words."""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.judging.verdict import AnyRound, Verdict

_RESERVATION_SEPARATOR = "; "


class ReservationKind(enum.Enum):
    """The subject of a reservation."""

    NOT_JUDGED = enum.auto()
    """No model was asked."""
    FAILURE = enum.auto()
    """A tier's model gave no opinion."""
    CUT = enum.auto()
    """Models saw only part of a text."""
    OWN_FAMILY = enum.auto()
    """Only the author's own family accepts or prefers it."""
    UNPROVEN = enum.auto()
    """Decision models would accept it, which isn't enough in strict mode."""
    UNCALIBRATED = enum.auto()
    """Decision models accept it, and nothing shows how far to trust them."""
    CALIBRATION = enum.auto()
    """A calibration wasn't used, or not for all opinions."""
    NO_REVIEW = enum.auto()
    """No finding could be checked by another family."""
    NO_FINDING = enum.auto()
    """No one said what's wrong with it."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """One caveat about a verdict, a comparison or a selection, in a line for people."""

    kind: ReservationKind
    text: str


def join_reservations(reservations: Iterable[Reservation]) -> str | None:
    """Join reservations for a record's `degraded`, or return None if there are none."""
    return _RESERVATION_SEPARATOR.join(reservation.text for reservation in reservations) or None


def has_kind(reservations: Iterable[Reservation], kind: ReservationKind) -> bool:
    return any(reservation.kind is kind for reservation in reservations)


def add_reservation(verdict: Verdict, reservation: Reservation, *, first: bool = False) -> Verdict:
    """Return the verdict with another reservation, after its own ones or, if `first`, before them."""
    reservation_texts = [verdict.degraded, reservation.text]
    if first:
        reservation_texts.reverse()
    degraded = _RESERVATION_SEPARATOR.join(filter(None, reservation_texts))
    return verdict.model_copy(update={"degraded": degraded})


def list_failures(rounds: Sequence[AnyRound]) -> list[Reservation]:
    """List the reasons why tiers failed. Each reason is listed once, with all tiers that it applies to."""
    # The inner dictionary is used as an ordered set of tiers.
    tiers_by_reason: defaultdict[str, dict[str, None]] = defaultdict(dict)
    seen_keys = set()
    for row in rounds:
        if row.failure is None:
            continue
        # If a model fails multiple times in the same way, only list the first failure.
        key = (row.tier, row.model, row.failure.kind)
        if key in seen_keys:
            continue
        seen_keys.add(key)
        reason = f"{row.failure.kind} ({row.failure.message})"
        tiers_by_reason[reason][row.tier] = None

    reservations = []
    for reason, tiers in tiers_by_reason.items():
        text = f"{', '.join(tiers)}: {reason}"
        reservations.append(Reservation(ReservationKind.FAILURE, text))
    return reservations

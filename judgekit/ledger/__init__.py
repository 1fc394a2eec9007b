"""The ledger: an append-only log of verdicts and of what people said about them, and measures over it."""

from judgekit.ledger.records import (
    Fault,
    Gate,
    Label,
    ModeChange,
    OverrideLine,
    Record,
    Skip,
    VerdictLine,
    verdict_line,
)
from judgekit.ledger.store import Damage, Ledger, LedgerError, Wanted

__all__ = [
    "Damage",
    "Fault",
    "Gate",
    "Label",
    "Ledger",
    "LedgerError",
    "ModeChange",
    "OverrideLine",
    "Record",
    "Skip",
    "VerdictLine",
    "Wanted",
    "verdict_line",
]

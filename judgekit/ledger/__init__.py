"""The ledger: an append-only log of verdicts and of what people said about them, and measures over it."""

from judgekit.ledger.records import (
    Fault,
    Label,
    ModeChange,
    OverrideLine,
    PushRecord,
    Record,
    Skip,
    VerdictLine,
    verdict_line,
)
from judgekit.ledger.store import Damage, Ledger, LedgerError, LineFilter

__all__ = [
    "Damage",
    "Fault",
    "Label",
    "Ledger",
    "LedgerError",
    "LineFilter",
    "ModeChange",
    "OverrideLine",
    "PushRecord",
    "Record",
    "Skip",
    "VerdictLine",
    "verdict_line",
]

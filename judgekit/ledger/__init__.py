"""The ledger: an append-only log of verdicts and of what people said about them, and measures over it."""

from judgekit.ledger.append import LedgerError
from judgekit.ledger.book import Ledger
from judgekit.ledger.read import Damage, Wanted
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

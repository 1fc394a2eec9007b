"""The ledger: an append-only log of verdicts and of what people said about them, and measures over it."""

from judgekit.ledger.records import DismissalLine as DismissalLine
from judgekit.ledger.records import Fault as Fault
from judgekit.ledger.records import Label as Label
from judgekit.ledger.records import ModeChange as ModeChange
from judgekit.ledger.records import OverrideLine as OverrideLine
from judgekit.ledger.records import PushRecord as PushRecord
from judgekit.ledger.records import Record as Record
from judgekit.ledger.records import Skip as Skip
from judgekit.ledger.records import VerdictLine as VerdictLine
from judgekit.ledger.records import make_verdict_line as make_verdict_line
from judgekit.ledger.store import Damage as Damage
from judgekit.ledger.store import Ledger as Ledger
from judgekit.ledger.store import LedgerError as LedgerError
from judgekit.ledger.store import LineFilter as LineFilter

"""The former location of `judgekit.redaction.redact`, for programs that still import it from here."""

from judgekit.redaction.redact import REDACTION_PREFIX as MARK
from judgekit.redaction.redact import Redacted, redact, without_secrets, words

__all__ = ["MARK", "Redacted", "redact", "without_secrets", "words"]

"""The former place of `judgekit.redaction.redact`, for programs that take it from here."""

from judgekit.redaction.redact import MARK, Redacted, redact, without_secrets, words

__all__ = ["MARK", "Redacted", "redact", "without_secrets", "words"]

"""The former place of `judgekit.redaction.redact`, for programs that take it from here."""

from judgekit.redaction.redact import MARK as MARK
from judgekit.redaction.redact import Redacted as Redacted
from judgekit.redaction.redact import redact as redact
from judgekit.redaction.redact import without_secrets as without_secrets
from judgekit.redaction.redact import words as words

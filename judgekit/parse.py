"""Reads what models write: `extract` makes a validated object of a raw reply."""

from judgekit.replies.extract import extract

__all__ = ["extract"]

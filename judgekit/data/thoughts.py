"""Leaves out a model's thoughts before its answer, in a block of their own: `<think>…</think>`."""

from __future__ import annotations

import re

_THINK_BLOCK_PATTERN = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL | re.IGNORECASE)


class Thoughts:
    """Removes such blocks, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def drop(self, text: str) -> str:
        """Remove a block of thoughts, such as `<think>…</think>`, from the beginning of an output."""
        block = _THINK_BLOCK_PATTERN.match(text)
        if block is None:
            return text
        self.count += 1
        return text[block.end() :]

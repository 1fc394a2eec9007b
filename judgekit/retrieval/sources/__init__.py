"""The kinds of stores, in the order in which they are recognised: a kind is a module.

It has `NAME`, which is also the name of its profile's file; `ENDINGS` of its files; `is_at`, whether a folder
is such a store; `lists`, whether files of a folder may be entries; `DEEP`, whether every folder is looked
into or only those that records of a kind have; `LINKED_FOLDERS`, whether these may be links; `read` and
`read_hints`.
"""

from __future__ import annotations

from judgekit.retrieval.sources import auto_memory, claude_memory, markdown

KINDS = {source.NAME: source for source in (claude_memory, auto_memory, markdown)}

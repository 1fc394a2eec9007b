"""The marks that chat templates put between turns, where a text that is judged has them written into it.

Most servers render a chat into one string and look for these marks in all of it: `<|im_end|>` in a memory
ends the turn there, and what follows speaks as the system, or as the model itself. Measured with llama.cpp's
server, where it is one token, as the template's own is (22 November 2026).
"""

from __future__ import annotations

import re
from typing import Final

_BAR: Final = "|\uff5c"  # DeepSeek's is full-width
_LONGEST: Final = 64
_NAMES: Final = "|".join(
    (
        *("s", "bos", "eos", "sop", "eop", "pad", "unk", "think", "endoftext"),
        *(
            r"(?:start|end)_of_[a-z]+",
            r"tool_(?:call|response|result|output)s?",
            r"(?:seed|minimax):[a-z_]+",
            r"(?:fim|jupyter|issue)_[a-z]+",
        ),
        *(r"extra_id_\d+", r"unused\d+", r"reserved_\d+", r"SPECIAL_\d+", r"TOKENS_UNUSED_\d+"),
        *("eoh", "eoa", "eosys", "sep", "cls", "(?:BOS|EOS|PAD|UNK|MASK|SEP|CLS|EOP|EOT)(?:_TOKEN)?"),
        *("file_sep", "repo_?name", "gh_stars", "empty_output"),
    )
)
_BRACKETED: Final = (
    "[gs]?MASK|INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|MODEL_SETTINGS|THINK|TOOL_[A-Z]+|CALL_ID|BEGIN_AUDIO|IMG_(?:BREAK|END)"
    r"|BOS|EOS|CLS|SEP|PAD|UNK|UNUSED_TOKEN_\d+"
)
_TURNS: Final = (
    "system|user|assistant|human|bot|tool|tools|observation|developer|end(?:_?of_?(?:turn|text))?|think"
)
_SECTIONS: Final = (
    "TITLE|ABSTRACT|INTRODUCTION|SUMMARY|COMMENT|ANSWER|QUESTION|DOMAIN|PREFIX|SUFFIX|MIDDLE"  # Falcon's
)
_ROLES: Final = "SYSTEM|HUMAN|ASSISTANT|OBSERVATION"  # Ling's
_OPENING: Final = re.compile(
    rf"<(?=/?[{_BAR}][^\s<>]{{1,{_LONGEST}}}>|/?[^\s<>{_BAR}]{{1,{_LONGEST}}}[{_BAR}]>|/?(?:{_NAMES})>)"
    rf"|<(?=</?SYS>>|role>(?:{_ROLES})</role>)"
    rf"|\[(?=/?(?:{_BRACKETED})\]|\|(?:{_TURNS})\|\]|[a-z]~\[)"
    rf"|\](?=~!?[a-z]{{1,8}}[\[\]]|![a-z]~\[)|>(?=>(?:{_SECTIONS})<<)"
)


def broken_up(text: str) -> str:
    """Return the text with a blank behind the bracket that opens such a mark: it is then read as text.

    Of marks between plain brackets only known names are taken, since texts have tags and placeholders of
    their own. Models whose turns begin with a plain word, like `USER:`, have nothing that could be taken.
    """
    return _OPENING.sub(lambda match: f"{match[0]} ", text)

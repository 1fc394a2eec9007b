"""Whether a decision is still in force: the status that its front matter or its Status section gives.

Architecture decision records say so in one of a few ways: `status: superseded by ADR-0021` in the front
matter (MADR), a section `## Status` whose last line counts (Nygard; adr-tools writes "Superceded by"), or one
line `Status: rejected`.
"""

from __future__ import annotations

from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERSEDED = "superseded"
DEPRECATED = "deprecated"
REJECTED = "rejected"
# The words, in small letters, with which a status begins: a line a language.
_WORDS_BY_STATUS = {
    SUPERSEDED: """
        superseded superceded replaced obsoleted
        ersetzt abgelöst
        remplacé remplacée
        sustituido sustituida
        sostituito sostituita
        substituído substituída
        vervangen
        заменено заменён
        已取代 已替代 已被取代 被取代
        廃止
    """,
    DEPRECATED: """
        deprecated obsolete retired withdrawn abandoned
        veraltet
        obsolète déprécié dépréciée
        obsoleto obsoleta
        verouderd
        устарело
        已废弃 已弃用
        非推奨
    """,
    REJECTED: """
        rejected declined
        abgelehnt verworfen
        rejeté rejetée
        rechazado rechazada
        respinto
        rejeitado
        afgewezen
        отклонено
        已拒绝
        却下
    """,
}
# Words after which it says by what, since when or why; what goes on otherwise is a sentence of its own.
_FOLLOWING_WORDS = """
    by in since on as for with and because due from adr
    durch seit am weil von
    par depuis le
    por desde da dal
    door sinds
    на
"""
# What a status is called.
_STATUS_NAMES = (
    "status",
    "statut",
    "estado",
    "stato",
    "状态",
    "ステータス",
    "статус",
    "decision status",
)

_STATUSES: dict[str, str] = {}
for _status, _words in _WORDS_BY_STATUS.items():
    _STATUSES.update(dict.fromkeys(_words.split(), _status))
_FOLLOWING = frozenset(_FOLLOWING_WORDS.split())
_FIRST_UNSPACED = "\u2e80"  # where the scripts begin that put no spaces between words
_UNSPACED = tuple(word for word in _STATUSES if word[0] > _FIRST_UNSPACED)
_AROUND = " \t*_~`>#-+!|\"'“”"
_WORD_ENDS = " \t.,;:()[]|*_~<>!\"'/\u3000\uff0c\u3002\uff1a"
_SHORTEST_UNDERLINE = 3
_MOST_LINES = 400  # of a text; a status stands at its beginning


def status_of(fields: Mapping[str, list[str]], body: str) -> str:
    """Return why a decision is not in force any more: one of the three words above, or an empty string."""
    stated = _of_values([*fields.get("status", []), *fields.get("adr_status", [])])
    return stated or _of_values(_status_lines(body))


def _of_values(values: list[str]) -> str:
    """Return what the last value says that is a status of ours: adr-tools adds a line to the first one."""
    for value in reversed(values):
        status = _of_value(value.strip(_AROUND).lower())
        if status:
            return status
    return ""


def _of_value(text: str) -> str:
    """Return the status that a text begins with, unless it goes on as a sentence about something else."""
    word = text
    for place, char in enumerate(text):
        if char in _WORD_ENDS:
            word = text[:place]
            break
    status = _STATUSES.get(word, "")
    if status and _ends_or_explains(text[len(word) :].lstrip("*_~")):
        return status
    for unspaced in _UNSPACED:
        if text.startswith(unspaced):
            return _STATUSES[unspaced]
    return ""


def _ends_or_explains(rest: str) -> bool:
    """Whether what follows a status ends there, or says by what, since when or why."""
    has_no_space = rest.lstrip() == rest and rest != ""  # but a comma or a bracket
    words = rest.strip(_WORD_ENDS).split()
    if has_no_space or not words:
        return True
    first_word = words[0]
    return not first_word[0].isalpha() or first_word in _FOLLOWING


def _status_lines(body: str) -> list[str]:
    """Return the lines of the Status section, and what stands behind `Status:` before any other section."""
    lines = lines_of(body)[:_MOST_LINES]
    values: list[str] = []
    is_fenced = False
    is_in_section = False
    sections = 0  # the first one is the title's
    for place, line in enumerate(lines):
        text = line.strip()
        if text.startswith(("```", "~~~")):
            is_fenced = not is_fenced
        if is_fenced or not text:
            continue
        below = lines[place + 1].strip() if place + 1 < len(lines) else ""
        if _is_heading(text, below):
            is_in_section = text.strip("#=- \t:").lower() in _STATUS_NAMES
            sections += 1
        elif is_in_section:
            if not _is_underline(text):
                values.append(text)
        elif sections <= 1:
            name, colon, value = text.strip(_AROUND).replace("\uff1a", ":").partition(":")
            if colon and name.strip(_AROUND).lower() in _STATUS_NAMES:
                values.append(value)
    return values


def _is_heading(text: str, below: str) -> bool:
    return text.startswith("#") or (_is_underline(below) and not _is_underline(text))


def _is_underline(text: str) -> bool:
    return len(text) >= _SHORTEST_UNDERLINE and text == text[0] * len(text) and text[0] in "=-"

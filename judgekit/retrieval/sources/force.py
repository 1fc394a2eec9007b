"""Finds out whether a decision is still in force from its front matter, Status section or first lines.

Architecture decision records say so in one of a few ways: `status: superseded by ADR-0021`, `superseded_by:
ADR-0021` or `deprecated: true` in the front matter, a section `## Status` whose last line counts (Nygard;
adr-tools writes "Superceded by"), one line `Status: rejected`, a table with such a row or column, or a quote
that begins with it. The word may have marks and an emoji around it, and a struck-out status in front.
"""

from __future__ import annotations

from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERSEDED = "superseded"
DEPRECATED = "deprecated"
REJECTED = "rejected"
# The words, in lower case, that a status begins with: a line for each language.
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
# Words that introduce a successor, a date or a reason; any other continuation makes it an unrelated sentence.
_FOLLOWING_WORDS = """
    by in since on as for with and because due from adr
    durch seit am weil von
    par depuis le
    por desde da dal
    door sinds
    на
"""
# Names for a status.
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

# A key, or the name of a line or a row, followed by the successor.
_SUCCESSOR_WORDS = "superseded superceded replaced obsoleted"
_NO_SUCCESSOR = frozenset(
    ("", "-", "--", "\u2013", "\u2014", "none", "null", "~", "n/a", "no", "false")
)
_TRUE = frozenset(("true", "yes", "y", "on", "1"))
# Phrases that a quote may have in front of its status.
_OPENINGS = """
    this note adr decision document page record memory is was has been now the
"""
_BEFORE_LATER_STATUS = ("(", "\u2192", "->", "=>", ",", ";")

_DAY_NAMES = (
    "date",
    "day",
    "when",
    "since",
    "datum",
    "fecha",
    "data",
    "\u65e5\u671f",
    "\u65e5\u4ed8",
)

_SUCCESSOR_NAMES: set[str] = set()
for _word in _SUCCESSOR_WORDS.split():
    _SUCCESSOR_NAMES.update((f"{_word}_by", f"{_word}-by", f"{_word} by", f"{_word}by"))

_STATUSES: dict[str, str] = {}
for _status, _words in _WORDS_BY_STATUS.items():
    _STATUSES.update(dict.fromkeys(_words.split(), _status))
_FLAGS = frozenset(word for word in _STATUSES if word.isascii())
_STATUS_KEYS = ("status", "adr_status", "adr-status", "decision_status", "decision-status")
_SUCCESSOR_FLAGS = ("superseded", "superceded")  # `superseded: true`, or by what
KEYS = frozenset((*_STATUS_KEYS, *_SUCCESSOR_NAMES, *_FLAGS))  # of a front matter
_FOLLOWING = frozenset(_FOLLOWING_WORDS.split())
_OPENING = frozenset(_OPENINGS.split())
_FIRST_UNSPACED = "\u2e80"  # from here on, scripts don't put spaces between words
_UNSPACED = tuple(word for word in _STATUSES if word[0] > _FIRST_UNSPACED)
_AROUND = " \t*_~`>#-+!|\"'“”"
_AROUND_SUCCESSOR = " \t*_`[]()|\"'"
_WORD_ENDS = " \t.,;:()[]|*_~<>!\"'/\u3000\uff0c\u3002\uff1a"
_SHORTEST_UNDERLINE = 3
_MOST_LINES = 400  # of a text; its status must come early


def status_of(fields: Mapping[str, list[str]], body: str) -> str:
    """Return the status of a decision that's no longer in force, one of the three words above, or ""."""
    stated = []
    for key in _STATUS_KEYS:
        stated += fields.get(key, [])
    return _find_in_values(stated) or _find_in_keys(fields) or _find_in_values(_status_lines(body))


def is_true(values: list[str]) -> bool:
    """Whether a switch is on; a date (since when it's on) counts, too."""
    text = " ".join(values).strip().lower()
    is_day = text[:4].isdecimal() and text[4:5] in ("-", "/", ".")
    return text in _TRUE or is_day


def _find_in_keys(fields: Mapping[str, list[str]]) -> str:
    """Return the status given by a key of its own: `superseded_by: ADR-9`, `deprecated: true`."""
    for key, values in fields.items():
        may_name_successor = key in _SUCCESSOR_NAMES or key in _SUCCESSOR_FLAGS
        if may_name_successor and _names_successor(" ".join(values)):
            return SUPERSEDED
        if key in _FLAGS and is_true(values):
            return _STATUSES[key]
    return ""


def _names_successor(text: str) -> bool:
    return text.strip(_AROUND_SUCCESSOR).lower() not in _NO_SUCCESSOR


def _find_in_values(values: list[str]) -> str:
    """Return the last value's status of ours: adr-tools adds lines below the first one."""
    for value in reversed(values):
        status = _find_in_statement(value)
        if status:
            return status
    return ""


def _find_in_statement(value: str) -> str:
    """Find the status in a value, whatever marks are around it, or behind an earlier status."""
    text = _plain(_drop_struck(value))
    status = _find_in_value(text)
    if status:
        return status
    for sign in _BEFORE_LATER_STATUS:
        later = _plain(text.partition(sign)[2])
        # A list of all possible statuses doesn't say anything.
        is_said = sign not in (",", ";") or _explains(later)
        if later and is_said and _find_in_value(later):
            return _find_in_value(later)
    return ""


def _drop_struck(text: str) -> str:
    """Remove the parts of a text that are struck out."""
    for start, end in (("~~", "~~"), ("<del>", "</del>"), ("<s>", "</s>")):
        while start in text:
            before, _, rest = text.partition(start)
            _, closing, after = rest.partition(end)
            if not closing:
                break
            text = f"{before} {after}"
    return text


def _plain(text: str) -> str:
    """Return a text in lower case from its first letter on, without marks, emoji and their names."""
    text = text.strip(_AROUND).lower()
    if text.startswith(":"):  # `:x: Deprecated`, or a field of reST
        text = text[1:].partition(":")[2]
    for place, char in enumerate(text):
        if char.isalnum() or char == "[":
            return text[place:]
    return ""


def _explains(text: str) -> bool:
    """Whether the first word is followed by one that introduces a successor, a date or a reason."""
    words = text.split()
    return len(words) > 1 and words[1] in _FOLLOWING


def _find_in_value(text: str) -> str:
    """Return the status that a text begins with, unless it's a sentence about something else."""
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
    """Whether a status is followed by its end, or by a successor, a date or a reason."""
    has_no_space = rest.lstrip() == rest and rest != ""  # but a comma or a bracket
    words = rest.strip(_WORD_ENDS).split()
    if has_no_space or not words:
        return True
    first_word = words[0]
    return not first_word[0].isalpha() or first_word in _FOLLOWING


def _status_lines(body: str) -> list[str]:
    """Return the lines of the Status section, and any status named before the other sections."""
    lines = lines_of(body)[:_MOST_LINES]
    values: list[str] = []
    is_fenced = False
    is_in_section = False
    sections = 0  # the first is the title's
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
        elif is_in_section or sections <= 1:
            if text[0] == "|":
                values += _find_in_row(_split_cells(text))
                if _is_rule(below):
                    values += _find_in_column(lines[place:])
            elif is_in_section:
                if not _is_underline(text):
                    values.append(text)
            else:
                values += _find_in_line(text)
    return values


def _find_in_line(text: str) -> list[str]:
    """Find the status in a line: after its name, or at the beginning of a quote."""
    name, colon, value = text.strip(_AROUND).lstrip(":").replace("\uff1a", ":").partition(":")
    if colon:
        stated = _find_in_row([name, value])
        if stated:
            return stated
    if text.startswith((":::", "!!!")):  # a box, as in `:::warning Superseded`
        text = text.lstrip(":! ").partition(" ")[2]
    elif text[0] == ">":
        text = text.lstrip("> ")
        if text.startswith("[!"):  # the kind of a box
            text = text.partition("]")[2]
    elif not text.startswith(("**", "__", "~~")):
        return []
    words = text.strip(_AROUND).split()
    while words and words[0].strip(_WORD_ENDS).lower() in _OPENING:
        words = words[1:]
    statement = " ".join(words)
    # `**Rejected**: Jenkins` names an option, not the decision.
    is_option = (
        len(words) > 1 and _find_in_statement(statement) == REJECTED and not _explains(statement)
    )
    return [] if is_option else [statement]


def _find_in_row(cells: list[str]) -> list[str]:
    """Return the cell behind the name of a status; `superseded` if there is a successor."""
    if len(cells) < 2:  # noqa: PLR2004 - a name and a value
        return []
    name = cells[0].strip(_AROUND).lower()
    if name in _STATUS_NAMES:
        return [cells[1]]
    if name in _SUCCESSOR_NAMES and _names_successor(cells[1]):
        return [SUPERSEDED]
    return []


def _find_in_column(lines: list[str]) -> list[str]:
    """Return the status in a table of one row, or a row a day; longer ones list other decisions' statuses."""
    names = [cell.strip(_AROUND).lower() for cell in _split_cells(lines[0])]
    rows: list[list[str]] = []
    for line in lines[2:]:
        if line.strip()[:1] != "|":
            break
        rows.append(_split_cells(line))
    is_history = names[0] in _DAY_NAMES
    if len(rows) != 1 and not is_history:
        return []
    values: list[str] = []
    for place, name in enumerate(names):
        if name in _STATUS_NAMES:
            values += [row[place] for row in rows if place < len(row)]
    return values


def _split_cells(line: str) -> list[str]:
    return line.strip().strip("|").split("|")


def _is_rule(text: str) -> bool:
    """Whether a line separates the head of a table from its rows."""
    return text.startswith("|") and not text.strip("|:- \t")


def _is_heading(text: str, below: str) -> bool:
    return text.startswith("#") or (_is_underline(below) and not _is_underline(text))


def _is_underline(text: str) -> bool:
    return len(text) >= _SHORTEST_UNDERLINE and text == text[0] * len(text) and text[0] in "=-"

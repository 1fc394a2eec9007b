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
_MIN_UNDERLINE_CHARS = 3
_MAX_LINES = 400  # of a text; its status must come early


def find_status(fields: Mapping[str, list[str]], body: str) -> str:
    """Return the status that takes a document out of force: "superseded", "deprecated" or "rejected".

    Returns "" if neither the header nor the body has such a status.
    """
    # The header's status comes first, then its other keys, then the body.
    values = []
    for key in _STATUS_KEYS:
        values += fields.get(key, [])
    status = _find_in_values(values)
    if not status:
        status = _find_in_keys(fields)
    if not status:
        status = _find_in_values(_list_status_lines(body))
    return status


def means_yes(values: list[str]) -> bool:
    """Whether a flag's value means yes. A date does as well: some tools write when a flag was set."""
    text = " ".join(values).strip().lower()
    year = text[:4]
    sign_after_year = text[4:5]
    is_date = year.isdecimal() and sign_after_year in ("-", "/", ".")
    return text in _TRUE or is_date


def _find_in_keys(fields: Mapping[str, list[str]]) -> str:
    """Return the status given by its own key (`superseded_by: ADR-9`, `deprecated: true`), or ""."""
    for key, values in fields.items():
        may_name_successor = key in _SUCCESSOR_NAMES or key in _SUCCESSOR_FLAGS
        if may_name_successor and _names_successor(" ".join(values)):
            return SUPERSEDED
        if key in _FLAGS and means_yes(values):
            return _STATUSES[key]
    return ""


def _names_successor(text: str) -> bool:
    """Whether a value names a successor. Placeholders such as "", "none" and "n/a" don't."""
    return text.strip(_AROUND_SUCCESSOR).lower() not in _NO_SUCCESSOR


def _find_in_values(values: list[str]) -> str:
    """Return the last value's status, or "" if no value has one.

    adr-tools adds later statuses below earlier ones, so the last one counts.
    """
    for value in reversed(values):
        status = _find_in_statement(value)
        if status:
            return status
    return ""


def _find_in_statement(value: str) -> str:
    """Find the status at the start of a text, or a later one, as in `Accepted -> Deprecated`, or ""."""
    text = _strip_marks(_drop_struck(value))
    status = _find_in_value(text)
    if status:
        return status

    for sign in _BEFORE_LATER_STATUS:
        _, _, after_sign = text.partition(sign)
        later_text = _strip_marks(after_sign)
        if not later_text:
            continue
        # A template's list of all statuses (`proposed, accepted, rejected`) gives no status.
        may_be_list = sign in (",", ";")
        if may_be_list and not _explains(later_text):
            continue
        status = _find_in_value(later_text)
        if status:
            return status
    return ""


def _drop_struck(text: str) -> str:
    """Remove struck-out parts, marked up in Markdown or HTML."""
    for start, end in (("~~", "~~"), ("<del>", "</del>"), ("<s>", "</s>")):
        while start in text:
            before, _, struck = text.partition(start)
            _, closing, after = struck.partition(end)
            if not closing:
                break
            text = f"{before} {after}"
    return text


def _strip_marks(text: str) -> str:
    """Return a text in lower case, starting at its first letter, without marks and emoji around it."""
    text = text.strip(_AROUND).lower()
    if text.startswith(":"):  # `:x: Deprecated`, or `:status: deprecated` in reST
        _, _, text = text[1:].partition(":")
    for position, char in enumerate(text):
        if char.isalnum() or char == "[":
            return text[position:]
    return ""


def _explains(text: str) -> bool:
    """Whether the second word introduces a successor, a date or a reason, as in "replaced by"."""
    words = text.split()
    return len(words) > 1 and words[1] in _FOLLOWING


def _find_in_value(text: str) -> str:
    """Return the status at the start of a text; "" if the text is a sentence about something else."""
    word = text
    for position, char in enumerate(text):
        if char in _WORD_ENDS:
            word = text[:position]
            break
    status = _STATUSES.get(word, "")
    if status and _ends_or_explains(text[len(word) :].lstrip("*_~")):
        return status

    # Chinese and Japanese put no space after a word, so compare the beginning only.
    for word in _UNSPACED:
        if text.startswith(word):
            return _STATUSES[word]
    return ""


def _ends_or_explains(text_after: str) -> bool:
    """Whether nothing follows a status, or only a successor, a date or a reason.

    Any other text means that the word was the start of a sentence.
    """
    has_sign_after = text_after != "" and not text_after[0].isspace()  # a comma, a bracket
    words = text_after.strip(_WORD_ENDS).split()
    if has_sign_after or not words:
        return True
    first_word = words[0]
    is_number_or_link = not first_word[0].isalpha()
    return is_number_or_link or first_word in _FOLLOWING


def _list_status_lines(body: str) -> list[str]:
    """List the lines and cells that may start with a status.

    They're in the Status section, or above the second heading.
    """
    lines = lines_of(body)[:_MAX_LINES]
    values: list[str] = []
    is_fenced = False
    is_in_status_section = False
    heading_count = 0
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith(("```", "~~~")):
            is_fenced = not is_fenced
        if is_fenced or not text:
            continue

        line_below = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _is_heading(text, line_below):
            is_in_status_section = text.strip("#=- \t:").lower() in _STATUS_NAMES
            heading_count += 1
            continue

        is_at_top = heading_count <= 1  # the first heading is the title
        if not is_in_status_section and not is_at_top:
            continue

        if text[0] == "|":  # a table
            values += _find_in_row(_split_cells(text))
            if _is_rule(line_below):
                values += _find_in_column(lines[number:])
        elif is_in_status_section:
            if not _is_underline(text):
                values.append(text)
        else:
            values += _find_in_line(text)

    return values


def _find_in_line(text: str) -> list[str]:
    """Find the text in a line that may start with a status, and return it in a list, or [].

    It's the text after `Status:`, or the text of a quote, a box or a line in bold.
    """
    line = text.strip(_AROUND).lstrip(":").replace("\uff1a", ":")  # a wide Chinese colon
    name, colon, value = line.partition(":")
    if colon:
        values = _find_in_row([name, value])
        if values:
            return values

    if text.startswith((":::", "!!!")):  # a box, as in `:::warning Superseded`
        _, _, text = text.lstrip(":! ").partition(" ")
    elif text[0] == ">":
        text = text.lstrip("> ")
        if text.startswith("[!"):  # the type of a box, as in `[!WARNING]`
            _, _, text = text.partition("]")
    elif not text.startswith(("**", "__", "~~")):
        return []

    # Skip an introduction such as "This ADR has been".
    words = text.strip(_AROUND).split()
    while words and words[0].strip(_WORD_ENDS).lower() in _OPENING:
        words = words[1:]
    statement = " ".join(words)

    # `**Rejected**: Jenkins` names an option, not the decision.
    is_rejected = len(words) > 1 and _find_in_statement(statement) == REJECTED
    if is_rejected and not _explains(statement):
        return []
    return [statement]


def _find_in_row(cells: list[str]) -> list[str]:
    """Return the status that a table row gives, in a list, or an empty list.

    A row that starts with a cell `Status` gives its second cell, and `Replaced by` gives "superseded".
    """
    if len(cells) < 2:  # noqa: PLR2004 - a name and a value
        return []
    name = cells[0].strip(_AROUND).lower()
    value = cells[1]
    if name in _STATUS_NAMES:
        return [value]
    if name in _SUCCESSOR_NAMES and _names_successor(value):
        return [SUPERSEDED]
    return []


def _find_in_column(lines: list[str]) -> list[str]:
    """Find the cells below `Status` in a table whose header row is the first of `lines`.

    The table must have a single row, or be a history with dates. Other tables list other decisions.
    """
    column_names = [cell.strip(_AROUND).lower() for cell in _split_cells(lines[0])]
    rows: list[list[str]] = []
    for line in lines[2:]:  # skip the header row and the rule below it
        if not line.lstrip().startswith("|"):
            break
        rows.append(_split_cells(line))

    is_history = column_names[0] in _DAY_NAMES
    if len(rows) != 1 and not is_history:
        return []

    values: list[str] = []
    for column, name in enumerate(column_names):
        if name in _STATUS_NAMES:
            values += [row[column] for row in rows if column < len(row)]
    return values


def _split_cells(line: str) -> list[str]:
    """Split a row of a Markdown table (`| a | b |`) into its cells."""
    return line.strip().strip("|").split("|")


def _is_rule(text: str) -> bool:
    """Whether a line separates a table's header from its rows."""
    return text.startswith("|") and not text.strip("|:- \t")


def _is_heading(text: str, line_below: str) -> bool:
    """Whether a line is a heading: `## Status`, or a line that's underlined by the next line."""
    if text.startswith("#"):
        return True
    return _is_underline(line_below) and not _is_underline(text)


def _is_underline(text: str) -> bool:
    """Whether a line is only `=` or only `-`, at least three of them."""
    if len(text) < _MIN_UNDERLINE_CHARS or text[0] not in "=-":
        return False
    return text.count(text[0]) == len(text)

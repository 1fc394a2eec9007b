"""Finds out whether a decision is still in force from its front matter, Status section or first lines.

Architecture decision records say so in one of a few ways: `status: superseded by ADR-0021`, `superseded_by:
ADR-0021` or `deprecated: true` in the front matter, a section `## Status` whose last line counts (Nygard;
adr-tools writes "Superceded by"), one line `Status: rejected`, a table with such a row or column, or a quote
that begins with it. The word may have marks and an emoji around it, and a struck-out status in front.
"""

from __future__ import annotations

from judgekit.text import split_lines

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
_TRUE_WORDS = frozenset(("true", "yes", "y", "on", "1"))
# Phrases that a quote may have in front of its status.
_OPENINGS = """
    this note adr decision document page record memory is was has been now the
"""
_BEFORE_LATER_STATUS = ("(", "\u2192", "->", "=>", ",", ";")

# Names for a date.
_DATE_NAMES = (
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

_STATUS_BY_WORD: dict[str, str] = {}
for _status, _words in _WORDS_BY_STATUS.items():
    _STATUS_BY_WORD.update(dict.fromkeys(_words.split(), _status))
_STATUS_FLAG_KEYS = frozenset(word for word in _STATUS_BY_WORD if word.isascii())
_STATUS_KEYS = ("status", "adr_status", "adr-status", "decision_status", "decision-status")
_SUCCESSOR_FLAGS = ("superseded", "superceded")  # `superseded: true`, or by what
KEYS = frozenset((*_STATUS_KEYS, *_SUCCESSOR_NAMES, *_STATUS_FLAG_KEYS))  # of a front matter
_WORDS_AFTER_STATUS = frozenset(_FOLLOWING_WORDS.split())
_QUOTE_OPENING_WORDS = frozenset(_OPENINGS.split())
_FIRST_UNSPACED_SCRIPT_CHAR = "\u2e80"  # from here on, scripts don't put spaces between words
_UNSPACED_STATUS_WORDS = tuple(
    word for word in _STATUS_BY_WORD if word[0] > _FIRST_UNSPACED_SCRIPT_CHAR
)
_CHARS_AROUND_TEXT = " \t*_~`>#-+!|\"'“”"
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
    """Whether a flag's value means yes.

    A date means yes too, because some tools write the day on which a flag was set.
    """
    text = " ".join(values).strip().lower()
    year = text[:4]
    sign_after_year = text[4:5]
    is_date = year.isdecimal() and sign_after_year in ("-", "/", ".")
    return text in _TRUE_WORDS or is_date


def _find_in_keys(fields: Mapping[str, list[str]]) -> str:
    """Return the status given by its own key (`superseded_by: ADR-9`, `deprecated: true`), or ""."""
    for key, values in fields.items():
        may_name_successor = key in _SUCCESSOR_NAMES or key in _SUCCESSOR_FLAGS
        if may_name_successor and _names_successor(" ".join(values)):
            return SUPERSEDED
        if key in _STATUS_FLAG_KEYS and means_yes(values):
            return _STATUS_BY_WORD[key]
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
    """Find a status such as "deprecated" at the start of a text, or "".

    "Accepted" isn't one of these, so `Accepted -> Deprecated` gives the status after the arrow.
    """
    text = _cut_to_first_word(_drop_struck(value))
    status = _find_in_value(text)
    if status:
        return status

    for sign in _BEFORE_LATER_STATUS:
        _, _, text_after = text.partition(sign)
        later_status = _find_later_status(sign, _cut_to_first_word(text_after))
        if later_status:
            return later_status
    return ""


def _find_later_status(sign: str, later_text: str) -> str:
    """Find the status at the start of the text after a sign such as `->`, or ""."""
    if not later_text:
        return ""
    # `proposed, accepted, rejected` is a template's list of all statuses. After a comma, a status counts
    # only with a successor, a date or a reason, as in `accepted, superseded by ADR-9`.
    may_be_list = sign in (",", ";")
    if may_be_list and not _explains_status(later_text):
        return ""
    return _find_in_value(later_text)


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


def _cut_to_first_word(text: str) -> str:
    """Cut a text to start at its first word, in lower case: `**Deprecated**` becomes `deprecated`.

    Marks and emoji before the word are dropped, but not the bracket of a link.
    """
    text = text.strip(_CHARS_AROUND_TEXT).lower()
    if text.startswith(":"):  # `:x: Deprecated`, or `:status: deprecated` in reST
        _, _, text = text[1:].partition(":")
    for position, char in enumerate(text):
        if char.isalnum() or char == "[":
            return text[position:]
    return ""


def _explains_status(text: str) -> bool:
    """Whether the second word introduces a successor, a date or a reason, as in "replaced by"."""
    words = text.split()
    return len(words) > 1 and words[1] in _WORDS_AFTER_STATUS


def _find_in_value(text: str) -> str:
    """Return the status at the start of a text; "" if the text is a sentence about something else."""
    word = _cut_first_word(text)
    status = _STATUS_BY_WORD.get(word, "")
    if status and _confirms_status(text[len(word) :].lstrip("*_~")):
        return status

    # Chinese and Japanese put no space after a word, so compare the beginning only.
    for unspaced_word in _UNSPACED_STATUS_WORDS:
        if text.startswith(unspaced_word):
            return _STATUS_BY_WORD[unspaced_word]
    return ""


def _cut_first_word(text: str) -> str:
    """Return a text up to the first blank or sign that ends a word."""
    for position, char in enumerate(text):
        if char in _WORD_ENDS:
            return text[:position]
    return text


def _confirms_status(text_after: str) -> bool:
    """Whether a word is a status, judging by the text after it, as in `superseded by ADR-9`.

    If the text just goes on, as in `deprecated functions are removed`, the word only starts a sentence.
    """
    has_sign_after = text_after != "" and not text_after[0].isspace()
    if has_sign_after:  # a comma, a bracket
        return True

    words = text_after.strip(_WORD_ENDS).split()
    if not words:  # the status stands alone
        return True
    first_word = words[0]
    is_number_or_link = not first_word[0].isalpha()  # a date, or the successor
    return is_number_or_link or first_word in _WORDS_AFTER_STATUS


def _list_status_lines(body: str) -> list[str]:
    """List the lines and cells that may start with a status.

    In the Status section, any line may. Above the second heading, only table rows and statements may.
    """
    lines = split_lines(body)[:_MAX_LINES]
    values: list[str] = []
    is_in_code = False
    is_in_status_section = False
    heading_count = 0
    for index, line in enumerate(lines):
        text = line.strip()
        if text.startswith(("```", "~~~")):
            is_in_code = not is_in_code
        if is_in_code or not text:
            continue

        is_last_line = index + 1 == len(lines)
        line_below = "" if is_last_line else lines[index + 1].strip()
        if _is_heading(text, line_below):
            is_in_status_section = text.strip("#=- \t:").lower() in _STATUS_NAMES
            heading_count += 1
            continue

        is_at_top = heading_count <= 1  # the first heading is the title
        is_row = text[0] == "|"
        if is_row and (is_in_status_section or is_at_top):
            values += _find_in_row(_split_cells(text))
            is_header_row = _is_rule(line_below)
            if is_header_row:
                values += _find_statuses_in_column(lines[index:])
        elif is_in_status_section:
            values += [] if _is_underline(text) else [text]
        elif is_at_top:
            values += _find_statement(text)

    return values


def _find_statement(text: str) -> list[str]:
    """Find the text in a line that may start with a status, and return it in a list, or [].

    It's the text after `Status:`, or the text of a quote, a box or a line in bold.
    """
    values = _find_in_pair(text)
    if values:
        return values

    emphasised_text = _find_emphasis(text)
    if emphasised_text is None:
        return []
    statement = _skip_introduction(emphasised_text)
    return [] if _rejects_option(statement) else [statement]


def _find_in_pair(text: str) -> list[str]:
    """Find the status in a line such as `Status: accepted`. Returns it in a list, or []."""
    line = text.strip(_CHARS_AROUND_TEXT).lstrip(":").replace("\uff1a", ":")  # a wide Chinese colon
    name, colon, value = line.partition(":")
    return _find_in_row([name, value]) if colon else []


def _find_emphasis(text: str) -> str | None:
    """Return the text of a box, a quote or a line in bold; None for any other line."""
    if text.startswith((":::", "!!!")):  # a box, as in `:::warning Superseded`
        _, _, box_text = text.lstrip(":! ").partition(" ")
        return box_text
    if text[0] == ">":
        quote = text.lstrip("> ")
        if quote.startswith("[!"):  # the type of a box, as in `[!WARNING]`
            _, _, quote = quote.partition("]")
        return quote
    return text if text.startswith(("**", "__", "~~")) else None


def _skip_introduction(text: str) -> str:
    """Skip an introduction such as "This ADR has been"."""
    words = text.strip(_CHARS_AROUND_TEXT).split()
    while words and words[0].strip(_WORD_ENDS).lower() in _QUOTE_OPENING_WORDS:
        words = words[1:]
    return " ".join(words)


def _rejects_option(statement: str) -> bool:
    """Whether a text such as `**Rejected**: Jenkins` rejects an option, not the decision."""
    has_more_words = " " in statement
    is_rejected = has_more_words and _find_in_statement(statement) == REJECTED
    return is_rejected and not _explains_status(statement)


def _find_in_row(cells: list[str]) -> list[str]:
    """Find the status in a table row such as `| Status | accepted |`. Returns it in a list, or [].

    A row `Replaced by` gives "superseded" if its value names a successor.
    """
    if len(cells) < 2:  # noqa: PLR2004 - a name and a value
        return []
    name = cells[0].strip(_CHARS_AROUND_TEXT).lower()
    value = cells[1]
    if name in _STATUS_NAMES:
        return [value]
    if name in _SUCCESSOR_NAMES and _names_successor(value):
        return [SUPERSEDED]
    return []


def _find_statuses_in_column(lines: list[str]) -> list[str]:
    """Find the cells below `Status` in a table whose header row is the first of `lines`.

    A table of several rows counts only if it's a history by date. Otherwise each row is about a different
    decision.
    """
    column_names = [cell.strip(_CHARS_AROUND_TEXT).lower() for cell in _split_cells(lines[0])]
    rows = _read_rows(lines[2:])  # below the header row and its rule
    has_one_row = len(rows) == 1
    is_history = column_names[0] in _DATE_NAMES
    is_of_one_decision = has_one_row or is_history
    if not is_of_one_decision:
        return []

    values: list[str] = []
    for column, name in enumerate(column_names):
        if name in _STATUS_NAMES:
            values += [row[column] for row in rows if column < len(row)]  # a row may be too short
    return values


def _read_rows(lines: list[str]) -> list[list[str]]:
    """Split table rows into cells, up to the first line that isn't a row."""
    rows: list[list[str]] = []
    for line in lines:
        if not line.lstrip().startswith("|"):
            break
        rows.append(_split_cells(line))
    return rows


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

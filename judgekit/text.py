"""Untrusted text made safe to show and to put into a prompt."""

from __future__ import annotations

_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
# What has a visible category and shows nothing: the rest of the Default_Ignorable_Code_Point of Unicode's
# DerivedCoreProperties.txt (variation selectors and fillers among them), and the blank Braille pattern.
_BLANK = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065)),
    *((0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8)),
    (0xE0000, 0xE0FFF),
)
_PIECE = 8192
_FORMULA_BEGINS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # full width, too
_OF_NUMBERS = frozenset("0123456789.eE+-")
_MOST_LEARNT = 4096  # characters; a text of any script has fewer
_SOURCES = {"project": " (the project's)", "user": " (your own)", "path": " (from a file)"}


def rubric_name(name: str, source: str | None) -> str:
    """Return a rubric's name; one that judgekit did not bring, though it brings one of that id, says so."""
    return f"{name}{_SOURCES.get(source or '', '')}"


def visible(text: str) -> str:
    """Return `text` without what nobody sees; line breaks and tabs stay, other separators become breaks."""
    text = (
        text.replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\u2028", "\n")
        .replace("\u2029", "\n")
    )
    line = text.replace("\n", " ").replace("\t", " ")
    if line.isascii() and line.isprintable():
        return text
    return text.translate(_SHOWN)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, ended by LF or CR LF alone; `str.splitlines` ends them at nine others."""
    if text:
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return []


def defused(cell: str) -> str:
    """Return the text of a cell of CSV so that no spreadsheet calculates it; `as_before` undoes that.

    A number stays as it is, with its sign.
    """
    if _is_formula(cell.lstrip("'")):
        return f"'{cell}"
    return cell


def as_before(cell: str) -> str:
    """Return a cell of CSV that was `defused` as it was before."""
    if cell[:1] == "'" and _is_formula(cell.lstrip("'")):
        return cell[1:]
    return cell


def _is_formula(cell: str) -> bool:
    if cell[:1] in ("\t", "\r"):
        return True
    if not cell.lstrip().startswith(_FORMULA_BEGINS):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return not set(cell) <= _OF_NUMBERS


def counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def is_blank(text: str) -> bool:
    """Whether nobody sees anything in `text`."""
    # A long text that begins with something is not read to its end.
    return not any(visible(text[at : at + _PIECE]).strip() for at in range(0, len(text), _PIECE))


def escaped(text: str) -> str:
    """Return a name as one line that a terminal shows and does not obey: what is not visible is escaped."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_ESCAPED)


def encodable(text: str) -> str:
    """Return `text` with lone surrogates replaced: they can be neither printed nor written as JSON."""
    if not text.isascii():
        return text.encode("utf-8", "replace").decode()
    return text


class RepeatedKeyError(ValueError):
    """A JSON object that has a `key` twice: which of the values is meant, nobody knows."""

    def __init__(self, key: str) -> None:
        self.key = encodable(key)
        super().__init__(f"the key {short_line(self.key, 60)!r} is there twice")


def with_different_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object for `json.loads(…, object_pairs_hook=…)`; raises `RepeatedKeyError`."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(key)
        found[key] = value
    return found


def strict_json(text: str | bytes) -> object:
    """Read JSON to the letter: `ValueError` for a doubled key, NaN, infinity, or too deep nesting."""
    import json  # noqa: PLC0415 - the hook has a reader of its own

    # Python reads NaN and infinities, which are no JSON; as whole numbers they raise.
    try:
        return json.loads(text, object_pairs_hook=with_different_keys, parse_constant=int)
    except RecursionError:
        raise ValueError("nested too deep") from None


def short_line(text: str, limit: int) -> str:
    """Return visible text on one line, cut after `limit` characters with an ellipsis."""
    line = " ".join(visible(text[: 4 * limit]).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + "…"


class _Table(dict[int, "int | str | None"]):
    """A table for `str.translate` that learns which characters are shown; it drops or escapes the rest."""

    escape = False

    def __missing__(self, code: int) -> int | str | None:
        if len(self) >= _MOST_LEARNT:
            self.clear()
        char = chr(code)
        if char.isascii():
            hidden = not char.isprintable() and (self.escape or char not in "\n\t")
        else:
            import unicodedata  # noqa: PLC0415 - the hook shows plain text most of the time

            blank = any(first <= code <= last for first, last in _BLANK)
            hidden = blank or unicodedata.category(char) in _INVISIBLE
        if self.escape:
            instead = char.encode("unicode_escape").decode()
        else:
            instead = None
        self[code] = instead if hidden else code
        return self[code]


_SHOWN = _Table()
_ESCAPED = _Table()
_ESCAPED.escape = True


def unstorable(value: object) -> str:
    """Say where in JSON a character stands that no database and no file of JSON holds; "" where none does."""
    left: list[tuple[str, object]] = [("", value)]
    while left:
        place, item = left.pop()
        if isinstance(item, str):
            problem = _unstorable_character(item)
            if problem:
                return f"{place or 'the text'}: holds {problem}; leave it out"
        elif isinstance(item, dict):
            for key, content in item.items():
                left.append((f"a key of {place or 'the body'}", key))
                left.append((f"{place}.{escaped(str(key))}".lstrip("."), content))
        elif isinstance(item, list):
            for number, content in enumerate(item):
                left.append((f"{place}.{number}".lstrip("."), content))
    return ""


def _unstorable_character(text: str) -> str:
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair, which is no character"
    return ""

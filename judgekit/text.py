"""Makes untrusted text safe to show and to put into a prompt."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

_INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
# Ranges of characters in other categories that show nothing, either: the remaining ones with
# Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt (variation selectors and fillers among
# them), and the blank Braille pattern.
_BLANK_CHAR_RANGES = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065)),
    *((0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8)),
    (0xE0000, 0xE0FFF),
)
_CHUNK_SIZE = 8192  # characters
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # full width, too
_NUMBER_CHARS = frozenset("0123456789.eE+-")
_MAX_CACHED = 4096  # characters; a text in any script has fewer
_COLOURS_REGEX = r"(?:\x1b\[[0-9;]*m)*"  # some servers remove colours before they look for commands
_BLANK_IN_LINE = r"[^\S\n\r\u2028\u2029]"
# The commands that CI servers execute. A text with a command contains one of its markers. The pattern matches
# the sign to escape, and the text before it.
_COMMAND_PATTERN_BY_MARKERS = {
    # Azure (learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands), GitHub's first form and
    # TeamCity (jetbrains.com/help/teamcity/service-messages.html): ##vso[, ##[, ##teamcity[, anywhere.
    (
        "##",
        "#\x1b",
    ): rf"(?P<before>)(?P<sign>#)(?={_COLOURS_REGEX}#{_COLOURS_REGEX}[\w.-]*{_COLOURS_REGEX}\[)",
    # GitHub (docs.github.com/actions/reference/workflow-commands): ::set-env, behind blanks.
    ("::", ":\x1b"): (
        rf"(?P<before>(?:^|[\r\u2028\u2029])(?:{_BLANK_IN_LINE}|\x1b\[[0-9;]*m)*)"
        rf"(?P<sign>:)(?={_COLOURS_REGEX}:)"
    ),
    # GitLab (docs.gitlab.com/ci/jobs/job_logs) and Travis: section_start:, travis_fold:, anywhere.
    ("section_", "travis_"): r"(?P<before>section|travis)(?P<sign>_)(?=(?:start|end|fold|time):)",
    # Buildkite (buildkite.com/docs/pipelines/configure/managing-log-output): headings at the start of a
    # line. `--- user` is one of our own, above a part of a prompt.
    ("---", "+++", "~~~", "^^^"): (
        rf"(?P<before>^{_COLOURS_REGEX})(?P<sign>[-+~^])(?=(?:--|\+\+|~~|\^\^){_BLANK_IN_LINE}+\S)"
        r"(?!-- (?:system|user|assistant)$)"
    ),
}
_ANNOTATION_PREFIXES = ("::error ", "::warning ", "::notice ")
_SUFFIX_BY_SOURCE = {"project": " (the project's)", "user": " (your own)", "path": " (from a file)"}


def format_rubric_name(name: str, source: str | None) -> str:
    """Add the source to a rubric's name, as in `document@1 (the project's)`.

    Only rubrics that replace a bundled one have a source.
    """
    if source is None:
        return name
    suffix = _SUFFIX_BY_SOURCE.get(source, "")  # such as " (the project's)" for "project"
    return name + suffix


def remove_invisible(text: str) -> str:
    """Remove invisible characters except tabs, and convert all line separators to LF."""
    for separator in ("\r\n", "\r", "\u2028", "\u2029"):
        text = text.replace(separator, "\n")

    # Most texts are plain ASCII, and finding that out is faster than translating them.
    without_breaks = text.replace("\n", " ").replace("\t", " ")
    is_plain = without_breaks.isascii() and without_breaks.isprintable()
    return text if is_plain else text.translate(_VISIBLE_TEXT_TABLE)


def split_lines(text: str) -> list[str]:
    """Split text into lines at LF or CR LF only, unlike `str.splitlines`."""
    if not text:
        return []
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def defuse_cell(cell: str) -> str:
    """Prefix a CSV cell with `'` if a spreadsheet would evaluate it. `restore_cell` removes the prefix."""
    # Also prefix a cell such as `'=A1`. Otherwise `restore_cell` would remove its original quote.
    if _is_formula(cell.lstrip("'")):
        return f"'{cell}"
    return cell


def restore_cell(cell: str) -> str:
    """Undo `defuse_cell`."""
    if cell.startswith("'") and _is_formula(cell.lstrip("'")):
        return cell[1:]
    return cell


def _is_formula(cell: str) -> bool:
    """Whether a spreadsheet might evaluate a cell as a formula. Plain numbers, such as -1.5, are safe."""
    if cell.startswith(("\t", "\r")):  # in OWASP's list of dangerous first characters
        return True
    starts_like_formula = cell.lstrip().startswith(_FORMULA_STARTS)
    return starts_like_formula and not _is_plain_number(cell)


def _is_plain_number(cell: str) -> bool:
    """Whether a cell is a number to Python and to spreadsheets."""
    try:
        float(cell)
    except ValueError:
        return False
    # `float` accepts numbers that spreadsheets don't: "-inf", "+1_000", digits in other scripts.
    return all(char in _NUMBER_CHARS for char in cell)


def format_count(count: int, one: str, many: str) -> str:
    """Format a count with the singular or plural: `1 file`, `1,200 files`."""
    noun = one if count == 1 else many
    return f"{count:,} {noun}"


def is_blank(text: str) -> bool:
    """Whether text contains nothing but whitespace and invisible characters."""
    # Check in chunks, because the first chunk usually contains something visible.
    for start in range(0, len(text), _CHUNK_SIZE):
        chunk = text[start : start + _CHUNK_SIZE]
        if remove_invisible(chunk).strip():
            return False
    return True


def escape_name(text: str) -> str:
    """Escape a name to a single line that is safe to print on a terminal or in a CI log."""
    if not (text.isascii() and text.isprintable()):
        text = text.translate(_ESCAPE_TABLE)
    return escape_ci_commands(text)


def escape_ci_commands(text: str) -> str:
    r"""Escape CI commands: `##vso[` becomes `\x23#vso[`.

    CI servers execute such commands anywhere in a log, even in a quote or a file name. So all output must go
    through this function. Add colours before: once a server removes them, a command may appear.
    """
    return _escape_commands(text, "\\x{:02x}")


def escape_for_json(text: str) -> str:
    """Escape CI commands and control characters in JSON without changing its values."""
    if not (text.isascii() and text.isprintable()):
        text = text.translate(_JSON_ESCAPE_TABLE)
    return _escape_commands(text, "\\u{:04x}")


def escape_for_xml(text: str) -> str:
    """Escape CI commands and control characters in XML without changing its values."""
    if not (text.isascii() and text.isprintable()):
        text = text.translate(_XML_ESCAPE_TABLE)
    return _escape_commands(text, "&#x{:x};")


def escape_for_csv(text: str) -> str:
    """Escape CI commands and control characters in CSV, except line breaks."""
    if not (text.isascii() and text.isprintable()):
        text = text.replace("\r\n", "\n").translate(_CSV_ESCAPE_TABLE)
    return escape_ci_commands(text)


def escape_all_but_annotations(text: str) -> str:
    """Escape CI commands, except GitHub's annotations, such as `::error`, at the start of a line."""
    lines = []
    for line in split_lines(text):
        annotation = _find_annotation(line)
        message = line.removeprefix(annotation)
        lines.append(annotation + escape_ci_commands(message))
    return "\n".join(lines)


def _find_annotation(line: str) -> str:
    """Return the start of a line, such as `::error`, if the line is an annotation. Otherwise, return ""."""
    for start in _ANNOTATION_PREFIXES:
        if line.startswith(start):
            return start
    return ""


def _escape_commands(text: str, escape_format: str) -> str:
    r"""Escape one sign of each CI command, such as the first colon of `::error::`.

    The CI server then ignores the command. `escape_format` formats the sign's code, as in `\x{:02x}`.
    """
    # Only match patterns whose markers appear in the text, because matching every pattern is slow.
    patterns = []
    for markers, pattern in _COMMAND_PATTERN_BY_MARKERS.items():
        if any(marker in text for marker in markers):
            patterns.append(pattern)
    if not patterns:
        return text
    import re  # noqa: PLC0415 - imported lazily to keep the hooks fast

    def escape_sign(match: re.Match[str]) -> str:
        return match["before"] + escape_format.format(ord(match["sign"]))

    for pattern in patterns:
        text = re.sub(pattern, escape_sign, text, flags=re.MULTILINE)
    return text


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which can't be encoded as UTF-8, with `?`."""
    if not text.isascii():
        return text.encode("utf-8", "replace").decode()
    return text


class RepeatedKeyError(ValueError):
    """A JSON object has the same `key` twice, so its value is ambiguous."""

    def __init__(self, key: str) -> None:
        self.key = replace_surrogates(key)
        super().__init__(f"the key {shorten_to_line(self.key, 60)!r} is there twice")


def refuse_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a dict from the pairs of a JSON object. Raises `RepeatedKeyError` if two have the same key.

    This is for `json.loads`, as its `object_pairs_hook`.
    """
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise RepeatedKeyError(key)
        members[key] = value
    return members


def parse_strict_json(text: str | bytes) -> object:
    """Parse JSON. Raises `ValueError`, also for repeated keys, NaN, infinity, and nesting that's too deep."""
    import json  # noqa: PLC0415 - imported lazily to keep the hooks fast

    # `json` accepts NaN and Infinity and passes them to `parse_constant`. `int("NaN")` raises `ValueError`.
    try:
        return json.loads(text, object_pairs_hook=refuse_repeated_keys, parse_constant=int)
    except RecursionError:
        raise ValueError("nested too deep") from None


def shorten_to_line(text: str, limit: int) -> str:
    """Put the visible text on one line, shortened to `limit` characters with an ellipsis."""
    # Only use the beginning, because a complete text could take long. Some characters are removed, so take
    # more than `limit`.
    beginning = text[: 4 * limit]
    line = " ".join(remove_invisible(beginning).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + "…"


class _Table(dict[int, "int | str | None"]):
    """A table for `str.translate` that escapes invisible characters, except those in `allowed`.

    Without `escape`, invisible characters are removed. The table is filled when it's used.
    """

    def __init__(
        self, allowed: str = "\n\t", escape: Callable[[str], str | None] | None = None
    ) -> None:
        """Create an empty table that keeps the control characters in `allowed`.

        `escape` returns the replacement for any other invisible character, or None to remove it. Without
        `escape`, they're all removed.
        """
        super().__init__()
        self._allowed = allowed
        self._escape = escape

    def __missing__(self, code: int) -> int | str | None:
        """Return a character's replacement, and add it to this dict, when `str.translate` first asks for it.

        Visible characters stay. Invisible ones are escaped or removed.
        """
        if len(self) >= _MAX_CACHED:  # so that long texts don't use much memory
            self.clear()

        if not self._is_invisible(code):
            self[code] = code
        elif self._escape is None:
            self[code] = None  # removes the character
        else:
            self[code] = self._escape(chr(code))
        return self[code]

    def _is_invisible(self, code: int) -> bool:
        """Whether a character is invisible and not allowed."""
        char = chr(code)
        if char.isascii():
            return not char.isprintable() and char not in self._allowed
        import unicodedata  # noqa: PLC0415 - imported lazily to keep the hooks fast

        is_blank_char = any(first <= code <= last for first, last in _BLANK_CHAR_RANGES)
        return is_blank_char or unicodedata.category(char) in _INVISIBLE_CATEGORIES


def _escape_as_unicode(char: str) -> str:
    r"""Escape a character as Python does: `\x1b`, `\u200b`, `\U000e0001`."""
    return char.encode("unicode_escape").decode()


def _escape_as_json(char: str) -> str:
    r"""Escape a character as JSON does, such as `\u200b`."""
    digits = char.encode("utf-16-be", "surrogatepass").hex()
    # Beyond U+FFFF, UTF-16 uses a surrogate pair, which takes two escape sequences.
    first_unit = digits[:4]
    second_unit = digits[4:]
    return f"\\u{first_unit}\\u{second_unit}" if second_unit else f"\\u{first_unit}"


def _escape_as_xml(char: str) -> str:
    """Escape a character as `&#x200b;`."""
    return f"&#x{ord(char):x};"


_VISIBLE_TEXT_TABLE = _Table()
_ESCAPE_TABLE = _Table(allowed="", escape=_escape_as_unicode)
_CSV_ESCAPE_TABLE = _Table(escape=_escape_as_unicode)
_JSON_ESCAPE_TABLE = _Table(escape=_escape_as_json)
_XML_ESCAPE_TABLE = _Table(escape=_escape_as_xml)


def find_unstorable(value: object) -> str:
    """Search a JSON value for a character that databases or files can't store, such as a NUL.

    Returns a message that describes one such character and its location, or "" if there's none.
    """
    # Values to check, each with its path, such as `rows.3.title`.
    pending: list[tuple[str, object]] = [("", value)]
    while pending:
        path, item = pending.pop()
        problem = _describe_unstorable(item) if isinstance(item, str) else ""
        if problem:
            return f"{path or 'the text'}: holds {problem}; leave it out"
        pending += _list_members(path, item)
    return ""


def _list_members(path: str, item: object) -> list[tuple[str, object]]:
    """List the keys and values of a dict, or the values of a list. Other items have no members.

    Each comes with its location for error messages, such as `rows.3.title` or `a key of rows.3`.
    """
    members: list[tuple[str, object]] = []
    if isinstance(item, dict):
        dict_location = path or "the body"  # of a request
        for key, content in item.items():
            members.append((f"a key of {dict_location}", key))
            members.append((_extend_path(path, escape_name(str(key))), content))
    elif isinstance(item, list):
        for number, content in enumerate(item):
            members.append((_extend_path(path, str(number)), content))
    return members


def _extend_path(path: str, name: str) -> str:
    """Add a name to a path: `rows.3` and `title` give `rows.3.title`. The first name has no dot before it."""
    return f"{path}.{name}".lstrip(".")


def _describe_unstorable(text: str) -> str:
    """Describe the first kind of unstorable character found in a string. Returns "" if there's none."""
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair, which is no character"
    return ""

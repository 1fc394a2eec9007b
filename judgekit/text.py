"""Untrusted text made safe to show and to put into a prompt."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

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
_COLOUR = r"(?:\x1b\[[0-9;]*m)*"  # some servers take colours out before they read a line
_BLANK_IN_LINE = r"[^\S\n\r\u2028\u2029]"
# The commands that CI servers obey, by what a text with one has in it: a pattern of what stands before the
# sign that is written in another form, and of that sign.
_COMMANDS = {
    # Azure (learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands), GitHub's first form and
    # TeamCity (jetbrains.com/help/teamcity/service-messages.html): ##vso[, ##[, ##teamcity[, anywhere.
    ("##", "#\x1b"): rf"(?P<before>)(?P<sign>#)(?={_COLOUR}#{_COLOUR}[\w.-]*{_COLOUR}\[)",
    # GitHub (docs.github.com/actions/reference/workflow-commands): ::set-env, behind blanks.
    ("::", ":\x1b"): (
        rf"(?P<before>(?:^|[\r\u2028\u2029])(?:{_BLANK_IN_LINE}|\x1b\[[0-9;]*m)*)"
        rf"(?P<sign>:)(?={_COLOUR}:)"
    ),
    # GitLab (docs.gitlab.com/ci/jobs/job_logs) and Travis: section_start:, travis_fold:, anywhere.
    ("section_", "travis_"): r"(?P<before>section|travis)(?P<sign>_)(?=(?:start|end|fold|time):)",
    # Buildkite (buildkite.com/docs/pipelines/configure/managing-log-output): headings at the start of a
    # line. `--- user` is one of our own, above a part of a prompt.
    ("---", "+++", "~~~", "^^^"): (
        rf"(?P<before>^{_COLOUR})(?P<sign>[-+~^])(?=(?:--|\+\+|~~|\^\^){_BLANK_IN_LINE}+\S)"
        r"(?!-- (?:system|user|assistant)$)"
    ),
}
_ANNOTATIONS = ("::error ", "::warning ", "::notice ")
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
    """Return a name as one line that a terminal or a log shows and does not obey.

    What is not visible is escaped, and so are the commands of CI servers.
    """
    if not (text.isascii() and text.isprintable()):
        text = text.translate(_ESCAPED)
    return disarmed(text)


def disarmed(text: str) -> str:
    r"""Return a text for people in which a CI server finds no command: `##vso[` becomes `\x23#vso[`.

    These servers obey lines of a log, whoever wrote them: a file's name, a finding, a quote. All that is
    printed goes through here, with the colours that it has by then.
    """
    return _without_commands(text, "\\x{:02x}")


def disarmed_json(text: str) -> str:
    """Return JSON with the same values in which neither a CI server nor a terminal finds a command."""
    if not (text.isascii() and text.isprintable()):
        text = text.translate(_ESCAPED_IN_JSON)
    return _without_commands(text, "\\u{:04x}")


def disarmed_xml(text: str) -> str:
    """Return XML with the same values in which neither a CI server nor a terminal finds a command."""
    if not (text.isascii() and text.isprintable()):
        text = text.translate(_ESCAPED_IN_XML)
    return _without_commands(text, "&#x{:x};")


def disarmed_csv(text: str) -> str:
    """Return CSV in which neither a CI server nor a terminal finds a command; line breaks in cells stay."""
    if not (text.isascii() and text.isprintable()):
        text = text.replace("\r\n", "\n").translate(_ESCAPED_IN_CSV)
    return disarmed(text)


def disarmed_annotations(text: str) -> str:
    """Return annotations of GitHub in which a CI server finds no other command."""
    lines = []
    for line in lines_of(text):
        head = next((head for head in _ANNOTATIONS if line.startswith(head)), "")
        lines.append(head + disarmed(line.removeprefix(head)))
    return "\n".join(lines)


def _without_commands(text: str, form: str) -> str:
    """Write a sign of each command of a CI server in another form."""
    patterns = []
    for marks, pattern in _COMMANDS.items():
        if any(mark in text for mark in marks):
            patterns.append(pattern)
    if not patterns:
        return text
    import re  # noqa: PLC0415 - the hook, and most texts, need none

    def write(match: re.Match[str]) -> str:
        return match["before"] + form.format(ord(match["sign"]))

    for pattern in patterns:
        text = re.sub(pattern, write, text, flags=re.MULTILINE)
    return text


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
    """A table for `str.translate` that learns which characters are shown, and writes the others in a form.

    `kept` are shown, too. Without a way to `write` the others they are dropped.
    """

    def __init__(
        self, kept: str = "\n\t", write: Callable[[str], str | None] | None = None
    ) -> None:
        super().__init__()
        self._kept = kept
        self._write = write

    def __missing__(self, code: int) -> int | str | None:
        if len(self) >= _MOST_LEARNT:
            self.clear()
        char = chr(code)
        if char.isascii():
            hidden = not char.isprintable() and char not in self._kept
        else:
            import unicodedata  # noqa: PLC0415 - the hook shows plain text most of the time

            blank = any(first <= code <= last for first, last in _BLANK)
            hidden = blank or unicodedata.category(char) in _INVISIBLE
        instead = self._write(char) if self._write is not None else None
        self[code] = instead if hidden else code
        return self[code]


def _unicode_escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _xml_escape(char: str) -> str:
    return f"&#x{ord(char):x};"


_SHOWN = _Table()
_ESCAPED = _Table(kept="", write=_unicode_escape)
_ESCAPED_IN_CSV = _Table(write=_unicode_escape)
_ESCAPED_IN_JSON = _Table(write=_json_escape)
_ESCAPED_IN_XML = _Table(write=_xml_escape)


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

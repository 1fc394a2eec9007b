"""Lines of protocols end at a line feed; nothing in the package cuts them where Python alone ends lines."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from package import PACKAGE, trees

from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

# `str.splitlines` takes these for the end of a line, and no protocol does.
NO_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

# Where a text file is opened so that a lone carriage return ends a line.
UNIVERSAL = {
    "config/yamlfile.py": "YAML ends lines at it too",
    "hooks/settings.py": "the same files, looked at without a YAML parser",
}


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Yield each call in the package with its module and the called name."""
    for path, tree in trees().items():
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr
                    if isinstance(node.func, ast.Attribute)
                    else getattr(node.func, "id", "")
                )
                yield module, node, name


def opens_text(call: ast.Call, name: str) -> bool:
    """Whether a call opens a text file and leaves the ends of its lines to Python."""
    if name not in ("open", "fdopen", "TextIOWrapper"):
        return False
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_system = isinstance(on, ast.Name) and on.id in ("os", "archive", "connection", "self")
    words = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
    place = 0 if on is not None and not of_system else 1
    mode = (
        words.get("mode") or getattr(call.args[place], "value", "r")
        if len(call.args) > place
        else "r"
    )
    if name == "TextIOWrapper":
        mode = ""
    opens = not of_system or name == "fdopen"
    return (
        opens and "b" not in str(words.get("mode", mode)) and words.get("newline") not in ("", "\n")
    )


def test_nothing_splits_lines_as_python_does() -> None:
    found = [f"{module}:{call.lineno}" for module, call, name in calls() if name == "splitlines"]
    assert not found, "str.splitlines ends lines where no protocol does: judgekit.text.lines_of"


def test_no_file_of_lines_is_opened_with_ends_that_python_chooses() -> None:
    found = {module for module, call, name in calls() if opens_text(call, name)}
    assert found == set(UNIVERSAL), 'say why, or give newline="\\n"'


def test_no_program_is_heard_with_ends_that_python_chooses() -> None:
    words = {"text", "universal_newlines", "encoding"}
    started = {"run", "Popen", "check_output", "check_call", "call", "getoutput"}
    programs = [(module, call) for module, call, name in calls() if name in started]
    named = [(module, {keyword.arg for keyword in call.keywords}) for module, call in programs]
    assert [module for module, keywords in named if words & keywords] == [], (
        "take bytes and decode them"
    )


def test_a_line_ends_at_a_line_feed_and_nowhere_else() -> None:
    for end in ("\n", "\r\n"):
        for last in ("", "\n"):
            assert split_lines(f"a{end}{end}b{last}") == ["a", "", "b"]
    assert split_lines("") == []
    text = "".join(f"a{char}b" for char in NO_ENDS)
    assert split_lines(text) == [text]
    assert len(text.splitlines()) == len(NO_ENDS) + 1

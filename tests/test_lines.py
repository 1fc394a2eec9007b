"""Lines of protocols end at a line feed; nothing in the package cuts them where Python alone ends lines."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "judgekit"
# What `str.splitlines` takes for the end of a line, and no protocol does.
NO_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

# Where `split()` without a separator is meant: any blank ends a word of a text, and nothing else is read so.
WORDS = {
    "evaluation/charts.py": "a label on one line",
    "cli/formats.py": "a quote, which a model may have given other blanks",
    "cli/search.py": "a title and a passage on one line",
    "engine/client.py": "two words of our own in a file of our own",
    "engine/judges.py": "the kernel's numbers",
    "evaluation/retrieval.py": "refuses a name that another program would cut at a blank",
    "judging/fence.py": "an attribute on one line",
    "providers/failures.py": "a provider's message on one line",
    "providers/command.py": "a program's message on one line",
    "providers/litellm.py": "a refusal on one line",
    "hooks/claude_code.py": "a complaint on one line",
    "hooks/context.py": "a title on one line",
    "judging/redact.py": "a secret over several lines is the same as on one",
    "retrieval/index.py": "three numbers of our own",
    "retrieval/compiled.py": "our own lists of words",
    "retrieval/confidence.py": "stems, joined by spaces of our own",
    "retrieval/bm25.py": "stems, joined by spaces of our own",
    "retrieval/profiles.py": "our own lists of words",
    "retrieval/search.py": "the words of a text, and a passage on one line",
    "retrieval/terms.py": "the words of a text",
    "retrieval/update.py": "stems, joined by spaces of our own",
    "judging/secret_search.py": "the words of a text or a value, and our own lists",
    "text.py": "a text on one line",
}

# Where a text file is opened so that a lone carriage return ends a line.
UNIVERSAL = {
    "config/yamlfile.py": "YAML ends lines at it too",
    "hooks/settings.py": "the same files, looked at without a YAML parser",
}

# `read_text` does so as well, and cannot be told not to.
WHOLE = {
    "config/files.py": "JSON that pip wrote",
    "cli/app.py": "files in which the names of variables are looked for",
    "cli/rubric.py": "a YAML file is shown",
    "evaluation/runner.py": "a document, which has no lines for us",
    "hooks/git_hook.py": "our own template",
    "judging/secret_rules.py": "TOML",
    "judging/shared.py": "one token, which has no lines",
    "rubric/loader.py": "YAML, and cases that are copied",
}


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Yield each call in the package with its module and the name of what is called."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                yield module, node, name


def methods() -> list[tuple[str, ast.Call, str]]:
    return [each for each in calls() if isinstance(each[1].func, ast.Attribute)]


def keys(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


def opens_text(call: ast.Call, name: str) -> bool:
    """Whether a call opens a text file and leaves the ends of its lines to Python."""
    if name not in ("open", "fdopen", "TextIOWrapper"):
        return False
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_system = isinstance(on, ast.Name) and on.id in ("os", "archive", "connection", "self")
    words = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
    place = 0 if on is not None and not of_system else 1
    mode = words.get("mode") or getattr(call.args[place], "value", "r") if len(call.args) > place else "r"
    if name == "TextIOWrapper":
        mode = ""
    opens = not of_system or name == "fdopen"
    return opens and "b" not in str(words.get("mode", mode)) and words.get("newline") not in ("", "\n")


def test_nothing_splits_lines_as_python_does() -> None:
    found = [f"{module}:{call.lineno}" for module, call, name in calls() if name == "splitlines"]
    assert not found, "str.splitlines ends lines where no protocol does: judgekit.text.lines_of"


def test_what_is_cut_at_any_blank_is_words() -> None:
    found = {
        module
        for module, call, name in methods()
        if name in ("split", "rsplit") and not (call.args or "sep" in keys(call))
    }
    assert found == set(WORDS), "say why, or give the separator that the protocol has"


def test_no_file_of_lines_is_opened_with_ends_that_python_chooses() -> None:
    found = {module for module, call, name in calls() if opens_text(call, name)}
    assert found == set(UNIVERSAL), 'say why, or give newline="\\n"'


def test_a_text_that_is_read_whole_is_none_of_lines() -> None:
    found = {module for module, _, name in methods() if name == "read_text"}
    assert found == set(WHOLE), "say why, or read bytes and decode them"


def test_no_program_is_heard_with_ends_that_python_chooses() -> None:
    words = {"text", "universal_newlines", "encoding"}
    started = {"run", "Popen", "check_output", "check_call", "call", "getoutput"}
    found = [
        f"{module}:{call.lineno}" for module, call, name in calls() if name in started and words & keys(call)
    ]
    assert not found, "take bytes and decode them"


def test_a_line_ends_at_a_line_feed_and_nowhere_else() -> None:
    for end in ("\n", "\r\n"):
        for last in ("", "\n"):
            assert lines_of(f"a{end}{end}b{last}") == ["a", "", "b"]
    assert lines_of("") == []
    text = "".join(f"a{char}b" for char in NO_ENDS)
    assert lines_of(text) == [text]
    assert len(text.splitlines()) == len(NO_ENDS) + 1

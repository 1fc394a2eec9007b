"""Checks that the documentation says what is true; `python -m tests.docs --write` renews generated help.

Every check takes the project's folder and yields one line per problem.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import typer.main
from markdown_it import MarkdownIt
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
CLI_PAGE = Path("docs/cli.md")
API_PAGE = Path("docs/api.md")
START_PAGES = (Path("README.md"), Path("docs/index.md"))
WIDTH = "80"  # columns of generated help

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_HTML_LINK = re.compile(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"", re.IGNORECASE)
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_LAUNCH = "import sys; sys.argv[0] = 'judgekit'; from judgekit.__main__ import main; sys.exit(main())"
_BLOCK = re.compile(r"<!-- help: (?P<command>[\w -]+?) -->\n(?P<text>.*?)<!-- /help -->", re.DOTALL)


class Fence(NamedTuple):
    """A fenced block of a page: its language, its text, and the line its text begins on."""

    language: str
    text: str
    line: int


def pages(root: Path) -> list[Path]:
    """Return the pages that people read, relative to `root`."""
    top = (Path(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    docs = (path.relative_to(root) for path in sorted((root / "docs").rglob("*.md")))
    return [page for page in (*top, *docs) if (root / page).is_file()]


def text_of(root: Path, page: Path) -> str:
    return (root / page).read_text(encoding="utf-8")


def fences(text: str) -> Iterator[Fence]:
    for token in _MARKDOWN.parse(text):
        if token.type == "fence" and token.map:
            yield Fence(token.info.partition(" ")[0].lower(), token.content, token.map[0] + 2)


# Links


def links(text: str) -> Iterator[str]:
    """Yield the targets of a page's links and images that lead to something in the project."""
    for token in _MARKDOWN.parse(text):
        for part in (token, *(token.children or ())):
            if part.type in ("link_open", "image"):
                targets = [str(part.attrs.get("href") or part.attrs.get("src"))]
            else:
                targets = _HTML_LINK.findall(part.content) if part.type.startswith("html_") else []
            yield from (target for target in targets if not _ELSEWHERE.match(target))


def anchors(text: str) -> set[str]:
    """Return the names that a page's headings get where it is shown."""
    tokens = _MARKDOWN.parse(text)
    names: list[str] = []
    for opening, heading in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(part.content for part in heading.children or ()).lower()
            names.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    earlier = [names[:place].count(name) for place, name in enumerate(names)]
    return {f"{name}-{number}" if number else name for name, number in zip(names, earlier, strict=True)}


def broken_links(root: Path) -> Iterator[str]:
    """Yield the links and images that lead nowhere."""
    for page in pages(root):
        for target in links(text_of(root, page)):
            path, _, anchor = target.partition("#")
            file = root / _resolve(page, path)
            names = anchors(file.read_text(encoding="utf-8")) if anchor and file.is_file() else set()
            if target.startswith("/"):
                yield f"{page}: the link {target} is absolute; write it relative to the page"
            elif not file.exists():
                where = _resolve(page, path).as_posix()
                yield f"{page}: the link {target} leads nowhere; there is no {where}"
            elif anchor and file.suffix == ".md" and anchor not in names:
                there = ", ".join(sorted(names))
                yield f"{page}: the link {target} names a heading that is not there; there are: {there}"


def _resolve(page: Path, path: str) -> Path:
    return Path(os.path.normpath(page.parent / unquote(path))) if path else page


def unreachable_pages(root: Path) -> Iterator[str]:
    """Yield the pages below docs/ that no chain of links from README.md or docs/index.md leads to."""
    reached: set[Path] = set()
    waiting = [page for page in START_PAGES if (root / page).is_file()]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not (root / page).is_file():
            continue
        reached.add(page)
        waiting += [_resolve(page, target.partition("#")[0]) for target in links(text_of(root, page))]
    for page in pages(root):
        if page.parts[0] == "docs" and page not in reached:
            yield f"{page}: nothing leads here; link it from README.md or docs/index.md"


# Generated help


@lru_cache(maxsize=1)
def commands() -> dict[str, str]:
    """Return the help of every command that is not hidden, as a user sees it in a terminal of fixed width."""
    names = ["judgekit", *_below("judgekit", _tree())]
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(names, pool.map(_help, names), strict=True))


def _tree() -> object:
    from judgekit.cli.app import application  # noqa: PLC0415 - the checks of pages alone run without it

    return typer.main.get_command(application())


def _below(name: str, command: object) -> Iterator[str]:
    if not isinstance(command, TyperGroup):
        return
    context = command.make_context(name, [], resilient_parsing=True)
    for list_command in command.list_commands(context):
        inner = command.get_command(context, list_command)
        if inner is not None and not inner.hidden:
            yield f"{name} {list_command}"
            yield from _below(f"{name} {list_command}", inner)


def _help(command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUDGEKIT_")}
    environment |= {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCH, *command.split()[1:], "--help"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} --help ends with {done.returncode}: {done.stderr.strip()}")
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines()) + "\n"


def stale_help(root: Path, helps: dict[str, str] | None = None) -> Iterator[str]:
    """Yield the commands whose help in docs/cli.md is missing or old."""
    helps = commands() if helps is None else helps
    page = root / CLI_PAGE
    if not page.is_file():
        yield f"{CLI_PAGE}: missing; make it with: python -m tests.docs --write"
        return
    shown = {each["command"]: each["text"] for each in _BLOCK.finditer(page.read_text(encoding="utf-8"))}
    for command, text in helps.items():
        if command not in shown:
            yield f"{CLI_PAGE}: {command} is missing; add it with: python -m tests.docs --write"
        elif shown[command] != _fenced(text):
            yield f"{CLI_PAGE}: the help of {command} is old; renew it with: python -m tests.docs --write"
    for command in shown.keys() - helps.keys():
        yield f"{CLI_PAGE}: {command} is no command (any more); remove its part"


def write_help(root: Path, helps: dict[str, str] | None = None) -> None:
    """Renew the blocks of docs/cli.md and add those that are missing at its end."""
    helps = commands() if helps is None else helps
    page = root / CLI_PAGE
    text = page.read_text(encoding="utf-8") if page.is_file() else "# The command line\n"
    shown = {each["command"] for each in _BLOCK.finditer(text)}
    text = _BLOCK.sub(lambda each: _block(each["command"], helps) or each[0], text)
    for command in helps:
        if command not in shown:
            text += f"\n## {command}\n\n{_block(command, helps)}\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")


def _block(command: str, helps: dict[str, str]) -> str | None:
    if command not in helps:
        return None
    return f"<!-- help: {command} -->\n{_fenced(helps[command])}<!-- /help -->"


def _fenced(text: str) -> str:
    return f"```text\n{text}```\n"


# What pages show


def undocumented_names(root: Path, names: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the public names of the package that docs/api.md does not mention."""
    names = _public_names() if names is None else names
    if names and not (root / API_PAGE).is_file():
        yield f"{API_PAGE}: missing; it documents what `import judgekit` offers"
        return
    text = text_of(root, API_PAGE) if names else ""
    for name in names:
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            yield f"{API_PAGE}: {name} is public and not documented"


def _public_names() -> list[str]:
    import judgekit  # noqa: PLC0415 - what is checked

    return [name for name in getattr(judgekit, "__all__", ()) if not name.startswith("__")]


def unknown_names(root: Path, names: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the calls in Python examples that the package does not offer."""
    known = set(_public_names() if names is None else names)
    for page in pages(root):
        for fence in fences(text_of(root, page)):
            for name in re.findall(r"\bjudgekit\.(\w+)\(", fence.text) if fence.language == "python" else ():
                if name not in known:
                    yield f"{page}:{fence.line}: there is no judgekit.{name}"


def unparsable_blocks(root: Path) -> Iterator[str]:
    """Yield the fenced blocks whose text is not of the language they name."""
    for page in pages(root):
        for fence in fences(text_of(root, page)):
            parse = _PARSERS.get(fence.language)
            try:
                if parse:
                    parse(fence.text)
            except (ValueError, YAMLError) as error:
                yield f"{page}:{fence.line}: not {fence.language}: {str(error).splitlines()[0]}"


def _parse_json_lines(text: str) -> None:
    for line in text.splitlines():
        json.loads(line)


def _parse_yaml(text: str) -> None:
    list(YAML(typ="safe", pure=True).load_all(text))


_PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "jsonl": _parse_json_lines,
    "yaml": _parse_yaml,
    "toml": tomllib.loads,
}
_SHELLS = {"sh", "bash", "shell", "console"}


def unknown_commands(root: Path, known: Iterable[str] | None = None) -> Iterator[str]:
    """Yield what pages tell people to run and what is not there: judgekit's commands, make's targets."""
    known = set(commands() if known is None else known)
    makefile = root / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.is_file() else ""
    targets = set(re.findall(r"^([\w-]+):", text, re.MULTILINE))
    for page in pages(root):
        for line, words in _shell_lines(text_of(root, page)):
            if words[0] == "judgekit" and _is_word(words[1:2]) and f"judgekit {words[1]}" not in known:
                yield f"{page}:{line}: there is no `judgekit {words[1]}`"
            if words[0] == "make" and _is_word(words[1:2]) and words[1] not in targets:
                yield f"{page}:{line}: there is no `make {words[1]}`"


def installs_a_stranger(root: Path) -> Iterator[str]:
    """Yield lines that install judgekit by name: packages of others have that name on the public index."""
    by_name = re.compile(
        r"\b(?:pip|pipx|tool) install\b(?:\s+-\S+)*\s+[\"']?judgekit(?:\[[\w,-]*\])?[\"']?(?:[=<>~!]\S*)?\s*$"
    )
    for page in pages(root):
        for line, words in _shell_lines(text_of(root, page)):
            if by_name.search(" ".join(words)):
                yield f"{page}:{line}: installs another's package; name a checkout or an address"


def missing_tests(root: Path) -> Iterator[str]:
    """Yield the promises of the threat model whose test is not there."""
    page = root / "docs" / "threat-model.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.split("|")
        for name, function in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", line):
            file = root / name
            code = file.read_text(encoding="utf-8") if file.is_file() else ""
            if not code or (function and f"def {function}(" not in code):
                yield f"docs/threat-model.md:{number}: there is no {name}::{function}"
        promised = len(cells) > _CELLS and cells[1].strip() not in ("promise", "---")
        if promised and not re.search(r"`tests/[\w/]+\.py::\w+`", cells[_CELLS]):
            yield f"docs/threat-model.md:{number}: a promise without a test"


_CELLS = 3  # promise, held by, test


def _shell_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for fence in fences(text):
        if fence.language in _SHELLS:
            for number, line in enumerate(fence.text.splitlines(), fence.line):
                words = line.removeprefix("$ ").split()
                if words:
                    yield number, words


def _is_word(words: Sequence[str]) -> bool:
    return any(re.fullmatch(r"[a-z][\w-]*", word) for word in words)


# Traces

_TRACES = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.~/})-])/(?:home|Users|root|work)/(?!(?:x|you|me)\b)\w"
    ),
    "the address of a package registry": re.compile(
        r"\b(?:test\.)?pypi\.(?:org|io)\b|\bpythonhosted\.|\bregistry\.npmjs\.|\bregistry\.yarnpkg\.|\bnpmjs\.(?:com|org)\b"
    ),
}


def traces(root: Path) -> Iterator[str]:
    """Yield the lines that name a machine's paths or a registry's host, in all text of the project."""
    for name in _project_files(root):
        try:
            lines = (root / name).read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        for number, line in enumerate(lines, 1):
            for what, pattern in _TRACES.items():
                found = pattern.search(line)
                if found:
                    yield f"{name}:{number}: {what}: {found[0]}"


def _project_files(root: Path) -> list[str]:
    if not (root / ".git").exists():
        return [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()]
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=root, capture_output=True, encoding="utf-8", timeout=60, check=True)
    return sorted(name for name in listed.stdout.split("\0") if name)


CHECKS: tuple[Callable[[Path], Iterator[str]], ...] = (
    broken_links,
    unreachable_pages,
    stale_help,
    undocumented_names,
    unknown_names,
    unparsable_blocks,
    unknown_commands,
    installs_a_stranger,
    missing_tests,
    traces,
)


def main(arguments: Sequence[str]) -> int:
    """Print every problem; return 1 if there is one."""
    if "--write" in arguments:
        write_help(ROOT)
    problems = [problem for check in CHECKS for problem in check(ROOT)]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Checks that the documentation is true; `python -m tests.docs --write` renews its generated parts.

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
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from urllib.parse import unquote

from markdown_it import MarkdownIt
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

import judgekit
from judgekit.cli.common import WHOLE_HELP_KEY
from judgekit.cli.formats import table
from judgekit.cli.output import strip_colours
from judgekit.gate import WORDS
from judgekit.judging.escalation import ALL_TASKS, ESCALATION_TABLE, VOTED_TASKS, decide
from judgekit.judging.evidence import TierEvidence
from judgekit.judging.rows import TierDecides
from judgekit.judging.steps import Ask, EscalationRules
from judgekit.judging.verdict import Consensus, VerdictWord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from judgekit.config import Outcome

ROOT = Path(__file__).parents[1]
CLI_PAGE = Path("docs/cli.md")
API_PAGE = Path("docs/api.md")
ESCALATION_PAGE = Path("docs/escalation.md")
WIDTH = 78  # columns of generated help: a terminal of 80 leaves two free
PUBLIC = [name for name in judgekit.__all__ if not name.startswith("__")]

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_HTML_LINK = re.compile(
    r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"", re.IGNORECASE
)
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_TABLE = re.compile(r"<!-- table of (?P<name>\w+) -->\n.*?<!-- /table -->", re.DOTALL)
_BLOCK = re.compile(r"<!-- help: (?P<command>[\w -]+?) -->\n(?P<text>.*?)<!-- /help -->", re.DOTALL)


class Fence(NamedTuple):
    """A fenced block of a page: its language, its text, and the line its text begins on."""

    language: str
    text: str
    line: int


def pages(root: Path) -> list[Path]:
    top = (Path(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    docs = (path.relative_to(root) for path in sorted((root / "docs").rglob("*.md")))
    return [page for page in (*top, *docs) if (root / page).is_file()]


def text_of(root: Path, page: Path) -> str:
    return (root / page).read_text(encoding="utf-8")


def fences(text: str) -> Iterator[Fence]:
    for token in _MARKDOWN.parse(text):
        if token.type == "fence" and token.map:
            yield Fence(token.info.partition(" ")[0].lower(), token.content, token.map[0] + 2)


def blocks(root: Path) -> Iterator[tuple[Path, Fence]]:
    for page in pages(root):
        for fence in fences(text_of(root, page)):
            yield page, fence


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
    """Return the anchors that the headings of a rendered page get."""
    tokens = _MARKDOWN.parse(text)
    names: list[str] = []
    for opening, heading in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(part.content for part in heading.children or ()).lower()
            names.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    earlier = [names[:place].count(name) for place, name in enumerate(names)]
    return {
        f"{name}-{number}" if number else name for name, number in zip(names, earlier, strict=True)
    }


def broken_links(root: Path) -> Iterator[str]:
    """Yield the links and images that lead nowhere."""
    for page in pages(root):
        for target in links(text_of(root, page)):
            path, _, anchor = target.partition("#")
            place = Path(os.path.normpath(page.parent / unquote(path))) if path else page
            if not (root / place).exists() or place.is_absolute():
                yield f"{page}: the link {target} leads nowhere"
            elif anchor and place.suffix == ".md" and anchor not in anchors(text_of(root, place)):
                yield f"{page}: the link {target} names a heading that is not there"


# Generated help


@lru_cache(maxsize=1)
def commands() -> dict[str, str]:
    """Return the whole help of every command that is not hidden, as a terminal of fixed width shows it."""
    from judgekit.cli.app import build_application  # noqa: PLC0415 - the checks of pages alone run without it

    return dict(_helps("judgekit", build_application(), None))


def _helps(name: str, command: Any, parent: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - typer's own
    context = command.make_context(name, [], parent, resilient_parsing=True, terminal_width=WIDTH)
    context.meta[WHOLE_HELP_KEY] = True
    text = "\n".join(line.rstrip() for line in context.get_help().strip("\n").splitlines())
    yield context.command_path, f"{text}\n"
    for inner, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from _helps(inner, each, context)


def stale_help(root: Path) -> Iterator[str]:
    """Yield the commands whose help in docs/cli.md is missing or old."""
    page, renew = root / CLI_PAGE, "renew it with: python -m tests.docs --write"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    shown = {each["command"]: each[0] for each in _BLOCK.finditer(text)}
    for command, wanted in commands().items():
        if shown.get(command) != _block(command, wanted):
            yield f"{CLI_PAGE}: the help of {command} is old or missing; {renew}"
    for command in shown.keys() - commands().keys():
        yield f"{CLI_PAGE}: {command} is no command (any more); remove its part"


def write_help(root: Path) -> None:
    """Renew the blocks of docs/cli.md and add those that are missing at its end."""
    helps, page = commands(), root / CLI_PAGE
    text = page.read_text(encoding="utf-8") if page.is_file() else "# The command line\n"
    shown = {each["command"] for each in _BLOCK.finditer(text)}

    def renewed(match: re.Match[str]) -> str:
        return (
            _block(match["command"], helps[match["command"]])
            if match["command"] in helps
            else match[0]
        )

    text = _BLOCK.sub(renewed, text)
    missing = [name for name in helps if name not in shown]
    text += "".join(f"\n## {name}\n\n{_block(name, helps[name])}\n" for name in missing)
    page.write_text(text, encoding="utf-8")


def _block(command: str, text: str) -> str:
    return f"<!-- help: {command} -->\n```text\n{text}```\n<!-- /help -->"


# The tables of escalation

OUTCOMES: dict[str, Outcome | None] = {"A": "accept", "I": "improve", "R": "reject", "F": None}
CONFIRM: dict[str, Literal["accept", "reject"]] = {"strict": "accept", "lenient": "reject"}


def row_table() -> list[str]:
    """Write the rows of the table in words: those of their functions."""
    lines = ["| row | for | applies if | then |", "| --- | --- | --- | --- |"]
    tasks_in_words = {ALL_TASKS: "all", VOTED_TASKS: "all but rankings"}
    for row in ESCALATION_TABLE:
        tasks = tasks_in_words.get(row.tasks, ", ".join(f"{task}s" for task in row.tasks))
        name = f"*{row.name}*" if row.overrules else row.name
        condition = _words_of(row.applies).removeprefix("Whether ")
        lines.append(f"| {name} | {tasks} | {condition} | {_words_of(row.choose_step)} |")
    return lines


def _words_of(part: Callable[..., object]) -> str:
    """Return the words of a part of a row as one line: of a function its docstring."""
    words = part.words if isinstance(part, TierDecides) else part.__doc__ or ""
    return " ".join(words.split()).removesuffix(".")


def outcome_table() -> list[str]:
    """Write which outcomes of three tiers come to which verdict, in each mode."""
    columns = {}
    ends = set[tuple[str, str]]()
    for mode, confirm in CONFIRM.items():
        columns[mode] = _walk_outcomes(EscalationRules(confirm))
        ends |= columns[mode].keys()
    lines = [
        f"| verdict | consensus | {' | '.join(columns)} |",
        f"| --- | --- |{' --- |' * len(columns)}",
    ]
    order = [*get_args(VerdictWord), *get_args(Consensus)]
    for verdict, consensus in sorted(ends, key=lambda end: tuple(map(order.index, end))):
        cells = [" ".join(column[verdict, consensus]) for column in columns.values()]
        lines.append(f"| {verdict} | {consensus} | {' | '.join(cells)} |")
    return lines


def _walk_outcomes(rules: EscalationRules) -> dict[tuple[str, str], list[str]]:
    """Map each verdict and consensus to the outcomes of the tiers that come to it, in letters."""
    letters_by_end = defaultdict[tuple[str, str], list[str]](list)
    waiting = [""]
    while waiting:
        letters = waiting.pop(0)
        evidence = {}
        for tier, letter in zip(rules.tiers, letters, strict=False):
            evidence[tier] = TierEvidence(OUTCOMES[letter])
        step = decide(evidence, rules)
        if isinstance(step, Ask):
            waiting += [letters + letter for letter in OUTCOMES]
        else:
            letters_by_end[step.verdict, step.consensus].append(letters)
    return letters_by_end


TABLES: dict[str, Callable[[], list[str]]] = {"escalation": row_table, "outcomes": outcome_table}


def escalation_table(name: str) -> str:
    return "\n".join([f"<!-- table of {name} -->", *TABLES[name](), "<!-- /table -->"])


def stale_escalation_tables(root: Path) -> Iterator[str]:
    """Yield a problem for each table that docs/escalation.md does not hold as it is."""
    for name in TABLES:
        if escalation_table(name) not in text_of(root, ESCALATION_PAGE):
            renew = "renew it with: python -m tests.docs --write"
            yield f"{ESCALATION_PAGE}: the table of {name} is old; {renew}"


def write_escalation_tables(root: Path) -> None:
    page = root / ESCALATION_PAGE
    text = text_of(root, ESCALATION_PAGE)
    renewed = _TABLE.sub(lambda match: escalation_table(match["name"]), text)
    page.write_text(renewed, encoding="utf-8")


# What pages show


def undocumented_names(root: Path) -> Iterator[str]:
    """Yield public names that docs/api.md does not mention, and calls in examples that are none of them."""
    text = text_of(root, API_PAGE) if (root / API_PAGE).is_file() else ""
    for name in PUBLIC:
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            yield f"{API_PAGE}: {name} is public and not documented"
    for page, fence in blocks(root):
        for name in (
            re.findall(r"\bjudgekit\.(\w+)\(", fence.text) if fence.language == "python" else ()
        ):
            if name not in PUBLIC:
                yield f"{page}:{fence.line}: there is no judgekit.{name}"


def unparsable_blocks(root: Path) -> Iterator[str]:
    """Yield the fenced blocks whose text is not of the language they name."""
    for page, fence in blocks(root):
        try:
            if parse := _PARSERS.get(fence.language):
                parse(fence.text)
        except (ValueError, YAMLError) as error:
            yield f"{page}:{fence.line}: not {fence.language}: {str(error).splitlines()[0]}"


_PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "jsonl": lambda text: [json.loads(line) for line in text.splitlines()],
    "yaml": lambda text: list(YAML(typ="safe", pure=True).load_all(text)),
    "toml": tomllib.loads,
}
_SHELLS = {"sh", "bash", "shell", "console"}
_BY_NAME = re.compile(
    r"\b(?:pip|pipx|tool) install\b(?:\s+-\S+)*\s+[\"']?judgekit(?:\[[\w,-]*\])?[\"']?(?:[=<>~!]\S*)?\s*$"
)


def unknown_commands(root: Path) -> Iterator[str]:
    """Yield commands of judgekit and targets of make that a page tells people to run and that don't exist.

    Also lines that install judgekit by name: packages of others have that name on the public index.
    """
    makefile = root / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.is_file() else ""
    known = {
        *commands(),
        *(f"make {each}" for each in re.findall(r"^([\w-]+):", text, re.MULTILINE)),
    }
    for page, fence in blocks(root):
        lines = fence.text.splitlines() if fence.language in _SHELLS else ()
        for number, line in enumerate(lines, fence.line):
            words = line.removeprefix("$ ").split()
            called = " ".join(words[:2])
            if re.fullmatch(r"(judgekit|make) [a-z][\w-]*", called) and called not in known:
                yield f"{page}:{number}: there is no `{called}`"
            if _BY_NAME.search(" ".join(words)):
                yield f"{page}:{number}: installs another's package; name a checkout or an address"


def missing_tests(root: Path) -> Iterator[str]:
    """Yield the promises of the threat model whose test is not there."""
    page = root / "docs" / "threat-model.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.split("|")  # promise, held by, test
        for name, function in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", line):
            file = root / name
            code = file.read_text(encoding="utf-8") if file.is_file() else ""
            if not code or (function and f"def {function}(" not in code):
                yield f"docs/threat-model.md:{number}: there is no {name}::{function}"
        promised = len(cells) > 3 and cells[1].strip() not in ("promise", "---")
        if promised and not re.search(r"`tests/[\w/]+\.py::\w+`", cells[3]):
            yield f"docs/threat-model.md:{number}: a promise without a test"


# The gate's table

_RECORDS = Path(__file__).parent / "golden" / "formats" / "records.json"
_BETWEEN_COLUMNS = re.compile(" {2,}")


def stale_gate_rows(root: Path) -> Iterator[str]:
    """Yield the rows of the gate's table on a page that the gate would print with other columns."""
    records = json.loads(_RECORDS.read_text(encoding="utf-8"))
    recorded_row = records["gate"]["rows"][0]
    printed_line = strip_colours(table.render_gate_row(recorded_row))
    columns = _BETWEEN_COLUMNS.split(printed_line)
    width = printed_line.index(columns[1])  # of the first column
    for page, fence in blocks(root):
        for number, line in enumerate(fence.text.split("\n"), fence.line):
            if not line.startswith(tuple(f"{word} " for word in WORDS)):
                continue
            word, *others = _BETWEEN_COLUMNS.split(line)
            is_aligned = line[width:] == line.removeprefix(word).lstrip()
            if not is_aligned or len(others) != len(columns) - 1:
                yield f"{page}:{number}: the gate prints other columns, such as: {printed_line}"


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
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        git, cwd=root, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        try:
            lines = (root / name).read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        for number, line in enumerate(lines, 1):
            for what, pattern in _TRACES.items():
                if found := pattern.search(line):
                    yield f"{name}:{number}: {what}: {found[0]}"


CHECKS: tuple[Callable[[Path], Iterator[str]], ...] = (
    *(
        broken_links,
        stale_help,
        stale_escalation_tables,
        undocumented_names,
        unparsable_blocks,
        unknown_commands,
        missing_tests,
        stale_gate_rows,
    ),
    traces,
)


def main(arguments: Sequence[str]) -> int:
    if "--write" in arguments:
        write_help(ROOT)
        write_escalation_tables(ROOT)
    problems = [problem for check in CHECKS for problem in check(ROOT)]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

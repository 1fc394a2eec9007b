"""Every format for `judge`, rows, `report` and `gate` alike, several at once, and hostile texts in each."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from git_repo import GitRepo
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, says
from markdown_it import MarkdownIt
from pushing import bad, good
from scripted import by_content

from judgekit.cli import formats, layout, output, row_printing
from judgekit.cli.formats.table import render_row
from judgekit.markdown import escape_prose
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from outcome import Outcome, Run, Served, Use

pytestmark = pytest.mark.usefixtures("no_servers")
JUDGE = ("judge", "--rubric", "kls", "--mode", "lenient", "--no-engine")
ROWS = (*JUDGE, "--data", "rows.jsonl")
GATE = ("gate", "--base", "base", "--no-engine")
HOSTILE = [
    "a\n::error file=x::owned",
    "a | b | c\n| --- |\n| d |",
    "`code` ``more`` ~~~\nout",
    "<img src=x onerror=alert(1)> <script>alert(1)</script> <!-- gone",
    "\x1b[2J\x1b]0;owned\x07",
    "@everyone #1 https://example.org ![x](https://example.org/p.png) [a](b)",
    "=HYPERLINK(1)",
    "]]> &amp; --> \u202e",
    "- [ ] task\n# heading\n***bold***",
]
VISIBLE = "The answer names no date."


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    """Work in a repository with two documents, a change, rows and results."""
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", a_md=good("a"), b_md=bad("b"))
    monkeypatch.chdir(work.folder)
    write("rows.jsonl", [{"id": "r1", "answer": good("1")}, {"id": "r2", "answer": bad("2")}])
    write("results.jsonl", results())
    return work


def results() -> list[dict[str, Any]]:
    accepted = {"id": "r1", "verdict": "accept", "scores": {"clear": 4.5}, "reasoning": "Fine."}
    rejected = {"id": "r2", "verdict": "reject", "scores": {"clear": 1}, "reasoning": VISIBLE}
    return [accepted, rejected, {"id": "r3", "verdict": "undetermined", "error": "no model"}]


def write(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def first_of(text: str, name: str) -> None:
    """Read a text as its format; raises for another one."""
    match name:
        case "json":
            json.loads(text)
        case "jsonl":
            assert list(map(json.loads, text.strip().split("\n")))
        case "csv":
            header, *rows = csv.reader(io.StringIO(text))
            assert {len(row) for row in rows} == {len(header)}
        case "markdown":
            assert re.match(r"<!-- judgekit [\w. -]+ -->\n### judgekit", text)
        case "junit":
            assert ET.fromstring(text).tag == "testsuite"
        case "sarif":
            assert json.loads(text)["version"] == "2.1.0"
        case "github":
            assert re.match(r"::(error|warning|notice) ", text)
        case _:
            assert name == "table"
            assert text.strip()


DOORS = {
    "judge": (*JUDGE, "a.md", "b.md"),
    "rows": ROWS,
    "report": ("report", "results.jsonl"),
    "gate": GATE,
}


@pytest.mark.parametrize("name", formats.FORMATS)
@pytest.mark.parametrize("door", DOORS)
def test_each_command_has_each_format(served: Served, door: str, name: str) -> None:
    done, _ = served(by_content, *DOORS[door], "--format", name)
    assert done.code in (0, 1)
    first_of(done.out, name)


@pytest.mark.parametrize("door", DOORS)
def test_several_formats_are_written_at_once(served: Served, door: str) -> None:
    also = [f"--also={name}=out.{name}" for name in formats.FORMATS]
    served(by_content, *DOORS[door], *also)
    for name in formats.FORMATS:
        first_of(Path(f"out.{name}").read_text(), name)


def test_what_is_written_also_leaves_what_is_printed(served: Served) -> None:
    before, _ = served(by_content, *DOORS["report"])
    after, _ = served(by_content, *DOORS["report"], "--also", "junit=out.xml")
    assert after.out == before.out


@pytest.mark.parametrize(
    ("also", "code", "problem"),
    [
        ("nonsense=out.xml", 64, "expected FORMAT=FILE"),
        ("junit", 64, "expected FORMAT=FILE"),
        ("junit=results.jsonl", 64, "the command reads this file"),
        ("junit=gone/out.xml", 65, "there is no folder gone"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_first(
    judgekit: Run, also: str, code: int, problem: str
) -> None:
    done = judgekit("report", "results.jsonl", "--also", also)
    assert (done.code, done.out) == (code, "")
    assert problem in done.err


def test_two_formats_never_go_to_one_file(judgekit: Run) -> None:
    words = ("--also", "junit=out", "--also", "csv=./out")
    assert judgekit("report", "results.jsonl", *words).code == 64


# Rows


def test_rows_of_a_terminal_have_a_line_each(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (output, layout):
        monkeypatch.setattr(module, "get_terminal_width", lambda: 60)
    done, _ = served(by_content, *ROWS)
    lines = done.out.strip().split("\n")
    assert {line.split()[1] for line in lines} == {"r1", "r2"}
    assert all(len(output.strip_colours(line)) <= 60 for line in lines)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_a_real_terminal_gets_lines_that_fit(use: Use) -> None:
    import pty  # noqa: PLC0415 - POSIX alone has it

    with Loopback(by_content) as server:
        use(server)
        environ = {**os.environ, "COLUMNS": "50", "TERM": "xterm", "NO_COLOR": "1"}
        words = [sys.executable, "-m", "judgekit", *ROWS]
        main, terminal = pty.openpty()
        with open(main, "rb", buffering=0) as shown:  # noqa: PTH123 - a descriptor
            child = subprocess.Popen(words, stdout=terminal, stderr=subprocess.DEVNULL, env=environ)
            os.close(terminal)
            child.wait(timeout=60)
            text = os.read(shown.fileno(), 10_000).decode()
    lines = text.strip().split("\r\n")
    assert {line.split()[1] for line in lines} == {"r1", "r2"}
    assert max(map(len, lines)) <= 50


def test_a_table_in_a_file_is_not_cut(judgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("results.jsonl", [{**results()[1], "reasoning": VISIBLE * 9}])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    judgekit("report", "results.jsonl", "--also", "table=out.txt")
    assert VISIBLE * 9 in Path("out.txt").read_text()


def test_piped_rows_are_json_lines(served: Served) -> None:
    done, _ = served(by_content, *ROWS)
    assert "judged" in json.loads(done.out.split("\n")[0])


def test_rows_with_out_print_nothing_unless_asked(served: Served) -> None:
    done, _ = served(by_content, *ROWS, "--out", "out.jsonl")
    assert done.out == ""


def test_a_second_run_has_all_rows_in_its_formats(served: Served) -> None:
    words = (*ROWS, "--out", "out.jsonl")
    served(by_content, *words)
    done, asked = served(by_content, *words, "--format", "junit")
    assert asked == []
    assert ET.fromstring(done.out).get("tests") == "2"


def test_annotations_of_rows_name_the_file_that_was_judged(served: Served) -> None:
    done, _ = served(by_content, *ROWS, "--out", "out.jsonl", "--format", "github")
    assert "::error file=rows.jsonl,title=reject%3A r2::" in done.out


@pytest.mark.parametrize("door", ["rows", "report"])
def test_the_worst_rows_have_their_reasons(served: Served, door: str) -> None:
    rows = [{**row, "id": f"w{n}"} for n in range(5) for row in results()[1:2]]
    write("results.jsonl", rows)
    write("rows.jsonl", [{"id": f"w{n}", "answer": bad(str(n))} for n in range(5)])
    done, _ = served(by_content, *DOORS[door], "--worst", "2")
    worst = done.out[done.out.find("REJECT") :]
    assert worst.count("REJECT") == 2
    assert worst.count("\n  ") >= 2


def test_a_report_sums_up_in_json_as_before(judgekit: Run) -> None:
    old = judgekit("report", "results.jsonl", "--json").out
    assert judgekit("report", "results.jsonl", "--format", "json").out == old


def test_two_formats_of_a_report_are_refused(judgekit: Run) -> None:
    assert judgekit("report", "results.jsonl", "--json", "--format", "csv").code == 64


def test_limits_are_a_test_of_junit(judgekit: Run) -> None:
    done = judgekit("report", "results.jsonl", "--min-accept", "0.9", "--format", "junit")
    limits = ET.fromstring(done.out).find("testcase[@name='limits']/failure")
    assert limits is not None
    assert "accept >= 0.9 isn't met" in str(limits.text)
    assert done.code == 1


@pytest.mark.parametrize("name", ["markdown", "github", "sarif"])
def test_missed_limits_are_told(judgekit: Run, name: str) -> None:
    done = judgekit("report", "results.jsonl", "--min-accept", "0.9", "--format", name)
    assert "0.9 isn't met" in done.out.replace("&#46;", ".")


@pytest.mark.parametrize("name", formats.FORMATS)
def test_standard_input_has_each_format(
    judgekit: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO(Path("results.jsonl").read_bytes())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))
    done = judgekit("report", "-", "--format", name)
    assert done.code == 0
    first_of(done.out, name)


def test_an_annotation_of_standard_input_names_no_file(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO(Path("results.jsonl").read_bytes())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))
    out = judgekit("report", "-", "--format", "github").out
    assert out.startswith("::error title=reject%3A r2::")


@pytest.mark.parametrize("name", formats.FORMATS)
def test_rows_of_texts_that_are_compared_have_each_format(served: Served, name: str) -> None:
    write("pairs.jsonl", [{"id": "p1", "prompt": "Say it.", "a": good("1"), "b": bad("1")}])
    words = ("--rubric", "answer-preference", "--map", "a=a", "--map", "b=b", "--no-engine")
    reply = says(json.dumps({"reasoning": VISIBLE, "better": "tie"}))
    done, _ = served(reply, "compare", "--data", "pairs.jsonl", *words, "--format", name)
    assert done.code in (0, 2), done.err
    first_of(done.out, name)


def test_two_texts_have_no_report(judgekit: Run) -> None:
    done = judgekit("compare", "a.md", "b.md", "--prompt", "x", "--format", "junit")
    assert (done.code, "rows (--data) have all formats" in done.err) == (64, True)


# Places


def in_folder(monkeypatch: pytest.MonkeyPatch, work: GitRepo) -> None:
    folder = work.folder / "docs"
    folder.mkdir()
    (folder / "c.md").write_text(bad("c"))
    monkeypatch.chdir(folder)


def uris(done: Outcome) -> set[str]:
    found = set()
    for result in done.json["runs"][0]["results"]:
        found.add(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
    return found


def test_uris_are_relative_to_the_repository(
    served: Served, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder(monkeypatch, work)
    words = (*JUDGE, "c.md", "../a.md", str(work.folder / "b.md"), "--format", "sarif")
    done, _ = served(by_content, *words)
    assert uris(done) == {"docs/c.md", "a.md", "b.md"}


def test_a_file_outside_of_the_repository_has_a_whole_uri(served: Served, work: GitRepo) -> None:
    outside = work.folder.parent / "d.md"
    outside.write_text(bad("d"))
    done, _ = served(by_content, *JUDGE, str(outside), "--format", "sarif")
    assert uris(done) == {outside.as_uri()}


def test_the_gate_names_files_from_the_root(
    served: Served, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder(monkeypatch, work)
    done, _ = served(by_content, *GATE, "--format", "sarif")
    assert uris(done) == {"a.md", "b.md"}


def test_annotations_name_files_from_the_root(
    served: Served, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder(monkeypatch, work)
    done, _ = served(by_content, *JUDGE, "c.md", "--format", "github")
    assert "::error file=docs/c.md,line=" in done.out


# Comments


def test_a_comment_begins_with_a_mark_of_its_own(judgekit: Run) -> None:
    first = judgekit("report", "results.jsonl", "--format", "markdown").out.split("\n")[0]
    write("other.jsonl", results())
    other = judgekit("report", "other.jsonl", "--format", "markdown").out.split("\n")[0]
    assert first == "<!-- judgekit report results.jsonl -->"
    assert other == "<!-- judgekit report other.jsonl -->"


def test_a_mark_is_the_same_wherever_a_run_begins(
    judgekit: Run, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder(monkeypatch, work)
    for path in ("../results.jsonl", str(work.folder / "results.jsonl")):
        first = judgekit("report", path, "--format", "markdown").out.split("\n")[0]
        assert first == "<!-- judgekit report results.jsonl -->"


def test_a_mark_names_no_folder_outside_of_the_repository(
    judgekit: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "out.jsonl"
    write(str(path), results())
    first = judgekit("report", str(path), "--format", "markdown").out.split("\n")[0]
    assert first == "<!-- judgekit report out.jsonl -->"


def test_rows_without_a_verdict_are_warned_of(judgekit: Run) -> None:
    out = judgekit("report", "results.jsonl", "--format", "github").out
    message = "1 row without a verdict: no model"
    assert f"::warning file=results.jsonl,title=undetermined::{message}" in out


def test_a_mark_is_no_more_than_a_comment(judgekit: Run) -> None:
    name = "a--><b> -- .jsonl"
    write(name, results())
    first = judgekit("report", name, "--format", "markdown").out.split("\n")[0]
    assert re.fullmatch(r"<!-- [\w. ]+ -->", first)


def test_a_long_comment_still_fits(judgekit: Run) -> None:
    rows = [{**results()[1], "id": f"r{n}", "reasoning": VISIBLE * 100} for n in range(3_000)]
    write("results.jsonl", rows)
    words = ("--format", "markdown", "--worst", "100")
    assert len(judgekit("report", "results.jsonl", *words).out) < 65_000


class Tags(HTMLParser):
    """Collects the tags of a page, and its visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(f"{tag} with attributes" if attrs else tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(text: str) -> Tags:
    tags = Tags()
    tags.feed(MarkdownIt("commonmark").enable("table").enable("strikethrough").render(text))
    return tags


TAGS = {"p", "h3", "h4", "table", "thead", "tbody", "tr", "th", "td", "code", "ul", "li"}
TAGS |= {"details", "summary", "pre"}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_others_formats_nothing_in_a_comment(judgekit: Run, text: str) -> None:
    row = {"id": text, "verdict": "reject", "reasoning": text, "error": text, "topic": text}
    write("results.jsonl", [row, {**results()[0], "topic": text}])
    words = ("report", "results.jsonl", "--by", "topic", "--min-accept", "1")
    tags = rendered(judgekit(*words, "--format", "markdown").out)
    assert tags.tags - TAGS == set()


@given(st.text() | st.text(alphabet="|`~*_<>[]()!#@&-+=1. \n\\wgh:/"))
def test_prose_is_shown_as_it_is(text: str) -> None:
    prose = escape_prose(text)
    tags = rendered(prose)
    assert tags.tags <= {"p"}
    shown = " ".join(tags.text.replace("\u200b", "").split())
    assert shown == " ".join(shorten_to_line(text, 400).split())


@pytest.mark.parametrize(
    "text", ["@team", "#12", "GH-12", "https://example.org", "www.example.org"]
)
def test_nothing_in_prose_is_a_name_or_an_address(text: str) -> None:
    assert text not in rendered(escape_prose(text)).text


# Hostile texts


@pytest.mark.parametrize("name", formats.FORMATS)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_row_stays_a_row(judgekit: Run, name: str, text: str) -> None:
    row = {"id": text, "verdict": "reject", "reasoning": text, "error": text, "answer": text}
    write("results.jsonl", [row, results()[0]])
    done = judgekit("report", "results.jsonl", "--format", name)
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    first_of(done.out, name)


@pytest.mark.parametrize("text", HOSTILE)
def test_an_annotation_is_one_line_of_one_command(judgekit: Run, text: str) -> None:
    row = {"id": text, "verdict": "reject", "reasoning": text, "error": text}
    write("results.jsonl", [row])
    lines = judgekit("report", "results.jsonl", "--format", "github").out.strip().split("\n")
    assert len(lines) == 3
    properties = lines[0].removeprefix("::error ").partition("::")[0].split(",")
    assert [part.partition("=")[0] for part in properties] == ["file", "title"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_row_is_one_line_on_a_terminal(text: str) -> None:
    line = output.strip_colours(
        render_row("reject", text, {"reasoning": text, "scores": {text: 1}})
    )
    assert "\n" not in line
    assert "\x1b" not in line


def test_a_cell_is_no_formula(judgekit: Run) -> None:
    write("results.jsonl", [{"id": "=1+1", "verdict": "accept"}])
    done = judgekit("report", "results.jsonl", "--format", "csv")
    assert "'=1+1" in done.out


def test_the_printer_of_rows_needs_no_file_without_formats() -> None:
    printer = row_printing.Printing().make_printer(None)
    with printer.store_rows():
        assert printer._row_file is None

"""Shared by all commands: -q, -v, -V, --out, colours; help in groups, with an example of each."""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, fails, says
from scripted import scores

import judgekit as package
from judgekit.cli.app import COMMANDS, build_application
from judgekit.cli.common import load_help_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project", "no_servers")


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - typer's own
    inner = getattr(command, "commands", {})
    for name, each in inner.items():
        yield from _leaves(each, (*path, name))
    if not inner or command.invoke_without_command:
        yield " ".join(path), command


def test_every_command_is_in_one_group_and_has_an_example_that_it_understands() -> None:
    groups = [name for group in load_help_table()["groups"].values() for name in group]
    assert sorted(groups) == sorted(COMMANDS)
    leaves, examples = dict(_leaves(build_application())), load_help_table()["examples"]
    assert examples.keys() <= leaves.keys()
    # A command keeps the names of its help's option, which it has from the context above it.
    above = build_application().make_context("judgekit", [], resilient_parsing=True)
    for name, command in leaves.items():
        text = examples.get(name, f"judgekit {name}")
        words = shlex.split(text[text.index("judgekit ") :].removesuffix(')" my-rubric.yaml'))
        path = name.split()
        assert words[1 : 1 + len(path)] == path
        command.make_context(name, words[1 + len(path) :], above)  # raises where an option is wrong
        assert len(f"Example: {text}") <= 78


def test_help_is_whole_and_says_the_same_either_way(judgekit: Run) -> None:
    whole = judgekit("help")
    assert (whole.code, whole.out) == (0, judgekit("--help").out)
    assert "..." not in whole.out.partition("Options:")[2]
    assert "Learn which opinions of which tier may be final at a promised" in whole.out
    one = judgekit("help", "rubric", "check")
    assert (one.code, one.out) == (0, judgekit("rubric", "check", "--help").out)
    assert one.out.endswith("\nExample: judgekit rubric check my-rubric.yaml --run\n")
    assert judgekit("help", "nosuch").code == 64


@pytest.mark.parametrize(
    "words", ["-V", "--version", "judge -V", "-V judge", "eval judge --version"]
)
def test_the_version_is_said_wherever_it_is_asked_for(judgekit: Run, words: str) -> None:
    done = judgekit(*words.split())
    assert (done.code, done.out, done.err) == (0, f"judgekit {package.__version__}\n", "")


def test_quiet_leaves_out_hints_and_no_error(judgekit: Run, served: Served) -> None:
    words = ("rubric", "check", "kls", "--run", "--mode", "lenient")
    loud, _ = served(says(scores(5, 5, 5)), *words)
    for quiet in (("-q", *words), (*words, "-q")):
        done, _ = served(says(scores(5, 5, 5)), *quiet)
        assert (done.out, done.err) == (loud.out, "")
    assert "as labelled" in loud.err
    done, _ = served(fails(401, "bad key"), "judge", "-q", "good.md")
    assert (done.code, done.err.startswith("judgekit: undetermined: ")) == (2, True)
    assert judgekit("-q", "judge", "missing.md").err.startswith("judgekit: missing.md: ")


@pytest.mark.slow
def test_verbose_shows_each_call_and_where_it_was_kept() -> None:
    with Loopback(says(scores(5, 5, 5))) as server:
        environ = {**os.environ, "JUDGEKIT_API_BASE": server.base, "JUDGEKIT_MODEL": "stand-in"}
        del environ["JUDGEKIT_ENGINE"]  # it would judge in its own process
        said = []
        for words in (("-v", "judge", "good.md"), ("judge", "good.md", "--verbose")):
            command = [sys.executable, "-m", "judgekit", *words]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            said.append(done.stderr.splitlines())
    asked, kept = said
    assert asked
    assert len(asked) == len(kept) == len(server.requests)
    for lines, how in ((asked, "replied in"), (kept, "kept reply in")):
        for line in lines:
            assert line.startswith("judgekit: ")
            assert "stand-in (kls@" in line
            assert how in line
            assert " tokens in, " in line


def test_verbose_shows_where_a_fault_of_ours_is(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.judging.search.search", lambda *_: 1 / 0)
    assert "Traceback" not in judgekit("search", "x").err
    with monkeypatch.context() as patch:
        usual, ours = logging.getLogger, type("Log", (), {"setLevel": print})
        patch.setattr(
            "logging.getLogger", lambda name="": ours if name == "judgekit" else usual(name)
        )
        patch.setenv("JUDGEKIT_VERBOSE", "1")  # put back at the end
        assert "Traceback" in judgekit("search", "x", "-v").err


RESULTS = (
    ("judge", "good.md"),
    ("judge", "good.md", "--format", "junit"),
    ("compare", "good.md", "bad.md", "--prompt", "p", "--rubric", "kls"),
    ("search", "token", "--json"),
    ("search", "token"),
    ("rubric", "check", "kls", "--run", "--mode", "lenient"),
    ("triage", "--json"),
    ("kpi",),
    ("schema", "verdict"),
    ("doctor", "--json"),
    ("ledger", "export"),
)


@pytest.mark.parametrize("words", RESULTS, ids=" ".join)
def test_a_result_goes_to_a_file_instead(
    served: Served, words: tuple[str, ...], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stable(text: str) -> str:
        return re.sub(r"\d+\.\d s|time=\S+|\"duration_ms\":\d+|127.0.0.1:\d+", "", text)

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    place = project / "result"
    shown, _ = served(says(scores(5, 5, 5)), *words)
    done, _ = served(says(scores(5, 5, 5)), *words, "--out", str(place))
    assert (done.code, done.out) == (shown.code, "")
    assert f"judgekit: Wrote {place}\n" in done.err
    text = place.read_text()
    assert "\x1b" not in text
    assert stable(text) == stable(re.sub(r"\x1b\[[0-9;]*m", "", shown.out))


def test_a_file_for_results_is_written_whole_or_not_at_all(judgekit: Run, project: Path) -> None:
    lost = judgekit("schema", "verdict", "--out", "none/x.json")
    assert (lost.code, lost.err) == (
        65,
        "judgekit: none/x.json: cannot be written; there is no folder none\n",
    )
    assert judgekit("schema", "verdict", "--out", ".").code == 65
    for words in (("judge", "good.md"), ("compare", "--prompt", "p", "bad.md", "good.md")):
        assert judgekit(*words, "--out", "./good.md").code == 64
    place = project / "x.json"
    place.write_text("old")
    place.chmod(0o640)
    assert judgekit("judge", "missing.md", "--rubric", "nosuch", "--out", str(place)).code == 64
    assert place.read_text() == "old"
    assert judgekit("schema", "verdict", "--out", "x.json").code == 0
    assert place.read_text() != "old"
    assert [each.name for each in project.glob("x.json*")] == ["x.json"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o640


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize(
    "words", ["schema verdict", "doctor", "-V", "schema verdict --out /dev/full"]
)
def test_a_full_disk_is_said_in_one_line(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "judgekit", *words.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 65
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(
        ("cannot write the output: No space left on device\n", "on device)\n")
    )


def test_colours_are_forced_unless_they_are_refused(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in judgekit("search", "token").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1m" in judgekit("search", "token").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in judgekit("search", "token").out


@pytest.mark.parametrize("command", ["judge", "compare"])
def test_a_long_help_fits_on_a_screen_and_a_half(
    judgekit: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = judgekit(command, "--help").out.strip().split("\n")
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", ["judge", "compare"])
def test_the_whole_help_has_every_option_once(judgekit: Run, command: str) -> None:
    whole = judgekit(command, "--help-all").out
    wanted = build_application(command).commands[command].params
    for option in wanted:
        if option.param_type_name == "option" and not option.hidden:
            name = max(option.opts, key=len)
            assert len(re.findall(rf"^  (?:-\w, )?{name}(?= |$)", whole, re.MULTILINE)) == 1, name


def test_a_short_help_leaves_options_out(judgekit: Run) -> None:
    assert "--ray-address" not in judgekit("judge", "--help").out


def test_other_commands_of_a_name_keep_their_help(judgekit: Run) -> None:
    assert "--repeat" in judgekit("eval", "judge", "--help").out

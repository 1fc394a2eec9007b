"""Without any package `search` answers as it does with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sample_store
from outcome import Outcome, Run

import judgekit as package
from judgekit.cli import plain
from judgekit.judging.search import Result

ROOT = Path(package.__file__).parents[1]


@pytest.fixture
def alone(project: Path) -> Run:
    """Run a command in a Python that has no packages."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules['pydantic'] = None\n"
    code += "from judgekit.cli import plain; sys.exit(plain.main(sys.argv[1:]))"

    def call(*arguments: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, *arguments],
            cwd=project,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.mark.parametrize(
    "options",
    [
        ("refresh the JWT",),
        ("refresh the JWT", "-n", "1"),
        ("database tables", "--mode", "strict"),
        ("quokka",),
        ("document", "--root", "."),
        ("refresh", "--root", ".claude/memory", "--root", "claude:auto", "--no-judge"),
        ("ü \ud83d\ude00 🎉 refresh".encode("utf-16", "surrogatepass").decode("utf-16"),),
    ],
)
def test_the_json_form_is_the_one_of_the_real_command(
    judgekit: Run, alone: Run, options: tuple[str, ...]
) -> None:
    expected, outcome = judgekit("search", "--json", *options), alone("search", "--json", *options)
    assert (outcome.code, outcome.err) == (expected.code, expected.err) == (0, "")
    assert outcome.json | {"duration_ms": 0} == expected.json | {"duration_ms": 0}
    assert list(outcome.json) == list(expected.json)


def test_a_person_reads_titles_and_paths_and_that_no_model_judged(alone: Run) -> None:
    lines = alone("search", "refresh the JWT").out.splitlines()
    assert lines[0] == sample_store.JWT.title
    assert lines[1].split()[0] == sample_store.JWT.path
    assert alone("search", "quokka").out == "nothing found\n"
    done = alone("search", "refresh the JWT", "--judge", "--json")
    assert done.json["degraded"] == "the plugin has no judge"
    assert (done.code, done.err) == (0, "judgekit: the plugin has no judge\n")
    assert list(done.json["results"][0]) == list(Result.model_fields)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 64),
        (("x", "--nosuch"), 64),
        (("x", "--no-j"), 64),  # options have one spelling
        (("x", "-n", "many"), 64),
        (("x", "--mode", "mild"), 64),
        (("x", "--root", "nosuch"), 65),
        (("x", "--root", ""), 65),
        (("x", "--root", "good.md"), 65),
    ],
)
def test_what_is_wrong_is_one_line(alone: Run, options: tuple[str, ...], code: int) -> None:
    done = alone("search", *options)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert done.err.startswith("judgekit: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--judge",), "--judge and --no-judge cannot be combined"),
        (("--root", ".."), "outside the project"),
        (("--root", "linked"), "outside the project"),
        (("--root", ".claude/memory", "--root", "/"), "outside the project"),
        (("--root=~",), "outside the project"),
    ],
)
def test_what_an_agent_may_run_unasked_stays_so_whatever_follows(
    judgekit: Run,
    alone: Run,
    project: Path,
    tmp_path_factory: pytest.TempPathFactory,
    options: tuple[str, ...],
    said: str,
) -> None:
    (project / "linked").symlink_to(tmp_path_factory.mktemp("notes"))
    for run in (judgekit, alone):
        for words in (("--no-judge", "--json", *options), (*options, "--json", "--no-judge")):
            done = run("search", "x", *words)
            assert (done.code, done.out, done.err.count("\n")) == (64, "", 1)
            assert said in done.err


def test_a_configuration_that_cannot_be_read_is_said(alone: Run, project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit/config.yaml").write_text("retrieval: {max_inject: 2}\n")
    done = alone("search", "refresh the JWT", "--json")
    assert done.code == 0
    assert done.json["results"][0]["title"] == sample_store.JWT.title
    assert (done.err.count("\n"), "defaults" in done.err) == (1, True)


def test_other_commands_say_what_to_install(alone: Run) -> None:
    for words in ((), ("judge", "a.md"), ("--version",)):
        done = alone(*words)
        assert (done.code, done.out, done.err.count("\n")) == (78, "", 1)
        assert f"pip install '{ROOT}'" in done.err
    done = alone("hook", "--explain", "How do we refresh the JWT?")
    assert (done.code, sample_store.JWT.title in done.out) == (0, True)
    done = alone("search", "--help")
    assert (done.code, "--root" in done.out) == (0, True)


def test_a_reader_that_goes_away_is_no_fault(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(plain, "_print", gone)
    monkeypatch.setattr("os.dup2", lambda old, new: None)
    assert plain.main(["search", "refresh the JWT"]) == 141


def test_a_fault_of_ours_is_one_line_and_code_70(
    monkeypatch: pytest.MonkeyPatch, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(plain, "_ranked", broken)
    assert plain.main(["search", "refresh the JWT"]) == 70
    assert capsys.readouterr().err == "judgekit: internal error (ZeroDivisionError: by nothing)\n"

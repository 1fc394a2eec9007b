"""The plugin's hooks start any Python they find, and are silent and harmless without; its files agree."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plugin_copy
import pytest
import sample_store
from hooking import QUESTION
from ruamel.yaml import YAML
from typer.core import TyperGroup

import judgekit
from judgekit.cli.app import build_application
from judgekit.hooks import entries
from tests import docs

if TYPE_CHECKING:
    from collections.abc import Iterator


if os.name == "nt":
    pytest.skip("the launcher is a shell script", allow_module_level=True)

TOOLS = (
    "mkdir",
    "mv",
    "rm",
    "uname",
)  # that the launcher calls; everything else is the shell's own
HOOKS = json.loads((plugin_copy.ROOT / "hooks/hooks.json").read_text())["hooks"]
COMMANDS = [each["command"] for matchers in HOOKS.values() for each in matchers[0]["hooks"]]


class Machine:
    """A machine with a shell, the few tools the launcher needs, a project, and no Python yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin, self.home, self.data = (folder / name for name in ("bin", "home", "data"))
        self.bin.mkdir()
        self.home.mkdir()
        self.plugin = plugin_copy.ROOT
        for tool in TOOLS:
            found = shutil.which(tool, path="/usr/bin:/bin")
            assert found is not None
            (self.bin / tool).symlink_to(found)
        self.project = folder / "project"
        self.project.mkdir()
        sample_store.write(self.project)

    def add(self, name: str, script: str) -> Path:
        program = self.bin / name
        program.write_text(script)
        program.chmod(0o755)
        return program

    def add_python(self, name: str = "python3") -> Path:
        return self.add(
            name, f'#!/bin/sh\necho "$0" >>"{self.folder}/started"\nexec "{sys.executable}" "$@"\n'
        )

    def started(self) -> list[str]:
        """Return the programs of `add_python` that ran since the last call."""
        log = self.folder / "started"
        names = [Path(line).name for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return names

    @property
    def remembered(self) -> list[str]:
        return (self.data / "python").read_text().splitlines()

    def hook(self, shell: str = "/bin/sh", **variables: str) -> subprocess.CompletedProcess[str]:
        payload = {
            "prompt": QUESTION,
            "cwd": str(self.project),
            "hook_event_name": "UserPromptSubmit",
        }
        return self.run(shell, "-c", COMMANDS[0], stdin=json.dumps(payload), **variables)

    def run(
        self, *words: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environ = {
            "HOME": str(self.home),
            "PATH": str(self.bin),
            "CLAUDE_PLUGIN_ROOT": str(self.plugin),
        }
        environ |= {"CLAUDE_PLUGIN_DATA": str(self.data)} | variables
        options: dict[str, Any] = {
            "cwd": self.project,
            "env": environ,
            "input": stdin,
            "encoding": "utf-8",
        }
        return subprocess.run(words, **options, capture_output=True, timeout=60, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    if made.data.exists():
        assert [path.name for path in made.data.iterdir() if path.name.startswith("python.")] == []


def assert_answers(machine: Machine) -> None:
    done = machine.hook()
    assert (done.returncode, done.stderr) == (0, "")
    assert sample_store.JWT.title in done.stdout


def test_any_python_will_do_and_its_real_path_is_remembered(machine: Machine) -> None:
    assert list(HOOKS) == ["UserPromptSubmit", "PostToolUse", "Stop", "SessionStart"]
    assert len(set(COMMANDS)) == 1
    machine.add_python()
    assert_answers(machine)
    assert machine.started() == ["python3"]
    installed, python = machine.remembered
    assert (installed, Path(python).resolve()) == ("", Path(sys.executable).resolve())
    assert machine.data.stat().st_mode & 0o077 == 0
    assert_answers(machine)
    assert machine.started() == []  # no shim of a version manager on every prompt
    shutil.rmtree(machine.data)
    machine.data.write_text("not a folder")
    assert_answers(machine)
    machine.data.unlink()


@pytest.mark.parametrize("shell", ["bash", "zsh", "ksh", "busybox"])
def test_any_shell_will_do(machine: Machine, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    (machine.bin / "sh").symlink_to(found)
    machine.add_python()
    for _ in range(2):
        done = machine.hook(str(machine.bin / "sh"))
        assert (done.returncode, done.stderr) == (0, "")
        assert sample_store.JWT.title in done.stdout
    machine.plugin = machine.folder / "gone"
    assert machine.hook(str(machine.bin / "sh")).returncode == 0


def test_without_python_it_says_so_once_and_passes_over_one_that_fails(machine: Machine) -> None:
    first, second = machine.hook(), machine.hook()
    assert [(process.returncode, process.stderr) for process in (first, second)] == [(0, "")] * 2
    assert "found no Python 3.11" in json.loads(first.stdout)["systemMessage"]
    assert second.stdout == ""
    machine.add_python("python3.12")
    for ending in ("exit 77", "exit 1", "echo x; echo y >&2; exit 2", "exec /no/such/program"):
        machine.add("python3", f"#!/bin/sh\n{ending}\n")
        assert_answers(machine)
        shutil.rmtree(machine.data)
    for first_line in ("#!/bin/sh", "#!/usr/bin/env python3", "#!/no/python", "\x7fELF", ""):
        machine.add(
            "judgekit", f"{first_line}\nexit 2\n"
        )  # one that names no Python changes nothing
        assert_answers(machine)


def test_what_was_remembered_may_be_wrong_too_old_or_fail(machine: Machine) -> None:
    machine.data.mkdir()
    machine.add_python()
    own = f"{plugin_copy.ROOT / 'bin/judgekit'}\n{machine.bin / 'python3'}\n"
    for kept in (
        "",
        "\n",
        "\n/no/such/python\n",
        "garbage",
        "\n\0\n",
        "/gone/judgekit\n/bin/sh\n",
        own,
    ):
        (machine.data / "python").write_text(kept)
        assert_answers(machine)
        assert machine.remembered[0] == ""
    old = machine.add("old", "#!/bin/sh\nexit 77\n")
    (machine.data / "python").write_text(f"\n{old}\n")
    done = machine.hook()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_answers(machine)
    for code in (1, 2, 3, 139):  # code 2 would erase the prompt
        failing = machine.add("failing", f"#!/bin/sh\nexit {code}\n")
        (machine.data / "python").write_text(f"\n{failing}\n")
        assert machine.hook().returncode == 0
    assert machine.hook(CLAUDE_PLUGIN_DATA="").returncode == 0


def test_the_python_of_an_installed_judgekit_is_preferred_and_followed(machine: Machine) -> None:
    machine.add_python()
    assert_answers(machine)
    assert machine.started() == ["python3"]
    own = machine.add_python("its-python")
    installed = machine.add("judgekit", f"#!{own}\nraise SystemExit('not to be run')\n")
    assert_answers(machine)
    assert machine.started() == ["its-python"]
    assert machine.remembered[0] == str(installed)
    installed.unlink()
    assert_answers(machine)
    assert machine.started() == ["python3"]
    assert machine.remembered[0] == ""


def test_the_plugin_does_not_take_itself_for_an_installation(
    machine: Machine, tmp_path: Path
) -> None:
    machine.add_python()
    own = str(plugin_copy.ROOT / "bin")
    linked = tmp_path / "linked"
    linked.symlink_to(plugin_copy.ROOT)
    for path in (f"{own}:{machine.bin}", f"{machine.bin}:{own}"):
        for machine.plugin in (
            plugin_copy.ROOT,
            linked,
        ):  # a client's name for it need not be PATH's
            for _ in range(2):
                assert machine.hook(PATH=path).returncode == 0
                assert machine.remembered[0] == ""
        machine.started()
        python = machine.add_python("its-python")
        installed = machine.add("judgekit", f"#!{python}\nraise SystemExit('not to be run')\n")
        assert machine.hook(PATH=path).returncode == 0
        assert machine.started() == ["its-python"]
        assert machine.remembered[0] == str(installed)
        installed.unlink()


def test_the_python_of_macos_itself_is_left_alone(machine: Machine) -> None:
    """It is too old, and without the developer tools it opens a window that asks for them."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no /usr/bin/python3 here")
    (machine.bin / "uname").unlink()
    machine.add("uname", "#!/bin/sh\necho Darwin\n")
    done = machine.hook(PATH=f"{machine.bin}:/usr/bin")
    if machine.data.joinpath("python").exists():  # there are others in places where macOS has them
        assert machine.remembered[1] != "/usr/bin/python3"
    else:
        assert "found no Python 3.11" in done.stdout


def test_the_plugin_may_lie_anywhere_or_be_gone_and_nothing_in_the_project_is_run(
    machine: Machine,
) -> None:
    machine.add_python()
    assert machine.hook(JUDGEKIT_DISABLE="1").stdout == ""
    for name in ("python3", "judgekit", "uname", "mkdir"):
        (machine.project / name).write_text("#!/bin/sh\ntouch RUN\n")
        (machine.project / name).chmod(0o755)
    for name in ("judgekit.py", "os.py", "sitecustomize.py"):
        (machine.project / name).write_text("open('RUN', 'w')")
    machine.plugin = plugin_copy.write(machine.folder / 'it\'s a "$HOME" `x` folder')
    assert_answers(machine)
    assert not (machine.project / "RUN").exists()
    machine.plugin = machine.folder / "gone"
    done = machine.hook()
    assert (done.returncode, done.stdout) == (0, "")


def test_python_is_not_told_to_be_a_program_of_the_project(machine: Machine) -> None:
    """It would be kept as the interpreter of an installed judgekit."""
    installed = machine.add("judgekit", f"#!{sys.executable}\n")
    ours = machine.project / "bin" / "python"
    ours.parent.mkdir()
    ours.write_text("#!/bin/sh\ntouch RUN\n")
    ours.chmod(0o755)
    for name in ("PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__") * 2:
        machine.hook(**{name: "bin/python"})
        assert machine.remembered == [str(installed), sys.executable]
    assert not (machine.project / "RUN").exists()


def command(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{machine.bin}:{machine.plugin / 'bin'}"
    return machine.run(
        "/bin/sh", "-c", 'judgekit "$@"', "sh", *words, PATH=path, CLAUDE_PLUGIN_ROOT=""
    )


def test_as_a_command_it_searches_explains_and_says_how_to_get_the_rest(machine: Machine) -> None:
    done = command(machine, "search", "refresh the JWT")
    assert (done.returncode, done.stderr) == (78, "judgekit: there is no Python 3.11 or newer\n")
    machine.add_python()
    for words in (("search", "refresh the JWT", "--json"), ("hook", "--explain", QUESTION)):
        done = command(machine, *words)
        assert (done.returncode, done.stderr, sample_store.JWT.title in done.stdout) == (
            0,
            "",
            True,
        )
    done = command(machine, "judge", "a.md")
    assert (done.returncode, done.stdout, f"pip install '{machine.plugin}'" in done.stderr) == (
        78,
        "",
        True,
    )


ROOT = plugin_copy.ROOT
SKILLS = sorted(ROOT.glob("skills/*/SKILL.md"))


def front_matter(skill: Path) -> dict[str, str]:
    _, head, _ = skill.read_text().split("---\n", 2)
    found: dict[str, str] = YAML(typ="safe", pure=True).load(head)
    return found


def commands(skill: Path) -> list[list[str]]:
    lines = [
        fence.text.splitlines()
        for fence in docs.fences(skill.read_text())
        if fence.language == "sh"
    ]
    return [shlex.split(line) for block in lines for line in block]


def test_the_manifests_and_the_hooks_agree_with_the_package() -> None:
    plugin = json.loads((ROOT / ".claude-plugin/plugin.json").read_text())
    (listed,) = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text())["plugins"]
    assert (listed["source"], plugin["version"], "version" in listed) == (
        "./",
        judgekit.__version__,
        False,
    )
    shared = listed.keys() & plugin.keys()
    assert {"name", "description", "license"} <= shared
    assert [listed[key] for key in shared] == [plugin[key] for key in shared]
    for event, matchers in HOOKS.items():
        for hook in matchers[0]["hooks"]:
            assert '. "${CLAUDE_PLUGIN_ROOT}/bin/judgekit"' in hook["command"]
            assert hook["timeout"] == entries.TIMEOUT_SECONDS_BY_EVENT.get(
                event, entries.DEFAULT_TIMEOUT_SECONDS
            )
    assert (ROOT / "bin/judgekit").stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.parent.name)
def test_a_skill_is_described_and_asks_before_anything_is_sent(skill: Path) -> None:
    head = front_matter(skill)
    assert (set(head), head["name"]) == (
        {"name", "description", "allowed-tools"},
        skill.parent.name,
    )
    assert len(head["description"]) <= 1024
    assert re.search(r"(is|are) data\b", skill.read_text())
    allowed = re.findall(r"Bash\(([^)]*):\*\)", head["allowed-tools"])
    assert allowed
    for prefix in allowed:
        assert (
            "--no-judge" in prefix or "judgekit rubric" in prefix
        )  # neither sends, nor reads any file
    shown = [shlex.join(words) for words in commands(skill)]
    assert [line for line in shown if not line.startswith(tuple(allowed))]  # and what does, asks


def test_commands_of_a_skill_exist_with_their_options_and_run(tmp_path: Path) -> None:
    sample_store.write(tmp_path)
    shown = [words for skill in SKILLS for words in commands(skill)]
    assert len(shown) > len(SKILLS) > 1
    for program, *words in shown:
        assert program == "judgekit"
        command, rest = build_application(), [*words]
        context = command.make_context("judgekit", [], resilient_parsing=True)
        while isinstance(command, TyperGroup):
            found = command.get_command(context, rest.pop(0))
            assert found is not None
            command = found
        # With its parent: a command keeps the names of its help option from its first context.
        command.make_context(words[0], rest, context)  # raises if an option or argument is wrong
        if words[0] in {"search", "rubric"} and "--judge" not in words:  # no model is asked
            run = [sys.executable, "-m", program, *words]
            done = subprocess.run(run, cwd=tmp_path, capture_output=True, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (0, b""), words
            assert done.stdout

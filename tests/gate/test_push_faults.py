"""Real pushes while something fails: models, ledger, interpreter, patience. None may cost a push."""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from loopback import DRIP, RESET, SILENT, Answer, Asked, Loopback, fails, says, sends
from pushing import bad, good, word
from scripted import by_content, scores

from judgekit import programs
from judgekit.hooks import git_hook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pushing import World

pytestmark = pytest.mark.slow

# A model server's behaviour, and the name of the failure. The document says which of them it gets.
FAULTS: dict[str, tuple[Answer, str]] = {
    "unauthorized": (fails(401), "authentication"),
    "forbidden": (fails(403), "permission"),
    "unknown": (fails(404), "not_found"),
    "limited": (fails(429, retry_after=0), "rate_limit"),
    "overloaded": (fails(529), "overloaded"),
    "broken": (fails(500), "server_error"),
    "silent": (SILENT, "timeout"),
    "dripping": (DRIP, "timeout"),
    "resetting": (RESET, "connection"),
    "talking": (says("I would rather not say."), "invalid_reply"),
    "garbled": (sends(b"<html>proxy</html>"), "invalid_reply"),
    "refusing": (says(None, refusal="I cannot help with that."), "refusal"),
    "cut": (says('{"reasoning": "it', finish="length"), "truncated"),
    "empty": (sends({"id": "1", "object": "chat.completion", "model": "m", "choices": []}), ""),
    "out of range": (says(scores(9, 9, 9)), "invalid_reply"),
}
SLOW = ("silent", "dripping")


def faulty(asked: Asked) -> Answer:
    for name, (answer, _) in FAULTS.items():
        if f"# fault {name}\n" in asked.text:
            return answer
    return by_content(asked)


def push_faulty(world: World, names: Iterable[str], also: str, code: int, **environ: str) -> None:
    """Push a document for each fault, and one that can be judged, and check that each has its line."""
    paths = {name: f"{name.replace(' ', '-')}.md" for name in names}
    for name, path in paths.items():
        world.work.write(path, good(f"fault {name}"))
    world.work.commit(
        "all", **({"a_md": {"GO": good("a"), "NO-GO": bad("a")}[also]} if also else {})
    )
    judged = dict.fromkeys(paths.values(), "UNDETERMINED") | ({"a.md": also} if also else {})
    with Loopback(faulty) as server:
        known = {
            "JUDGEKIT_REPLAY": "",
            "JUDGEKIT_API_BASE": server.base,
            "JUDGEKIT_MODEL": "stand-in",
        }
        push = world.push(judged=judged, code=code, **known, **environ)  # type: ignore[arg-type]  # none of the named
    found = {verdict["subjects"][0]["path"]: verdict for verdict in push.verdicts}
    for name, path in paths.items():
        kinds = {each["failure"]["kind"] for each in found[path]["rounds"] if each["failure"]}
        assert kinds, name
        assert FAULTS[name][1] in ("", *kinds), (name, kinds)
        assert found[path]["degraded"]
        assert found[path]["scores"] is None


@pytest.mark.parametrize(
    ("mode", "also"), [("advisory", "NO-GO"), ("blocking", "GO"), ("blocking", "NO-GO")]
)
def test_no_failure_of_a_model_blocks_or_is_lost(bare_world: World, mode: str, also: str) -> None:
    bare_world.start(f"gate: {{mode: {mode}}}\n")
    blocked = mode == "blocking" and also == "NO-GO"
    push_faulty(bare_world, [name for name in FAULTS if name not in SLOW], also, int(blocked))


def test_a_model_that_outlasts_the_budget(bare_world: World) -> None:
    bare_world.start("gate: {mode: blocking, budget: 6}\n")
    push_faulty(bare_world, SLOW, "", 0)


def test_no_model_no_recording_no_server_and_no_lines_of_gits(world: World) -> None:
    command = [sys.executable, "-m", "judgekit", "gate", "--pre-push", "origin", "../origin.git"]
    said = subprocess.run(
        command,
        cwd=world.work.folder,
        input=b"garbage\n",
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert b"UNDETERMINED, not judged: stdin:1: expected <local ref>" in said.stderr
    (line,) = world.ledger()
    assert line["schema"].startswith("judgekit/fault@")
    world.work.commit("bad", a_md=bad("a"))
    before = len(world.ledger())
    done = world.run("--dry-run", "origin", "main", JUDGEKIT_REPLAY="")
    assert done.returncode == 0, done.stderr
    assert b"UNDETERMINED" in done.stderr
    assert b"not judged" in done.stderr
    assert {word(each) for each in world.ledger()[before:]} <= {"UNDETERMINED"}
    push = world.push(
        "--dry-run", "origin", "main", JUDGEKIT_REPLAY=str(world.folder / "gone.jsonl")
    )
    assert "UNDETERMINED" in push.err
    assert len(push.of("fault")) == 1
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        known = {"JUDGEKIT_REPLAY": "", "JUDGEKIT_API_BASE": base, "JUDGEKIT_MODEL": "stand-in"}
        push = world.push(judged={"a.md": "UNDETERMINED"}, **known)  # type: ignore[arg-type]  # the same
    assert push.verdicts[0]["rounds"][0]["failure"]["kind"] == "connection"


def test_a_ledger_that_cannot_be_written(world: World) -> None:
    """Verdicts hold without it, and no override is offered that could not be kept."""
    (world.home / "judgekit" / "state").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(world.home / "judgekit" / "state" / "ledger", ignore_errors=True)
    (world.home / "judgekit" / "state" / "ledger").write_text("a file where a folder should be")
    world.work.commit("good", a_md=good("a"))
    push = world.push()
    assert "GO            a.md" in push.err
    assert "the ledger cannot be written" in push.err
    world.work.commit("bad", a_md=bad("a"))
    push = world.push(code=1)
    assert "the ledger cannot be written" in push.err
    assert "or skip the gate once: JUDGEKIT_SKIP=1 git push (overrides need" in push.err
    assert "judgekit override" not in push.err
    assert "which is noted" not in push.err
    push = world.push(JUDGEKIT_SKIP="1")
    assert "this push is not judged (not recorded: " in push.err
    assert "recorded in the ledger" not in push.err


@pytest.mark.skipif(os.name == "nt", reason="a limit on files is a POSIX notion")
@pytest.mark.parametrize(
    ("filled", "blocks", "code"), [(10_000, 16, 1), (0, 0, 0)], ids=["ledger", "all"]
)
def test_a_disk_without_room(world: World, filled: int, blocks: int, code: int) -> None:
    """No file may grow past a limit: that of the ledger has reached it, or nothing can be written at all."""
    world.work.commit("good", a_md=good("a"))
    world.push("--dry-run", "origin", "main", judged={"a.md": "GO"})
    (file,) = (world.home / "judgekit" / "state" / "ledger").glob("*/*.jsonl")
    whole = file.read_bytes()
    for day in (file.stem, (date.fromisoformat(file.stem) + timedelta(days=1)).isoformat()):
        file.with_stem(day).write_bytes(whole + b"\n" * filled)
    limited = world.folder / "python"
    limited.write_text(f'#!/bin/sh\nulimit -f {blocks}\nexec "{sys.executable}" "$@"\n')
    limited.chmod(0o755)
    world.install(python=str(limited))
    world.work.commit("bad", b_md=bad("b"))
    refs = world.refs()
    done = world.run("origin", "main")
    said = os.fsdecode(done.stderr)
    assert done.returncode == code, said
    assert (world.refs() == refs) == bool(code)
    assert "UNDETERMINED" in said or "the ledger cannot be written (File too large)" in said
    assert file.read_bytes() == whole + b"\n" * filled


def test_a_judgekit_or_a_library_that_does_not_start(world: World) -> None:
    package = world.folder / "broken" / "judgekit"
    package.mkdir(parents=True)
    world.work.commit("bad", a_md=bad("a"))
    world.install().write_bytes(git_hook.render_hook(root=str(package.parent)))
    for code in (
        "raise ImportError('half an upgrade')",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise SystemExit(1)",
        "raise SystemExit(2)",
        "1 +",
        "import os; os.abort()",
    ):
        (package / "__init__.py").write_text(code)
        push = world.push("--dry-run", "origin", "main")
        assert "the push goes on" in push.err.replace("\n", " "), code
    library = world.folder / "library" / "pydantic"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("raise ImportError('half an upgrade')")
    (library.parent / "judgekit").symlink_to(Path(programs.ROOT, "judgekit"))
    world.install().write_bytes(git_hook.render_hook(root=str(library.parent)))
    assert "judgekit:" in world.push().err


def test_nothing_of_the_repository_is_imported(world: World) -> None:
    for name in ("judgekit", "typer", "json", "pydantic"):
        world.work.write(f"{name}.py", "open('ran', 'w').close()\nraise SystemExit(0)\n")
    # Python looks for packages beside a program that a variable names, even isolated.
    world.work.write("pyvenv.cfg", "home = bin\n")
    packages = "lib/python{}.{}/site-packages".format(*sys.version_info)
    world.work.write(f"{packages}/theirs.pth", "import os; open('ran', 'w').close()\n")
    world.work.commit("bad", a_md=bad("a"))
    for variables in (
        {},
        {"PYTHONEXECUTABLE": "bin/python"},
        {"__PYVENV_LAUNCHER__": "bin/python"},
    ):
        world.push(judged={"a.md": "NO-GO"}, code=1, **variables)  # type: ignore[arg-type]  # none of the named
    assert not (world.work.folder / "ran").exists()


def test_variables_that_name_the_repository_start_nothing_of_it(world: World) -> None:
    for name in ("sitecustomize.py", "usercustomize.py", "lib/sitecustomize.py"):
        world.work.write(name, "open('ran', 'w').close()\n")
    for name in ("python", "git", "cat", "judgekit", "lib/git"):
        world.work.write(name, "#!/bin/sh\ntouch ran\n")
        (world.work.folder / name).chmod(0o755)
    world.work.commit("bad", a_md=bad("a"))
    hook = world.install()
    oids = world.work("rev-parse", "main"), world.work("rev-parse", "origin/main")
    recording = str(world.record(world.work))
    for entries in (":/opt/lib", ".", "lib", ""):
        path = (
            f"{entries}:{os.environ['PATH']}" if "opt" not in entries else f":{os.environ['PATH']}"
        )
        variables = {"PYTHONPATH": entries, "PYTHONUSERBASE": ".", "PYTHONHOME": "/nowhere"}
        done = subprocess.run(
            [str(hook), "origin", "../origin.git"],
            cwd=world.work.folder,
            env={**os.environ, **variables, "PATH": path, "JUDGEKIT_REPLAY": recording},
            input=f"refs/heads/main {oids[0]} refs/heads/main {oids[1]}\n".encode(),
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 1, done.stderr
        assert b"NO-GO" in done.stderr
        assert not (world.work.folder / "ran").exists(), entries


def test_compiled_modules_of_the_repository_are_not_run(world: World) -> None:
    """A judgekit on PATH, which stands in for an interpreter that is gone, is not isolated."""
    world.install(python=str(world.folder / "venv" / "bin" / "python"))
    source = Path(programs.ROOT, "judgekit", "__init__.py")
    code = compile("open('ran', 'w').close()", "theirs", "exec")
    about = source.stat()
    compiled = Path(importlib.util.cache_from_source(str(source))).name
    header = (
        importlib.util.MAGIC_NUMBER
        + bytes(4)
        + struct.pack("<II", int(about.st_mtime), about.st_size)
    )
    path = world.work.folder / "pyc" / source.parent.relative_to("/") / compiled
    path.parent.mkdir(parents=True)
    path.write_bytes(header + marshal.dumps(code))
    world.work.commit("bad", a_md=bad("a"))
    scripts = Path(sys.executable).parent
    path_variable = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    world.push(judged={"a.md": "NO-GO"}, code=1, PATH=path_variable, PYTHONPYCACHEPREFIX="pyc")
    assert not (world.work.folder / "ran").exists()


def test_an_interpreter_that_is_gone(world: World) -> None:
    world.install(python=str(world.folder / "venv" / "bin" / "python"))
    world.work.commit("bad", a_md=bad("a"))
    program = world.folder / "bin" / "judgekit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m judgekit "$@"\n')
    program.chmod(0o755)
    world.push(judged={"a.md": "NO-GO"}, code=1, PATH=f"{program.parent}:{without_judgekit()}")
    push = world.push(PATH=without_judgekit())
    (line,) = [line for line in push.err.splitlines() if "judgekit" in line]
    assert "this push is not judged" in line
    assert "venv/bin/python is gone" in line


def without_judgekit() -> str:
    """Return a PATH as a program started from a menu has it."""
    return os.pathsep.join(
        dict.fromkeys([str(Path(shutil.which("git") or "git").parent), "/usr/bin", "/bin"])
    )


def test_two_pushes_at_once(world: World) -> None:
    repositories = []
    for name in ("one", "two", "three"):
        world.work("worktree", "add", "--quiet", "-b", name, f"../{name}")
        repositories.append(GitRepo(world.folder / name))
        repositories[-1].commit(name, **{f"{name}{at}_md": good(f"{name}{at}") for at in range(10)})
    recording = str(world.record(world.work))
    with ThreadPoolExecutor(len(repositories)) as pool:
        done = list(
            pool.map(
                lambda each: each.run(
                    "push", "origin", each.folder.name, JUDGEKIT_REPLAY=recording
                ),
                repositories,
            )
        )
    assert [each.returncode for each in done] == [0, 0, 0], [each.stderr for each in done]
    assert len(world.ledger()) == 30
    assert len(list((world.home / "judgekit" / "state" / "ledger").glob("*/*.jsonl"))) == 1


@pytest.mark.skipif(os.name == "nt", reason="a process group is a POSIX notion")
def test_an_interrupted_push(world: World) -> None:
    """Ctrl-C goes to git and the hook alike: git ends, nothing arrives, and verdicts so far are kept."""
    world.work.commit("two", a_md=good("a"), b_md=good("fault silent"))
    refs = world.refs()
    with Loopback(faulty) as server:
        known = {"JUDGEKIT_API_BASE": server.base, "JUDGEKIT_MODEL": "stand-in"}
        push = subprocess.Popen(
            ["git", "push", "origin", "main"],
            cwd=world.work.folder,
            env=os.environ | known | {"GIT_CONFIG_GLOBAL": os.devnull},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while not world.ledger() and push.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(push.pid, signal.SIGINT)
        said, _ = push.communicate(timeout=30)  # all who hold the pipe have ended, the hook too
    assert push.returncode != 0
    assert world.refs() == refs
    paths = [each["subjects"][0]["path"] for each in world.ledger()]
    assert paths[:1] == ["a.md"], said

"""Git is asked in one place, and whatever a repository says, nothing of it is run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit import programs
from judgekit.gate import tasks
from judgekit.git import GitError, Repository
from judgekit.judging import documents

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "judgekit"
# Modules that start processes, but never git.
STARTERS = {
    "cli/demo.py": "judgekit itself",
    "engine/client.py": "the engine",
    "engine/server.py": "itself, detached",
    "programs.py": "gh, ssh, the client's hook, and programs of the user's",
    "providers/command.py": "the command of a provider",
    "git.py": "git, here alone",
    "hooks/watchdog.py": "this process once more",
    "providers/local.py": "pip, and a local model",
}
STARTING = {
    *("run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"),
    *("system", "popen", "startfile", "fork", "forkpty", "posix_spawn", "posix_spawnp"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
}
OF = {"subprocess", "os", "asyncio", "loop", "pty", "posix", "nt"}


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit("first", a_md="before\n", b_md="same\n")
    return work


def starts(text: str) -> Iterator[str]:
    """Yield calls that start a process, and those that search for a program in their own way."""
    for module, name in re.findall(r"\b(\w+)\.(\w+)", text):
        starts_one = name in STARTING or name.startswith(("exec", "spawn"))
        if (
            module in OF and starts_one and (module, name) != ("asyncio", "run")
        ) or name == "which":
            yield f"{module}.{name}"
    for module, names in re.findall(r"^\s*from (\w+) import \(?([\w,\s]+)", text, re.MULTILINE):
        if module in (*OF, "shutil"):
            yield from {*STARTING, "which"} & set(re.findall(r"\w+", names))


def test_processes_are_started_in_few_places_and_git_in_one() -> None:
    """Other places that start processes don't name git, and none looks for it."""
    for path in PACKAGE.rglob("*.py"):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        assert name in STARTERS or not set(starts(text)), name
        if name in STARTERS:
            assert bool(re.search(r'[(\[]\s*"git"', text)) == (name == "git.py"), name


def test_what_runs_filters_is_not_asked(work: GitRepo) -> None:
    for word in ("diff", "status", "add", "hash-object", "checkout", "archive", "show"):
        with pytest.raises(ValueError, match="is not run"):
            Repository(work.folder).ask(word)


def everything(repository: GitRepo, command: str) -> None:
    """Give a repository a configuration that runs `command` wherever one can."""
    programs = (
        "filter.x.process filter.x.clean filter.x.smudge diff.x.command diff.x.textconv diff.external"
        " core.fsmonitor core.pager pager.log core.editor core.sshCommand core.askPass"
        " core.alternateRefsCommand gpg.program gpg.ssh.program trailer.sign.command"
        " uploadpack.packObjectsHook remote.origin.uploadpack"
    )
    switches = (
        "filter.x.required",
        "log.showSignature",
        "remote.origin.promisor",
        "submodule.recurse",
    )
    shell = ("credential.helper", "alias.log", "alias.ls-files")
    values = dict.fromkeys(programs.split(), command) | dict.fromkeys(switches, "true")
    values |= dict.fromkeys(shell, f"!{command}") | {"remote.origin.url": f"ext::{command}"}
    values |= {"protocol.ext.allow": "always", "extensions.partialClone": "origin"}
    for name, value in values.items():
        repository("config", name, value)
    for name in (
        "post-index-change",
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        hook = repository.folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{command}\n")
        hook.chmod(0o755)


@pytest.mark.parametrize("place", ["plain", "include", "worktree", "elsewhere"])
def test_nothing_of_a_repository_is_run(work: GitRepo, tmp_path: Path, place: str) -> None:
    ran = tmp_path / "ran"
    work.commit("attributes", _gitattributes="*.md filter=x diff=x\n")
    work.write("a.md", "after\n")
    work.write("new.md", "new\n")
    everything(work, f"touch {ran}")
    config = work.folder / ".git" / "config"
    text = config.read_text()
    plain = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
    if place == "include":
        (tmp_path / "more").write_text(text)
        config.write_text(
            plain + f'[includeIf "gitdir:{work.folder}/"]\n\tpath = {tmp_path / "more"}\n'
        )
    elif place == "worktree":
        (work.folder / ".git" / "config.settings.worktree").write_text(text)
        config.write_text(plain.replace("= 0", "= 1") + "[extensions]\n\tworktreeConfig = true\n")
    elif place == "elsewhere":
        (work.folder / ".git").rename(tmp_path / "kept")
        (work.folder / ".git").write_text(f"gitdir: {tmp_path / 'kept'}\n")
    info = (
        Repository(work.folder).ask("rev-parse", "--git-path", "info/attributes").decode().strip()
    )
    (work.folder / info).parent.mkdir(exist_ok=True)
    (work.folder / info).write_text("*.md filter=x diff=x\n")
    ran.unlink(missing_ok=True)
    assert [file.path for file in tasks.read_changed_files(work.folder, ["*.md"])] == [
        "a.md",
        "new.md",
    ]
    assert len(list(documents.expand([str(work.folder)]))) == 4
    repository = Repository(work.folder)
    head = repository.resolve_commit("HEAD") or ""
    repository.ask("log", "--format=%H%x00%(trailers:only,unfold)")
    repository.ask("diff-tree", "-r", "-c", "--root", "-M100%", head)
    repository.succeeds("check-ignore", "--quiet", "a.md")
    with pytest.raises(GitError):  # what a promisor could have is not fetched
        repository.ask("cat-file", "blob", "1" * 40)
    assert not ran.exists()


def bare_inside(work: GitRepo, ran: Path) -> Path:
    """Put a bare repository among a project's files, as a clone may have one."""
    posing = GitRepo(work.folder / "docs")
    posing.commit("x", a_md="text\n")
    everything(posing, f"touch {ran}")
    for path in (posing.folder / ".git").iterdir():
        path.rename(posing.folder / path.name)
    (posing.folder / ".git").rmdir()
    (posing.folder / "config").write_text(
        (posing.folder / "config").read_text()
        + f"[core]\n\tbare = false\n\tworktree = {posing.folder}\n"
    )
    (posing.folder / "info").mkdir(exist_ok=True)
    (posing.folder / "info" / "attributes").write_text("*.md filter=x\n")
    posing.write("a.md", "after\n")
    ran.unlink(missing_ok=True)
    return posing.folder


def test_a_bare_repository_inside_a_clone_is_no_repository(work: GitRepo, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = bare_inside(work, ran)
    with pytest.raises(GitError, match="bareRepository"):
        tasks.read_changed_files(folder, ["*.md"])
    assert list(documents.expand([str(folder)]))
    assert not ran.exists()


def test_what_has_changed_is_read_and_no_linked_folder(work: GitRepo, tmp_path: Path) -> None:
    work.commit("folder", **{"notes/a_md": "in the project\n"})
    shutil.rmtree(work.folder / "notes")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.md").write_text("private\n")
    (work.folder / "notes").symlink_to(tmp_path / "private")
    work.write("b.md", "same\r\n")  # other line ends are no change
    work.write("a.md", "after\n")
    assert [file.path for file in tasks.read_changed_files(work.folder, ["**/*.md"])] == ["a.md"]


def test_grafts_traces_and_other_histories_are_left_out(
    work: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = work("rev-parse", "HEAD"), work.commit("second", c_md="c\n")
    grafts = tmp_path / "grafts"
    grafts.write_text(f"{second}\n")
    variables = {"GRAFT_FILE": grafts, "SHALLOW_FILE": grafts, "TRACE": tmp_path / "ran"}
    programs = ("EXTERNAL_DIFF", "PAGER", "SSH_COMMAND", "EXEC_PATH")
    for name, value in (variables | dict.fromkeys(programs, f"touch {tmp_path / 'ran'}")).items():
        monkeypatch.setenv(f"GIT_{name}", str(value))
    (work.folder / ".git" / "info").mkdir(exist_ok=True)
    shutil.copy(grafts, work.folder / ".git" / "info" / "grafts")
    listed = Repository(work.folder).ask("log", "--format=%H").decode().split()
    assert listed == [second, first]
    assert not (tmp_path / "ran").exists()


def test_the_users_variables_hold(
    work: GitRepo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All but those that would run something: `git -c … push` hands them on to its hooks."""
    given = {"COUNT": "2", "KEY_0": "user.email", "VALUE_0": "ada@example.org"}
    given |= {"KEY_1": "core.fsmonitor", "VALUE_1": f"touch {tmp_path / 'ran'}"}
    for name, value in given.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    repository = Repository(work.folder)
    assert repository.ask("config", "user.email") == b"ada@example.org\n"
    repository.ask("ls-files", "--others")
    assert not (tmp_path / "ran").exists()
    work(
        "config", "core.hooksPath", str(tmp_path / "hooks")
    )  # the place of hooks is known all the same
    assert repository.ask("rev-parse", "--git-path", "hooks").decode().strip() == str(
        tmp_path / "hooks"
    )


def test_blobs_come_one_by_one(work: GitRepo) -> None:
    texts = [os.urandom(300_000) for _ in range(4)] + [b"", b"\n", b"x" * 1_000_001]
    oids = [work("hash-object", "-w", "--stdin", stdin=text) for text in texts]
    missing = "1" * 40
    found = Repository(work.folder).read_blobs([*oids, missing, oids[0]], 1_000_000)
    assert next(found) == (oids[0], texts[0])
    rest = list(found)
    assert [content for _, content in rest] == [*texts[1:-1], None, None, texts[0]]
    assert [name for name, _ in rest] == [*oids[1:], missing, oids[0]]


def test_programs_of_the_current_folder_are_not_found(
    work: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("git", "bin/git"):
        work.write(name, f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
        (work.folder / name).chmod(0o755)
    monkeypatch.chdir(work.folder)
    before = os.environ["PATH"]
    for entry in ("", ".", "bin", "./bin", "../work/bin"):
        monkeypatch.setenv("PATH", f"{entry}{os.pathsep}{before}")
        assert Repository(work.folder).resolve_commit("HEAD")
        assert programs.find("git", os.environ) == shutil.which("git", path=before)
        monkeypatch.setenv("PATH", entry)
        assert programs.find("git", os.environ) is None
        with pytest.raises(GitError, match="no git on PATH"):
            Repository(work.folder).resolve_commit("HEAD")
    assert not (tmp_path / "ran").exists()
    assert programs.find(sys.executable, {}) == sys.executable
    assert programs.find("/no/such/program", {}) is None
    assert programs.find("bin/git", {"PATH": "/usr"}) is None


GIT_THAT_ENDS_EARLY = """\
#!/bin/sh
while read -r name; do
    case $name in
        *lacking*) echo "fatal: lazy fetching disabled" >&2; exit 128 ;;
        *) echo "$name blob 3" ;;
    esac
done
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows runs no shell script")
def test_an_object_at_which_an_older_git_ends_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "git"
    git.write_text(GIT_THAT_ENDS_EARLY)
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    described = Repository(tmp_path).describe_objects(["a", "lacking1", "b", "lacking2"])
    assert list(described) == ["a blob 3", "lacking1 missing", "b blob 3", "lacking2 missing"]

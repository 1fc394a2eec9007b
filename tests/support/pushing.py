"""A world for the gate's tests: a repository with the hook installed, its remote, and a recorded judge.

    world.work.commit(good_md=GOOD, bad_md=BAD)
    world.push(judged={"good.md": "GO", "bad.md": "NO-GO"}, code=1)

Every push is a real one. Each verdict that the ledger holds is checked against git: the commit it names has
that path with that content, and is by that author.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from git_repo import GitRepo
from scripted import scores

from judgekit.hooks import files, git_hook

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

GOOD = "# A page\n\nIt says what holds.\n"
BAD = "# A page\n\nTODO\n"
BLOCKING = "gate: {mode: blocking}\n"


def good(what: str) -> str:
    return f"# {what}\n\nIt says what holds.\n"


def bad(what: str) -> str:
    return f"# {what}\n\nTODO\n"


@dataclass(frozen=True)
class Push:
    """The end of a push: git's exit code, the output, and the ledger's new lines."""

    code: int
    out: str
    err: str
    lines: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["schema"].startswith(f"judgekit/{kind}@")]

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        return self.of("verdict")


@dataclass
class World:
    """The repository `work` and its remote `origin`, side by side in `folder`."""

    folder: Path
    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    rubrics: list[str] = field(default_factory=lambda: ["kls@1.0.0"])

    def __post_init__(self) -> None:
        self.origin = GitRepo(self.folder / "origin.git", "--bare")
        self.work = GitRepo(self.folder / "work")
        self.work("remote", "add", "origin", "../origin.git")

    def install(self, repository: GitRepo | None = None, python: str | None = None) -> Path:
        place = git_hook.find_hooks((repository or self.work).folder)
        change = git_hook.plan_install(place, python)
        files.install(change, is_program=True)
        return change.path

    def start(self, config: str = BLOCKING, **files: str | bytes) -> None:
        self.work.write(".judgekit/config.yaml", config)
        self.work.commit("rules", **files)
        self.work("push", "--quiet", "origin", "main")
        self.install()

    def run(
        self, *words: str, of: GitRepo | None = None, **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        repository = of or self.work
        known = {"JUDGEKIT_REPLAY": str(self.record(repository)), **self.environ, **environ}
        return repository.run("push", *words, **known)  # type: ignore[arg-type]  # none of them is `stdin`

    def push(
        self,
        *words: str,
        judged: Mapping[str, str] | None = None,
        code: int = 0,
        of: GitRepo | None = None,
        **environ: str,
    ) -> Push:
        """Push (by default `origin main`); check the exit code and the judged files."""
        repository = of or self.work
        before = {each["id"] for each in self.ledger()}
        refs = self.refs()
        done = self.run(*(words or ("origin", "main")), of=repository, **environ)
        out, err = os.fsdecode(done.stdout), os.fsdecode(done.stderr)
        push = Push(
            done.returncode, out, err, [each for each in self.ledger() if each["id"] not in before]
        )
        assert push.code == code, f"{out}{err}"
        if code:
            assert self.refs() == refs, "what is held up must not arrive"
        found = {(verdict["subjects"][0]["path"], word(verdict)) for verdict in push.verdicts}
        assert found == set((judged or {}).items()), err
        for verdict in push.verdicts:
            self.check(repository, verdict)
        return push

    def check(self, repository: GitRepo, verdict: dict[str, Any]) -> None:
        subject, commit = verdict["subjects"][0], verdict["commit"]
        path = subject["path"]
        if path.isprintable() and "\\" not in path:
            blob = repository.run("cat-file", "blob", f"{commit}:{path}").stdout
            assert hashlib.sha256(blob).hexdigest() == subject["sha256"]
        author = repository("log", "-1", "--format=%an <%ae>", commit)
        assert verdict["author"]["name"] == author
        assert verdict["task_id"] == f"{path}@{subject['sha256'][:16]}"

    def refs(self) -> str:
        return self.origin("for-each-ref")

    def ledger(self) -> list[dict[str, Any]]:
        files = sorted((self.home / "judgekit" / "state" / "ledger").glob("*/*.jsonl"))
        return [
            json.loads(line)
            for file in files
            if file.is_file()
            for line in file.read_bytes().splitlines()
        ]

    def record(self, repository: GitRepo) -> Path:
        """Record the judge's replies about everything in the repository: no to a TODO, else yes."""
        path = self.folder / "recording.jsonl"
        lines = [
            line
            for blob in blobs(repository)
            for rubric in self.rubrics
            for line in recorded(blob, rubric)
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path


def word(verdict: dict[str, Any]) -> str:
    return {"accept": "GO", "reject": "NO-GO", "improve": "NO-GO"}.get(
        verdict["verdict"], "UNDETERMINED"
    )


def blobs(repository: GitRepo) -> list[bytes]:
    every = ("--batch-all-objects", "--unordered")
    listed = repository(
        "cat-file", *every, "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    )
    names = [
        each[0]
        for each in map(str.split, listed.splitlines())
        if each[1] == "blob" and int(each[2]) < 10**6
    ]
    wanted = "".join(f"{name}\n" for name in names).encode()
    raw = repository.run("cat-file", "--batch", stdin=wanted, GIT_NO_REPLACE_OBJECTS="1").stdout
    found, place = [], 0
    for _ in names:
        start = raw.index(b"\n", place) + 1
        size = int(raw[place : start - 1].rpartition(b" ")[2])
        found.append(raw[start : start + size])
        place = start + size + 1
    return found


def recorded(blob: bytes, rubric: str) -> list[dict[str, Any]]:
    text = scores(1, 1, 2, reasoning="Unfinished.") if b"\nTODO" in blob else scores(4, 4, 5)
    reply = {"text": text, "model": "recorded"}
    about = {
        "replay": 1,
        "subject": hashlib.sha256(blob).hexdigest(),
        "rubric": rubric,
        "model": "recorded",
    }
    return [{**about, "tier": tier, "reply": reply} for tier in ("quick", "deep", "tiebreaker")]


def path_without_judgekit() -> str:
    """Return the PATH without folders that hold another `judgekit`, as an active venv does."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(
        folder for folder in folders if not (pathlib.Path(folder) / "judgekit").exists()
    )

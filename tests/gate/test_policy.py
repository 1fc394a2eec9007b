"""Which changes of a push are judged, whose rules apply to it, and an agent's uncommitted files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from git_repo import GitRepo, beside_origin

from judgekit import git
from judgekit.config import settings
from judgekit.errors import ConfigError, InputError
from judgekit.gate import examine, history, policy, tasks
from judgekit.gate.commits import ChangedFile, ChangeFilter, RefUpdate
from judgekit.gate.history import Commit
from judgekit.gate.policy import find_rule_commits
from judgekit.git import GitError, Repository

RULES = ".judgekit/config.yaml"


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    """Return a clone whose remote wants blocking, with a newer commit that wants everything allowed."""
    GitRepo(tmp_path / "origin.git", "--bare")
    work = GitRepo(tmp_path / "work")
    work("remote", "add", "origin", str(tmp_path / "origin.git"))
    work.write(RULES, "gate: {mode: blocking}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    work.write(RULES, "gate: {mode: advisory, paths: []}\n")
    work.commit("laxer rules")
    return work


def update(work: GitRepo, remote_oid: str, ref: str = "refs/heads/main") -> RefUpdate:
    return RefUpdate(ref, work("rev-parse", "HEAD"), ref, remote_oid)


def test_what_leads_out_is_left_out(
    work: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (work.folder / ".judgekit/folder").symlink_to(tmp_path)
    (work.folder / ".judgekit/link.yaml").symlink_to("/etc/passwd")
    links = work.commit("links")
    tree = work("hash-object", "-w", "--stdin", stdin=b"out")
    for name in ("out.yaml", "..", "..", ".judgekit"):
        mode = b"100644" if name.endswith(".yaml") else b"40000"
        entry = mode + b" " + name.encode() + b"\0" + bytes.fromhex(tree)
        tree = work("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=entry)
    outside = work("commit-tree", tree, "-m", "a tree made by hand")
    for commit in (links, outside):
        with policy.check_out_rules(Repository(work.folder), commit) as folder:
            assert {path.name for path in folder.rglob("*")} <= {".judgekit", "config.yaml"}
            assert list(tmp_path.rglob("out.yaml")) == []
    work.write(".judgekit/notes.txt", "# x\n" * 30_000)  # files that decide nothing may be missing
    work.write(".claude/memory/memory-config.json", " " * 200_000)
    with policy.check_out_rules(Repository(work.folder), work.commit("large")) as folder:
        assert settings.load(folder).gate.mode == "advisory"


def refuses(work: GitRepo, commit: str, problem: str) -> None:
    """Check that the rules of a commit are refused, with the file named as git names it."""
    with (
        pytest.raises(ConfigError, match=rf"^{commit[:12]}:{problem}"),
        policy.check_out_rules(Repository(work.folder), commit) as folder,
    ):
        settings.load(folder)


@pytest.mark.parametrize(
    "name", [".judgekit", RULES, ".judgekit/rubrics", ".judgekit/rubrics/kls@1.0.0.yaml"]
)
def test_links_and_large_or_wrong_rules_are_refused(
    work: GitRepo, tmp_path: Path, name: str
) -> None:
    path = work.folder / name
    if name.endswith(".yaml"):
        work.write(name, "# x\n" * 30_000)
        refuses(work, work.commit("large"), rf"{re.escape(name)}: larger than 100 kB, or ")
    work.write(RULES, "gate:\n  mode: maybe\n")
    (work.folder / ".judgekit/rubrics/kls@1.0.0.yaml").unlink(missing_ok=True)
    refuses(work, work.commit("wrong"), r"\.judgekit/config\.yaml:2: gate\.mode: ")
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path)
    refuses(work, work.commit("a link"), rf"{re.escape(name)}: not a regular file, and the gate")


def nested(work: GitRepo, levels: int, path: str, blob: str) -> str:
    """Return a commit with ten names in each of some levels of folders: a tree of a few kB that unfolds."""
    tree = work(
        "mktree", stdin="".join(f"100644 blob {blob}\t{name}.yaml\n" for name in range(10)).encode()
    )
    for _ in range(levels - 1):
        tree = work(
            "mktree", stdin="".join(f"040000 tree {tree}\t{name}\n" for name in range(10)).encode()
        )
    for name in reversed(path.split("/")):
        tree = work("mktree", stdin=f"040000 tree {tree}\t{name}\n".encode())
    return work("commit-tree", tree, "-m", "nested")


@pytest.mark.parametrize("path", [".judgekit/rubrics", ".judgekit/a/b"])
def test_rules_that_unfold_to_many_files_are_refused(work: GitRepo, path: str) -> None:
    """Of a hundred million names only the first are read."""
    commit = nested(work, 8, path, work("hash-object", "-w", "--stdin", stdin=b"x\n"))
    refuses(
        work,
        commit,
        r"\.judgekit/.*: with it the rules are more than 5,000 files; remove what is no rule",
    )


def test_rules_that_unfold_to_many_bytes_are_refused(work: GitRepo) -> None:
    commit = nested(
        work, 3, ".judgekit/rubrics", work("hash-object", "-w", "--stdin", stdin=b"# x\n" * 20_000)
    )
    refuses(
        work,
        commit,
        r"\.judgekit/.*: with it the rules are more than 10 MB; remove what is no rule",
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="the memory of a child is limited on Linux alone"
)
def test_a_pushed_tree_that_unfolds_ends_git_and_not_the_machine(
    work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "MAX_MEMORY_BYTES", 50_000_000)
    commit = nested(work, 8, "docs", work("hash-object", "-w", "--stdin", stdin=b"x\n"))
    updates = [RefUpdate("HEAD", commit, "", work("rev-parse", "HEAD"))]
    with pytest.raises(GitError, match=r"git log: .*out of memory"):
        examine.examine_push(Repository(work.folder), updates, [], ChangeFilter((["*.md"], [])))


def test_a_tree_with_more_files_than_are_looked_at_is_an_error(work: GitRepo) -> None:
    commit = nested(work, 8, "docs", work("hash-object", "-w", "--stdin", stdin=b"x\n"))
    with pytest.raises(GitError, match="more than 1,000 files"):
        list(Repository(work.folder).list_tree(commit, limit=1_000))


@pytest.fixture
def partial(work: GitRepo, tmp_path: Path) -> GitRepo:
    origin = tmp_path / "origin.git"
    GitRepo(origin)("config", "uploadpack.allowFilter", "true")
    words = ("--quiet", "--filter=blob:none", "--no-checkout", f"file://{origin}")
    work("clone", *words, str(tmp_path / "partial"))
    return GitRepo(tmp_path / "partial")


def test_rules_that_a_partial_clone_lacks_are_named_with_a_remedy_and_cost_no_other(
    partial: GitRepo,
) -> None:
    commit, lacking = partial("rev-parse", "HEAD"), partial("rev-parse", f"HEAD:{RULES}")
    here = [partial("hash-object", "-w", "--stdin", stdin=text) for text in (b"one", b"two")]
    found = list(Repository(partial.folder).read_blobs([here[0], lacking, here[1], lacking], 100))
    assert found == [(here[0], b"one"), (lacking, None), (here[1], b"two"), (lacking, None)]
    remedy = rf"\(fetch it with: git show {commit[:12]}:\.judgekit/c"
    refuses(partial, commit, rf"\.judgekit/config\.yaml: .* not in this clone {remedy}")
    partial("show", f"{commit[:12]}:{RULES}")
    with policy.check_out_rules(Repository(partial.folder), commit) as folder:
        assert settings.load(folder).gate.mode == "blocking"


HEAVY = ("pydantic", "typer", "ruamel", "litellm")


@pytest.fixture
def chosen(tmp_path: Path) -> GitRepo:
    work = beside_origin(tmp_path / "chosen")
    work.write(RULES, "gate: {paths: ['*.md']}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    return work


def main_of(work: GitRepo) -> RefUpdate:
    return update(work, work("rev-parse", "origin/main"))


def nothing_to_judge(work: GitRepo) -> bool:
    return (
        policy.find_skips_if_none_judged(Repository(work.folder), [main_of(work)], "origin")
        is not None
    )


def keep(work: GitRepo) -> None:
    repository = Repository(work.folder)
    policy.store_selection(
        repository, find_rule_commits(repository, [main_of(work)], "origin"), ["*.md"], []
    )


def test_what_decides_a_choice_makes_it_read_again(
    chosen: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = RefUpdate("(delete)", "0" * 40, "refs/heads/x", chosen("rev-parse", "main"))
    for updates in ([gone], []):  # need no rules
        assert (
            policy.find_skips_if_none_judged(Repository(chosen.folder), updates, "origin")
            is not None
        )
    chosen.commit("code", a_py="x\n")
    assert not nothing_to_judge(chosen), "before a full run"
    keep(chosen)
    assert nothing_to_judge(chosen)
    with monkeypatch.context() as patch:
        patch.setenv("JUDGEKIT_GATE_PATHS", "*.py")
        assert not nothing_to_judge(chosen)
    [kept] = (Path(os.environ["JUDGEKIT_HOME"]) / "cache" / "gate").iterdir()
    damaged = json.dumps(json.loads(kept.read_bytes()) | {"paths": None})
    for content in ("", "no JSON", "[]", '{"key": 1}', damaged):
        kept.write_text(content)
        assert not nothing_to_judge(chosen)
    keep(chosen)
    settings.get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    settings.get_user_config_path().write_text("gate: {paths: ['*.py']}\n")
    assert not nothing_to_judge(chosen)
    settings.get_user_config_path().unlink()
    keep(chosen)
    chosen.commit("text", a_md="x\n")
    assert not nothing_to_judge(chosen), "something to judge"
    chosen.write(RULES, "gate: {paths: ['*.py']}\n")
    chosen.commit("other rules")
    chosen("push", "--quiet", "origin", "main")
    chosen.commit("no code", a_txt="x\n")
    assert not nothing_to_judge(chosen), "other rules on the remote"


def test_a_push_of_nothing_relevant_imports_nothing_heavy(chosen: GitRepo) -> None:
    keep(chosen)
    chosen.commit("code", a_py="x\n")
    line = " ".join(main_of(chosen))
    program = (
        "import sys; sys.argv = ['judgekit', 'gate', '--pre-push', 'origin', 'url']\n"
        "from judgekit.__main__ import main; code = main()\n"
        f"print([int(code), *(name for name in {HEAVY!r} if name in sys.modules)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=chosen.folder,
        input=line.encode(),
        capture_output=True,
        check=False,
    )
    # Once by the process that does the work, once by the one that waits for it.
    assert set(done.stdout.split()) == {b"[0]"}
    ending = b"judgekit: 0 judged; 1 skipped (not selected by gate.paths); 0 not examined\n"
    assert done.stderr == ending


MARKDOWN = ["**/*.md"]


@pytest.fixture
def uncommitted(tmp_path: Path) -> GitRepo:
    uncommitted = GitRepo(tmp_path / "work")
    uncommitted.commit(
        "first",
        kept_md="kept\n",
        edited_md="before\n",
        removed_md="gone soon\n",
        moved_md="as it is\n",
    )
    return uncommitted


def left(uncommitted: GitRepo, folder: str = ".", **options: float) -> list[str]:
    found = tasks.read_changed_files(uncommitted.folder / folder, MARKDOWN, **options)  # type: ignore[arg-type]  # numbers
    return [file.path for file in found]


def test_changed_staged_and_new_files_are_found(uncommitted: GitRepo, tmp_path: Path) -> None:
    assert left(uncommitted) == []
    uncommitted.commit("rules", _gitignore="draft.md\n")
    uncommitted.write("draft.md")
    uncommitted.write("edited.md", "after\n")
    uncommitted.write("new.md")
    uncommitted.write("docs/staged one.md")
    uncommitted("add", "docs/staged one.md")
    uncommitted.write("docs/ünï\ncödé.md")
    uncommitted.write("other.txt")
    (uncommitted.folder / "removed.md").unlink()
    uncommitted("mv", "moved.md", "docs/moved.md")
    found = ["docs/moved.md", "docs/staged one.md", "docs/ünï\ncödé.md", "edited.md", "new.md"]
    assert left(uncommitted) == found
    texts = {
        file.path: file.text for file in tasks.read_changed_files(uncommitted.folder, MARKDOWN)
    }
    assert texts["edited.md"] == "after\n"
    with pytest.raises(InputError):
        tasks.read_changed_files(tmp_path, MARKDOWN)


def test_no_commit_yet_and_a_project_in_a_folder(uncommitted: GitRepo, tmp_path: Path) -> None:
    empty = GitRepo(tmp_path / "empty")
    empty.write("a.md")
    empty.write("b.md")
    empty("add", "a.md")
    assert left(empty) == ["a.md", "b.md"]
    uncommitted.write("part/a.md")
    uncommitted.write("part/docs/b.md")
    uncommitted("add", "part/a.md")
    uncommitted.write("edited.md", "after\n")
    assert left(uncommitted, "part") == ["a.md", "docs/b.md"]


def test_what_cannot_be_judged_is_left_out(uncommitted: GitRepo, tmp_path: Path) -> None:
    uncommitted.write("binary.md", b"\0\1")
    uncommitted.write("latin.md", b"caf\xe9")
    uncommitted.write("empty.md", "")
    uncommitted.write("large.md", "x" * (tasks.MAX_FILE_BYTES + 1))
    (tmp_path / "secret.md").write_text("elsewhere\n")
    (uncommitted.folder / "link.md").symlink_to(tmp_path / "secret.md")
    os.mkfifo(uncommitted.folder / "pipe.md")
    uncommitted.write("good.md")
    assert left(uncommitted) == ["good.md"]


def test_only_what_the_session_touched_and_of_many_the_last_ones(uncommitted: GitRepo) -> None:
    for age, name in enumerate(["now.md", "old.md"]):
        uncommitted.write(name)
        os.utime(uncommitted.folder / name, (0, time.time() - age * 3600))
    assert left(uncommitted, since=time.time() - 60) == ["now.md"]
    assert left(uncommitted) == ["now.md", "old.md"]
    for number in range(6):
        uncommitted.write(f"{number}.md")
        os.utime(uncommitted.folder / f"{number}.md", (0, 2_000_000_000 + (number * 7) % 6))
    newest = sorted(range(6), key=lambda number: (number * 7) % 6)[-2:]
    assert left(uncommitted, limit=2) == sorted(f"{number}.md" for number in newest)


CLAUDE = "Claude <noreply@anthropic.com>"


COMMIT = Commit(
    "a" * 40,
    ("Ada <ada@example.org>", "Bo <bo@example.org>", CLAUDE),
    ("Generated-By: some-tool 1.2",),
)


CHOSEN: list[tuple[list[str], list[str], bool]] = [
    (["*.md"], [], True),
    (["docs/"], [], False),
    (["docs/", "/*.md", "!docs/api/"], [], True),
    (["*", "!a.md"], [], False),
    (["*.md"], ["ada *"], True),
    (["*.md"], ["CLAUDE *"], True),
    (["*.md"], ["generated-by: *"], True),
    (["*.md"], ["Generated-By: other*"], False),
    (["*.md"], ["Eve *", "*claude*"], True),
    (["*.txt"], ["*"], False),
]


def test_changes_are_chosen_by_path_and_by_who_made_them() -> None:
    change = ChangedFile(COMMIT, "a.md", "b" * 40)
    for paths, authors, meant in CHOSEN:
        assert ChangeFilter((paths, authors))(change) is meant, (paths, authors)
        assert ChangeFilter((["*.rst"], []), (paths, authors))(change) is meant


def test_of_a_long_history_the_newest_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_COMMITS", 2)
    work = GitRepo(tmp_path / "work")
    for name in "abc":
        work.commit(name, **{f"{name}_md": "x\n"})
    updates = [RefUpdate("main", work("rev-parse", "main"), "refs/heads/main", "0" * 40)]
    pushed = examine.examine_push(Repository(work.folder), updates, [], ChangeFilter((["*"], [])))
    assert sorted(change.path for change in pushed.changes) == ["b.md", "c.md"]
    reason = "more than 2 new commits; only files changed by the newest are judged"
    assert pushed.unexamined == [{"name": "refs/heads/main", "reason": reason}]

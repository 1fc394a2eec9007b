"""Parts of a history, objects and refs that can't be examined are named, not called "nothing to judge"."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pushing import World, bad, good

from judgekit.gate import examine, remotes
from judgekit.gate.commits import ChangeFilter, RefUpdate
from judgekit.git import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.gate.commits import PushedChanges

ALL = ChangeFilter((["*.md"], []))
NONE = "0" * 40
SHALLOW = "at the edge of a shallow clone; fetch with depth 0 (git fetch --unshallow)"


def examined(
    work: GitRepo, base: str, tip: str = "HEAD", *, wanted: ChangeFilter = ALL
) -> PushedChanges:
    """Return the changes since a base, as `judgekit gate --base` finds them."""
    oid = work("rev-parse", base)
    update = RefUpdate("HEAD", work("rev-parse", tip), "", oid)
    return examine.examine_push(Repository(work.folder), [update], [oid], wanted)


def pushed_to_nowhere(work: GitRepo, tip: str = "HEAD") -> PushedChanges:
    """Return the changes of a first push to a remote that we know nothing of."""
    update = RefUpdate("refs/heads/new", work("rev-parse", tip), "refs/heads/new", NONE)
    return examine.examine_push(Repository(work.folder), [update], [], ALL)


def paths(pushed: PushedChanges) -> list[str]:
    return sorted(change.path for change in pushed.changes)


@pytest.fixture
def origin(tmp_path: Path) -> GitRepo:
    """Return a repository whose `feature` left `main` two commits ago."""
    origin = GitRepo(tmp_path / "origin")
    origin("config", "uploadpack.allowFilter", "true")
    origin.write("docs/kept.md", good("kept"))
    origin.commit("first", a_md=good("a"))
    origin("switch", "--quiet", "--create", "feature")
    origin.commit("one", bad_md=bad("b"))
    origin("mv", "a.md", "moved.md")
    origin.commit("two", other_md=good("o"))
    origin("switch", "--quiet", "main")
    for number in range(2):
        origin.commit(f"main {number}", main_md=good(str(number)))
    return origin


def clone(origin: GitRepo, *options: str, branch: str = "feature") -> GitRepo:
    folder = origin.folder.parent / "clone"
    words = ("--quiet", "--no-single-branch", "--branch", branch, *options, origin.folder.as_uri())
    origin("clone", *words, str(folder))
    return GitRepo(folder)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_without_a_common_commit(origin: GitRepo, depth: int) -> None:
    """The trees are compared, their differences judged, and a note says why they may exceed the changes."""
    work = clone(origin, f"--depth={depth}")
    pushed = examined(work, "origin/main")
    assert {"bad.md", "other.md"} <= set(paths(pushed))
    assert "docs/kept.md" not in paths(pushed)
    assert pushed.unexamined == []
    (note,) = pushed.notes
    assert SHALLOW in note
    assert "whoever changed them" in note
    work("fetch", "--quiet", "--unshallow")  # as it says
    whole = examined(work, "origin/main")
    assert (paths(whole), whole.notes) == (["bad.md", "other.md"], [])


def test_a_merge_of_which_one_side_is_at_the_edge(origin: GitRepo) -> None:
    """As continuous integration checks out a pull request: files that the base lacks are judged."""
    origin("switch", "--quiet", "--create", "merge", "main")
    origin("merge", "--quiet", "--no-ff", "--message", "merge", "feature")
    work = clone(origin, "--depth=2", branch="merge")
    pushed = examined(work, "HEAD^1")
    assert (paths(pushed), pushed.notes, pushed.unexamined) == (["bad.md", "other.md"], [], [])
    commits = {change.path: change.commit.oid for change in pushed.changes}
    assert origin("rev-parse", f"{commits['bad.md']}:bad.md") == origin(
        "rev-parse", "feature:bad.md"
    )


def test_a_shallow_clone_that_has_nothing_to_compare_with(origin: GitRepo) -> None:
    work = clone(origin, "--depth=1")
    work.commit("mine", mine_md=good("m"))
    pushed = pushed_to_nowhere(work)
    assert paths(pushed) == ["mine.md"]
    (omission,) = pushed.unexamined
    assert omission == {"name": "refs/heads/new", "reason": f"1 commit is {SHALLOW}"}
    work("fetch", "--quiet", "--unshallow")
    assert pushed_to_nowhere(work).unexamined == []


def test_authors_are_not_known_at_the_edge(origin: GitRepo) -> None:
    work = clone(origin, "--depth=1")
    by_agents = ChangeFilter((["*.md"], ["claude *"]))
    assert "bad.md" in paths(examined(work, "origin/main", wanted=by_agents))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_clone_without_trees(origin: GitRepo, is_there: bool) -> None:  # noqa: FBT001 - of one table
    work = clone(origin, "--filter=tree:0")
    if not is_there:
        origin.folder.rename(origin.folder.with_name("away"))
    pushed = examined(work, "origin/main")
    assert pushed.changes == []
    assert [omission["name"] for omission in pushed.unexamined] == ["HEAD"]
    assert "git fetch --refetch --no-filter" in pushed.unexamined[0]["reason"]
    if is_there:
        work("fetch", "--quiet", "--refetch", "--no-filter")
        assert paths(examined(work, "origin/main")) == ["bad.md", "other.md"]


def test_a_clone_without_blobs_tells_what_changed(origin: GitRepo) -> None:
    work = clone(origin, "--filter=blob:none", "--no-checkout")
    pushed = examined(work, "origin/main")
    assert (paths(pushed), pushed.unexamined) == (["bad.md", "other.md"], [])


def test_grafts_and_replaced_commits_hide_nothing(origin: GitRepo) -> None:
    origin("switch", "--quiet", "feature")
    tip, root = origin("rev-parse", "feature"), origin("rev-parse", "feature~2")
    origin.write(".git/info/grafts", f"{tip} {root}\n")
    assert paths(examined(origin, "main")) == ["bad.md", "other.md"]
    (origin.folder / ".git/info/grafts").unlink()
    origin("replace", "--graft", tip, root)
    assert paths(examined(origin, "main")) == ["bad.md", "other.md"]


def test_what_is_skipped_has_a_reason(tmp_path: Path) -> None:
    work = GitRepo(tmp_path / "work")
    work.commit("first", a_md=good("a"), b_md=good("b"), gone_md=good("g"), same_md=good("s"))
    work("tag", "base")
    work("mv", "a.md", "c.md")
    work("rm", "--quiet", "gone.md")
    (work.folder / "link.md").symlink_to("b.md")
    work.commit("change", code_py="x\n", same_md=good("t"), b_md=good("b"), new_md=good("n"))
    work.commit("back", same_md=good("s"))
    pushed = examined(work, "base")
    assert paths(pushed) == ["new.md"]
    groups = {group["reason"]: group["names"] for group in pushed.skipped.group_by_reason()}
    assert groups == {
        "not selected by gate.paths": ["code.py"],
        "only moved": ["c.md"],
        "deleted": ["a.md", "gone.md"] if "a.md" in groups["deleted"] else ["gone.md"],
        "a link or a submodule": ["link.md"],
        "the same as before": ["same.md"],
    }
    authored = examined(work, "base", wanted=ChangeFilter((["*.md"], ["nobody"])))
    assert {group["reason"] for group in authored.skipped.group_by_reason()} >= {
        "not selected by gate.authors"
    }


def merge(work: GitRepo, *parents: str, message: str = "merge") -> str:
    """Commit the index as a merge of some commits, whatever they hold."""
    words = [word for parent in parents for word in ("-p", parent)]
    return work("commit-tree", work("write-tree"), *words, "-m", message)


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.write("notes.txt", bad("notes"))
    work.commit("first", a_md=good("a"))
    work("tag", "base")
    return work


def test_a_merge_that_puts_another_file_where_one_was_moved(work: GitRepo) -> None:
    """In either order of time, and with a third side."""
    work("switch", "--quiet", "--create", "y", "base")
    work.commit("y adds", b_md=bad("b"))
    work("switch", "--quiet", "--create", "x", "base")
    work("mv", "a.md", "b.md")
    work.commit("x moves")
    work("switch", "--quiet", "--create", "z", "base")
    work.commit("z adds", c_md=good("c"))
    work("read-tree", "y")
    work("rm", "--quiet", "--cached", "a.md")
    for parents in (("y", "x"), ("x", "y"), ("x", "y", "z"), ("z", "x", "y")):
        pushed = examined(work, "base", merge(work, *parents))
        assert paths(pushed) == ["b.md"], parents
        (change,) = pushed.changes
        assert change.blob == work("rev-parse", "y:b.md")
        assert change.commit.oid == work("rev-parse", "y")
    work("read-tree", "x")  # the merge keeps the one that was only moved
    assert paths(examined(work, "base", merge(work, "y", "x"))) == []


def test_a_merge_that_moves_a_file_to_where_the_gate_looks(work: GitRepo) -> None:
    work("switch", "--quiet", "--create", "side", "base")
    side = work.commit("side", s_md=good("s"))
    work("mv", "notes.txt", "notes.md")
    merged = merge(work, side, "base")
    assert paths(examined(work, "base", merged)) == ["notes.md", "s.md"]


def test_a_link_that_becomes_a_file_of_the_same_bytes(work: GitRepo) -> None:
    """A link's content was never judged."""
    (work.folder / "l.md").symlink_to(bad("link").strip())
    work.commit("a link")
    work("tag", "--force", "base")
    blob = work("rev-parse", "HEAD:l.md")
    work("update-index", "--cacheinfo", f"100644,{blob},l.md")
    tree = work("write-tree")
    pushed = examined(work, "base", work("commit-tree", tree, "-p", "base", "-m", "a file"))
    assert paths(pushed) == ["l.md"]


def tree_of(work: GitRepo, *entries: tuple[str, str]) -> str:
    """Make a tree as git itself makes none: names in any order, and more than once."""
    raw = b"".join(b"100644 %s\0" % name.encode() + bytes.fromhex(blob) for name, blob in entries)
    return work("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)


def test_a_tree_with_one_name_twice_is_judged_by_all_its_entries(work: GitRepo) -> None:
    fine = work("rev-parse", "base:a.md")
    worse = work("hash-object", "-w", "--stdin", stdin=bad("a").encode())
    for entries in ((fine, worse), (worse, fine)):
        tree = tree_of(work, *(("a.md", blob) for blob in entries))
        for parents in (("base",), ("base", "base~0")):
            words = [word for parent in dict.fromkeys(parents) for word in ("-p", parent)]
            pushed = examined(work, "base", work("commit-tree", tree, *words, "-m", "twice"))
            assert worse in {change.blob for change in pushed.changes}, entries
    both = tree_of(work, ("a.md", fine), ("b.md", fine), ("b.md", worse))
    tip = work("commit-tree", both, "-p", "base", "-m", "new")
    assert {change.blob for change in examined(work, "base", tip).changes} == {fine, worse}


REFSPECS = [
    ["+refs/heads/*:refs/elsewhere/*"],
    ["refs/heads/main:refs/one/place"],
    ["+refs/heads/*:refs/elsewhere/*", "^refs/heads/wip"],
    ["+refs/heads/m*:refs/elsewhere/prefix-*"],
]


def remote_of(work: GitRepo, *refspecs: str) -> None:
    work("config", "--replace-all", "remote.origin.fetch", refspecs[0])
    for refspec in refspecs[1:]:
        work("config", "--add", "remote.origin.fetch", refspec)
    for ref in work("for-each-ref", "--format=%(refname)", "refs/remotes").splitlines():
        work("update-ref", "--no-deref", "-d", ref)
    work("fetch", "--quiet", "origin")


@pytest.mark.parametrize("refspecs", REFSPECS)
def test_refs_of_a_remote_are_where_it_was_fetched_to(world: World, refspecs: list[str]) -> None:
    known = world.work("rev-parse", "origin/main")
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/wip")
    remote_of(world.work, *refspecs)
    found = remotes.read_remotes(Repository(world.work.folder), "origin")
    assert found.find_default_tip("origin", {}) == known
    assert "refs/heads/wip" not in {ref.source for ref in found.pushed_refs} or len(refspecs) == 1
    world.work.commit("mine", b_md=bad("b"))
    world.work("update-ref", "refs/heads/other", "HEAD")
    assert remotes.list_remote_commits(Repository(world.work.folder), [], "origin") == [known]


def test_branches_and_tags_of_this_clone_are_nobodys_word_of_a_remote(world: World) -> None:
    """A mirror fetches into its own branches."""
    world.work("switch", "--quiet", "--detach")
    remote_of(world.work, "+refs/*:refs/*")
    assert remotes.read_remotes(Repository(world.work.folder), "origin").pushed_refs == []


def test_a_ref_that_two_remotes_are_fetched_into_is_no_ones(world: World) -> None:
    GitRepo(world.folder / "other.git", "--bare")
    world.work("remote", "add", "other", "../other.git")
    world.work("config", "remote.other.fetch", "+refs/heads/*:refs/remotes/origin/*")
    assert remotes.read_remotes(Repository(world.work.folder), "origin").pushed_refs == []


@pytest.mark.slow
@pytest.mark.parametrize("refspec", ["+refs/heads/*:refs/elsewhere/*", "+refs/*:refs/*", "HEAD"])
def test_a_clone_that_is_fetched_elsewhere_does_not_approve_its_own_rules(
    world: World, refspec: str
) -> None:
    if refspec == "+refs/*:refs/*":
        world.work("switch", "--quiet", "--detach")
    remote_of(world.work, refspec)
    world.work.write(".judgekit/config.yaml", "gate: {mode: advisory}\n")
    world.work.commit("laxer", b_md=bad("b"))
    world.push("origin", "HEAD:refs/heads/feature", judged={"b.md": "NO-GO"}, code=1)
    world.work("branch", "--force", "kept", "HEAD~")
    world.work("switch", "--quiet", "--orphan", "other")  # a history without the rules
    world.work.write(".judgekit/config.yaml", "gate: {mode: advisory}\n")
    world.work.commit("laxer", c_md=bad("c"))
    world.push("origin", "HEAD:refs/heads/feature", judged={"c.md": "NO-GO"}, code=1)


@pytest.mark.slow
def test_a_push_ends_with_what_was_judged_skipped_and_not_examined(world: World) -> None:
    world.work.write("x.md", b"\0")
    world.work.commit("several", a_md=good("a"), b_md=bad("b"), c_py="x\n")
    world.work("tag", "tree", "HEAD^{tree}")
    push = world.push("origin", "main", "tree", judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)
    lines = push.err.splitlines()
    (ending,) = [line for line in lines if " judged (" in line]
    assert ending.startswith(
        "judgekit: 2 judged (1 GO, 1 NO-GO); 1 skipped (not selected by gate.paths); 2 not"
    )
    assert "a binary file" in ending
    assert "points to no commit" in ending
    world.work.commit("code", b_md=good("b"), c_py="y\n")
    world.push(judged={"a.md": "GO", "b.md": "GO"})
    world.work.commit("code alone", c_py="z\n")
    push = world.push()
    assert (
        "judgekit: 0 judged; 1 skipped (not selected by gate.paths); 0 not examined\n" in push.err
    )
    world.work("push", "--quiet", "--no-verify", "origin", "main:old")
    push = world.push("origin", ":old")
    assert "judgekit: 0 judged; 1 skipped (a deleted ref); 0 not examined\n" in push.err


@pytest.mark.slow
def test_what_was_not_examined_stops_a_push_where_nothing_may_pass_unjudged(
    bare_world: World,
) -> None:
    bare_world.start("gate: {mode: blocking, undetermined: block}\n")
    bare_world.work.commit("one", a_md=good("a"))
    bare_world.work("push", "--quiet", "--no-verify", "origin", "main")
    other = GitRepo(bare_world.folder / "other.git", "--bare")
    other("config", "receive.shallowUpdate", "true")
    url = bare_world.origin.folder.as_uri()
    bare_world.work("clone", "--quiet", "--depth=1", url, "../shallow")
    shallow = GitRepo(bare_world.folder / "shallow")
    bare_world.install(shallow)
    for ref in ("refs/remotes/origin/HEAD", "refs/remotes/origin/main"):
        shallow("update-ref", "--no-deref", "-d", ref)
    push = bare_world.push(str(other.folder), "main", of=shallow, code=1)
    assert "UNDETERMINED: refs/heads/main: 1 commit is at the edge of a shallow clone" in push.err
    assert "blocked: 1 UNDETERMINED" in push.err
    assert os.fsdecode(
        bare_world.run(str(other.folder), "main", of=shallow, JUDGEKIT_SKIP="1").stderr
    )

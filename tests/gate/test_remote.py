"""Which repository an address is, and that no clone chooses who gets a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_repo import GitRepo

from judgekit.gate import github
from judgekit.git import Repository

if TYPE_CHECKING:
    from pathlib import Path


def test_addresses_on_github() -> None:
    for address in (
        "https://github.com/acme/docs",
        "https://github.com/acme/docs.git",
        "https://github.com/acme/docs/",
        "https://user:token@github.com/acme/docs.git",
        "http://www.github.com/acme/docs.git",
        "ssh://git@github.com/acme/docs.git",
        "ssh://git@ssh.github.com:443/acme/docs.git",
        "git@github.com:acme/docs.git",
        "github.com:acme/docs",
        "git@GitHub.com:/acme/docs.git",
        "git://github.com/acme/docs.git",
    ):
        assert github.of_address(address, {}) == "github.com/acme/docs", address
    for address in (
        "",
        "/srv/git/docs.git",
        "../docs",
        "file:///srv/git/docs.git",
        "https://gitlab.example/acme/docs.git",
        "https://evil.ghe.com/acme/docs",
        "https://github.com.evil.example/acme/docs",
        "https://evil.example/github.com/acme/docs",
        "https://github.com/acme",
        "https://github.com/acme/docs/issues/1",
        "https://github.com/-acme/docs",
        "https://github.com/acme/--repo",
        "https://github.com/acme/do cs",
        "ext::sh -c touch% x",
        "git@github.com:acme/docs.git\n--web",
    ):
        assert github.of_address(address, {}) is None, address


def test_a_host_counts_when_the_user_names_it() -> None:
    address = "git@git.acme.example:acme/docs.git"
    assert github.of_address(address, {"GH_HOST": "other.example"}) is None
    assert github.of_address(address, {"GH_HOST": "git.acme.example"}) == "git.acme.example/acme/docs"


def test_the_user_may_name_the_repository(project: Path) -> None:
    for named in ("acme/other", "h.example/acme/other", "--web", "a"):
        expected = named if "/" in named else None
        assert github.of_project(Repository(project), {"GH_REPO": named}) == expected


def test_origin_counts_among_several_and_the_only_one_otherwise(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "work")
    asked = Repository(repository.folder)
    assert github.of_project(asked, {}) is None
    repository("remote", "add", "odd", "https://github.com/acme/odd")
    assert github.of_project(asked, {}) == "github.com/acme/odd"
    repository("remote", "add", "upstream", "https://github.com/acme/upstream")
    assert github.of_project(asked, {}) is None
    repository("remote", "add", "origin", "https://github.com/acme/docs")
    assert github.of_project(asked, {}) == "github.com/acme/docs"


def test_the_address_that_is_pushed_to_goes_before_origin(project: Path) -> None:
    assert github.of_project(Repository(project), {}, "git@github.com:me/fork.git") == "github.com/me/fork"
    assert github.of_project(Repository(project), {}, "/srv/git/docs.git") is None


def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    assert github.of_project(Repository(tmp_path), {}) is None

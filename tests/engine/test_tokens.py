"""Tokens of the shared judge: shown once, kept as hashes, taken back at once."""

from __future__ import annotations

import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from judgekit.engine.tokens import Tokens
from judgekit.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "serve" / "tokens.json"


def test_a_token_is_known_by_its_holder(path: Path) -> None:
    tokens = Tokens(path)
    ada, bob = tokens.create("ada"), tokens.create("bob@example.org")
    assert (tokens.holder(ada), tokens.holder(bob)) == ("ada", "bob@example.org")
    assert tokens.holder(ada[:-1]) is None
    assert tokens.holder("") is None
    assert [token.name for token in tokens.all()] == ["ada", "bob@example.org"]


def test_nobody_is_known_before_there_is_a_token(path: Path) -> None:
    assert Tokens(path).holder("jk_anything") is None
    assert Tokens(path).all() == []


def test_only_a_hash_is_kept_and_only_for_its_owner(path: Path) -> None:
    token = Tokens(path).create("ada")
    assert token.removeprefix("jk_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_revoked_token_is_refused_at_once(path: Path) -> None:
    server, admin = Tokens(path), Tokens(path)
    token = admin.create("ada")
    assert server.holder(token) == "ada"
    admin.revoke("ada")
    assert server.holder(token) is None


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "../x", "-x"])
def test_a_name_is_a_word(path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="expected letters"):
        Tokens(path).create(name)


def test_one_token_a_name(path: Path) -> None:
    Tokens(path).create("ada")
    with pytest.raises(UsageError, match="revoke it first"):
        Tokens(path).create("ada")
    with pytest.raises(UsageError, match="has no token"):
        Tokens(path).revoke("bob")


def test_a_damaged_file_is_said_and_lets_nobody_in(path: Path) -> None:
    tokens = Tokens(path)
    token = tokens.create("ada")
    path.write_text("[{]")
    with pytest.raises(ConfigError, match="remove the file"):
        tokens.holder(token)


def test_of_many_changes_at_once_none_is_lost(path: Path) -> None:
    code = "import sys; from pathlib import Path; from judgekit.engine.tokens import Tokens; "
    code += "Tokens(Path(sys.argv[1])).create(sys.argv[2])"
    makers = [subprocess.Popen([sys.executable, "-c", code, str(path), f"n{n}"]) for n in range(6)]
    assert [maker.wait(60) for maker in makers] == [0] * 6
    assert sorted(token.name for token in Tokens(path).all()) == [f"n{n}" for n in range(6)]

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


def test_a_token_is_known_by_its_holder_until_it_is_revoked(path: Path) -> None:
    server, admin = Tokens(path), Tokens(path)
    assert (server.holder("jk_anything"), server.all()) == (None, [])
    ada, bob = admin.create("ada"), admin.create("bob@example.org")
    assert (server.holder(ada), server.holder(bob)) == ("ada", "bob@example.org")
    assert [server.holder(wrong) for wrong in (ada[:-1], "")] == [None, None]
    assert [token.name for token in server.all()] == ["ada", "bob@example.org"]
    assert ada.removeprefix("jk_") not in path.read_text()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    with pytest.raises(UsageError, match="revoke it first"):
        admin.create("ada")
    admin.revoke("ada")
    assert server.holder(ada) is None
    with pytest.raises(UsageError, match="has no token"):
        admin.revoke("ada")
    for name in ("", "a b", "a" * 65, "../x", "-x"):
        with pytest.raises(UsageError, match="expected letters"):
            admin.create(name)
    path.write_text("[{]")
    with pytest.raises(ConfigError, match="remove the file"):
        server.holder(bob)


def test_of_many_changes_at_once_none_is_lost(path: Path) -> None:
    code = "import sys; from pathlib import Path; from judgekit.engine.tokens import Tokens; "
    code += "Tokens(Path(sys.argv[1])).create(sys.argv[2])"
    makers = [subprocess.Popen([sys.executable, "-c", code, str(path), f"n{n}"]) for n in range(6)]
    assert [maker.wait(60) for maker in makers] == [0] * 6
    assert sorted(token.name for token in Tokens(path).all()) == [f"n{n}" for n in range(6)]

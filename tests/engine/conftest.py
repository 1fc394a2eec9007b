"""Places for engines, and a shared judge in this process, with a model that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from engine_processes import GOOD, private_folder, use
from loopback import Loopback, says
from starlette.testclient import TestClient

from judgekit.engine.admission import Tokens, open_user_tokens
from judgekit.engine.client import EngineAddress
from judgekit.engine.judges import Service
from judgekit.engine.process import Log
from judgekit.engine.team import create_team_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def place() -> Iterator[EngineAddress]:
    """Return an engine's address for one test; engines there end with it."""
    with private_folder() as path:
        yield EngineAddress(str(path), "kin", "code")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return the model that judges for this test; it accepts everything."""
    with Loopback(says(GOOD)) as server:
        use(monkeypatch, server)
        yield server


@pytest.fixture
def tokens() -> Tokens:
    return open_user_tokens()


@pytest.fixture
def token(tokens: Tokens) -> str:
    return tokens.create("ada")


@pytest.fixture
def client(tmp_path: Path, tokens: Tokens, token: str) -> Iterator[TestClient]:
    service = Service()
    service.ready.set()
    app = create_team_app(service, Log(str(tmp_path / "log")), tokens)
    with TestClient(app, raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield client
        assert client.portal is not None
        client.portal.call(service.gateway.aclose)  # its connections belong to the client's loop

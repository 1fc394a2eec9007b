"""A shared judge in this process, and a model that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from judgekit.engine.log import Log
from judgekit.engine.service import Service
from judgekit.engine.team.app import create_team_app
from judgekit.engine.team.tokens import Tokens, user_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tokens() -> Tokens:
    return user_tokens()


@pytest.fixture
def token(tokens: Tokens) -> str:
    return tokens.create("ada")


@pytest.fixture
def stranger(tmp_path: Path, tokens: Tokens) -> Iterator[TestClient]:
    """Return a client without a token."""
    service = Service(lambda _: None)
    service.ready.set()
    app = create_team_app(service, Log(str(tmp_path / "log")), tokens)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
        assert client.portal is not None
        client.portal.call(service.aclose)  # its connections belong to the client's loop, which ends now


@pytest.fixture
def client(stranger: TestClient, token: str) -> TestClient:
    """Return a client with a token."""
    stranger.headers["Authorization"] = f"Bearer {token}"
    return stranger

"""Asking a local server for its models: quick, bounded, and only here."""

from __future__ import annotations

import socket
import time

import pytest
from loopback import DRIP, RESET, SILENT, Answer, Asked, Loopback, fails, sends

from judgekit.providers import served_models


class Listing(Loopback):
    """A server that answers the question for its models with anything."""

    def __init__(self, listing: Answer) -> None:
        super().__init__()
        self._listing = listing

    def answer(self, asked: Asked) -> Answer:
        return self._listing if asked.path == "/v1/models" else fails(404)


def listing(*names: str) -> Answer:
    return sends({"object": "list", "data": [{"id": name} for name in names]})


def test_models_come_in_the_servers_order_without_those_that_cannot_chat() -> None:
    names = (
        "nomic-embed-text",
        "qwen2.5:7b",
        "bge-m3",
        "text-embedding-x",
        "whisper-1",
        "llama-3",
        "rerank-2",
    )
    with Listing(listing(*names)) as server:
        assert served_models.models(server.base) == ["qwen2.5:7b", "llama-3"]


@pytest.mark.parametrize(
    "answer",
    [
        fails(404),
        fails(500),
        RESET,
        SILENT,
        DRIP,
        sends(b"<html>"),
        sends([1]),
        sends({"models": []}),
        sends({"data": 3}),
        sends(b"\xff\xfe"),
    ],
)
def test_what_is_no_model_server_is_none_in_time(answer: Answer) -> None:
    start = time.monotonic()
    with Listing(answer) as server:
        assert served_models.models(server.base, 0.3) is None
    assert time.monotonic() - start < 3


def test_nothing_there_is_none() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert served_models.models(f"http://127.0.0.1:{port}/v1") is None


def test_an_empty_list_is_a_server_without_models() -> None:
    with Listing(listing()) as server:
        assert served_models.models(server.base) == []


@pytest.mark.parametrize(
    "base",
    ["https://127.0.0.1/v1", "http://a.example.org/v1", "http://127.0.0.1.example.org/v1", "x", ""],
)
def test_only_this_machine_is_asked(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(socket, "create_connection", forbidden)
    assert served_models.models(base) is None


def test_several_are_asked_at_once() -> None:
    with Listing(SILENT) as one, Listing(SILENT) as two, Listing(listing("a")) as three:
        start = time.monotonic()
        assert served_models.models_of_all([one.base, two.base, three.base], 0.5) == [None, None, ["a"]]
    assert time.monotonic() - start < 3
    assert served_models.models_of_all([]) == []


def test_a_flood_is_cut() -> None:
    with Listing(sends(b" " * 3_000_000)) as server:
        assert served_models.models(server.base) is None

"""The stand-in is itself tested: a fake that accepts everything would prove nothing."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from claude_standin import ToolCall

if TYPE_CHECKING:
    from claude_standin import Standin

QUESTION = {
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "the question"}]}],
}


def call(api: Standin, method: str, path: str, body: object = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=5)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_message_is_answered_whole(api: Standin) -> None:
    status, text = call(api, "POST", "/v1/messages?beta=true", QUESTION)
    reply = json.loads(text)
    assert status == 200
    assert reply["model"] == "m"
    assert reply["content"] == [{"type": "text", "text": api.reply}]


def test_a_message_is_streamed_as_events(api: Standin) -> None:
    status, text = call(api, "POST", "/v1/messages", QUESTION | {"stream": True})
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    data = [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]
    assert status == 200
    assert [each["type"] for each in data] == names
    assert (names[0], names[-1]) == ("message_start", "message_stop")
    assert [each["delta"]["text"] for each in data if each["type"] == "content_block_delta"] == [api.reply]


def test_tools_of_the_script_are_asked_for_once_and_in_order(api: Standin) -> None:
    calls = [ToolCall("Read", {"file_path": "a"}), ToolCall("Bash", {"command": "ls"})]
    api.script += calls
    offered = QUESTION | {"tools": [{"name": "Read"}]}
    assert json.loads(call(api, "POST", "/v1/messages", QUESTION)[1])["stop_reason"] == "end_turn"
    first = json.loads(call(api, "POST", "/v1/messages", offered)[1])
    assert first["stop_reason"] == "tool_use"
    assert {"name": "Read", "input": {"file_path": "a"}}.items() <= first["content"][0].items()
    _, streamed = call(api, "POST", "/v1/messages", offered | {"stream": True})
    data = [
        json.loads(line.removeprefix("data: ")) for line in streamed.splitlines() if line.startswith("data: ")
    ]
    (delta,) = [each["delta"] for each in data if each["type"] == "content_block_delta"]
    assert json.loads(delta["partial_json"]) == {"command": "ls"}
    assert json.loads(call(api, "POST", "/v1/messages", offered)[1])["stop_reason"] == "end_turn"


def test_tokens_are_counted(api: Standin) -> None:
    status, text = call(api, "POST", "/v1/messages/count_tokens", QUESTION)
    assert (status, json.loads(text)) == (200, {"input_tokens": 10})
    assert api.messages() == []


def test_other_addresses_are_not_there(api: Standin) -> None:
    assert call(api, "GET", "/v1/models")[0] == 404
    assert call(api, "POST", "/v1/complete", QUESTION)[0] == 404
    assert [request.path for request in api.requests] == ["/v1/models", "/v1/complete"]


def test_connections_elsewhere_are_refused_and_recorded(api: Standin) -> None:
    assert call(api, "CONNECT", "example.invalid:443")[0] == 403
    assert api.strays == ["example.invalid:443"]

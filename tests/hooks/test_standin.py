"""The stand-in is itself tested: a fake that accepts everything would prove nothing."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
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


def test_a_message_is_answered_whole_or_as_events(api: Standin) -> None:
    status, text = call(api, "POST", "/v1/messages?beta=true", QUESTION)
    reply = json.loads(text)
    assert (status, reply["model"]) == (200, "m")
    assert reply["content"] == [{"type": "text", "text": api.reply}]
    status, text = call(api, "POST", "/v1/messages", QUESTION | {"stream": True})
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    data = streamed(text)
    assert status == 200
    assert [each["type"] for each in data] == names
    assert (names[0], names[-1]) == ("message_start", "message_stop")
    assert [each["delta"]["text"] for each in data if each["type"] == "content_block_delta"] == [api.reply]


def streamed(text: str) -> list[Any]:
    return [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]


def test_tools_of_the_script_are_asked_for_once_and_in_order(api: Standin) -> None:
    calls = [ToolCall("Read", {"file_path": "a"}), ToolCall("Bash", {"command": "ls"})]
    api.script += calls
    offered = QUESTION | {"tools": [{"name": "Read"}]}
    assert json.loads(call(api, "POST", "/v1/messages", QUESTION)[1])["stop_reason"] == "end_turn"
    first = json.loads(call(api, "POST", "/v1/messages", offered)[1])
    assert first["stop_reason"] == "tool_use"
    assert {"name": "Read", "input": {"file_path": "a"}}.items() <= first["content"][0].items()
    _, text = call(api, "POST", "/v1/messages", offered | {"stream": True})
    (delta,) = [each["delta"] for each in streamed(text) if each["type"] == "content_block_delta"]
    assert json.loads(delta["partial_json"]) == {"command": "ls"}
    assert json.loads(call(api, "POST", "/v1/messages", offered)[1])["stop_reason"] == "end_turn"


def test_tokens_are_counted_and_other_addresses_refused(api: Standin) -> None:
    status, text = call(api, "POST", "/v1/messages/count_tokens", QUESTION)
    assert (status, json.loads(text)) == (200, {"input_tokens": 10})
    assert api.messages() == []
    assert call(api, "GET", "/v1/models")[0] == 404
    assert call(api, "POST", "/v1/complete", QUESTION)[0] == 404
    assert call(api, "CONNECT", "example.invalid:443")[0] == 403
    paths = ["/v1/messages/count_tokens", "/v1/models", "/v1/complete"]
    assert [request.path for request in api.requests][:3] == paths
    assert api.strays == ["example.invalid:443"]

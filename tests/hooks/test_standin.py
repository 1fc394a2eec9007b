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


def test_tools_of_the_script_are_asked_for_once_and_in_order(api: Standin) -> None:
    calls = [ToolCall("Read", {"file_path": "a"}), ToolCall("Bash", {"command": "ls"})]
    api.script += calls
    offered = QUESTION | {"tools": [{"name": "Read"}]}
    reasons = [
        json.loads(call(api, "POST", "/v1/messages", body)[1])["stop_reason"]
        for body in (QUESTION, offered, offered, offered)
    ]
    assert reasons == ["end_turn", "tool_use", "tool_use", "end_turn"]


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

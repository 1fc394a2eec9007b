"""A server of decision models on this machine: OpenAI's wire and System One's, whichever is asked."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from loopback import says

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = tuple[int, bytes, Mapping[str, str]]


class Asked(NamedTuple):
    """One request; `at` is monotonic."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    at: float


class DecisionServer:
    """Says yes with `yes`, finds both of a pair as good, and level 4 of 5 the likeliest.

    `probability` says otherwise by the text of a question, and `better` is a part of the text of a pair that
    it prefers; `level_of` finds the likeliest level by the text that is judged. `written` finds
    the reply to a text where a chat model is asked. `change` may spoil a body; `answer` stands in the
    place of every answer, `answers` in that of the next ones.
    """

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.yes = 0.8
        self.probability: Callable[[str, str], float] | None = None
        self.better = ""
        self.level = 3
        self.level_of: Callable[[str], int] | None = None
        self.written: Callable[[str], str] = lambda text: text
        self.change: Callable[[dict[str, Any]], object] = lambda body: body
        self.answer: Answer | None = None
        self.answers: list[Answer] = []
        self.delay = 0.0
        handler = type("Handler", (_Handler,), {"decides": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        questions = body["questions"]
        model = body.get("model") or "named"
        state = str(body.get("input", body.get("state", "")))
        if isinstance(questions, list):
            answers: Any = [self._listed(question, state) for question in questions]
        else:
            answers = {name: self._mapped(question, state) for name, question in questions.items()}
        details = {"cached_tokens": 0, "cache_write_tokens": 0}
        tokens = max(1000, len(state) // 4)
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": details,
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens,
        }
        reply = {"model": model, "answers": answers, "usage": usage}
        self.change(reply)
        return reply

    def _yes(self, instruction: str, state: str) -> float:
        return self.yes if self.probability is None else self.probability(instruction, state)

    def _choices(self, values: list[str], state: str) -> list[float]:
        """Return the probability of each text of a pair, in the order shown."""
        if not self.better:
            return [1 / len(values)] * len(values)
        is_first = state.index(self.better) < state.rindex(" path=")
        return [0.9, 0.1] if is_first else [0.1, 0.9]

    def _shares(self, levels: int, state: str) -> list[float]:
        level = self.level if self.level_of is None else self.level_of(state)
        level = min(level, levels - 1)
        rest = 0.25 / (levels - 1)
        return [0.75 if place == level else rest for place in range(levels)]

    def _listed(self, question: dict[str, Any], state: str) -> dict[str, Any]:
        named = {"type": question["type"], "name": question["name"]}
        if question["type"] == "predicate":
            return {**named, "probability": self._yes(question["instructions"], state)}
        if question["type"] == "choice":
            values = [choice["value"] for choice in question["choices"]]
            likely = self._choices(values, state)
            shares = []
            for value, share in zip(values, likely, strict=True):
                shares.append({"value": value, "probability": share})
            return {**named, "choice": values[0], "confidence": 0.5, "probabilities": shares}
        shares = []
        for place, share in enumerate(self._shares(len(question["levels"]), state)):
            label = question["levels"][place]["label"]
            shares.append({"value": place, "label": label, "probability": share})
        score = sum(share["value"] * share["probability"] for share in shares)
        return {**named, "score": score, "confidence": 0.75, "probabilities": shares}

    def _mapped(self, question: dict[str, Any], state: str) -> dict[str, Any]:
        if question["type"] == "noul":
            return {"type": "noul", "noul": self._yes(question["instructions"], state)}
        criteria = question["criteria"]
        if question["type"] == "choice":
            shares = dict(zip(criteria, self._choices(list(criteria), state), strict=True))
            first = next(iter(criteria))
            return {"type": "choice", "choice": first, "confidence": 0.5, "probabilities": shares}
        shares = {
            str(place): share for place, share in enumerate(self._shares(len(criteria), state))
        }
        score = sum(int(place) * share for place, share in shares.items())
        legend = {str(place): label for place, label in enumerate(criteria)}
        return {
            "type": "score",
            "score": score,
            "confidence": 0.75,
            "legend": legend,
            "probabilities": shares,
        }


class _Handler(BaseHTTPRequestHandler):
    decides: DecisionServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(200, b'{"data": []}', {})

    def do_POST(self) -> None:
        server = self.decides
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.requests.append(Asked(self.path, body, headers, time.monotonic()))
        time.sleep(server.delay)
        if server.answers:
            self._send(*server.answers.pop(0))
        elif server.answer is not None:
            self._send(*server.answer)
        elif self.path.endswith("/chat/completions"):
            text = server.written(str(body["messages"][-1]["content"]))
            self._send(200, says(text, model=body["model"], usage=(1000, 100)).body, {})
        else:
            self._send(200, json.dumps(server.reply(body)).encode(), {})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content)
        except OSError:
            return  # whoever asked went away

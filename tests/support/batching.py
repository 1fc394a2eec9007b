"""A server on this machine that speaks the files and batches API, and fails on demand.

A batch is over at the first look at it; `script` answers its lines as `Loopback`'s answers calls. A function
in `faults` sees each request about files and batches first, such as "create files", and may answer it.
"""

from __future__ import annotations

import email
import email.policy
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from loopback import Answer, Asked, Loopback, fails, sends

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Script

    Fault: TypeAlias = Callable[[str, Asked], Answer | None]


@dataclass
class OneBatch:
    id: str
    file: str
    metadata: dict[str, str]
    status: str = "validating"
    output: str | None = None
    error: str | None = None
    problem: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    def answer(self) -> Answer:
        return sends(self.shown())

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "created_at": 1,
            "status": self.status,
            "input_file_id": self.file,
            "output_file_id": self.output,
            "error_file_id": self.error,
            "metadata": self.metadata,
            "request_counts": {"total": len(self.lines), "completed": 0, "failed": 0},
            "errors": {"object": "list", "data": [self.problem]} if self.problem else None,
        }


class BatchServer(Loopback):
    """The server. `ends` maps the number of a batch to its last status and its number of lines.

    A batch that is `held` is not over; `change` changes the lines of an output.
    """

    def __init__(self, *script: Script, faults: tuple[Fault, ...] = (), pages: int = 100) -> None:
        super().__init__(*script)
        self.files: dict[str, bytes] = {}
        self.file_names: dict[str, str] = {}
        self.batches: dict[str, OneBatch] = {}
        self.events: list[str] = []
        self.ends: dict[int, tuple[str, int]] = {}
        self.change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda lines: lines
        self.held: set[str] = set()
        self.faults, self._pages, self._turn = [*faults], pages, threading.RLock()

    def answer(self, asked: Asked) -> Answer:
        path = urlsplit(asked.path).path.removeprefix("/v1/")
        kind, _, rest = path.partition("/")
        if kind not in ("files", "batches"):
            return super().answer(asked)
        name, _, part = rest.partition("/")
        what = {"GET": "look" if name else "list", "POST": "create", "DELETE": "delete"}[
            asked.method
        ]
        event = f"{part or what} {kind}"
        with self._turn:
            self.events.append(event)
            given = (fault(event, asked) for fault in self.faults)
            return next((answer for answer in given if answer is not None), None) or self.respond(
                event, asked
            )

    def respond(self, event: str, asked: Asked) -> Answer:
        """Answer a request, without faults."""
        what, _, kind = event.partition(" ")
        name = (*urlsplit(asked.path).path.removeprefix(f"/v1/{kind}").split("/"), "")[1]
        given = getattr(self, f"_{kind}_{what}")(name, asked)
        assert isinstance(given, Answer)
        return given

    def _files_create(self, _: str, asked: Asked) -> Answer:
        head = f"Content-Type: {asked.headers['content-type']}\r\n\r\n".encode()
        parts = email.message_from_bytes(head + asked.raw, policy=email.policy.HTTP).iter_parts()
        part = next(part for part in parts if part.get_filename())
        name = f"file-{len(self.files) + 1}"
        self.files[name] = bytes(part.get_payload(decode=True))
        self.file_names[name] = str(part.get_filename())
        return sends(self._file(name))

    def _file(self, name: str) -> dict[str, Any]:
        shown = {"id": name, "object": "file", "bytes": len(self.files[name]), "created_at": 1}
        filename = self.file_names.get(name, "f.jsonl")
        return {**shown, "filename": filename, "purpose": "batch", "status": "processed"}

    def _files_list(self, _: str, __: Asked) -> Answer:
        data = [self._file(name) for name in self.kept]
        return sends({"object": "list", "data": data, "has_more": False})

    def _files_content(self, name: str, _: Asked) -> Answer:
        return Answer(self.files[name], headers={"Content-Type": "application/octet-stream"})

    def _files_delete(self, name: str, _: Asked) -> Answer:
        self.files[name] = b""
        return sends({"id": name, "object": "file", "deleted": True})

    @property
    def kept(self) -> list[str]:
        """The files that nobody deleted."""
        return [name for name, content in self.files.items() if content]

    def _batches_create(self, _: str, asked: Asked) -> Answer:
        body, number = asked.body, len(self.batches) + 1
        batch = OneBatch(f"batch_{number}", body["input_file_id"], body.get("metadata") or {})
        batch.lines = [json.loads(line) for line in self.files[batch.file].splitlines()]
        self.batches[batch.id] = batch
        return sends(batch.shown())

    def _batches_list(self, _: str, asked: Asked) -> Answer:
        newest = list(reversed(self.batches.values()))
        after = parse_qs(urlsplit(asked.path).query).get("after", [""])[0]
        start = next((at for at, each in enumerate(newest, 1) if each.id == after), 0)
        page = [each.shown() for each in newest[start : start + self._pages]]
        more = len(newest) > start + self._pages
        return sends({"object": "list", "data": page, "has_more": more})

    def _batches_look(self, name: str, _: Asked) -> Answer:
        batch = self.batches.get(name)
        if batch is None:
            return fails(404, "no such batch")
        if batch.status == "validating" and name not in self.held:
            self._end(batch)
        return sends(batch.shown())

    def _end(self, batch: OneBatch) -> None:
        number = int(batch.id.partition("_")[2])
        status, count = self.ends.get(number, ("completed", len(batch.lines)))
        batch.status = status
        if status == "failed":
            batch.problem = {"code": "invalid_json_line", "message": "line 1 is no JSON", "line": 1}
            return
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        for line in batch.lines[:count]:
            answer = super().answer(Asked("POST", line["url"], {}, line["body"]))
            body = json.loads(answer.body)
            response = {"status_code": answer.status, "request_id": "r", "body": body}
            found = {"id": "x", "custom_id": line["custom_id"], "response": response, "error": None}
            (good if answer.status == 200 else bad).append(found)
        for line in batch.lines[count:]:
            error = {"code": "batch_expired", "message": "not executed in time"}
            bad.append(
                {"id": "x", "custom_id": line["custom_id"], "response": None, "error": error}
            )
        for kind, lines in (("output", self.change(good)), ("error", bad)):
            if lines:
                name = f"file-{len(self.files) + 1}"
                self.files[name] = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
                setattr(batch, kind, name)

"""Admission: checks tokens and limits concurrency, before a byte of a request's body is read."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, StringConstraints, TypeAdapter, ValidationError
from starlette.responses import Response

from judgekit import environment, outputs
from judgekit.config import locks
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, JudgekitError, StoreError, UsageError
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from judgekit.engine.process import Log

MOST_REQUESTS = 512  # at work or waiting
MOST_BYTES = 64_000_000  # of all bodies at once
MOST_BODY = 16_000_000
HOLDER = "judgekit.holder"  # in a request's scope: the name of the token's holder
ALWAYS = ("/v1/health", "/v1/stop")  # answered no matter how many requests wait
_DAMAGED_SECONDS = 30  # until the file of tokens may have been repaired
_BYTES = 32  # of randomness in a token: with that many, a plain hash is as good as a slow one
_PREFIX = "jk_"
_LOCK_SECONDS = 10.0
_MOST_NAME = 64
_NAME = r"^[A-Za-z0-9][\w.@-]{0,63}$"


class AdmissionMiddleware:
    """ASGI middleware that refuses requests: 401 unknown token, 411 and 413 body size, 503 full.

    A named holder gets at most as many requests and bytes as are left for the others.
    """

    def __init__(
        self,
        app: ASGIApp,
        log: Log,
        holder_of: Callable[[str], str | Awaitable[str | None] | None] = lambda _: "",
        *,
        most: int = MOST_REQUESTS,
        always: Collection[str] = ALWAYS,
        free: Collection[str] = (),
        hint: str = "this engine requires its token",
    ) -> None:
        self._app = app
        self._log = log
        self._holder_of = holder_of
        self._hint = hint
        self._most = most
        self._always = always
        self._free = free
        self.requests = 0  # received in total
        self.inside: Counter[str] = Counter()  # requests of each holder
        self._bytes: Counter[str] = Counter()  # of their bodies
        self.leaving = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        size = _read_body_size(headers)
        is_counted = scope["path"] not in self._always
        try:
            holder = ""
            if scope["path"] not in self._free:
                holder = await self._authenticate(headers)
                scope[HOLDER] = holder
            self._check_room(size, holder, is_counted=is_counted)
        except _RefusedError as refusal:
            await refusal.response()(scope, receive, send)
            return
        requests = 1 if is_counted else 0
        self.requests += requests
        self.inside[holder] += requests
        self._bytes[holder] += size
        try:
            await self._app(scope, receive, send)
        finally:
            self.inside[holder] -= requests
            self._bytes[holder] -= size

    async def _authenticate(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the name of the token's holder; raises `_RefusedError`."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        bearer = ""
        if scheme.lower() == b"bearer":
            bearer = token.decode("latin-1").strip()
        try:
            answer = self._holder_of(bearer)
            holder = await answer if isawaitable(answer) else answer
        except StoreError as error:
            raise _RefusedError(
                error.status, error.wire_name, str(error), error.retry_after
            ) from None
        except JudgekitError as error:
            self._log.fault(error)
            problem = "the server cannot read its token file"
            raise _RefusedError(503, "config", problem, _DAMAGED_SECONDS) from None
        if holder is None:
            raise _RefusedError(401, "token", self._hint)
        return holder

    def _check_room(self, size: int, holder: str, *, is_counted: bool) -> None:
        """Raise `_RefusedError` if a body is too large or of unknown length, or too many requests wait."""
        if size < 0:
            raise _RefusedError(411, "input", "send the Content-Length of the body")
        if size > MOST_BODY:
            most = f"{MOST_BODY // 1_000_000} MB"
            raise _RefusedError(413, "size", f"larger than {most}; judge a part of it")
        if not is_counted:
            return
        if self.leaving:
            raise _RefusedError(503, "leaving", "the engine is stopping")
        waiting = self._describe_load(size, holder)
        if waiting is not None:
            raise _RefusedError(503, "busy", f"{waiting} are already waiting", 1)

    def _describe_load(self, size: int, holder: str) -> str | None:
        """Describe what fills the engine, if a body of this size has no room; None if it has."""
        inside = self.inside.total()
        total = self._bytes.total()
        requests = self.inside[holder] if holder else 0
        bytes_of_holder = self._bytes[holder] if holder else 0
        if inside >= self._most:
            return f"{inside} requests"
        if total + size > MOST_BYTES:
            return f"{total // 1_000_000} MB of requests"
        if requests and requests + 1 > self._most - inside - 1:
            return f"{requests} of your requests"
        if bytes_of_holder and bytes_of_holder + size > MOST_BYTES - total - size:
            return f"{bytes_of_holder // 1_000_000} MB of your requests"
        return None


class _RefusedError(Exception):
    """A request is not let in: the answer's status, name and message, and seconds until it may be."""

    def __init__(self, status: int, wire_name: str, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self._status = status
        self._wire_name = wire_name
        self._retry_after = retry_after

    def response(self) -> Response:
        # The connection is closed, since the rest of the request is never read.
        headers = {"content-type": "application/json", "connection": "close"}
        if self._status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["retry-after"] = f"{self._retry_after:g}"
        return Response(error_body(self._wire_name, str(self)), self._status, headers)


def _read_body_size(headers: Mapping[bytes, bytes]) -> int:
    """Return the body's length that a request declares, in bytes; -1 if it declares none."""
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and b"transfer-encoding" not in headers:
        return int(length)
    return -1


def error_body(wire_name: str, message: str, exit_code: int = 70) -> bytes:
    return json.dumps(
        {"error": {"kind": wire_name, "message": message, "exit_code": exit_code}}
    ).encode()


class Token(Strict):
    name: Annotated[str, StringConstraints(pattern=_NAME)]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    created: AwareDatetime


_ROWS = TypeAdapter(list[Any])


def read_tokens(rows: Iterable[object]) -> tuple[list[Token], list[str]]:
    """Read rows one by one: the tokens, and the names by which `revoke` removes damaged rows."""
    tokens: list[Token] = []
    damaged: list[str] = []
    for row in rows:
        try:
            tokens.append(Token.model_validate(row))
        except ValidationError:
            damaged.append(_name_row(row))
    return tokens, damaged


def _name_row(row: object) -> str:
    """Name a row for a person, damaged or not."""
    name = row.get("name", "") if isinstance(row, dict) else ""
    return short_line(str(name), _MOST_NAME) or "a row without a name"


class Tokens:
    """The tokens of a shared judge, in the file at `path`; a change is seen at the next request."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Token]:
        """Return the tokens. A damaged row lets nobody in, but doesn't lock anybody else out."""
        return read_tokens(self.rows())[0]

    def damaged(self) -> list[str]:
        """Return the names of damaged rows."""
        return read_tokens(self.rows())[1]

    def rows(self) -> list[Any]:
        """Read the stored rows, including damaged ones; raises `ConfigError`."""
        try:
            return _ROWS.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (ValidationError, OSError) as error:
            problem = f"the tokens cannot be read ({type(error).__name__})"
            raise ConfigError(
                f"{problem}; remove the file and create new tokens", path=self.path
            ) from None

    def create(self, name: str) -> str:
        """Create a token for `name`; it's shown only once. Raises `UsageError` if `name` has one already."""
        token = _PREFIX + secrets.token_urlsafe(_BYTES)
        try:
            made = Token(name=name, sha256=sha256_of(token), created=datetime.now(UTC))
        except ValidationError:
            raise UsageError(f"{name!r}: expected letters, digits, and . _ @ - in a name") from None
        with self._change_rows() as rows:
            if name in map(_name_row, rows):
                raise UsageError(f"{name} has a token; revoke it first")
            rows.append(made.model_dump(mode="json"))
        return token

    def revoke(self, name: str) -> None:
        with self._change_rows() as rows:
            left = [row for row in rows if _name_row(row) != name]
            if len(left) == len(rows):
                raise UsageError(f"{name} has no token; see judgekit serve token list")
            rows[:] = left

    def holder(self, token: str) -> str | None:
        # Comparing hashes takes time that depends on them, but an attacker can't make use of it.
        sha256 = sha256_of(token)
        for known in self.all():
            if known.sha256 == sha256:
                return known.name
        return None

    @contextmanager
    def _change_rows(self) -> Iterator[list[Any]]:
        """Hold the rows of tokens while they change, so no concurrent change is lost; then write them."""
        environment.private_folder(str(self.path.parent))
        with locks.file_lock(self.path.with_suffix(".lock"), timeout=_LOCK_SECONDS):
            rows = self.rows()
            yield rows
            outputs.write_atomically(str(self.path), _ROWS.dump_json(rows, indent=2), private=True)


def user_tokens() -> Tokens:
    return Tokens(Path(environment.SERVER.path("tokens.json")))


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

"""Who is let in, by which token, and how many at once: all before a byte of a request's body is read."""

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
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AwareDatetime, StringConstraints, TypeAdapter, ValidationError
from starlette.responses import Response

from judgekit import environment, outputs
from judgekit.config import locks
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, JudgekitError, StoreError, UsageError
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from judgekit.engine.process import Log

MOST_REQUESTS = 512  # at work or waiting
MOST_BYTES = 64_000_000  # of all bodies at once
MOST_BODY = 16_000_000
HOLDER = "judgekit.holder"  # in a request's scope: the name of the token's holder
ALWAYS = ("/v1/health", "/v1/stop")  # answered however many requests wait
_DAMAGED_SECONDS = 30  # until the file of tokens may have been repaired
_BYTES = 32  # of a token's randomness: with as much, a plain hash is as good as a slow one
_PREFIX = "jk_"
_LOCK_SECONDS = 10.0
_MOST_NAME = 64
_NAME = r"^[A-Za-z0-9][\w.@-]{0,63}$"
# Status, kind, message, seconds until it may be otherwise.
Refusal: TypeAlias = tuple[int, str, str, float]


class AdmissionMiddleware:
    """An ASGI application before another one: 401 unknown token, 411 and 413 size of a body, 503 full.

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
        self.requests = 0  # that came in, ever
        self.inside: Counter[str] = Counter()  # requests of each holder
        self._bytes: Counter[str] = Counter()  # of their bodies
        self.leaving = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        always = scope["path"] in self._always
        length = headers.get(b"content-length", b"0")
        size = -1
        if length.isdigit() and b"transfer-encoding" not in headers:
            size = int(length)
        holder: str | None = ""
        refused: Refusal | None = None
        if scope["path"] not in self._free:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            bearer = ""
            if scheme.lower() == b"bearer":
                bearer = token.decode("latin-1").strip()
            try:
                answer = self._holder_of(bearer)
                holder = await answer if isawaitable(answer) else answer
                scope[HOLDER] = holder
            except StoreError as error:
                refused = error.status, error.kind, str(error), error.retry_after
            except JudgekitError as error:
                self._log.fault(error)
                refused = 503, "config", "the server cannot read its token file", _DAMAGED_SECONDS
        if holder is None:
            refused = 401, "token", self._hint, 0
        elif refused is None and size < 0:
            refused = 411, "input", "send the Content-Length of the body", 0
        elif refused is None and size > MOST_BODY:
            refused = 413, "size", f"larger than {MOST_BODY // 1_000_000} MB; judge a part of it", 0
        elif refused is None and not always:
            refused = self._full(size, holder)
        if refused is not None:
            status, kind, message, retry_after = refused
            # The connection is closed: what is left of the request is not read.
            headers = {"content-type": "application/json", "connection": "close"}
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                headers["retry-after"] = f"{retry_after:g}"
            await Response(error_body(kind, message), status, headers)(scope, receive, send)
            return
        assert holder is not None  # noqa: S101 - refused above
        counts = 0 if always else 1
        self.requests += counts
        self.inside[holder] += counts
        self._bytes[holder] += size
        try:
            await self._app(scope, receive, send)
        finally:
            self.inside[holder] -= counts
            self._bytes[holder] -= size

    def _full(self, size: int, holder: str) -> Refusal | None:
        if self.leaving:
            return 503, "leaving", "the engine is stopping", 0
        inside = self.inside.total()
        total = self._bytes.total()
        requests = self.inside[holder] if holder else 0
        bytes_of_holder = self._bytes[holder] if holder else 0
        if inside >= self._most:
            waiting = f"{inside} requests"
        elif total + size > MOST_BYTES:
            waiting = f"{total // 1_000_000} MB of requests"
        elif requests and requests + 1 > self._most - inside - 1:
            waiting = f"{requests} of your requests"
        elif bytes_of_holder and bytes_of_holder + size > MOST_BYTES - total - size:
            waiting = f"{bytes_of_holder // 1_000_000} MB of your requests"
        else:
            return None
        return 503, "busy", f"{waiting} are already waiting", 1


def error_body(kind: str, message: str, exit_code: int = 70) -> bytes:
    return json.dumps(
        {"error": {"kind": kind, "message": message, "exit_code": exit_code}}
    ).encode()


class Token(Strict):
    name: Annotated[str, StringConstraints(pattern=_NAME)]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    created: AwareDatetime


_ROWS = TypeAdapter(list[dict[str, Any]])


def read_tokens(rows: Iterable[dict[str, Any]]) -> tuple[list[Token], list[str]]:
    """Return the tokens in rows, and the names of the rows that are none."""
    tokens: list[Token] = []
    damaged: list[str] = []
    for row in rows:
        try:
            tokens.append(Token.model_validate(row))
        except ValidationError:
            damaged.append(
                short_line(str(row.get("name", "")), _MOST_NAME) or "a row without a name"
            )
    return tokens, damaged


class Tokens:
    """The tokens of a shared judge, in the file at `path`; a change is seen at the next request."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Token]:
        """Return the tokens; a row that is none lets nobody in, and nobody else out."""
        return read_tokens(self.rows())[0]

    def damaged(self) -> list[str]:
        """Return the names of rows that are no tokens."""
        return read_tokens(self.rows())[1]

    def rows(self) -> list[dict[str, Any]]:
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
        """Return a new token for `name`, to be shown once. Raises `UsageError` when there is one."""
        token = _PREFIX + secrets.token_urlsafe(_BYTES)
        try:
            made = Token(name=name, sha256=sha256_of(token), created=datetime.now(UTC))
        except ValidationError:
            raise UsageError(f"{name!r}: expected letters, digits, and . _ @ - in a name") from None
        with self._changing() as rows:
            if any(row.get("name") == name for row in rows):
                raise UsageError(f"{name} has a token; revoke it first")
            rows.append(made.model_dump(mode="json"))
        return token

    def revoke(self, name: str) -> None:
        with self._changing() as rows:
            left = [row for row in rows if row.get("name") != name]
            if len(left) == len(rows):
                raise UsageError(f"{name} has no token; see judgekit serve token list")
            rows[:] = left

    def holder(self, token: str) -> str | None:
        # What can be learned from the time of comparing hashes is of no use.
        sha256 = sha256_of(token)
        for known in self.all():
            if known.sha256 == sha256:
                return known.name
        return None

    @contextmanager
    def _changing(self) -> Iterator[list[dict[str, Any]]]:
        """Hold the rows of tokens for a change, so that of two changes none is lost, and write them."""
        environment.private_folder(str(self.path.parent))
        with locks.file_lock(self.path.with_suffix(".lock"), timeout=_LOCK_SECONDS):
            rows = self.rows()
            yield rows
            outputs.write_atomically(str(self.path), _ROWS.dump_json(rows, indent=2), private=True)


def user_tokens() -> Tokens:
    return Tokens(Path(environment.SERVER.path("tokens.json")))


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

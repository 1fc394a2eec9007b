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
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AwareDatetime, StringConstraints, TypeAdapter, ValidationError
from starlette.responses import Response

from judgekit import environment, outputs
from judgekit.config import locks
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, JudgekitError, StoreError, UsageError
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from judgekit.engine.process import Log

MAX_REQUESTS = 512  # at work or waiting
MAX_TOTAL_BODY_BYTES = 64_000_000  # of all bodies at once
MAX_BODY_BYTES = 16_000_000
HOLDER_KEY = "judgekit.holder"  # in a request's scope: the name of the token's holder
UNCOUNTED_PATHS = ("/v1/health", "/v1/stop")  # answered no matter how many requests wait
_DAMAGED_RETRY_AFTER_S = 30  # by then the token file may have been repaired
_RANDOM_BYTES = 32  # in a token; with that many, a plain hash is as safe as a slow one
_TOKEN_PREFIX = "jk_"  # noqa: S105 - not a token itself
_LOCK_SECONDS = 10.0
_MAX_NAME_LENGTH = 64
_HOLDER_NAME_PATTERN = r"^[A-Za-z0-9][\w.@-]{0,63}$"

if TYPE_CHECKING:
    # Finds the name of a token's holder, or None if the token is unknown.
    FindHolder: TypeAlias = Callable[[str], str | Awaitable[str | None] | None]


def _admit_anybody(_token: str) -> str:
    return ""  # the holder's name


class AdmissionMiddleware:
    """ASGI middleware that refuses requests: 401 unknown token, 411 and 413 body size, 503 full server.

    A token's holder can use at most half of the capacity: as much as remains free for others.
    """

    def __init__(
        self,
        app: ASGIApp,
        log: Log,
        find_holder: FindHolder = _admit_anybody,
        *,
        max_requests: int = MAX_REQUESTS,
        uncounted_paths: Collection[str] = UNCOUNTED_PATHS,
        open_paths: Collection[str] = (),
        hint: str = "this engine requires its token",
    ) -> None:
        """Admit at most `max_requests` requests to `app` at once, not counting those to `uncounted_paths`.

        Requests to `open_paths` need no token. The `hint` is sent to clients whose token is missing or
        unknown.
        """
        self._app = app
        self._log = log
        self._find_holder = find_holder
        self._hint = hint
        self._max_requests = max_requests
        self._uncounted_paths = uncounted_paths
        self._open_paths = open_paths
        # All requests since the start. This count never decreases.
        self.request_count = 0
        self.active_requests: Counter[str] = Counter()  # by token holder
        # Total size of the active requests' bodies, by token holder.
        self._bytes: Counter[str] = Counter()
        self.is_shutting_down = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it if its token is unknown or the server is full.

        Stores the token holder's name in `scope`, and counts the request while it's running.
        """
        if scope["type"] != "http":  # for example, an event at the server's start
            await self._app(scope, receive, send)
            return

        headers = dict(scope["headers"])
        body_bytes = _parse_body_size(headers)
        # Some paths, such as the health check, are answered even if the server is full.
        is_counted = scope["path"] not in self._uncounted_paths
        try:
            holder = await self._find_and_store_holder(scope, headers)
            self._check_room(body_bytes, holder, is_counted=is_counted)
        except _RefusedError as refusal:
            respond = refusal.build_response()
            await respond(scope, receive, send)
            return

        with self._count_while_running(holder, body_bytes, is_counted=is_counted):
            await self._app(scope, receive, send)

    async def _find_and_store_holder(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Store the name of the token's holder in `scope`, and return it. It's "" if the path needs no token.

        Raises `_RefusedError` if the token is unknown.
        """
        if scope["path"] in self._open_paths:
            return ""
        holder = await self._authenticate(headers)
        scope[HOLDER_KEY] = holder
        return holder

    async def _authenticate(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the name of the client that holds the request's token.

        Raises `_RefusedError` if the token is missing or unknown, or if the known tokens can't be read.
        """
        token = _extract_token(headers)
        try:
            found = self._find_holder(token)
            # If servers share a store, `found` is an awaitable that first reads the tokens from there.
            holder = await found if isawaitable(found) else found
        except StoreError as error:
            message = str(error)
            raise _RefusedError(error.status, error.wire_name, message, error.retry_after) from None
        except JudgekitError as error:
            self._log.add_error(error)
            problem = "the server cannot read its token file"
            raise _RefusedError(503, "config", problem, _DAMAGED_RETRY_AFTER_S) from None

        if holder is None:
            raise _RefusedError(401, "token", self._hint)
        return holder

    def _check_room(self, size: int, holder: str, *, is_counted: bool) -> None:
        """Raise `_RefusedError` if a request is too large, or if the server has no room for it.

        There's always room for requests that aren't counted, such as health checks. `size` is the body's, in
        bytes. `holder` is the client's name. Each client can only use a part of the server.
        """
        if size < 0:  # the size is unknown
            raise _RefusedError(411, "input", "send the Content-Length of the body")
        if size > MAX_BODY_BYTES:
            size_limit = f"{MAX_BODY_BYTES // 1_000_000} MB"
            raise _RefusedError(413, "size", f"larger than {size_limit}; judge a part of it")

        if not is_counted:  # answered even if the server is full or shutting down
            return
        if self.is_shutting_down:
            raise _RefusedError(503, "leaving", "the engine is stopping")
        load = self._describe_load(size, holder)
        if load is not None:
            raise _RefusedError(503, "busy", f"{load} are already waiting", retry_after=1)

    def _describe_load(self, size: int, holder: str) -> str | None:
        """Describe the load that leaves no room for a request with a body of `size` bytes, or return None.

        For example, "512 requests" starts the message "512 requests are already waiting".
        """
        requests = self.active_requests.total()
        if requests >= self._max_requests:
            return f"{requests} requests"
        total_bytes = self._bytes.total()
        if total_bytes + size > MAX_TOTAL_BODY_BYTES:
            return f"{total_bytes // 1_000_000} MB of requests"
        if not holder:  # a local engine has a single client, which can use everything
            return None
        return self._describe_own_load(size, holder)

    def _describe_own_load(self, size: int, holder: str) -> str | None:
        """Describe why a client's share is used up, such as "20 of your requests"; None if it isn't."""
        own_requests = self.active_requests[holder]
        all_requests = self.active_requests.total()
        if _exceeds_share(own_requests, all_requests, added=1, limit=self._max_requests):
            return f"{own_requests} of your requests"

        own_bytes = self._bytes[holder]
        all_bytes = self._bytes.total()
        if _exceeds_share(own_bytes, all_bytes, added=size, limit=MAX_TOTAL_BODY_BYTES):
            return f"{own_bytes // 1_000_000} MB of your requests"
        return None

    @contextmanager
    def _count_while_running(
        self, holder: str, body_bytes: int, *, is_counted: bool
    ) -> Iterator[None]:
        """Count a request as active until the block ends. If not `is_counted`, count only its bytes."""
        increment = 1 if is_counted else 0
        self.request_count += increment  # a total, so it isn't decremented below
        self.active_requests[holder] += increment
        self._bytes[holder] += body_bytes
        try:
            yield
        finally:
            self.active_requests[holder] -= increment
            self._bytes[holder] -= body_bytes


class _RefusedError(Exception):
    """A request is not let in.

    It holds the answer's status, error name and message, and the seconds until a retry may succeed.
    """

    def __init__(self, status: int, wire_name: str, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self._status = status
        self._wire_name = wire_name
        self._retry_after = retry_after

    def build_response(self) -> Response:
        """Build the HTTP response. With status 503, it has a Retry-After header."""
        # Close the connection, because the rest of the request will never be read.
        headers = {"content-type": "application/json", "connection": "close"}
        if self._status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["retry-after"] = f"{self._retry_after:g}"
        return Response(build_error_body(self._wire_name, str(self)), self._status, headers)


def _exceeds_share(own: int, total: int, *, added: int, limit: int) -> bool:
    """Whether a client's next request would leave less free for others than the client itself would use.

    A client that uses nothing yet never exceeds its share, so its first request is always admitted.
    """
    if own == 0:
        return False
    own_afterwards = own + added
    free_afterwards = limit - (total + added)
    return own_afterwards > free_afterwards


def _parse_body_size(headers: Mapping[bytes, bytes]) -> int:
    """Return the size of a request's body in bytes, or -1 if the size is malformed or unknown."""
    comes_in_chunks = b"transfer-encoding" in headers
    if comes_in_chunks:
        return -1
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else -1


def _extract_token(headers: Mapping[bytes, bytes]) -> str:
    """Extract the token from a header such as `Authorization: Bearer TOKEN`. Returns "" if there's none."""
    authorization = headers.get(b"authorization", b"")
    scheme, _, credentials = authorization.partition(b" ")
    if scheme.lower() != b"bearer":
        return ""
    return credentials.decode("latin-1").strip()


def build_error_body(wire_name: str, message: str, exit_code: int = 70) -> bytes:
    """Build the JSON body of an error response. The client's command exits with `exit_code`."""
    error = {"kind": wire_name, "message": message, "exit_code": exit_code}
    return json.dumps({"error": error}).encode()


class Token(Strict):
    name: Annotated[str, StringConstraints(pattern=_HOLDER_NAME_PATTERN)]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    created: AwareDatetime


_TOKEN_ROWS_ADAPTER = TypeAdapter(list[Any])


def read_tokens(rows: Iterable[object]) -> tuple[list[Token], list[str]]:
    """Parse the rows. Returns valid tokens, and the names by which `revoke` can remove damaged rows."""
    tokens: list[Token] = []
    damaged_names: list[str] = []
    for row in rows:
        try:
            tokens.append(Token.model_validate(row))
        except ValidationError:
            damaged_names.append(_name_row(row))
    return tokens, damaged_names


def _name_row(row: object) -> str:
    """Return a printable name for a row. Damaged rows can be any JSON value."""
    name = ""
    if isinstance(row, dict):
        name = shorten_to_line(str(row.get("name", "")), _MAX_NAME_LENGTH)
    return name or "a row without a name"


class Tokens:
    """The tokens of a shared judge, in the file at `path`; a change is seen at the next request."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Token]:
        """Return the valid tokens, ignoring damaged rows."""
        tokens, _ = read_tokens(self.rows())
        return tokens

    def list_damaged_names(self) -> list[str]:
        """Return the names of damaged rows."""
        _, damaged_names = read_tokens(self.rows())
        return damaged_names

    def rows(self) -> list[Any]:
        """Read the stored rows, including damaged ones. Returns an empty list if there's no file.

        Raises `ConfigError` if the file can't be read or isn't a JSON list.
        """
        try:
            return _TOKEN_ROWS_ADAPTER.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (ValidationError, OSError) as error:
            problem = f"the tokens cannot be read ({type(error).__name__})"
            raise ConfigError(
                f"{problem}; remove the file and create new tokens", path=self.path
            ) from None

    def create(self, name: str) -> str:
        """Create a token for `name`, store the token's hash, and return the token.

        Raises `UsageError` if `name` is invalid or already has a token.
        """
        token = _TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        try:
            stored_token = Token(name=name, sha256=hash_text(token), created=datetime.now(UTC))
        except ValidationError:
            raise UsageError(f"{name!r}: expected letters, digits, and . _ @ - in a name") from None
        with self._change_rows() as rows:
            if name in map(_name_row, rows):
                raise UsageError(f"{name} has a token; revoke it first")
            rows.append(stored_token.model_dump(mode="json"))
        return token

    def revoke(self, name: str) -> None:
        """Remove the token of `name`, even if its row is damaged. Raises `UsageError` if there's none."""
        with self._change_rows() as rows:
            other_rows = [row for row in rows if _name_row(row) != name]
            if len(other_rows) == len(rows):
                raise UsageError(f"{name} has no token; see judgekit serve token list")
            rows[:] = other_rows

    def find_holder(self, token: str) -> str | None:
        """Return the name of a token's holder, or None if the token is unknown."""
        # `==` takes longer if more of the hash matches. This doesn't help an attacker, because nobody can
        # compute a token from the start of its hash.
        sha256 = hash_text(token)
        for known_token in self.all():
            if known_token.sha256 == sha256:
                return known_token.name
        return None

    @contextmanager
    def _change_rows(self) -> Iterator[list[Any]]:
        """Yield the rows as a list to change in place, then write the list to the file."""
        environment.make_private_folder(str(self.path.parent))
        # Without the lock, another process's change could be lost.
        with locks.file_lock(self.path.with_suffix(".lock"), timeout=_LOCK_SECONDS):
            rows = self.rows()
            yield rows
            outputs.write_atomically(
                str(self.path), _TOKEN_ROWS_ADAPTER.dump_json(rows, indent=2), private=True
            )


def open_user_tokens() -> Tokens:
    return Tokens(Path(environment.SERVER.path("tokens.json")))


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

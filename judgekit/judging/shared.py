"""A team's shared judge, as its clients see it: documents go to it, ledger lines go both ways."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import json
import re
import ssl
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import ValidationError

from judgekit import environment
from judgekit.config.settings import Config, build_error
from judgekit.errors import ConfigError, Exit, GatewayError, JudgekitError
from judgekit.judging import independence
from judgekit.judging.reservations import Reservation, ReservationKind, add_reservation
from judgekit.judging.steps import OWN_FAMILY_ROW
from judgekit.judging.verdict import READS_ON, READS_ON_HEADER, JudgedFile, Verdict
from judgekit.providers import retrying, running, servers
from judgekit.providers.pace import parse_retry_after
from judgekit.redaction import redact
from judgekit.text import find_unstorable, format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.state import JudgingState

TOKEN_VARIABLE = "JUDGEKIT_SERVER_TOKEN"  # noqa: S105 - the name of the variable
_CONNECT_SECONDS = 5.0
_DEADLINE_SLACK_SECONDS = (
    2.0  # seconds on top of a document's deadline, which the server enforces itself
)
_LEDGER_SECONDS = 5.0
_FETCH_SECONDS = 300.0  # to fetch a team's entire ledger
_MAX_LEDGER_BYTES = 500_000_000
_ERRNO_PATTERN = re.compile(r"^\[Errno -?\d+\] ")
_TOKEN_PATTERN = re.compile(r"[!-~]+")
_QUOTED_CHARS = 300  # characters quoted of a server's message
# Seconds between tries. In total, they're longer than it takes to replace a dead server.
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
_TRIES_IF_UNREACHED = 2  # more tries if nothing listens, because there's probably no server at all
_TRANSIENT_STATUSES = {
    httpx.codes.BAD_GATEWAY,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
}
_CALL_ERRORS = (httpx.HTTPError, GatewayError, TimeoutError)
_JSON_HEADERS = {"Content-Type": "application/json"}
_WRONG_TOKEN = (
    "it does not know your token; ask its operator for one (judgekit serve token create NAME), and "
    f"put it into the file that server.token_file names, or into {TOKEN_VARIABLE}"
)
_UNREADABLE = "its response has another form; is it another version?"


class SharedError(JudgekitError):
    """The shared judge couldn't be reached, or refused. `is_temporary` if another try may succeed."""

    exit_code = Exit.BAD_CONFIG  # the user's configuration names the server

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = passing
        self.retry_after: float | None = None  # seconds, if the server asks for a pause


@dataclass(frozen=True, slots=True)
class Shared:
    """A team's shared judge, at its address."""

    url: str
    token: str = field(repr=False)

    async def judge(self, local_judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
        """Return the server's verdict, or an undetermined one with the reason."""
        answer = await self._fetch_verdict(local_judge, state)
        # Add the number of secrets removed here to that of secrets removed on the server.
        secrets = state.secret_count + answer.redacted
        verdict = answer.model_copy(update={"redacted": secrets})
        # A person's decision doesn't depend on the models, so it needs no independent ones.
        needs_no_check = verdict.independent or verdict.human_override
        if verdict.verdict != "accept" or needs_no_check:
            return verdict
        # The settings may require models independent of the author, and the server hasn't confirmed that.
        return _refuse_own_family(verdict, local_judge, state.subject)

    async def _fetch_verdict(self, judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
        """Request a verdict from the server. After a failure, return an undetermined one with the reason."""
        document = state.subject
        settings = judge.settings
        # The names of files, the task and the author can contain secrets, too.
        redact_name = redact.words if settings.redact else str
        body = {"document": document.build_body(redact_name), "wish": _build_wish(judge)}

        # The server has to meet the deadline, so wait a little longer than that.
        timeout = settings.timeout + _DEADLINE_SLACK_SECONDS
        try:
            answer = await self._ask_for_verdict(body, timeout)
            verdict = Verdict.model_validate_json(answer)
        except (*_CALL_ERRORS, SharedError, ValidationError) as error:
            reason = f"the shared judge at {self.url}: {_explain_failure(error)}"
            return judge.build_unjudged_record(state, reason)
        # The server knows only the redacted names.
        return _restore_names(verdict, document)

    async def _ask_for_verdict(self, body: Mapping[str, object], timeout: float) -> bytes:
        """Request a verdict. Retry if the server fails, for `timeout` seconds in all.

        All tries have the same idempotency key, so that the server can reuse a verdict it already has.
        """
        deadline = time.monotonic() + timeout
        headers = {
            "Idempotency-Key": uuid.uuid4().hex,
            # Without it, the server leaves out newer fields, which clients of 0.1.0 refuse.
            READS_ON_HEADER: READS_ON,
        }

        async def send_request() -> bytes:
            seconds_left = deadline - time.monotonic()
            return await self._send_request(
                "POST", "/v1/judge", seconds_left, read=seconds_left, json=body, headers=headers
            )

        max_tries = len(_PAUSES) + 1  # there's a pause between each two tries
        tries = retrying.Tries(max_tries, _PAUSES)
        return await retrying.call(send_request, tries, should_retry=_may_retry, seconds=timeout)

    def send(self, lines: Sequence[bytes]) -> str | None:
        """Send ledger lines, except those that the server can't store.

        Returns a message with the number of refused lines and the first reason, or None if all were stored.
        Raises `SharedError` if the request fails.
        """
        storable_lines: list[bytes] = []
        reasons: list[str] = []  # one for each refused line
        for line in lines:
            problem = find_unstorable(json.loads(line))
            if problem:  # with this line, the server would refuse all lines
                reasons.append(problem)
            else:
                storable_lines.append(line)
        if storable_lines:
            reasons += self._send_lines(storable_lines)

        if not reasons:
            return None
        count = format_count(len(reasons), "line", "lines")
        first_reason = shorten_to_line(reasons[0], _QUOTED_CHARS)
        return f"the shared judge at {self.url} rejected {count} ({first_reason})"

    def _send_lines(self, lines: Sequence[bytes]) -> list[str]:
        """Send ledger lines, and return the reason for each refused line; raises `SharedError`."""
        body = b'{"lines": [' + b",".join(lines) + b"]}"
        answer = self._call_server("POST", "/v1/ledger", content=body, headers=_JSON_HEADERS)
        try:
            content = json.loads(answer)
            refused = content.get("refused") or {}
            reason_by_line = dict(refused)
        except (ValueError, TypeError, AttributeError, RecursionError):  # JSON of another shape
            raise SharedError(f"the shared judge at {self.url}: {_UNREADABLE}") from None
        return [str(reason) for reason in reason_by_line.values()]

    def check(self) -> int:
        """Check that the server answers, and return its number of rubrics; raises `SharedError`."""
        answer = self._call_server("GET", "/v1/rubrics")
        try:
            rubrics = json.loads(answer)
            ids = [rubric["id"] for rubric in rubrics]
        except (ValueError, TypeError, KeyError, RecursionError):  # JSON of another shape
            raise SharedError(f"the shared judge at {self.url}: {_UNREADABLE}") from None
        return len(ids)

    def fetch(self, since: str, project: str, into: Path, kind: str = "all") -> None:
        """Write the team's ledger lines of a project and `kind` to the file `into`; raises `SharedError`.

        An older server ignores `kind` and sends all lines.
        """
        params = {"since": since, "project": project, "kind": kind}
        lines = self._call_server(
            "GET", "/v1/ledger", seconds=_FETCH_SECONDS, max_bytes=_MAX_LEDGER_BYTES, params=params
        )
        into.write_bytes(lines)

    def _call_server(
        self,
        method: str,
        path: str,
        *,
        seconds: float = _LEDGER_SECONDS,
        **sent: Any,  # noqa: ANN401 - passed on to httpx
    ) -> bytes:
        """Send a request, and return the response body within `seconds`.

        Raises `SharedError` for every failure. The message contains the server's address.
        """
        try:
            return running.run(self._send_request(method, path, seconds, **sent))
        except (*_CALL_ERRORS, SharedError) as error:
            raise SharedError(
                f"the shared judge at {self.url}: {_explain_failure(error)}"
            ) from None

    async def _send_request(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        read: float = _LEDGER_SECONDS,
        max_bytes: int = servers.MAX_REPLY_BYTES,
        **sent: Any,  # noqa: ANN401 - passed on to httpx
    ) -> bytes:
        """Send a request, and return the response body, of at most `max_bytes`.

        The request may take `seconds` in all, and the server may be silent for `read` seconds at a time.
        Raises `SharedError` if the server refuses the request, and one of `_CALL_ERRORS` if the request
        fails.
        """
        timeout = httpx.Timeout(read, connect=_CONNECT_SECONDS)
        with servers.limited_reply_size(max_bytes):
            async with (
                asyncio.timeout(seconds),
                httpx.AsyncClient(
                    base_url=self.url, timeout=timeout, verify=_load_ssl_context()
                ) as client,
            ):
                client.headers["Authorization"] = f"Bearer {self.token}"
                response = await client.request(method, path, **sent)
        if response.status_code == httpx.codes.OK:
            return response.content
        raise _read_refusal(response)


def _build_wish(judge: DocumentJudge) -> dict[str, object]:
    """Build the part of a request that says how to judge: the options, the rubric and the limits."""
    settings = judge.settings
    # Omit defaults, because an older server may not know the options.
    options = settings.request.model_dump(exclude_defaults=True)
    return options | {
        "rubric": settings.loaded_rubric.rubric.ref,
        "rubric_sha256": settings.loaded_rubric.sha256,
        "mode": settings.mode,
        "deadline": settings.timeout,
        "max_cost_usd": settings.max_cost_usd,
        "cache": judge.cache is not None,
    }


def _restore_names(verdict: Verdict, document: Document) -> Verdict:
    """Put the document's own names into a verdict. The server got them without secrets."""
    subjects = [JudgedFile(path=file.path, sha256=file.sha256) for file in document.files]
    names = {"subjects": subjects, "task_id": document.task_id, "author": document.author}
    return verdict.model_copy(update=names)


def _read_refusal(answer: httpx.Response) -> SharedError:
    """Convert the server's error response to a `SharedError`."""
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return SharedError(_WRONG_TOKEN)
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        # It's not our JSON, but perhaps a proxy's page.
        message = f"it answered with status {answer.status_code}"

    # The client repeats a request that may work soon.
    may_work_soon = answer.status_code in _TRANSIENT_STATUSES
    refusal = SharedError(shorten_to_line(message, _QUOTED_CHARS), passing=may_work_soon)
    refusal.retry_after = parse_retry_after(answer.headers.get("retry-after", ""))
    return refusal


def _refuse_own_family(verdict: Verdict, judge: DocumentJudge, document: Document) -> Verdict:
    """Make an acceptance undetermined if the settings require a judge independent of the author.

    Otherwise, return it unchanged.
    """
    # The server has confirmed no independent family.
    reason = independence.explain_independence_problem(
        judge.settings.independence, document.author_families, judging_families=()
    )
    if not reason:
        return verdict
    reservation = Reservation(ReservationKind.OWN_FAMILY, reason)
    return add_reservation(_clear_verdict(verdict), reservation, first=True)


def _clear_verdict(verdict: Verdict) -> Verdict:
    """Make a verdict undetermined, without scores, reasons or findings."""
    return verdict.model_copy(
        update={
            "verdict": "undetermined",
            "consensus": "none",
            "scores": None,
            "average": None,
            "judge_tier": None,
            "model": None,
            "because": OWN_FAMILY_ROW,
            "reasoning": "",
            "findings": [],
        }
    )


def _may_retry(failure: Exception, tries: int) -> bool:
    """Whether another try could succeed, after `tries` tries."""
    if isinstance(failure, SharedError):
        return failure.is_temporary
    if isinstance(failure, httpx.ConnectError):  # nothing listens at the address
        return tries <= _TRIES_IF_UNREACHED
    return isinstance(failure, (httpx.NetworkError, httpx.RemoteProtocolError))


def find_shared_judge(config: Config) -> Shared | None:
    """Return the shared judge (a team's server) that the user has configured, or None.

    Raises `ConfigError` if its address isn't secure, or if there's no token.
    """
    configured_url = config.server.url
    if configured_url is None:
        return None

    url = configured_url.strip()
    problem = _find_address_problem(url, configured_url)
    if problem:
        raise _build_server_error("url", problem)
    return Shared(url.rstrip("/"), _read_token(config.server.token_file))


def _find_address_problem(url: str, configured_url: str) -> str:
    """Explain why no token may be sent to an address; "" if it may.

    The message quotes the address as it's configured.
    """
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        return f"{configured_url!r} is no address ({error}); expected https://…"

    is_web_address = address.scheme in ("http", "https")
    if is_web_address and not address.host:
        return f"expected https:// and the name of a machine, got {configured_url!r}"

    is_encrypted = address.scheme == "https"
    is_local = address.scheme == "http" and is_loopback(address.host)
    is_secure = is_encrypted or is_local
    if not is_secure:
        return f"expected https://…, or http:// on this machine, got {configured_url!r}"
    return ""


def _build_server_error(key: str, problem: str) -> ConfigError:
    """Build the error about a setting of the server, which only the user's own configuration can have."""
    return build_error("server", key, problem, project=None)


def _read_token(file: str | None) -> str:
    """Read the server's token from the environment, or otherwise from `file`.

    Raises `ConfigError` if the file can't be read, or if it doesn't contain exactly one token.
    """
    token = environment.environ().get(TOKEN_VARIABLE, "").strip()
    if not token and file:
        token = _read_token_file(file)
    if not _TOKEN_PATTERN.fullmatch(token):
        expected = "expected one token and nothing else; name the file that holds it"
        raise _build_server_error("token_file", f"{expected}, or set {TOKEN_VARIABLE}")
    return token


def _read_token_file(file: str) -> str:
    """Read the text of a token file; raises `ConfigError` if it can't be read."""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise _build_server_error("token_file", f"{file}: cannot be read ({reason})") from None


@functools.cache
def _load_ssl_context() -> ssl.SSLContext:
    return ssl.create_default_context()  # slow, because it reads the certificates from disk


def is_loopback(host: str) -> bool:
    """Whether a host, by name or IP address, is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def _explain_failure(error: Exception) -> str:
    """Explain a failed request in one line."""
    if isinstance(error, SharedError | GatewayError):
        return shorten_to_line(str(error), _QUOTED_CHARS)
    if isinstance(error, ValidationError):
        return _UNREADABLE
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no response in time"
    if isinstance(error, httpx.ConnectError):
        why = _ERRNO_PATTERN.sub("", str(error)) or "no connection"
        line = f"it cannot be reached ({why}); is it running, and the address right?"
        return shorten_to_line(line, _QUOTED_CHARS)
    return shorten_to_line(f"{type(error).__name__}: {error}", _QUOTED_CHARS)

"""Reuses stored replies, so that judging the same text again asks no model and decides the same.

They're in a store: a private file (`reply_file.py`), or the database of a team's server.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import BaseModel, Field

from judgekit.environment import __version__
from judgekit.errors import KEPT, GatewayError
from judgekit.judging.fence import without_nonce
from judgekit.providers.base import Endpoint, Reply, Request, secret_values
from judgekit.providers.decisions import sent_questions
from judgekit.text import strict_json

MAX_DAYS = 30  # age up to which a reply is reused
MAX_SECONDS = MAX_DAYS * 86_400.0
# How a profile describes itself, and where an endpoint's values come from: neither affects a call.
_DESCRIBING = {
    *("title", "rank", "notes", "detect", "models", "models_env"),
    *("key", "base_env", "base_adds", "base_drops", "limits", "price", "states_cost", "batches"),
}
_ADDRESSES = ("URL", "BASE", "ENDPOINT")


class KeptText(NamedTuple):
    """A stored text and its age in seconds, which is negative if a clock was wrong."""

    text: str
    age: float


class ReplyStore(Protocol):
    """A store of replies' texts. Its failures are never raised: they cost a call, never a verdict."""

    @property
    def is_quick(self) -> bool:
        """Whether access takes less than a millisecond, so that it may run on an event loop."""

    def read_reply(self, key: str) -> KeptText | None: ...
    def write_reply(self, key: str, text: str) -> None: ...


class _KeptReply(BaseModel):
    """A reply as stored. Numbers must be finite; a reply with wrong types is asked for again."""

    text: str
    model: str
    logprobs: list[dict[str, Annotated[float, Field(allow_inf_nan=False)]]]
    tokens: list[str] = []
    held: bool = False


class ReplyCache:
    """Reads and writes the replies of a store, ignoring old or unreadable ones."""

    def __init__(self, store: ReplyStore) -> None:
        self._store = store

    @property
    def is_quick(self) -> bool:
        """Whether access is quick enough to run on an event loop."""
        return self._store.is_quick

    def find(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Find the earlier reply of `endpoint` to the same request. It has no usage, because it's free now.

        None if there's no such reply, if it's too old or invalid, or if the endpoint replays a recording.
        """
        if endpoint.profile.kind == "replay":
            return None
        kept_reply = self._store.read_reply(hash_of_call(endpoint, request))
        if kept_reply is None:
            return None
        # A negative age, in the future, means that the clock was wrong, so the real age is unknown.
        if abs(kept_reply.age) >= MAX_SECONDS:
            return None
        return _parse_reply(kept_reply.text)

    def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Store a reply that could be read.

        Replies from a recording aren't stored, since the recording may be made anew.
        """
        if endpoint.profile.kind == "replay":
            return
        text = json.dumps(
            {
                "text": reply.text,
                "model": reply.model,
                "logprobs": reply.logprobs,
                "tokens": reply.tokens,
                "held": reply.schema_enforced,
            }
        )
        self._store.write_reply(hash_of_call(endpoint, request), text)


def _parse_reply(text: str) -> Reply | None:
    """Read a stored reply; None if it's invalid."""
    with suppress(ValueError, GatewayError):  # pydantic's errors are ValueErrors too
        kept_reply = _KeptReply.model_validate(strict_json(text), strict=True)
        return Reply(
            text=kept_reply.text,
            model=kept_reply.model,
            usage=KEPT,
            logprobs=tuple(kept_reply.logprobs),
            tokens=tuple(kept_reply.tokens),
            schema_enforced=kept_reply.held,
        )
    return None


def hash_of_call(endpoint: Endpoint, request: Request) -> str:
    """Hash a request and its recipient, without nonces. The hash is the reply's key in a store.

    Of a command's environment, only the addresses are hashed, not the secrets.
    """
    messages = [(message.role, without_nonce(message.content)) for message in request.messages]
    profile_fields = endpoint.profile.model_dump(mode="json", exclude=_DESCRIBING)
    if not profile_fields.get("reads_reasoning"):
        # Left out, as before profiles had it, so that earlier replies are still found.
        profile_fields.pop("reads_reasoning", None)
    recipient = [profile_fields, endpoint.api_base, endpoint.model]
    options: list[Any] = [
        endpoint.output,
        _choose_hashed_parameters(endpoint),
        request.max_tokens,
        request.schema,
        request.top_logprobs,
    ]
    if request.sample:
        options.append(request.sample)
    if request.questions:
        questions = []
        for question in request.questions:
            instruction = without_nonce(question.instruction)
            questions.append(question._replace(instruction=instruction))
        options.append(sent_questions(questions))
    text = json.dumps([__version__, recipient, options, messages], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _choose_hashed_parameters(endpoint: Endpoint) -> dict[str, str]:
    """Return those parameters of a call that its reply depends on, without secrets.

    A command's parameters are its environment, and only the addresses in it matter.
    """
    secrets = secret_values(endpoint)
    parameters = {}
    for name, value in endpoint.parameters.items():
        if endpoint.profile.kind == "command":
            is_hashed = any(word in name for word in _ADDRESSES)
        else:
            is_hashed = value not in secrets
        if is_hashed:
            parameters[name] = value
    return parameters

"""The rule for replies that are kept, so that judging the same again asks no model and decides the same.

A store holds them: a file of this user's (`reply_file.py`), or the database of a team's server.
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

MAX_DAYS = 30  # of a reply that is given again
MAX_SECONDS = MAX_DAYS * 86_400.0
# What a profile says of itself, and where the values of an endpoint come from: no call shows it.
_DESCRIBING = {
    *("title", "rank", "notes", "detect", "models", "models_env"),
    *("key", "base_env", "base_adds", "base_drops", "limits", "price", "states_cost", "batches"),
}
_ADDRESSES = ("URL", "BASE", "ENDPOINT")


class KeptText(NamedTuple):
    """The text that a store holds under a key, and its age in seconds: below 0 under a wrong clock."""

    text: str
    age: float


class ReplyStore(Protocol):
    """Where texts of replies are; a fault of it raises nothing: it costs a call, never a verdict."""

    @property
    def is_quick(self) -> bool:
        """Whether reading and writing take less than a millisecond, so that they hold up no event loop."""

    def read_reply(self, key: str) -> KeptText | None: ...
    def write_reply(self, key: str, text: str) -> None: ...


class _KeptReply(BaseModel):
    """A reply as a store has it. Numbers are finite: what has another type is asked for again."""

    text: str
    model: str
    logprobs: list[dict[str, Annotated[float, Field(allow_inf_nan=False)]]]
    tokens: list[str] = []
    held: bool = False


class ReplyCache:
    """The replies in a store that could be read and are not old."""

    def __init__(self, store: ReplyStore) -> None:
        self._store = store

    @property
    def is_quick(self) -> bool:
        """Whether replies are found and kept without holding up an event loop."""
        return self._store.is_quick

    def find(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return what `endpoint` replied to the same request before, without its usage; else None."""
        if endpoint.profile.kind == "replay":
            return None
        kept = self._store.read_reply(hash_of_call(endpoint, request))
        # One that is dated in the future was kept under a wrong clock: nobody knows its age.
        if kept is None or abs(kept.age) >= MAX_SECONDS:
            return None
        return _parse_reply(kept.text)

    def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Keep a reply that could be read; a recording is kept already, and may be made anew."""
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
    """Return the reply in a kept text, without its usage; None where it holds none."""
    with suppress(ValueError, GatewayError):  # pydantic's errors are ValueErrors, too
        kept = _KeptReply.model_validate(strict_json(text), strict=True)
        return Reply(
            text=kept.text,
            model=kept.model,
            usage=KEPT,
            logprobs=tuple(kept.logprobs),
            tokens=tuple(kept.tokens),
            schema_enforced=kept.held,
        )
    return None


def hash_of_call(endpoint: Endpoint, request: Request) -> str:
    """Return a hash of what is sent, without its nonces, and to whom: the key of its reply in a store.

    Of an environment it holds the addresses, and no secrets.
    """
    messages = [(message.role, without_nonce(message.content)) for message in request.messages]
    profile_fields = endpoint.profile.model_dump(mode="json", exclude=_DESCRIBING)
    if not profile_fields.get("reads_reasoning"):
        # As it was before profiles had it: earlier replies are found again.
        profile_fields.pop("reads_reasoning", None)
    recipient = [profile_fields, endpoint.api_base, endpoint.model]
    options: list[Any] = [
        endpoint.output,
        _parameters_to_hash(endpoint),
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


def _parameters_to_hash(endpoint: Endpoint) -> dict[str, str]:
    """Return the parameters of a call that are no secrets; of a command's environment the addresses."""
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

"""Reuses stored replies, so that judging the same text again asks no model and decides the same.

They're in a store: a private file (`reply_file.py`), or the database of a team's server.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from pydantic import BaseModel, Field

from judgekit.environment import __version__
from judgekit.errors import CACHED_USAGE, GatewayError
from judgekit.judging.fence import replace_nonces
from judgekit.providers.base import Endpoint, Reply, Request, list_secrets
from judgekit.providers.decisions import build_question_arguments
from judgekit.text import parse_strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.providers.decisions import DecisionQuestion

MAX_DAYS = 30  # age up to which a reply is reused
MAX_AGE_SECONDS = MAX_DAYS * 86_400.0
# Fields of a profile that don't affect a call: its description, and where an endpoint's values come from
_FIELDS_NOT_HASHED = {
    *("title", "rank", "notes", "detect", "models", "models_env"),
    *("key", "base_env", "base_adds", "base_drops", "limits", "price", "states_cost", "batches"),
}
_ADDRESS_WORDS = ("URL", "BASE", "ENDPOINT")  # in a variable's name


class StoredText(NamedTuple):
    """A stored reply's text, and its age in seconds (negative if a clock was wrong)."""

    text: str
    age_seconds: float


class ReplyStore(Protocol):
    """A store of replies. It never raises, because a missing reply only costs a call."""

    @property
    def is_quick(self) -> bool:
        """Whether access takes less than a millisecond, so that it can run on an event loop."""

    def read_reply(self, key: str) -> StoredText | None: ...
    def write_reply(self, key: str, text: str) -> None: ...


class _StoredReply(BaseModel):
    """A reply as stored."""

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
        """Return the stored reply to the same request. Its usage is zero, because no call is made.

        Return None if there isn't a recent valid reply.
        """
        if endpoint.profile.kind == "replay":  # replies from a recording aren't stored
            return None
        stored = self._store.read_reply(hash_of_call(endpoint, request))
        if stored is None:
            return None
        # If a clock was wrong, the age can be negative.
        is_recent = abs(stored.age_seconds) < MAX_AGE_SECONDS
        if not is_recent:
            return None
        return _parse_reply(stored.text)

    def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Store a valid reply, unless it's from a recording, because the recording can change."""
        if endpoint.profile.kind == "replay":
            return
        text = json.dumps(
            {
                "text": reply.text,
                "model": reply.model,
                "logprobs": reply.logprobs,
                "tokens": reply.tokens,
                # The key of earlier versions, whose replies are still read.
                "held": reply.schema_enforced,
            }
        )
        self._store.write_reply(hash_of_call(endpoint, request), text)


def _parse_reply(text: str) -> Reply | None:
    """Parse a stored reply. Return None if it's invalid."""
    with suppress(ValueError, GatewayError):  # pydantic's errors are ValueErrors
        stored_reply = _StoredReply.model_validate(parse_strict_json(text), strict=True)
        return Reply(
            text=stored_reply.text,
            model=stored_reply.model,
            usage=CACHED_USAGE,
            logprobs=tuple(stored_reply.logprobs),
            tokens=tuple(stored_reply.tokens),
            schema_enforced=stored_reply.held,
        )
    return None


def hash_of_call(endpoint: Endpoint, request: Request) -> str:
    """Hash a request and its recipient, to use the hash as a stored reply's key.

    Nonces (random parts of the prompt) and secrets don't count.
    """
    recipient = [_list_hashed_fields(endpoint), endpoint.api_base, endpoint.model]
    options: list[Any] = [
        endpoint.output_mode,
        _choose_hashed_parameters(endpoint),
        request.max_tokens,
        request.schema,
        request.top_logprobs,
    ]
    # Only a repeated request has a sample number, and only decision models get questions.
    if request.sample:
        options.append(request.sample)
    if request.questions:
        options.append(_build_hashed_questions(request.questions))

    messages = [(message.role, replace_nonces(message.content)) for message in request.messages]
    text = json.dumps([__version__, recipient, options, messages], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _list_hashed_fields(endpoint: Endpoint) -> dict[str, Any]:
    """Return the fields of the endpoint's profile that can affect replies."""
    profile_fields = endpoint.profile.model_dump(mode="json", exclude=_FIELDS_NOT_HASHED)
    # This field was added later. Omit its default, so that older replies are still found.
    if not profile_fields.get("reads_reasoning"):
        profile_fields.pop("reads_reasoning", None)
    return profile_fields


def _build_hashed_questions(questions: Sequence[DecisionQuestion]) -> Any:  # noqa: ANN401 - any JSON
    """Build the arguments that a call sends for questions, without nonces."""
    questions_without_nonces = []
    for question in questions:
        instruction = replace_nonces(question.instruction)
        questions_without_nonces.append(question._replace(instruction=instruction))
    return build_question_arguments(questions_without_nonces)


def _choose_hashed_parameters(endpoint: Endpoint) -> dict[str, str]:
    """Return the endpoint's parameters that can affect replies. Secrets don't."""
    if endpoint.profile.kind == "command":
        return _choose_addresses(endpoint.parameters)
    secrets = list_secrets(endpoint)
    return {name: value for name, value in endpoint.parameters.items() if value not in secrets}


def _choose_addresses(environment_variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of a command's environment variables that hold an address. No others affect replies."""
    addresses = {}
    for name, value in environment_variables.items():
        is_address = any(word in name for word in _ADDRESS_WORDS)
        if is_address:
            addresses[name] = value
    return addresses

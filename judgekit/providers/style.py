"""How to ask a model: in the default style, or a weaker one if an address refuses or ignores that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.base import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.providers.base import Endpoint, Messages, Request
    from judgekit.providers.registry import OutputMode

MAX_CHANGES = 8  # one per field of a style, as the format may change twice
THINKING_TOKENS = 8_000  # for a model that thinks, if its profile names no number
NEWER_TOKEN_LIMIT_FIELD = "max_completion_tokens"  # noqa: S105 - a field of requests
WEAKER: dict[OutputMode, OutputMode] = {
    "json_schema": "json_object",
    "tool": "text",
    "json_object": "text",
}
# Refusals whose numbers are the tokens left for a reply. In a server error, a number can mean anything.
_TOKEN_LIMIT_FAILURE_KINDS = {
    FailureKind.BAD_REQUEST,
    FailureKind.CONTEXT_WINDOW,
    FailureKind.PAYMENT,
}
_MIN_ROOM_TOKENS = 256  # tokens; no answer fits in less, unless the request has a lower limit


class CallStyle(NamedTuple):
    """How to ask a model, and how many tokens its reply may have.

    `system`: the model has a role for instructions. `thinking` tokens are added to a reply's own.
    `most_tokens` is the model's limit, and `room` is the context left beside this prompt.
    """

    mode: OutputMode
    temperature: bool = True
    max_tokens: str = "max_tokens"
    logprobs: bool = True
    system: bool = True
    thinking: int = 0
    most_tokens: int | None = None
    room: int | None = None

    def thinking_tokens(self, endpoint: Endpoint) -> int:
        """Return the number of tokens to allow for thinking.

        The profile's numbers come first, and then the number that this style learned from a failure.
        """
        profile = endpoint.profile
        tokens_for_all_models = profile.limits.thinking_tokens
        if tokens_for_all_models is not None:
            return tokens_for_all_models

        tokens_by_model: dict[str, int] = getattr(profile, "thinking", {})  # some profiles lack it
        return profile.look_up_model(tokens_by_model, endpoint.model, default=self.thinking)

    def reply_tokens(self, endpoint: Endpoint, request: Request) -> int:
        """Return a reply's token limit, including thinking."""
        limits = [request.max_tokens + self.thinking_tokens(endpoint), self.most_tokens, self.room]
        return min(limit for limit in limits if limit is not None)

    def adapt_to_failure(
        self, failure: GatewayError, endpoint: Endpoint, request: Request
    ) -> CallStyle | None:
        """Return a changed style to try after a failure, or None if no change would help.

        `failure.objections` are the parts of the request that the provider objects to.
        """
        objections = failure.objections
        if self._can_drop_logprobs(request) and _is_about_logprobs(failure):
            return self._replace(logprobs=False)

        if "thinking" in objections and self._can_add_thinking(endpoint):
            return self._replace(thinking=THINKING_TOKENS)

        names_token_limit = failure.max_reply_tokens is not None
        if names_token_limit and failure.kind in _TOKEN_LIMIT_FAILURE_KINDS:
            return self._limit_reply(failure, endpoint, request)

        # "unfit" means that the model's reply didn't have the format, or didn't fit the schema.
        if "unfit" in objections and self._can_weaken_mode(request):
            return self._replace(mode=WEAKER[self.mode])

        if failure.kind is FailureKind.BAD_REQUEST:
            return self._drop_refused_part(objections, request)
        return None

    def _can_drop_logprobs(self, request: Request) -> bool:
        """Whether a request asks for log probabilities, but doesn't need them.

        A request without a schema needs them, because its answer is read from them.
        """
        asks_for_logprobs = self.logprobs and request.top_logprobs
        return bool(asks_for_logprobs and request.schema)

    def _can_weaken_mode(self, request: Request) -> bool:
        """Whether a request has a schema, which a weaker mode enforces less strictly."""
        return request.schema is not None and self.mode in WEAKER

    def _drop_refused_part(self, objections: frozenset[str], request: Request) -> CallStyle | None:
        """Return a style without the first feature that the provider refused, or None if none is left."""
        limit_field = self.max_tokens  # a name, not a number
        if limit_field != NEWER_TOKEN_LIMIT_FIELD and "newer_limit" in objections:
            return self._replace(max_tokens=NEWER_TOKEN_LIMIT_FIELD)
        if self.temperature and "temperature" in objections:
            return self._replace(temperature=False)
        if self.system and "system" in objections:
            return self._replace(system=False)
        if "format" in objections and self._can_weaken_mode(request):
            return self._replace(mode=WEAKER[self.mode])
        return None

    def drop_room(self) -> CallStyle:
        """Return the style without `room`, which only applies to one prompt."""
        return self._replace(room=None)

    def stamp(self) -> str:
        """Return a string that identifies the style."""
        # Pending batches are found by this string, so it must not change for existing styles. New fields come
        # last and are omitted if they have their defaults.
        oldest_fields = ("mode", "temperature", "max_tokens", "logprobs")
        parts = []
        for name, value in self._asdict().items():
            if name in oldest_fields or value != self._field_defaults[name]:
                parts.append(f"{name}={value!r}")
        return f"CallStyle({', '.join(parts)})"

    def _can_add_thinking(self, endpoint: Endpoint) -> bool:
        """Whether there are no tokens for thinking yet, and the profile doesn't fix their number."""
        is_fixed = endpoint.profile.limits.thinking_tokens is not None
        return not is_fixed and self.thinking_tokens(endpoint) == 0

    def _limit_reply(
        self, failure: GatewayError, endpoint: Endpoint, request: Request
    ) -> CallStyle | None:
        """Return a style that limits replies to the number of tokens that a failure names.

        Returns None if this number is too small, isn't lower than now, or if the style has such a limit
        already.
        """
        max_tokens = failure.max_reply_tokens or 0  # callers have checked that there's a number
        needed_tokens = min(_MIN_ROOM_TOKENS, request.max_tokens)
        is_too_small = max_tokens < needed_tokens
        is_not_lower = max_tokens >= self.reply_tokens(endpoint, request)
        if is_too_small or is_not_lower:
            return None

        # "cap" means that the number is the model's own limit (`most_tokens`). Otherwise, it's the number of
        # tokens that this prompt leaves in the context (`room`).
        is_limit_of_model = "cap" in failure.objections
        known_limit = self.most_tokens if is_limit_of_model else self.room
        if known_limit is not None:  # it was refused although the request kept to it
            return None
        if is_limit_of_model:
            return self._replace(most_tokens=max_tokens)
        return self._replace(room=max_tokens)


def _is_about_logprobs(failure: GatewayError) -> bool:
    """Whether the provider objects to log probabilities, or litellm can't read them in the reply."""
    if failure.kind is FailureKind.BAD_REQUEST:
        return "logprobs" in failure.objections
    return "Invalid response object" in failure.message


def merge_system_messages(messages: Sequence[Message]) -> Messages:
    """Merge the system messages into the user's first message, if that comes right after them."""
    instructions = [message for message in messages if message.role == "system"]
    other_messages = [message for message in messages if message.role != "system"]
    if not instructions or not other_messages:
        return tuple(messages)

    first_message = other_messages[0]
    if first_message.role != "user":
        return tuple(messages)

    text = "\n\n".join(message.content for message in [*instructions, first_message])
    # The new text starts with the first instructions, so it has the same stable start.
    merged_message = Message("user", text, stable_chars=instructions[0].stable_chars)
    return (merged_message, *other_messages[1:])

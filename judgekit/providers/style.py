"""How to ask a model: in the default style, or a weaker one if an address refuses or ignores that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.base import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.providers.base import Endpoint, Messages, Request
    from judgekit.providers.registry import OutputMode

MOST_CHANGES = 8  # one per field of a style, as the format may change twice
THINKING_TOKENS = 8_000  # for a model that thinks, if its profile names no number
NEWER_LIMIT = "max_completion_tokens"
WEAKER: dict[OutputMode, OutputMode] = {
    "json_schema": "json_object",
    "tool": "text",
    "json_object": "text",
}
# Refusals that may name the tokens left for a reply; in a server error a number can mean anything.
_REFUSING = {FailureKind.BAD_REQUEST, FailureKind.CONTEXT_WINDOW, FailureKind.PAYMENT}
_LEAST_ROOM = 256  # tokens, unless fewer were asked for: no judging answer fits in less


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
        """Count the tokens added for thinking: as the profile says, else as learned from earlier replies."""
        profile = endpoint.profile
        if profile.limits.thinking_tokens is not None:
            return profile.limits.thinking_tokens
        table: dict[str, int] = getattr(profile, "thinking", {})
        return profile.of_model(table, endpoint.model, self.thinking)

    def reply_tokens(self, endpoint: Endpoint, request: Request) -> int:
        """Count the tokens a reply may have, thinking included."""
        limits = [request.max_tokens + self.thinking_tokens(endpoint), self.most_tokens, self.room]
        return min(limit for limit in limits if limit is not None)

    def adapted(
        self, failure: GatewayError, endpoint: Endpoint, request: Request
    ) -> CallStyle | None:
        """Choose the style to try after a failure; None if no other one would help."""
        objections = failure.objections
        is_refused = failure.kind is FailureKind.BAD_REQUEST
        # Either refused, or sent in an odd form: litellm says this of anything it can't read.
        is_about_logprobs = "Invalid response object" in failure.message
        if is_refused:
            is_about_logprobs = "logprobs" in objections
        # Without a schema, the log probabilities are the answer.
        if self.logprobs and request.top_logprobs and request.schema and is_about_logprobs:
            return self._replace(logprobs=False)
        if "thinking" in objections and self._can_add_thinking(endpoint):
            return self._replace(thinking=THINKING_TOKENS)
        if failure.room is not None and failure.kind in _REFUSING:
            return self._within(failure, endpoint, request)
        if "unfit" in objections and request.schema is not None and self.mode in WEAKER:
            return self._replace(mode=WEAKER[self.mode])
        if is_refused:
            return self._without_refused(objections, request)
        return None

    def _without_refused(self, objections: frozenset[str], request: Request) -> CallStyle | None:
        """Drop the first part of the style that was refused; None if nothing can be dropped."""
        if self.max_tokens != NEWER_LIMIT and "newer_limit" in objections:
            return self._replace(max_tokens=NEWER_LIMIT)
        if self.temperature and "temperature" in objections:
            return self._replace(temperature=False)
        if self.system and "system" in objections:
            return self._replace(system=False)
        if request.schema is not None and self.mode in WEAKER and "format" in objections:
            return self._replace(mode=WEAKER[self.mode])
        return None

    def lasting(self) -> CallStyle:
        """Keep only the parts of the style that also hold for other prompts."""
        return self._replace(room=None)

    def stamp(self) -> str:
        """Write a text that identifies the style, leaving out newer fields with their default values.

        Requests in pending batches are found by it, so new fields must come last.
        """
        oldest_fields = ("mode", "temperature", "max_tokens", "logprobs")
        parts = []
        for name, value in self._asdict().items():
            if name in oldest_fields or value != self._field_defaults[name]:
                parts.append(f"{name}={value!r}")
        return f"CallStyle({', '.join(parts)})"

    def _can_add_thinking(self, endpoint: Endpoint) -> bool:
        """Whether the tokens for thinking are still 0, and the profile doesn't fix them."""
        is_fixed = endpoint.profile.limits.thinking_tokens is not None
        return not is_fixed and self.thinking_tokens(endpoint) == 0

    def _within(
        self, failure: GatewayError, endpoint: Endpoint, request: Request
    ) -> CallStyle | None:
        """Fit the reply into the tokens that the provider says are left; None if that doesn't help."""
        room = failure.room or 0
        is_too_small = room < min(_LEAST_ROOM, request.max_tokens)
        is_no_less = room >= self.reply_tokens(endpoint, request)
        if is_too_small or is_no_less:
            return None
        # Each limit is learned once only: if it's refused again, it doesn't help.
        is_limit_of_model = "cap" in failure.objections
        if is_limit_of_model and self.most_tokens is None:
            return self._replace(most_tokens=room)
        if not is_limit_of_model and self.room is None:
            return self._replace(room=room)
        return None


def without_system(messages: Sequence[Message]) -> Messages:
    """Move the instructions to the beginning of the user's first message.

    If there are none, or the first other message isn't the user's, the messages stay as they are.
    """
    instructions = [message for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    if not instructions or not others or others[0].role != "user":
        return tuple(messages)
    text = "\n\n".join(message.content for message in (*instructions, others[0]))
    return (Message("user", text, instructions[0].stable), *others[1:])

"""Renders a conversation as text: turn after turn, including tool calls and their results.

It understands the messages of OpenAI (`role`, `content`, `tool_calls`, `refusal`), the items of its Responses
API, the content blocks of Anthropic and of Amazon Bedrock, the `parts` of Gemini and of Vercel's AI SDK,
LangChain's messages and ShareGPT (`from`, `value`), and objects with a request's messages and the reply.
A model's thoughts are left out. Images and files are named in brackets. Anything else is an error, because
half a conversation mustn't be judged as if it were whole.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.text import remove_invisible, replace_surrogates, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ASSISTANT = "assistant"
MAX_NAME_CHARS = 80
_EXPECTED_MESSAGES = "expected a list of messages with role and content"
_TOOL_ROLE = "tool"
_SPEAKER_BY_ROLE = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(
        (ASSISTANT, "gpt", "chatgpt", "model", "ai", "bot", "chatbot", "aimessagechunk"), ASSISTANT
    ),
    **dict.fromkeys((_TOOL_ROLE, "function", "observation", "ipython"), _TOOL_ROLE),
}
_KINDS = {
    list: "a list",
    dict: "an object",
    str: "a text",
    bool: "true or false",
    type(None): "nothing",
}
_CONTENT_KEYS = ("content", "value", "parts", "text", "message")
_ROLE_KEYS = ("role", "from", "speaker", "sender")
_LIST_KEYS = ("messages", "contents", "conversation", "conversations")
# Block types that only a key tells, as in Bedrock's blocks and some of Gemini's.
_TYPES_BY_KEY = {
    "toolUse": "tool_use",
    "toolResult": "tool_result",
    "reasoningContent": "thinking",
    "cachePoint": "step-start",
    "guardContent": "text",
    "executableCode": "tool_use",
    "codeExecutionResult": "tool_result",
    "function_call": "function_call",
    "function_response": "tool_result",
    **{medium: medium for medium in ("image", "document", "video", "audio")},
}
_CODE_TOOL_NAME = "code"  # in place of a tool's name
# Keys of an object in place of a text.
_TEXT_KEYS = (
    "text",
    "content",
    "answer",
    "value",
    "output_text",
)
_THOUGHT_TYPES = frozenset(
    ("thinking", "redacted_thinking", "reasoning", "thought", "reasoning_content")
)
_EMPTY_MARK_TYPES = frozenset(("step-start", "item_reference"))  # without any content
_TOOL_CALL_TYPES = frozenset(
    ("tool_use", "tool-call", "tool_call", "function_call", "server_tool_use", "mcp_tool_use")
)
_TOOL_RESULT_TYPES = frozenset(
    ("tool_result", "tool-result", "function_call_output", "mcp_tool_result")
)
_RESULT_KEYS = ("content", "output", "result", "response", "errorText")
_CALL_ID_KEYS = ("tool_use_id", "tool_call_id", "toolCallId", "call_id", "toolUseId")
# Other media are named by the word that begins their type, or that follows `input_`.
_OTHER_MEDIA = (
    "image",
    "audio",
    "video",
    "file",
    "document",
    "media",
    "source",
    "pdf",
    "search_result",
    "data-",
)


class NotUnderstoodError(ValueError):
    """A conversation that we can't read fully; the text says where, what was expected and what was found."""


class Turn(NamedTuple):
    speaker: str
    text: str
    calls: Sequence[str] = ()

    @property
    def content(self) -> str:
        """The turn's text, followed by a line `calls NAME(ARGUMENTS)` for each tool call."""
        text_and_calls = [self.text] if self.text else []
        for call in self.calls:
            text_and_calls.append(f"calls {call}")
        return "\n".join(text_and_calls)


class _Reader:
    """Reads one conversation; `tools` holds the names of called tools by the call's id."""

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}

    def read_message(self, message: object, position: str) -> Iterator[Turn]:
        """Yield a message's turns: one for its text and tool calls, and one per tool result.

        `position`, such as "message 3", is for error messages. Raises `NotUnderstoodError`.
        """
        if not isinstance(message, dict):
            raise NotUnderstoodError(
                f"{_EXPECTED_MESSAGES}; {position} is {describe_kind(message)}"
            )
        message = _unwrap_langchain(message)
        # In the Responses API, items such as tool calls have no role. They're the assistant's.
        if _is_api_item(message):
            yield from self._read_blocks([message], ASSISTANT, position)
            return

        speaker = _name_speaker(message, position)
        if speaker == _TOOL_ROLE:
            speaker = self._name_tool(message.get("name"), message.get("tool_call_id"))
        blocks = [*_list_blocks(message, position), *_list_calls(message, position)]
        yield from self._read_blocks(blocks, speaker, position)

    def _read_blocks(self, blocks: Sequence[object], speaker: str, position: str) -> Iterator[Turn]:
        """Yield the turns in a message's content blocks: one for its text and calls, one per tool result."""
        texts = []
        calls = []
        results = []
        for block in map(_add_type, blocks):
            kind_of_block = _classify_block(block)
            if kind_of_block == "text":
                texts.append(_read_block_text(block, position))
            # Vercel's AI SDK has a call and its result in the same block.
            if kind_of_block in ("call", "call with result"):
                calls.append(self._read_call(block, position))
            if kind_of_block in ("result", "call with result"):
                results.append(self._read_result(block, position))

        speaker_turns = []  # one, or none if there are only results
        if texts or calls:
            text = "\n".join(text for text in texts if text)
            speaker_turns.append(Turn(speaker, text, tuple(calls)))

        if calls:
            # The results belong to these calls, so they come after them.
            yield from [*speaker_turns, *results]
        else:
            # The results belong to an earlier message's calls, as in Anthropic's format, so they come before
            # the user's next text.
            yield from [*results, *speaker_turns]

    def _read_call(self, block: Any, position: str) -> str:  # noqa: ANN401 - whatever JSON can hold
        """Render a tool call as `name(arguments)`, and remember the tool's name for its result."""
        inner = _find_inner(block, ("functionCall", "function_call", "function"), position)
        # If the call has no name, use its type, such as `web_search_call`.
        name = _read_tool_name(inner) or _read_tool_name(block) or _clean_name(inner.get("type"))
        arguments = replace_surrogates(_read_arguments(inner))
        for key in ("id", "call_id", "tool_call_id", "toolCallId", "toolUseId"):
            if block.get(key):
                self.tools[str(block[key])] = name
        return f"{name}({arguments})"

    def _read_result(self, block: Any, position: str) -> Turn:  # noqa: ANN401 - whatever JSON can hold
        """Read a tool result as a turn by the tool."""
        inner = _find_inner(block, ("functionResponse", "function_response"), position)
        value_key = next((key for key in _RESULT_KEYS if inner.get(key) is not None), None)
        value = None if value_key is None else inner[value_key]
        parts = value if isinstance(value, list) else [value]
        part_texts = [_render_result(part, position) for part in parts]

        id_key = next((key for key in _CALL_ID_KEYS if block.get(key)), None)
        call_id = None if id_key is None else block[id_key]
        speaker = self._name_tool(_read_tool_name(inner), call_id)
        return Turn(speaker, "\n".join(text for text in part_texts if text))

    def _name_tool(self, name: object, call_id: object) -> str:
        """Build a speaker such as `tool search`, from the tool's name or from the call with that id."""
        tool = _clean_name(name) if name else self.tools.get(str(call_id), "")
        return f"{_TOOL_ROLE} {tool}".strip()


def _read_arguments(call: Mapping[str, Any]) -> str:
    """Read a call's arguments as JSON. If they're a text, that's returned unchanged."""
    key = next((key for key in ("input", "args", "arguments") if key in call), None)
    arguments = None if key is None else call[key]
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments or {}, ensure_ascii=False)


def describe_kind(value: object) -> str:
    """Describe a JSON value's type for an error message, such as `a list`."""
    if type(value) in (int, float):
        return "a number"
    return _KINDS.get(type(value), type(value).__name__)


def render_turns(turns: Sequence[Turn]) -> str:
    """Render turns as lines `SPEAKER: TEXT` and `SPEAKER calls TOOL(ARGUMENTS)`."""
    parts = []
    for speaker, text, calls in turns:
        if text or not calls:  # a turn of calls alone needs no line for its text
            parts.append(f"{speaker}: {text}")
        parts += [f"{speaker} calls {call}" for call in calls]
    return "\n".join(_indent_after_first_line(part) for part in parts)


def _indent_after_first_line(part: str) -> str:
    """Indent all lines of a part but the first, so that no content looks like another turn."""
    text = remove_invisible(part).strip()  # this converts all kinds of line separators to LF
    return text.replace("\n", "\n  ")


def split_shared(
    first: Sequence[Turn], second: Sequence[Turn]
) -> tuple[Sequence[Turn], Sequence[Turn], Sequence[Turn]]:
    """Split two conversations into the beginning they share, and the remainder of each."""
    # Leave a turn in each remainder, so that there's something to compare even if the conversations are
    # equal.
    max_shared = min(len(first), len(second)) - 1
    shared_count = 0
    while shared_count < max_shared and first[shared_count] == second[shared_count]:
        shared_count += 1
    return first[:shared_count], first[shared_count:], second[shared_count:]


def render_as_text(turns: Sequence[Turn]) -> str:
    """Render turns as text. A single turn by the assistant is rendered without its speaker."""
    is_single_answer = len(turns) == 1 and turns[0].speaker == ASSISTANT
    return turns[0].content if is_single_answer else render_turns(turns)


def is_conversation(value: object) -> bool:
    """Whether a value is a non-empty list of messages."""
    if not isinstance(value, list) or not value:
        return False
    return all(_looks_like_message(message) for message in value)


def read_turns(value: object) -> list[Turn]:
    """Read the turns in a conversation: a list of messages, or an object or JSON that contains such a list.

    Raises `NotUnderstoodError`.
    """
    reader = _Reader()
    turns: list[Turn] = []
    try:
        for number, message in enumerate(_list_messages(value), 1):
            turns += reader.read_message(message, f"message {number}")
    except RecursionError:
        raise NotUnderstoodError(f"{_EXPECTED_MESSAGES}, got values nested too deeply") from None
    return turns


def _list_messages(value: object) -> list[Any]:
    """Find the list of messages in a value, which can also be JSON text.

    Raises `NotUnderstoodError` if there's none.
    """
    if isinstance(value, str):
        value = _parse_json(value)
    if isinstance(value, dict):
        value = _find_messages(value)
    if not isinstance(value, list):
        raise NotUnderstoodError(f"{_EXPECTED_MESSAGES}, got {describe_kind(value)}")

    # LangSmith has a list of prompts, each of which is a list of messages.
    is_list_of_one_prompt = len(value) == 1 and isinstance(value[0], list)
    return value[0] if is_list_of_one_prompt else value


def _parse_json(text: str) -> object:
    """Parse JSON text. Raises `NotUnderstoodError` if it isn't JSON."""
    try:
        value: object = json.loads(text)
    except ValueError:
        raise NotUnderstoodError(
            f"{_EXPECTED_MESSAGES}, got the text {shorten_to_line(text, 40)!r}"
        ) from None
    return value


def is_message(value: object) -> bool:
    """Whether a value is a single message that an assistant wrote."""
    if not isinstance(value, dict):
        return False
    role = value.get("role")
    is_by_assistant = isinstance(role, str) and _SPEAKER_BY_ROLE.get(role.casefold()) == ASSISTANT
    has_content = any(key in value for key in (*_CONTENT_KEYS, "refusal", "tool_calls"))
    return is_by_assistant and has_content


def _looks_like_message(message: object) -> bool:
    """Whether a value has a typical key of a message, or is an item of the Responses API."""
    if not isinstance(message, dict):
        return False
    keys = (*_ROLE_KEYS, "content", "parts", "lc")  # "parts" is Gemini's key, "lc" LangChain's
    has_key = any(key in message for key in keys)
    return has_key or _is_api_item(message)


def _find_messages(value: Mapping[str, Any]) -> object:
    """Find the messages in an object. If it's a logged request, its reply becomes the last message.

    The caller must check that they're a list.
    """
    list_key = next((key for key in _LIST_KEYS if key in value), None)
    if list_key is None:
        return _find_items(value)  # the Responses API has items instead of messages
    messages = value[list_key]
    if not isinstance(messages, list):
        return messages
    return [*messages, *_list_logged_replies(value)]


def _list_logged_replies(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reply in a logged call of OpenAI or Gemini as a list of one message, or of none."""
    replies = []
    for choices_key, message_key in (("choices", "message"), ("candidates", "content")):
        choices = value.get(choices_key)
        first_choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(first_choice, dict):
            reply = first_choice.get(message_key) or {}
            replies.append({"role": ASSISTANT, **reply})
    return replies


def _find_items(value: Mapping[str, Any]) -> object:
    """Find the items in a Responses API object. Any other object is returned unchanged."""
    if isinstance(value.get("output"), list) or "output_text" in value:
        return _list_items(value)
    is_listing = value.get("object") == "list" and isinstance(value.get("data"), list)
    return value["data"] if is_listing else value


def _list_items(response: Mapping[str, Any]) -> list[object]:
    """List the items in a Responses API request, followed by the items in its reply.

    The object must have an `output` list or an `output_text`.
    """
    items: list[object] = []
    if isinstance(response.get("instructions"), str):
        items.append({"role": "system", "content": response["instructions"]})
    prompt = response.get("input")
    if isinstance(prompt, str):
        items.append({"role": "user", "content": prompt})
    elif isinstance(prompt, list):
        items += prompt

    if isinstance(response.get("output"), list):
        return [*items, *response["output"]]
    return [*items, {"role": ASSISTANT, "content": response["output_text"]}]


def _add_type(block: object) -> object:
    """Convert a block without a `type`, such as {"toolUse": {…}}, or an old Vercel call to a typed block.

    Other blocks are returned unchanged.
    """
    if not isinstance(block, dict):
        return block
    is_old_vercel_call = block.get("type") == "tool-invocation"
    if is_old_vercel_call and isinstance(block.get("toolInvocation"), dict):
        return _convert_old_vercel_call(block["toolInvocation"])
    if "type" in block:
        return block

    key = next((key for key in _TYPES_BY_KEY if isinstance(block.get(key), dict)), None)
    if key is None:
        return _join_cited_texts(block)
    return {**_unwrap_block(key, block[key]), "type": _TYPES_BY_KEY[key]}


def _convert_old_vercel_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool call from an older format of Vercel's AI SDK to the newer one."""
    return {**call, "input": call.get("args"), "output": call.get("result"), "type": "dynamic-tool"}


def _unwrap_block(key: str, inner: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `inner`, the object under a block's `key`, with its fields named as in typed blocks."""
    if key == "executableCode":
        return {"name": _CODE_TOOL_NAME, "input": inner.get("code")}
    if key == "codeExecutionResult":
        return {"name": _CODE_TOOL_NAME, "content": inner.get("output")}
    # Bedrock wraps this text twice: {"guardContent": {"text": {"text": …}}}.
    text = inner.get("text")
    if key == "guardContent" and isinstance(text, dict):
        return text
    return inner


def _join_cited_texts(block: Mapping[str, Any]) -> object:
    """Join the cited texts in a Bedrock block into a text block. Any other block is returned unchanged."""
    citations = block.get("citationsContent")
    if not isinstance(citations, dict) or not isinstance(citations.get("content"), list):
        return block
    cited_texts = []
    for part in citations["content"]:
        if isinstance(part, dict):
            cited_texts.append(str(part.get("text", "")))
    return {"type": "text", "text": "".join(cited_texts)}


def _unwrap_langchain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Unwrap a message in one of LangChain's two formats. Any other message is returned unchanged."""
    # The format of `dumps`: {"lc": 1, "id": ["langchain", …, "HumanMessage"], "kwargs": {…}}
    kwargs = message.get("kwargs")
    if message.get("lc") and isinstance(kwargs, dict):
        # If `kwargs` has a type, it overrides the one from the class.
        return {"type": _name_langchain_type(message.get("id")), **kwargs}

    # The format of stored messages: {"type": "human", "data": {…}}
    data = message.get("data")
    is_stored = isinstance(message.get("type"), str) and "role" not in message
    if is_stored and isinstance(data, dict):
        return {"type": message["type"], **data}
    return dict(message)


def _name_langchain_type(class_path: object) -> str:
    """Name a message's type by its class: "human" for ["langchain", …, "HumanMessage"]. "" if unknown."""
    if not isinstance(class_path, list) or not class_path:
        return ""
    class_name = str(class_path[-1])
    return class_name.removesuffix("Message").casefold()


def _is_api_item(message: Mapping[str, Any]) -> bool:
    """Whether this is a call, a result or a thought from the Responses API, rather than a message."""
    has_role = not message.keys().isdisjoint(_ROLE_KEYS)
    return not has_role and _classify_block(message) != "text"


def _name_speaker(message: Mapping[str, Any], position: str) -> str:
    """Return a message's speaker, such as "user". An unknown role is only shortened.

    Raises `NotUnderstoodError` if the message has no role.
    """
    role = _find_role(message)
    if role is None and isinstance(message.get("parts"), list):
        return "user"  # Gemini's requests with a single message omit the role
    if not isinstance(role, str) or role == "message":  # "message" is only a type
        raise NotUnderstoodError(f"{_EXPECTED_MESSAGES}; {position} has no role")

    name = role.casefold()
    # LangChain uses class names, such as HumanMessage and AIMessageChunk.
    class_name = name.removesuffix("chunk").removesuffix("message")
    return (
        _SPEAKER_BY_ROLE.get(name)
        or _SPEAKER_BY_ROLE.get(class_name)
        or shorten_to_line(role, MAX_NAME_CHARS)
    )


def _find_role(message: Mapping[str, Any]) -> object:
    """Find a message's role, or its type if it has no role."""
    role = next((message[key] for key in _ROLE_KEYS if key in message), None)
    return role if isinstance(role, str) else message.get("type")


def _list_blocks(message: Mapping[str, Any], position: str) -> list[object]:
    """List a message's content blocks. Raises `NotUnderstoodError` if it has no known content."""
    refusal = message.get("refusal")
    refusals: list[object] = []
    if isinstance(refusal, str) and refusal:
        refusals.append({"type": "refusal", "refusal": refusal})

    content_key = next((key for key in _CONTENT_KEYS if message.get(key) is not None), None)
    if content_key is None:
        return _list_blocks_without_content(message, refusals, position)
    content = message[content_key]
    # Messages of Vercel's AI SDK can have an empty `content`, with the real content in `parts`.
    if content == "" and isinstance(message.get("parts"), list):
        content = message["parts"]
    blocks = content if isinstance(content, list) else [content]
    return blocks + refusals


def _list_blocks_without_content(
    message: Mapping[str, Any], refusals: list[object], position: str
) -> list[object]:
    """List a message's blocks if it has no content: its audio's transcript, its refusals, or an empty block.

    Raises `NotUnderstoodError` if the message has none of these, and isn't meant to be empty either.
    """
    audio = message.get("audio")
    if isinstance(audio, dict) and isinstance(audio.get("transcript"), str):
        return [audio["transcript"]]
    if refusals:
        return refusals

    # A message is meant to be empty if its content is null, or if it only calls tools.
    has_null_content = any(key in message for key in _CONTENT_KEYS)
    has_calls = message.get("tool_calls") or message.get("function_call")
    if has_null_content or has_calls:
        return [None]  # a block without text
    raise NotUnderstoodError(
        f"{position}: expected content or parts, got only {_list_keys(message)}"
    )


def _list_calls(message: Mapping[str, Any], position: str) -> list[object]:
    """List the tool calls next to a message's content as `function_call` blocks.

    Raises `NotUnderstoodError` for a call that isn't an object.
    """
    # In the older form, there's a single call.
    calls = message.get("tool_calls") or [message.get("function_call")]
    if not isinstance(calls, list):
        calls = [calls]
    return [_wrap_call(call, position) for call in calls if call is not None]


def _wrap_call(call: object, position: str) -> dict[str, Any]:
    """Wrap a tool call in a `function_call` block. Raises `NotUnderstoodError` if it isn't an object."""
    call_id = None
    function = call
    if isinstance(call, dict):
        call_id = call.get("id")
        function = call.get("function") or call.get("custom") or call

    if not isinstance(function, dict):
        raise NotUnderstoodError(
            f"{position}: expected an object with name and arguments, got {describe_kind(function)}"
        )
    return {"type": "function_call", "id": call_id, "function": function}


def _classify_block(block: object) -> str:
    """Classify a content block as "text", "thought", "call", "result", or "call with result"."""
    if not isinstance(block, dict):
        return "text"
    type_ = str(block.get("type", ""))
    if _is_thought_or_mark(block, type_):
        return "thought"  # nothing in such a block is judged
    if type_ in _TOOL_CALL_TYPES or "functionCall" in block:
        return "call"
    if type_ in _TOOL_RESULT_TYPES or "functionResponse" in block or type_.endswith("_tool_result"):
        return "result"
    if type_.startswith("tool-") or type_ == "dynamic-tool":
        return _classify_ai_sdk_tool(block)
    if type_.endswith("_call_output"):
        return "result"
    return "call" if type_.endswith("_call") else "text"


def _is_thought_or_mark(block: Mapping[str, Any], type_: str) -> bool:
    """Whether a block is a model's thought, or a mark without content, such as "step-start"."""
    return type_ in _THOUGHT_TYPES or type_ in _EMPTY_MARK_TYPES or block.get("thought") is True


def _classify_ai_sdk_tool(block: Mapping[str, Any]) -> str:
    """Classify a tool block of Vercel's AI SDK. A call gets its result in the same block."""
    has_result = block.get("output") is not None or bool(block.get("errorText"))
    return "call with result" if has_result else "call"


def _read_block_text(block: Any, position: str) -> str:  # noqa: ANN401 - whatever JSON can hold
    """Return a content block's text. For other media, return a placeholder such as `[image]`.

    Raises `NotUnderstoodError` for an unknown kind of block.
    """
    if block is None:
        return ""
    if isinstance(block, str):
        return replace_surrogates(block)
    if not isinstance(block, dict):
        raise NotUnderstoodError(
            f"{position}: expected a text or a list of parts as content, got {describe_kind(block)}"
        )

    type_ = str(block.get("type", ""))
    if type_ == "refusal" and isinstance(block.get("refusal"), str):
        return replace_surrogates(block["refusal"])
    medium = _name_medium(block)
    if medium:
        return f"[{medium}]"

    text = _find_text(block)
    if text is not None:
        return replace_surrogates(text)
    raise NotUnderstoodError(
        f"{position}: expected a text, an image, a tool's call or its result, got {_describe_block(block)}"
    )


def _find_text(block: Mapping[str, Any]) -> str | None:
    """Find a content block's text. Returns None if it has none, or might contain more than text."""
    if not _contains_only_text(block):
        return None
    for key in _TEXT_KEYS:
        value = block.get(key)
        if isinstance(value, dict):
            value = value.get("value")  # as in OpenAI's Assistants API
        if isinstance(value, str):
            return value
    return None


def _contains_only_text(block: Mapping[str, Any]) -> bool:
    """Whether a block is marked as text, has a `text`, or has a single value and no type."""
    type_ = str(block.get("type", ""))
    if type_ in ("text", "input_text", "output_text") or "text" in block:
        return True
    return type_ == "" and len(block) == 1


def _describe_block(block: Mapping[str, Any]) -> str:
    """Describe an unknown content block by its type, or by its keys if it has none."""
    type_ = str(block.get("type", ""))
    if type_:
        return f"a part of the type {_clean_name(type_)}"
    keys_of_block = _list_keys(block)
    if keys_of_block:
        return f"an object with the keys {keys_of_block}"
    return "an object with no keys"


def _name_medium(block: Mapping[str, Any]) -> str:
    """Name a content block's medium, such as `image`. Returns "" for text and unknown blocks."""
    for key in ("inlineData", "inline_data", "fileData", "file_data"):
        data = block.get(key)
        if isinstance(data, dict):
            return _name_gemini_medium(data)

    type_ = block.get("type")
    if not type_:
        type_ = next((key for key in ("image_url", "file") if key in block), "")
    type_ = str(type_)
    # Some types have a prefix, as in `input_image`. It's part of the name that we show.
    is_medium = type_.removeprefix("input_").startswith(_OTHER_MEDIA)
    return _clean_name(type_) if is_medium else ""


def _name_gemini_medium(data: Mapping[str, Any]) -> str:
    """Name the medium of Gemini's data by its MIME type: `image` for "image/png"."""
    mime_type = str(data.get("mimeType") or data.get("mime_type") or "file")
    medium, _, _ = mime_type.partition("/")
    return _clean_name(medium)


def _render_result(part: object, position: str) -> str:
    """Render a part of a tool result: its text, or any other value as JSON."""
    if part is None:
        return ""
    if isinstance(part, str):
        return replace_surrogates(part)
    if _is_text_or_medium(part):
        return _read_block_text(part, position)

    if isinstance(part, dict) and list(part) == ["json"]:  # Bedrock's form
        part = part["json"]
    return replace_surrogates(json.dumps(part, ensure_ascii=False))


def _is_text_or_medium(part: object) -> bool:
    """Whether a part is a content block with a text, or with another medium such as an image."""
    if not isinstance(part, dict):
        return False
    return isinstance(part.get("text"), str) or _name_medium(part) != ""


def _find_inner(block: Mapping[str, Any], keys: Sequence[str], position: str) -> Mapping[str, Any]:
    """Return the object nested under the first of `keys` that has a value. Without one, return the block.

    Raises `NotUnderstoodError` if the nested value isn't an object.
    """
    key = next((key for key in keys if block.get(key)), None)
    if key is None:
        return block
    inner = block[key]
    if not isinstance(inner, dict):
        raise NotUnderstoodError(
            f"{position}: expected an object as {key}, got {describe_kind(inner)}"
        )
    return inner


def _read_tool_name(block: Mapping[str, Any]) -> str:
    """Read the tool name in a content block, or return ""."""
    key = next((key for key in ("name", "toolName", "tool_name") if block.get(key)), None)
    if key is not None:
        name = block[key]
        return _clean_name(name) if isinstance(name, str) else ""

    # In the AI SDK, a type such as `tool-search` contains the tool's name. But `tool-call` and `tool-result`
    # are the types of any tool's call and result.
    type_ = str(block.get("type", ""))
    is_for_any_tool = type_ in _TOOL_CALL_TYPES or type_ in _TOOL_RESULT_TYPES
    if is_for_any_tool or not type_.startswith("tool-"):
        return ""
    return _clean_name(type_.removeprefix("tool-"))


def _clean_name(value: object) -> str:
    """Shorten a name to one line. Returns "unknown" if it's empty or not a string."""
    if isinstance(value, str) and value:
        return replace_surrogates(shorten_to_line(value, MAX_NAME_CHARS))
    return "unknown"


def _list_keys(block: Mapping[str, Any]) -> str:
    """List an object's first keys for an error message."""
    names = [shorten_to_line(str(key), MAX_NAME_CHARS) for key in list(block)[:8]]
    return ", ".join(names)

"""Renders a rubric and a subject into messages, with text by people, files or models in a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.judging.documents import PROMPT_CHARS, TASK_ROLES, TURN_CHARS
from judgekit.judging.fence import Fence, assign_labels
from judgekit.providers.base import Message
from judgekit.redaction.lookalikes import undo_lookalikes
from judgekit.text import remove_invisible, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.judging.documents import PromptCandidate, Query, TaskDescription, VisibleFile
    from judgekit.rubric.schema import (
        CompareRubric,
        Given,
        Prompt,
        RatedExample,
        ScoreRubric,
        SelectRubric,
    )

TITLE_CHARS = 200

ANSWER = "Answer with one JSON object and nothing else:"
_PROMPT_TEXTS: dict[str, str] = environment.read_toml(__file__, "prompt.toml")


def write_document_context(
    fence: Fence, files: Sequence[VisibleFile], task: TaskDescription, given: Given
) -> str:
    """Write the task, the sources and the document, each below its heading and inside a fence.

    A fence marks the text as data, not instructions. `given` contains the rubric's headings.
    """
    sources_heading = given.sources
    document_heading = given.text

    blocks = _write_task(fence, task, given)
    if sources_heading:
        # The first file is the document, and the others are its sources.
        judged_files = files[:1]
        blocks += _write_sources(fence, files[1:], sources_heading)
    else:
        judged_files = files
    if document_heading:
        blocks.append(f"{document_heading}:")
    blocks += _fence_files(fence, judged_files)
    return "\n\n".join(blocks)


def _write_task(fence: Fence, task: TaskDescription, given: Given) -> list[str]:
    """Write those parts of the task for which the rubric has a heading."""
    blocks = []
    for role in TASK_ROLES:
        text = getattr(task, role)
        heading = getattr(given, role)
        if text and heading:
            blocks += [f"{heading}:", fence.wrap_text(text, role=role)]
    return blocks


def _write_sources(fence: Fence, sources: Sequence[VisibleFile], heading: str) -> list[str]:
    """Write a document's sources below a heading. Returns [] if there are none."""
    if not sources:
        return []
    return [f"{heading}:", *_fence_files(fence, sources, role="source")]


def _fence_files(fence: Fence, files: Sequence[VisibleFile], **attributes: str) -> Iterator[str]:
    """Yield each file in a fence. If a file is truncated, yield a sentence about that first."""
    for file in files:
        if len(file.text) < file.total_chars:
            yield f"The next text is cut after {len(file.text)} of its {file.total_chars} characters."
        yield fence.wrap_text(file.text, path=file.path, **attributes)


def describe_checked_findings(
    fence: Fence, upheld: Sequence[str], unchecked: Sequence[str]
) -> list[str]:
    """Tell a model the result of a review: the findings that were upheld, and those never checked."""
    heading = _PROMPT_TEXTS["held"] if upheld else _PROMPT_TEXTS["none_held"]
    blocks = [heading, *map(fence.wrap_text, upheld)]
    if unchecked:
        blocks += [_PROMPT_TEXTS["unchecked"], *map(fence.wrap_text, unchecked)]
    return blocks


def score_shape(scores: str) -> str:
    """Write the shape of an answer with these `scores`."""
    return _PROMPT_TEXTS["score_shape"] % scores


def write_review_messages(
    rubric: ScoreRubric,
    files: Sequence[VisibleFile],
    task: TaskDescription,
    findings: Mapping[int, str],
) -> tuple[Message, ...]:
    """Write the prompt that asks a model to check other models' findings about a document.

    `findings` contains the findings' texts by number.
    """
    fence = Fence()
    dimensions = "\n".join(describe_dimension(rubric, name) for name in rubric.dimensions)
    blocks = [
        write_document_context(fence, files, task, rubric.given),
        "What reviewers say they found in it:",
    ]
    for number, text in findings.items():
        blocks += [f"Finding {number}:", fence.wrap_text(text)]

    rules = [
        _PROMPT_TEXTS["review"],
        f"The dimensions that the document is judged by:\n{dimensions}",
    ]
    return build_messages(
        rubric.prompt.system, rules, fence, [*blocks, f"{ANSWER}\n{_PROMPT_TEXTS['review_shape']}"]
    )


def describe_dimension(rubric: ScoreRubric, name: str) -> str:
    """Describe a dimension to a model that writes."""
    dimension = rubric.dimensions[name]
    is_yes_or_no = dimension.scale == "binary"
    return write_dimension_line(name, dimension.question, dimension.look_for, yes_no=is_yes_or_no)


def write_dimension_line(name: str, question: str, look_for: Sequence[str], *, yes_no: bool) -> str:
    """Write a dimension's question as a list item for models. `yes_no` asks for yes or no."""
    text = f"- {name}: {question}"
    if look_for:
        text += f" Look for: {'; '.join(look_for)}."
    if yes_no:
        text += " Answer yes or no."
    return text


def format_rated_examples(rubric: ScoreRubric) -> list[str]:
    """Format the rubric's scored examples as blocks of text, after a heading. Returns [] without examples."""
    examples = rubric.prompt.examples
    if not examples:
        return []
    blocks = [_format_rated_example(example, rubric) for example in examples]
    return ["Examples of how it is rated:", *blocks]


def _format_rated_example(example: RatedExample, rubric: ScoreRubric) -> str:
    """Format an example's texts, followed by its scores."""
    texts = _list_example_texts(example, rubric.given)
    scores = ", ".join(f"{name} {example.scores[name]}" for name in rubric.dimensions)
    return "\n".join(["<example>", *texts, "</example>", f"Rated: {scores}"])


def _list_example_texts(example: RatedExample, headings: Given) -> list[str]:
    """List an example's texts, each with the rubric's heading for it, such as "Request: Write a poem"."""
    texts = []
    for role in TASK_ROLES:
        heading = getattr(headings, role)
        text = getattr(example, role)
        if heading and text:
            texts.append(f"{heading}: {text}")

    file_heading = headings.sources or "Another file"
    for text in example.files.values():
        texts.append(f"{file_heading}: {text}")

    if headings.text:
        texts.append(f"{headings.text}: {example.text}")
    else:
        texts.append(example.text)
    return texts


def write_candidates_context(fence: Fence, query: Query, listing: str) -> str:
    """Write the request, followed by the listing that `list_candidates` makes."""
    blocks = [
        write_query_context(fence, query),
        "The memories, each after its label in brackets:",
        fence.wrap_text(listing),
    ]
    return "\n\n".join(blocks)


def list_candidates(
    query: Query, candidates: Sequence[PromptCandidate]
) -> tuple[str, dict[str, str]]:
    """Write a list of the candidates, each with a label. Returns the list and the labels by id."""
    text_by_id = {candidate.id: _write_list_item(candidate) for candidate in candidates}

    # A text that contains a label could pose as another candidate, so choose labels that are in no text.
    shown_text = "\n".join([query.text, *query.turns, *text_by_id.values()])
    label_by_id = assign_labels(query.text, list(text_by_id), shown_text)

    items = []
    for candidate_id, label in label_by_id.items():
        items.append(f"[{label}] {text_by_id[candidate_id]}")
    return "\n\n".join(items), label_by_id


def _write_list_item(candidate: PromptCandidate) -> str:
    """Write a candidate's text as a list item."""
    plain_text = undo_lookalikes(write_candidate_text(candidate))
    first_line, *more_lines = remove_invisible(plain_text).split("\n")
    # Without the indentation, a line could pose as the start of another candidate.
    indented_lines = [f"  {line}".rstrip() for line in more_lines]
    return "\n".join([first_line, *indented_lines])


def pair_context(fence: Fence, question: str, texts: Sequence[VisibleFile]) -> str:
    """Write the two texts, each labelled with its path, after the prompt they answer (if there's one)."""
    blocks = []
    if question.strip():
        blocks = ["The prompt that both texts answer:", fence.wrap_text(question)]
    for text in texts:
        blocks += [f"The text {text.path}:", *_fence_files(fence, [text])]
    return "\n\n".join(blocks)


def score_agent_text(rubric: ScoreRubric, mode: ModeName) -> str:
    """Write a scoring rubric as instructions for an agent that judges documents itself."""
    instructions = rubric.prompt.instructions.deep  # no tier comes after the agent
    dimensions = [describe_dimension(rubric, name) for name in rubric.dimensions]
    questions_and_examples = ["Dimensions:", *dimensions]
    if rubric.prompt.few_shot:
        questions_and_examples += format_rated_examples(rubric)
    rules = _describe_rules(rubric, mode)
    return _join_agent_text(rubric.prompt, instructions, questions_and_examples, rules)


def select_agent_text(rubric: SelectRubric, mode: ModeName) -> str:
    """Write a rubric for memories as instructions for an agent that selects them itself."""
    instructions = rubric.prompt.instructions.deep
    if mode == "lenient":
        # No tier confirms what the agent drops, and with the deep instructions it would drop too much.
        instructions = rubric.prompt.instructions.quick

    questions = ["Questions, asked of each memory:"]
    questions += [f"- {getattr(text, mode)}" for text in rubric.criteria.values()]
    needed_questions = _describe_needed_questions(rubric, mode)
    rule = _PROMPT_TEXTS["agent_select"] % needed_questions
    return _join_agent_text(rubric.prompt, instructions, questions, [rule])


def compare_agent_text(rubric: CompareRubric) -> str:
    """Write a comparing rubric as instructions for an agent that compares two texts itself."""
    instructions = rubric.prompt.instructions.deep  # no tier comes after the agent
    questions = ["Questions, the most important first:"]
    questions += [f"- {criterion}" for criterion in rubric.criteria.values()]
    rules = [_PROMPT_TEXTS["agent_compare"]]
    return _join_agent_text(rubric.prompt, instructions, questions, rules)


def _join_agent_text(
    texts: Prompt, instructions: str, questions: Sequence[str], rules: Sequence[str]
) -> str:
    """Join the parts of the instructions for an agent that does the judging."""
    return "\n\n".join(
        [texts.system, instructions, "\n".join(questions), *rules, _PROMPT_TEXTS["agent_fence"]]
    )


def _describe_needed_questions(rubric: SelectRubric, mode: ModeName) -> str:
    """Describe which questions must be answered with yes to keep a memory."""
    if len(rubric.criteria) == 1:
        return "the question"
    if getattr(rubric.modes, mode).keep == "all":
        return "every question"
    return "at least one question"


def _describe_rules(rubric: ScoreRubric, mode: ModeName) -> list[str]:
    """Describe a rubric's scale, its thresholds, and the expected answer, in words for an agent."""
    answer = "what decided each score, the scores, the findings with exact quotes, and the verdict"
    return [
        _describe_scale(rubric),
        _describe_thresholds(rubric, mode),
        f"Answer with {answer}.",
    ]


def _describe_scale(rubric: ScoreRubric) -> str:
    """Describe each value of the scale, and what yes and no count."""
    scale = rubric.scale
    lines = ["Scale, the same for every dimension:"]
    for value, label in sorted(scale.labels.items()):
        lines.append(f"{value}: {label}")
    has_yes_no_dimension = any(
        dimension.scale == "binary" for dimension in rubric.dimensions.values()
    )
    if has_yes_no_dimension:
        lines.append(f"A yes counts as {scale.max}, a no as {scale.min}.")
    return "\n".join(lines)


def _describe_thresholds(rubric: ScoreRubric, mode: ModeName) -> str:
    """Describe which scores lead to which verdict."""
    thresholds = getattr(rubric.modes, mode)
    accept = f"every score is at least {thresholds.accept.each:g}"
    if thresholds.accept.mean is not None:
        weights = _describe_weights(rubric)
        accept += f" and their mean{weights} is at least {thresholds.accept.mean:g}"
    reject = f"any score is below {thresholds.reject.any_below:g}"
    return f"Accept when {accept}. Reject when {reject}. Otherwise the verdict is improve."


def _describe_weights(rubric: ScoreRubric) -> str:
    """Describe the weights of scores, such as ", weighted style 1, accuracy 2,". Returns "" if all are 1."""
    weights = {name: dimension.weight for name, dimension in rubric.dimensions.items()}
    is_unweighted = set(weights.values()) == {1}
    if is_unweighted:
        return ""
    listed = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    return f", weighted {listed},"


def write_query_context(fence: Fence, query: Query) -> str:
    """Write the conversation so far, if any, and the request."""
    blocks = []
    if query.turns:
        talk = "\n".join(shorten_to_line(turn, TURN_CHARS) for turn in query.turns)
        blocks += ["The conversation so far:", fence.wrap_text(talk)]
    blocks += ["The request:", fence.wrap_text(query.text[:PROMPT_CHARS])]
    return "\n\n".join(blocks)


def write_candidate_context(fence: Fence, candidate: PromptCandidate, query: Query) -> str:
    """Write a candidate and the request."""
    # Pointwise models read them best in this order.
    memory = fence.wrap_text(write_candidate_text(candidate))
    return f"A stored memory:\n\n{memory}\n\n{write_query_context(fence, query)}"


def write_candidate_text(candidate: PromptCandidate) -> str:
    """Write a candidate's heading, followed by its text if there's any."""
    heading = shorten_to_line(candidate.title, TITLE_CHARS)
    if candidate.category:
        heading = f"{shorten_to_line(candidate.category, 40)}: {heading}"
    if candidate.tags:
        heading += f" (tags: {shorten_to_line(', '.join(candidate.tags), 120)})"
    if candidate.text:
        return f"{heading}\n{candidate.text}"
    return heading


def build_messages(
    system: str, rules: Sequence[str], fence: Fence, blocks: Sequence[str]
) -> tuple[Message, ...]:
    """Build the prompt: trusted text goes into the system message, all other text into the user's message."""
    trusted = "\n\n".join([system, *rules]) + "\n\n"
    # The guard, which explains the fence, contains a nonce, so it comes last, and servers can cache the rest.
    system_message = Message("system", f"{trusted}{fence.guard}", stable_chars=len(trusted))
    user_message = Message("user", "\n\n".join(blocks))
    return system_message, user_message

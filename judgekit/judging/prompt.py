"""Renders a rubric and a subject into messages, with text by people, files or models in a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.judging.documents import PROMPT_CHARS, TASK_ROLES, TURN_CHARS
from judgekit.judging.fence import Fence, labels
from judgekit.providers.base import Message
from judgekit.redaction.lookalikes import plain
from judgekit.text import short_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.judging.documents import PromptCandidate, Query, TaskDescription, VisibleFile
    from judgekit.rubric.schema import (
        CompareRubric,
        Given,
        Prompt,
        ScoreRubric,
        SelectRubric,
    )

TITLE_CHARS = 200

ANSWER = "Answer with one JSON object and nothing else:"
_WORDS: dict[str, str] = environment.read_toml(__file__, "prompt.toml")


def document_context(
    fence: Fence, files: Sequence[VisibleFile], task: TaskDescription, given: Given
) -> str:
    """Write the task, the sources and the document, each below the rubric's heading and inside a fence.

    A fence marks the text as data, not instructions. `given` contains the rubric's headings.
    """
    # Only include the parts of the task for which the rubric has a heading.
    blocks = []
    for role in TASK_ROLES:
        text = getattr(task, role)
        heading = getattr(given, role)
        if text and heading:
            blocks += [f"{heading}:", fence.around(text, role=role)]

    # If the rubric has a heading for sources, the first file is the document, and the others are its sources.
    judged_files = files
    if given.sources:
        judged_files = files[:1]
        sources = files[1:]
        if sources:
            blocks += [f"{given.sources}:", *_fence_files(fence, sources, role="source")]

    if given.text:
        blocks.append(f"{given.text}:")
    return "\n\n".join([*blocks, *_fence_files(fence, judged_files)])


def _fence_files(fence: Fence, files: Sequence[VisibleFile], **attributes: str) -> Iterator[str]:
    """Yield each file in a fence. If a file is truncated, yield a sentence about that first."""
    for file in files:
        if len(file.text) < file.total:
            yield f"The next text is cut after {len(file.text)} of its {file.total} characters."
        yield fence.around(file.text, path=file.path, **attributes)


def checked_findings(fence: Fence, upheld: Sequence[str], unchecked: Sequence[str]) -> list[str]:
    """Describe a review's result for models: the findings that were upheld, and those never checked."""
    blocks = [_WORDS["held"] if upheld else _WORDS["none_held"], *map(fence.around, upheld)]
    if unchecked:
        blocks += [_WORDS["unchecked"], *map(fence.around, unchecked)]
    return blocks


def score_shape(scores: str) -> str:
    """Write the shape of an answer with these `scores`."""
    return _WORDS["score_shape"] % scores


def review_messages(
    rubric: ScoreRubric,
    files: Sequence[VisibleFile],
    task: TaskDescription,
    findings: Mapping[int, str],
) -> tuple[Message, ...]:
    """Write the prompt that asks a model to check other models' findings about a document.

    `findings` contains the findings' texts by number.
    """
    fence = Fence()
    dimensions = "\n".join(dimension_text(rubric, name) for name in rubric.dimensions)
    blocks = [
        document_context(fence, files, task, rubric.given),
        "What reviewers say they found in it:",
    ]
    for number, text in findings.items():
        blocks += [f"Finding {number}:", fence.around(text)]

    rules = [_WORDS["review"], f"The dimensions that the document is judged by:\n{dimensions}"]
    return messages(
        rubric.prompt.system, rules, fence, [*blocks, f"{ANSWER}\n{_WORDS['review_shape']}"]
    )


def dimension_text(rubric: ScoreRubric, name: str) -> str:
    """Describe a dimension to a model that writes."""
    dimension = rubric.dimensions[name]
    is_yes_or_no = dimension.scale == "binary"
    return dimension_line(name, dimension.question, dimension.look_for, yes_no=is_yes_or_no)


def dimension_line(name: str, question: str, look_for: Sequence[str], *, yes_no: bool) -> str:
    """Write a dimension's question as a list item for models. `yes_no` asks for yes or no."""
    text = f"- {name}: {question}"
    if look_for:
        text += f" Look for: {'; '.join(look_for)}."
    if yes_no:
        text += " Answer yes or no."
    return text


def rated_examples(rubric: ScoreRubric) -> list[str]:
    """Format the rubric's scored examples as blocks of text, after a heading. Returns [] without examples."""
    if not rubric.prompt.examples:
        return []

    headings = rubric.given  # the rubric's names for the parts of a task
    examples = ["Examples of how it is rated:"]
    for example in rubric.prompt.examples:
        blocks = ["<example>"]  # the lines of this example
        for role in TASK_ROLES:
            heading = getattr(headings, role)
            text = getattr(example, role)
            if heading and text:
                blocks.append(f"{heading}: {text}")
        for text in example.files.values():
            blocks.append(f"{headings.sources or 'Another file'}: {text}")
        blocks.append(f"{headings.text}: {example.text}" if headings.text else example.text)
        scores = ", ".join(f"{name} {example.scores[name]}" for name in rubric.dimensions)
        examples.append("\n".join([*blocks, "</example>", f"Rated: {scores}"]))
    return examples


def candidates_context(fence: Fence, query: Query, listing: str) -> str:
    """Write the request, followed by the listing that `list_candidates` makes."""
    blocks = [
        query_context(fence, query),
        "The memories, each after its label in brackets:",
        fence.around(listing),
    ]
    return "\n\n".join(blocks)


def list_candidates(
    query: Query, candidates: Sequence[PromptCandidate]
) -> tuple[str, dict[str, str]]:
    """Write a list of the candidates, each with a label. Returns the list and the labels by id."""
    candidate_texts = {}  # by id: the text as it appears in the list
    for candidate in candidates:
        harmless_text = visible(plain(candidate_text(candidate)))
        first_line, *more_lines = harmless_text.split("\n")
        # Indent all lines but the first, so that none can pose as another candidate.
        indented_lines = [f"  {line}".rstrip() for line in more_lines]
        candidate_texts[candidate.id] = "\n".join([first_line, *indented_lines])

    # Choose labels that aren't in any text, because a text with a label could pose as another candidate.
    shown_text = "\n".join([query.text, *query.turns, *candidate_texts.values()])
    labels_by_id = labels(query.text, list(candidate_texts), shown_text)
    listing = "\n\n".join(
        f"[{label}] {candidate_texts[name]}" for name, label in labels_by_id.items()
    )
    return listing, labels_by_id


def pair_context(fence: Fence, question: str, texts: Sequence[VisibleFile]) -> str:
    """Write a question (if there's one) and the texts that answer it. Each text's path is its label."""
    blocks = []
    if question.strip():
        blocks = ["The prompt that both texts answer:", fence.around(question)]
    for text in texts:
        blocks += [f"The text {text.path}:", *_fence_files(fence, [text])]
    return "\n\n".join(blocks)


def score_agent_text(rubric: ScoreRubric, mode: ModeName) -> str:
    """Write a scoring rubric as instructions for an agent that judges documents itself."""
    questions = ["Dimensions:", *(dimension_text(rubric, name) for name in rubric.dimensions)]
    if rubric.prompt.few_shot:
        questions += rated_examples(rubric)
    rules = _describe_rules(rubric, mode)
    return _join_agent_text(rubric.prompt, rubric.prompt.instructions.deep, questions, rules)


def select_agent_text(rubric: SelectRubric, mode: ModeName) -> str:
    """Write a rubric for memories as instructions for an agent that selects them itself."""
    # In lenient mode, the deep instructions would drop too many memories, because no tier confirms the agent.
    instructions = rubric.prompt.instructions.deep
    if mode == "lenient":
        instructions = rubric.prompt.instructions.quick
    questions = ["Questions, asked of each memory:"]
    questions += [f"- {getattr(text, mode)}" for text in rubric.criteria.values()]
    rules = [_WORDS["agent_select"] % _describe_needed_questions(rubric, mode)]
    return _join_agent_text(rubric.prompt, instructions, questions, rules)


def compare_agent_text(rubric: CompareRubric) -> str:
    """Write a comparing rubric as instructions for an agent that compares two texts itself."""
    questions = ["Questions, the most important first:"]
    questions += [f"- {criterion}" for criterion in rubric.criteria.values()]
    instructions = rubric.prompt.instructions.deep
    return _join_agent_text(rubric.prompt, instructions, questions, [_WORDS["agent_compare"]])


def _join_agent_text(
    texts: Prompt, instructions: str, questions: Sequence[str], rules: Sequence[str]
) -> str:
    """Join the parts of the instructions for an agent that judges itself."""
    return "\n\n".join(
        [texts.system, instructions, "\n".join(questions), *rules, _WORDS["agent_fence"]]
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
    scale = ["Scale, the same for every dimension:"]
    for value, label in sorted(rubric.scale.labels.items()):
        scale.append(f"{value}: {label}")
    if any(dimension.scale for dimension in rubric.dimensions.values()):
        scale.append(f"A yes counts as {rubric.scale.max}, a no as {rubric.scale.min}.")

    thresholds = getattr(rubric.modes, mode)
    accept = f"every score is at least {thresholds.accept.each:g}"
    if thresholds.accept.mean is not None:
        mean = f"their mean{_describe_weights(rubric)} is at least {thresholds.accept.mean:g}"
        accept = f"{accept} and {mean}"
    reject = f"any score is below {thresholds.reject.any_below:g}"

    answer = "what decided each score, the scores, the findings with exact quotes, and the verdict"
    return [
        "\n".join(scale),
        f"Accept when {accept}. Reject when {reject}. Otherwise the verdict is improve.",
        f"Answer with {answer}.",
    ]


def _describe_weights(rubric: ScoreRubric) -> str:
    """Describe the weights of scores as an insertion between commas, or return "" if they're equal."""
    weights = {name: dimension.weight for name, dimension in rubric.dimensions.items()}
    if set(weights.values()) == {1}:
        return ""
    listed = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    return f", weighted {listed},"


def query_context(fence: Fence, query: Query) -> str:
    """Write the conversation so far, if any, and the request."""
    blocks = []
    if query.turns:
        talk = "\n".join(short_line(turn, TURN_CHARS) for turn in query.turns)
        blocks += ["The conversation so far:", fence.around(talk)]
    blocks += ["The request:", fence.around(query.text[:PROMPT_CHARS])]
    return "\n\n".join(blocks)


def candidate_context(fence: Fence, candidate: PromptCandidate, query: Query) -> str:
    """Write a candidate and the request."""
    # Pointwise models read them best in this order.
    memory = fence.around(candidate_text(candidate))
    return f"A stored memory:\n\n{memory}\n\n{query_context(fence, query)}"


def candidate_text(candidate: PromptCandidate) -> str:
    """Write a candidate's heading, followed by its text if there's any."""
    heading = short_line(candidate.title, TITLE_CHARS)
    if candidate.category:
        heading = f"{short_line(candidate.category, 40)}: {heading}"
    if candidate.tags:
        heading += f" (tags: {short_line(', '.join(candidate.tags), 120)})"
    if candidate.text:
        return f"{heading}\n{candidate.text}"
    return heading


def messages(
    system: str, rules: Sequence[str], fence: Fence, blocks: Sequence[str]
) -> tuple[Message, ...]:
    """Build the prompt: trusted text goes into the system message, all other text into the user's message."""
    # The guard explains the fence. It contains a nonce, so it comes last, and servers can cache the rest.
    trusted = "\n\n".join([system, *rules]) + "\n\n"
    system_message = Message("system", f"{trusted}{fence.guard}", len(trusted))
    return system_message, Message("user", "\n\n".join(blocks))

"""Renders a rubric and a subject into messages: what a person, a file or a model wrote is in a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from judgekit import environment
from judgekit.judging.documents import PROMPT_CHARS, TASK_ROLES, TURN_CHARS
from judgekit.judging.fence import Fence, labels
from judgekit.providers.base import Message
from judgekit.redaction.lookalikes import plain
from judgekit.rubric.schema import (
    CompareRubric,
    Dimension,
    Given,
    Rubric,
    ScoreRubric,
    SelectRubric,
)
from judgekit.text import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.documents import Part, PromptCandidate, Query, TaskDescription
    from judgekit.judging.jury import Opinion

TITLE_CHARS = 200

ANSWER = "Answer with one JSON object and nothing else:"
_WORDS: dict[str, str] = environment.table(__file__, "prompt.toml")


def document_context(
    fence: Fence, parts: Sequence[Part], task: TaskDescription, given: Given
) -> str:
    """Return the fenced document, its task and its sources before it; a rubric's `given` has the headings."""
    blocks = []
    for role in TASK_ROLES:
        text = getattr(task, role)
        if text and (heading := getattr(given, role)):
            blocks += [f"{heading}:", fence.around(text, role=role)]
    if given.sources:
        texts = parts[:1]
        sources = parts[1:]
    else:
        texts = parts
        sources = ()
    if sources:
        blocks += [f"{given.sources}:", *_fenced(fence, sources, role="source")]
    if given.text:
        blocks.append(f"{given.text}:")
    return "\n\n".join([*blocks, *_fenced(fence, texts)])


def _fenced(fence: Fence, parts: Sequence[Part], **attributes: str) -> Iterator[str]:
    for part in parts:
        if len(part.text) < part.total:
            yield f"The next text is cut after {len(part.text)} of its {part.total} characters."
        yield fence.around(part.text, path=part.path, **attributes)


def score_messages(
    rubric: ScoreRubric,
    tier: TierName,
    parts: Sequence[Part],
    task: TaskDescription,
    earlier: Sequence[Opinion] = (),
    findings: tuple[Sequence[str], Sequence[str]] | None = None,
) -> tuple[Message, ...]:
    """Return the request to score a document; of `earlier` opinions the tiebreaker sees no authors."""
    fence = Fence()
    points = "\n".join(
        f"  {value}: {label}" for value, label in sorted(rubric.scale.labels.items())
    )
    dimensions = "\n".join(dimension_text(rubric, name) for name in rubric.dimensions)
    binary = [name for name, dimension in rubric.dimensions.items() if dimension.scale]
    kinds = {
        name: '"<yes or no>"' if name in binary else "<whole number>" for name in rubric.dimensions
    }
    scores = ", ".join(f'"{name}": {kind}' for name, kind in kinds.items())
    rules = [getattr(rubric.prompt.instructions, tier), f"Dimensions:\n{dimensions}"]
    if len(binary) < len(kinds):
        others = " that is not answered yes or no" if binary else ""
        rules.append(f"Scale, the same for every dimension{others}:\n{points}")
    if rubric.prompt.few_shot:
        rules += _examples(rubric)
    blocks = [document_context(fence, parts, task, rubric.given)]
    if earlier:
        blocks.append("Earlier assessments, in no order:")
    words = {}
    for name in binary:
        for word, point in rubric.scale.answers.items():
            words[(name, float(point))] = word
    for opinion in earlier:
        given = []
        for name, score in opinion.scores.items():
            given.append(f"{name} {words.get((name, score), f'{score:g}')}")
        blocks.append(fence.around(f"{', '.join(given)}\n{opinion.reasoning}"))
    if findings is not None:
        upheld, unchecked = findings
        blocks += [_WORDS["held"] if upheld else _WORDS["none_held"], *map(fence.around, upheld)]
        blocks += [_WORDS["unchecked"], *map(fence.around, unchecked)] if unchecked else []
    blocks.append(f"{ANSWER}\n{_WORDS['score_shape'] % scores}")
    return messages(rubric.prompt.system, rules, fence, blocks)


def review_messages(
    rubric: ScoreRubric, parts: Sequence[Part], task: TaskDescription, findings: Mapping[int, str]
) -> tuple[Message, ...]:
    """Return the request to check what others found in a document, by number."""
    fence = Fence()
    dimensions = "\n".join(dimension_text(rubric, name) for name in rubric.dimensions)
    blocks = [
        document_context(fence, parts, task, rubric.given),
        "What reviewers say they found in it:",
    ]
    for number, text in findings.items():
        blocks += [f"Finding {number}:", fence.around(text)]
    rules = [_WORDS["review"], f"The dimensions that the document is judged by:\n{dimensions}"]
    return messages(
        rubric.prompt.system, rules, fence, [*blocks, f"{ANSWER}\n{_WORDS['review_shape']}"]
    )


def dimension_text(rubric: ScoreRubric, name: str) -> str:
    dimension = rubric.dimensions[name]
    if dimension.look_for:
        looks = f" Look for: {'; '.join(dimension.look_for)}."
    else:
        looks = ""
    return f"- {name}: {dimension.question}{looks}{' Answer yes or no.' if dimension.scale else ''}"


def rating_system(rubric: ScoreRubric, fence: Fence) -> str:
    """Return a pointwise model's system prompt; the nonce comes last, so that servers can cache the rest."""
    if not rubric.prompt.examples:
        return f"{rubric.prompt.system} {fence.guard}"
    return "\n\n".join([rubric.prompt.system, *_examples(rubric), fence.guard])


def _examples(rubric: ScoreRubric) -> list[str]:
    given = rubric.given
    rated = ["Examples of how it is rated:"]
    for example in rubric.prompt.examples:
        blocks = ["<example>"]
        told = [(getattr(given, role), getattr(example, role)) for role in TASK_ROLES]
        blocks += [f"{heading}: {text}" for heading, text in told if heading and text]
        blocks += [f"{given.sources or 'Another file'}: {text}" for text in example.files.values()]
        blocks.append(f"{given.text}: {example.text}" if given.text else example.text)
        scores = ", ".join(f"{name} {example.scores[name]}" for name in rubric.dimensions)
        rated.append("\n".join([*blocks, "</example>", f"Rated: {scores}"]))
    return rated


def idle_question(rubric: ScoreRubric, scale: Literal["binary"] | None = None) -> str:
    """Return a question like `rating_question`, about a subject that hardly any text has."""
    look_for = ["its length", "its source", "the countries it flows through"]
    question = "Does the text describe the river Danube well?"
    return rating_question(rubric, Dimension(question=question, look_for=look_for, scale=scale))


def rating_question(rubric: ScoreRubric, dimension: Dimension) -> str:
    """Return the question that a pointwise model answers with one number, or yes or no: short, two labels."""
    if dimension.look_for:
        looks = f" A good text has: {'; '.join(dimension.look_for)}."
    else:
        looks = ""
    if dimension.scale:
        return f"{dimension.question}{looks}\nAnswer with one word, yes or no."
    scale = rubric.scale
    low, high = (f"{point} ({scale.labels[point]})" for point in (scale.min, scale.max))
    return f"{dimension.question}{looks}\nRate the text above from {low} to {high}. Answer with one number."


def select_messages(
    rubric: SelectRubric,
    mode: ModeName,
    tier: TierName,
    query: Query,
    shown: Sequence[PromptCandidate],
) -> tuple[tuple[Message, ...], dict[str, str]]:
    fence = Fence()
    texts = {}
    for candidate in shown:
        lines = visible(plain(candidate_text(candidate))).split("\n")
        # The lines after its first one are moved in: none passes for the next candidate.
        texts[candidate.id] = "\n".join([lines[0], *(f"  {line}".rstrip() for line in lines[1:])])
    by_id = labels(query.text, list(texts), "\n".join([query.text, *query.turns, *texts.values()]))
    listing = "\n\n".join(f"[{label}] {texts[name]}" for name, label in by_id.items())
    questions = "\n".join(
        f"- {name}: {getattr(text, mode)}" for name, text in rubric.criteria.items()
    )
    if len(rubric.criteria) == 1:
        keys = ["keep"]
    else:
        keys = list(rubric.criteria)
    answer = ", ".join(f'"{key}": ["<label>", …]' for key in keys)
    rules = [
        getattr(rubric.prompt.instructions, tier),
        f"Question, asked of each memory:\n{questions}",
    ]
    blocks = [
        query_context(fence, query),
        "The memories, each after its label in brackets:",
        fence.around(listing),
        f"{ANSWER}\n{{{answer}}}",
    ]
    sent = messages(rubric.prompt.system, rules, fence, blocks)
    return sent, {label: name for name, label in by_id.items()}


def pair_context(fence: Fence, question: str, shown: Sequence[Part]) -> str:
    """Return the fenced prompt, where there is one, and the texts that answer it; their paths are labels."""
    if question.strip():
        blocks = ["The prompt that both texts answer:", fence.around(question)]
    else:
        blocks = []
    for part in shown:
        blocks += [f"The text {part.path}:", *_fenced(fence, [part])]
    return "\n\n".join(blocks)


def rubric_text(rubric: Rubric, mode: ModeName) -> str:
    """Return the rubric, with its thresholds in words, as instructions for an agent that judges by itself."""
    instructions = rubric.prompt.instructions
    first = instructions.deep
    if isinstance(rubric, CompareRubric):
        questions = [
            "Questions, the most important first:",
            *map("- {}".format, rubric.criteria.values()),
        ]
        rules = [_WORDS["agent_compare"]]
    elif isinstance(rubric, SelectRubric):
        # The agent reads once and nobody confirms: the deep instruction would hide memories.
        first = instructions.quick if mode == "lenient" else first
        questions = []
        for name, text in rubric.criteria.items():
            questions.append(f"- {name}: {getattr(text, mode)}")
        if getattr(rubric.modes, mode).keep == "all":
            every = "every question"
        else:
            every = "at least one question"
        rules = [_WORDS["agent_select"] % (every if len(questions) > 1 else "the question")]
        questions = ["Questions, asked of each memory:", *questions]
    else:
        questions = ["Dimensions:", *(dimension_text(rubric, name) for name in rubric.dimensions)]
        points = []
        for value, label in sorted(rubric.scale.labels.items()):
            points.append(f"{value}: {label}")
        accept = getattr(rubric.modes, mode).accept
        reject = getattr(rubric.modes, mode).reject
        weights = {name: each.weight for name, each in rubric.dimensions.items()}
        told = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
        if {*weights.values()} != {1}:
            weighted = f", weighted {told},"
        else:
            weighted = ""
        if accept.mean is None:
            mean = ""
        else:
            mean = f" and their mean{weighted} is at least {accept.mean:g}"
        if any(each.scale for each in rubric.dimensions.values()):
            points.append(f"A yes counts as {rubric.scale.max}, a no as {rubric.scale.min}.")
        if rubric.prompt.few_shot:
            questions += _examples(rubric)
        good = f"every score is at least {accept.each:g}{mean}"
        bad = f"any score is below {reject.any_below:g}"
        answer = (
            "what decided each score, the scores, the findings with exact quotes, and the verdict"
        )
        rules = [
            "\n".join(["Scale, the same for every dimension:", *points]),
            f"Accept when {good}. Reject when {bad}. Otherwise the verdict is improve.",
            f"Answer with {answer}.",
        ]
    return "\n\n".join(
        [rubric.prompt.system, first, "\n".join(questions), *rules, _WORDS["agent_fence"]]
    )


def query_context(fence: Fence, query: Query) -> str:
    blocks = []
    if query.turns:
        talk = "\n".join(one_line(turn, TURN_CHARS) for turn in query.turns)
        blocks += ["The conversation so far:", fence.around(talk)]
    blocks += ["The request:", fence.around(query.text[:PROMPT_CHARS])]
    return "\n\n".join(blocks)


def candidate_context(fence: Fence, candidate: PromptCandidate, query: Query) -> str:
    """Return one candidate and then the request, for a pointwise model, which reads them best like that."""
    memory = fence.around(candidate_text(candidate))
    return f"A stored memory:\n\n{memory}\n\n{query_context(fence, query)}"


def candidate_text(candidate: PromptCandidate) -> str:
    head = one_line(candidate.title, TITLE_CHARS)
    if candidate.category:
        head = f"{one_line(candidate.category, 40)}: {head}"
    if candidate.tags:
        head += f" (tags: {one_line(', '.join(candidate.tags), 120)})"
    if candidate.text:
        return f"{head}\n{candidate.text}"
    return head


def messages(
    system: str, rules: Sequence[str], fence: Fence, blocks: Sequence[str]
) -> tuple[Message, ...]:
    """Return trusted text as system message, its nonce last for caches, and the fenced rest as the user's."""
    trusted = "\n\n".join([system, *rules]) + "\n\n"
    return Message("system", f"{trusted}{fence.guard}", len(trusted)), Message(
        "user", "\n\n".join(blocks)
    )

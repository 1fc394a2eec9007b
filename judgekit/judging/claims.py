"""Checks a text against its sources: code splits it into claims, and a decision model decides each one.

A rubric asks for it with `check: claims` on a dimension. An unsupported claim becomes a finding with the
claim as its quote, so there's a reason although the model wrote no word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from judgekit import environment
from judgekit.judging.findings import MAX_FINDINGS
from judgekit.judging.jury import EVEN
from judgekit.judging.verdict import Finding
from judgekit.providers.decisions import YES, DecisionQuestion
from judgekit.text import lines_of, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.judging.fence import Fence
    from judgekit.rubric.schema import ScoreRubric

_WORDS: Final[dict[str, str]] = environment.read_toml(__file__, "claims.toml")
_LOCKED_QUESTION: Final = _WORDS["locked_question"]
_LOCKED_TERMS: Final = frozenset(_WORDS["locked_terms"].split())
_ABBREVIATIONS: Final = frozenset(_WORDS["abbreviations"].split())
_BEFORE_NUMBERS: Final = frozenset(_WORDS["before_numbers"].split())
_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})")
_MARKER: Final = re.compile(r"[ \t]*(?:[-*+\u2022\u2013]|\d{1,3}[.)]|[A-Za-z]\))[ \t]+")
_HEADING: Final = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+")
_QUOTING: Final = re.compile(r"[ \t]*>[ \t]?")
_RULE: Final = re.compile(r"[ \t|:=*_+-]+")  # between columns, or under a heading
_CLOSING: Final = "\"'\u2019\u201d\u00bb)\\]\\}*_\u300d\u300f\uff09\u3011"
_END: Final = re.compile(
    rf"[.!?\u2026]{{1,9}}[{_CLOSING}]{{0,9}}(?=\s)"
    rf"|[\u3002\uff01\uff1f\uff61\u0964\u0965\u06d4\u061f\u1362][{_CLOSING}]{{0,9}}"
)
_LONGEST_ABBREVIATION: Final = 12
_LAST_WORD: Final = re.compile(rf"[^\s(\[{{\"'\u201c\u201e]{{1,{_LONGEST_ABBREVIATION}}}$")
_NEXT: Final = re.compile(r"\s*(\S?)")
_DAY: Final = re.compile(r"\d{1,2}")  # before a dot, part of a date


class Claim(NamedTuple):
    """A sentence, item, row or code block, exactly as in the text.

    `lead` is the heading or introduction it belongs to, since an item alone states only half of its claim.
    """

    quote: str
    lead: str = ""

    @property
    def words(self) -> str:
        return f"{self.lead} {self.quote}" if self.lead else self.quote


# --- Splitting a text


def split_claims(text: str) -> list[Claim]:
    """Split a text into claims: its sentences and list items, in order and without losing any word.

    A lead is text that introduces a claim, such as a heading. It belongs to all items of the list that
    follows, or to the next sentence. If nothing follows, the lead is a claim itself.
    """
    claims: list[Claim] = []
    lead = ""  # the lead of the next claim
    is_lead_unused = False
    is_in_list = False
    for block in _split_blocks(text):
        if block.kind == "lead":
            # Join a lead with the next one, such as a heading with an introduction.
            lead = f"{lead} {block.text}" if is_lead_unused else block.text
            is_lead_unused = True
            is_in_list = False
            continue

        is_item = block.kind == "item"
        if is_in_list and not is_item:
            lead = ""  # the list has ended
        is_in_list = is_item
        for sentence in _split_sentences(block):
            claims.append(Claim(sentence, lead))
            is_lead_unused = False
            if not is_item:  # the lead only belongs to the first sentence
                lead = ""

    if is_lead_unused:
        claims.append(Claim(lead))
    # Skip claims without any letter or digit, such as a line of dashes.
    return [claim for claim in claims if any(map(str.isalnum, claim.quote))]


class _Block(NamedTuple):
    """Lines that belong together: a `lead`, an `item` (of a list or table), `code`, or else `prose`."""

    kind: str
    text: str


def _split_blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of a text, in order."""
    # The current block
    block_lines: list[str] = []
    kind = "prose"
    open_fence = ""  # the mark that opened a code block

    lines = lines_of(text)
    next_lines = [*lines, ""][1:]  # nothing comes after the last line
    for whole_line, next_line in zip(lines, next_lines, strict=True):
        fence = _FENCE.match(whole_line)
        if open_fence:
            if fence and fence[1].startswith(open_fence):
                yield from _end_block("code", block_lines)
                block_lines = []
                kind = "prose"
                open_fence = ""
            else:
                block_lines.append(whole_line)
            continue

        line = _without_mark(_QUOTING, whole_line)
        line_kind = "fence" if fence else _classify_line(line, next_line)
        if line_kind == "prose":  # continues the current block, even an item
            block_lines.append(line)
            continue

        # Any other line ends the block and, unless it's a separator, starts another one.
        yield from _end_block(kind, block_lines)
        block_lines = []
        kind = "prose"
        if fence:
            kind = "code"
            open_fence = fence[1]
        elif line_kind == "heading":
            yield from _end_block("lead", [_without_mark(_HEADING, line).rstrip("# \t")])
        elif line_kind == "table header":
            yield from _end_block("lead", [line.strip("| \t")])
        elif line_kind == "table row":
            kind = "item"
            block_lines = [line.strip("| \t")]
        elif line_kind == "list item":
            kind = "item"
            block_lines = [_without_mark(_MARKER, line)]
    yield from _end_block(kind, block_lines)


def _classify_line(line: str, next_line: str) -> str:
    """Classify a Markdown line as heading, table header, table row, list item, separator or prose."""
    if _HEADING.match(line):
        return "heading"
    is_rule = _RULE.fullmatch(line) is not None
    if is_rule or not line.strip():
        return "separator"
    if line.lstrip().startswith("|"):
        has_rule_below = _RULE.fullmatch(next_line) is not None
        return "table header" if has_rule_below else "table row"
    if _MARKER.match(line):
        return "list item"
    return "prose"


def _without_mark(mark: re.Pattern[str], line: str) -> str:
    """Remove a mark, such as a list's bullet, from the start of a line."""
    match = mark.match(line)
    if match is None:
        return line
    return line[match.end() :]


def _end_block(kind: str, lines: Sequence[str]) -> Iterator[_Block]:
    """Yield lines as a block of the given kind. Yields nothing if the lines are blank.

    If prose ends with a colon, its last sentence becomes a separate block, a lead, because it introduces the
    next block.
    """
    text = "\n".join(lines).strip()
    if not text:
        return

    # The second colon is the full-width one in Chinese and Japanese.
    introduces_more = kind == "prose" and text.endswith((":", "\uff1a"))
    if not introduces_more:
        yield _Block(kind, text)
        return

    *sentences, lead = _split_sentences(_Block(kind, text))
    if sentences:
        start_of_lead = text.rindex(lead)
        yield _Block(kind, text[:start_of_lead].strip())
    yield _Block("lead", lead)


def _split_sentences(block: _Block) -> Iterator[str]:
    """Split a block into sentences. A block of code isn't split."""
    text = block.text
    if block.kind == "code":
        yield text
        return
    start = 0
    for match in _END.finditer(text):
        if _ends_sentence(text, match):
            yield text[start : match.end()].strip()
            start = match.end()
    unfinished_sentence = text[start:].strip()
    if unfinished_sentence:
        yield unfinished_sentence


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a punctuation mark ends a sentence.

    A dot after an abbreviation ("etc."), an initial ("J.") or a day ("3.") doesn't.
    """
    mark = match[0]
    if not mark.startswith("."):
        return True

    # A sentence never starts with a small letter.
    next_match = _NEXT.match(text, match.end())
    next_character = next_match[1] if next_match else ""
    if next_character.islower():
        return False
    if mark != ".":  # an ellipsis, or a closing quotation mark
        return True

    # Look at the word before the dot.
    start_of_word = max(0, match.start() - _LONGEST_ABBREVIATION)
    word_match = _LAST_WORD.search(text[start_of_word : match.start()])
    word = word_match[0].lower() if word_match else ""
    if next_character.isdigit() and word in _BEFORE_NUMBERS:  # such as "No. 7"
        return False
    is_initial = len(word) == 1 and word.isascii() and word.isalpha()
    is_day = _DAY.fullmatch(word) is not None
    return not (is_initial or is_day or word in _ABBREVIATIONS)


# --- Asking about claims, and combining the answers


def find_claims_dimension(rubric: ScoreRubric) -> str | None:
    """Return the name of the rubric's dimension that's judged claim by claim, or None."""
    for name, dimension in rubric.dimensions.items():
        if dimension.check == "claims":
            return name

    if "sources" not in rubric.given.needs:
        return None
    # The rubric groundedness@1.0.0 is older than `check`, and users have copies of it with other ids. So
    # recognise its dimension by the terms or the question.
    for name, dimension in rubric.dimensions.items():
        has_locked_terms = set(dimension.terms) >= _LOCKED_TERMS
        if has_locked_terms or dimension.question == _LOCKED_QUESTION:
            return name
    return None


def claim_questions(
    dimension: str, claims: Sequence[Claim], fence: Fence
) -> list[DecisionQuestion]:
    """Build a question about each claim."""
    questions = []
    for number, claim in enumerate(claims, 1):
        # The claim comes from an untrusted text, so it's fenced.
        instruction = f"Is this claim supported by the sources? {fence.around(claim.words)}"
        questions.append(
            DecisionQuestion(_name_question(dimension, number), "predicate", instruction)
        )
    return questions


def are_all_answered(
    dimension: str, claims: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
) -> bool:
    """Whether all questions about claims have answers."""
    return all(_name_question(dimension, number) in answers for number in range(1, len(claims) + 1))


def least_supported(
    dimension: str, claims: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
) -> Mapping[str, float]:
    """Return the answer about the least supported claim, which decides the dimension's score."""
    # With an average over all claims, a false claim among many true ones would hardly matter.
    answers_to_claims = []
    for number in range(1, len(claims) + 1):
        answers_to_claims.append(answers[_name_question(dimension, number)])
    return min(answers_to_claims, key=lambda answer: answer[YES])


def unsupported_claims(
    dimension: str, claims: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
) -> tuple[Finding, ...]:
    """Return a finding for each claim that the sources probably don't support, in text order.

    If there are more than `MAX_FINDINGS` such claims, only the least supported ones get a finding.
    """
    support_by_number = {}  # by claim number, starting with 1: the probability that the claim is supported
    for number in range(1, len(claims) + 1):
        support = answers[_name_question(dimension, number)][YES]
        if support < EVEN:
            support_by_number[number] = support
    worst_first = sorted(support_by_number, key=lambda number: support_by_number[number])
    reported_numbers = worst_first[:MAX_FINDINGS]

    findings = []
    for number in sorted(reported_numbers):
        finding = Finding(
            dimension=dimension,
            issue=f"not supported by the sources (probability {support_by_number[number]:.2f})",
            quote=visible(claims[number - 1].quote),
        )
        findings.append(finding)
    return tuple(findings)


def _name_question(dimension: str, number: int) -> str:
    """Name the question about a dimension's claim with this number."""
    return f"{dimension}.{number}"

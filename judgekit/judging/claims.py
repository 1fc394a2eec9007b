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
from judgekit.text import remove_invisible, split_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.judging.fence import Fence
    from judgekit.rubric.schema import Dimension, ScoreRubric

_WORDING_TABLE: Final[dict[str, str]] = environment.read_toml(__file__, "claims.toml")
_LOCKED_QUESTION: Final = _WORDING_TABLE["locked_question"]
_LOCKED_TERMS: Final = frozenset(_WORDING_TABLE["locked_terms"].split())
_ABBREVIATIONS: Final = frozenset(_WORDING_TABLE["abbreviations"].split())
_BEFORE_NUMBERS: Final = frozenset(_WORDING_TABLE["before_numbers"].split())
_CODE_FENCE_PATTERN: Final = re.compile(r"[ \t]*(`{3,}|~{3,})")
_LIST_MARKER_PATTERN: Final = re.compile(
    r"[ \t]*(?:[-*+\u2022\u2013]|\d{1,3}[.)]|[A-Za-z]\))[ \t]+"
)
_HEADING_PATTERN: Final = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+")
_BLOCKQUOTE_PATTERN: Final = re.compile(r"[ \t]*>[ \t]?")
_RULE_LINE_PATTERN: Final = re.compile(r"[ \t|:=*_+-]+")  # between columns, or under a heading
_CLOSING: Final = "\"'\u2019\u201d\u00bb)\\]\\}*_\u300d\u300f\uff09\u3011"
_SENTENCE_END_PATTERN: Final = re.compile(
    rf"[.!?\u2026]{{1,9}}[{_CLOSING}]{{0,9}}(?=\s)"
    rf"|[\u3002\uff01\uff1f\uff61\u0964\u0965\u06d4\u061f\u1362][{_CLOSING}]{{0,9}}"
)
_LONGEST_ABBREVIATION: Final = 12
_LAST_WORD_PATTERN: Final = re.compile(rf"[^\s(\[{{\"'\u201c\u201e]{{1,{_LONGEST_ABBREVIATION}}}$")
_NEXT_CHARACTER_PATTERN: Final = re.compile(r"\s*(\S?)")
_DAY_PATTERN: Final = re.compile(r"\d{1,2}")  # before a dot, part of a date


class Claim(NamedTuple):
    """A sentence, item, row or code block, exactly as in the text.

    `lead_in` is the heading or introduction it belongs to, since an item alone states only half of its claim.
    """

    quote: str
    lead_in: str = ""

    @property
    def full_text(self) -> str:
        return f"{self.lead_in} {self.quote}" if self.lead_in else self.quote


# --- Splitting a text


def split_claims(text: str) -> list[Claim]:
    """Split a text into claims: its sentences and list items, in order and without losing any word.

    A lead is text that introduces a claim, such as a heading. It belongs to all items of the list that
    follows, or to the next sentence. If nothing follows, the lead is a claim itself.
    """
    collector = _ClaimCollector()
    for block in _split_blocks(text):
        if block.kind == "lead":
            collector.add_lead(block)
        elif block.kind == "item":
            collector.add_item(block)
        else:
            collector.add_text(block)
    collector.add_unused_lead()
    # Skip claims without any letter or digit, such as a line of dashes.
    return [claim for claim in collector.claims if any(map(str.isalnum, claim.quote))]


class _ClaimCollector:
    """Collects the claims in a text's blocks, and gives them their leads."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self._lead = ""  # of the next claim
        self._is_lead_unused = False
        self._is_in_list = False

    def add_lead(self, block: _Block) -> None:
        """Remember a lead. Join it with the previous one, such as a heading, if that's unused."""
        self._lead = f"{self._lead} {block.text}" if self._is_lead_unused else block.text
        self._is_lead_unused = True
        self._is_in_list = False

    def add_item(self, block: _Block) -> None:
        """Add the sentences of a list item. All of them have the list's lead."""
        self._is_in_list = True
        for sentence in _split_sentences(block):
            self._add_claim(sentence)

    def add_text(self, block: _Block) -> None:
        """Add the sentences of a paragraph, or a block of code. Only the first sentence gets the lead."""
        if self._is_in_list:
            self._lead = ""  # it only introduced the list, which ends here
        self._is_in_list = False
        for sentence in _split_sentences(block):
            self._add_claim(sentence)
            self._lead = ""

    def add_unused_lead(self) -> None:
        """Add the last lead as a claim if nothing has followed it."""
        if self._is_lead_unused:
            self.claims.append(Claim(self._lead))

    def _add_claim(self, sentence: str) -> None:
        self.claims.append(Claim(sentence, self._lead))
        self._is_lead_unused = False


class _Block(NamedTuple):
    """Lines that belong together: a `lead`, an `item` (of a list or table), `code`, or else `prose`."""

    kind: str
    text: str


def _split_blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of a text, in order."""
    builder = _BlockBuilder()
    lines = split_lines(text)
    next_lines = [*lines, ""][1:]  # nothing comes after the last line
    for line, next_line in zip(lines, next_lines, strict=True):
        if builder.is_in_code:
            yield from builder.add_code(line)
        else:
            yield from builder.add_line(line, next_line)
    yield from builder.end_block()


class _BlockBuilder:
    """Collects the lines of the current block. Its methods yield the blocks that end."""

    def __init__(self) -> None:
        self._start_block("prose")

    @property
    def is_in_code(self) -> bool:
        return self._open_fence != ""

    def add_code(self, line: str) -> Iterator[_Block]:
        """Add a line of code, or end the code block if the line is its closing fence."""
        fence = _CODE_FENCE_PATTERN.match(line)
        is_closing = fence is not None and fence[1].startswith(self._open_fence)
        if is_closing:
            yield from self.end_block()
        else:
            self._lines.append(line)

    def add_line(self, whole_line: str, next_line: str) -> Iterator[_Block]:
        """Add a line outside a code block. A line of a table is its header if `next_line` is a rule."""
        fence = _CODE_FENCE_PATTERN.match(whole_line)
        if fence:
            yield from self.end_block()
            self._start_block("code", open_fence=fence[1])
            return

        line = _strip_mark(_BLOCKQUOTE_PATTERN, whole_line)
        line_kind = _classify_line(line, next_line)
        if line_kind == "prose":  # continues the current block, even an item
            self._lines.append(line)
            return

        # Any other line ends the block and, unless it's a separator, starts another one.
        yield from self.end_block()
        if line_kind == "heading":
            yield from _make_blocks("lead", [_strip_mark(_HEADING_PATTERN, line).rstrip("# \t")])
        elif line_kind == "table header":
            yield from _make_blocks("lead", [line.strip("| \t")])
        elif line_kind == "table row":
            self._start_block("item", line.strip("| \t"))
        elif line_kind == "list item":
            self._start_block("item", _strip_mark(_LIST_MARKER_PATTERN, line))

    def end_block(self) -> Iterator[_Block]:
        """Yield the current block unless it's blank, and go on with prose."""
        yield from _make_blocks(self._kind, self._lines)
        self._start_block("prose")

    def _start_block(self, kind: str, *lines: str, open_fence: str = "") -> None:
        self._kind = kind
        self._lines = list(lines)
        self._open_fence = open_fence  # the mark that opened a code block


def _classify_line(line: str, next_line: str) -> str:
    """Classify a Markdown line as heading, table header, table row, list item, separator or prose."""
    if _HEADING_PATTERN.match(line):
        return "heading"
    is_rule = _RULE_LINE_PATTERN.fullmatch(line) is not None
    if is_rule or not line.strip():
        return "separator"
    if line.lstrip().startswith("|"):
        has_rule_below = _RULE_LINE_PATTERN.fullmatch(next_line) is not None
        return "table header" if has_rule_below else "table row"
    if _LIST_MARKER_PATTERN.match(line):
        return "list item"
    return "prose"


def _strip_mark(mark: re.Pattern[str], line: str) -> str:
    """Remove a mark, such as a list's bullet, from the start of a line."""
    match = mark.match(line)
    if match is None:
        return line
    return line[match.end() :]


def _make_blocks(kind: str, lines: Sequence[str]) -> Iterator[_Block]:
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
    for match in _SENTENCE_END_PATTERN.finditer(text):
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
    next_match = _NEXT_CHARACTER_PATTERN.match(text, match.end())
    next_character = next_match[1] if next_match else ""
    if next_character.islower():
        return False
    if mark != ".":  # an ellipsis, or a closing quotation mark
        return True

    word = _find_word_before(text, match.start())
    is_before_number = next_character.isdigit() and word in _BEFORE_NUMBERS  # such as "No. 7"
    is_initial = len(word) == 1 and word.isascii() and word.isalpha()
    is_day = _DAY_PATTERN.fullmatch(word) is not None
    is_abbreviation = word in _ABBREVIATIONS
    is_dot_of_word = is_before_number or is_initial or is_day or is_abbreviation
    return not is_dot_of_word


def _find_word_before(text: str, end: int) -> str:
    """Return the word that ends at a position, in small letters, or "" if there's none."""
    start = max(0, end - _LONGEST_ABBREVIATION)  # a longer word can't be an abbreviation
    match = _LAST_WORD_PATTERN.search(text[start:end])
    return match[0].lower() if match else ""


# --- Asking about claims, and combining the answers


def find_claims_dimension(rubric: ScoreRubric) -> str | None:
    """Return the name of the rubric's dimension that's judged claim by claim, or None."""
    for name, dimension in rubric.dimensions.items():
        if dimension.check == "claims":
            return name

    # The rubric groundedness@1.0.0 is older than `check`, and users have copies of it with other ids. Such a
    # copy needs sources, and has a dimension about groundedness.
    if "sources" not in rubric.given.needs:
        return None
    for name, dimension in rubric.dimensions.items():
        if _is_groundedness(dimension):
            return name
    return None


def _is_groundedness(dimension: Dimension) -> bool:
    """Whether a dimension has the terms or the question of groundedness@1.0.0."""
    has_its_terms = _LOCKED_TERMS.issubset(dimension.terms)
    has_its_question: bool = dimension.question == _LOCKED_QUESTION
    return has_its_terms or has_its_question


def claim_questions(
    dimension: str, claims: Sequence[Claim], fence: Fence
) -> list[DecisionQuestion]:
    """Build a question about each claim."""
    questions = []
    for number, claim in enumerate(claims, 1):
        # The claim comes from an untrusted text, so it's fenced.
        instruction = f"Is this claim supported by the sources? {fence.wrap_text(claim.full_text)}"
        questions.append(
            DecisionQuestion(_name_question(dimension, number), "predicate", instruction)
        )
    return questions


def are_all_answered(
    dimension: str, claims: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
) -> bool:
    """Whether all questions about claims have answers."""
    return all(_name_question(dimension, number) in answers for number in range(1, len(claims) + 1))


def find_least_supported(
    dimension: str, claims: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
) -> Mapping[str, float]:
    """Return the answer about the least supported claim, which decides the dimension's score."""
    # With an average over all claims, a false claim among many true ones would hardly matter.
    answers_to_claims = []
    for number in range(1, len(claims) + 1):
        answers_to_claims.append(answers[_name_question(dimension, number)])
    return min(answers_to_claims, key=lambda answer: answer[YES])


def list_unsupported_claims(
    dimension: str, claims: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
) -> tuple[Finding, ...]:
    """Return a finding for each claim that the sources probably don't support, in text order.

    If there are more than `MAX_FINDINGS` such claims, only the least supported ones get a finding.
    """
    low_support_by_number = {}
    for number in range(1, len(claims) + 1):
        support = answers[_name_question(dimension, number)][YES]
        if support < EVEN:
            low_support_by_number[number] = support
    worst_first = sorted(low_support_by_number, key=lambda number: low_support_by_number[number])
    reported_numbers = worst_first[:MAX_FINDINGS]

    findings = []
    for number in sorted(reported_numbers):
        finding = Finding(
            dimension=dimension,
            issue=f"not supported by the sources (probability {low_support_by_number[number]:.2f})",
            quote=remove_invisible(claims[number - 1].quote),
        )
        findings.append(finding)
    return tuple(findings)


def _name_question(dimension: str, number: int) -> str:
    """Name the question about a dimension's claim with this number."""
    return f"{dimension}.{number}"

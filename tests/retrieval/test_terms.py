"""How prompts and texts are cut into parts, terms and stems."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.evaluation.cases import CollectionDocument
from judgekit.evaluation.retrieval import SearchableCollection
from judgekit.retrieval import bm25, compiled, parts, search, terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_store import MemoryStore


PROFILE = compiled.Profiles(compiled.get_bundled_data()).by_kind["markdown"]
LANGUAGE = PROFILE.language

# One word at least for each rule of the algorithm.
WORDS = """
a at sky skies news dying tying idly gently early caresses ties tied cries cats gas this gaps bus kiwis
inning proceed evening succeeding agreed feed hoped hopping hoping falling luxuriated sized adding egged
trying saying enjoying by cry youth boy conditional rational valenci digitizer operator feudalism
decisiveness hopefulness callousness formality sensitivity sensibility geologist analogy quickly gladly
fully triplicate formative formalize electricity electrical goodness revival allowance inference airliner
adjustable replacement adoption communism activate effective bowdlerize generate general communication
arsenal university rate controlling rolling parable cease probate refresh refreshes refreshing
authentication deployment configuration queries utf8 k8s naïve café
"""


@pytest.mark.skipif(find_spec("snowballstemmer") is None, reason="snowballstemmer is not installed")
def test_stems_are_those_of_the_reference() -> None:
    import snowballstemmer  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: PLC0415 - not a dependency

    reference = snowballstemmer.stemmer("english")
    endings = [
        "",
        "s",
        "ed",
        "ing",
        "ly",
        "ness",
        "ation",
        "ational",
        "ability",
        "ement",
        "ied",
        "ying",
    ]
    endings += ["ll", "ingly", "eedly", "ative"]
    words = {word + ending for word in WORDS.split() for ending in endings if word.isascii()}
    assert {word: terms.stem_english(word) for word in words} == {
        word: reference.stemWord(word) for word in words
    }


def texts(prompt: str) -> list[str]:
    return [term.text for term in terms.parse(prompt, LANGUAGE)]


def store_of(document: str) -> SearchableCollection:
    return SearchableCollection([CollectionDocument(id="a", title="", text=document)], PROFILE)


def matches(store: SearchableCollection, prompt: str) -> bool:
    """Whether an index finds its document: FTS5 by its tokenizer, and the scoring by our own."""
    hits = bm25.match(store.index, parts.make_single_part(prompt, LANGUAGE))
    assert all(hit.matched_terms and hit.bm25 > 0 for hit in hits), (
        "what finds and what rates must agree"
    )
    return bool(hits)


def finds(prompt: str, document: str) -> bool:
    with closing(store_of(document)) as store:
        return matches(store, prompt)


@pytest.fixture(scope="module")
def cookies() -> Iterator[SearchableCollection]:
    with closing(store_of("cookies are set by a1")) as store:
        yield store


TERMS = [
    ("How do we refresh the JWT?", ["refresh", "jwt"]),
    ("the of and is", []),
    ("refresh Refresh REFRESH", ["refresh"]),
    ("the rate-limit policy", ["rate-limit", "rate", "limit", "policy"]),
    ("getUserToken", ["getusertoken", "user", "token"]),
    ("parseJSONBody", ["parsejsonbody", "parse", "json", "body"]),
    ("see src/auth/jwt/refresh/flow.py", ["see", "src", "auth", "jwt", "refresh", "flow", "py"]),
    ("What's Maria's café?", ["maria", "café"]),
    ("_private__name_", ["private__name", "private", "name"]),
    ("", []),
    ("认证流程 是什么", ["认证", "证流", "流程", "是什", "什么"]),
    ("Ship the .NET and C# parts 🚀", ["ship", ".net", "net", "c#", "parts", "🚀"]),
]


def test_a_prompt_becomes_these_terms() -> None:
    assert [(prompt, texts(prompt)) for prompt, _ in TERMS] == TERMS
    marks = {term.text: term.is_common for term in terms.parse("write the webhook file", LANGUAGE)}
    assert marks == {"write": True, "webhook": False, "file": True}


FOUND = [
    ("the auth problem", "Authentication uses cookies"),
    ("which authentication", "auth uses cookies"),
    ("configuration question", "The config is layered"),
    ("env", "Environment variables"),
    ("deploying", "deploys at noon"),
    ("kubernetes", "k8s cluster"),
    ("build server", "caches on CI"),
    ("LFS", "large file storage"),
    ("user_id", "the user id column"),
    ("user token", "calls getUserToken()"),
    ("useState hook", "React.useState is banned"),
    ("rates limited", "a rate limit"),
    ("what did she buy", "she bought a car"),
    ("children", "one child"),
    ("state-of-the-art", "the state of the art"),
    ("naïve", "naive approach"),
    ("nai\u0308ve", "naïve approach"),
    ("认证流程", "认证流程 说明"),
]
NOT_FOUND = [
    ("the sea", "search and season"),
    ("refresh", "the fresh fish"),
    ("got", "get the gist"),
]


def test_the_terms_find_what_they_mean_and_nothing_else() -> None:
    assert [pair for pair in FOUND if not finds(*pair)] == []
    assert [pair for pair in NOT_FOUND if finds(*pair)] == []


HOSTILE = [
    'cookies" OR "x',
    "title:cookies NOT *",
    "cookies AND OR NOT NEAR(cookies, 2)",
    "{title body}: cookies",
    "'; DROP TABLE t; -- cookies",
    "cookies\x00cookies",
    "\ud800cookies \udfff cookies",
    "co\u200bokies \u202ecookies",
    "cookies" + ")" * 1000,
    "NOT cookies",
]


def test_no_text_of_a_query_is_syntax(cookies: SearchableCollection) -> None:
    assert [prompt for prompt in HOSTILE if not matches(cookies, prompt)] == []


OPERATORS = ['"', "*", "(", ")", ":", "^", "OR", "NEAR", "a1", "-", "{", "\x00", "\ud800", " "]


@given(st.text(max_size=300) | st.lists(st.sampled_from(OPERATORS)).map("".join))
def test_any_text_is_a_valid_query(cookies: SearchableCollection, prompt: str) -> None:
    matches(cookies, prompt)


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    prompt = "first question " + "filler " * 100_000 + " last question"
    assert texts(prompt)[0] == "first"
    assert "last" in texts(prompt)
    assert "middle" not in texts("x " * 1000 + "middle" + " x" * 1000)


LANGUAGE = compiled.Profiles(compiled.get_bundled_data()).by_kind["claude-memory"].language
LONG = (
    "We talked about the garden fence of wooden planks with green paint by rusty nails "
    "on two ladders at old shed doors"
)


def parts_of(prompt: str) -> list[str]:
    return [part.text for part in parts.parse(prompt, LANGUAGE)]


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("What is it?", []),
        ("How does the token refresh work?", ["How does the token refresh work?"]),
        ("Fix the login. Who owns billing?", ["Fix the login.", "Who owns billing?"]),
        ("fix the login\nwho owns billing", ["fix the login", "who owns billing"]),
        ("- fix the login\n* who owns billing", ["fix the login", "who owns billing"]),
        ("Fix the login! Fix the login.", ["Fix the login!"]),
        (
            "migrate the orders table and then deploy to production",
            [
                "migrate the orders table and then deploy to production",
                "migrate the orders table",
                "deploy to production",
            ],
        ),
        ("Billing: who owns invoices", ["Billing: who owns invoices", "owns invoices"]),
        ("see it and login", ["see it and login"]),  # one word is no clause
    ],
)
def test_sentences_lines_items_and_clauses(prompt: str, found: list[str]) -> None:
    assert parts_of(prompt) == found


def test_a_long_sentence_is_read_through_windows() -> None:
    found = parts.parse(LONG, LANGUAGE)
    assert all(len(part.terms) <= parts.MAX_WHOLE_TERMS for part in found)
    (whole,) = parts.make_single_part(LONG, LANGUAGE)
    assert {term.text for part in found for term in part.terms} == {
        term.text for term in whole.terms
    }
    for first, second in pairwise(found):
        assert {term.text for term in first.terms} & {term.text for term in second.terms}, (
            "they overlap"
        )


@pytest.mark.parametrize(
    "prompt",
    [
        "who owns billing, close the shop",
        "who owns billing or close the shop",
        "who owns billing but close the shop",
    ],
)
def test_commas_and_joining_words_end_a_clause(prompt: str) -> None:
    assert [text.rstrip(",") for text in parts_of(prompt)] == [
        prompt,
        "owns billing",
        "close the shop",
    ]


@pytest.mark.parametrize(
    ("prompt", "statements"),
    [
        ("Who owns billing?", {False}),
        ("谁负责账单\uff1f", {False}),
        ("who owns billing", {False}),
        ("Billing was broken all day.", {True}),
        ("Billing was broken all day!", {True}),
        ("账单又坏了。", {True}),
    ],
)
def test_a_part_tells_if_its_sentence_ends_so(prompt: str, statements: set[bool]) -> None:
    assert {part.is_statement for part in parts.parse(prompt, LANGUAGE)} == statements


def test_a_part_knows_how_many_sentences_and_parts_there_are() -> None:
    found = parts.parse(
        "Fix the login, and then the invoice. Who owns billing? Is it so?", LANGUAGE
    )
    assert {part.sentence_count for part in found} == {2}, "one without words is none"
    assert {part.part_count for part in found} == {len(found)}


def test_pasted_code_and_logs_come_last() -> None:
    code = "```\nlogin(user)\n```\n    indented code\n[12:30:01] {id=7} <failed>"
    prompt = f"Why is this?\n{code}\nWho owns billing?"
    assert parts_of(prompt) == [
        "Who owns billing?",
        "login(user)",
        "indented code",
        "[12:30:01] {id=7} <failed>",
    ]


@pytest.mark.parametrize("space", [chr(code) for code in range(0x3001) if chr(code).isspace()])
def test_a_dot_begins_a_word_behind_any_space(space: str) -> None:
    (part,) = parts.make_single_part(f"{space}.Net", LANGUAGE)
    assert part.terms[0].text == ".net"


@pytest.mark.parametrize("prompt", ["\u5b57_\u0301", "\ud55c-\u0301", "\u0301.\u6587"])
def test_a_mark_without_its_letter_is_no_word(prompt: str) -> None:
    (part,) = parts.make_single_part(prompt, LANGUAGE)
    assert part.terms


@given(st.text(max_size=300))
def test_any_text_has_parts_with_terms_of_its_own(prompt: str) -> None:
    of_whole = {
        term.text for part in parts.make_single_part(prompt, LANGUAGE) for term in part.terms
    }
    found = parts.parse(prompt, LANGUAGE)
    assert all(part.terms for part in found)
    assert bool(found) <= bool(of_whole)


def test_each_part_finds_and_rates_for_itself(store: MemoryStore) -> None:
    store.add("deploy", "Deploying to production and rolling back", "Watch the error rate.")
    store.fill(20).write_index()
    talk = "The weather was lovely at the lake. My sister painted her kitchen yellow."

    def high(prompt: str) -> list[str]:
        root = [str(store.root)]
        ranked = search.search(prompt, root, project=str(store.project), limit=15, pool=15)
        return sorted(hit.id for hit in ranked.candidates if hit.confidence_label == "high")

    assert high("How does the JWT token refresh work?") == ["jwt"]
    assert high(f"{talk} How does the JWT token refresh work? Thanks for the lovely cake.") == [
        "jwt"
    ]
    assert high("how does the jwt token refresh work and then deploy it to production") == [
        "deploy",
        "jwt",
    ]
    assert high(talk) == []


IMAGE = "Keep the old image of the release until the next morning, and watch the error rate. " * 3


@pytest.mark.parametrize(
    ("prompt", "is_mentioned"),
    [
        ("which image is kept for a long time around these places", True),
        ("It rained. She painted the kitchen. Keep the image green. We ate pasta.", False),
    ],
)
def test_a_first_hit_far_ahead_is_worth_mentioning_in_a_request(
    store: MemoryStore, prompt: str, *, is_mentioned: bool
) -> None:
    store.add("deploy", "Deploying to production and rolling back", IMAGE)
    store.fill(30).write_index()
    root = [str(store.root)]
    ranked = search.search(prompt, root, project=str(store.project), limit=15, pool=15)
    first = ranked.candidates[0]
    assert first.id == "deploy"
    assert first.confidence_label == "low"
    assert first.worth_mentioning == is_mentioned

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.evaluation.collection import CollectionDocument
from judgekit.evaluation.retrieval import CollectionIndex
from judgekit.retrieval import bm25, compiled, query

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["markdown"]
LANGUAGE = PROFILE.language


def texts(prompt: str) -> list[str]:
    return [term.text for term in query.parse(prompt, LANGUAGE)]


def finds(prompt: str, document: str) -> bool:
    """Whether an index of one document finds it: FTS5 by its tokenizer, and the scoring by our own."""
    store = CollectionIndex([CollectionDocument(id="a", title="", text=document)], PROFILE)
    hits, _ = bm25.match(store._index, query.parse(prompt, LANGUAGE))
    store.close()
    assert all(hit.matched and hit.candidate.bm25 > 0 for hit in hits), "what finds and what rates must agree"
    return bool(hits)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("How do we refresh the JWT?", ["refresh", "jwt"]),
        ("the of and is", []),
        ("a b c 1 2 x", []),
        ("refresh Refresh REFRESH", ["refresh"]),
        ("user_id", ["user_id", "user", "id"]),
        ("the rate-limit policy", ["rate-limit", "rate", "limit", "policy"]),
        ("React.FC", ["react.fc", "react", "fc"]),
        ("getUserToken", ["getusertoken", "user", "token"]),
        ("parseJSONBody", ["parsejsonbody", "parse", "json", "body"]),
        ("see src/auth/jwt/refresh/flow.py", ["see", "src", "auth", "jwt", "refresh", "flow", "py"]),
        ("What's Maria's café?", ["maria", "café"]),
        ("and/or", []),
        ("_private__name_", ["private__name", "private", "name"]),
        ("--force --no-verify", ["force", "verify"]),
        ("", []),
        ("🙂🙂 🙂", []),
        ("认证流程 是什么", ["认证流程", "是什么"]),
    ],
)
def test_a_prompt_becomes_these_terms(prompt: str, expected: list[str]) -> None:
    assert texts(prompt) == expected


@pytest.mark.parametrize(
    ("prompt", "document"),
    [
        ("the auth problem", "Authentication uses cookies"),
        ("which authentication", "auth uses cookies"),
        ("config question", "The configuration is layered"),
        ("configuration question", "The config is layered"),
        ("env", "Environment variables"),
        ("environment", "env vars"),
        ("repo", "Repository layout"),
        ("deploy", "Deployment runs at noon"),
        ("deployment", "we deploy at noon"),
        ("deploying", "deploys at noon"),
        ("kubernetes", "k8s cluster"),
        ("k8s", "Kubernetes cluster"),
        ("user_id", "the user id column"),
        ("userId", "the user_id column"),
        ("user token", "calls getUserToken()"),
        ("getUserToken", "calls getUserToken()"),
        ("useState hook", "React.useState is banned"),
        ("refreshing", "The refresh of tokens"),
        ("rates limited", "a rate limit"),
        ("what did she buy", "she bought a car"),
        ("bought", "a buyer buys"),
        ("children", "one child"),
        ("user_id", "user_id and the_user_id"),
        ("state-of-the-art", "the state of the art"),
        ("naive", "naïve approach"),
        ("naïve", "naive approach"),
        ("nai\u0308ve", "naïve approach"),
        ("认证流程", "认证流程 说明"),
    ],
)
def test_the_terms_find(prompt: str, document: str) -> None:
    assert finds(prompt, document)


@pytest.mark.parametrize(
    ("prompt", "document"),
    [
        ("the sea", "search and season"),
        ("cat", "category"),
        ("user_id", "nothing of the kind"),
        ("refresh", "the fresh fish"),
        ("got", "get the gist"),
    ],
)
def test_the_terms_do_not_find(prompt: str, document: str) -> None:
    assert not finds(prompt, document)


HOSTILE = [
    'cookies" OR "x',
    "title:cookies NOT *",
    "cookies AND OR NOT NEAR(cookies, 2)",
    "^cookies + - * : { } ( ) [ ]",
    "{title body}: cookies",
    "'; DROP TABLE t; -- cookies",
    '"""cookies"""',
    "cookies\x00cookies",
    "\ud800cookies \udfff cookies",
    "co\u200bokies \u202ecookies",
    "cookies" + ")" * 1000,
    "NOT cookies",
]


@pytest.mark.parametrize("prompt", HOSTILE)
def test_no_text_of_a_query_is_syntax(prompt: str) -> None:
    assert finds(prompt, "cookies are set")


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_valid_query(prompt: str) -> None:
    finds(prompt, "cookies are set")


@given(
    st.lists(st.sampled_from(['"', "*", "(", ")", ":", "^", "OR", "NEAR", "a1", "-", "{", "\x00", "\ud800"]))
)
def test_any_row_of_operators_is_a_valid_query(pieces: list[str]) -> None:
    finds(" ".join(pieces), "a1")
    finds("".join(pieces), "a1")


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    prompt = "first question " + "filler " * 100_000 + " last question"
    assert texts(prompt)[0] == "first"
    assert "last" in texts(prompt)
    assert "middle" not in texts("x " * 1000 + "middle" + " x" * 1000)


@pytest.mark.parametrize("unit", ["word%d ", "camelCaseWord%d", "a.b-c_%d/", "字%d", "\ud800%d", '"%d'])
def test_a_megabyte_is_bounded(unit: str) -> None:
    prompt = "".join(unit % number for number in range(1_000_000 // len(unit)))
    begun = time.process_time()
    terms = query.parse(prompt, LANGUAGE)
    assert len(terms) <= query.MAX_TERMS
    assert time.process_time() - begun < 5


def test_common_words_are_marked() -> None:
    marks = {term.text: term.common for term in query.parse("write the webhook file", LANGUAGE)}
    assert marks == {"write": True, "webhook": False, "file": True}


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("userId", ["user", "Id"]),
        ("HTTPServer", ["HTTP", "Server"]),
        ("sha256Sum", ["sha256", "Sum"]),
        ("word", []),
        ("Word", []),
        ("WORD", []),
        ("JWTs", []),
        ("parseURLs", ["parse", "URLs"]),
        ("a" * 60 + "B" * 10, []),
    ],
)
def test_identifiers_are_cut_where_a_person_would(word: str, parts: list[str]) -> None:
    assert query.camel(word) == parts


def test_hidden_words_are_those_that_are_not_spelled_out() -> None:
    assert query.hidden_words("The db, `getUserId()` and plain words", LANGUAGE) == "database get User Id"
